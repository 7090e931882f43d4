"""Outcomes, wasted GPU time, retries and times to failure of a log that is counted by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis import schema
from analysis.characterize import outcomes_by_size, outcomes_by_user, retries, time_to_failure, wasted_gpu_time
from analysis.trace import Trace, TraceMeta
from tests.jobs import make_jobs

T0 = datetime(2024, 1, 1, tzinfo=UTC)
H = 3600.0


def jobs():
    """Eight GPU jobs of 20 GPU-hours in all, one CPU job, one job whose GPUs are not known."""
    rows = [
        ("u1", "completed", 1.0, 4 * H),  # 4
        ("u1", "failed", 1.0, 30.0),
        ("u1", "failed", 1.0, 1 * H - 30),  # 1 with the one above
        ("u2", "cancelled", 4.0, 2 * H),  # 8
        ("u2", "timeout", 4.0, 1 * H),  # 4
        ("u2", "node_fail", 2.0, 0.5 * H),  # 1
        ("u3", "preempted", 2.0, 1 * H),  # 2
        ("u3", None, 1.0, None),
        ("u1", "failed", 0.0, 9 * H),
        ("u1", "failed", None, 9 * H),
    ]
    names = ("user", "status", "num_gpus", "duration_s")
    return make_jobs([dict(zip(names, row, strict=True)) for row in rows])


def test_waste_by_status():
    table = wasted_gpu_time(jobs())
    rows = {row["status"]: row for row in table.iter_rows(named=True)}
    assert list(rows) == ["failed", "cancelled", "timeout", "node_fail", "preempted"]
    assert [row["num_jobs"] for row in rows.values()] == [2, 1, 1, 1, 1]
    assert [row["gpu_hours"] for row in rows.values()] == pytest.approx([1, 8, 4, 1, 2])
    assert rows["cancelled"]["job_share"] == pytest.approx(1 / 8)
    assert rows["cancelled"]["gpu_time_share"] == pytest.approx(8 / 20)
    assert rows["failed"]["mean_gpu_hours"] == pytest.approx(0.5)


def test_waste_of_a_log_without_outcomes_is_empty():
    assert wasted_gpu_time(jobs().with_columns(status=pl.lit(None, schema.STATUS))).height == 0
    assert outcomes_by_size(jobs().with_columns(status=pl.lit("unknown", schema.STATUS))).height == 0


def test_outcomes_by_size_fold_timeouts_and_node_failures_into_failed():
    rows = {row["bucket"]: row for row in outcomes_by_size(jobs()).iter_rows(named=True)}
    assert list(rows) == ["all", "1", "2", "3-4"]
    everything = rows["all"]
    # Seven GPU jobs with a status: 1 completed, 4 failed, 1 cancelled, 1 preempted.
    assert everything["num_jobs"] == 7
    assert (everything["completed_share"], everything["failed_share"]) == pytest.approx((1 / 7, 4 / 7))
    assert everything["cancelled_share"] == pytest.approx(1 / 7)
    assert everything["failed_gpu_time_share"] == pytest.approx(6 / 20)
    assert everything["completed_gpu_time_share"] == pytest.approx(4 / 20)
    assert everything["wasted_gpu_hours"] == pytest.approx(16)
    assert rows["3-4"]["cancelled_gpu_time_share"] == pytest.approx(8 / 12)


def test_users_are_ranked_by_what_they_wasted():
    table = outcomes_by_user(jobs())
    assert table["user"].to_list() == ["u2", "u3", "u1"]
    assert table["rank"].to_list() == [1, 2, 3]
    assert table["wasted_gpu_hours"].to_list() == pytest.approx([13, 2, 1])
    assert table["cumulative_share_of_waste"].to_list() == pytest.approx([13 / 16, 15 / 16, 1])
    assert outcomes_by_user(jobs(), num_top=1)["user"].to_list() == ["u2"]


def test_ranks_begin_anew_in_each_group():
    table = outcomes_by_user(jobs().with_columns(vc=pl.col("user").replace({"u3": "u1"})), by="vc")
    assert table.select("vc", "user", "rank").rows() == [("u1", "u3", 1), ("u1", "u1", 2), ("u2", "u2", 1)]
    assert table["share_of_waste"].to_list() == pytest.approx([2 / 3, 1 / 3, 1])


def test_time_to_failure_leaves_timeouts_out():
    rows = {row["bucket"]: row for row in time_to_failure(jobs()).iter_rows(named=True)}
    assert list(rows) == ["all", "1", "2"]
    one = rows["1"]
    assert (one["num_jobs"], one["job_share"]) == (2, 0.5)
    assert (one["p50_s"], one["mean_s"]) == (H / 2, H / 2)
    assert (one["within_1min_share"], one["within_10min_share"]) == (0.5, 0.5)
    assert rows["all"]["num_jobs"] == 3
    assert rows["all"]["p50_s"] == 0.5 * H
    assert rows["2"]["gpu_hours"] == pytest.approx(1)


def tried() -> Trace:
    """Job a: tries of 40, 10 and 60 minutes on 2 GPUs; job b: one try; job c: six, each a minute."""

    def tries(job, gpus, *minutes):
        start, rows = T0, []
        for number, length in enumerate(minutes, start=1):
            end = start + timedelta(minutes=length)
            rows.append({"job_id": job, "attempt": number, "start_time": start, "end_time": end, "gpus": gpus})
            start = end + timedelta(minutes=5)
        job_row = {
            **{"job_id": job, "num_gpus": gpus, "submit_time": T0, "start_time": T0, "end_time": rows[-1]["end_time"]},
            **{"duration_s": 60.0 * sum(minutes), "num_attempts": len(minutes), "status": "completed"},
        }
        return job_row, rows

    parts = [tries("a", 2.0, 40, 10, 60), tries("b", 1.0, 30), tries("c", 1.0, 1, 1, 1, 1, 1, 1)]
    attempts = pl.DataFrame([row for _, rows in parts for row in rows], schema=schema.ATTEMPTS)
    table = make_jobs([job for job, _ in parts])
    return Trace(table, meta=TraceMeta(name="tried"), tables={"attempts": attempts})


def test_retries_cost_the_time_of_all_attempts_but_the_last():
    table = retries(tried())
    assert table.select("num_attempts", "is_or_more", "num_jobs").rows() == [(1, False, 1), (3, False, 1), (5, True, 1)]
    # B47: 3000 s of the three tries were wasted, on two GPUs; five minutes of the six tries on one.
    assert table["lost_gpu_hours"].to_list() == pytest.approx([0, 2 * 3000 / H, 300 / H])
    assert table["gpu_hours"].to_list() == pytest.approx([0.5, 2 * 6600 / H, 0.1])
    assert table["completed_share"].to_list() == [1, 1, 1]


def test_without_an_attempts_table_what_was_lost_is_not_known():
    log = tried()
    table = retries(log.jobs)
    assert table["lost_gpu_hours"].null_count() == 3
    assert retries(log, by="status")["lost_gpu_hours"].to_list() == retries(log)["lost_gpu_hours"].to_list()
