"""Conservative backfill in the plain-Python reference engine: a list of bookings, looked through for every question."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tests.reference_engine import Engine, Outcome
from tests.reference_placement import GPU, Grant, Rooms, whole_gpus

MINUTE = 60_000_000
STEPS = [m * MINUTE for m in (1, 5, 15, 30, 60, 120, 300, 600, 1_200, 3_000, 6_000)]


@dataclass
class Booking:
    """What a job has been promised, or holds: from when, until when as predicted, and where."""

    start: int
    due: int
    grant: Grant
    tries: int = 0


class ConservativeEngine(Engine):
    """The rules of conservative backfill as they are told."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.by_device = any(job.milli is not None and round(job.milli / (job.tasks or 1)) % GPU for job in self.jobs)
        self.lines_up: dict[str | None, list[int]] = {vc: [] for vc in self.sites}
        self.runs_now: dict[str | None, dict[int, int]] = {vc: {} for vc in self.sites}  # job -> end
        self.bookings: dict[int, Booking | None] = {}
        self.had_events: dict[str | None, int] = {}

    def replay(self) -> Outcome:
        coming = [j for j, ask in enumerate(self.asks) if ask is not None][::-1]
        event = self.calendar.after(-(10**18))
        while coming or any(self.runs_now.values()) or any(self.lines_up.values()):
            times = [min(end, self.bookings[j].due) for jobs in self.runs_now.values() for j, end in jobs.items()]
            times += [self.bookings[j].start for line in self.lines_up.values() for j in line if self.bookings[j]]
            times += [self.jobs[coming[-1]].submit] if coming else []
            times += [event] if event is not None else []
            if not times:
                break
            now = min(times)
            self.out = self.calendar.out(now)
            for vc in self.sites:
                self.settle(vc, now)
                self.start_promised(vc, now)
            while coming and self.jobs[coming[-1]].submit == now:
                j = coming.pop()
                self.bookings[j] = self.earliest(j, now, None)
                self.lines_up[self.vc_of[j]].append(j)
            for vc in self.sites:
                self.start_promised(vc, now)
            self.peak = max(self.peak, sum(map(len, self.lines_up.values())))
            event = self.calendar.after(now)
        return self.outcome()

    def grants(self, vc: str | None) -> Mapping[int, Grant]:
        return {j: self.bookings[j].grant for j in self.runs_now[vc]}

    def kill(self, vc: str | None, j: int, now: int) -> None:
        del self.runs_now[vc][j]
        self.lose(vc, j, self.bookings[j].grant, now)
        self.bookings[j] = None
        bisect.insort(self.lines_up[vc], j)

    def settle(self, vc: str | None, now: int) -> None:
        """Ends, corrections, and what follows for those who wait."""
        is_loose = False
        for j in [j for j, end in self.runs_now[vc].items() if end == now]:
            is_loose |= self.bookings[j].due > now
            del self.runs_now[vc][j]
            self.take(vc, self.bookings.pop(j).grant, sign=-1)
        torn = self.overdue(vc, now)
        if self.had_events.get(vc) != now:  # once, even if jobs of length 0 make another pass
            self.had_events[vc] = now
            struck = self.calendar.struck(now)
            for j in [j for j, grant in self.grants(vc).items() if struck & {n for n, _, _ in grant}]:
                self.kill(vc, j, now)
            if any(n in self.sites[vc].numbers for n in self.calendar.changed(now)):
                torn = set(self.lines_up[vc])  # every promise is void
        self.plan_again(vc, now, torn, is_loose=is_loose)

    def overdue(self, vc: str | None, now: int) -> set[int]:
        """Move on the predicted ends of those who outlived theirs; who waits for what they hold."""
        torn: set[int] = set()
        for j in [j for j in self.runs_now[vc] if self.bookings[j].due == now]:
            booking = self.bookings[j]
            booking.due += STEPS[min(booking.tries, len(STEPS) - 1)]
            booking.tries += 1
            nodes = {n for n, _, _ in booking.grant}
            for w in self.lines_up[vc]:
                promised = self.bookings[w]
                if promised is not None and promised.start < booking.due and nodes & {n for n, _, _ in promised.grant}:
                    torn.add(w)
        return torn

    def plan_again(self, vc: str | None, now: int, torn: set[int], *, is_loose: bool) -> None:
        for w in torn:
            self.bookings[w] = None
        for w in self.lines_up[vc]:
            if w in torn:
                self.bookings[w] = self.earliest(w, now, None)
        if is_loose or torn:
            for w in self.lines_up[vc]:
                old, self.bookings[w] = self.bookings[w], None
                if old is not None:
                    self.bookings[w] = self.earliest(w, now, old.start) or old

    def start_promised(self, vc: str | None, now: int) -> None:
        for j in [j for j in self.lines_up[vc] if self.bookings[j] and self.bookings[j].start == now]:
            job, booking = self.jobs[j], self.bookings[j]
            self.lines_up[vc].remove(j)
            if not self.by_device:  # which of the free devices does not matter
                wanted = Counter(n for n, _, _ in booking.grant)
                booking.grant = [part for n, count in wanted.items() for part in whole_gpus(n, self.rooms[n], count)]
                assert len(booking.grant) == sum(wanted.values())
            self.take(vc, booking.grant)
            gpu_type = self.nodes[booking.grant[0][0]].gpu_type
            end = now + self.run_time(job.duration - self.saved[j], job.logged, gpu_type)
            self.note_run(j, now, end, booking.grant)
            self.runs_now[vc][j] = end

    def earliest(self, j: int, now: int, before: int | None) -> Booking | None:
        """The earliest booking that leaves all others alone; None if it is not before an instant."""
        length = max(max(self.predicted_on(j, gpu_type), 1) for gpu_type in self.asks[j].types)
        vc = self.vc_of[j]
        others = [b for o, b in self.bookings.items() if b is not None and self.vc_of[o] == vc]
        for at in sorted({now} | {b.due for b in others if b.due > now}):
            if before is not None and at >= before:
                return None
            grant = self.site_of[j].place(self.free_all_through(at, at + length, others), self.asks[j])
            if grant is not None:
                gpu_type = self.nodes[grant[0][0]].gpu_type
                return Booking(at, at + max(self.predicted_on(j, gpu_type), 1), grant)
        assert self.out or before is not None  # else everything is free after the last booking
        return None

    def free_all_through(self, start: int, stop: int, bookings: list[Booking]) -> Rooms:
        """Free milli-GPUs of every device, or of as many devices as the node has free, whichever they are."""
        rooms = [[GPU] * node.num_gpus for node in self.nodes]
        low = [list(devices) for devices in rooms] if self.by_device else [node.num_gpus for node in self.nodes]
        for at in {start} | {b.start for b in bookings if start < b.start < stop}:
            taken: Counter[tuple[int, int]] = Counter()
            for b in bookings:
                if b.start <= at < b.due:
                    for n, d, milli in b.grant:
                        taken[n, d if self.by_device else 0] += milli
            for (n, d), milli in taken.items():
                if self.by_device:
                    low[n][d] = min(low[n][d], GPU - milli)
                else:
                    low[n] = min(low[n], self.nodes[n].num_gpus - milli // GPU)
        for n in self.out:
            low[n] = [0] * len(rooms[n]) if self.by_device else 0
        if self.by_device:
            return low
        return [[GPU] * free + [0] * (len(rooms[n]) - free) for n, free in enumerate(low)]
