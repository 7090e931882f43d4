"""Fair share, Themis, leases: closed forms and cases worked out on paper."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

from analysis.errors import UsageError
from analysis.replay import POLICIES, Cluster, ReplayResult, replay
from analysis.replay._prepare import prepare
from analysis.replay.steps import Simulation
from tests.analysis.replay.steps.test_own_policies import ONE, line, starts

DAY_S = 86_400.0


def endless(users: str, *, each: int, seconds: float = 100.0, gpus: float = 1) -> pl.DataFrame:
    """A queue that never runs dry: all of it is there from the start, the first user's jobs first."""
    return line(*[(0, gpus, seconds)] * (each * len(users)), user=[user for user in users for _ in range(each)])


def use_until(result: ReplayResult, jobs: pl.DataFrame, until_s: float) -> dict[str, float]:
    """GPU-seconds of every user until an instant."""
    held = (pl.col("end_s").clip(upper_bound=until_s) - pl.col("start_s")).clip(lower_bound=0.0) * pl.col("num_gpus")
    table = result.schedule.join(jobs.select("job_id", "user", "num_gpus"), on="job_id")
    return dict(table.group_by("user").agg(held.sum()).iter_rows())


# --- fair share ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("half_life_s", [math.inf, 7 * DAY_S, 500.0])
@pytest.mark.parametrize("policy", ["fair_share", "fair_share_skip"])
def test_equal_shares_get_equal_gpu_time(policy: str, half_life_s: float):
    jobs = endless("ab", each=13)
    chosen = POLICIES[policy].using(half_life_s=half_life_s)
    result = replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=4), policy=chosen)
    used = use_until(result, jobs, 500.0)
    assert used["a"] + used["b"] == 4 * 500.0
    assert abs(used["a"] - used["b"]) <= 400.0  # four jobs start at once before anybody has used anything
    assert used == {"a": 1200.0, "b": 800.0}


@pytest.mark.parametrize(("shares", "expected"), [({"a": 3.0}, 3.0), ({"a": 3.0, "b": 2.0}, 1.5), ({"b": 4.0}, 0.25)])
def test_gpu_time_is_in_proportion_to_shares(shares: dict[str, float], expected: float):
    jobs = endless("ab", each=200, seconds=10.0)
    chosen = POLICIES["fair_share"].using(half_life_s=math.inf, shares=shares)
    used = use_until(replay(jobs, cluster=ONE, policy=chosen), jobs, 1500.0)
    assert used["a"] / used["b"] == pytest.approx(expected, rel=0.03)


def test_one_owner_is_first_come_first_served():
    jobs = line((0, 1, 5), (1, 1, 9), (1, 2, 3), (2, 1, 1), (4, 1, 8), user=["a"] * 5)
    cluster = Cluster.uniform(num_nodes=1, num_gpus=2)
    for skip in ("", "_skip"):
        for table in (jobs, jobs.drop("user")):
            ours = replay(table, cluster=cluster, policy=f"fair_share{skip}").schedule
            assert ours.equals(replay(table, cluster=cluster, policy=f"fifo{skip}").schedule)


def test_use_is_forgotten_by_half_each_half_life():
    """u GPUs held from 0 to d: at t > d it is u H / ln 2 (2^(-(t - d) / H) - 2^(-t / H))."""
    jobs = line((0, 3, 50), (0, 1, 400), (20, 0.5, 30), (130, 4, 1), user=["a", "b", "a", "c"])
    prepared = prepare(
        jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=8), predicted=None, use_vcs=True, columns=["user"]
    )
    half_life = 40.0
    sim = Simulation.of(prepared, owner=prepared.jobs["user"].to_list(), half_life_s=half_life)
    assert sim.owners == ["a", "b", "c"]

    def of(gpus: float, begin: float, end: float, now: float) -> float:
        end = min(end, now)
        return gpus * half_life / math.log(2) * (2 ** (-(now - end) / half_life) - 2 ** (-(now - begin) / half_life))

    seen = []
    while sim.advance():
        now = sim.now_s
        expected = [of(3, 0, 50, now) + (of(0.5, 20, 50, now) if now > 20 else 0), of(1, 0, 400, now)]
        assert sim.owner_use_gpu_s()[:2].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)
        seen.append(now)
        for row in sim.waiting:
            assert sim.start(row)
    assert seen == [0, 20, 50, 130, 131, 400]
    assert sim.owner_use_gpu_s()[1] == pytest.approx(half_life / math.log(2) * (1 - 2**-10), rel=1e-12)


