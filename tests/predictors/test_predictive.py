"""Distributions of durations against a log-logistic law, of which all that is asked has a formula."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.errors import UsageError
from predictors.predictive import Predictive, check_quantiles

LEVELS = np.concatenate([np.arange(1, 1000) / 1000, [0.9995, 0.9999]])
#: log(1 + s) is logistic with these locations and scales: S(t) = 1 / (1 + exp((log(1 + t) - m) / s)).
PLACE, SCALE = np.array([3.0, 6.0, 9.0]), np.array([0.3, 0.5, 0.2])


def law(limit_s: float = np.inf) -> Predictive:
    values = PLACE[:, None] + SCALE[:, None] * np.log(LEVELS / (1 - LEVELS))
    return Predictive(LEVELS, np.maximum(values, 0), np.full(3, limit_s))


def true_survival(times: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp((np.log1p(times) - PLACE[:, None]) / SCALE[:, None]))


def true_quantile(q: np.ndarray) -> np.ndarray:
    return np.expm1(PLACE[:, None] + SCALE[:, None] * np.log(q / (1 - q)))


def test_quantiles_and_survival_of_a_known_law():
    asked = np.array([0.01, 0.1, 0.5, 0.77, 0.99])
    assert law().quantiles(asked) == pytest.approx(true_quantile(asked), rel=1e-3)
    times = np.array([10.0, 100.0, 1e3, 5e3])
    assert law().survival(times) == pytest.approx(true_survival(times), abs=1e-3)  # below the lowest level a line


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_what_remains_is_the_conditional_quantile_of_the_law(share):
    elapsed = true_quantile(np.array([share]))[:, 0]
    asked = np.array([0.1, 0.5, 0.9])
    within = true_survival(elapsed[:, None]) * (1 - asked)
    expected = true_quantile(1 - within) - elapsed[:, None]
    assert law().remaining(elapsed, asked) == pytest.approx(expected, rel=0.02)


def test_survival_falls_to_what_the_quantile_of_the_rest_says():
    elapsed = np.array([5.0, 900.0, 1e7])  # the last outlived every level
    asked = np.array([0.05, 0.5, 0.95])
    left = law().remaining(elapsed, asked)
    for place, q in enumerate(asked):
        after = np.diag(law().survival(elapsed + left[:, place]))
        assert after == pytest.approx((1 - q) * np.diag(law().survival(elapsed)), rel=1e-6)


def test_at_no_elapsed_time_all_remains():
    asked = [0.2, 0.5, 0.8]
    assert law().remaining(0.0, asked) == pytest.approx(law().quantiles(asked))


def test_a_job_that_outlived_all_runs_for_a_share_of_what_it_ran():
    """S falls as t to the power -1/b, so the median of the rest is (2^b - 1) of what was run; b lies in 0.1 … 1."""
    narrow = Predictive(np.array([0.1, 0.5, 0.9]), np.full((1, 3), 2.0), np.array([np.inf]))
    assert narrow.remaining(1e6, [0.5])[0, 0] == pytest.approx(1e6 * (2**0.1 - 1), rel=1e-4)
    wide = Predictive(np.array([0.1, 0.5, 0.9]), np.array([[0.0, 5.0, 11.0]]), np.array([np.inf]))
    assert wide.remaining(1e9, [0.5])[0, 0] == pytest.approx(1e9, rel=1e-4)
    assert np.isfinite(wide.remaining(1e12, [0.001, 0.999])).all()


def test_the_limit_bounds_all_until_it_is_outrun():
    bound = law(limit_s=60.0)
    assert bound.quantiles([0.9]).ravel().tolist() == pytest.approx(
        [min(60.0, true_quantile(np.array([0.9]))[0, 0]), 60, 60]
    )
    assert bound.survival([59.0, 60.0, 61.0])[2].tolist() == pytest.approx([1.0, 0.0, 0.0], abs=1e-3)
    assert bound.remaining(45.0, [0.5])[1:, 0].tolist() == [15.0, 15.0]
    assert bound.remaining(60.0, [0.5]) == pytest.approx(law().remaining(60.0, [0.5]))


def test_equal_quantiles_are_a_jump():
    """Half of the jobs run 99 s exactly: from there on they have ended, and what remains skips them."""
    jump = Predictive(np.array([0.25, 0.75]), np.log1p([[99.0, 99.0]]), np.array([np.inf]))
    assert jump.survival([98.0, 99.0]).ravel().tolist() == pytest.approx([1 - 0.25 * np.log1p(98) / np.log1p(99), 0.25])
    assert jump.quantiles([0.3, 0.5, 0.7]).ravel().tolist() == pytest.approx([99.0] * 3)
    assert jump.remaining(99.0, [0.5])[0, 0] == pytest.approx(100 * 2**0.1 - 100)


def test_no_rows():
    none = Predictive(np.array([0.5]), np.zeros((0, 1)), np.zeros(0))
    assert none.quantiles([0.5, 0.9]).shape == (0, 2)
    assert none.survival([1.0]).shape == (0, 1)
    assert none.remaining(np.zeros(0), [0.5]).shape == (0, 1)


@pytest.mark.parametrize("wrong", [[], [0.0], [1.0], [0.5, 7], [np.nan], -0.1])
def test_quantiles_out_of_range(wrong):
    with pytest.raises(UsageError, match="expected numbers between 0 and 1"):
        check_quantiles(wrong)


@pytest.mark.parametrize("wrong", [-1.0, np.nan])
def test_times_that_are_none(wrong):
    with pytest.raises(UsageError, match="times_s: 1 of 2 are negative or not a number, first"):
        law().survival([1.0, wrong])
    with pytest.raises(UsageError, match="elapsed_s: 1 of 3 are negative"):
        law().remaining([1.0, 2.0, wrong], [0.5])
