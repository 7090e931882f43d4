"""Jobs by an instant: a binary heap in which each job's place is known, so that it can leave or move."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.replay._bits import I64
from analysis.replay._compiled import compiled, melted


class Heap(NamedTuple):
    """The first job is the one with the earliest instant."""

    when: I64
    who: I64
    at: I64  # [n] place of a job


def make_heap(num_jobs: int) -> Heap:
    """Lay out an empty heap."""
    when, who, at = (np.empty(num_jobs, dtype=np.int64) for _ in range(3))
    return Heap(when, who, at)


@melted
def seat(h: Heap, i: int, time: int, job: int) -> None:
    """Write a job into its place."""
    h.when[i] = time
    h.who[i] = job
    h.at[job] = i


@compiled
def float_up(h: Heap, i: int, time: int, job: int) -> None:
    """Let a job rise from place i."""
    while i > 0:
        up = (i - 1) >> 1
        if h.when[up] <= time:
            break
        seat(h, i, h.when[up], h.who[up])
        i = up
    seat(h, i, time, job)


@compiled
def sink(h: Heap, n: int, i: int, time: int, job: int) -> None:
    """Put a job at place i of a heap of n and let it go where it belongs."""
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and h.when[down + 1] < h.when[down]:
            down += 1
        if h.when[down] >= time:
            break
        seat(h, i, h.when[down], h.who[down])
        i = down
    float_up(h, i, time, job)


@melted
def take_out(h: Heap, n: int, job: int) -> None:
    """Take a job out of a heap that has n jobs without it."""
    hole = h.at[job]
    if hole < n:
        sink(h, n, hole, h.when[n], h.who[n])
