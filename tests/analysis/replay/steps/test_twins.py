"""Built-in policies written anew in Python, on nodes that come and go: the same schedules and logs, to the byte."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import HindcastError
from analysis.replay import PLACEMENTS, POLICIES, ReplayResult, replay
from analysis.replay.policies import PythonKey, PythonScheduler
from analysis.replay.policies.rules import Costs
from tests.analysis.replay.steps.test_own_policies import PYTHON, SRTF, own, undescribed
from tests.analysis.replay.test_node_events import at, cluster_with
from tests.analysis.replay.test_pitfalls import ask
from tests.jobs import make_jobs
from tests.replay_cases import PREDICTED, START, Case, cases, crowd, hypothesis_settings, trouble
from tests.replay_checks import faults_at_events, schedule_bytes

INTERVALS = (None, 1.0, 2.5, 0.3)


def by_hand(sim: Any, blocks: bool) -> Callable[[int], None]:  # noqa: FBT001 - the engine's call
    """First come, first served, job by job."""

    def act(vc: int) -> None:
        for row in sim.waiting_in(vc):
            if not sim.start(row) and blocks:
                return

    return act


FIFO = PythonScheduler(by_hand)
every_twin = pytest.mark.parametrize(
    ("name", "rule"),
    [
        pytest.param(f"{name}{skip}", rule, id=f"{name}{skip}{how}")
        for name, rule, how in [*((name, rule, "") for name, rule in PYTHON.items()), ("fifo", FIFO, "_by_hand")]
        for skip in ("", "_skip")
    ],
)


def log_bytes(result: ReplayResult) -> bytes:
    buffer = io.BytesIO()
    result.events().write_ipc(buffer)
    return buffer.getvalue()


def both(case: Case, name: str, rule: Any, **how: Any) -> tuple[ReplayResult, ReplayResult]:
    """The built-in policy, and its twin."""
    chosen = POLICIES[name].using(**how.pop("options", {}))
    how = {"cluster": case.cluster, "events": True} | how
    return (
        replay(case.jobs, policy=chosen, **how),
        replay(case.jobs, policy=own(rule, POLICIES[name].trait), **how),
    )


def assert_same(built_in: ReplayResult, ours: ReplayResult) -> None:
    assert schedule_bytes(ours) == schedule_bytes(built_in)
    assert log_bytes(ours) == log_bytes(built_in)
    assert ours.jobs.equals(built_in.jobs)
    assert ours.counts == built_in.counts
    assert ours.stopped_time == built_in.stopped_time
    assert ours.metrics() | {"policy": None} == built_in.metrics() | {"policy": None}


@every_twin
@hypothesis_settings(5)
@given(
    case=st.one_of(cases(), cases(has_fractions=True)), seed=st.integers(0, 999), cut=st.sampled_from([None, 0, 3, 9.5])
)
def test_small_scenarios(name: str, rule: Any, case: Case, seed: int, cut: float | None):
    how = {"checkpoint_interval_s": INTERVALS[seed % 4], "predicted": PREDICTED if seed % 3 else None}
    assert_same(*both(trouble(case, seed), name, rule, until=at(cut), use_vcs=bool(seed % 5), **how))


@every_twin
def test_long_queues(name: str, rule: Any):
    kills = 0
    for seed in range(int(os.environ.get("HINDCAST_EXAMPLES", 4))):
        until = START + timedelta(seconds=10 + seed) if seed % 4 == 1 else None
        how = {"checkpoint_interval_s": INTERVALS[seed % 4], "predicted": PREDICTED, "until": until}
        how["placement"] = ["consolidate", *PLACEMENTS][seed % (len(PLACEMENTS) + 1)]
        built_in, ours = both(trouble(crowd(seed), seed), name, rule, seed=seed, **how)
        assert_same(built_in, ours)
        kills += built_in.schedule["num_restarts"].sum()
    assert kills > 5


def calm(result: ReplayResult) -> pl.DataFrame:
    """The event log, those that end, are killed or stopped together in the order of their ids."""
    together = ["ended", "killed", "preempted"]
    log = result.events().with_columns(pl.struct("time", "event").rle_id().alias("run"))
    return log.sort("run", pl.when(pl.col("event").is_in(together)).then("job_id"), maintain_order=True).drop("run")


@pytest.mark.parametrize("costs", [Costs(), Costs(0.5, 1.0)], ids=["free", "costly"])
@pytest.mark.parametrize("name", ["srtf", "srtf_skip"])
def test_shortest_remaining_time_with_preemption(name: str, costs: Costs):
    """Who is stopped, who is killed, what both cost; but the order of those who are stopped together may differ."""
    rule = PythonKey(SRTF.function, running=SRTF.running, costs=costs)
    options = {"checkpoint_overhead_s": costs.checkpoint_overhead_s, "restart_cost_s": costs.restart_cost_s}
    stops = kills = 0
    for seed in range(int(os.environ.get("HINDCAST_EXAMPLES", 6))):
        case = trouble(undescribed(crowd(seed)), seed)
        until = START + timedelta(seconds=15 + seed) if seed % 4 == 1 else None
        how = {"checkpoint_interval_s": INTERVALS[seed % 4], "predicted": PREDICTED, "until": until, "options": options}
        built_in, ours = both(case, name, rule, **how)
        assert schedule_bytes(ours) == schedule_bytes(built_in), seed
        assert ours.jobs.equals(built_in.jobs)
        assert ours.counts == built_in.counts
        assert calm(ours).equals(calm(built_in)), seed
        stops += built_in.schedule["num_preemptions"].sum()
        kills += built_in.schedule["num_restarts"].sum()
    assert stops > 10
    assert kills > 5


def test_a_log_is_written_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """To a file, in as many pieces as there are instants: the same rows."""
    from analysis.replay import _drive, _tape

    case = trouble(crowd(3), 3)
    whole, _ = both(case, "fifo_skip", FIFO)
    monkeypatch.setattr(_tape, "LENGTH", 1)
    monkeypatch.setattr(_drive, "FIRST_BUDGET", 1)
    for rule in (FIFO, PYTHON["fifo"]):
        _, ours = both(case, "fifo_skip", rule, events=tmp_path / "events.parquet")
        assert log_bytes(ours) == log_bytes(whole)
    assert pl.read_parquet(tmp_path / "events.parquet").height == whole.events().height


# --- by hand ---------------------------------------------------------------------------------------------------------


def told(result: ReplayResult) -> list[tuple[float, str, str]]:
    return result.events().filter(pl.col("event") != "submitted").select("time_s", "event", "job_id").rows()


def test_a_guest_is_stopped_for_the_owner_and_killed_with_its_host():
    """a borrows n1 at 0; b wants it at 10; a borrows it again at 15 and loses it, and 3 s of work, at 18."""
    cluster = cluster_with(1, 1, vc=["a", "b"], outages=[("n1", 18, 30, "failure")])
    rows = [ask("a0", 1, 100, vc="a"), ask("a1", 1, 50, vc="a"), ask("b0", 1, 5, at=10, vc="b")]
    result = replay(make_jobs(rows), cluster=cluster, policy="lending", events=True)
    assert told(result) == [
        (0, "started", "a0"),
        (0, "started", "a1"),
        (10, "preempted", "a1"),
        (10, "started", "b0"),
        (15, "ended", "b0"),
        (15, "started", "a1"),
        (18, "killed", "a1"),
        (30, "started", "a1"),
        (70, "ended", "a1"),
        (100, "ended", "a0"),
    ]
    row = result.schedule.row(1, named=True)
    assert (row["num_preemptions"], row["num_restarts"], row["wasted_gpu_s"]) == (1, 1, 3)


def test_leases_go_on_when_the_node_is_back():
    """Leases of 10 s. At 20 both wait: a's rho is (20 + 20) / (30 x 2), b's (20 + 10) / (10 x 2), and b comes first."""
    cluster = cluster_with(1, outages=[("n0", 15, 20, "failure")])
    chosen = POLICIES["themis"].using(lease_s=10.0)
    result = replay(make_jobs([ask("a", 1, 30), ask("b", 1, 10)]), cluster=cluster, policy=chosen, events=True)
    assert told(result) == [
        (0, "started", "a"),
        (10, "preempted", "a"),
        (10, "started", "b"),
        (15, "killed", "b"),
        (20, "started", "b"),
        (30, "ended", "b"),
        (30, "started", "a"),
        (50, "ended", "a"),
    ]


def test_use_of_a_killed_job_counts():
    """x used 8 s before its node failed, y 5 s: z of y's user comes before x, which it lost."""
    cluster = cluster_with(1, 1, outages=[("n0", 8, 20, "failure"), ("n1", 5, 20, "failure")])
    rows = [
        ask("x", 1, 9, user="u"),
        ask("y", 1, 5, user="v"),
        ask("w", 1, 4, at=9, user="u"),
        ask("z", 1, 4, at=9, user="v"),
    ]
    result = replay(make_jobs(rows), cluster=cluster, policy="fair_share")
    assert result.schedule["start_s"].to_list() == [0, 0, 24, 20]
    assert result.schedule["end_s"].to_list() == [29, 5, 28, 24]


