"""Policies of one's own in Python: the built-in ones written anew give the built-in schedules, everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import polars as pl
import pytest
from hypothesis import given

from analysis.errors import HindcastError, SchemaError, UnknownNameError, UsageError
from analysis.replay import PLACEMENTS, POLICIES, Cluster, Policy, policy, replay
from analysis.replay.policies import NumbaKey, PythonKey, PythonScheduler
from analysis.replay.policies.rules import Costs
from tests.replay_cases import PREDICTED, Case, cases, crowd, few

# --- the policies, in a line each ------------------------------------------------------------------------------------


def gpu_time(num_gpus: float, predicted_duration_s: float) -> float:
    return round(num_gpus * 1e3) * round(predicted_duration_s * 1e6)


PYTHON = {
    "fifo": PythonKey(lambda jobs: jobs.submit_s),
    "sjf": PythonKey(lambda jobs: jobs.predicted_s),
    "qssf": PythonKey(lambda jobs: np.rint(jobs["num_gpus"] * 1e3) * jobs.predicted_us),
}
NUMBA = {
    "fifo": NumbaKey(lambda submit_time: submit_time),
    "sjf": NumbaKey(numba.njit(lambda predicted_duration_s: predicted_duration_s)),
    "qssf": NumbaKey(gpu_time),
}
SRTF = PythonKey(
    lambda jobs: jobs.predicted_us - jobs.done_us,
    running=lambda jobs: jobs.predicted_us - jobs.done_us - jobs.elapsed_us,
)


def own(rule: Any, trait: str = "strict") -> Policy:
    """A policy that nobody registered."""
    return Policy("mine", lambda: rule, trait, "Ours.")


def same(case: Case, name: str, rule: Any, **told: Any) -> None:
    """The schedule, and what only the loop saw, are those of the built-in policy."""
    built_in = replay(case.jobs, cluster=case.cluster, policy=name, **told)
    ours = replay(case.jobs, cluster=case.cluster, policy=own(rule, POLICIES[name].trait), **told)
    assert ours.schedule.equals(built_in.schedule), (name, told)
    assert ours.counts == built_in.counts
    assert ours.jobs.equals(built_in.jobs)


every_rule = pytest.mark.parametrize(
    ("name", "rule"),
    [
        pytest.param(f"{name}{skip}", rule, id=f"{name}{skip}_{kind}")
        for kind, rules in (("python", PYTHON), ("numba", NUMBA))
        for name, rule in rules.items()
        for skip in ("", "_skip")
    ],
)


# --- agreement -------------------------------------------------------------------------------------------------------


@every_rule
@few
@given(case=cases())
def test_whole_gpus(name: str, rule: Any, case: Case):
    same(case, name, rule, predicted=PREDICTED)


@every_rule
@few
@given(case=cases(has_fractions=True))
def test_fractions(name: str, rule: Any, case: Case):
    same(case, name, rule)


@every_rule
def test_long_queues(name: str, rule: Any):
    for seed in range(20):
        same(crowd(seed), name, rule, predicted=PREDICTED if seed % 3 else None, use_vcs=bool(seed % 4))


@pytest.mark.parametrize("placement", PLACEMENTS)
@every_rule
def test_every_placement(name: str, rule: Any, placement: str):
    for seed in range(3):
        same(crowd(seed), name, rule, predicted=PREDICTED, placement=placement, seed=seed)


def undescribed(case: Case) -> Case:
    """The same nodes, of unknown type: every job runs as long as in the log."""
    return Case(case.jobs, Cluster(case.cluster.nodes.with_columns(pl.lit(None, dtype=pl.String).alias("gpu_type"))))


@pytest.mark.parametrize("costs", [Costs(), Costs(0.5, 1.0, 3.0)], ids=["free", "costly"])
@pytest.mark.parametrize("name", ["srtf", "srtf_skip"])
def test_shortest_remaining_time_with_preemption(name: str, costs: Costs):
    """Who is stopped, who is given back, what it costs: as the compiled engine says."""
    stops = 0
    rule = PythonKey(SRTF.function, running=SRTF.running, costs=costs)
    for seed in range(20):
        case = undescribed(crowd(seed))
        told: dict[str, Any] = {"cluster": case.cluster, "predicted": PREDICTED if seed % 3 else None}
        placement = ["consolidate", "consolidate", "best_fit", "random"][seed % 4]
        options = {
            "checkpoint_overhead_s": costs.checkpoint_overhead_s,
            "restart_cost_s": costs.restart_cost_s,
            "min_run_s": costs.min_run_s,
        }
        built_in = replay(case.jobs, policy=POLICIES[name].using(**options), placement=placement, **told)
        ours = replay(case.jobs, policy=own(rule, POLICIES[name].trait), placement=placement, **told)
        assert ours.schedule.equals(built_in.schedule), seed
        assert ours.jobs.equals(built_in.jobs)
        stops += built_in.schedule["num_preemptions"].sum()
    assert stops > 50


# --- by hand ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def registered() -> Any:
    """Forget what a test registers."""
    before = dict(POLICIES)
    yield POLICIES
    POLICIES.clear()
    POLICIES.update(before)


def line(*jobs: tuple[float, float, float], **columns: list[Any]) -> pl.DataFrame:
    """Jobs of (submission, GPUs, duration), named a, b, c …"""
    start = pl.datetime(2024, 1, 1, time_zone="UTC", time_unit="us")
    table = pl.DataFrame(
        {
            "job_id": [chr(97 + i) for i in range(len(jobs))],
            "at": [float(at) for at, _, _ in jobs],
            "num_gpus": [float(gpus) for _, gpus, _ in jobs],
            "duration_s": [float(seconds) for _, _, seconds in jobs],
            **columns,
        }
    )
    return table.with_columns(submit_time=start + pl.duration(milliseconds=pl.col("at") * 1000)).drop("at")


def starts(result: Any) -> list[float | None]:
    return result.schedule["start_s"].to_list()


ONE = Cluster.uniform(num_nodes=1, num_gpus=1)


def test_a_key_may_change_while_jobs_wait(registered: dict[str, Policy]):
    """Highest response ratio next. At 10 s: b waited 9 of 30 s, c 2 of 4; at 14 s: b 13 of 30, d 1.5 of 3."""

    @policy(trait="strict")
    def highest_response_ratio() -> PythonKey:
        """Longest wait for its length first."""
        return PythonKey(lambda jobs: -jobs.waited_s / jobs.predicted_s)

    jobs = line((0, 1, 10), (1, 1, 30), (8, 1, 4), (12.5, 1, 3))
    result = replay(jobs, cluster=ONE, policy="highest_response_ratio")
    assert starts(result) == [0, 17, 10, 14]
    assert registered["highest_response_ratio"].meaning == "Longest wait for its length first."


def test_a_key_may_read_any_column():
    jobs = line((0, 1, 2), (0, 1, 2), (0, 1, 2), colour=[3, 1, 2])
    rule = PythonKey(lambda jobs: jobs["colour"], needs=frozenset({"colour"}))
    assert starts(replay(jobs, cluster=ONE, policy=own(rule))) == [4, 0, 2]
    assert starts(replay(jobs, cluster=ONE, policy=own(NumbaKey(lambda colour: -colour)))) == [0, 4, 2]
    with pytest.raises(SchemaError, match="'colour' is missing"):
        replay(jobs.drop("colour"), cluster=ONE, policy=own(rule))
    with pytest.raises(UnknownNameError, match="'colour'"):
        replay(jobs, cluster=ONE, policy=own(PythonKey(lambda jobs: jobs["colour"])))


def test_a_running_job_gives_way_and_comes_back():
    """One GPU: b, shorter, pushes a out at 2 s; a has 8 of 10 s left and ends at 13 s."""
    result = replay(line((0, 1, 10), (2, 1, 3)), cluster=ONE, policy=own(SRTF))
    assert result.schedule["end_s"].to_list() == [13, 5]
    assert result.schedule["num_preemptions"].to_list() == [1, 0]


def test_a_scheduler_may_act_by_itself():
    """Every job starts exactly a minute after its submission."""

    def begin(sim: Any, blocks: bool) -> Callable[[int], None]:  # noqa: FBT001 - the engine's call
        assert blocks

        def act(vc: int) -> None:
            for row in sim.waiting_in(vc):
                due = int(sim.prepared.submit[row]) + 60_000_000
                if sim.now_us < due:
                    sim.set_timer(due)
                else:
                    assert sim.start(row)

        return act

    jobs = line((0, 1, 5), (3, 1, 5), (60, 1, 5))
    result = replay(jobs, cluster=Cluster.uniform(num_nodes=3, num_gpus=1), policy=own(PythonScheduler(begin)))
    assert starts(result) == [60, 63, 120]


# --- errors ----------------------------------------------------------------------------------------------------------


def test_mistakes_are_told():
    jobs = line((0, 1, 2), (0, 1, 2))
    with pytest.raises(HindcastError, match=r"the key is NaN for 1 jobs \(first ids \['b'\]\)"):
        replay(jobs, cluster=ONE, policy=own(PythonKey(lambda _jobs: [1.0, math.nan])))
    with pytest.raises(UsageError, match="expected one for each of 2 jobs"):
        replay(jobs, cluster=ONE, policy=own(PythonKey(lambda _jobs: 7.0)))
    with pytest.raises(UsageError, match="found trait 'easy'; a policy in Python is strict or skip"):
        replay(jobs, cluster=ONE, policy=own(PythonKey(lambda jobs: jobs.submit_s), "easy"))
    with pytest.raises(HindcastError, match="2 jobs were never started"):
        replay(jobs, cluster=ONE, policy=own(PythonScheduler(lambda _sim, _blocks: lambda _vc: None)))
    with pytest.raises(UsageError, match="its function gave a int; expected one of Expr, MovingKey"):
        replay(jobs, cluster=ONE, policy=own(7))
    with pytest.raises(UsageError, match="has no arguments"):
        replay(jobs, cluster=ONE, policy=own(NumbaKey(lambda: 1.0)))
    with pytest.raises(UsageError, match="'job_id' has dtype String; a NumbaKey reads numbers"):
        replay(jobs, cluster=ONE, policy=own(NumbaKey(lambda job_id: job_id)))
    with pytest.raises(HindcastError, match="its key is null or NaN for 2 jobs"):
        replay(jobs, cluster=ONE, policy=own(NumbaKey(lambda num_gpus: math.nan * num_gpus)))
