"""Compiled core of history features: one ended job goes in, one row is described; batch and streaming both call it.

A slot is one value of a key (one user, one user with one size …). It keeps the last 20 durations as they came and in
ascending order, so that a description costs no sort. Numba is imported with this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "NO_KEY",
    "NO_SLOT",
    "STATS",
    "WINDOW",
    "Ends",
    "Slots",
    "Wanted",
    "combine",
    "compiled",
    "describe_all",
    "history_pass",
    "push_all",
]

F = TypeVar("F", bound=Callable[..., Any])
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WINDOW: Final = 20
#: Weight of the newest job in the moving average.
NEWEST: Final = 0.2
US_PER_S: Final = 1e6
#: Places of the statistics in a row of ``columns``.
STATS: Final = (
    "last",
    "mean_2",
    "mean_5",
    "mean_20",
    "median_5",
    "median_20",
    "spread_20",
    "min_20",
    "max_20",
    "ewma",
    "count",
    "since_last_s",
    "failure_rate_20",
    "kill_rate_20",
)
#: The key of a row is null; it has no history.
NO_KEY: Final = -1
#: Nobody with this key was seen; its history is empty.
NO_SLOT: Final = -2
#: Bits of an ended job: its status is known, it broke, it was killed, its duration counts.
TOLD: Final = 1
BROKE: Final = 2
KILLED: Final = 4
COUNTS: Final = 8
_ALL_BITS: Final = (1 << WINDOW) - 1


class Slots(NamedTuple):
    """What is kept of each slot; a slot's places in ``ring`` and ``ranked`` are ``first … first + room - 1``."""

    ring: Floats
    ranked: Floats
    first: Ints
    room: Ints
    num_ended: Ints
    last_end: Ints
    moving: Floats
    num_told: Ints
    broke: Ints
    killed: Ints


def compiled(function: F) -> F:
    """Compile a function and keep the machine code between runs.

    Without reference counting: these functions make no arrays, and counting references of the many arrays that go
    through their arguments costs more than their work.
    """
    numba_njit: Any = njit
    try:
        return numba_njit(cache=True, _nrt=False)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        # No folder can be written for the cache: compile anew in each run.
        return numba_njit(_nrt=False)(function)  # type: ignore[no-any-return]