def test_a_spread_job_works_slower_and_keeps_what_it_saved():
    """Twice as long over two nodes. At 6 it has done 3 s of 10, 2 are saved; the rest takes 16 s, or 8 on one node."""
    rows = [ask("a", 4, 10)]
    for size, end in ((2, 26), (4, 18)):
        outages = [("n0", 6, 10, "failure"), ("n1", 6, 10, "failure")]
        cluster = cluster_with(2, 2, size, outages=outages, available_from=[None, None, at(10 if size == 4 else 99)])
        chosen = POLICIES["topology"].using(slowdown_cluster=2.0)
        result = replay(make_jobs(rows), cluster=cluster, policy=chosen, checkpoint_interval_s=2)
        assert result.schedule["end_s"].to_list() == [end]
        assert result.schedule["wasted_gpu_s"].to_list() == [4 * 2]


def test_a_job_does_not_insist_on_a_node_that_is_out():
    """Four would fit on n0, which is gone: n1 and n2 at once; and n0 again when it is back."""
    cluster = cluster_with(4, 2, 2, outages=[("n0", 0, 20, "failure")])
    result = replay(
        make_jobs([ask("a", 4, 5), ask("b", 2, 30, at=15), ask("c", 4, 5, at=21)]), cluster=cluster, policy="topology"
    )
    assert result.schedule["nodes"].to_list() == [["n1", "n2"], ["n1"], ["n0"]]
    assert result.schedule["start_s"].to_list() == [0, 15, 21]


