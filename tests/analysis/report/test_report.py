"""The report: one page that opens from disk, says what is missing, escapes what users wrote, the same each time."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np
import polars as pl
import pytest

from analysis import schema
from analysis.characterize import characterize
from analysis.errors import UsageError
from analysis.plots import FIGURES
from analysis.replay import Cluster, replay
from analysis.replay.gains import compare, mixed_cluster
from analysis.report import render_report, write_report
from analysis.report.blocks import Section, limit_downloads, table_block
from analysis.report.download import csv_download
from analysis.trace import LoadReport, Trace, TraceMeta

T0 = datetime(2024, 3, 4, tzinfo=UTC)
EVIL = "<script>alert('x')</script>"
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """What a page holds: tags with attributes, whether they nest, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def make_trace(num_jobs: int = 300, *, gpus: tuple[float, ...] = (0.5, 1, 2, 8), **meta: object) -> Trace:
    rng = np.random.default_rng(3)
    rows = []
    for number in range(num_jobs):
        submit = T0 + timedelta(hours=number)
        run = float(rng.integers(30, 40_000))
        begin = submit + timedelta(seconds=float(rng.integers(0, 300)))
        rows.append(
            {
                "job_id": str(number),
                "user": f"{EVIL}{number % 3}",
                "vc": "R&D <b>",
                "job_name": EVIL,
                "submit_time": submit,
                "start_time": begin,
                "end_time": begin + timedelta(seconds=run),
                "num_gpus": float(gpus[number % len(gpus)]),
                "status": ["completed", "failed"][number % 2],
                "duration_s": run,
                "queueing_delay_s": (begin - submit).total_seconds(),
                "censoring": "none",
                "flags": [],
            }
        )
    jobs = schema.sort_jobs(pl.DataFrame(rows, schema=schema.JOBS))
    return Trace(jobs, meta=TraceMeta(**{"name": "made", **meta}))  # type: ignore[arg-type]


def parts(trace: Trace) -> dict[str, object]:
    """Everything a report can show, made for real."""
    cluster = Cluster.uniform(num_nodes=2, num_gpus=8)
    jobs = trace.jobs.with_columns(predicted_duration_s__near=pl.col("duration_s") * 1.5)
    gains = compare(
        jobs,
        clusters={"own": cluster, "mixed": mixed_cluster(cluster)},
        predicted={"near": "predicted_duration_s__near"},
        use_vcs=False,
    )
    return {
        "scores": pl.DataFrame({"model": ["near", "global_median"], "log_mae": [0.41, 1.9], "within_2x": [1.0, 0.2]}),
        "predictions": jobs.select("job_id", "duration_s", "predicted_duration_s__near"),
        "gains": gains,
        "replays": {name: replay(trace.jobs, cluster=cluster, policy=name, use_vcs=False) for name in ("fifo", "easy")},
        "notes": [f"a note with {EVIL}"],
    }


@pytest.fixture(scope="module")
def full() -> str:
    trace = make_trace()
    return render_report(trace, **parts(trace))  # type: ignore[arg-type]


