"""What is promised when: of every node (or device, where jobs share them) what is free from each instant on."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, compiled, constant, melted
from analysis.replay._hardware import MILLI, Hardware
from analysis.replay._state import NEVER

NO_SPAN: Final = constant(-1)
# Places in ``Timeline.pool``.
FRESH, SPARE = 0, 1


class Timeline(NamedTuple):
    """Per unit a list of spans: from an instant on so much is free, until the next span begins. The last has no end."""

    head: I64  # [U] span that holds now, or an earlier one
    since: I64  # [P] where a span begins
    free: I64  # [P]
    after: I64  # [P] next span of the unit, or of the pool
    pool: I64  # first span that was never used; first of those given back


def make_timeline(hw: Hardware, num_entries: int) -> Timeline:
    """Lay out a timeline on which all is free for ever."""
    units = len(hw.room) or len(hw.free)
    # Each unit may have been split where its node went and came back, too.
    size = units + 2 * num_entries + 2 + (2 * units if hw.offline is not None else 0)
    lines = Timeline(
        head=np.arange(units, dtype=np.int64),
        since=np.empty(size, dtype=np.int64),
        free=np.empty(size, dtype=np.int64),
        after=np.empty(size, dtype=np.int64),
        pool=np.array([units, NO_SPAN], dtype=np.int64),
    )
    lines.since[:units] = np.iinfo(np.int64).min
    lines.free[:units] = MILLI if len(hw.room) else hw.free
    lines.after[:units] = NO_SPAN
    return lines


@melted
def end_of(x: Timeline, span: int) -> int:
    """Where a span ends."""
    return int(x.since[x.after[span]]) if x.after[span] != NO_SPAN else NEVER


@melted
def put_back(x: Timeline, span: int) -> None:
    """Return a span to the pool."""
    x.after[span] = x.pool[SPARE]
    x.pool[SPARE] = span


@compiled
def split(x: Timeline, span: int, time: int) -> int:
    """Cut a span at an instant inside; return the second part."""
    new = x.pool[SPARE]
    if new == NO_SPAN:
        new = x.pool[FRESH]
        x.pool[FRESH] += 1
    else:
        x.pool[SPARE] = x.after[new]
    x.since[new], x.free[new], x.after[new] = time, x.free[span], x.after[span]
    x.after[span] = new
    return int(new)


@melted
def span_at(x: Timeline, unit: int, now: int) -> int:
    """Span that holds now; those that are over are given back."""
    span = x.head[unit]
    while end_of(x, span) <= now:
        later = x.after[span]
        put_back(x, span)
        span = later
    x.head[unit] = span
    return int(span)


@melted
def merge(x: Timeline, span: int) -> int:
    """Make one of a span and the next if they are alike; return the one, or the next."""
    later = x.after[span]
    if later != NO_SPAN and x.free[later] == x.free[span]:
        x.after[span] = x.after[later]
        put_back(x, later)
        return span
    return int(later)


@compiled
def change(x: Timeline, unit: int, start: int, stop: int, amount: int, now: int) -> None:
    """Add to what is free of a unit from ``start`` (now or later) until ``stop``."""
    if start >= stop:
        return
    before = NO_SPAN
    span = span_at(x, unit, now)
    while end_of(x, span) <= start:
        before, span = span, x.after[span]
    if x.since[span] < start:
        before, span = span, split(x, span, start)
    while span != NO_SPAN and x.since[span] < stop:
        if end_of(x, span) > stop:
            split(x, span, stop)
        x.free[span] += amount
        last, span = span, x.after[span]
    merge(x, last)
    if before != NO_SPAN:
        merge(x, before)


@compiled
def first_gap(x: Timeline, span: int, need: int, length: int, now: int, limit: int) -> int:
    """First instant from now on, up to ``limit``, from which so much is free for so long; NEVER if there is none."""
    at = now
    while at <= limit:
        if x.free[span] < need:
            at = end_of(x, span)
        elif end_of(x, span) - length >= at:
            return at
        span = x.after[span]
    return NEVER


@melted
def least(x: Timeline, span: int, start: int, stop: int) -> int:
    """Least that is free between two instants, seen from a span that begins before the first."""
    while end_of(x, span) <= start:
        span = x.after[span]
    low = x.free[span]
    while end_of(x, span) < stop:
        span = x.after[span]
        low = min(low, x.free[span])
    return int(low)


@compiled
def _sift(values: I64, n: int, i: int) -> None:
    value = values[i]
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and values[down + 1] > values[down]:
            down += 1
        if values[down] <= value:
            break
        values[i] = values[down]
        i = down
    values[i] = value


@compiled
def sort_first(values: I64, n: int) -> None:
    """Sort the first n values: a heap sort, since numba's own needs memory."""
    for i in range(n // 2 - 1, -1, -1):
        _sift(values, n, i)
    for last in range(n - 1, 0, -1):
        values[0], values[last] = values[last], values[0]
        _sift(values, last, ZERO)
