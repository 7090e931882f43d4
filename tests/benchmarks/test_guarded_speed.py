"""How fast the default predictor is on a log as long as RICC's, in CPU time.

Run with ``pytest --benchmark-enable --benchmark-only``.
"""

from __future__ import annotations

import time

import numpy as np
import polars as pl
import pytest

from predictors import DurationPredictor, load_model, make_predictor, save_model

RICC_JOBS = 447_790
LATER_JOBS = 100_000


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    """Jobs of 300 users of very different zeal, who send batches of jobs alike that wait before they start."""
    rng = np.random.default_rng(0)
    jobs = RICC_JOBS + LATER_JOBS
    batch = np.sort(rng.integers(0, jobs // 8, jobs))
    came = np.sort(rng.integers(0, 150 * 86_400, jobs // 8))[batch] + rng.integers(0, 30, jobs)
    user = (rng.pareto(1, jobs // 8).astype(int) % 300)[batch]
    run = np.round(np.exp(4 + user % 7 + rng.normal(0, 1, jobs // 8)[batch] + rng.normal(0, 0.5, jobs)))
    start = came + rng.exponential(3600, jobs).astype(int)
    times = {"submit_time": came, "start_time": start, "end_time": start + run.astype(int)}
    return pl.DataFrame(
        {name: pl.from_epoch(pl.Series(seconds)).dt.replace_time_zone("UTC") for name, seconds in times.items()}
        | {
            "user": pl.Series(user).cast(pl.String),
            "num_gpus": rng.choice([1.0, 2.0, 4.0, 8.0], jobs // 8)[batch],
            "time_limit_s": rng.choice([3600.0, 7200.0, 86_400.0], jobs // 8)[batch],
            "duration_s": run,
            "status": "completed",
        }
    ).sort("submit_time")


@pytest.fixture(scope="module")
def model(log) -> DurationPredictor:
    return make_predictor("guarded").fit(log.head(RICC_JOBS))


@pytest.mark.full_trace
@pytest.mark.benchmark(timer=time.process_time)
def test_fit_on_447_790_jobs(benchmark, log):
    """Goal: 30 CPU seconds."""
    make_predictor("guarded").fit(log.head(1000))  # numba compiles
    model = benchmark.pedantic(make_predictor("guarded").fit, (log.head(RICC_JOBS),), rounds=1)
    assert model.num_known_ == RICC_JOBS


@pytest.mark.full_trace
@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("output", ["predict", "predict_quantiles"])
def test_predict_100_000_jobs(benchmark, log, model, output):
    """Goals: 1 CPU second for the median, 4 for p10, p50 and p90."""
    levels = {"predict": (), "predict_quantiles": ([0.1, 0.5, 0.9],)}[output]
    rows = log.tail(LATER_JOBS)
    predicted = benchmark.pedantic(getattr(model, output), (rows, *levels), rounds=3, warmup_rounds=1)
    assert len(predicted) == LATER_JOBS


@pytest.mark.full_trace
@pytest.mark.benchmark(timer=time.process_time)
def test_load_and_predict_one_job(benchmark, log, model, tmp_path):
    """Goal: 1 CPU second."""
    folder = save_model(model, tmp_path / "model")
    predicted = benchmark.pedantic(lambda: load_model(folder).predict(log.tail(1)), rounds=2, warmup_rounds=1)
    assert predicted.shape == (1,)
