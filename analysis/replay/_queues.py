"""Waiting jobs as heaps of ranks, and running jobs as a heap of end times."""

from __future__ import annotations

from typing import NamedTuple

from analysis.replay._bits import I64
from analysis.replay._closed import F64, comes_before
from analysis.replay._compiled import ZERO, compiled


class Queues(NamedTuple):
    """Heaps of waiting jobs: one per VC where the head blocks, else one per class (and GPU type, if it matters).

    A job has ``num_slots`` places in line, one per type that it may be ordered by; place ``s`` of job ``j`` is number
    ``j * num_slots + s`` and has a rank (-1: no such place). Heaps hold ranks.
    """

    num_slots: int
    rank: I64  # [n * num_slots]
    place_at: I64  # [n * num_slots] place by rank
    queue: I64  # [n * num_slots] queue of a place
    heap: I64  # all heaps behind each other …
    first: I64  # [Q] … queue q begins here …
    length: I64  # [Q] … and has so many
    fresh: I64  # [Q] 1: somebody came since the last pass
    vc_queues: I64  # [V + 1] queues of VC v are vc_queues[v] … vc_queues[v + 1]
    types: I64  # [Q] GPU types that the queue stands for, a bit each
    key: F64 | None = None  # [n] where keys are known at arrival only: ranks are jobs then, in the order of submission


class Ends(NamedTuple):
    """Running jobs by end time: a binary heap."""

    time: I64
    job: I64


@compiled
def push(q: Queues, queue: int, rank: int) -> None:
    """Put a rank into a queue."""
    heap, first = q.heap, q.first[queue]
    i = q.length[queue]
    q.length[queue] = i + 1
    while i > 0:
        up = (i - 1) >> 1
        above = heap[first + up]
        if comes_before(q.key, above, rank):
            break
        heap[first + i] = above
        i = up
    heap[first + i] = rank


@compiled
def pop(q: Queues, queue: int) -> None:
    """Take the lowest rank out of a queue."""
    heap, first = q.heap, q.first[queue]
    n = q.length[queue] - 1
    q.length[queue] = n
    last = heap[first + n]
    i = ZERO
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and comes_before(q.key, heap[first + down + 1], heap[first + down]):
            down += 1
        if not comes_before(q.key, heap[first + down], last):
            break
        heap[first + i] = heap[first + down]
        i = down
    heap[first + i] = last


@compiled
def push_end(ends: Ends, n: int, time: int, job: int) -> None:
    """Add a running job to a heap of ``n``."""
    times, jobs = ends.time, ends.job
    i = n
    while i > 0:
        up = (i - 1) >> 1
        if times[up] <= time:
            break
        times[i], jobs[i] = times[up], jobs[up]
        i = up
    times[i], jobs[i] = time, job


@compiled
def pop_end(ends: Ends, n: int) -> int:
    """Take the job that ends first out of a heap of ``n``."""
    times, jobs = ends.time, ends.job
    job = jobs[0]
    n -= 1
    time, last = times[n], jobs[n]
    i = ZERO
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and times[down + 1] < times[down]:
            down += 1
        if times[down] >= time:
            break
        times[i], jobs[i] = times[down], jobs[down]
        i = down
    times[i], jobs[i] = time, last
    return int(job)
