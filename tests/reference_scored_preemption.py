"""Preemption in the plain-Python reference engine under scored placements."""

from __future__ import annotations

from dataclasses import dataclass

from tests.reference_placement import Grant
from tests.reference_preemption import PreemptiveEngine
from tests.reference_scored import Held, ScoredEngine
from tests.reference_scores import settle


@dataclass
class ScoredPreemptiveEngine(ScoredEngine, PreemptiveEngine):
    """Both, where CPUs and memory must be there for a victim that gets its GPUs back, too."""

    def take(self, vc: str | None, grant: Grant, *, sign: int = 1) -> None:
        """Victims are let go and taken back on trial: that starts nobody."""
        starts = self.sites[vc].rule.starts
        super().take(vc, grant, sign=sign)
        self.sites[vc].rule.starts = starts

    def begin(self, vc: str | None, j: int, grant: Grant, now: int) -> None:
        super().begin(vc, j, grant, now)
        self.sites[vc].rule.starts += 1

    def again(self, grant: Grant) -> Grant | None:
        """The same devices of fractions, as many whole GPUs on the same nodes, and what goes with them."""
        found = super().again(grant)
        if found is None:
            return None
        held = Held(grant.want)
        held.extend(found)
        trial = {n: self.rooms.machines[n].copy() for n, _, _ in held}
        for n, d, milli in held:
            settle(trial[n], held.want, [(d, milli)])
        short = any((m.cpu or 0) < 0 or (m.mem or 0) < 0 for m in trial.values())
        return None if short else held
