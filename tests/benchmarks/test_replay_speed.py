"""How fast replays are, in CPU time; run with ``pytest tests/benchmarks/test_replay_speed.py --benchmark-enable``.

Each benchmark warms up once, so compiling and reading the compiled code are not in it. README.md keeps the results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from analysis.replay import POLICIES, Cluster, RollingPrediction, replay
from analysis.replay._prepare import prepare
from analysis.replay.engine import run_loop

NUM_JOBS = 3_400_000
BIG = Cluster.uniform(num_nodes=775, num_gpus=8)
SMALL = Cluster.uniform(num_nodes=52, num_gpus=8)
DAY_S = 86_400.0
OTHERS = ["easy", "conservative", "las", "las_skip", "srtf", "srtf_skip"]
PLAIN = ["fifo", "sjf", "fifo_skip", "sjf_skip"]
cpu_time = pytest.mark.benchmark(timer=time.process_time, warmup=True)


def synthetic_jobs(num_jobs: int, cluster: Cluster, *, load: float, seed: int = 0) -> pl.DataFrame:
    """Log-normal durations, powers of two, arrivals that follow the hour of the day."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 2, 4, 8, 16, 32], num_jobs, p=[0.6, 0.12, 0.13, 0.11, 0.03, 0.01])
    seconds = np.round(np.minimum(np.exp(rng.normal(6.0, 2.0, num_jobs)), 30 * DAY_S))
    window = float((gpus * seconds).sum()) / (load * cluster.num_gpus)
    even = np.sort(rng.uniform(0, window, num_jobs))
    # d/dt (t - a sin(2 pi t / day)) = 1 - a 2 pi / day cos(...): half the mean rate at midnight, one and a half at noon
    submit = np.sort(np.maximum(even + 0.5 * DAY_S / (2 * np.pi) * np.sin(2 * np.pi * even / DAY_S), 0))
    return pl.DataFrame(
        {
            "job_id": pl.Series(np.arange(1, num_jobs + 1)).cast(pl.String),
            "submit_time": pl.Series((submit * 1e6).astype(np.int64)).cast(pl.Datetime("us", "UTC")),
            "num_gpus": gpus.astype(np.float64),
            "duration_s": seconds,
        }
    )


def philly_jobs(path: Path) -> pl.DataFrame:
    """The Philly jobs; naive times taken as equally spaced, ids are rows."""
    rows = pl.read_csv(path).drop_nulls("timestamp").with_row_index("row", offset=1)
    submit = pl.col("timestamp").str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", time_zone="UTC")
    jobs = rows.select(
        pl.col("row").cast(pl.String).alias("job_id"), submit.alias("submit_time"), "num_gpus", "duration"
    )
    return jobs.rename({"duration": "duration_s"}).sort("submit_time", maintain_order=True)


@pytest.fixture(scope="module")
def philly(real_data: Callable[[str], Path]) -> pl.DataFrame:
    return philly_jobs(real_data("philly/philly_jobs.csv.gz"))


@pytest.fixture(scope="module")
def year() -> pl.DataFrame:
    return synthetic_jobs(NUM_JOBS, BIG, load=0.8)


@pytest.mark.full_trace
@cpu_time
@pytest.mark.parametrize("policy", [*PLAIN, "sjf_fastest", *OTHERS])
def test_philly(benchmark: Any, philly: pl.DataFrame, policy: str):
    """82,247 jobs on 52 x 8 GPUs. Goals: fifo and sjf 0.06 CPU seconds, easy and srtf 0.3, las 0.4, conservative 3."""
    result = benchmark.pedantic(replay, (philly,), {"cluster": SMALL, "policy": policy}, rounds=3, warmup_rounds=1)
    assert result.metrics()["num_finished"] == 82_247


@pytest.mark.full_trace
@cpu_time
@pytest.mark.parametrize("policy", ["fifo", "sjf", "sjf_skip", "easy"])
def test_the_loop_alone_on_philly(benchmark: Any, philly: pl.DataFrame, policy: str):
    """The event loop without tables before and after it."""
    chosen = POLICIES[policy]
    needs = sorted(chosen.needs - {"predicted_duration_s"})

    def setup() -> tuple[tuple[Any, ...], dict[str, Any]]:
        prepared = prepare(philly, cluster=SMALL, predicted=None, use_vcs=True, columns=needs)
        return (chosen, prepared), {}

    log, *_ = benchmark.pedantic(run_loop, setup=setup, rounds=3, warmup_rounds=1)
    assert int((log.start >= 0).sum()) == 82_247


@pytest.mark.full_trace
@cpu_time
@pytest.mark.parametrize("policy", ["fifo", "sjf", "sjf_skip", *OTHERS])
def test_3_400_000_jobs(benchmark: Any, year: pl.DataFrame, policy: str):
    """3,400,000 jobs on 775 x 8 GPUs at load 0.8. Goals: fifo 1.5 s, easy 4, las 6, srtf 12, conservative 60."""
    if benchmark.disabled:
        pytest.skip("only with --benchmark-enable: 3,400,000 jobs take tens of seconds")
    result = benchmark.pedantic(replay, (year,), {"cluster": BIG, "policy": policy}, rounds=1, warmup_rounds=1)
    assert result.schedule["start_s"].null_count() == 0


ROLLING = {
    "mean_2": RollingPrediction("mean", last=2, groups=(("user",), ())),
    "median_20": RollingPrediction("median", last=20, groups=(("user", "num_gpus"), ("user",), ())),
    "hourly": RollingPrediction("median", last=20, groups=(("user", "num_gpus"), ("user",), ()), refresh_s=3600.0),
}


@cpu_time
@pytest.mark.parametrize("rolling", [None, *ROLLING])
@pytest.mark.parametrize("policy", ["sjf", "easy"])
def test_predictions_in_closed_loop(benchmark: Any, policy: str, rolling: str | None):
    """340,000 jobs of 500 users on 78 x 8 GPUs at load 0.8, predicted while they are replayed; None: true durations.

    "hourly" is median_20, predicted again every hour for those who wait or run.
    """
    cluster = Cluster.uniform(num_nodes=78, num_gpus=8)
    jobs = synthetic_jobs(340_000 if benchmark.enabled else 2_000, cluster, load=0.8)
    users = np.random.default_rng(1).integers(0, 500, jobs.height)
    jobs = jobs.with_columns(user=pl.Series(users).cast(pl.String))
    how = {"cluster": cluster, "policy": policy, "predicted": None if rolling is None else ROLLING[rolling]}
    result = benchmark.pedantic(replay, (jobs,), how, rounds=1, warmup_rounds=1)
    assert result.metrics()["num_finished"] == jobs.height


@cpu_time
@pytest.mark.parametrize("load", [0.7, 2.0])
def test_queues_of_any_length(benchmark: Any, load: float):
    """200,000 jobs on 20 x 8 GPUs, without and with a queue of tens of thousands: alike per job."""
    cluster = Cluster.uniform(num_nodes=20, num_gpus=8)
    jobs = synthetic_jobs(200_000 if benchmark.enabled else 2_000, cluster, load=load)
    result = benchmark.pedantic(replay, (jobs,), {"cluster": cluster, "policy": "sjf_skip"}, rounds=1, warmup_rounds=1)
    assert result.metrics()["num_finished"] == jobs.height
