"""The boosted survival model against closed forms, and against what censoring does to a model that ignores it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.errors import UsageError
from predictors import make_predictor
from predictors.survival import hazard_quantiles

START = datetime(2024, 1, 1, tzinfo=UTC)


def test_quantiles_of_one_exponential():
    levels = np.array([0.1, 0.5, 0.9])
    found = hazard_quantiles(np.array([[0.25]]), edges=np.array([0.0]), levels=levels)
    assert found[0] == pytest.approx(-np.log(1 - levels) / 0.25)


def test_quantiles_of_stretches_invert_the_survival_function():
    rng = np.random.default_rng(0)
    edges, levels = np.array([0.0, 1.0, 2.5, 4.0]), np.array([0.05, 0.3, 0.5, 0.8, 0.99])
    hazards = rng.uniform(0.01, 2, (50, 4))
    times = hazard_quantiles(hazards, edges=edges, levels=levels)
    stops = np.append(edges[1:], np.inf)
    lived = np.clip(np.minimum(times[:, :, None], stops) - edges, 0, None)  # time spent in each stretch
    assert 1 - np.exp(-(lived * hazards[:, None, :]).sum(axis=2)) == pytest.approx(np.tile(levels, (50, 1)))


def censored_log(num_jobs: int = 4000, seed: int = 0) -> tuple[pl.DataFrame, np.ndarray]:
    """Log-normal jobs of two sizes, half of them cancelled at a time of their own; and how long they would have run."""
    rng = np.random.default_rng(seed)
    size = rng.choice([1.0, 8.0], num_jobs)
    true = np.exp(rng.normal(np.where(size == 1, 5.0, 8.0), 0.7))
    stop = np.exp(rng.normal(np.where(size == 1, 5.0, 8.0), 1.0))
    times = [START + timedelta(minutes=10 * i) for i in range(num_jobs)]
    cut = stop < true
    log = pl.DataFrame(
        {
            "submit_time": times,
            "num_gpus": size,
            "duration_s": np.minimum(true, stop),
            "status": np.where(cut, "cancelled", "completed"),
        }
    )
    return log, true


def test_it_learns_the_median_that_cancelled_jobs_would_have_had():
    log, _ = censored_log()
    rows = log.tail(2).with_columns(num_gpus=pl.Series([1.0, 8.0]))
    params = {"features": ["num_gpus"], "num_trees": 60, "max_leaves": 8}
    censors = np.log(make_predictor("boosted_survival", **params).fit(log).predict(rows))
    keeps = np.log(make_predictor("boosted_survival", cut_off="keep", **params).fit(log).predict(rows))
    assert censors == pytest.approx([5.0, 8.0], abs=0.15)
    # The median of what they occupied: that of the lesser of two normals, below by about half a standard deviation.
    rng = np.random.default_rng(1)
    lesser = np.median(np.minimum(rng.normal(0, 0.7, 10**6), rng.normal(0, 1, 10**6)))
    assert keeps == pytest.approx([5.0 + lesser, 8.0 + lesser], abs=0.15)


def test_cut_off_is_one_of_two_words():
    with pytest.raises(UsageError, match="cut_off is 'drop'; expected 'censor' or 'keep'"):
        make_predictor("boosted_survival", cut_off="drop").fit(censored_log(100)[0])
