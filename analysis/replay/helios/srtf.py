"""SRTF: shortest remaining time first, with preemption by a quota that knows no nodes."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from itertools import accumulate
from typing import Final, NamedTuple

from analysis.replay.helios.jobs import Job, Run
from analysis.replay.helios.nodes import NODE_GPUS, Nodes

__all__ = ["overhead_s", "run_srtf"]

#: Added to the remaining time of a job that is stopped: of 1 GPU, of up to 8, of more. [s]
OVERHEAD_S: Final = (7, 30, 60)


def overhead_s(num_gpus: int) -> int:
    """What a preemption adds to a job's remaining time [s]."""
    return OVERHEAD_S[0 if num_gpus == 1 else 1 if num_gpus <= NODE_GPUS else 2]


class Waiting(NamedTuple):
    """A job in the queue; ties of what remains go by the time since which it is there."""

    remaining: int
    since: int
    job: int


class Running(NamedTuple):
    """A job with GPUs: what remains of it is ``done - now``, and its end the second after ``done``."""

    done: int
    since: int
    job: int


def run_srtf(jobs: list[Job], nodes: Nodes) -> tuple[dict[int, Run], int]:
    """Run the jobs of one VC.

    Only ticks at which something ends or arrives can start or stop a job. Let G be whom the quota admits in a tick.
    Until the next such tick running jobs only move forward in the order, so that whoever was not admitted still finds
    as many GPUs of G before it, and G stays; those of G who found no place find no more free GPUs now.

    Returns
    -------
    runs : dict of int to Run
        By row.
    most_waiting : int
        Most jobs in the queue after a tick.
    """
    queue = _Queue(jobs, nodes)
    place, most_waiting = 0, 0
    while place < len(jobs) or queue.running:
        instants = [queue.running[0].done + 1] if queue.running else []
        now = min([*instants, jobs[place].submit] if place < len(jobs) else instants)
        queue.end(now)
        while place < len(jobs) and jobs[place].submit == now:
            queue.wait(place, jobs[place].duration)
            place += 1
        if queue.admits_somebody(now):
            queue.choose(now)
        most_waiting = max(most_waiting, queue.num_waiting)
    return {job.row: run for job, run in zip(jobs, queue.runs, strict=True)}, most_waiting


class _Queue:
    """Who waits and who runs in one VC."""

    def __init__(self, jobs: list[Job], nodes: Nodes) -> None:
        self.jobs, self.nodes = jobs, nodes
        self.runs = [Run() for _ in jobs]
        self.running: list[Running] = []
        self.num_waiting = 0
        #: By GPUs, in order: of those who ask for the same the first one decides.
        self.waiting: dict[int, list[Waiting]] = {gpus: [] for gpus in sorted({job.num_gpus for job in jobs})}
        self._grants: dict[int, list[tuple[int, int]]] = {}
        self._started = [0] * len(jobs)
        self._count = 0
        self._last = jobs[-1].submit if jobs else 0

    def wait(self, job: int, remaining: int) -> None:
        """Put a job at the end of the queue."""
        self._count += 1
        insort(self.waiting[self.jobs[job].num_gpus], Waiting(remaining, self._count, job))
        self.num_waiting += 1

    def end(self, now: int) -> None:
        """End whoever had nothing left in the tick before."""
        while self.running and self.running[0].done < now:
            job = self.running.pop(0).job
            self._leave(job, now)
            self.runs[job].end = now

    def admits_somebody(self, now: int) -> bool:
        """Tell whether the quota admits anyone who waits; otherwise nothing changes."""
        total, running = self.nodes.num_gpus, self.running
        taken = [0, *accumulate(self.jobs[one.job].num_gpus for one in running)]
        return any(
            gpus <= total - taken[bisect_left(running, (line[0].remaining + now,))]
            for gpus, line in self.waiting.items()
            if line
        )

    def choose(self, now: int) -> None:
        """Walk through all jobs by what remains, whoever waits before whoever runs; stop the rest, start the chosen."""
        admitted, stopped = self._walk(now)
        for one in stopped:
            num_gpus = self.jobs[one.job].num_gpus
            self._leave(one.job, now)
            self.running.remove(one)
            self.wait(one.job, one.done - now + overhead_s(num_gpus))
            self.runs[one.job].num_stops += 1
        for candidate in admitted:
            grant = self.nodes.place(self.jobs[candidate.job].num_gpus)
            if grant is not None:
                self._start(candidate, grant, now)

    def _walk(self, now: int) -> tuple[list[Waiting], list[Running]]:
        """Whom of those who wait the quota admits, and whom of those who run it does not, both in order."""
        quota = self.nodes.num_gpus
        admitted: list[Waiting] = []
        stopped = []
        heads = [(line[0], 0, gpus) for gpus, line in self.waiting.items() if line and gpus <= quota]
        heapq.heapify(heads)
        for one in [*self.running, None]:
            while heads and (one is None or heads[0][0].remaining <= one.done - now):
                found, place, gpus = heapq.heappop(heads)
                if gpus > quota:
                    continue
                admitted.append(found)
                quota -= gpus
                if place + 1 < len(self.waiting[gpus]):
                    heapq.heappush(heads, (self.waiting[gpus][place + 1], place + 1, gpus))
            if one is None:
                break
            gpus = self.jobs[one.job].num_gpus
            if gpus <= quota:
                quota -= gpus
            else:
                stopped.append(one)
        return admitted, stopped

    def _start(self, one: Waiting, grant: list[tuple[int, int]], now: int) -> None:
        line = self.waiting[self.jobs[one.job].num_gpus]
        del line[bisect_left(line, one)]
        self.num_waiting -= 1
        self._count += 1
        insort(self.running, Running(now + one.remaining, self._count, one.job))
        self._grants[one.job], self._started[one.job] = grant, now
        run = self.runs[one.job]
        run.nodes = [node for node, _ in grant]
        if run.start < 0:
            run.start = now

    def _leave(self, job: int, now: int) -> None:
        self.nodes.release(self._grants.pop(job))
        run, began = self.runs[job], self._started[job]
        run.held += now - began
        run.held_early += max(min(now, self._last) - began, 0)
