"""EASY backfill restated in plain Python for equal nodes of one GPU, with the two rules in which accasim differs."""

from __future__ import annotations

import heapq
from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """A job: submission, true and expected length [s], nodes."""

    job_id: str
    submit: int
    run: int
    expected: int
    nodes: int


class Easy:
    """Equal nodes of one GPU under EASY; a job takes the free nodes of lowest number.

    Parameters
    ----------
    num_nodes : int
        Equal nodes.
    keeps_reservation : bool
        accasim's first rule: the blocked head is not looked at again before the time that was reserved for it when it
        was blocked, although it may fit sooner. Else the reservation is made anew in every pass.
    ignores_reservation : bool
        accasim's second rule (it hands an empty list of reserved nodes to its allocator): whoever fits may pass the
        blocked head, however long. Else only who ends by the reserved time or fits beside the reserved nodes.
    """

    def __init__(self, num_nodes: int, *, keeps_reservation: bool, ignores_reservation: bool) -> None:
        self.keeps, self.ignores = keeps_reservation, ignores_reservation
        self.free = list(range(num_nodes))
        self.held: dict[str, tuple[int, list[int]]] = {}  # expected end, nodes
        self.ends: list[tuple[int, str]] = []
        self.queue: list[Job] = []
        self.reserved: tuple[int, set[int]] | None = None
        self.starts: dict[str, int] = {}

    def run(self, jobs: list[Job]) -> dict[str, int]:
        """Start of every job; ``jobs`` in the order of submission."""
        arrivals = list(reversed(jobs))
        while arrivals or self.ends or self.queue:
            events = [job.submit for job in arrivals[-1:]] + [end for end, _ in self.ends[:1]]
            # Where nothing else will happen, a kept reservation comes due by itself.
            now = min(events) if events else self.reserved[0] if self.reserved else 0
            while self.ends and self.ends[0][0] == now:
                self.free = sorted([*self.free, *self.held.pop(heapq.heappop(self.ends)[1])[1]])
            while arrivals and arrivals[-1].submit == now:
                self.queue.append(arrivals.pop())
            self.start_heads(now)
            self.backfill(now)
        return self.starts

    def start(self, job: Job, now: int, allowed: list[int]) -> None:
        taken = allowed[: job.nodes]
        self.free = [node for node in self.free if node not in set(taken)]
        self.held[job.job_id] = (now + job.expected, taken)
        heapq.heappush(self.ends, (now + job.run, job.job_id))
        self.starts[job.job_id] = now
        self.queue.remove(job)

    def start_heads(self, now: int) -> None:
        """Start from the front while it fits; make a reservation for who does not."""
        if self.keeps and self.reserved is not None and self.reserved[0] > now:
            return
        kept = self.reserved if self.keeps else None
        while self.queue and self.queue[0].nodes <= len(self.free):
            self.start(self.queue[0], now, self.free)
            kept = None
        # accasim keeps a reservation whose time has passed until the head starts.
        self.reserved = (kept or self.reservation(self.queue[0], now)) if self.queue else None

    def backfill(self, now: int) -> None:
        for job in list(self.queue[1:]):
            allowed = self.free
            if not self.ignores and self.reserved and now + job.expected > self.reserved[0]:
                allowed = [node for node in self.free if node not in self.reserved[1]]
            if job.nodes <= len(allowed):
                self.start(job, now, allowed)

    def reservation(self, job: Job, now: int) -> tuple[int, set[int]]:
        """When a job fits by expected ends, and its nodes then; one overdue counts as ending right after now."""
        expected = sorted((max(end, now + 1), nodes) for end, nodes in self.held.values())
        free = set(self.free)
        for end, nodes in expected:
            free.update(nodes)
            if len(free) >= job.nodes:
                # All that end at the same instant are gone when the job is placed.
                free.update(node for other, late in expected if other == end for node in late)
                return end, set(sorted(free)[: job.nodes])
        raise AssertionError(job)
