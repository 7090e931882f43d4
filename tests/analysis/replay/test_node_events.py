"""Nodes that come, go, are drained and fail: cases worked out by hand, and the reference engine over random ones."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import UsageError
from analysis.replay import POLICIES, Cluster, ReplayResult, replay
from analysis.replay.allocation import allocation
from tests.analysis.replay.test_agreement import options_of
from tests.analysis.replay.test_pitfalls import ask, column, every_policy
from tests.jobs import make_jobs
from tests.replay_cases import (
    PREDICTED,
    START,
    Case,
    assert_agreement,
    cases,
    crowd,
    engine_of,
    hypothesis_settings,
    trouble,
)
from tests.replay_checks import faults_at_events

#: Policies that the reference engine does not know; see ``test_lending`` and ``test_topology``.
APART = ("lending", "lending_skip", "topology", "topology_skip")
every_told = pytest.mark.parametrize("policy", [name for name in POLICIES if name not in APART])
PREEMPTIVE = [name for name in POLICIES if POLICIES[name].preempts]


def at(seconds: float | None) -> Any:
    return None if seconds is None else START + timedelta(seconds=seconds)


def cluster_with(*sizes: int, outages: list[tuple[str, float, float | None, str]] = (), **columns: Any) -> Cluster:
    """Nodes n0, n1 … and (node, down, up, kind) in seconds."""
    nodes = pl.DataFrame({"node_id": [f"n{i}" for i in range(len(sizes))], "num_gpus": sizes, **columns})
    rows = [{"node_id": n, "down": at(down), "up": at(up), "kind": kind} for n, down, up, kind in outages]
    return Cluster(nodes, outages=pl.DataFrame(rows)) if rows else Cluster(nodes)


def times(result: ReplayResult) -> dict[str, tuple[float, float]]:
    rows = result.schedule.select("job_id", "start_s", "end_s").iter_rows()
    return {job_id: (start, end) for job_id, start, end in rows}


# --- by hand ---------------------------------------------------------------------------------------------------------


@every_policy
def test_a_drained_node_lets_jobs_end_and_nobody_start(policy: str):
    """One character is a second, D = drained:   aaaaaaaaaaDDDDDbbb."""
    jobs = make_jobs([ask("a", 1, 10), ask("b", 1, 3, at=6)])
    result = replay(jobs, cluster=cluster_with(1, outages=[("n0", 5, 15, "drain")]), policy=policy)
    assert column(result, "end_s") == {"a": 10, "b": 18}
    assert column(result, "start_s") == {"a": 0, "b": 15}
    assert column(result, "num_restarts") == {"a": 0, "b": 0}
    assert result.metrics()["gpu_allocation"] == 13 / 18  # a drained node is there


@every_policy
def test_a_checkpoint_keeps_work(policy: str):
    """Every 2 s of work: 4 of the 5 s until the failure are kept, 6 are left at 15."""
    cluster = cluster_with(1, outages=[("n0", 5, 15, "failure")])
    result = replay(make_jobs([ask("a", 1, 10)]), cluster=cluster, policy=policy, checkpoint_interval_s=2)
    assert times(result) == {"a": (0, 21)}
    assert column(result, "wasted_gpu_s") == {"a": 1}
    assert result.job_metrics()["run_s"].to_list() == [11]
    row = result.metrics()
    assert (row["num_restarts"], row["num_preemptions"], row["num_starts"], row["num_finished"]) == (1, 0, 2, 1)
    assert row["gpu_allocation"] == 1.0  # 11 GPU-s in use of 21 less 10


@every_policy
def test_two_failures_and_checkpoints_that_do_not_meet_them(policy: str):
    """Interval 3, failures after 5 and then 4 s of run: keeps 3, then 6 of the 7 done; 4 are left."""
    outages = [("n0", 5, 6, "failure"), ("n0", 10, 12, "absence")]
    cluster = cluster_with(1, outages=outages)
    result = replay(make_jobs([ask("a", 1, 10)]), cluster=cluster, policy=policy, checkpoint_interval_s=3)
    assert times(result) == {"a": (0, 16)}
    assert (column(result, "num_restarts"), column(result, "wasted_gpu_s")) == ({"a": 2}, {"a": 3})


@every_policy
def test_a_node_that_arrives_later(policy: str):
    """b fits only together with n1, which is there from 20 on."""
    cluster = cluster_with(2, 2, available_from=[None, at(20)])
    jobs = make_jobs([ask("a", 2, 5), ask("b", 4, 5, at=1)])
    result = replay(jobs, cluster=cluster, policy=policy)
    assert times(result) == {"a": (0, 5), "b": (20, 25)}
    assert result.metrics()["gpu_allocation"] == 30 / (2 * 25 + 2 * 5)


@every_policy
def test_a_node_that_leaves_for_good(policy: str):
    """What ran there starts again elsewhere; what needs both nodes is unfinished, not rejected."""
    cluster = cluster_with(1, 1, available_to=[at(4), None])
    jobs = make_jobs([ask("a", 1, 10), ask("wide", 2, 5, at=5), ask("huge", 3, 1, at=6)])
    result = replay(jobs, cluster=cluster, policy=policy)
    assert times(result) == {"a": (0, 14), "wide": (None, None), "huge": (None, None)}
    assert column(result, "nodes")["a"] == ["n1"]
    assert column(result, "state") == {"a": "finished", "wide": "unfinished", "huge": "rejected"}
    assert column(result, "reason") == {"a": None, "wide": None, "huge": "exceeds_capacity"}
    row = result.metrics()
    assert (row["num_unfinished"], row["num_rejected"], row["num_starts"]) == (1, 1, 2)


@every_policy
def test_a_gang_loses_all_when_one_node_fails(policy: str):
    """g runs on both nodes; s gets the one that is left until n1 is back, or waits behind g where the head blocks."""
    cluster = cluster_with(4, 4, outages=[("n1", 3, 20, "failure")])
    result = replay(make_jobs([ask("g", 8, 10), ask("s", 4, 2, at=3)]), cluster=cluster, policy=policy)
    assert times(result)["g"] == (0, 30)
    blocks = POLICIES[policy].trait == "strict"
    shorter_first = policy in {"sjf", "qssf", "smallest_first", "srtf"}
    assert times(result)["s"] == ((30, 32) if blocks and not shorter_first else (3, 5))
    assert column(result, "wasted_gpu_s")["g"] == 24


@every_policy
def test_shares_of_one_device_on_a_node_that_fails(policy: str):
    jobs = make_jobs([ask("a", 0.5, 10), ask("b", 0.5, 8, at=1), ask("c", 0.25, 3, at=2)])
    cluster = cluster_with(1, 1, outages=[("n0", 5, 30, "failure")])
    result = replay(jobs, cluster=cluster, policy=policy)
    assert times(result)["c"] == (2, 5)  # the end comes before the node event, on n1
    assert column(result, "nodes") == {"a": ["n1"], "b": ["n1"], "c": ["n1"]}
    assert times(result)["a"] == (0, 15)
    assert times(result)["b"] == (1, 13)
    assert column(result, "wasted_gpu_s") == {"a": 2.5, "b": 2.0, "c": 0}


def test_a_failure_during_the_restart_cost():
    """a is stopped at 4 with 6 left, restarts at 6 for 3 s and is killed in the midst of it: 6 are left still.

    One character is a second, R = restart, X = out:   aaaabbRRXXRRRaaaaaa
    """
    jobs = make_jobs([ask("a", 1, 10), ask("b", 1, 2, at=4)])
    cluster = cluster_with(1, outages=[("n0", 8, 10, "failure")])
    result = replay(jobs, cluster=cluster, policy=POLICIES["srtf"].using(restart_cost_s=3.0))
    assert times(result) == {"a": (0, 19), "b": (4, 6)}
    assert column(result, "wasted_gpu_s") == {"a": 5, "b": 0}
    assert (column(result, "num_preemptions")["a"], column(result, "num_restarts")["a"]) == (1, 1)
    assert result.job_metrics()["run_s"].to_list() == [4 + 2 + 9, 2]


def test_a_preemption_is_a_checkpoint():
    """Killed at 8, after 2 s more: without a checkpoint of its own a goes on where b had stopped it, with 6 left."""
    jobs = make_jobs([ask("a", 1, 10), ask("b", 1, 2, at=4)])
    cluster = cluster_with(1, outages=[("n0", 8, 10, "failure")])
    assert times(replay(jobs, cluster=cluster, policy="srtf"))["a"] == (0, 16)
    assert times(replay(jobs, cluster=cluster, policy="srtf", checkpoint_interval_s=5))["a"] == (0, 15)


def test_overlapping_outages_are_one_while_any_lasts():
    outages = [("n0", 2, 6, "drain"), ("n0", 4, 10, "failure"), ("n0", 8, 9, "drain"), ("n0", 10, 12, "absence")]
    result = replay(make_jobs([ask("a", 1, 5)]), cluster=cluster_with(1, outages=outages))
    assert times(result) == {"a": (0, 17)}
    assert column(result, "num_restarts") == {"a": 1}


def test_the_order_at_one_instant_is_ends_nodes_arrivals_pass():
    """a ends as its node fails: nothing is lost. b arrives as the node comes back."""
    cluster = cluster_with(1, outages=[("n0", 5, 8, "failure")])
    result = replay(make_jobs([ask("a", 1, 5), ask("b", 1, 1, at=8)]), cluster=cluster)
    assert times(result) == {"a": (0, 5), "b": (8, 9)}
    assert column(result, "num_restarts") == {"a": 0, "b": 0}


def test_easy_reserves_nothing_for_a_head_that_has_no_nodes():
    """w needs n1, which is out until 10: long ones start meanwhile. Then it has a reservation, and nobody delays it."""
    cluster = cluster_with(2, 2, outages=[("n1", 0, 10, "failure")])
    jobs = make_jobs([ask("w", 4, 5), ask("x", 1, 20, at=1), ask("y", 1, 20, at=11), ask("z", 1, 5, at=12)])
    assert times(replay(jobs, cluster=cluster, policy="easy")) == {
        "w": (21, 26),
        "x": (1, 21),
        "y": (26, 46),
        "z": (12, 17),
    }


def test_conservative_promises_nothing_on_nodes_that_are_out():
    """b was promised n1 from 10 on; at 5 the node goes: b is planned behind a, and c, which came later, behind b."""
    cluster = cluster_with(1, 1, outages=[("n1", 5, 30, "failure")])
    rows = [ask("a", 1, 12), ask("x", 1, 10), ask("b", 1, 4, at=1), ask("c", 1, 4, at=2)]
    result = replay(make_jobs(rows), cluster=cluster, policy="conservative")
    # x is planned anew where it was submitted: before b and c.
    assert times(result) == {"a": (0, 12), "x": (0, 22), "b": (22, 26), "c": (26, 30)}


def test_work_on_a_faster_type_is_kept_in_the_logs_time():
    """Twice as fast: 5 s of run are 10 of work; of these 8 are saved, and 12 are left for 6 s."""
    nodes = pl.DataFrame({"node_id": ["n0"], "num_gpus": [1], "gpu_type": ["A"]})
    outages = pl.DataFrame({"node_id": ["n0"], "down": [at(5)], "up": [at(10)]})
    cluster = Cluster(nodes, speed={"A": 2.0, "V100": 1.0}, outages=outages)
    jobs = make_jobs([ask("a", 1, 20, gpu_type="V100")])
    for policy in ("fifo", "srtf", "conservative"):
        result = replay(jobs, cluster=cluster, policy=policy, checkpoint_interval_s=4)
        assert times(result) == {"a": (0, 16)}
        assert column(result, "wasted_gpu_s") == {"a": 1}


def test_a_checkpoint_interval_is_seconds():
    with pytest.raises(UsageError, match="checkpoint_interval_s is 0; expected seconds"):
        replay(make_jobs([ask("a", 1, 10)]), cluster=cluster_with(1), checkpoint_interval_s=0)


def test_the_event_log_tells_kills():
    cluster = cluster_with(1, outages=[("n0", 5, 15, "failure")])
    result = replay(make_jobs([ask("a", 1, 10), ask("b", 1, 1, at=5)]), cluster=cluster, events=True)
    assert result.events().select("time_s", "event", "job_id", "nodes").rows() == [
        (0, "submitted", "a", None),
        (0, "started", "a", ["n0"]),
        (5, "killed", "a", ["n0"]),
        (5, "submitted", "b", None),
        (15, "started", "a", ["n0"]),
        (25, "ended", "a", ["n0"]),
        (25, "started", "b", ["n0"]),
        (26, "ended", "b", ["n0"]),
    ]
    assert allocation(result).select("time_s", "num_running", "num_waiting").rows() == [
        *((0, 1, 0), (5, 0, 2), (15, 1, 1), (25, 1, 0), (26, 0, 0))
    ]


@every_policy
def test_a_replay_that_is_cut_while_a_job_waits_for_its_node(policy: str):
    """At 12 a has done 5 s and lost them; it waits."""
    cluster = cluster_with(1, outages=[("n0", 5, 15, "failure")])
    result = replay(make_jobs([ask("a", 1, 10)]), cluster=cluster, policy=policy, until=at(12))
    assert (column(result, "state"), times(result)) == ({"a": "unfinished"}, {"a": (0, None)})
    assert result.jobs["run_s"].to_list() == [5]
    assert result.metrics()["num_starts"] == 1
    running = replay(make_jobs([ask("a", 1, 10)]), cluster=cluster, policy=policy, until=at(18))
    assert (times(running), running.jobs["run_s"].to_list()) == ({"a": (0, None)}, [8])
    assert (running.metrics()["num_starts"], column(running, "nodes")) == (2, {"a": ["n0"]})


# --- against the reference engine ------------------------------------------------------------------------------------


@pytest.mark.parametrize("predicted", [None, PREDICTED], ids=["true", "predicted"])
@every_told
@hypothesis_settings(6)
@given(case=st.one_of(cases(), cases(has_fractions=True)), seed=st.integers(0, 999))
def test_small_scenarios(policy: str, predicted: str | None, case: Case, seed: int):
    interval_s = [None, 1.0, 2.5, 0.3][seed % 4]
    assert_agreement(trouble(case, seed), policy=policy, predicted=predicted, interval_s=interval_s)


@every_policy
def test_at_every_event_no_gpu_is_held_twice_or_on_a_node_that_is_out(policy: str):
    kills = 0
    for seed in (5, 10):
        case = trouble(crowd(seed, num_jobs=40), seed)
        result = replay(case.jobs, cluster=case.cluster, policy=policy, events=True)
        assert faults_at_events(result, case.jobs) == []
        events = result.events()["event"]
        assert (events == "killed").sum() == result.schedule["num_restarts"].sum()
        assert (events == "started").sum() == result.metrics()["num_starts"]
        kills += (events == "killed").sum()
    assert kills > 0


@every_told
def test_long_queues(policy: str):
    """Also how often each job was killed, and the GPU time that this cost it."""
    kills = 0
    for seed in range(int(os.environ.get("HINDCAST_EXAMPLES", 3))):
        case = trouble(crowd(seed), seed)
        told = {"policy": policy, "interval_s": [None, 1.0, 2.5][seed % 3]}
        if policy in PREEMPTIVE:
            told["options"] = options_of(policy, seed)
        assert_agreement(case, predicted=PREDICTED if seed % 4 < 3 else None, **told)
        kills += sum(run.kills for run in engine_of(case, **told).runs.values())
    assert kills > 2