@compiled
def push(slots: Slots, slot: int, duration: float, end: int, bits: int) -> None:
    """Take in a job that ended."""
    if bits & TOLD:
        slots.num_told[slot] += 1
        slots.broke[slot] = ((slots.broke[slot] << 1) | ((bits & BROKE) // BROKE)) & _ALL_BITS
        slots.killed[slot] = ((slots.killed[slot] << 1) | ((bits & KILLED) // KILLED)) & _ALL_BITS
    if not bits & COUNTS:
        return
    num, room, first = slots.num_ended[slot], slots.room[slot], slots.first[slot]
    place = first + num % room
    if num < room:
        rank = first + num
    else:
        rank = first
        while slots.ranked[rank] != slots.ring[place]:
            rank += 1
        top = first + room - 1
        while rank < top and slots.ranked[rank + 1] < duration:
            slots.ranked[rank] = slots.ranked[rank + 1]
            rank += 1
    while rank > first and slots.ranked[rank - 1] > duration:
        slots.ranked[rank] = slots.ranked[rank - 1]
        rank -= 1
    slots.ranked[rank] = duration
    slots.ring[place] = duration
    slots.num_ended[slot] = num + 1
    slots.last_end[slot] = end if num == 0 else max(end, slots.last_end[slot])
    # Here and not before the pass: one way of computing it, so that batch and streaming agree to the last bit.
    size = math.log1p(max(duration, 0.0))
    slots.moving[slot] = size if num == 0 else slots.moving[slot] + NEWEST * (size - slots.moving[slot])


@compiled
def bits_set(word: int) -> int:
    """How many of the bits are 1."""
    found = 0
    while word:
        word &= word - 1
        found += 1
    return found


@compiled
def quantile(ranked: Floats, first: int, size: int, share: float) -> float:
    """Quantile between neighbours in ascending values (definition 7 of Hyndman and Fan, as numpy's default)."""
    place = share * (size - 1)
    low = int(place)
    high = min(low + 1, size - 1)
    return float(ranked[first + low] + (place - low) * (ranked[first + high] - ranked[first + low]))


@compiled
def median_of_newest(slots: Slots, slot: int, most: int) -> float:
    """Median of the newest few durations; each is compared with each, which for five costs no more than a sort."""
    num, room, first = slots.num_ended[slot], slots.room[slot], slots.first[slot]
    size = min(num, most)
    low = high = 0.0
    for i in range(size):
        value = slots.ring[first + (num - 1 - i) % room]
        less = same = 0
        for j in range(size):
            other = slots.ring[first + (num - 1 - j) % room]
            less += other < value
            same += other == value
        if less <= (size - 1) // 2 < less + same:
            low = value
        if less <= size // 2 < less + same:
            high = value
    return (low + high) / 2


@compiled
def write_means(slots: Slots, slot: int, columns: Ints, out: Floats, row: int) -> None:
    """Write the last duration and the means of the newest ones, summed newest first."""
    num, room, first = slots.num_ended[slot], slots.room[slot], slots.first[slot]
    most = WINDOW if columns[3] >= 0 else 5 if columns[2] >= 0 else 2
    size = min(num, most)
    total = 0.0
    place = (num - 1) % room
    for i in range(size):
        total += slots.ring[first + place]
        place = place - 1 if place > 0 else room - 1
        if i == 0 and columns[0] >= 0:
            out[columns[0], row] = total
        if columns[1] >= 0 and (i == 1 or (i == 0 and num == 1)):
            out[columns[1], row] = total / (i + 1)
        if columns[2] >= 0 and i == min(num, 5) - 1:
            out[columns[2], row] = total / (i + 1)
    if columns[3] >= 0:
        out[columns[3], row] = total / size


@compiled
def write_ranked(slots: Slots, slot: int, columns: Ints, out: Floats, row: int) -> None:
    """Write what is read off the ascending durations."""
    first = slots.first[slot]
    size = min(slots.num_ended[slot], slots.room[slot])
    ranked = slots.ranked
    if columns[5] >= 0:
        out[columns[5], row] = (ranked[first + (size - 1) // 2] + ranked[first + size // 2]) / 2
    if columns[6] >= 0:
        high, low = quantile(ranked, first, size, 0.75), quantile(ranked, first, size, 0.25)
        out[columns[6], row] = math.log1p(high) - math.log1p(low)
    if columns[7] >= 0:
        out[columns[7], row] = ranked[first]
    if columns[8] >= 0:
        out[columns[8], row] = ranked[first + size - 1]


@compiled
def describe(slots: Slots, slot: int, now: int, columns: Ints, out: Floats, row: int) -> None:
    """Write what the ended jobs of a slot say; a column of -1 is not wanted, and what is not known stays as it is."""
    if slot == NO_KEY:
        return
    if columns[10] >= 0:
        out[columns[10], row] = slots.num_ended[slot] if slot >= 0 else 0
    if slot < 0:
        return
    num_told = min(slots.num_told[slot], WINDOW)
    if num_told > 0 and columns[12] >= 0:
        out[columns[12], row] = bits_set(slots.broke[slot]) / num_told
    if num_told > 0 and columns[13] >= 0:
        out[columns[13], row] = bits_set(slots.killed[slot]) / num_told
    if slots.num_ended[slot] == 0:
        return
    write_means(slots, slot, columns, out, row)
    write_ranked(slots, slot, columns, out, row)
    if columns[4] >= 0:
        out[columns[4], row] = median_of_newest(slots, slot, 5)
    if columns[9] >= 0:
        out[columns[9], row] = math.expm1(slots.moving[slot])
    if columns[11] >= 0:
        out[columns[11], row] = (now - slots.last_end[slot]) / US_PER_S


class Ends(NamedTuple):
    """Ended jobs in the order of their ends."""

    end: Ints
    duration: Floats
    bits: Ints


class Wanted(NamedTuple):
    """What rows ask: the slot of each, and which statistic goes to which row of ``out`` (-1 = not wanted)."""

    slot: Ints
    columns: Ints
    out: Floats


@compiled
def history_pass(slots: Slots, ends: Ends, end_slot: Ints, order: Ints, now: Ints, wanted: Wanted) -> None:
    """Describe rows, in the ``order`` of their instants, by the jobs that ended strictly before."""
    i, num = 0, len(end_slot)
    for row in order:
        while i < num and ends.end[i] < now[row]:
            if end_slot[i] >= 0:
                push(slots, end_slot[i], ends.duration[i], ends.end[i], ends.bits[i])
            i += 1
        describe(slots, wanted.slot[row], now[row], wanted.columns, wanted.out, row)


@compiled
def push_all(slots: Slots, of_job: Ints, duration: float, end: int, bits: int) -> None:
    """Take in a job that ended, for all its keys."""
    for slot in of_job:
        if slot >= 0:
            push(slots, slot, duration, end, bits)


@compiled
def describe_all(slots: Slots, of_job: Ints, now: int, columns: Ints, out: Floats) -> None:
    """Describe one job by all its keys; ``columns`` has a row per key, ``out`` one column."""
    for key in range(len(of_job)):
        describe(slots, of_job[key], now, columns[key], out, 0)


@compiled
def combine(codes: Ints, more: Ints, step: int) -> None:
    """Make the numbers of one column those of it and another one, in place; -1 where either is null."""
    for i in range(len(codes)):
        codes[i] = -1 if codes[i] < 0 or more[i] < 0 else codes[i] * step + more[i]
