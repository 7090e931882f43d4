"""Replays under scored placements: against plain Python job by job, and what must hold for every placement."""

from __future__ import annotations

import os
import random

import polars as pl
import pytest

from analysis.replay import PLACEMENTS, Cluster, replay
from analysis.replay import POLICIES as POLICIES_BY_NAME
from analysis.replay.placement import SCORED
from analysis.replay.speeds import is_same_type
from tests.jobs import make_jobs
from tests.reference_engine import Outcome, in_order
from tests.reference_placement import Node
from tests.reference_preemption import MOVES
from tests.reference_scored import ScoredEngine
from tests.reference_scored_preemption import ScoredPreemptiveEngine
from tests.replay_cases import PREDICTED, START, Case, crowd, outages_of, outcome, reference_jobs, trouble

POLICIES = ("fifo", "sjf_skip", "easy", "sjf_fastest", "easy", "fifo_skip")
#: Preemptive ones, with costs and small thresholds that jobs of seconds get beyond.
COSTS = {"checkpoint_overhead_s": 0.5, "restart_cost_s": 1.0, "min_run_s": 1.0}
LEVELS = {"thresholds_gpu_s": (4.0, 15.0)}
PREEMPTIVE = {
    "srtf": COSTS,
    "srtf_skip": {},
    "las": LEVELS,
    "las_skip": LEVELS | COSTS,
    "tiresias": LEVELS,
    "gittins": LEVELS,
    "time_slicing": {"quantum_s": 3.0},
}


def with_supplies(case: Case, seed: int) -> Case:
    """CPUs and memory for jobs and nodes; some do not say."""
    rng = random.Random(seed)
    jobs = case.jobs.with_columns(
        num_cpus=pl.Series([rng.choice([0.0, 1.0, 2.0, 3.5, 7.0, None]) for _ in range(case.jobs.height)]),
        mem_gib=pl.Series([rng.choice([0.0, 1.0, 4.0, 10.1, None]) for _ in range(case.jobs.height)]),
    )
    nodes = case.cluster.nodes.with_columns(
        num_cpus=pl.Series([rng.choice([4.0, 8.0, 8.0, 16.0, None]) for _ in range(case.cluster.nodes.height)]),
        mem_gib=pl.Series([rng.choice([8.0, 32.0, None]) for _ in range(case.cluster.nodes.height)]),
    )
    return Case(jobs, Cluster(nodes, speed=case.cluster.speed, outages=case.cluster.outages))


def parts(value: float | None, per_unit: int, unknown: int | None = None) -> int | None:
    return unknown if value is None else round(value * per_unit)


def expected(
    case: Case,
    *,
    policy: str,
    placement: str,
    seed: int,
    interval_us: int = 0,
    options: dict[str, object] | None = None,
) -> Outcome:
    rows = case.cluster.nodes.rows(named=True)
    nodes = [Node(row["node_id"], row["num_gpus"], row["gpu_type"], row["vc"]) for row in rows]
    jobs = [
        job._replace(cpu=parts(cpus, 1000, 0), mem=parts(memory, 1024, 0))
        for job, cpus, memory in zip(
            reference_jobs(case.jobs, PREDICTED), case.jobs["num_cpus"], case.jobs["mem_gib"], strict=True
        )
    ]
    names = {name for name in [*(node.gpu_type for node in nodes), *(job.logged for job in jobs)] if name is not None}
    ranked = sorted(zip(jobs, in_order([j.job_id for j in jobs]), strict=True), key=lambda r: (r[0].submit, r[1]))
    engine = ScoredPreemptiveEngine if policy in MOVES else ScoredEngine
    return engine(
        [job for job, _ in ranked],
        nodes,
        policy,
        {name: speed for name in names if (speed := case.cluster.speed_of(name)) is not None},
        is_same_type,
        options or {},
        placement=placement,
        seed=seed,
        supplies=[(parts(row["num_cpus"], 1000), parts(row["mem_gib"], 1024)) for row in rows],
        outages=outages_of(case.cluster),
        interval=interval_us,
    ).replay()


def agree(case: Case, *, policy: str, placement: str, seed: int, options: dict[str, object] | None = None) -> None:
    """Both engines say the same of every job."""
    chosen = POLICIES_BY_NAME[policy].using(**(options or {}))
    choices = {"placement": placement, "seed": seed}
    result = replay(
        case.jobs, cluster=case.cluster, policy=chosen, predicted=PREDICTED, checkpoint_interval_s=1.5, **choices
    )
    found = outcome(result)
    told = expected(case, policy=policy, **choices, interval_us=1_500_000, options=options)
    differing = {
        job: (found.runs.get(job), told.runs.get(job))
        for job in case.jobs["job_id"]
        if found.runs.get(job) != told.runs.get(job)
    }
    assert not differing, f"seed {seed}, {policy}: (engine, reference)"
    assert found.rejected == told.rejected
    assert found.peak == told.peak
    assert found.unfinished == told.unfinished


