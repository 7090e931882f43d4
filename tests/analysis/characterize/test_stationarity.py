"""Drift against hand-worked weeks, scipy's two-sample KS, and workloads that do and do not change."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.characterize import weekly_drift
from analysis.characterize.stationarity import psi

START_US = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
WEEK = 7 * 86_400


def jobs_of(durations: list[np.ndarray], **more: object) -> pl.DataFrame:
    """One-GPU jobs, an array of durations per week, spread evenly over it from its beginning on."""
    parts = []
    for week, values in enumerate(durations):
        seconds = week * WEEK + np.arange(len(values)) * (WEEK // max(len(values), 1))
        time = pl.Series(START_US + seconds * 1_000_000).cast(pl.Datetime("us", "UTC"))
        parts.append(pl.DataFrame({"submit_time": time, "duration_s": values.astype(float)}))
    return pl.concat(parts).with_columns(num_gpus=pl.lit(1.0), **{name: pl.lit(v) for name, v in more.items()})


def drift(jobs: pl.DataFrame, **chosen: object) -> pl.DataFrame:
    return weekly_drift(jobs).filter(**{"weight": "jobs", **chosen})


def test_a_workload_that_does_not_change_stays_within_chance():
    rng = np.random.default_rng(1)
    table = drift(jobs_of([rng.lognormal(6, 2, 800) for _ in range(30)]), quantity="duration")
    for against in ("log", "week_before"):
        part = table.filter(against=against)
        # One in twenty may lie beyond chance; of 30, more than 5 have a probability of 0.3 %.
        assert (part["psi"] > part["psi_chance"]).sum() <= 5
        assert (part["ks"] > part["ks_chance"]).sum() <= 5
        assert part["psi"].max() < 0.1
    assert (table.filter(against="week_before")["psi"].mean()) == pytest.approx(9 * 2 / 800, rel=0.3)


def test_a_change_shows_in_its_week_only_against_the_week_before():
    rng = np.random.default_rng(2)
    jobs = jobs_of([rng.lognormal(4 if week < 5 else 7, 1, 500) for week in range(10)])
    table = drift(jobs, quantity="duration", against="week_before")
    assert table["week"].to_list() == list(range(1, 10))
    far = table.filter(pl.col("psi") > 0.25)
    assert far["week"].to_list() == [5]
    assert far["ks"].item() > 0.8
    assert drift(jobs, quantity="duration", against="log")["psi"].min() > 0.25


def test_ks_is_that_of_scipy():
    rng = np.random.default_rng(3)
    # Powers of two lie in bins of their own, so that the bins lose nothing.
    weeks = [2.0 ** rng.integers(0, hi, 300) - 1 for hi in (9, 12)]
    row = drift(jobs_of(weeks), quantity="duration", against="week_before").row(0, named=True)
    assert row["ks"] == pytest.approx(stats.ks_2samp(*weeks).statistic)
    assert row["ks_chance"] == pytest.approx(1.358 * (2 / 300) ** 0.5)


def test_psi_by_hand_and_its_chance():
    assert psi(np.array([1e6, 3e6]), np.array([2e6, 2e6])) == pytest.approx(
        0.25 * np.log(0.25 * 0.5 / (0.5 * 0.75)) * -1
    )
    assert psi(np.array([5.0, 0.0, 0.0]), np.array([5.0, 0.0, 0.0])) == 0
    rng = np.random.default_rng(4)
    shares = rng.dirichlet(np.full(10, 50.0))
    values = [psi(*rng.multinomial(2000, shares, size=2).astype(float)) for _ in range(400)]
    assert np.quantile(values, 0.95) == pytest.approx(stats.chi2.ppf(0.95, 9) * 2 / 2000, rel=0.15)


def test_gpus_and_users_by_week():
    weeks = [np.full(100, 60.0)] * 2
    jobs = jobs_of(weeks).with_columns(
        num_gpus=pl.when(pl.int_range(pl.len()) < 150).then(1.0).otherwise(8.0),
        user=pl.when(pl.int_range(pl.len()) < 100).then(pl.lit("a")).otherwise(pl.lit("b")),
    )
    table = weekly_drift(jobs).filter(against="week_before")
    gpus = table.filter(quantity="num_gpus", weight="jobs").row(0, named=True)
    assert gpus["ks"] == 0.5
    p, q = np.array([50.5, 50.5]) / 101, np.array([100.5, 0.5]) / 101
    assert gpus["psi"] == pytest.approx(((p - q) * np.log(p / q)).sum())
    heavy = table.filter(quantity="num_gpus", weight="gpu_time").row(0, named=True)
    assert heavy["ks"] == pytest.approx(50 * 8 / (50 * 8 + 50))
    assert heavy["ks_chance"] is None
    user = table.filter(quantity="user", weight="jobs").row(0, named=True)
    assert user["ks"] is None
    assert user["psi"] > 5


def test_waits_count_only_where_the_times_are_the_sources_own():
    weeks = [np.full(100, 60.0)] * 2
    jobs = jobs_of(weeks, queueing_delay_s=5.0)
    assert weekly_drift(jobs).filter(quantity="queueing_delay").height == 6
    flag = pl.lit(["times_assumed"]).cast(pl.List(pl.String))
    assert weekly_drift(jobs.with_columns(flags=flag)).filter(quantity="queueing_delay").height == 0


def test_a_week_of_few_jobs_is_not_compared_and_begins_where_it_begins():
    weeks = [np.full(size, 60.0) for size in (80, 49, 80)]
    table = drift(jobs_of(weeks), quantity="duration")
    assert table.select("against", "week").rows() == [("log", 0), ("log", 2)]
    assert table["week_start"].to_list() == [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 15, tzinfo=UTC)]
    assert table["psi"].to_list() == pytest.approx([0, 0])
    assert weekly_drift(jobs_of([np.full(500, 60.0)])).height == 0


def test_weeks_of_every_group_begin_with_the_log():
    first = jobs_of([np.full(100, 60.0)] * 2, vc="a")
    later = jobs_of([np.full(0, 60.0), np.full(100, 60.0), np.full(100, 90.0)], vc="b")
    table = weekly_drift(pl.concat([first, later]), by="vc").filter(quantity="duration", weight="jobs", against="log")
    assert table.select("vc", "week").rows() == [("a", 0), ("a", 1), ("b", 1), ("b", 2)]


@pytest.mark.full_trace
def test_philly_drifts_far_beyond_chance(real_data):
    jobs = pl.read_csv(real_data("philly/philly_jobs.csv.gz"), try_parse_dates=True).drop_nulls()
    jobs = jobs.select(
        submit_time="timestamp",
        duration_s=pl.col("duration").cast(pl.Float64),
        num_gpus=pl.col("num_gpus").cast(pl.Float64),
    )
    table = drift(jobs, quantity="duration", against="week_before")
    assert (table["psi"] > 0.25).mean() > 0.5
    assert (table["ks"] > table["ks_chance"]).all()
