"""Slots of the stream of events: values of keys get a number when they first come, and room for their history."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from predictors import history_flight as flight
from predictors.history_kernel import NO_KEY, NO_SLOT, WINDOW, Slots

__all__ = ["BatchSlots", "FlightSlots", "HistorySlots", "Value", "make_flight_slots", "make_slots"]

Ints = NDArray[np.int64]
#: A key's place among the keys, and its values.
Value = tuple[int | str | float, ...]
SMALLEST: Final = 64


def make_slots(room: Ints) -> Slots:
    """Empty slots with room for so many durations each."""
    size = len(room)
    first = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(room)])
    ring, ranked = (np.zeros(max(int(first[-1]), 1)) for _ in range(2))
    num_ended, last_end, num_told, broke, killed = (np.zeros(size, dtype=np.int64) for _ in range(5))
    return Slots(
        *(ring, ranked),
        first=first[:-1],
        room=room.astype(np.int64),
        num_ended=num_ended,
        last_end=last_end,
        moving=np.zeros(size),
        num_told=num_told,
        broke=broke,
        killed=killed,
    )


def make_flight_slots(size: int) -> Ints:
    """Slots in which nobody waits or runs."""
    slots = np.zeros((size, flight.FIELDS), dtype=np.int64)
    slots[:, [flight.LAST, flight.BEFORE]] = flight.NEVER
    slots[:, flight.LAST_JOB] = -1
    return slots


class _Numbered(ABC):
    """Values of keys and their numbers, in the order in which they came."""

    def __init__(self) -> None:
        self.numbers: dict[Value, int] = {}

    def find(self, values: Iterable[Value | None]) -> Ints:
        """Numbers of values; -1 where a key is null, -2 where it never came."""
        found = [NO_KEY if value is None else self.numbers.get(value, NO_SLOT) for value in values]
        return np.array(found, dtype=np.int64)

    def take(self, values: Iterable[Value | None]) -> Ints:
        """Numbers of values; one that never came gets the next; -1 where a key is null."""
        found = [NO_KEY if value is None else self.numbers.setdefault(value, len(self.numbers)) for value in values]
        self.grow(len(self.numbers))
        return np.array(found, dtype=np.int64)

    @abstractmethod
    def grow(self, size: int) -> None:
        """Make room for so many."""


class HistorySlots(_Numbered):
    """History of every value of every key: 20 durations each and what is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.arrays = make_slots(np.full(SMALLEST, WINDOW))

    def grow(self, size: int) -> None:
        """Make room for so many slots; the room at least doubles."""
        old = self.arrays
        if size <= len(old.first):
            return
        self.arrays = make_slots(np.full(max(size, 2 * len(old.first)), WINDOW))
        for name in Slots._fields:
            if name not in {"first", "room"}:
                kept = getattr(old, name)
                getattr(self.arrays, name)[: len(kept)] = kept


class FlightSlots(_Numbered):
    """Who waits and runs of every value of every key; the last row stays empty."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = make_flight_slots(SMALLEST)

    def grow(self, size: int) -> None:
        """Make room for so many slots and the empty one."""
        if size < len(self.rows):
            return
        old, self.rows = self.rows, make_flight_slots(max(size + 1, 2 * len(self.rows)))
        self.rows[: len(old)] = old


class BatchSlots(_Numbered):
    """Minute and number of the last submissions of every request."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = np.zeros((SMALLEST, 2), dtype=np.int64)

    def grow(self, size: int) -> None:
        """Make room for so many requests."""
        if size <= len(self.rows):
            return
        old, self.rows = self.rows, np.zeros((max(size, 2 * len(self.rows)), 2), dtype=np.int64)
        self.rows[: len(old)] = old
