"""Recurrence against hand-worked groups and an independent count with pandas."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from analysis.characterize import recurrence
from tests.jobs import make_jobs


def job(duration: float, *, gpus: float = 1.0, **more: object) -> dict[str, object]:
    return {"duration_s": duration, "num_gpus": gpus, **more}


def row_of(table: pl.DataFrame, grouping: str, **chosen: object) -> dict[str, object]:
    return table.filter(grouping=grouping, **chosen).row(0, named=True)


def test_hand_worked_groups():
    # u1's "train": five jobs of 100 s and one of 400 s; "eval": two; u2's "train" is another group, of one.
    jobs = make_jobs(
        [job(100.0, user="u1", job_name="train") for _ in range(5)]
        + [job(401.0, user="u1", job_name="train", gpus=2.0)]
        + [job(50.0, user="u1", job_name="eval") for _ in range(2)]
        + [job(50.0, user="u2", job_name="train"), job(50.0, user="u2"), job(50.0)]
    )
    row = row_of(recurrence(jobs), "user_name")
    assert (row["num_jobs"], row["num_groups"]) == (9, 3)  # without a name or a user there is no group
    assert row["repeated_job_share"] == pytest.approx(8 / 9)
    assert row["recurring_job_share"] == pytest.approx(6 / 9)
    assert row["recurring_gpu_time_share"] == pytest.approx((500 + 802) / (500 + 802 + 100 + 50))
    assert row["median_abs_log_ratio"] == 0
    assert row["within_2x_share"] == pytest.approx(5 / 6)
    assert row["within_2x_gpu_time_share"] == pytest.approx(500 / 1302)


def test_a_request_is_user_size_and_limit_and_no_limit_is_a_limit_of_its_own():
    same = {"user": "u", "time_limit_s": 3600.0}
    jobs = make_jobs(
        [job(10.0, **same) for _ in range(5)]
        + [job(10.0, gpus=2.0, **same), job(10.0, user="u"), job(10.0, user="u")]
        + [job(10.0, gpus=0.0, num_cpus=4.0, **same), job(10.0, gpus=0.0, num_cpus=8.0, **same)]
    )
    table = recurrence(jobs)
    gpu = row_of(table, "user_request", kind="gpu")
    assert (gpu["num_jobs"], gpu["num_groups"]) == (8, 3)
    assert gpu["repeated_job_share"] == pytest.approx(7 / 8)
    cpu = row_of(table, "user_request", kind="cpu")
    assert (cpu["num_jobs"], cpu["num_groups"], cpu["repeated_job_share"]) == (2, 2, 0)
    assert cpu["recurring_gpu_time_share"] is None
    assert cpu["median_abs_log_ratio"] is None


def test_pitfall_a32_fractions_of_a_gpu_are_sizes_of_their_own():
    # 0.1 + 0.2 of a GPU is 0.3 of one, whatever the rounding; half a GPU is no GPU and no whole one.
    jobs = make_jobs([job(10.0, user="u", gpus=gpus) for gpus in (0.1 + 0.2, 0.3, 0.5, 0.5, 1.0)])
    row = row_of(recurrence(jobs), "user_request")
    assert (row["num_jobs"], row["num_groups"], row["repeated_job_share"]) == (5, 3, pytest.approx(4 / 5))


def test_the_account_stands_for_a_user_that_is_not_named():
    jobs = make_jobs([job(10.0, account="a") for _ in range(6)])
    assert row_of(recurrence(jobs), "user_request")["recurring_job_share"] == 1


def test_likeness_of_log_normal_groups_is_that_of_the_law():
    # Groups of many jobs, each log-normal with spread 0.5 around its own level: half are off by less than 0.674 x 0.5.
    rng = np.random.default_rng(1)
    level = np.repeat(rng.uniform(6, 12, 200), 100)
    durations = np.exp(rng.normal(level, 0.5))
    jobs = pl.DataFrame({"duration_s": durations, "group": np.repeat(np.arange(200), 100).astype(str)})
    row = row_of(recurrence(jobs.with_columns(num_gpus=1.0)), "group")
    assert row["median_abs_log_ratio"] == pytest.approx(0.6745 * 0.5, rel=0.03)
    within = math.erf(math.log(2) / 0.5 / math.sqrt(2))
    assert row["within_2x_share"] == pytest.approx(within, abs=0.01)


def test_running_jobs_and_unknown_durations_are_left_out():
    jobs = make_jobs(
        [job(10.0, group="g") for _ in range(5)]
        + [job(10.0, group="g", censoring="right"), {"group": "g", "num_gpus": 1.0, "censoring": "never_started"}]
    )
    assert row_of(recurrence(jobs), "group")["num_jobs"] == 5


@pytest.mark.full_trace
def test_kth_recurs_as_pandas_counts_it(real_data):
    from analysis.loaders import load

    jobs = load("swf", [real_data("swf/KTH-SP2-1996-2.swf.gz")]).jobs
    row = row_of(recurrence(jobs), "user_request", kind="cpu")
    frame = jobs.select("user", "num_cpus", "time_limit_s", "duration_s").to_pandas()
    groups = frame.groupby(["user", "num_cpus", "time_limit_s"], dropna=False)["duration_s"]
    sizes = groups.transform("size")
    assert row["num_groups"] == groups.ngroups
    assert row["repeated_job_share"] == pytest.approx((sizes >= 2).mean())
    assert row["recurring_job_share"] == pytest.approx((sizes >= 5).mean())
    recurring = frame[sizes >= 5]
    off = np.abs(np.log1p(recurring["duration_s"]) - np.log1p(groups.transform("median")[sizes >= 5]))
    # Bins are 1.1 % wide, and the median of an even group is its lower middle one.
    assert row["median_abs_log_ratio"] == pytest.approx(off.median(), abs=0.02)
    assert row["within_2x_share"] == pytest.approx((off <= math.log(2)).mean(), abs=0.01)
