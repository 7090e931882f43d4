"""How fast a replay goes when Python decides, in CPU time; run with ``pytest ... --benchmark-enable``.

The first replay, of a few jobs, compiles or reads the compiled code. README.md keeps the results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.replay import POLICIES, Policy, replay
from analysis.replay.policies import NumbaKey, PythonKey
from analysis.replay.steps import Episode, SchedulingEnv, Simulation
from tests.benchmarks.test_replay_speed import SMALL, philly_jobs

cpu_time = pytest.mark.benchmark(timer=time.process_time)
RULES: dict[str, tuple[str, Any]] = {
    "python_fifo": ("strict", PythonKey(lambda jobs: jobs.submit_s)),
    "python_sjf_skip": ("skip", PythonKey(lambda jobs: jobs.predicted_s)),
    "python_response_ratio_skip": ("skip", PythonKey(lambda jobs: -jobs.waited_s / (jobs.predicted_s + 1))),
    "numba_gpu_time": ("strict", NumbaKey(lambda num_gpus, predicted_duration_s: num_gpus * predicted_duration_s)),
}


@pytest.fixture(scope="module")
def philly(real_data: Callable[[str], Path]) -> pl.DataFrame:
    jobs = philly_jobs(real_data("philly/philly_jobs.csv.gz"))
    return jobs.with_columns(user="u" + (pl.int_range(pl.len()) ** 2 % 313).cast(pl.String))


def run(benchmark: Any, jobs: pl.DataFrame, chosen: Policy) -> None:
    replay(jobs.head(300), cluster=SMALL, policy=chosen)
    result = benchmark.pedantic(replay, (jobs,), {"cluster": SMALL, "policy": chosen}, rounds=1)
    assert result.metrics()["num_finished"] == 82_247


@pytest.mark.full_trace
@cpu_time
@pytest.mark.parametrize("name", RULES)
def test_own_keys(benchmark: Any, philly: pl.DataFrame, name: str):
    trait, rule = RULES[name]
    run(benchmark, philly, Policy(name, lambda: rule, trait, ""))


@pytest.mark.full_trace
@cpu_time
@pytest.mark.parametrize("name", ["fair_share", "fair_share_skip", "themis", "slo_lease"])
def test_policies_of_the_step_wise_engine(benchmark: Any, philly: pl.DataFrame, name: str):
    run(benchmark, philly, POLICIES[name])


def first_come(sim: Simulation) -> Simulation:
    while sim.advance():
        for row in sim.waiting:
            if not sim.start(row):
                break
    return sim


@pytest.mark.full_trace
@cpu_time
def test_strict_fifo_by_hand(benchmark: Any, philly: pl.DataFrame):
    """Goal: 20,000 jobs per second, 4.1 s."""
    first_come(Simulation(philly.head(300), cluster=SMALL))
    sim = benchmark.pedantic(first_come, (Simulation(philly, cluster=SMALL),), rounds=1)
    assert sim.result().schedule.equals(replay(philly, cluster=SMALL).schedule)


def episode(env: SchedulingEnv) -> int:
    num_steps, is_over = 0, False
    while not is_over:
        mask = env.action_masks()
        _, _, is_over, is_cut, _ = env.step(0 if mask[0] else len(mask) - 1)
        is_over |= is_cut
        num_steps += 1
    return num_steps


@pytest.mark.full_trace
@cpu_time
def test_an_episode(benchmark: Any, philly: pl.DataFrame):
    """Strict FIFO in an environment: 2,000 jobs, 16 slots."""
    env = SchedulingEnv(philly, cluster=SMALL, episode=Episode(num_jobs=2_000))
    env.reset(seed=1)
    assert benchmark.pedantic(episode, (env,), rounds=1) >= 2_000