def test_what_was_used_long_ago_counts_little():
    """a used the GPU for 100 s, b for 60 s later: who comes first at 300 s turns on the half-life."""
    jobs = line((0, 1, 100), (210, 1, 60), (250, 1, 30), (280, 1, 10), (280, 1, 10), user=["a", "b", "c", "b", "a"])
    result = {
        h: starts(replay(jobs, cluster=ONE, policy=POLICIES["fair_share"].using(half_life_s=h))) for h in (1e9, 30)
    }
    assert result[1e9] == [0, 210, 270, 300, 310]
    assert result[30] == [0, 210, 270, 310, 300]


def test_nonsense_is_refused():
    with pytest.raises(UsageError, match=r"shares \{'a': 0.0\}; expected user, account, vc, group, and shares above 0"):
        POLICIES["fair_share"].using(shares={"a": 0.0, "b": 1.0})
    with pytest.raises(UsageError, match="found by='colour'"):
        POLICIES["fair_share"].using(by="colour")
    with pytest.raises(UsageError, match="found a half-life of 0.0 s"):
        POLICIES["fair_share"].using(half_life_s=0.0)
    with pytest.raises(UsageError, match=r"found a lease of 3.0 s; expected more than a preemption costs, up to 4.0 s"):
        POLICIES["themis"].using(lease_s=3.0, restart_cost_s=4.0)


# --- Themis ----------------------------------------------------------------------------------------------------------


def ends(result: ReplayResult) -> list[Any]:
    return result.schedule["end_s"].to_list()


def test_the_worst_off_gets_the_gpu_for_a_lease():
    """One GPU, leases of 10 s; a (30 s) and b (10 s) come at 0, N = 2.

    At 0 both have rho = alone / (alone 2) = 1/2: a, by its id. At 10 a: (10 + 20) / 60 = 0.5; b: (10 + 10) / 20 = 1.
    b runs and ends at 20; a has 20 s left and ends at 40.
    """
    result = replay(line((0, 1, 30), (0, 1, 10)), cluster=ONE, policy=POLICIES["themis"].using(lease_s=10.0))
    assert starts(result) == [0, 10]
    assert ends(result) == [40, 20]
    assert result.schedule["num_preemptions"].to_list() == [1, 0]


def test_nobody_is_stopped_before_its_lease_ends():
    """b comes at 1 s with a rho that grows fast, and waits until a's lease ends at 10 s all the same."""
    result = replay(line((0, 1, 30), (1, 1, 2)), cluster=ONE, policy=POLICIES["themis"].using(lease_s=10.0))
    assert starts(result) == [0, 10]
    assert ends(result) == [32, 12]


def test_two_alike_share_the_gpu_by_leases():
    """Each finishes within a lease of twice the time that it would need alone: rho is about 1 for both."""
    result = replay(line((0, 1, 100), (0, 1, 100)), cluster=ONE, policy=POLICIES["themis"].using(lease_s=10.0))
    assert sorted(ends(result)) == [190, 200]
    assert result.schedule["num_preemptions"].sum() >= 17


def test_what_a_preemption_costs():
    """a holds 0-10, does 9 s of work, comes back at 14: 2 s to start, 21 s of work."""
    chosen = POLICIES["themis"].using(lease_s=10.0, checkpoint_overhead_s=1.0, restart_cost_s=2.0)
    result = replay(line((0, 1, 30), (0, 1, 4)), cluster=ONE, policy=chosen)
    assert ends(result) == [37, 14]
    assert result.schedule["wasted_gpu_s"].to_list() == [3, 0]


# --- leases for deadlines --------------------------------------------------------------------------------------------


def with_deadlines(jobs: pl.DataFrame, *seconds: float | None) -> pl.DataFrame:
    after = pl.duration(milliseconds=pl.Series([None if s is None else round(s * 1000) for s in seconds]))
    return jobs.with_columns(deadline_time=pl.datetime(2024, 1, 1, time_zone="UTC", time_unit="us") + after)


def test_whoever_can_meet_its_deadline_comes_first():
    """Leases of 10 s. a, without a deadline, gives way at 10 s to c (due 30 s), then b (due 50 s), then goes on."""
    jobs = with_deadlines(line((0, 1, 30), (2, 1, 20), (3, 1, 15)), None, 50.0, 30.0)
    result = replay(jobs, cluster=ONE, policy=POLICIES["slo_lease"].using(lease_s=10.0))
    assert starts(result) == [0, 25, 10]
    assert ends(result) == [65, 45, 25]


def test_whose_deadline_cannot_be_met_is_one_of_the_rest():
    """b needs 20 s and is due at 12 s: it shares the GPU with a by leases, least time held first."""
    jobs = with_deadlines(line((0, 1, 20), (0, 1, 20)), None, 12.0)
    result = replay(jobs, cluster=ONE, policy=POLICIES["slo_lease"].using(lease_s=10.0))
    assert starts(result) == [0, 10]
    assert ends(result) == [30, 40]
