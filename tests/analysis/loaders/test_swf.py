"""Standard Workload Format: the format's fixture, its cases, pieces of jobs, and the archive's real logs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis.errors import BadFileError
from analysis.loaders import load


@pytest.fixture
def swf(tmp_path):
    def write(text):
        path = tmp_path / "log.swf"
        path.write_text(text, "utf-8")
        return path

    return write


def row(*, job=1, submit=0, wait=10, run=100, alloc=4, cpu=-1, asked=4, limit=-1, memory=-1, status=1, queue=-1):
    return f"{job} {submit} {wait} {run} {alloc} {cpu} -1 {asked} {limit} {memory} {status} 1 1 -1 {queue} -1 -1 -1\n"


def test_a37_minus_one_is_missing_and_the_header_anchors_the_clock(swf):
    text = (
        "; UnixStartTime: 1700000000\n"
        + row(alloc=-1)
        + row(job=2, submit=5, wait=-1, run=-1, alloc=-1, asked=2, status=-1)
    )
    trace = load("swf", swf(text))
    first, second = trace.jobs.rows(named=True)
    assert first["start_time"] == datetime.fromtimestamp(1_700_000_010, UTC)
    assert (first["num_cpus"], first["duration_s"]) == (4, 100)
    assert (second["num_cpus"], second["censoring"], second["duration_s"]) == (2, "never_started", None)
    numbers = trace.jobs.select(pl.col(pl.Float64, pl.Int64)).unpivot()["value"].drop_nulls()
    extra = trace.jobs["extra"].struct.unnest().select(pl.col(pl.Float64)).unpivot()["value"].drop_nulls()
    assert (numbers >= 0).all()
    assert (extra >= 0).all()


def test_the_fixture_of_the_format(swf):
    text = """; Version: 2.2
; UnixStartTime: 1577836800
; TimeZoneString: Europe/Paris
; MaxNodes: 4
; MaxProcs: 32
; Queue: 1 gpu
    1      0     10   3600    8 3500.5  1024    8   7200    -1  1   1   1  -1  1  1  -1  -1
    2     60     -1     -1   -1     -1    -1   16   3600    -1  5   2   1  -1  1  1  -1  -1
    3    120      0      0    1      0    -1    1     60    -1  0   2   1   3  0  1  -1  -1
    4    600   5.25  100.5    4     -1    -1   -1     -1    -1  1   3   2  -1  1  2   1  30
