"""What an episode has cost so far, exactly, whatever instants were passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from analysis.replay._jobs import US
from analysis.replay.steps._state import DONE, NEXT

if TYPE_CHECKING:
    from analysis.replay.steps.simulation import Simulation

__all__ = ["REWARDS", "Debt"]

#: What the rewards of an episode can sum up to.
REWARDS: Final = {
    "jct": "job completion times [s]",
    "wait": "waits until the first start [s]",
    "slowdown": "slowdowns: completion time over duration, that of at least 10 s",
}
FLOOR_US: Final = 10 * US


class Debt:
    """Sum over the jobs that were submitted, of the time since then until they left, or until now.

    For ``wait`` a job leaves at its start, else at its end; for ``slowdown`` its time is counted in its duration.
    """

    def __init__(self, sim: Simulation, kind: str) -> None:
        self.sim, self.kind = sim, kind
        self._submitted = [0, *np.cumsum(sim.prepared.submit).tolist()]
        self._last: float | int = 0
        self._weight = 1.0 / np.maximum(sim.work_us, FLOOR_US)

    def growth(self) -> float:
        """By how much it has grown since it was asked last [s, or slowdowns]."""
        before, self._last = self._last, self._now()
        grown = self._last - before
        return grown if self.kind == "slowdown" else grown / US

    def _now(self) -> float | int:
        sim = self.sim
        num, now = int(sim.kept.config[NEXT]), sim.now_us
        leaves = sim.log.start if self.kind == "wait" else sim.log.end
        has_left = sim.kept.status[:num] == DONE if self.kind != "wait" else sim.log.start[:num] >= 0
        left = np.where(has_left, leaves[:num], now)
        if self.kind == "slowdown":
            return float(((left - sim.prepared.submit[:num]) * self._weight[:num]).sum())
        return int(left.sum()) - int(self._submitted[num])
