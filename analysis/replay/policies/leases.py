"""Policies that lend GPUs for rounds of a fixed length. They run on the step-wise engine.

Leases end together, at whole multiples of their length after a VC's first submission, on all its nodes at once: jobs
are rigid gangs here, and a wide one could never gather GPUs that come free one by one. A job that starts in the middle
of a round has its GPUs until the round's end. Only then may a running job be stopped, by the rules of
``policies.moving``: for a waiting one that comes before it in the policy's order. In between, what comes free goes to
whoever waits, in that order, passing over what does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.errors import UsageError
from analysis.replay.policies.orders import NO_DEADLINE_US, TIME
from analysis.replay.policies.own import PythonScheduler
from analysis.replay.policies.registry import policy
from analysis.replay.policies.rules import Costs, SecondsBySize

if TYPE_CHECKING:
    import numpy.typing as npt

    from analysis.replay.steps import JobsView, Simulation

    Keys = npt.NDArray[Any]
    #: From a VC, its waiting and its running jobs to a key for each of them.
    KeysOf = Callable[[int, JobsView, JobsView], tuple[Keys, Keys]]

__all__ = ["slo_lease", "themis"]

LEASE_S = 1200.0
US = 1_000_000


class _Rounds:
    """Passes of a policy with leases: at a round's end everybody may be stopped, else nobody."""

    def __init__(self, sim: Simulation, keys_of: KeysOf, *, lease_s: float, blocks: bool) -> None:
        self.sim, self.keys_of, self.blocks = sim, keys_of, blocks
        self.lease = round(lease_s * US)
        self.first = np.zeros(sim.num_vcs, dtype=np.int64)
        self.first[sim.vc[::-1]] = sim.prepared.submit[::-1]
        self.tick = [-1] * sim.num_vcs

    def act(self, vc: int) -> None:
        """One pass over a VC."""
        sim = self.sim
        waiting, running = sim.waiting_in(vc), sim.running_in(vc)
        before, behind = self.keys_of(vc, waiting, running)
        if len(waiting) == 0:
            return
        since = sim.now_us - int(self.first[vc])
        if since == 0 or since % self.lease:
            behind = np.full(len(running), -math.inf)
        behind = np.where(running.elapsed_us > 0, behind, -math.inf)
        sim.start_by_keys(vc, before, behind, blocks=self.blocks)
        tick = sim.now_us - since % self.lease + self.lease
        # Where nobody runs there is nobody to be stopped: those who wait, wait for their nodes.
        if len(sim.waiting_in(vc)) and len(sim.running_in(vc)) and self.tick[vc] != tick:
            self.tick[vc] = tick
            sim.set_timer(tick)


def _check(lease_s: float, costs: Costs) -> None:
    if not max(costs.most_s, 1e-6) < lease_s < math.inf:
        msg = (
            f"leases: found a lease of {lease_s!r} s; expected more than a preemption costs, up to {costs.most_s!r} s: "
            "else nobody would ever get on."
        )
        raise UsageError(msg)


