"""How fast features and predictions are, in CPU time; run with ``pytest --benchmark-enable --benchmark-only``."""

from __future__ import annotations

import time

import numpy as np
import polars as pl
import pytest

from predictors import make_predictor
from predictors.history import HISTORY_STATS, ended_jobs, history_features

RICC_JOBS = 447_790


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    """As many jobs as the RICC log has, by 300 users of very different zeal."""
    rng = np.random.default_rng(0)
    submit = np.sort(rng.integers(0, 150 * 86_400, RICC_JOBS)) * 1_000_000
    user = rng.pareto(1, RICC_JOBS).astype(int) % 300
    return pl.DataFrame(
        {
            "submit_time": pl.Series(submit).cast(pl.Datetime("us", "UTC")),
            "user": pl.Series(user).cast(pl.String),
            "num_gpus": rng.choice([1.0, 2.0, 4.0, 8.0], RICC_JOBS),
            "time_limit_s": rng.choice([3600.0, 7200.0, 86_400.0], RICC_JOBS),
            "duration_s": np.round(np.exp(rng.normal(6, 2, RICC_JOBS))),
        }
    )


@pytest.mark.full_trace
@pytest.mark.benchmark(timer=time.process_time, warmup=True)
def test_history_of_447_790_jobs_and_3_keys(benchmark, log):
    """Goal: 3 CPU seconds."""
    past = ended_jobs(log)
    keys = ["user", "user_size", "user_size_limit"]
    found = benchmark.pedantic(history_features, (log,), {"past": past, "keys": keys}, rounds=2, warmup_rounds=1)
    assert found.shape == (RICC_JOBS, 3 * len(HISTORY_STATS))


@pytest.mark.full_trace
@pytest.mark.benchmark(timer=time.process_time)
def test_fit_on_50_000_jobs(benchmark, log):
    model = benchmark.pedantic(make_predictor("boosted").fit, (log.head(50_000),), rounds=1)
    assert model.num_known_ == 50_000


@pytest.mark.full_trace
@pytest.mark.benchmark(timer=time.process_time)
def test_predict_100_000_jobs(benchmark, log):
    """Goal: 1 CPU second."""
    model = make_predictor("boosted").fit(log.head(20_000))
    rows = log.slice(20_000, 100_000)
    predicted = benchmark.pedantic(model.predict, (rows,), rounds=2)
    assert predicted.shape == (100_000,)
