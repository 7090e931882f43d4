"""Reports on real logs, single and compared, in a real browser: small, quiet, and no wider than the window."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.loaders import load
from analysis.report import write_comparison, write_report
from tests.analysis.report.browser import CHROMIUM, Browser

pytestmark = [
    pytest.mark.full_trace,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt install chromium)"),
]
FILES = {
    "philly": ("philly/philly_jobs.csv.gz",),
    "graham": ("slurm/graham_jobs.csv.gz",),
    "openb": ("alibaba/openb_pod_list_default.csv", "alibaba/openb_node_list_all_node.csv"),
    "kth": ("swf/KTH-SP2-1996-2.swf.gz",),
}


@pytest.fixture(scope="module")
def traces(real_data):
    made = {name: load("auto", [real_data(file) for file in names]) for name, names in FILES.items()}
    made["graham"] = made["graham"].replace_jobs(made["graham"].jobs.filter(pl.col("num_gpus") > 0))
    return made


@pytest.fixture(scope="module")
def pages(traces, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    written = {name: write_report(trace, folder / f"{name}.html") for name, trace in traces.items()}
    return {**written, "compared": write_comparison(list(traces.values()), folder / "compared.html")}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.mark.parametrize("name", [*FILES, "compared"])
def test_it_is_small_quiet_and_fits(pages, browser, name):
    page = pages[name]
    assert page.stat().st_size < 5_000_000
    for width, dark in ((400, True), (1600, False)):
        browser.open(page.as_uri(), width=width, dark=dark)
        browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert browser.run("document.documentElement.scrollWidth") <= width
        noise = {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.loadingFailed"}
        assert not [event for event in browser.events if event[0] in noise]
        fetched = [event["request"]["url"] for method, event in browser.events if method == "Network.requestWillBeSent"]
        assert fetched == [page.as_uri()]
        drawn = browser.run("[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().width)")
        assert len(drawn) >= 10
        assert min(drawn) > 250


@pytest.mark.parametrize(
    ("name", "words"),
    [
        # 82,248 rows of the file, one of them blank.
        ("philly", "The log holds 82,247 jobs"),
        ("graham", "The log holds 19,407 jobs"),
        ("openb", "The log holds 8,152 jobs, submitted over 149 days (54.6 a day): 7,064 GPU jobs, 1,088 CPU jobs."),
        ("kth", "The log holds 28,489 jobs"),
        ("compared", "openb holds 8,152 jobs (7,064 with GPUs)"),
    ],
)
def test_its_first_sentence_is_the_size_of_the_log(pages, name, words):
    assert words in pages[name].read_text(encoding="utf-8")
