"""Compiled loops of `analysis.characterize.look_back`: a pass over all submissions and ends in the order of time.

Numba is imported with this module, so that it is imported only when its table is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["compiled", "numbered", "predict", "score", "settle_ties"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

F = TypeVar("F", bound=Callable[..., Any])
#: A slot that no row has taken.
_FREE: Final = -1


def compiled(function: F) -> F:
    """Compile a function and keep the machine code between runs."""
    numba_njit: Any = njit
    try:
        return numba_njit(cache=True)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        # No folder can be written for the cache: compile anew in each run.
        return numba_njit()(function)  # type: ignore[no-any-return]


@compiled
def numbered(hashes: NDArray[np.uint64], is_known: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Numbers from 0 on for well mixed hashes, in the order in which they come (-1 = not known)."""
    size = 1
    while size < 2 * len(hashes):
        size *= 2
    # Only what is touched of the table takes memory: as much as there are different hashes.
    first_row, number = np.zeros(size, np.int32), np.full(len(hashes), _FREE, np.int32)
    mask, found = np.uint64(size - 1), 0
    for row in range(len(hashes)):
        if not is_known[row]:
            continue
        slot = hashes[row] & mask
        while first_row[slot] and hashes[first_row[slot] - 1] != hashes[row]:
            slot = (slot + np.uint64(1)) & mask
        if first_row[slot]:
            number[row] = number[first_row[slot] - 1]
        else:
            first_row[slot], number[row] = row + 1, found
            found += 1
    return number


@compiled
def settle_ties(by_end: Ints, end: Ints, submit: Ints, duration: Floats, longest: int) -> bool:
    """Sort jobs that end at once by submission and duration, in place; False if more than ``longest`` do, unsorted."""
    first = 0
    for place in range(1, len(by_end)):
        job = by_end[place]
        if end[job] != end[by_end[first]]:
            first = place
            continue
        if place - first >= longest:
            return False
        at = place
        while at > first and (submit[by_end[at - 1]], duration[by_end[at - 1]]) > (submit[job], duration[job]):
            by_end[at] = by_end[at - 1]
            at -= 1
        by_end[at] = job
    return True


@compiled
def _settle(ordered: Floats, place: int, bounds: tuple[int, int], value: float) -> None:
    """Put a value at a place that is free, and move it until ``ordered[bounds[0] : bounds[1]]`` is sorted again."""
    while place > bounds[0] and ordered[place - 1] > value:
        ordered[place] = ordered[place - 1]
        place -= 1
    while place < bounds[1] - 1 and ordered[place + 1] < value:
        ordered[place] = ordered[place + 1]
        place += 1
    ordered[place] = value


@compiled
def predict(
    key: NDArray[np.int32], times: tuple[Ints, Ints], duration: Floats, orders: tuple[Ints, Ints], last_k: int
) -> tuple[Floats, Floats, Floats]:
    """Last duration, mean of the last two and median of the last ``last_k``, of what had ended before each submission.

    Parameters
    ----------
    key : array of int, a value per job
        Number from 0 on, or -1 for a job that has none and is not predicted.
    times : tuple of two arrays of int
        Submission and end of each job in one unit.
    duration : array of float
        What is predicted; no nan.
    orders : tuple of two arrays of int
        Jobs by submission, and by end.
    last_k : int
        Ended jobs that the median is taken of, at most.

    Returns
    -------
    tuple of three arrays of float, a value per job
        nan where nothing had ended.
    """
    (submit, end), (by_submit, by_end) = times, orders
    held = np.zeros(key.max() + 2, np.int64)
    for number in key:
        held[number] += number >= 0
    # Room of each key for its last durations: no more than it has jobs.
    room = np.minimum(held, last_k)
    begin = np.cumsum(room) - room
    recent, ordered = np.empty(begin[-1] + room[-1] + 1), np.empty(begin[-1] + room[-1] + 1)
    held[:] = 0
    last, pair, median = np.full(len(key), np.nan), np.full(len(key), np.nan), np.full(len(key), np.nan)
    place = 0
    for job in by_submit:
        while place < len(by_end) and end[by_end[place]] < submit[job]:
            other = by_end[place]
            place += 1
            number, value = key[other], duration[other]
            if number < 0:
                continue
            first, length = begin[number], min(held[number], last_k)
            seat = first + held[number] % room[number]
            free = first + length
            if length == last_k:
                # The oldest goes.
                free = first
                while ordered[free] != recent[seat]:
                    free += 1
                length -= 1
            _settle(ordered, free, (first, first + length + 1), value)
            recent[seat] = value
            held[number] += 1
        number = key[job]
        if number < 0 or not held[number]:
            continue
        at, length = held[number], min(held[number], last_k)
        newest = recent[begin[number] + (at - 1) % room[number]]
        before = recent[begin[number] + (at - 2) % room[number]] if at > 1 else newest
        middle = begin[number] + length // 2
        last[job], pair[job] = newest, (newest + before) / 2
        median[job] = ordered[middle] if length % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return last, pair, median


@compiled
def score(
    code: NDArray[np.int32], num_codes: int, logs: tuple[Floats, Floats], milli_gpu_s: Ints, close: float
) -> Ints:
    """Sums by code over the jobs that are predicted, in whole numbers, so that no order of the rows matters.

    Parameters
    ----------
    code : array of int, a value per job
        Number of its group, below ``num_codes``.
    logs : tuple of two arrays of float
        Logarithms of the prediction (nan = none) and of the truth.
    milli_gpu_s : array of int
        GPU time [thousandths of a GPU-second].
    close : float
        Largest error that counts as close.

    Returns
    -------
    array of int, shape (5, num_codes)
        Jobs, their GPU time [thousandths], those that are close, error times GPU time [thousandths], and error
        [billionths].
    """
    sums, (predicted, truth) = np.zeros((5, num_codes), np.int64), logs
    for row in range(len(predicted)):
        if np.isnan(predicted[row]):
            continue
        at, error = code[row], abs(predicted[row] - truth[row])
        sums[0, at] += 1
        sums[1, at] += milli_gpu_s[row]
        sums[2, at] += error <= close
        sums[3, at] += np.int64(np.rint(error * milli_gpu_s[row]))
        sums[4, at] += np.int64(np.rint(error * 1e9))
    return sums
