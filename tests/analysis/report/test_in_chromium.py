"""The page in a real browser: no console message, no request, figures there, nothing wider than a telephone."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from analysis.loaders.synthetic import synthesize
from analysis.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    *("--enable-logging=stderr", "--v=0"),
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt install chromium)")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    return write_report(synthesize(like="philly", num_jobs=300, seed=2), folder / "report.html")


def browse(page, tmp_path, *options):
    return subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *options, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


def test_it_opens_without_a_console_message_or_a_failed_request(page, tmp_path):
    run = browse(page, tmp_path, "--dump-dom")
    assert not [line for line in run.stderr.splitlines() if "CONSOLE" in line or "net::ERR" in line]
    assert run.stdout.count("<svg") >= 5
    assert "<h1" in run.stdout


@pytest.mark.parametrize("width_px", [400, 1600])
def test_it_fits_a_telephone_and_a_wide_screen(page, tmp_path, width_px):
    """A probe page frames the report at a width and writes down how wide its content came out."""
    probe = tmp_path / "probe.html"
    probe.write_text(
        f"<iframe id=f style='width:{width_px}px;height:900px;border:0' src='{page.as_uri()}'></iframe><p id=p></p>"
        "<script>f.onload=()=>{const d=f.contentDocument.documentElement;"
        "p.textContent='content '+d.scrollWidth+' figures '+[...f.contentDocument.querySelectorAll('svg')]"
        ".filter(s=>s.getBoundingClientRect().width>0).length}</script>"
    )
    size = f"--window-size={width_px + 100},1000"
    options = ("--allow-file-access-from-files", "--virtual-time-budget=5000", size, "--dump-dom")
    found = re.search(r"content (\d+) figures (\d+)", browse(probe, tmp_path, *options).stdout)
    assert found, "the probe could not look into the page"
    assert int(found[1]) <= width_px
    assert int(found[2]) >= 5
