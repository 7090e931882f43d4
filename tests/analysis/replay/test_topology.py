"""Near GPUs first: hand-worked cases on two pods of two racks of two nodes of four GPUs, and an independent search."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from analysis.errors import UsageError
from analysis.replay import POLICIES, Cluster, replay
from analysis.replay.steps import Simulation
from tests.jobs import make_jobs
from tests.replay_cases import START
from tests.replay_checks import overcommitted, schedule_bytes

NODES = [str(i) for i in range(1, 9)]
RACKS = dict(zip(NODES, "aabbccdd", strict=True))
PODS = dict(zip(NODES, "xxxxyyyy", strict=True))


def building(**more: Any) -> Cluster:
    table = {"node_id": NODES, "num_gpus": [4] * 8, "rack": list(RACKS.values()), "pod": list(PODS.values())}
    return Cluster(pl.DataFrame(table | more))


def job(name: str, at: float, gpus: float, seconds: float, **more: Any) -> dict[str, Any]:
    times = {"submit_time": START + timedelta(seconds=at), "duration_s": float(seconds)}
    return {"job_id": name, "num_gpus": float(gpus)} | times | more


def run(rows: list[dict[str, Any]], policy: str = "topology", cluster: Cluster | None = None, **options: Any) -> Any:
    chosen = POLICIES[policy].using(**options)
    return replay(make_jobs(rows), cluster=cluster or building(), policy=chosen).schedule


def test_a_wide_job_takes_one_rack_then_one_pod():
    schedule = run([job("1", 0, 8, 10), job("2", 0, 12, 10), job("3", 0, 8, 10)])
    # 12 GPUs need a pod: that of rack a has 8 left, the other 16.
    assert schedule["nodes"].to_list() == [["1", "2"], ["5", "6", "7"], ["3", "4"]]
    assert schedule["start_s"].to_list() == [0, 0, 0]


def test_run_times_grow_with_the_spread():
    slow = {"slowdown_rack": 1.5, "slowdown_pod": 2.0, "slowdown_cluster": 3.0}
    schedule = run([job(str(i), 0, g, 10) for i, g in enumerate([4, 8, 12, 32])], **slow)
    assert schedule["end_s"].to_list() == [10, 15, 20, 50]


def test_the_rack_with_the_fewest_free_gpus_that_suffice():
    rows = [job("0", 0, 3, 100), job("1", 1, 4, 100), job("2", 2, 4, 100), job("3", 3, 5, 10)]
    nodes = run(rows)["nodes"].to_list()
    assert nodes[:3] == [["1"], ["2"], ["3"]]
    # Free now: rack a 1, b 4, c 8, d 8. Five fit in c and d.
    assert nodes[3] == ["5", "6"]


BUSY = [job(str(i), 0, 3, 1000) for i in range(1, 9)]


def test_consolidation_is_relaxed_step_by_step():
    """One GPU is free on every node: two fit in a rack, four in a pod, eight in the cluster.

    Two and four would fit on an empty node, eight in an empty rack.
    """
    for gpus, steps in ((2, 1), (4, 2), (8, 2)):
        start = run([*BUSY, job("91", 0, gpus, 10)], relax_after_s=30)["start_s"].to_list()[-1]
        assert start == 30 * steps
    assert run([*BUSY, job("91", 0, 2, 10)], relax_after_s=0)["start_s"].to_list()[-1] == 0
    assert run([*BUSY, job("91", 0, 2, 10)])["start_s"].to_list()[-1] == 1000


def test_a_job_for_a_single_node_is_never_spread():
    rows = [*BUSY, job("91", 0, 2, 10, is_single_node=True)]
    assert run(rows, relax_after_s=30)["start_s"].to_list()[-1] == 1000


def test_the_head_blocks_or_is_passed_over():
    rows = [*BUSY, job("91", 0, 2, 10), job("92", 1, 1, 10)]
    assert run(rows, "topology", relax_after_s=40)["start_s"].to_list()[-2:] == [40, 40]
    assert run(rows, "topology_skip", relax_after_s=40)["start_s"].to_list()[-2:] == [40, 1]


def test_nodes_that_do_not_say_their_rack_are_alone():
    cluster = Cluster(pl.DataFrame({"node_id": NODES, "num_gpus": [4] * 8}))
    slow = {"slowdown_rack": 2.0, "slowdown_pod": 3.0, "slowdown_cluster": 4.0}
    assert run([job("91", 0, 8, 10)], cluster=cluster, **slow)["end_s"].to_list() == [40]


def test_impossible_options_are_told_all_at_once():
    with pytest.raises(UsageError, match="slowdown_rack is 0.5; relax_after_s is -1"):
        POLICIES["topology"].using(slowdown_rack=0.5, relax_after_s=-1)


@pytest.mark.parametrize("order", ["edf", "multifactor"])
@pytest.mark.parametrize("policy", ["topology", "lending_skip"])
def test_an_order_may_read_columns_that_are_not_there(policy: str, order: str):
    rows = [job("1", 0, 4, 10), job("2", 1, 4, 10)]
    assert run(rows, policy, order=order)["start_s"].to_list() == [0, 1]


def test_a_start_that_fails_changes_nothing():
    sim = Simulation(make_jobs([job("1", 0, 4, 10), job("2", 0, 4, 10)]), cluster=building())
    sim.advance()
    node, all_four = np.array([0]), np.array([4])
    assert sim.start_on(0, node, all_four)
    assert not sim.start_on(1, node, all_four, slowdown=3.0)
    with pytest.raises(UsageError, match="runs"):
        sim.start_on(0, node, all_four, slowdown=3.0)
    assert sim.start(1)
    while sim.advance():
        pass
    assert sim.result().schedule["end_s"].to_list() == [10, 10]


def test_who_was_stopped_keeps_its_work():
    sim = Simulation(make_jobs([job("1", 0, 4, 10), job("2", 6, 1, 1)]), cluster=building())
    node, all_four = np.array([0]), np.array([4])
    assert sim.advance()
    assert sim.start_on(0, node, all_four)
    assert sim.advance()
    sim.stop(0)
    assert sim.start_on(0, node, all_four)
    assert sim.start(1)
    while sim.advance():
        pass
    assert sim.result().schedule["end_s"].to_list() == [10, 7]


@pytest.mark.parametrize(("nodes", "gpus"), [([0], [3]), ([0, 0], [2, 2]), ([0, 1], [4, 0])])
def test_gpus_that_do_not_add_up_are_refused(nodes: list[int], gpus: list[int]):
    sim = Simulation(make_jobs([job("1", 0, 4, 10)]), cluster=building())
    sim.advance()
    with pytest.raises(UsageError, match="asks for 4 GPUs"):
        sim.start_on(0, np.array(nodes), np.array(gpus))


def test_other_placements_are_refused_by_name():
    with pytest.raises(UsageError, match="consolidate"):
        replay(make_jobs([job("1", 0, 1, 1)]), cluster=building(), policy="topology", placement="fgd")


def test_racks_are_read_from_a_cluster_file(tmp_path: Any):
    file = tmp_path / "c.toml"
    file.write_text('[[nodes]]\ncount = 2\nnum_gpus = 4\nrack = "r1"\npod = "p"\n[[nodes]]\ncount = 1\nnum_gpus = 8\n')
    assert Cluster.from_toml(file).nodes.select("rack", "pod").rows() == [("r1", "p"), ("r1", "p"), (None, None)]


# --- against a search of all sets of nodes ---------------------------------------------------------------------------


def level_of(nodes: list[str]) -> int:
    if len(nodes) == 1:
        return 0
    return 1 if len({RACKS[n] for n in nodes}) == 1 else 2 if len({PODS[n] for n in nodes}) == 1 else 3


def tightest(free: dict[str, int], gpus: int) -> int | None:
    """Tightest level of all sets of nodes that have enough free GPUs."""
    with_some = [n for n in NODES if free[n]]
    sets = itertools.chain.from_iterable(itertools.combinations(with_some, k) for k in range(1, len(with_some) + 1))
    levels = [level_of(list(some)) for some in sets if sum(free[n] for n in some) >= gpus]
    return min(levels, default=None)


@pytest.mark.parametrize("policy", ["topology", "topology_skip"])
def test_nobody_is_spread_wider_than_needed(policy: str):
    rng = random.Random(1)
    rows = [
        job(str(i), rng.randint(0, 300), rng.choice([1, 2, 3, 4, 4, 6, 8, 12, 16]), rng.randint(5, 60))
        for i in range(80)
    ]
    jobs = make_jobs(rows)
    result = replay(jobs, cluster=building(), policy=POLICIES[policy].using(relax_after_s=0), events=False)
    assert overcommitted(result, jobs) == []
    asked = {row["job_id"]: int(row["num_gpus"]) for row in rows}
    done = result.schedule.select("job_id", "start_s", "end_s", "nodes").sort("start_s").rows()
    spread = 0
    for name, start, _, nodes in done:
        held = [(j, n) for j, s, e, n in done if s < start < e]
        alone = [j for j, s, _, _ in done if s == start] == [name]
        if alone and all(len(n) == 1 for _, n in held):
            free = dict.fromkeys(NODES, 4)
            for j, where in held:
                free[where[0]] -= asked[j]
            assert level_of(nodes) == tightest(free, asked[name])
            spread += len(nodes) > 1
    assert spread > 0


def test_row_order_is_irrelevant():
    rows = [job(str(i), i % 7, 1 + i % 9, 5 + i) for i in range(30)]
    chosen = POLICIES["topology_skip"].using(relax_after_s=3)
    first = replay(make_jobs(rows), cluster=building(), policy=chosen)
    second = replay(make_jobs(rows[::-1]), cluster=building(), policy=chosen)
    assert schedule_bytes(first) == schedule_bytes(second)