@pytest.mark.parametrize("nodes", ["stay", "come_and_go"])
@pytest.mark.parametrize("placement", SCORED)
def test_agrees_with_plain_python(placement: str, nodes: str):
    for seed in range(300 if nodes == "stay" else int(os.environ.get("HINDCAST_EXAMPLES", 20))):
        case = with_supplies(crowd(seed, num_jobs=10 + seed % 25), seed)
        case = trouble(case, seed) if nodes == "come_and_go" else case
        agree(case, policy=POLICIES[seed % len(POLICIES)], placement=placement, seed=seed)


@pytest.mark.parametrize("policy", PREEMPTIVE)
@pytest.mark.parametrize("placement", SCORED)
def test_preemption_agrees_with_plain_python(placement: str, policy: str):
    for seed in range(int(os.environ.get("HINDCAST_EXAMPLES", 6))):
        case = with_supplies(crowd(seed, num_jobs=45), seed)
        case = trouble(case, seed) if seed % 2 else case
        agree(case, policy=policy, placement=placement, seed=seed, options=PREEMPTIVE[policy])


# --- on paper --------------------------------------------------------------------------------------------------------


def starts(rows: list[dict], nodes: dict, *, policy: str = "fifo", placement: str = "best_fit") -> dict[str, tuple]:
    """Start [s] and nodes of every job; the others are told by their reason."""
    jobs = make_jobs([{"submit_time": START, "duration_s": 10.0} | row for row in rows])
    table = replay(jobs, cluster=Cluster(pl.DataFrame(nodes)), policy=policy, placement=placement).schedule
    return {
        row["job_id"]: (row["start_s"], *row["nodes"]) if row["reason"] is None else row["reason"]
        for row in table.iter_rows(named=True)
    }


TWO = {"node_id": ["a", "b"], "num_gpus": [4, 2], "num_cpus": [8.0, 4.0], "mem_gib": [32.0, None]}


def test_cpus_make_a_job_wait_although_gpus_are_free():
    rows = [
        {"job_id": "1", "num_gpus": 1.0, "num_cpus": 7.0},
        {"job_id": "2", "num_gpus": 1.0, "num_cpus": 5.0},
        {"job_id": "3", "num_gpus": 1.0, "num_cpus": 4.0},
    ]
    # 1 only fits on a; 2 would need 5 CPUs there; 3 waits behind it in strict order and starts on b with it.
    assert starts(rows, TWO) == {"1": (0.0, "a"), "2": (10.0, "a"), "3": (10.0, "b")}
    assert starts(rows, TWO, policy="fifo_skip")["3"] == (0.0, "b")


def test_too_many_cpus_for_a_node_make_a_job_wide_and_too_many_for_all_unrunnable():
    wide = {"num_gpus": 6.0, "num_cpus": 12.0}
    rows = [{"job_id": "1"} | wide, {"job_id": "2", "is_single_node": True} | wide]
    assert starts(rows, TWO) == {"1": (0.0, "a", "b"), "2": "exceeds_capacity"}
    # 6 GPUs with 18 CPUs: 12 of them would go to a, which has 8.
    assert starts([{"job_id": "1", "num_gpus": 6.0, "num_cpus": 18.0}], TWO) == {"1": "exceeds_capacity"}


def test_easy_keeps_the_heads_cpus():
    """1 holds 6 of 8 CPUs until 10; 2 needs 8 then. 3 ends in time with the 2 that are left; 4 would not."""
    one = {"node_id": ["a"], "num_gpus": [8], "num_cpus": [8.0]}
    rows = [
        {"job_id": "1", "num_gpus": 1.0, "num_cpus": 6.0},
        {"job_id": "2", "num_gpus": 1.0, "num_cpus": 8.0},
        {"job_id": "3", "num_gpus": 1.0, "num_cpus": 1.0, "duration_s": 9.0},
        {"job_id": "4", "num_gpus": 1.0, "num_cpus": 1.0, "duration_s": 11.0},
        {"job_id": "5", "num_gpus": 1.0, "num_cpus": 0.0, "duration_s": 99.0},
    ]
    found = starts(rows, one, policy="easy")
    assert found == {"1": (0.0, "a"), "2": (10.0, "a"), "3": (0.0, "a"), "4": (20.0, "a"), "5": (0.0, "a")}


def test_spread_and_packed():
    rows = [{"job_id": str(i), "num_gpus": 1.0} for i in range(3)]
    nodes = {"node_id": ["a", "b"], "num_gpus": [2, 2]}
    assert [on for _, on in starts(rows, nodes, placement="worst_fit").values()] == ["a", "b", "a"]
    assert [on for _, on in starts(rows, nodes, placement="best_fit").values()] == ["a", "a", "b"]


def test_what_is_given_back_can_be_taken_again():
    """CPUs and memory of 500 jobs in turns: none is lost."""
    rows = [{"job_id": str(i), "num_gpus": 3.0, "num_cpus": 7.0, "mem_gib": 31.9} for i in range(500)]
    found = starts(rows, {name: values[:1] for name, values in TWO.items()})
    assert [start for start, _ in found.values()] == [10.0 * i for i in range(500)]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_nobody_is_placed_where_nobody_is_known(placement: str):
    jobs = make_jobs([{"job_id": "1", "submit_time": START, "num_gpus": 1.0, "duration_s": None}])
    table = replay(jobs, cluster=Cluster(pl.DataFrame(TWO)), placement=placement).schedule
    assert table["reason"].to_list() == ["unknown_duration"]
