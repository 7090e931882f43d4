"""Hand-worked tables, the pitfalls that concern characterization, and the laws that every table obeys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis import schema
from analysis.characterize import (
    CHARACTERIZATIONS,
    arrivals_by_hour,
    arrivals_over_time,
    characterize,
    duration_cdf,
    duration_quantiles,
    gpu_demand,
    gpu_intervals,
    queueing_delay_quantiles,
    running_gpus,
    running_gpus_summary,
    status_shares,
    summary,
    top_tenants,
    top_vcs,
)
from analysis.errors import UnknownNameError, UsageError
from analysis.trace import Trace, TraceMeta

T0 = datetime(2024, 1, 1, tzinfo=UTC)  # a Monday


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def make_jobs(*rows: dict[str, object]) -> pl.DataFrame:
    """Jobs table from the columns that matter; seconds from T0 become instants, the rest is null."""
    times = ("submit_time", "start_time", "end_time")
    full = []
    for number, row in enumerate(rows):
        values = {name: at(v) if name in times and isinstance(v, int | float) else v for name, v in row.items()}
        full.append({"job_id": f"j{number}", "censoring": "none", "flags": [], **values})
    return schema.sort_jobs(pl.DataFrame(full, schema=schema.JOBS))


def ran(start: float, end: float, gpus: float, **more: object) -> dict[str, object]:
    """One job submitted at its start."""
    return {
        "submit_time": start,
        "start_time": start,
        "end_time": end,
        "duration_s": float(end - start),
        "queueing_delay_s": 0.0,
        "num_gpus": gpus,
        "status": "completed",
        **more,
    }


def test_a12_average_and_peak_and_the_share_of_the_cluster() -> None:
    jobs = make_jobs(ran(0, 100, 8), ran(50, 150, 8))
    row = running_gpus_summary(jobs, window=(at(0), at(200)), total_gpus=16).row(0, named=True)
    assert (row["mean_gpus"], row["peak_gpus"]) == (8.0, 16.0)
    assert (row["gpu_allocation"], row["peak_allocation"]) == (0.5, 1.0)
    assert row["peak_time"] == at(50)
    assert row["gpu_hours"] == pytest.approx(1600 / 3600)


def test_a36_users_over_the_log_and_at_one_time() -> None:
    day = 86_400
    rows = [(0, "a"), (10, "b"), (day, "b"), (day + 5, "c")]
    jobs = make_jobs(*(ran(when, when + 60, 1, user=user) for when, user in rows))
    row = summary(jobs).row(0, named=True)
    assert (row["num_users"], row["peak_daily_users"]) == (3, 2)
    assert running_gpus_summary(jobs)["peak_jobs"].item() == 2
    assert row["num_jobs"] == 4


def test_b49_use_is_clipped_to_the_window_and_adjacent_windows_add_up() -> None:
    jobs = make_jobs(ran(-50, 50, 2), ran(90, 130, 1))
    first = running_gpus_summary(jobs, window=(at(0), at(100)))
    second = running_gpus_summary(jobs, window=(at(100), at(200)))
    assert first["gpu_hours"].item() * 3600 == pytest.approx(110)
    assert second["gpu_hours"].item() * 3600 == pytest.approx(30)


def test_running_gpus_bins_hold_mean_and_peak() -> None:
    #        0 .. 10 .. 20 .. 30 .. 40     a: 2 GPUs 0-15, b: half a GPU 5-25, nothing after
    jobs = make_jobs(ran(0, 15, 2), ran(5, 25, 0.5))
    table = running_gpus(jobs, window=(at(0), at(40)), max_bins=4)
    assert table["bin_s"].to_list() == [10.0] * 4
    assert table["mean_gpus"].to_list() == [2.25, 1.5, 0.25, 0.0]
    assert table["max_gpus"].to_list() == [2.5, 2.5, 0.5, 0.0]


def test_a_running_job_holds_its_gpus_to_the_end_of_the_window() -> None:
    running = ran(10, 10, 4, end_time=None, duration_s=90.0, censoring="right", status="running")
    assert running_gpus_summary(make_jobs(running), window=(at(0), at(100)))["mean_gpus"].item() == pytest.approx(3.6)


def test_a_job_that_began_before_the_log_holds_its_gpus_from_the_start_of_the_window() -> None:
    carried = ran(0, 50, 2, start_time=None, submit_time=None, censoring="left")
    assert running_gpus_summary(make_jobs(carried), window=(at(0), at(100)))["mean_gpus"].item() == pytest.approx(1.0)


def test_attempts_replace_the_span_of_a_requeued_job() -> None:
    jobs = make_jobs(ran(0, 100, 4), ran(0, 10, 1))
    tries = [("j0", 1, at(0), at(20)), ("j0", 2, at(80), at(100))]
    attempts = pl.DataFrame(
        [dict(zip(schema.ATTEMPTS, (*row, None, None), strict=True)) for row in tries], schema=schema.ATTEMPTS
    )
    held = gpu_intervals(jobs, attempts=attempts).sort("job_id", "begin_us")
    assert ((held["end_us"] - held["begin_us"]) * held["milli_gpus"] // 1_000_000_000).to_list() == [80, 80, 10]


def test_assumed_times_say_nothing_about_use_or_waits() -> None:
    jobs = make_jobs(ran(0, 100, 4, flags=["times_assumed"]))
    assert running_gpus(jobs).height == queueing_delay_quantiles(jobs).height == 0
    assert duration_quantiles(jobs).height == 4  # the bucket and "all", by jobs and by GPU time


def test_duration_quantiles_by_jobs_and_by_gpu_time() -> None:
    # GPU-seconds 10, 20, 70: by GPU time half lies in the longest job, by jobs the middle one is the median.
    jobs = make_jobs(ran(0, 10, 1), ran(0, 20, 1), ran(0, 70, 1), ran(0, 1000, 0))
    table = duration_quantiles(jobs)
    by = {(row["bucket"], row["weight"]): row for row in table.iter_rows(named=True)}
    assert by["all", "jobs"]["p50_s"] == 20.0
    assert by["all", "gpu_time"]["p50_s"] == 70.0
    assert by["all", "gpu_time"]["mean_s"] == pytest.approx((10 * 10 + 20 * 20 + 70 * 70) / 100)
    assert by["all", "jobs"]["num_jobs"] == 3
    assert by["0", "jobs"]["max_s"] == 1000.0
    assert ("0", "gpu_time") not in by


def test_duration_cdf_counts_at_or_below_the_grid_point() -> None:
    jobs = make_jobs(ran(0, 0, 1), ran(0, 10, 1), ran(0, 100, 1))
    curve = duration_cdf(jobs).filter((pl.col("bucket") == "1") & (pl.col("weight") == "jobs"))
    shares = dict(curve.select("duration_s", "share").iter_rows())
    assert shares[1.0] == pytest.approx(1 / 3)  # the job of 0 s counts at 1 s
    assert shares[10.0] == pytest.approx(2 / 3)
    assert curve["share"].to_list()[-1] == 1.0
    heavy = duration_cdf(jobs).filter((pl.col("bucket") == "1") & (pl.col("weight") == "gpu_time"))
    assert dict(heavy.select("duration_s", "share").iter_rows())[10.0] == pytest.approx(10 / 110)


def test_gpu_demand_with_fractions_cpu_jobs_and_unknown() -> None:
    jobs = make_jobs(ran(0, 10, 0.5), ran(0, 10, 0.5), ran(0, 10, 8), ran(0, 10, 0), ran(0, 10, 1, num_gpus=None))
    table = gpu_demand(jobs)
    assert table["bucket"].to_list() == ["<1", "5-8"]
    assert table["job_share"].to_list() == pytest.approx([2 / 3, 1 / 3])
    assert table["gpu_share"].to_list() == pytest.approx([1 / 9, 8 / 9])
    assert table["gpu_time_share"].to_list() == pytest.approx([1 / 9, 8 / 9])


def test_status_by_count_and_by_gpu_time_gpu_and_cpu_apart() -> None:
    jobs = make_jobs(
        ran(0, 10, 1), ran(0, 10, 1), ran(0, 60, 3, status="failed"), ran(0, 5, 0), ran(0, 20, 1, status=None)
    )
    shares = {(r["kind"], r["status"]): (r["job_share"], r["gpu_time_share"]) for r in status_shares(jobs).to_dicts()}
    assert shares["gpu", "completed"] == pytest.approx((0.5, 20 / 220))
    assert shares["gpu", "failed"] == pytest.approx((0.25, 180 / 220))
    assert shares["gpu", "unknown"] == pytest.approx((0.25, 20 / 220))
    assert shares["cpu", "completed"] == (1.0, None)


def test_arrivals_are_read_in_the_zone_of_the_log() -> None:
    # 23:30 UTC on Monday is 07:30 on Tuesday in Shanghai.
    late = 23.5 * 3600
    jobs = make_jobs(ran(late, late + 3600, 1), ran(late + 600, late + 700, 1), ran(late + 7 * 86_400, late + 8e5, 1))
    table = arrivals_by_hour(jobs, time_zone="Asia/Shanghai")
    busiest = table.sort("num_jobs").row(-1, named=True)
    assert (busiest["weekday"], busiest["hour"], busiest["num_jobs"]) == (2, 7, 3)
    assert (busiest["num_hours"], busiest["jobs_per_hour"]) == (2, 1.5)
    assert table.height == 168
    assert table["num_jobs"].sum() == 3


def test_a_relative_clock_has_no_hours_and_says_so() -> None:
    jobs = make_jobs(ran(0, 10, 1))
    assert arrivals_by_hour(jobs, clock="relative").height == 0
    trace = Trace(jobs, meta=TraceMeta(name="x", clock="relative"))
    assert "mean nothing" in str(CHARACTERIZATIONS["arrivals_by_hour"].missing(trace))


def test_arrivals_over_time_keep_every_job_and_the_empty_bins() -> None:
    jobs = make_jobs(ran(0, 10, 1), ran(1, 10, 2), ran(35, 40, 1), ran(40, 50, 1))
    table = arrivals_over_time(jobs, max_bins=5)
    assert table["bin_s"].to_list() == [10.0] * 5
    assert table["num_jobs"].to_list() == [2, 0, 0, 1, 1]
    assert table["num_gpus"].to_list() == [3.0, 0.0, 0.0, 1.0, 1.0]


def test_queueing_delay_counts_those_that_never_started_beside() -> None:
    waiting = {"submit_time": 0, "num_gpus": 1.0, "censoring": "never_started", "status": "pending"}
    jobs = make_jobs(ran(30, 40, 1, submit_time=0, queueing_delay_s=30.0), ran(0, 10, 1), waiting)
    row = queueing_delay_quantiles(jobs).filter(pl.col("bucket") == "1").row(0, named=True)
    assert (row["num_jobs"], row["num_never_started"]) == (2, 1)
    assert (row["mean_s"], row["max_s"], row["waited_share"]) == (15.0, 30.0, 0.5)


def test_top_tenants_by_gpu_time_with_the_unnamed_as_one() -> None:
    jobs = make_jobs(ran(0, 100, 1, vc="a"), ran(0, 100, 8, vc="b", status="failed"), ran(0, 100, 1))
    table = top_vcs(jobs)
    assert table["vc"].to_list() == ["b", "a", None]
    assert table["gpu_time_share"].to_list() == pytest.approx([0.8, 0.1, 0.1])
    assert table["completed_share"].to_list() == [0.0, 1.0, 1.0]
    assert top_tenants(jobs, by="user").height == 0


def test_summary_says_what_is_censored_and_unknown() -> None:
    jobs = make_jobs(
        ran(0, 10, 2),
        ran(0, 30, 4),
        ran(0, 7, 0),
        ran(0, 90, 1, end_time=None, censoring="right", status="running"),
        {"submit_time": 5, "num_gpus": None, "duration_s": None},
    )
    row = summary(jobs, name="tiny").row(0, named=True)
    assert (row["num_jobs"], row["num_gpu_jobs"], row["num_cpu_jobs"], row["num_unknown_gpus"]) == (5, 3, 1, 1)
    assert (row["num_right_censored"], row["num_unknown_duration"]) == (1, 1)
    assert row["mean_duration_s"] == pytest.approx(130 / 3)
    assert row["median_duration_s"] == 30.0
    assert row["gpu_hours"] == pytest.approx((20 + 120 + 90) / 3600)
    assert row["median_cpu_duration_s"] == 7.0


def test_an_unknown_table_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="no characterization is named 'durations' .*duration_cdf"):
        characterize(Trace(make_jobs(), meta=TraceMeta(name="tiny")), names=("durations",))


def test_gpu_time_beyond_what_its_sums_hold_is_refused_with_the_jobs_that_have_it() -> None:
    # 2**63 GPU-microseconds are 9.2e12 GPU-seconds: nine such jobs would still be a sum, ten would begin again below 0.
    rows = [ran(0, 60, 1.0) | {"duration_s": 1e12} for _ in range(10)]
    with pytest.raises(UsageError, match=r"found 2\.78e\+09 GPU-hours .* j0 \(1 GPUs for 1e\+12 s\).*--where"):
        characterize(make_jobs(*rows), ["summary"])
    one = make_jobs(ran(0, 60, 16.0) | {"duration_s": 1e12}, ran(0, 60, 1.0))
    with pytest.raises(UsageError, match="j0 .16 GPUs for"):
        characterize(one)
    assert characterize(one, ["summary"], where=pl.col("duration_s") < 1e9)["summary"]["gpu_hours"].to_list() == [
        pytest.approx(1 / 60)
    ]
    # A CPU job may have run for any time.
    assert characterize(make_jobs(ran(0, 60, 0.0) | {"duration_s": 1e12}))["summary"]["num_cpu_jobs"].to_list() == [1]
