"""When a waiting job would start: on paper, and against what then happens in a replay."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.errors import UsageError
from analysis.replay import Cluster, estimate_starts, queue_at, replay, start_errors
from tests.jobs import make_jobs
from tests.replay_cases import START

ONE = Cluster.uniform(num_nodes=1, num_gpus=1)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def queue_of(*rows: tuple) -> pl.DataFrame:
    """(job_id, submitted, started or None, GPUs) in seconds."""
    return make_jobs(
        [
            {
                "job_id": name,
                "submit_time": at(submitted),
                "start_time": None if started is None else at(started),
                "num_gpus": float(gpus),
                "duration_s": None,
            }
            for name, submitted, started, gpus in rows
        ]
    )


def test_d86_when_will_my_job_start():
    """One GPU; who runs has 30 s left, A takes 20 s: I start in 50 s; and what comes of it is compared."""
    queue = queue_of(("running", -100, -70, 1), ("A", -20, None, 1), ("me", -10, None, 1))
    found = estimate_starts(queue, remaining_s=[30, 20, 5], cluster=ONE, at=at(0))
    assert found["p50_wait_s"].to_list() == [30.0, 50.0]
    draws = [[20, 10, 5], [30, 20, 5], [40, 30, 5]]
    found = estimate_starts(queue, remaining_s=draws, cluster=ONE, at=at(0))
    assert found.row(1) == ("me", 30.0, 50.0, 70.0)
    actual = pl.DataFrame({"job_id": ["A", "me"], "start_time": [at(36), at(80)]})
    assert start_errors(found, actual, at=at(0)) == {
        "num_jobs": 2,
        "num_left_out": 0,
        "mean_error_s": (-6 - 30) / 2,
        "mean_absolute_error_s": 18.0,
        "p90_absolute_error_s": pytest.approx(6 + 0.9 * 24),
        "coverage": 0.5,
    }


def test_the_policy_orders_by_the_median_draw_and_ties_go_by_submission():
    queue = queue_of(("r", -9, -9, 1), ("10", -8, None, 1), ("9", -7, None, 1), ("8", -6, None, 1))
    draws = [[10, 50, 7, 7], [10, 50, 7, 7]]
    found = estimate_starts(queue, remaining_s=draws, cluster=ONE, policy="sjf", at=at(0))
    assert found.select("job_id", "p50_wait_s").rows() == [("10", 24.0), ("9", 10.0), ("8", 17.0)]


def test_what_never_starts_is_null_and_bad_draws_are_one_sentence():
    queue = queue_of(("r", -9, -9, 1), ("wide", -8, None, 2))
    assert estimate_starts(queue, remaining_s=[1, 1], cluster=ONE, at=at(0))["p50_wait_s"].to_list() == [None]
    with pytest.raises(UsageError, match=r"shape \(1, 3\), expected \(draws, 2\); quantiles"):
        estimate_starts(queue, remaining_s=[1, 1, 1], cluster=ONE, at=at(0), quantiles=[2])
    with pytest.raises(UsageError, match="negative or not finite"):
        estimate_starts(queue, remaining_s=[1, np.inf], cluster=ONE, at=at(0))


@pytest.mark.parametrize("policy", ["fifo", "sjf_skip", "easy"])
def test_with_the_true_durations_estimates_are_what_the_replay_does(policy: str):
    """From an instant after which nobody comes; single-GPU jobs, so that it does not matter who sits where."""
    rng = np.random.default_rng(7)
    jobs = make_jobs(
        [
            {
                "job_id": str(i),
                "submit_time": at(int(rng.integers(0, 50))),
                "num_gpus": 1.0,
                "duration_s": float(rng.integers(1, 60)),
            }
            for i in range(60)
        ]
    )
    cluster = Cluster.uniform(num_nodes=2, num_gpus=2)
    schedule = replay(jobs, cluster=cluster, policy=policy).schedule
    told = jobs.drop("start_time", "end_time").join(schedule.select("job_id", "start_time", "end_time"), on="job_id")
    queue = queue_at(told, at=at(50.5))
    assert queue["duration_s"].null_count() == queue["end_time"].null_count() == queue.height
    length = queue.select("job_id", "start_time").join(
        jobs.select("job_id", "duration_s"), on="job_id", maintain_order="left"
    )
    ran = (pl.lit(at(50.5)) - pl.col("start_time")).dt.total_microseconds() / 1e6
    left = length.select(pl.col("duration_s") - ran.fill_null(0.0)).to_series()
    found = estimate_starts(queue, remaining_s=left.to_numpy(), cluster=cluster, policy=policy, at=at(50.5))
    assert found.height > 20
    errors = start_errors(found, schedule, at=at(50.5))
    assert (errors["num_left_out"], errors["mean_absolute_error_s"], errors["coverage"]) == (0, 0.0, 1.0)
