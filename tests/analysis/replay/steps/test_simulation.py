"""The simulation by hand: what it shows, what may be done, and what it refuses."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given

from analysis.errors import UnknownNameError, UsageError
from analysis.replay import Cluster, replay
from analysis.replay.policies.rules import Costs
from analysis.replay.steps import Simulation
from tests.analysis.replay.steps.test_own_policies import ONE, line
from tests.analysis.replay.test_node_events import cluster_with
from tests.analysis.replay.test_pitfalls import ask
from tests.jobs import make_jobs
from tests.replay_cases import PREDICTED, Case, cases, crowd, few

FOUR = Cluster.uniform(num_nodes=2, num_gpus=2)


def ids(sim: Simulation, rows: np.ndarray) -> str:
    return "".join(sim.job_ids[row] for row in rows)


def test_time_and_jobs():
    """Four GPUs on two nodes; a, b and c at 0, d at 2."""
    sim = Simulation(line((0, 2, 10), (0, 3, 5), (0, 1, 2), (2, 1, 4)), cluster=FOUR)
    assert sim.advance()
    assert (sim.now_s, ids(sim, sim.waiting.row), len(sim.running)) == (0, "abc", 0)
    a, b, c = sim.waiting
    assert sim.free_gpus == {None: 4.0}
    assert sim.start(a)
    assert not sim.can_start(b)
    assert not sim.start(b)
    assert sim.start(c)
    assert sim.free_gpus_in(0) == 1.0
    assert sim.nodes_of(a) != sim.nodes_of(c)
    assert sim.nodes_of(b) == []
    assert (ids(sim, sim.waiting.row), ids(sim, sim.running.row), ids(sim, sim.started)) == ("b", "ac", "ac")
    assert sim.advance()
    assert (sim.now_s, ids(sim, sim.ended), ids(sim, sim.waiting.row)) == (2, "c", "bd")
    assert sim.waiting.waited_s.tolist() == [2, 0]
    assert sim.running.elapsed_s.tolist() == [2]
    assert sim.running.attained_gpu_s.tolist() == [4]
    assert sim.start_in_order(sim.waiting.row, blocks=True) == 0
    assert sim.start_in_order(sim.waiting.row, blocks=False) == 1
    assert [sim.now_s for _ in range(2) if sim.advance()] == [6, 10]
    assert sim.start(b)
    assert sim.has_more_to_come
    assert sim.advance()
    assert not sim.advance()
    assert not sim.advance()
    assert sim.is_over
    assert not sim.has_more_to_come
    assert sim.result().schedule["end_s"].to_list() == [10, 15, 2, 6]


def test_stopping_costs_what_it_costs():
    """a runs 0-4 (1 s of it writing its checkpoint), waits until 7, starts for 2 s, works its other 7 s until 16."""
    sim = Simulation(line((0, 1, 10), (3, 1, 3)), cluster=ONE, costs=Costs(1.0, 2.0, 3.5))
    sim.advance()
    sim.start(0)
    sim.advance()
    assert not sim.can_stop(0)
    with pytest.raises(
        UsageError, match=r"job 'a' cannot be stopped at 3000000 us: it started at 0 us and its minimum"
    ):
        sim.stop(0)
    sim.set_timer(4_000_000)
    sim.advance()
    assert sim.now_s == 4
    assert sim.can_stop(0)
    sim.stop(0)
    assert sim.start(1)
    assert sim.waiting.remaining_s.tolist() == [7]
    assert sim.waiting.num_preemptions.tolist() == [1]
    assert sim.waiting.has_run.tolist() == [True]
    sim.advance()
    assert sim.now_s == 7
    assert sim.start(0)
    assert sim.running.attained_s.tolist() == [4]
    while sim.advance():
        pass
    schedule = sim.result("ours").schedule
    assert schedule["end_s"].to_list() == [16, 7]
    assert schedule["wasted_gpu_s"].to_list() == [3, 0]
    assert sim.result().job_metrics()["run_s"].to_list() == [13, 3]


def test_a_node_that_fails_takes_its_free_gpus_and_its_jobs_along():
    """Of two nodes of 2 GPUs n0 fails at 4 under a, is back at 6, and is drained from 8 on; c comes at 7."""
    outages = [("n0", 4, 6, "failure"), ("n0", 8, 20, "drain")]
    jobs = make_jobs([ask("a", 2, 10), ask("b", 1, 7), ask("c", 2, 3, at=7)])
    cluster = cluster_with(2, 2, outages=outages)
    sim = Simulation(jobs, cluster=cluster, checkpoint_interval_s=3.0, events=True)
    sim.advance()
    assert (sim.start(0), sim.start(1), sim.nodes_of(0), sim.free_gpus) == (True, True, ["n0"], {None: 1.0})
    sim.advance()
    assert (sim.now_s, ids(sim, sim.waiting.row), ids(sim, sim.running.row), sim.touched) == (4, "a", "b", [0])
    assert (sim.free_gpus_in(0), sim.can_start(0), sim.has_more_to_come) == (1.0, False, True)
    waiting = sim.waiting
    assert (waiting.num_restarts.tolist(), waiting.num_preemptions.tolist()) == ([1], [0])
    assert (waiting.attained_s.tolist(), waiting.remaining_s.tolist(), waiting.done_s.tolist()) == ([4], [7], [3])
    sim.advance()
    assert (sim.now_s, sim.free_gpus, sim.can_start(0)) == (6, {None: 3.0}, True)
    sim.advance()
    assert (sim.now_s, ids(sim, sim.ended), ids(sim, sim.waiting.row)) == (7, "b", "ac")
    assert (sim.start(2), sim.nodes_of(2)) == (True, ["n0"])
    sim.advance()  # c may end on the node that is drained
    assert (sim.now_s, sim.free_gpus, ids(sim, sim.running.row)) == (8, {None: 2.0}, "c")
    assert (sim.start(0), sim.nodes_of(0)) == (True, ["n1"])
    while sim.advance():
        pass
    result = sim.result()
    assert result.schedule.select("start_s", "end_s", "num_restarts", "wasted_gpu_s").rows() == [
        (0, 15, 1, 2),
        (0, 7, 0, 0),
        (7, 10, 0, 0),
    ]
    told = result.events().select("time_s", "event", "job_id").rows()
    assert [row for row in told if row[1] != "submitted"] == [
        *((0, "started", "a"), (0, "started", "b"), (4, "killed", "a"), (7, "ended", "b")),
        *((7, "started", "c"), (8, "started", "a"), (10, "ended", "c"), (15, "ended", "a")),
    ]


def test_starting_and_stopping_over_and_over_at_one_instant():
    """More starts than there are jobs: the list of those keeps within its bounds, the count goes on."""
    sim = Simulation(line((0, 1, 5)), cluster=ONE)
    sim.advance()
    for _ in range(100):
        assert sim.start(0)
        sim.stop(0)
    assert (sim.num_started, sim.started.tolist()) == (100, [0])
    assert sim.start(0)
    while sim.advance():
        pass
    assert sim.result().schedule.select("end_s", "num_preemptions").rows() == [(5, 100)]


def test_half_way_results():
    """a has ended, b runs, c was stopped, d waits, e has not come, f never can run."""
    jobs = line((0, 1, 1), (0, 1, 9), (0, 1, 9), (0, 1, 9), (5, 1, 1), (0, 9, 1))
    sim = Simulation(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=3))
    sim.advance()
    assert sim.start_in_order(sim.waiting.row, blocks=True) == 3
    sim.advance()
    sim.stop(2)
    schedule = sim.result().schedule.sort("job_id")
    assert schedule["state"].to_list() == ["finished", *["unfinished"] * 4, "rejected"]
    assert schedule["start_s"].to_list() == [0, 0, 0, None, None, None]
    assert schedule["end_s"].to_list() == [1, None, None, None, None, None]
    assert sim.result().metrics()["num_unfinished"] == 4


def test_what_is_refused():
    sim = Simulation(line((0, 1, 5), (1, 1, 5)), cluster=ONE)
    sim.advance()
    with pytest.raises(UsageError, match="cannot start job 'b': it has not been submitted; expected one that waits"):
        sim.start(1)
    with pytest.raises(UsageError, match="cannot stop job 'a': it waits; expected one that runs"):
        sim.stop(0)
    sim.start(0)
    with pytest.raises(UsageError, match="cannot start job 'a': it runs"):
        sim.start_in_order(np.array([0]), blocks=True)
    with pytest.raises(UsageError, match="a timer was set for 0 us; it is 0 us now"):
        sim.set_timer(0)
    while sim.advance():
        pass
    with pytest.raises(UsageError, match="cannot start job 'a': it has ended"):
        sim.start(0)
    with pytest.raises(UnknownNameError, match="consolidate"):
        Simulation(line((0, 1, 5)), cluster=ONE, placement="x")
    with pytest.raises(UsageError, match="does not know its cluster"):
        Simulation.of(sim.prepared).result()


def test_outcomes_are_hidden():
    """A scheduler sees predictions, not what the log knows of the end."""
    jobs = line((0, 1, 5), (1, 1, 7), user=["a", None], status=["failed"] * 2).with_columns(p=pl.lit(3.0))
    sim = Simulation(jobs, cluster=ONE, predicted="p")
    sim.advance()
    assert sim.waiting.predicted_s.tolist() == [3]
    assert sim.waiting["user"].tolist() == ["a"]
    for name in ("duration_s", "status", "end_time", "typo"):
        with pytest.raises(UnknownNameError, match="user"):
            _ = sim.waiting[name]
    assert sim.view([1, 0])["user"].tolist() == ["a", None]


@few
@given(case=cases(min_jobs=5, has_fractions=True))
def test_free_gpus_are_what_nobody_holds(case: Case):
    """At every instant, with shares of devices, VCs and jobs that are stopped."""
    sim = Simulation(case.jobs, cluster=case.cluster)
    total = sum(sim.free_gpus.values())
    rng = np.random.default_rng(case.jobs.height)
    stopped = 0
    while sim.advance():
        for row in sim.running:
            if stopped < 20 and rng.random() < 0.3:
                sim.stop(row)
                stopped += 1
        sim.start_in_order(sim.waiting.row, blocks=False)
        held = float(sim.running.num_gpus.sum())
        assert sum(sim.free_gpus.values()) == pytest.approx(total - held, abs=1e-9)
        assert sum(sim.free_gpus_in(v) for v in range(sim.num_vcs)) == pytest.approx(total - held, abs=1e-9)
    assert (sim.result().schedule["state"] != "unfinished").all()
    assert sum(sim.free_gpus.values()) == total


@pytest.mark.parametrize("until_fits", [False, True])
def test_jobs_in_order_are_first_come_first_served(until_fits: bool):  # noqa: FBT001 - a parameter of the test
    """In any number of calls; instants at which nobody fits may be left out."""
    for seed in range(1, 21, 2):
        jobs, cluster = crowd(seed)
        sim = Simulation(jobs, cluster=cluster, predicted=PREDICTED)
        while sim.advance(until_fits=until_fits):
            for vc in sim.touched:
                for row in sim.waiting_in(vc):
                    sim.start(row)
        expected = replay(jobs, cluster=cluster, predicted=PREDICTED, policy="fifo_skip")
        assert sim.result().schedule.equals(expected.schedule)
        assert sim.result().counts == expected.counts