class _Rho:
    """Finish-time fairness of the jobs of every VC."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        #: Number of jobs in a VC, its integral over time [us], and until when.
        self.num, self.area, self.at = ([0] * sim.num_vcs for _ in range(3))
        #: The integral at a job's submission.
        self.joined = np.zeros(len(sim.vc), dtype=np.int64)

    def keys(self, vc: int, waiting: JobsView, running: JobsView) -> tuple[Keys, Keys]:
        """Key of every job: who is worst off comes first."""
        self.count(vc, len(waiting) + len(running))
        return -self.of(vc, waiting), -self.of(vc, running)

    def count(self, vc: int, num: int) -> None:
        """Go on to now, from when on ``num`` jobs are in a VC."""
        sim, now = self.sim, self.sim.now_us
        self.area[vc] += self.num[vc] * (now - self.at[vc])
        self.num[vc], self.at[vc] = num, now
        first, stop = np.searchsorted(sim.prepared.submit, [now, now + 1])
        come = first + np.flatnonzero(sim.vc[first:stop] == vc)
        self.joined[come] = self.area[vc]

    def of(self, vc: int, jobs: JobsView) -> Keys:
        """Finish time here over finish time with a share of the cluster."""
        age = self.sim.now_us - self.sim.prepared.submit[jobs.row]
        alone = np.maximum(self.sim.prepared.predicted_log[jobs.row], 1)
        shared = age + np.maximum(alone - jobs.done_us - jobs.elapsed_us, 0)
        mean = np.where(age > 0, (self.area[vc] - self.joined[jobs.row]) / np.maximum(age, 1), self.num[vc])
        return np.asarray(shared / (alone * mean))


@policy(trait="skip")
def themis(
    *, lease_s: float = LEASE_S, checkpoint_overhead_s: SecondsBySize = 0.0, restart_cost_s: SecondsBySize = 0.0
) -> PythonScheduler:
    """Themis' finish-time fairness: whoever is worst off gets GPUs first, for the length of a lease.

    A job's rho is T_shared / T_independent [1]_: the time from its submission to its finish if it gets its GPUs now and
    keeps them, over the time that it would need with one N-th of the cluster to itself. T_shared = age + predicted
    duration - work done (0 at least); T_independent = predicted duration x N, where N is the mean number of jobs in its
    VC, waiting or running, from its submission until now. The highest rho comes first. Running jobs are stopped at the
    ends of leases only, see ``policies.leases``.

    Built from the paper's idea, not compared with its code; that the rounds of a VC end together is ours.
    Left out of the paper: the auction. Every job is an app of one rigid gang; there are no bids for parts of what it
    asks for and no hidden payments, and all jobs see all that is free (the paper offers it to the worst-off
    fraction and lets placement decide among those). Rho does not know placement or speeds: predicted durations are
    those on the hardware of the log.

    Parameters
    ----------
    lease_s : float, default 1200
        Length of a lease. [s]
    checkpoint_overhead_s, restart_cost_s
        See ``Costs``.

    Returns
    -------
    PythonScheduler

    References
    ----------
    .. [1] K. Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020
       (https://www.usenix.org/conference/nsdi20/presentation/mahajan).
    """
    costs = Costs(checkpoint_overhead_s, restart_cost_s)
    _check(lease_s, costs)

    def begin(sim: Simulation, blocks: bool) -> Callable[[int], None]:  # noqa: FBT001 - the engine's call
        return _Rounds(sim, _Rho(sim).keys, lease_s=lease_s, blocks=blocks).act

    return PythonScheduler(begin, preempts=True, costs=costs)


class _Deadlines:
    """Jobs with deadlines before those without."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        jobs = sim.prepared.jobs
        self.deadline = np.full(len(sim.vc), NO_DEADLINE_US, dtype=np.int64)
        if "deadline_time" in jobs.columns:
            first = jobs["submit_time"].to_physical().min()
            deadline = jobs["deadline_time"].cast(TIME).to_physical()[sim.prepared.accepted] - first
            self.deadline = deadline.fill_null(NO_DEADLINE_US).to_numpy()

    def keys(self, vc: int, waiting: JobsView, running: JobsView) -> tuple[Keys, Keys]:
        """Places in the order."""
        del vc
        now, both = self.sim.now_us, (waiting, running)
        row = np.concatenate([jobs.row for jobs in both])
        left = self.sim.prepared.predicted_log[row] - np.concatenate([jobs.done_us + jobs.elapsed_us for jobs in both])
        attained = np.concatenate([jobs.attained_us for jobs in both])
        deadline = self.deadline[row]
        is_late = (deadline == NO_DEADLINE_US) | (now + np.maximum(left, 0) > deadline)
        order = np.lexsort((row, np.where(is_late, attained, deadline), is_late))
        place = np.empty(len(row))
        place[order] = np.arange(len(row))
        return place[: len(waiting)], place[len(waiting) :]


@policy(trait="skip", optional={"deadline_time": TIME})
def slo_lease(
    *, lease_s: float = LEASE_S, checkpoint_overhead_s: SecondsBySize = 0.0, restart_cost_s: SecondsBySize = 0.0
) -> PythonScheduler:
    """Leases for jobs with deadlines first, the rest in rounds for all others, after Chronus.

    At every instant the jobs that can still meet their deadline (``deadline_time``) if they had their GPUs from now on
    until their predicted end come first, by earliest deadline; then everybody else (no deadline, or not to be met any
    more), by the time that they have held GPUs so far, least first. Running jobs are stopped at the ends of leases
    only, see ``policies.leases``.

    Built from the paper's idea [1]_, not compared with its code; that all others go by the time held is ours. Left
    out: its admission control and its optimisation over all leases ahead (here earliest deadline first, which promises
    nothing), its placement, its profiler (predictions do that).

    Parameters
    ----------
    lease_s : float, default 1200
        Length of a lease. [s]
    checkpoint_overhead_s, restart_cost_s
        See ``Costs``.

    Returns
    -------
    PythonScheduler

    References
    ----------
    .. [1] W. Gao et al., "Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs", SoCC 2021,
       doi:10.1145/3472883.3486978.
    """
    costs = Costs(checkpoint_overhead_s, restart_cost_s)
    _check(lease_s, costs)

    def begin(sim: Simulation, blocks: bool) -> Callable[[int], None]:  # noqa: FBT001 - the engine's call
        return _Rounds(sim, _Deadlines(sim).keys, lease_s=lease_s, blocks=blocks).act

    needs = frozenset({"predicted_duration_s", "deadline_time"})
    return PythonScheduler(begin, preempts=True, costs=costs, needs=needs)
