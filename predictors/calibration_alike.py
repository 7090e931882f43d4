"""Calibration by jobs alike: distributions of errors that fade, from everybody's to the owner's, in a compiled pass.

Errors are counted in bins, narrow near zero (a hundredth of a log unit) and wider far from it (2 % of the error), and a
bin is told by its outer edge: an interval is never too narrow for being counted.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["FADING", "Errors", "Fading", "Rows", "alike_shifts", "batches", "bins_of", "keys_alike", "prior_shares"]

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
#: Edges of the bins of errors, in log(1 + s); zero lies in the middle of one.
EDGES: Final = 0.5 * np.sinh(0.02 * (np.arange(-200, 202) - 0.5))
NUM_BINS: Final = len(EDGES) - 1
#: Counts are stored divided by a scale that shrinks as they fade, until it is so small.
LEAST_SCALE: Final = 1e-6
#: Weights add up to a level within this.
CLOSE: Final = 1e-9


class Errors(NamedTuple):
    """Errors in the order in which jobs ended: bin, key per level (levels, jobs; -1 = none), batch."""

    bins: Integers
    keys: Integers
    batch: Integers


class Rows(NamedTuple):
    """Rows that ask, by the number of jobs that each knows, ascending: that number, key per level (levels, rows)."""

    stops: Integers
    keys: Integers


class Fading(NamedTuple):
    """Per level what is left of old counts after one more job, and as how many jobs the level above counts."""

    keep: Numbers
    prior: Numbers


#: For everybody, everybody's jobs alike, the owner's jobs alike.
FADING: Final = Fading(np.array([0.9995, 0.999, 0.99]), np.array([10.0, 50.0, 30.0]))
#: Predictions within such a step of log(1 + s) are alike, and so are distances to the limit; beyond the last all are.
SAID_STEP: Final = 1.5
LIMIT_STEP: Final = 1.0
LAST_STEP: Final = 5.0
NO_LIMIT: Final = 9.0
US_PER_MINUTE: Final = 60_000_000


def _numbers(*columns: NDArray[Any]) -> Integers:
    """Equal numbers from 0 for equal rows."""
    numbers = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, more = np.unique(column, return_inverse=True)
        _, numbers = np.unique(numbers * len(column) + more, return_inverse=True)
    return numbers


def keys_alike(said: Numbers, limit_log: Numbers, owners: Integers) -> Integers:
    """Keys of jobs per level of ``FADING``, of what was said of them, limits (infinite = none), owners (-1 = none)."""
    step = np.floor(said / SAID_STEP)
    to_limit = np.where(np.isinf(limit_log), NO_LIMIT, np.minimum(np.floor((limit_log - said) / LIMIT_STEP), LAST_STEP))
    mine = np.where(owners < 0, -1, _numbers(owners, step))
    return np.stack([np.zeros(len(said), dtype=np.int64), _numbers(step, to_limit), mine])


def batches(asked_us: Integers, limit_log: Numbers, owners: Integers) -> Integers:
    """Number of each job's batch: of one owner, with the same limit, asked about in the same minute."""
    return _numbers(owners, asked_us // US_PER_MINUTE, limit_log)


def bins_of(errors: Numbers) -> Integers:
    """Number of the bin of each error; the outermost hold all beyond."""
    return np.clip(np.searchsorted(EDGES, errors, side="right") - 1, 0, NUM_BINS - 1)


def prior_shares(errors: Numbers) -> Numbers:
    """Share of each bin in errors that are made up."""
    return np.asarray(np.bincount(bins_of(errors), minlength=NUM_BINS) / len(errors))


@njit(cache=True)
def _last(keys: Integers) -> int:
    return int(keys.max()) if len(keys) else -1


@njit(cache=True)
def _count(counts: Numbers, totals: Numbers, place: int, bin_: int, news: float, left: float) -> None:
    """Let the counts of a key fade and add one; ``totals`` holds their sum and the scale they are stored by."""
    totals[place, 1] *= left
    if totals[place, 1] < LEAST_SCALE:
        counts[place] *= totals[place, 1]
        totals[place, 1] = 1.0
    counts[place, bin_] += news / totals[place, 1]
    totals[place, 0] = totals[place, 0] * left + news


@njit(cache=True)
def _ends(shares: Numbers, levels: Numbers, edges: Numbers, found: Numbers) -> None:
    """Outer edge of the bin at which each level is reached."""
    reached, place = 0.0, 0
    for level in range(len(levels)):
        while place < len(shares) - 1 and reached + shares[place] < levels[level] - CLOSE:
            reached += shares[place]
            place += 1
        found[level] = edges[place] if levels[level] < 0.5 else edges[place + 1]


@njit(cache=True)
def alike_shifts(
    errors: Errors, rows: Rows, fading: Fading, levels: Numbers, prior: Numbers, edges: Numbers
) -> Numbers:
    """Quantiles of the errors of jobs alike, for ascending levels; shape (rows, levels).

    Each level's distribution is that of its key's counts and of the level above, which counts as ``fading.prior`` jobs;
    above the first stands ``prior``. The k-th job of a batch in a row counts 1 / sqrt(k): 500 jobs alike are little
    more news than one.
    """
    num_levels = len(fading.keep)
    begins = np.zeros(num_levels + 1, np.int64)
    for level in range(num_levels):
        last = max(_last(errors.keys[level]), _last(rows.keys[level]))
        begins[level + 1] = begins[level] + last + 1
    counts, totals = np.zeros((begins[-1], len(prior))), np.zeros((begins[-1], 2))
    totals[:, 1] = 1.0
    batch, run = np.full(begins[-1], -1), np.zeros(begins[-1])
    found, shares, done = np.empty((len(rows.stops), len(levels))), np.empty(len(prior)), 0
    for row in range(len(rows.stops)):
        while done < rows.stops[row]:
            for level in range(num_levels):
                if errors.keys[level, done] >= 0:
                    place = begins[level] + errors.keys[level, done]
                    run[place] = run[place] + 1.0 if batch[place] == errors.batch[done] else 1.0
                    batch[place] = errors.batch[done]
                    news = 1.0 / np.sqrt(run[place])
                    _count(counts, totals, place, errors.bins[done], news, fading.keep[level] ** news)
            done += 1
        shares[:] = prior
        for level in range(num_levels):
            place = begins[level] + rows.keys[level, row]
            if rows.keys[level, row] >= 0 and totals[place, 0] > 0:
                whole = totals[place, 0] + fading.prior[level]
                shares *= fading.prior[level] / whole
                shares += counts[place] * (totals[place, 1] / whole)
        _ends(shares, levels, edges, found[row])
    return found
