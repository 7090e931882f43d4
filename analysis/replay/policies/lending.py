"""VCs that lend each other what they do not use. They run on the step-wise engine.

A VC's jobs run on its own nodes first. Who finds no room there may *borrow*: run on the nodes of another VC, as it asks
at home, where the most GPUs are free (ties by the VC's name). A borrower gives way as soon as a job of the owner finds
no room: those that started last are stopped first, by the rules of ``policies.moving`` (checkpoints, restarts, minimum
run time; who turns out not to be in the way goes on), wait at home, and may borrow again. So lending delays no owner by
more than a borrower's minimum run time.

At one instant every VC in which somebody waits, in the order of names, starts what fits at home, stopping borrowers;
then those who still wait borrow, in the policy's order over all VCs; both again until nobody starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from analysis.replay.policies.orders import OPTIONAL, static_order
from analysis.replay.policies.own import PythonScheduler
from analysis.replay.policies.registry import policy
from analysis.replay.policies.rules import Costs, SecondsBySize

if TYPE_CHECKING:
    from analysis.replay._bits import I64
    from analysis.replay.steps import Simulation

__all__ = ["lending", "lending_skip"]

US = 1_000_000


class _Loans:
    """Who runs where it is a guest, and the passes of an instant."""

    def __init__(self, sim: Simulation, rank: I64, *, blocks: bool) -> None:
        self.sim, self.rank, self.blocks = sim, rank, blocks
        self.guests: list[list[int]] = [[] for _ in range(sim.num_vcs)]
        self.min_run = round(sim.costs.min_run_s * US)

    def act(self, vc: int) -> None:
        """Pass over all VCs, once at every instant: what comes free in one may be lent to any other."""
        if vc != self.sim.touched[0]:
            return
        for host, guests in enumerate(self.guests):
            self.guests[host] = [row for row in guests if self.sim.is_running(row)]
        while True:
            for home in range(self.sim.num_vcs):
                self.start_at_home(home)
            if not self.borrow():
                return

    def start_at_home(self, home: int) -> None:
        """Start what fits on a VC's own nodes, in place of guests if need be."""
        waiting = self.sim.waiting_in(home)
        if len(waiting) == 0:
            return
        keys, guests = self.rank[waiting.row], self.guests[home]
        if not guests:
            self.sim.start_by_key(home, keys, blocks=self.blocks)
            return
        self.sim.start_over(home, keys, np.array(guests[::-1], dtype=np.int64), blocks=self.blocks)
        self.guests[home] = [row for row in guests if self.sim.is_running(row)]

    def borrow(self) -> bool:
        """Start on other VCs' nodes who finds no room at home; tell whether anybody did."""
        free = [self.sim.free_gpus_in(vc) for vc in range(self.sim.num_vcs)]
        if max(free) == 0:
            return False
        has_started = False
        for row in self.heads():
            home = int(self.sim.vc[row])
            hosts = sorted((vc for vc in range(len(free)) if vc != home and free[vc] > 0), key=lambda vc: -free[vc])
            host = next((vc for vc in hosts if self.sim.start_in(row, vc)), None)
            if host is not None:
                has_started = True
                free[host] = self.sim.free_gpus_in(host)
                self.guests[host].append(row)
                if self.min_run:
                    self.sim.set_timer(self.sim.now_us + self.min_run)
        return has_started

    def heads(self) -> list[int]:
        """Jobs that may borrow: the first of every VC, or of all jobs of a VC that ask for the same."""
        waiting = self.sim.waiting
        rows = waiting.row[np.argsort(self.rank[waiting.row], kind="stable")]
        asks = self.sim.vc[rows] if self.blocks else self.sim.prepared.job_class[rows]
        return rows[np.sort(np.unique(asks, return_index=True)[1])].tolist()  # type: ignore[no-any-return]


def _lend(order: str, costs: Costs) -> PythonScheduler:
    chosen = static_order(order)

    def begin(sim: Simulation, blocks: bool) -> Callable[[int], None]:  # noqa: FBT001 - the engine's call
        from analysis.replay._order import job_ranks

        return _Loans(sim, job_ranks(chosen, sim.prepared)[0], blocks=blocks).act

    return PythonScheduler(begin, preempts=True, costs=costs, needs=chosen.needs, leaves_vc=True)


@policy(trait="strict", optional=OPTIONAL)
def lending(
    *,
    order: str = "fifo",
    checkpoint_overhead_s: SecondsBySize = 0.0,
    restart_cost_s: SecondsBySize = 0.0,
    min_run_s: float = 0.0,
) -> PythonScheduler:
    """Virtual clusters lend idle GPUs and take them back; in each the first job blocks those behind it.

    See ``policies.lending``. Where the cluster is not divided this is the order by itself.

    Parameters
    ----------
    order : str, default "fifo"
        Name of a strict policy, by whose order jobs start.
    checkpoint_overhead_s, restart_cost_s, min_run_s
        See ``Costs``.

    Returns
    -------
    PythonScheduler
    """
    return _lend(order, Costs(checkpoint_overhead_s, restart_cost_s, min_run_s))


@policy(trait="skip", optional=OPTIONAL)
def lending_skip(
    *,
    order: str = "fifo",
    checkpoint_overhead_s: SecondsBySize = 0.0,
    restart_cost_s: SecondsBySize = 0.0,
    min_run_s: float = 0.0,
) -> PythonScheduler:
    """Virtual clusters lend idle GPUs and take them back; what does not fit is passed over.

    As ``lending``.

    Parameters
    ----------
    order, checkpoint_overhead_s, restart_cost_s, min_run_s
        As of ``lending``.

    Returns
    -------
    PythonScheduler
    """
    return _lend(order, Costs(checkpoint_overhead_s, restart_cost_s, min_run_s))