def test_nothing_leaves_the_page(full: str) -> None:
    page = Page(full)
    assert page.open == []
    assert not {"iframe", "img", "link", "object", "embed", "form", "image"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        assert "src" not in attributes, tag
        assert not any(name.startswith("on") for name in attributes), tag
        for name in ("href", "xlink:href"):
            address = attributes.get(name) or "#"
            assert address.startswith("#") or (address.startswith("data:") and attributes.get("download")), tag
    assert not re.search(r"url\((?!#)|@import|(?:src|href|action)=[\"']?(?:https?:)?//", full)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")


def test_the_only_script_is_the_one_that_the_policy_names(full: str) -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", full, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html.unescape(full)


def test_what_users_wrote_is_text(full: str) -> None:
    assert full.count("<script") == 1
    assert "<b>" not in full
    assert "&lt;script&gt;" in full
    assert "R&D <b>" in Page(full).words


def test_every_table_is_a_download_with_the_bytes_of_its_csv(full: str) -> None:
    files = {a["download"]: str(a["href"]) for tag, a in Page(full).tags if a.get("download")}
    tables = characterize(make_trace())
    for name, table in tables.items():
        if not table.height:
            continue
        if f"{name}.csv" in files:
            data = unquote_to_bytes(files[f"{name}.csv"].removeprefix("data:text/csv;charset=utf-8,"))
        else:
            packed = files[f"{name}.csv.gz"].removeprefix("data:application/gzip;base64,")
            data = gzip.decompress(base64.b64decode(packed))
        assert data == table.write_csv().encode(), name


def test_large_tables_are_packed_and_huge_ones_left_out() -> None:
    rng = np.random.default_rng(1)
    middle, huge = (pl.DataFrame({"x": rng.normal(size=n)}) for n in (5_000, 100_000))
    assert csv_download("t", middle).file_name == "t.csv.gz"
    assert csv_download("t", huge).address == ""
    names = ("a", "b", "c")
    sections = [
        Section(
            "s",
            "S",
            blocks=[table_block(name, middle.head(n)) for name, n in zip(names, (10, 3000, 2000), strict=True)],
        )
    ]
    limit_downloads(sections, most_bytes=30_000)
    kept = [bool(block.download and block.download.address) for block in sections[0].blocks]
    assert kept == [True, False, True]


def test_definitions_are_tied_to_their_buttons(full: str) -> None:
    page = Page(full)
    by_id = {a["id"]: a for _, a in page.tags if a.get("id")}
    buttons = [a for tag, a in page.tags if tag == "button"]
    assert len(buttons) >= 10
    for attributes in buttons:
        assert by_id[attributes["aria-describedby"]]["role"] == "tooltip"
    assert "What the columns mean" in page.words


def test_every_figure_and_every_chapter_is_there(full: str) -> None:
    page = Page(full)
    drawn = {a["aria-label"] for tag, a in page.tags if tag == "svg"}
    tables = characterize(make_trace())
    filled = {spec.title for spec in FIGURES.values() if spec.table in tables and spec.content_of(tables[spec.table])}
    filled |= {spec.title for spec in FIGURES.values() if spec.table in {"scores", "predictions", "gains"}}
    assert len(filled) > 10
    assert filled <= drawn
    ids = [a["id"] for _, a in page.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    links = {str(a["href"])[1:] for tag, a in page.tags if tag == "a" and not a.get("download")}
    assert links
    assert links <= set(ids)
    assert {"overview", "predictors", "policies", "quality", "notes"} <= links


def test_findings_carry_the_numbers_of_the_tables(full: str) -> None:
    words = Page(full).words
    assert "The log holds 300 jobs, submitted over 12 days" in words
    assert "50 % of the GPU jobs completed" in words
    assert "50 % of the GPU jobs ask for one GPU or less" in words
    assert "The best predictor tried, near, is off by a factor of 1.5" in words
    assert "On its own cluster, sjf_skip" in words
    assert "On a mixed cluster of the same size, sjf_skip" in words


def test_the_same_input_gives_the_same_bytes(tmp_path: Path, full: str) -> None:
    trace = make_trace()
    path = write_report(trace, tmp_path / "deep" / "report.html", **parts(trace))  # type: ignore[arg-type]
    assert path.read_text(encoding="utf-8") == full
    assert path.stat().st_size < 5_000_000
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_an_old_report_is_replaced_and_a_folder_is_not(tmp_path: Path) -> None:
    trace = make_trace(1)
    target = tmp_path / "report.html"
    target.write_text("old")
    write_report(trace, target)
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    with pytest.raises(UsageError, match="the report cannot be written"):
        write_report(trace, tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["report.html"]


def test_one_job_makes_a_page() -> None:
    words = Page(render_report(make_trace(1))).words
    assert "The log holds 1 job, from 1 user: 1 GPU job." in words
    assert "No predictor was scored on this log" in words
    assert "No policies were compared on this log" in words


def test_no_jobs_make_an_honest_page() -> None:
    text = render_report(Trace(schema.empty_table("jobs"), meta=TraceMeta(name="nothing")))
    page = Page(text)
    assert "The log holds no jobs: there is nothing to say about the workload." in page.words
    assert "<svg" not in text
    assert "Data quality" in page.words


def test_cpu_jobs_alone_make_a_page_without_gpu_figures() -> None:
    words = Page(render_report(make_trace(40, gpus=(0.0,)))).words
    assert "all of them CPU jobs" in words
    assert "Half of the CPU jobs run at most" in words
    assert "No job of the log asks for a GPU." in words


def test_a_log_without_starts_is_shown_replayed_and_says_so() -> None:
    trace = make_trace()
    blind = trace.jobs.with_columns(
        pl.lit(None, dtype=schema.TIME).alias("start_time"),
        pl.lit(None, dtype=schema.TIME).alias("end_time"),
        pl.lit(None, dtype=pl.Float64).alias("queueing_delay_s"),
    )
    bare = trace.replace_jobs(blind)
    without = Page(render_report(bare)).words
    assert "The log does not say how long jobs waited. A replay would show it; none was made." in without
    cluster = Cluster.uniform(num_nodes=1, num_gpus=8)
    replays = {name: replay(blind, cluster=cluster, policy=name, use_vcs=False) for name in ("fifo", "fifo_skip")}
    words = Page(render_report(bare, replays=replays)).words
    for name in replays:
        assert f"Queueing delay by GPU count: replayed under {name}" in words
        assert f"GPUs in use over time: replayed under {name}" in words
    assert "This is not the log but its replay under fifo on a cluster of 8 GPUs" in words


def test_a_relative_clock_makes_no_claim_about_hours_or_dates() -> None:
    words = Page(render_report(make_trace(clock="relative"))).words
    assert "hours, weekdays and dates mean nothing" in words
    assert "busiest hour" not in words
    assert "2024-03" not in words.replace("from 2024-03-04", "")


def test_data_quality_counts_what_the_loader_did() -> None:
    report = LoadReport(
        rows_in=90,
        rows_used=80,
        rows_set_aside=10,
        num_jobs=80,
        rejected_by_reason={"negative_duration": 10},
        flagged={"clock_skew": 3},
        unknown_statuses={"WEIRD": 2},
        files=[{"name": "log.csv", "size": 1, "rows": 90}],
        notes=["Times were read as UTC."],
    )
    words = Page(render_report(make_trace(load_report=report))).words
    for text in ("rows set aside 10", "negative duration 10", "clock skew 3", "WEIRD 2", "log.csv 90"):
        assert text in words
    assert "Times were read as UTC." in words
    assert "No job breaks a rule." in words
