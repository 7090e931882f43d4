"""The index of concordance against all pairs counted one by one."""

from __future__ import annotations

import numpy as np
import pytest

from predictors.concordance import concordance


def plain(predicted, observed, censored) -> float | None:
    right, pairs = 0.0, 0
    for i in range(len(predicted)):
        for j in range(len(predicted)):
            # i surely ran shorter than j.
            shorter = observed[i] < observed[j] or (observed[i] == observed[j] and censored[j])
            if i == j or censored[i] or not shorter:
                continue
            pairs += 1
            right += 1 if predicted[i] < predicted[j] else 0.5 if predicted[i] == predicted[j] else 0
    return right / pairs if pairs else None


@pytest.mark.parametrize("seed", range(20))
def test_against_all_pairs(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 60))
    observed = rng.integers(1, 15, size).astype(float)
    predicted = np.round(observed + rng.normal(0, 4, size))
    censored = rng.random(size) < rng.choice([0, 0.3, 0.8])
    assert concordance(predicted, observed, censored) == pytest.approx(plain(predicted, observed, censored))


def test_by_hand():
    assert concordance([1, 2, 3], [10, 20, 30]) == 1
    assert concordance([3, 2, 1], [10, 20, 30]) == 0
    assert concordance([7, 7, 7], [10, 20, 30]) == 0.5
    # 10 and 20 ended, one is known to have run 15: of (10, 20), (10, 15+) both are right; (15+, 20) tells nothing.
    assert concordance([1, 2, 3], [10, 20, 15], [False, False, True]) == 1
    # At one time the job that still runs outlives the one that ended.
    assert concordance([5, 1], [10, 10], [True, False]) == 1


def test_nothing_to_compare():
    assert concordance([], []) is None
    assert concordance([1, 2], [10, 10]) is None
    assert concordance([1, 2], [10, 20], [True, True]) is None
    assert concordance([1, np.nan, 3], [10, 20, np.nan]) is None


def test_many_jobs_are_quick():
    rng = np.random.default_rng(0)
    observed = rng.exponential(1, 200_000)
    assert concordance(rng.random(200_000), observed) == pytest.approx(0.5, abs=0.005)
    assert concordance(np.exp(observed), observed) == 1


def test_lengths_must_agree():
    with pytest.raises(ValueError, match=r"\(2,\) predictions for \(1,\) durations"):
        concordance([1, 2], [1])