@pytest.mark.parametrize("policy", ["themis", "slo_lease", "topology", "topology_skip", "lending", "fair_share"])
def test_who_waits_for_a_node_that_is_gone_for_good_is_unfinished(policy: str):
    """No timer keeps the replay going."""
    cluster = cluster_with(1, 1, outages=[("n1", 3, None, "absence")])
    result = replay(
        make_jobs([ask("a", 1, 5), ask("w", 2, 5, at=1), ask("v", 2, 5, at=9)]), cluster=cluster, policy=policy
    )
    assert result.schedule["state"].to_list() == ["finished", "unfinished", "unfinished"]
    assert result.counts["max_queue_length"] == 2


def test_a_scheduler_that_asks_again_and_again_for_a_node_that_is_gone():
    def begin(sim: Any, _blocks: bool) -> Callable[[int], None]:  # noqa: FBT001 - the engine's call
        def act(vc: int) -> None:
            for row in sim.waiting_in(vc):
                if not sim.start(row):
                    sim.set_timer(sim.now_us + 1_000_000)

        return act

    cluster = cluster_with(1, 1, outages=[("n1", 3, None, "failure")])
    jobs = make_jobs([ask("a", 1, 5), ask("w", 2, 5, at=1)])
    result = replay(jobs, cluster=cluster, policy=own(PythonScheduler(begin)))
    assert result.schedule["state"].to_list() == ["finished", "unfinished"]
    idle = own(PythonScheduler(lambda _sim, _blocks: lambda _vc: None))
    with pytest.raises(HindcastError, match="1 jobs were never started"):
        replay(make_jobs([ask("a", 1, 5)]), cluster=cluster, policy=idle)


# --- at every event --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["lending", "lending_skip", "themis", "slo_lease", "topology_skip"])
def test_gpus_are_conserved_where_everything_happens(policy: str):
    options = {
        "lending": {"min_run_s": 1.0, "restart_cost_s": 0.5},
        "lending_skip": {},
        "themis": {"lease_s": 4.0, "restart_cost_s": 0.5},
        "slo_lease": {"lease_s": 3.0},
        "topology_skip": {"relax_after_s": 2.0, "slowdown_cluster": 1.5},
    }[policy]
    stops = kills = 0
    for seed in (4, 8, 10, 16):
        case = trouble(crowd(seed, num_jobs=40), seed)
        chosen = POLICIES[policy].using(**options)
        result = replay(
            case.jobs, cluster=case.cluster, policy=chosen, predicted=PREDICTED, events=True, checkpoint_interval_s=1
        )
        assert faults_at_events(result, case.jobs) == []
        events = result.events()["event"]
        assert (events == "killed").sum() == result.schedule["num_restarts"].sum()
        assert (events == "preempted").sum() == result.schedule["num_preemptions"].sum()
        assert (events == "started").sum() == result.metrics()["num_starts"]
        kills += (events == "killed").sum()
        stops += (events == "preempted").sum()
    assert kills > 2
    assert stops > 2 or not POLICIES[policy].preempts
