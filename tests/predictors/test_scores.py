"""Scores against cases worked by hand and scikit-learn's implementation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics

from predictors import SCORES, score_all
from predictors.scores import INTERVAL_SCORES, pinball, score_interval

PREDICTED = [99.0, 9.0, 0.0, 19.0]
TRUE = [9.0, 9.0, 0.0, 39.0]  # off by a factor of 10, exact, exact, short by a factor of 2 (each with 1 s added)


def test_by_hand():
    found = score_all(PREDICTED, TRUE)
    assert found["log_mae"] == pytest.approx((math.log(10) + math.log(2)) / 4)
    assert found["log_rmse"] == pytest.approx(math.sqrt((math.log(10) ** 2 + math.log(2) ** 2) / 4))
    assert found["log_bias"] == pytest.approx((math.log(10) - math.log(2)) / 4)
    assert found["within_2x"] == 0.5  # 39 s is more than twice 19 s
    assert found["mae_s"] == (90 + 20) / 4
    assert found["under_prediction"] == 0.25
    assert found["min_max_ratio"] == pytest.approx((9 / 99 + 1 + 1 + 19 / 39) / 4)


def test_against_scikit_learn():
    rng = np.random.default_rng(0)
    true, predicted = np.exp(rng.normal(5, 2, 300)), np.exp(rng.normal(5, 2, 300))
    found = score_all(predicted, true)
    log_true, log_predicted = np.log1p(true), np.log1p(predicted)
    assert found["log_mae"] == pytest.approx(metrics.mean_absolute_error(log_true, log_predicted))
    assert found["log_rmse"] == pytest.approx(metrics.root_mean_squared_log_error(true, predicted))
    assert found["r2_log"] == pytest.approx(metrics.r2_score(log_true, log_predicted))
    assert found["pinball_50"] == pytest.approx(metrics.mean_pinball_loss(log_true, log_predicted, alpha=0.5))
    ranks = [np.argsort(np.argsort(values)) for values in (true, predicted)]
    assert found["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])


def test_d84_pinball_of_the_ninth_decile():
    """Pitfall D84: actual 5, 15, 20, 25 against a p90 of 20: the mean of 1.5, 0.5, 0 and 4.5."""
    assert pinball([20] * 4, [5, 15, 20, 25], quantile=0.9) == pytest.approx(1.625)


def test_no_rows_and_nan_rows():
    assert set(score_all([], []).values()) == {None}
    assert score_all([1.0, 5.0, math.nan], [1.0, math.nan, 3.0])["mae_s"] == 0
    assert set(score_all([], [])) == set(SCORES)


def test_a_constant_has_no_rank_correlation():
    assert score_all([7.0, 7.0], [1.0, 2.0])["spearman"] is None
    assert score_all([1.0, 2.0], [7.0, 7.0])["spearman"] is None
    assert score_all([1.0, 2.0], [7.0, 7.0])["r2_log"] is None


def test_lengths_must_agree():
    with pytest.raises(ValueError, match=r"\(2,\) predictions for \(1,\) true durations"):
        score_all([1.0, 2.0], [1.0])


def test_weights_are_as_if_rows_were_repeated():
    weights = [3.0, 1.0, 1.0, 2.0]
    repeated = score_all(np.repeat(PREDICTED, [3, 1, 1, 2]), np.repeat(TRUE, [3, 1, 1, 2]))
    found = score_all(PREDICTED, TRUE, weights=weights)
    means = ("log_mae", "within_2x", "min_max_ratio", "pinball_50", "mae_s", "log_bias", "under_prediction")
    for name in means:
        assert found[name] == pytest.approx(repeated[name])
    assert [name for name, value in found.items() if value is None] == ["log_rmse", "spearman", "r2_log"]


def test_intervals_by_hand():
    """On log(1 + s): [0, 2] holds 1; of [1, 2], 0 is missed by 1 at the p10 and 4 by 2 at the p90."""
    low, high, true = np.expm1([0.0, 1.0, 1.0]), np.expm1([2.0, 2.0, 2.0]), np.expm1([1.0, 0.0, 4.0])
    found = score_interval(low, high, true)
    assert found["coverage"] == pytest.approx(1 / 3)
    assert found["interval_width"] == pytest.approx((2 + 1 + 1) / 3)
    assert found["interval_score"] == pytest.approx((2 + (1 + 1 / 0.1) + (1 + 2 / 0.1)) / 3)
    # p10: 0.1 * 1, 0.9 * 1, 0.1 * 3; p90: 0.1 * 1, 0.1 * 2, 0.9 * 2.
    assert found["pinball_ends"] == pytest.approx((0.1 + 0.1 + 0.9 + 0.2 + 0.3 + 1.8) / 3)
    assert score_interval(low, high, true, weights=[2, 1, 1])["coverage"] == 0.5


def test_the_interval_score_is_the_pinball_losses_of_both_ends_times_ten():
    """For quantiles a and 1 - a the score is the sum of both pinball losses over a (Gneiting and Raftery 2007)."""
    rng = np.random.default_rng(0)
    low, true = rng.exponential(100, 50), rng.exponential(300, 50)
    found = score_interval(low, low + rng.exponential(400, 50), true)
    assert found["interval_score"] == pytest.approx(found["pinball_ends"] / 0.1)


def test_ends_of_an_interval_count_as_inside_and_nan_rows_are_left_out():
    assert score_interval([1.0], [2.0], [1.0])["coverage"] == score_interval([1.0], [2.0], [2.0])["coverage"] == 1
    assert score_interval([1.0, math.nan], [2.0, 9.0], [5.0, 5.0])["coverage"] == 0
    assert score_interval([1.0, 1.0], [math.nan, 9.0], [5.0, 5.0])["coverage"] == 1
    assert set(score_interval([], [], []).values()) == {None}
    assert set(score_interval([], [], [])) == set(INTERVAL_SCORES)


def test_d84_quantiles_never_cross_and_p90_covers_three_of_four():
    """Pitfall D84: p50 10 and p90 20 for four jobs of 5, 15, 20 and 25 s: three of four run no longer than the p90."""
    assert score_interval([0.0] * 4, [20.0] * 4, [5.0, 15.0, 20.0, 25.0])["coverage"] == 0.75