"""
    trace = load("auto", swf(text))
    jobs = trace.jobs
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    assert jobs["submit_time"].to_list() == [begin + timedelta(seconds=s) for s in (0, 60, 120, 600)]
    assert jobs["duration_s"].to_list() == [3600, None, 0, 100.5]
    assert jobs["queueing_delay_s"].to_list() == [10, None, 0, 5.25]
    assert jobs["status"].to_list() == ["completed", "cancelled", "failed", "completed"]
    assert jobs["num_cpus"].to_list() == [8, 16, 1, 4]
    assert jobs["time_limit_s"].to_list() == [7200, 3600, 60, None]
    assert jobs["vc"].to_list() == ["gpu", "gpu", "0", "gpu"]
    assert jobs["num_gpus"].to_list() == [0, 0, 0, 0]
    assert (trace.meta.time_zone, trace.meta.time_zone_certainty) == ("Europe/Paris", "declared")
    assert trace.usage["cpu_utilization_mean"].to_list() == [3500.5 / 3600]


def test_processors_may_be_taken_for_gpus_and_the_header_gives_the_nodes(swf):
    path = swf("; MaxNodes: 2\n; MaxProcs: 8\n" + row())
    cpus, gpus = load("swf", path), load("swf", path, processors_as_gpus=True)
    assert cpus.jobs.select("num_gpus", "num_cpus").row(0) == (0, 4)
    assert gpus.jobs.select("num_gpus", "num_cpus").row(0) == (4, None)
    assert cpus.nodes.select("num_gpus", "num_cpus").rows() == [(0, 4.0), (0, 4.0)]
    assert gpus.nodes.select("num_gpus", "num_cpus").rows() == [(4, None), (4, None)]
    assert "processors_as_gpus=true" in cpus.meta.load_report.notes[0]


def test_without_unixstarttime_the_clock_is_relative(swf):
    trace = load("swf", swf(row()))
    assert trace.meta.clock == "relative"
    assert any("no UnixStartTime" in note for note in trace.meta.load_report.notes)


def test_a_zone_that_is_none_is_said(swf):
    trace = load("swf", swf("; UnixStartTime: 1700000000\n; TimeZoneString: Moon/Tycho\n" + row()))
    assert trace.meta.time_zone_certainty == "none"
    assert any("Moon/Tycho" in note for note in trace.meta.load_report.notes)


def test_c64_one_file_with_two_origins_is_refused(swf):
    with pytest.raises(BadFileError, match="count from 1970") as caught:
        load("swf", swf(row() + row(job=2, submit=1_700_000_000)))
    assert caught.value.kind == "mixed_clocks"


def test_c64_absolute_submissions_are_not_shifted_again(swf):
    trace = load("swf", swf("; UnixStartTime: 1700000000\n" + row(submit=1_700_000_050)))
    assert trace.jobs["submit_time"][0] == datetime.fromtimestamp(1_700_000_050, UTC)


def test_the_own_line_of_a_job_counts_and_its_pieces_are_attempts(swf):
    pieces = row(wait=0, run=30, status=2) + row(submit=50, wait=0, run=50, status=3)
    trace = load("swf", swf(row(wait=0) + pieces), processors_as_gpus=True)
    assert trace.jobs.select("duration_s", "num_attempts", "status").row(0) == (100, 2, "completed")
    assert trace.meta.load_report.rows_merged == 2
    assert trace.attempts["gpus"].to_list() == [4, 4]
    assert (trace.attempts["end_time"] - trace.attempts["start_time"]).dt.total_seconds().to_list() == [30, 50]


@pytest.mark.parametrize(
    ("last", "status", "censoring"), [(3, "completed", "none"), (4, "failed", "none"), (2, None, "right")]
)
def test_a_job_of_pieces_only_is_put_together(swf, last, status, censoring):
    trace = load("swf", swf(row(run=20, status=2) + row(submit=100, wait=40, run=30, status=last)))
    job = trace.jobs.row(0, named=True)
    assert (job["duration_s"], job["queueing_delay_s"], job["status"], job["censoring"]) == (50, 10, status, censoring)
    assert trace.meta.load_report.rows_merged == 1


def test_memory_is_kilobytes_per_processor(swf):
    assert load("swf", swf(row(memory=524_288))).jobs["mem_gib"].to_list() == [2.0]


def test_a_cancelled_job_without_a_processor_never_started_but_a_short_run_did(swf):
    trace = load("swf", swf(row(wait=50, run=0, alloc=0, status=5) + row(job=2, run=0, status=5)))
    assert trace.jobs["censoring"].to_list() == ["never_started", "none"]
    assert trace.jobs["duration_s"].to_list() == [None, 0]
    assert trace.jobs["extra"].struct.field("wait_time").to_list() == [50, 10]


def test_lines_that_are_none_are_set_aside_with_their_number(swf):
    trace = load(
        "swf", swf("; a header\n" + row() + "1 2 3\n\n" + row(job=3).strip() + " 7\n" + row(job=4, submit="x"))
    )
    assert trace.rejects.select("line", "reason", "raw").rows() == [
        (3, "too_few_fields", "1 2 3"),
        (5, "too_many_fields", row(job=3).strip() + " 7"),
        (6, "unreadable_submit_time", row(job=4, submit="x").strip()),
    ]
    assert trace.meta.load_report.rows_in == 4


def test_numbers_read_as_text_are_the_same_numbers(swf):
    """One unreadable cell sends the file down the slow road: the other rows must not change."""
    good = "".join(row(job=n, submit=n * 3.25, run=n * 0.1) for n in range(1, 6))
    fast = load("swf", swf(good)).jobs
    slow = load("swf", swf(good + row(job=9, run="x"))).jobs
    assert slow.equals(fast)


def test_a_file_of_something_else_is_refused(swf):
    with pytest.raises(BadFileError, match="18 numbers"):
        load("swf", swf("a,b,c\n1,2,3\n"))


@pytest.mark.full_trace
def test_kth_has_28489_jobs(real_data):
    trace = load("auto", real_data("swf/KTH-SP2-1996-2.swf.gz"), processors_as_gpus=True)
    jobs = trace.jobs
    assert jobs.height == trace.meta.load_report.rows_in == 28_489
    assert (trace.meta.name, trace.meta.time_zone) == ("KTH-SP2-1996-2", "Europe/Stockholm")
    # The header: StartTime Mon Sep 23 14:00:31 CEST 1996, MaxProcs 100 on MaxNodes 100.
    assert jobs["submit_time"].min() == datetime(1996, 9, 23, 12, 0, 31, tzinfo=UTC)
    assert trace.nodes["num_gpus"].to_list() == [1] * 100
    assert jobs["num_gpus"].max() <= 100
    assert dict(jobs["status"].value_counts().iter_rows()) == {"completed": 20_541, "failed": 7_948}


@pytest.mark.full_trace
def test_ricc_has_447794_jobs(real_data):
    trace = load("auto", real_data("swf/RICC-2010-2.swf.gz"))
    assert trace.jobs.height == trace.meta.load_report.rows_in == 447_794
    assert trace.meta.time_zone == "Asia/Tokyo"
    assert dict(trace.jobs["status"].value_counts().iter_rows()) == {"completed": 431_549, "cancelled": 16_245}
    assert trace.jobs["num_cpus"].null_count() == 0
