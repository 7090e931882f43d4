"""Compiled passes of the calibration: quantiles of the errors of jobs that had ended, over windows that move on.

In all of them errors are in the order in which the jobs ended, and a row with the stop ``s`` knows the first ``s``.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["adaptive_shifts", "pooled_shifts", "rolling_shifts", "surviving_shifts"]

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
#: Jobs that still run are counted anew after so many ends; after fewer at the beginning of a log.
PACE = 64
US_PER_S = 1e6
#: Weights add up to a level within this.
CLOSE = 1e-9


@njit(cache=True)
def _insert(held: Numbers, size: int, value: float) -> None:
    """Put a value into the ascending part of a buffer."""
    place = np.searchsorted(held[:size], value)
    for k in range(size, place, -1):
        held[k] = held[k - 1]
    held[place] = value


@njit(cache=True)
def _swap(held: Numbers, size: int, old: float, new: float) -> None:
    """Put a value in the place of one that is there, and keep the order; only what lies between them moves."""
    place = np.searchsorted(held[:size], old)
    while place + 1 < size and held[place + 1] < new:
        held[place] = held[place + 1]
        place += 1
    while place > 0 and held[place - 1] > new:
        held[place] = held[place - 1]
        place -= 1
    held[place] = new


@njit(cache=True)
def _at(held: Numbers, size: int, level: float) -> float:
    """Value at place (n + 1) level of n ascending ones, on the line between its neighbours: conformal for an end."""
    at = min(max((size + 1) * level - 1, 0.0), size - 1.0)
    low = int(at)
    return float(held[low] + (held[min(low + 1, size - 1)] - held[low]) * (at - low))


@njit(cache=True)
def rolling_shifts(errors: Numbers, stops: Integers, level: float, prior: Numbers, window: int) -> Numbers:
    """Quantile of the last ``window`` errors before each of ascending stops, and of the prior."""
    found = np.empty(len(stops))
    held = np.empty(window + len(prior) + 1)
    held[: len(prior)] = np.sort(prior)
    size, stop = len(prior), 0
    for row in range(len(stops)):
        if stops[row] - window > stop:  # nothing of the window so far is left
            held[: len(prior)] = np.sort(prior)
            size, stop = len(prior), stops[row] - window
        while stop < stops[row]:
            if size < window + len(prior):
                _insert(held, size, errors[stop])
                size += 1
            else:
                _swap(held, size, errors[stop - window], errors[stop])
            stop += 1
        found[row] = _at(held, size, level)
    return found


@njit(cache=True)
def _mixed(held: Numbers, size: int, each: float, own: Numbers, level: float) -> float:
    """Least value up to which the weight of both ascending lists reaches a level; ``each`` of the first, 1 of own."""
    target = level * (each * size + len(own)) - CLOSE
    low, high = 0, size - 1
    while low < high:
        middle = (low + high) // 2
        if (middle + 1) * each + np.searchsorted(own, held[middle], side="right") >= target:
            high = middle
        else:
            low = middle + 1
    reached = (low + 1) * each + np.searchsorted(own, held[low], side="right") >= target
    below = size * each if not reached else low * each
    place = max(int(np.ceil(target - below)) - 1, 0)
    if len(own) and place < len(own) and (not reached or own[place] < held[low]):
        return float(own[place])
    return float(held[low])


@njit(cache=True)
def pooled_shifts(
    errors: Numbers,
    owners: Integers,
    stops: Integers,
    asking: Integers,
    levels: Numbers,
    prior: Numbers,
    pooling: tuple[int, int, float],
) -> Numbers:
    """Quantiles of the asking owner's last errors mixed with everybody's, for ascending stops; (rows, levels)."""
    window, own_window, others_weight = pooling
    num_owners = max(owners.max() if len(owners) else -1, asking.max() if len(asking) else -1) + 1
    ring, own = np.empty((num_owners, own_window)), np.empty((num_owners, own_window + 1))
    seen = np.zeros(num_owners, np.int64)
    held = np.empty(window + len(prior) + 1)
    held[: len(prior)] = prior
    size, stop = len(prior), 0
    found = np.empty((len(stops), len(levels)))
    for row in range(len(stops)):
        while stop < stops[row]:
            if size < window + len(prior):
                _insert(held, size, errors[stop])
                size += 1
            else:
                _swap(held, size, errors[stop - window], errors[stop])
            who = owners[stop]
            if who >= 0:
                place = seen[who] % own_window
                if seen[who] < own_window:
                    _insert(own[who], seen[who], errors[stop])
                else:
                    _swap(own[who], own_window, ring[who, place], errors[stop])
                ring[who, place] = errors[stop]
                seen[who] += 1
            stop += 1
        who = asking[row]
        count = min(seen[who], own_window) if who >= 0 else 0
        mine = own[who, :count] if who >= 0 else own.ravel()[:0]
        for k in range(len(levels)):
            found[row, k] = _mixed(held, size, others_weight / size, mine, levels[k])
    return found


@njit(cache=True)
def adaptive_shifts(
    errors: Numbers, then: Integers, stops: Integers, level: float, prior: Numbers, options: tuple[int, float]
) -> Numbers:
    """Rolling quantiles whose level moves by a step after each job that ended, up if it was missed.

    A past job ``i`` was asked about when the first ``then[i]`` had ended: whether its interval missed it is decided by
    the shift of that instant, and told only when it ends.
    """
    window, step = options
    found = np.empty(len(stops))
    issued = np.empty(len(errors))
    by_ask = np.argsort(then)
    held = np.empty(window + len(prior) + 1)
    held[: len(prior)] = np.sort(prior)
    size, stop, ask, now = len(prior), 0, 0, level
    for row in range(len(stops)):
        while stop < stops[row]:
            while ask < len(by_ask) and then[by_ask[ask]] <= stop:
                issued[by_ask[ask]] = _at(held, size, min(max(now, 0.0), 1.0))
                ask += 1
            missed = 1.0 if errors[stop] > issued[stop] else 0.0
            now += step * (missed - (1 - level))
            if size < window + len(prior):
                _insert(held, size, errors[stop])
                size += 1
            else:
                _swap(held, size, errors[stop - window], errors[stop])
            stop += 1
        found[row] = _at(held, size, min(max(now, 0.0), 1.0))
    return found


@njit(cache=True)
def _counted_at(stop: int) -> int:
    """The latest number of ended jobs, up to a stop, at which running jobs are counted."""
    pace = 1
    while pace < PACE and pace * 32 <= stop:
        pace *= 2
    return stop - stop % pace


@njit(cache=True)
def _surviving(held: Numbers, size: int, bounds: Numbers, level: float) -> float:
    """Kaplan-Meier quantile: least error up to which the share of a level has been reached; the last if it never is.

    ``held`` are errors, ascending; ``bounds`` are errors of which it is known only that they are larger, ascending.
    """
    left, passed, row = 1.0, 0, 0
    while row < size:
        value, same = held[row], row
        while same < size and held[same] == value:
            same += 1
        while passed < len(bounds) and bounds[passed] < value:
            passed += 1
        left *= 1 - (same - row) / (size - row + len(bounds) - passed)
        if 1 - left >= level - CLOSE:
            return float(value)
        row = same
    return float(held[size - 1])


@njit(cache=True)
def surviving_shifts(
    errors: Numbers,
    upper_log: Numbers,
    spans: tuple[Integers, Integers, Integers],
    stops: Integers,
    level: float,
    prior: Numbers,
    window: int,
) -> Numbers:
    """Quantile of the last ``window`` errors and of those of jobs that still run, before each of ascending stops.

    Of a job that runs at an instant it is known that its error is at least log(1 + elapsed) - ``upper_log``. The
    instant is the last end before the stop, or a few ends earlier (``PACE``). ``spans`` are starts and ends of the jobs
    [microseconds], and the order of the starts.
    """
    start_us, end_us, by_start = spans
    found = np.empty(len(stops))
    held = np.empty(window + len(prior) + 1)
    held[: len(prior)] = np.sort(prior)
    size, stop, begun, num_running, now = len(prior), 0, 0, 0, np.nan
    running, place = np.empty(len(errors), np.int64), np.full(len(errors), -1)
    for row in range(len(stops)):
        wanted = _counted_at(stops[row])
        if wanted == stop and not np.isnan(now):
            found[row] = now
            continue
        while stop < wanted:
            if size < window + len(prior):
                _insert(held, size, errors[stop])
                size += 1
            else:
                _swap(held, size, errors[stop - window], errors[stop])
            stop += 1
            if place[stop - 1] >= 0:
                last = running[num_running - 1]
                running[place[stop - 1]] = last
                place[last] = place[stop - 1]
                num_running -= 1
        instant = end_us[stop - 1] if stop else np.int64(0)
        while begun < len(by_start) and start_us[by_start[begun]] < instant:
            job = by_start[begun]
            if job >= stop:
                running[num_running] = job
                place[job] = num_running
                num_running += 1
            begun += 1
        bounds = np.empty(num_running)
        for k in range(num_running):
            job = running[k]
            bounds[k] = np.log1p((instant - start_us[job]) / US_PER_S) - upper_log[job]
        now = _surviving(held, size, np.sort(bounds), level)
        found[row] = now
    return found
