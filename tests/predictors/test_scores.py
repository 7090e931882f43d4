"""Scores against cases worked by hand and scikit-learn's implementation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn import metrics

from predictors import SCORES, score_all
from predictors.scores import pinball

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
