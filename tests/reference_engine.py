"""A second replay engine in plain Python: slow, short, and written from the rules alone.

It shares no code with ``analysis.replay`` and none of its cleverness: devices are lists of free milli-GPUs, queues are
lists, every placement looks at every node. Tests hold the compiled engine against it, job by job.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.reference_events import Calendar, Outage, kept
from tests.reference_placement import GPU, Ask, Grant, Job, Node, Rooms, Site

__all__ = ["ORDERS", "Job", "Node", "Outcome", "Run", "reference_replay"]


class Run(NamedTuple):
    start: int
    end: int
    nodes: tuple[str, ...]
    gpu_type: str | None
    stops: int = 0
    wasted: int = 0  # milli-GPUs times microseconds
    kills: int = 0  # how often its node went under it


class Outcome(NamedTuple):
    runs: dict[str, Run]
    rejected: dict[str, str]
    peak: int  # most jobs waiting after a scheduling pass
    unfinished: tuple[str, ...] = ()


def in_order(ids: Sequence[str]) -> list[tuple[int, str]]:
    """Sort keys of ids: as integers if all are, else as text."""
    numeric = all(i.removeprefix("-").isdecimal() and i.isascii() and len(i) <= 18 for i in ids)
    return [(int(i) if numeric else 0, i) for i in ids]


NEVER = 10**18


def virtual_age(job: Job, _run: int, *, seconds_per_gpu: float = 3600.0, seconds_per_priority: float = 3600.0) -> int:
    """Slurm: GPUs and points of priority are worth so much age."""
    return job.submit - round(1e6 * (job.milli / GPU * seconds_per_gpu + (job.priority or 0) * seconds_per_priority))


#: Trait and key by policy: what a job's place in the order depends on, given its predicted run time.
ORDERS: dict[str, tuple[str, Callable[..., int]]] = {
    "fifo": ("strict", lambda _job, _run: 0),
    "sjf": ("strict", lambda _job, run: run),
    "qssf": ("strict", lambda job, run: run * job.milli),
    "fifo_skip": ("skip", lambda _job, _run: 0),
    "sjf_skip": ("skip", lambda _job, run: run),
    "qssf_skip": ("skip", lambda job, run: run * job.milli),
    "ljf": ("strict", lambda _job, run: -run),
    "ljf_skip": ("skip", lambda _job, run: -run),
    "smallest_first": ("strict", lambda job, _run: job.milli),
    "smallest_first_skip": ("skip", lambda job, _run: job.milli),
    "edf": ("strict", lambda job, _run: NEVER if job.deadline is None else job.deadline),
    "edf_skip": ("skip", lambda job, _run: NEVER if job.deadline is None else job.deadline),
    "multifactor": ("strict", virtual_age),
    "multifactor_skip": ("skip", virtual_age),
    "sjf_fastest": ("fastest", lambda _job, run: run),
    "qssf_fastest": ("fastest", lambda job, run: run * job.milli),
    "conservative": ("conservative", lambda _job, _run: 0),
    "easy": ("easy", lambda _job, _run: 0),
}


@dataclass
class Reservation:
    """What EASY keeps for the head of a queue during one pass."""

    shadow: int  # the earliest instant at which the head fits, by predicted ends
    later: Rooms  # what is free then, without the head
    grant: Grant  # what the head takes of it
    answers: dict[object, Grant | None] = field(default_factory=dict)
    hopeless: set[int] = field(default_factory=set)  # kinds of jobs that do not fit in this pass any more

    def same(self, question: object, answer: Callable[[], Grant | None]) -> Grant | None:
        """Equal jobs get equal answers until somebody starts; looked up again only then."""
        if question not in self.answers:
            self.answers[question] = answer()
        return self.answers[question]


@dataclass
class Engine:
    jobs: list[Job]  # by (submission, id): a job's number is its place here
    nodes: list[Node]  # by id
    policy: str
    speeds: Mapping[str, float]  # a type that is not here runs at 1.0
    same_type: Callable[[str, str], bool] = operator.eq
    options: Mapping[str, object] = field(default_factory=dict)
    one_by_one: bool = False  # skip policies: look at every waiting job, even where an equal one did not fit
    peak: int = 0
    runs: dict[str, Run] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    site_type: Callable[[Sequence[int], Sequence[Node]], Site] = Site
    outages: Sequence[Outage] = ()
    interval: int = 0  # work from checkpoint to checkpoint, 0 = none

    def __post_init__(self) -> None:
        if self.policy in ORDERS:
            self.trait, key = ORDERS[self.policy]
            self.key = functools.partial(key, **self.options)
        self.rooms: Rooms = [[GPU] * node.num_gpus for node in self.nodes]
        has_vcs = any(node.vc is not None for node in self.nodes)
        by_vc: dict[str | None, list[int]] = {}
        for n, node in enumerate(self.nodes):
            if node.num_gpus > 0:
                by_vc.setdefault(node.vc if has_vcs else None, []).append(n)
        self.sites = {vc: self.site_type(numbers, self.nodes) for vc, numbers in by_vc.items()}
        self.queues: dict[str | None, list[tuple[int, int]]] = {vc: [] for vc in self.sites}  # sorted: (key, job)
        self.lines: dict[str | None, dict[object, list[tuple[int, int]]]] = {vc: {} for vc in self.sites}
        self.site_of = [self.sites.get(job.vc if has_vcs else None) for job in self.jobs]
        self.vc_of = [job.vc if has_vcs else None for job in self.jobs]
        self.asks = [self.judge(j) for j in range(len(self.jobs))]
        numbers: dict[Ask | None, int] = {}
        self.kinds = [numbers.setdefault(ask, len(numbers)) for ask in self.asks]  # equal asks, one number
        self.ends: list[tuple[int, int]] = []
        self.running: dict[str | None, dict[int, tuple[int, Grant]]] = {vc: {} for vc in self.sites}
        self.calendar = Calendar(self.outages, self.nodes)
        self.out: set[int] = set()
        self.vc_of_node = {n: vc for vc, site in self.sites.items() for n in site.numbers}
        self.saved = [0] * len(self.jobs)  # work that a killed job need not do again
        self.kills, self.lost = [0] * len(self.jobs), [0] * len(self.jobs)
        self.first: dict[int, int] = {}  # first starts
        self.since: dict[int, int] = {}  # last starts

    def judge(self, j: int) -> Ask | None:
        """What a job asks for; None if it takes no part, and then why."""
        job, site = self.jobs[j], self.site_of[j]
        if job.milli == 0:  # no GPU job
            return None
        reason = "unknown_gpus" if job.milli is None else "unknown_duration" if job.duration is None else None
        if all(node.gpu_type is None for node in self.nodes):  # hardware that nobody described cannot be chosen
            job = job._replace(allowed=())
        ask = None if reason or site is None else site.ask(job, self.rooms, self.same_type)
        if ask is None:
            self.rejected[job.job_id] = reason or "exceeds_capacity"
        return ask

    def run_time(self, base: int, logged: str | None, gpu_type: str | None) -> int:
        """Microseconds on a type of what takes ``base`` on the type in the log."""
        if gpu_type is None:
            return base
        return round(base * (self.speeds.get(logged, 1.0) / self.speeds.get(gpu_type, 1.0)))

    def predicted_on(self, j: int, gpu_type: str | None) -> int:
        return self.run_time(max(self.jobs[j].predicted - self.saved[j], 0), self.jobs[j].logged, gpu_type)

    # --- nodes that come and go ---

    def seen(self, rooms: Rooms) -> Rooms:
        """What is free on the nodes that are there."""
        return [[0] * len(room) if n in self.out else room for n, room in enumerate(rooms)] if self.out else rooms

    def node_events(self, now: int) -> set[str | None]:
        """Let nodes go and come, and kill whoever runs where one fails; the VCs where something happened."""
        changed = {n for n in self.calendar.changed(now) if n in self.vc_of_node}
        self.out = self.calendar.out(now)
        struck = self.calendar.struck(now)
        for vc in self.sites if struck else ():
            for j in [j for j, grant in self.grants(vc).items() if struck & {n for n, _, _ in grant}]:
                self.kill(vc, j, now)
        return {self.vc_of_node[n] for n in changed}

    def grants(self, vc: str | None) -> Mapping[int, Grant]:
        return {j: grant for j, (_, grant) in self.running[vc].items()}

    def kill(self, vc: str | None, j: int, now: int) -> None:
        _, grant = self.running[vc].pop(j)
        self.ends = [(end, other) for end, other in self.ends if other != j]
        heapq.heapify(self.ends)
        self.lose(vc, j, grant, now)
        self.arrive(j)

    def lose(self, vc: str | None, j: int, grant: Grant, now: int) -> None:
        """Give back what a killed job held, and count what it did and lost."""
        job, gpu_type = self.jobs[j], self.nodes[grant[0][0]].gpu_type
        self.take(vc, grant, sign=-1)
        ran, before = now - self.since[j], self.saved[j]
        done = min(self.work_in(ran, job.logged, gpu_type), job.duration - before)
        self.saved[j] = kept(saved=before, done=done, interval=self.interval)
        self.lost[j] += max(ran - self.run_time(self.saved[j] - before, job.logged, gpu_type), 0)
        self.kills[j] += 1
        del self.runs[job.job_id]

    def work_in(self, ran: int, logged: str | None, gpu_type: str | None) -> int:
        """Work done in a time, rounded down."""
        ratio = 1.0 if gpu_type is None else self.speeds.get(logged, 1.0) / self.speeds.get(gpu_type, 1.0)
        return ran if ratio == 1 else int(ran / ratio)

    def note_run(self, j: int, now: int, end: int, grant: Grant) -> None:
        job, ask = self.jobs[j], self.asks[j]
        names = tuple(self.nodes[n].node_id for n in sorted({n for n, _, _ in grant}))
        assert job.job_id not in self.runs
        assert not self.out & {n for n, _, _ in grant}
        self.since[j] = now
        first = self.first.setdefault(j, now)
        wasted = self.lost[j] * (ask.whole * GPU + ask.pieces * ask.milli)
        gpu_type = self.nodes[grant[0][0]].gpu_type
        self.runs[job.job_id] = Run(first, end, names, gpu_type, 0, wasted, self.kills[j])

    def outcome(self) -> Outcome:
        left = [job.job_id for job, ask in zip(self.jobs, self.asks, strict=True) if ask is not None]
        return Outcome(self.runs, self.rejected, self.peak, tuple(i for i in left if i not in self.runs))

    # --- the loop ---

    def replay(self) -> Outcome:
        coming = [j for j, ask in enumerate(self.asks) if ask is not None][::-1]
        waiting, event, is_new = 0, self.calendar.after(-NEVER), True
        while coming or self.ends or (waiting and event is not None):
            times = ([self.ends[0][0]] if self.ends else []) + ([self.jobs[coming[-1]].submit] if coming else [])
            now = min(times + ([event] if event is not None else []))
            touched = self.end_all(now)
            if is_new or event == now:
                is_new = False
                before = sum(self.kills)
                touched |= self.node_events(now)
                waiting += sum(self.kills) - before
                event = self.calendar.after(now)
            while coming and self.jobs[coming[-1]].submit == now:
                touched.add(self.arrive(coming.pop()))
                waiting += 1
            while touched:  # jobs of length 0 end at once, and what they held is free again at the same instant
                waiting -= sum(self.schedule(vc, now) for vc in touched)
                self.peak = max(self.peak, waiting)
                touched = self.end_all(now)
        return self.outcome()

    def end_all(self, now: int) -> set[str | None]:
        touched = set()
        while self.ends and self.ends[0][0] == now:
            _, j = heapq.heappop(self.ends)
            vc = self.vc_of[j]
            _, grant = self.running[vc].pop(j)
            self.take(vc, grant, sign=-1)
            touched.add(vc)
        return touched

    def arrive(self, j: int) -> str | None:
        vc, place = self.vc_of[j], (self.key(self.jobs[j], self.jobs[j].predicted), j)
        if self.trait == "skip":
            line = j if self.one_by_one else self.asks[j]
            bisect.insort(self.lines[vc].setdefault(line, []), place)
        else:
            bisect.insort(self.queues[vc], place)
        return vc

    def take(self, vc: str | None, grant: Grant, *, sign: int = 1) -> None:
        for n, d, milli in grant:
            self.rooms[n][d] -= sign * milli
            self.sites[vc].free_milli -= sign * milli
            assert 0 <= self.rooms[n][d] <= GPU

    def find(self, j: int, types: Sequence[str | None] | None = None) -> Grant | None:
        """Where a job would go now."""
        site, ask = self.site_of[j], self.asks[j]
        if ask.whole * GPU + ask.pieces * ask.milli > site.free_milli:
            return None
        return site.place(self.seen(self.rooms), ask, types)

    def start(self, j: int, grant: Grant, now: int) -> None:
        job, vc = self.jobs[j], self.vc_of[j]
        self.take(vc, grant)
        gpu_type = self.nodes[grant[0][0]].gpu_type
        end = now + self.run_time(job.duration - self.saved[j], job.logged, gpu_type)
        heapq.heappush(self.ends, (end, j))
        self.running[vc][j] = (now + self.predicted_on(j, gpu_type), grant)
        self.note_run(j, now, end, grant)

    def schedule(self, vc: str | None, now: int) -> int:
        """One scheduling pass over a VC; how many jobs it started."""
        passes = {"strict": self.strict, "skip": self.skip, "fastest": self.fastest, "easy": self.easy}
        return passes[self.trait](vc, now)

    def strict(self, vc: str | None, now: int) -> int:
        queue, started = self.queues[vc], 0
        for _, j in queue:
            grant = self.find(j)
            if grant is None:
                break
            self.start(j, grant, now)
            started += 1
        del queue[:started]
        return started

    def skip(self, vc: str | None, now: int) -> int:
        """Go down the order; once a job does not fit, no job that asks for the same fits later in the pass."""
        lines, started = self.lines[vc], 0
        heads = [(line[0], ask) for ask, line in lines.items()]
        heads.sort(key=lambda head: head[0])
        while heads:
            (_, j), ask = heads.pop(0)
            grant = self.find(j)
            if grant is None:
                continue
            self.start(j, grant, now)
            started += 1
            del lines[ask][0]
            if lines[ask]:
                bisect.insort(heads, (lines[ask][0], ask), key=lambda head: head[0])
            else:
                del lines[ask]
        return started

    def fastest(self, vc: str | None, now: int) -> int:
        """Start the best of all (job, type) pairs that fit, again and again."""
        queue, started = self.queues[vc], 0
        while True:
            pairs = ((pair, grant) for pair in self.pairs(queue) if (grant := self.find(pair[2], [pair[4]])))
            best = min(pairs, key=lambda found: found[0][:4], default=None)
            if best is None:
                return started
            (_, _, j, _, _), grant = best
            self.start(j, grant, now)
            queue[:] = [place for place in queue if place[1] != j]
            started += 1

    def pairs(self, queue: list[tuple[int, int]]) -> Iterator[tuple[int, int, int, int, str | None]]:
        """(key on the type, run time on the type, job, place of the type, type) of all waiting jobs."""
        for _, j in queue:
            for i, gpu_type in enumerate(self.asks[j].types):
                run = self.run_time(self.jobs[j].predicted, self.jobs[j].logged, gpu_type)  # its key stays
                yield self.key(self.jobs[j], run), run, j, i, gpu_type

    # --- EASY backfill ---

    def easy(self, vc: str | None, now: int) -> int:
        started = self.strict(vc, now)
        queue = self.queues[vc]
        if not queue:
            return started
        reservation = self.reserve(queue[0][1], now)
        kept = queue[:1]
        for place in queue[1:]:
            if self.kinds[place[1]] not in reservation.hopeless and self.backfill(place[1], now, reservation):
                started += 1
            else:
                kept.append(place)
        queue[:] = kept
        return started

    def reserve(self, head: int, now: int) -> Reservation:
        """The earliest instant at which the head fits, as far as is predicted."""
        vc = self.vc_of[head]
        ends = sorted((max(end, now + 1), grant) for end, grant in self.running[vc].values())
        later = [list(devices) for devices in self.seen(self.rooms)]
        for instant, ending in itertools.groupby(ends, key=lambda run: run[0]):
            for n, d, milli in (item for _, grant in ending for item in grant if item[0] not in self.out):
                later[n][d] += milli
            grant = self.site_of[head].place(later, self.asks[head])
            if grant is not None:
                return Reservation(instant, later, grant)
        return self.no_reservation(later)

    def no_reservation(self, later: Rooms) -> Reservation:
        """The head would not fit even if all jobs had ended, since nodes are out: everybody may start."""
        assert self.out
        return Reservation(NEVER, later, [])

    def backfill(self, j: int, now: int, reservation: Reservation) -> bool:
        """Start a job that leaves the head alone, if it fits now."""
        grant = reservation.same(self.kinds[j], lambda: self.find(j))
        if grant is None:
            reservation.hopeless.add(self.kinds[j])
            return False
        if not self.ends_by(reservation.shadow, j, grant, now):
            seen = functools.partial(beside, self.seen(self.rooms), reservation.later, reservation.grant)
            grant = reservation.same(("beside", self.kinds[j]), lambda: self.site_of[j].place(seen(), self.asks[j]))
            if grant is None:
                return False
            if not self.ends_by(reservation.shadow, j, grant, now):
                for n, d, milli in grant:
                    reservation.later[n][d] -= milli
        self.start(j, grant, now)
        reservation.answers.clear()
        return True

    def ends_by(self, shadow: int, j: int, grant: Grant, now: int) -> bool:
        """Tell whether a job that starts now is predicted to end by the shadow time."""
        return now + self.predicted_on(j, self.nodes[grant[0][0]].gpu_type) <= shadow


def beside(rooms: Rooms, later: Rooms, reserved: Grant) -> Rooms:
    """What a job may take now that will still run when the head wants to start.

    Of a node with f GPUs free then, r of them reserved, at most f - r: hidden are r of those devices, the busiest now
    first. A fraction is reserved on its own device.
    """
    seen = [list(devices) for devices in rooms]
    parts: Counter[tuple[int, int]] = Counter()
    for n, d, milli in reserved:
        if milli < GPU:
            parts[n, d] += milli
    for (n, d), milli in parts.items():
        seen[n][d] = min(seen[n][d], later[n][d] - milli)
    for n, count in Counter(n for n, _, milli in reserved if milli == GPU).items():
        free_then = [d for d, room in enumerate(later[n]) if room == GPU and (n, d) not in parts]
        for d in sorted(free_then, key=lambda d: rooms[n][d])[:count]:
            seen[n][d] = 0
    return seen


def engine_for(policy: str) -> type[Engine]:
    from tests.reference_conservative import ConservativeEngine  # they build on this file
    from tests.reference_preemption import PreemptiveEngine
    from tests.reference_steps import STEPS, StepsEngine

    if policy in STEPS:
        return StepsEngine
    if policy == "conservative":
        return ConservativeEngine
    return Engine if policy in ORDERS else PreemptiveEngine


def reference_replay(
    jobs: Iterable[Job],
    nodes: Iterable[Node],
    *,
    policy: str,
    speeds: Mapping[str, float] | None = None,
    same_type: Callable[[str, str], bool] = operator.eq,
    options: Mapping[str, object] | None = None,
    one_by_one: bool = False,
    outages: Sequence[Outage] = (),
    interval: int = 0,
) -> Outcome:
    """Replay jobs, given in any order, on nodes, given in any order."""
    jobs, nodes = list(jobs), list(nodes)
    ranked = sorted(zip(jobs, in_order([j.job_id for j in jobs]), strict=True), key=lambda r: (r[0].submit, r[1]))
    placed = sorted(zip(nodes, in_order([n.node_id for n in nodes]), strict=True), key=lambda r: r[1])
    engine = engine_for(policy)(
        [job for job, _ in ranked],
        [node for node, _ in placed],
        policy,
        speeds or {},
        same_type,
        options or {},
        one_by_one,
        outages=outages,
        interval=interval,
    )
    return engine.replay()
