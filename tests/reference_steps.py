"""The policies of the step-wise engine in the plain-Python reference engine: leases, and fair share by decayed use."""

from __future__ import annotations

import math
from typing import NamedTuple

from tests.reference_preemption import SAFE, US, PreemptiveEngine

STEPS = ("fair_share", "fair_share_skip", "themis", "slo_lease")
NO_DEADLINE = 2**62


class Held(NamedTuple):
    owner: str | None
    milli: int
    begin: int
    end: int


class StepsEngine(PreemptiveEngine):
    """Every key is worked out from the whole past."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.what, self.kind = self.kind, "slices"  # rounds are slices for whoever lends GPUs
        self.options.setdefault("quantum_s", self.options.get("lease_s", 1200.0))
        self.past: list[Held] = []
        self.gone: dict[str | None, list[tuple[int, int]]] = {vc: [] for vc in self.sites}
        self.kept_keys: dict[int, object] = {}  # of those who were stopped in this pass
        self.now = 0

    # --- keys ---

    def used(self, owner: str | None, now: int) -> float:
        """Decayed GPU-seconds of an owner."""
        half_life = self.options["half_life_s"] * US
        running = [
            Held(self.jobs[j].user, self.milli(j), self.states[j].begin, now)
            for jobs in self.runs_now.values()
            for j in jobs
        ]
        total = 0.0
        for run in [*self.past, *running]:
            if run.owner != owner:
                continue
            if math.isinf(half_life):
                total += run.milli * (run.end - run.begin)
                continue
            one = -math.expm1(-math.log(2) * (run.end - run.begin) / half_life) * half_life / math.log(2)
            total += run.milli * one * math.exp(-math.log(2) * (now - run.end) / half_life)
        return total / (1000 * US)

    def rho(self, j: int, now: int, elapsed: int) -> float:
        """Finish-time fairness."""
        vc, job, state = self.vc_of[j], self.jobs[j], self.states[j]
        here = [(self.jobs[i].submit, now) for i in self.waits[vc] | self.runs_now[vc]]
        shares = [max(end - max(begin, job.submit), 0) for begin, end in [*self.gone[vc], *here]]
        age, alone = now - job.submit, max(job.predicted, 1)
        mean = sum(shares) / age if age else float(len(here))
        left = max(alone - (job.duration - state.left) - elapsed, 0)
        return (age + left) / (alone * mean)

    def key(self, j: int, now: int, elapsed: int) -> object:
        job, state = self.jobs[j], self.states[j]
        if self.what == "use":
            shares = self.options["shares"] or {}
            return round(self.used(job.user, now) / shares.get(job.user, 1.0) * 1e6)
        if self.what == "rho":
            return -self.rho(j, now, elapsed)
        left = max(job.predicted - (job.duration - state.left) - elapsed, 0)
        deadline = NO_DEADLINE if job.deadline is None else job.deadline
        is_late = job.deadline is None or now + left > deadline
        return (is_late, state.held + elapsed if is_late else deadline)

    def waiting_key(self, j: int) -> object:
        return self.kept_keys[j] if j in self.kept_keys else self.key(j, self.now, 0)

    def running_key(self, j: int, now: int) -> object:
        vc, begin = self.vc_of[j], self.states[j].begin
        since = now - self.slice_from[vc]
        is_over = (
            self.what != "use" and begin < now and since > 0 and since % round(self.options["quantum_s"] * US) == 0
        )
        if is_over:
            return self.key(j, now, now - begin)
        return (False, SAFE) if self.what == "deadlines" else SAFE

    # --- the loop ---

    def pass_over(self, vc: str | None, now: int) -> None:
        self.now = now
        self.kept_keys.clear()
        super().pass_over(vc, now)

    def stop(self, vc: str | None, j: int, now: int) -> None:
        self.kept_keys[j] = self.running_key(j, now)
        super().stop(vc, j, now)

    def kill(self, vc: str | None, j: int, now: int) -> None:
        self.past.append(Held(self.jobs[j].user, self.milli(j), self.states[j].begin, now))
        super().kill(vc, j, now)

    def end(self, vc: str | None, j: int, now: int) -> None:
        self.past.append(Held(self.jobs[j].user, self.milli(j), self.states[j].begin, now))
        self.gone[vc].append((self.jobs[j].submit, now))
        super().end(vc, j, now)
