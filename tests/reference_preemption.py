"""Preemption in the plain-Python reference engine: every key is worked out anew whenever somebody asks for it."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.reference_engine import Engine, Outcome, Run
from tests.reference_events import kept
from tests.reference_placement import GPU, Grant

US = 1_000_000
SAFE = -(10**18)
Seconds = float | tuple[tuple[float, float], ...]


class Moves(NamedTuple):
    trait: str
    kind: str  # what the key is: "remaining", "levels", "slices"; in reference_steps "use", "rho", "deadlines"
    defaults: Mapping[str, Any] = MappingProxyType({})


MOVES: dict[str, Moves] = {
    "srtf": Moves("strict", "remaining"),
    "srtf_skip": Moves("skip", "remaining"),
    "las": Moves("strict", "levels", {"thresholds_gpu_s": (14_400.0,)}),
    "las_skip": Moves("skip", "levels", {"thresholds_gpu_s": (14_400.0,)}),
    "tiresias": Moves("skip", "levels", {"thresholds_gpu_s": (3_250.0, 7_200.0)}),
    "gittins": Moves("skip", "levels", {"thresholds_gpu_s": (3_250.0, 7_200.0), "service_gpu_s": None}),
    "time_slicing": Moves("skip", "slices", {"quantum_s": 60.0}),
    # The rest is told in reference_steps.
    "fair_share": Moves("strict", "use", {"half_life_s": 604_800.0, "shares": None}),
    "fair_share_skip": Moves("skip", "use", {"half_life_s": 604_800.0, "shares": None}),
    "themis": Moves("skip", "rho", {"lease_s": 1200.0}),
    "slo_lease": Moves("skip", "deadlines", {"lease_s": 1200.0}),
}


@dataclass
class State:
    """One job: what it has done and what it is doing."""

    left: int
    guess: int
    joined: int = 0
    held: int = 0
    wasted: int = 0
    stops: int = 0
    kills: int = 0
    first: int | None = None
    begin: int = 0
    end: int = 0
    gpu_type: str | None = None
    grant: Grant = field(default_factory=list)


def by_size(seconds: Seconds, milli: int) -> int:
    if not isinstance(seconds, tuple):
        return round(seconds * US)
    return round(next((value for most, value in seconds[:-1] if milli <= most * GPU), seconds[-1][1]) * US)


class PreemptiveEngine(Engine):
    """The rules of preemption as they are told."""

    def __post_init__(self) -> None:
        moves = MOVES[self.policy]
        self.options = {**moves.defaults, **self.options}
        self.kind = moves.kind
        super().__post_init__()
        self.trait = moves.trait
        self.states = [State(job.duration or 0, job.predicted or 0) for job in self.jobs]
        self.waits: dict[str | None, set[int]] = {vc: set() for vc in self.sites}
        self.runs_now: dict[str | None, set[int]] = {vc: set() for vc in self.sites}
        self.ticks: dict[str | None, int] = {}
        self.steps = [round(s * GPU * US) for s in self.options.get("thresholds_gpu_s", ())]
        self.order = self.gittins_order() if "service_gpu_s" in self.options else list(range(len(self.steps) + 1))
        self.slice_from: dict[str | None, int] = {}
        for j, ask in enumerate(self.asks):
            if ask is not None:
                self.slice_from.setdefault(self.vc_of[j], self.jobs[j].submit)

    def cost(self, name: str, j: int) -> int:
        return by_size(self.options.get(name, 0.0), self.milli(j))

    def milli(self, j: int) -> int:
        ask = self.asks[j]
        return ask.whole * GPU + ask.pieces * ask.milli

    def ratio(self, j: int) -> float:
        gpu_type = self.states[j].gpu_type
        if gpu_type is None:
            return 1.0
        return self.speeds.get(self.jobs[j].logged, 1.0) / self.speeds.get(gpu_type, 1.0)

    def gittins_order(self) -> list[int]:
        """Place of every level by falling index."""
        given = self.options["service_gpu_s"]
        if given is None:
            taking_part = [j for j, ask in enumerate(self.asks) if ask is not None]
            service = [Fraction(self.jobs[j].predicted * self.milli(j)) for j in taking_part]
        else:
            service = [Fraction(s * GPU * US) for s in given]
        index = []
        for low, high in zip([0, *self.steps], [*self.steps, None], strict=True):
            alive = [s for s in service if s > low]
            ends = [s for s in alive if high is None or s <= high]
            cost = sum((s if high is None else min(s, Fraction(high))) - low for s in alive)
            index.append(Fraction(len(ends)) / cost if alive else Fraction(0))
        ranked = sorted(range(len(index)), key=lambda k: (-index[k], k))
        return [ranked.index(k) for k in range(len(index))]

    # --- keys ---

    def place_of_level(self, j: int, held: int) -> int:
        return self.order[bisect.bisect_right(self.steps, self.milli(j) * held)]

    def waiting_key(self, j: int) -> int:
        state = self.states[j]
        if self.kind == "remaining":
            return state.guess
        return state.joined if self.kind == "slices" else self.place_of_level(j, state.held)

    def running_key(self, j: int, now: int) -> int:
        state = self.states[j]
        if self.kind == "slices":
            return 2 * now - state.begin if self.ticks.get(self.vc_of[j]) == now and state.begin < now else SAFE
        if now < state.begin + round(self.options.get("min_run_s", 0) * US):
            return SAFE
        if self.kind == "levels":
            return self.place_of_level(j, state.held + now - state.begin)
        ratio = self.ratio(j)
        left = state.guess if state.guess <= 0 or ratio >= 1 else round(state.guess * ratio)
        return state.begin + left - now

    def changes(self, j: int) -> list[int]:
        """Instants at which a running job's key may change."""
        state = self.states[j]
        found = [state.begin + round(self.options.get("min_run_s", 0) * US)]
        return found + [state.begin + -(-step // self.milli(j)) - state.held for step in self.steps]

    # --- the loop ---

    def replay(self) -> Outcome:
        coming = [j for j, ask in enumerate(self.asks) if ask is not None][::-1]
        now = -(10**18)
        while (
            coming or any(self.runs_now.values()) or (any(self.waits.values()) and self.calendar.after(now) is not None)
        ):
            running = [(vc, j) for vc, jobs in self.runs_now.items() for j in jobs]
            events = [(self.states[j].end, vc) for vc, j in running]
            events += [(at, vc) for vc, j in running for at in self.changes(j) if at > now]
            events += [(at, vc) for vc, at in self.ticks.items()]
            events += [(self.jobs[coming[-1]].submit, None)] if coming else []
            event = self.calendar.after(now)
            events += [(event, None)] if event is not None else []
            now = min(at for at, _ in events)
            touched = {
                vc for at, vc in events if at == now and vc in self.sites and not (vc is None and len(self.sites) > 1)
            }
            ended = {vc for vc, j in running if self.states[j].end == now}
            arrived = set()
            for vc, j in running:
                if self.states[j].end == now:
                    self.end(vc, j, now)
            ended |= self.node_events(now)
            while coming and self.jobs[coming[-1]].submit == now:
                j = coming.pop()
                self.states[j].joined = now
                self.waits[self.vc_of[j]].add(j)
                arrived.add(self.vc_of[j])
            for vc in touched | ended | arrived:
                self.pass_over(vc, now)
                if self.kind == "slices":
                    quantum = round(self.options["quantum_s"] * US)
                    self.ticks.pop(vc, None)
                    if self.waits[vc]:
                        since = self.slice_from[vc]
                        self.ticks[vc] = since + ((now - since) // quantum + 1) * quantum
            self.peak = max(self.peak, sum(map(len, self.waits.values())))
        return self.outcome()

    def grants(self, vc: str | None) -> Mapping[int, Grant]:
        return {j: self.states[j].grant for j in self.runs_now[vc]}

    def kill(self, vc: str | None, j: int, now: int) -> None:
        """Lost is all since the last checkpoint, its own or that of its last stop."""
        state = self.states[j]
        self.take(vc, state.grant, sign=-1)
        ran, work = now - state.begin, self.jobs[j].duration
        useful = max(0, ran - self.startup(j))
        done = min(int(useful / self.ratio(j)) if self.ratio(j) != 1 else useful, state.left)
        gain = kept(saved=work - state.left, done=done, interval=self.interval) - (work - state.left)
        state.left -= gain
        state.guess -= gain if self.kind == "remaining" else 0
        state.wasted += max(ran - (round(gain * self.ratio(j)) if self.ratio(j) != 1 else gain), 0)
        state.held += ran
        state.joined = self.jobs[j].submit
        state.kills += 1
        self.runs_now[vc].discard(j)
        self.waits[vc].add(j)

    def pass_over(self, vc: str | None, now: int) -> None:
        tried: set[int] = set()
        hopeless: set[int] = set()
        while True:
            left = [j for j in self.waits[vc] - tried if self.one_by_one or self.kinds[j] not in hopeless]
            if not left:
                return
            j = min(left, key=lambda j: (self.waiting_key(j), j))
            grant = self.find(j)
            if grant is not None:
                self.begin(vc, j, grant, now)
            elif not self.push_out(vc, j, now):
                if self.trait == "strict":
                    return
                tried.add(j)
                hopeless.add(self.kinds[j])

    def push_out(self, vc: str | None, j: int, now: int) -> bool:
        own = (self.waiting_key(j), j)
        behind = sorted(((self.running_key(v, now), v) for v in self.runs_now[vc]), reverse=True)
        gone: list[int] = []
        grant = None
        for key in behind:
            if key < own:
                break
            gone.append(key[1])
            self.take(vc, self.states[key[1]].grant, sign=-1)
            grant = self.find(j)
            if grant is not None:
                break
        if grant is None:
            for v in gone:
                self.take(vc, self.states[v].grant)
            return False
        self.begin(vc, j, grant, now)
        for v in reversed(gone):
            again = self.again(self.states[v].grant)
            if again is None:
                self.stop(vc, v, now)
            else:
                self.states[v].grant = again
                self.take(vc, again)
        return True

    def again(self, grant: Grant) -> Grant | None:
        """The same devices of fractions, as many whole GPUs on the same nodes."""
        rooms = {n: list(self.rooms[n]) for n, _, _ in grant}
        parts = [part for part in grant if part[2] < GPU]
        for n, d, milli in parts:
            rooms[n][d] -= milli
            if rooms[n][d] < 0:
                return None
        for n, count in Counter(n for n, _, milli in grant if milli == GPU).items():
            free = [d for d, room in enumerate(rooms[n]) if room == GPU]
            if len(free) < count:
                return None
            parts += [(n, d, GPU) for d in free[:count]]
        return parts

    # --- start, stop, end ---

    def startup(self, j: int) -> int:
        return self.cost("restart_cost_s", j) if self.states[j].stops + self.states[j].kills else 0

    def begin(self, vc: str | None, j: int, grant: Grant, now: int) -> None:
        state, job = self.states[j], self.jobs[j]
        self.take(vc, grant)
        self.waits[vc].discard(j)
        self.runs_now[vc].add(j)
        state.first = now if state.first is None else state.first
        state.begin, state.grant, state.gpu_type = now, grant, self.nodes[grant[0][0]].gpu_type
        state.end = now + self.startup(j) + self.run_time(state.left, job.logged, state.gpu_type)

    def stop(self, vc: str | None, j: int, now: int) -> None:
        """What it held has been taken already."""
        state = self.states[j]
        key = self.running_key(j, now)
        ran = now - state.begin
        useful = max(0, ran - self.startup(j) - self.cost("checkpoint_overhead_s", j))
        done = min(int(useful / self.ratio(j)) if self.ratio(j) != 1 else useful, state.left)
        state.left -= done
        state.wasted += ran - useful
        state.held += ran
        state.guess = max(state.guess - done, key) if self.kind == "remaining" else state.guess
        state.joined = now
        state.stops += 1
        self.runs_now[vc].discard(j)
        self.waits[vc].add(j)

    def end(self, vc: str | None, j: int, now: int) -> None:
        state = self.states[j]
        self.take(vc, state.grant, sign=-1)
        self.runs_now[vc].discard(j)
        state.wasted += self.startup(j)
        names = tuple(self.nodes[n].node_id for n in sorted({n for n, _, _ in state.grant}))
        wasted = state.wasted * self.milli(j)
        self.runs[self.jobs[j].job_id] = Run(state.first, now, names, state.gpu_type, state.stops, wasted, state.kills)
