"""Intervals of differences: against plain resampling, against theory, and what the verdict makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from predictors.differences import NUM_RESAMPLES, Interval, block_interval, cluster_interval, verdict


def test_users_drawn_plainly():
    """The same draws by plain Python: every user with all of its jobs, the mean over the jobs drawn."""
    rng = np.random.default_rng(7)
    values, users = rng.normal(0, 1, 60), rng.integers(0, 6, 60)
    drawn = np.random.default_rng(3).integers(0, 6, size=(NUM_RESAMPLES, 6))
    means = []
    for users_drawn in drawn:
        jobs = [value for user in users_drawn for value in values[users == user]]
        means.append(sum(jobs) / len(jobs))
    assert cluster_interval(values, clusters=users, seed=3) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


def test_blocks_of_days_drawn_plainly():
    rng = np.random.default_rng(8)
    days = rng.integers(100, 130, 200)
    days[:2] = [100, 129]
    values, weights = rng.normal(0, 1, 200), rng.random(200)
    starts = np.random.default_rng(1).integers(0, 30, size=(NUM_RESAMPLES, 8))  # blocks of ceil(30 ** (1/3)) = 4 days
    means = []
    for blocks in starts:
        chosen = [100 + (start + step) % 30 for start in blocks for step in range(4)][:30]
        jobs = [i for day in chosen for i in np.flatnonzero(days == day)]
        means.append(np.average(values[jobs], weights=weights[jobs]))
    found = block_interval(values, days=days, weights=weights, seed=1)
    assert found == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


def test_independent_days_give_the_interval_of_theory():
    rng = np.random.default_rng(0)
    values = rng.normal(1, 2, 400)
    low, high = block_interval(values, days=np.arange(400))
    half = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)


def test_what_hangs_together_widens_the_interval():
    """A hundred equal jobs a day are one observation a day, and a user's jobs one observation a user."""
    rng = np.random.default_rng(0)
    values, days = np.repeat(rng.normal(0, 1, 40), 100), np.repeat(np.arange(40), 100)
    low, high = block_interval(values, days=days)
    assert high - low > 0.4  # 4 standard errors of 40 values are 0.63; of 4,000 they would be 0.06
    low, high = cluster_interval(values, clusters=days)
    assert high - low > 0.4


def test_too_few_days_or_users_say_nothing():
    assert block_interval([], days=[]) == Interval(None, None)
    assert block_interval(np.ones(50), days=np.arange(50) % 9) == Interval(None, None)
    assert cluster_interval(np.ones(50), clusters=np.arange(50) % 4) == Interval(None, None)
    assert cluster_interval(np.ones(50), clusters=np.arange(50) % 5) == Interval(1.0, 1.0)


def test_verdicts_need_every_interval_that_is_known():
    none = Interval(None, None)
    assert verdict(Interval(-2, -1), Interval(-3, -0.1)) == "better"
    assert verdict(Interval(1, 2), none) == "worse"
    assert verdict(Interval(-2, -1), Interval(-3, 0.1)) == "no difference seen"
    assert verdict(Interval(0, 0), Interval(0, 0)) == "no difference seen"
    assert verdict(none, none) == "too few days and users"
