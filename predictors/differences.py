"""Is one predictor better than another? Paired differences with intervals over days and over users, and a verdict."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["NUM_RESAMPLES", "Interval", "block_interval", "cluster_interval", "verdict"]

Numbers = NDArray[np.float64]
NUM_RESAMPLES: Final = 2000
#: With fewer days or users a bootstrap says nothing.
MIN_DAYS: Final = 10
MIN_CLUSTERS: Final = 5
SHARE: Final = 0.95


class Interval(NamedTuple):
    """Ends of a 95 % interval; null where there are too few days or users to tell."""

    low: float | None
    high: float | None


def block_interval(values: ArrayLike, *, days: ArrayLike, weights: ArrayLike | None = None, seed: int = 0) -> Interval:
    """95 % interval of a mean over jobs by moving-block bootstrap over days; null with less than 10 days.

    Blocks of ceil(n ** (1/3)) successive days are drawn with replacement, round the end, until n days are full: what
    hangs together from day to day stays together. The mean of a resample is that of all jobs of its days.

    Parameters
    ----------
    values : array of float, one per job
        What is averaged, such as the difference of two predictors' losses.
    days : array of int, same length
        Day of each job, counted from any day on; days without jobs are part of the calendar.
    weights : array of float, same length, optional
        Weight of each job in the mean.
    seed : int, default 0
        Same seed, same interval.

    Returns
    -------
    Interval

    References
    ----------
    .. [1] H. R. Künsch, "The Jackknife and the Bootstrap for General Stationary Observations", Annals of Statistics
       1989, doi:10.1214/aos/1176347265; round the end: D. N. Politis and J. P. Romano, "A circular block-resampling
       procedure", 1992.
    """
    day = np.asarray(days, dtype=np.int64)
    if not len(day):
        return Interval(None, None)
    sums, counts = _totals(values, day - day.min(), weights)
    num = len(sums)
    if num < MIN_DAYS:
        return Interval(None, None)
    length = math.ceil(num ** (1 / 3))
    starts = np.random.default_rng(seed).integers(0, num, size=(NUM_RESAMPLES, math.ceil(num / length)))
    drawn = ((starts[:, :, None] + np.arange(length)) % num).reshape(NUM_RESAMPLES, -1)[:, :num]
    return _ends(sums[drawn].sum(axis=1), counts[drawn].sum(axis=1))


def cluster_interval(
    values: ArrayLike, *, clusters: ArrayLike, weights: ArrayLike | None = None, seed: int = 0
) -> Interval:
    """95 % interval of a mean over jobs by bootstrap over clusters (users); null with less than 5 of them.

    Users are drawn with replacement, each with all of its jobs: a model is not better because one user's jobs, which
    resemble each other, happen to suit it.

    Parameters
    ----------
    values : array of float, one per job
        What is averaged.
    clusters : array of int, same length
        Number of each job's user, from 0.
    weights : array of float, same length, optional
        Weight of each job in the mean.
    seed : int, default 0
        Same seed, same interval.

    Returns
    -------
    Interval

    References
    ----------
    .. [1] C. A. Field and A. H. Welsh, "Bootstrapping clustered data", JRSS B 2007,
       doi:10.1111/j.1467-9868.2007.00593.x.
    """
    sums, counts = _totals(values, np.asarray(clusters, dtype=np.int64), weights)
    there = counts > 0
    sums, counts = sums[there], counts[there]
    if len(sums) < MIN_CLUSTERS:
        return Interval(None, None)
    drawn = np.random.default_rng(seed).integers(0, len(sums), size=(NUM_RESAMPLES, len(sums)))
    return _ends(sums[drawn].sum(axis=1), counts[drawn].sum(axis=1))


def _totals(values: ArrayLike, groups: NDArray[np.int64], weights: ArrayLike | None) -> tuple[Numbers, Numbers]:
    value = np.asarray(values, dtype=np.float64)
    weight = np.ones(len(value)) if weights is None else np.asarray(weights, dtype=np.float64)
    sums, counts = (np.bincount(groups, weights=each) for each in (value * weight, weight))
    return sums.astype(np.float64), counts.astype(np.float64)


def _ends(sums: Numbers, counts: Numbers) -> Interval:
    means = sums[counts > 0] / counts[counts > 0]
    low, high = np.quantile(means, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return Interval(float(low), float(high))


def verdict(*intervals: Interval) -> str:
    """Say in a word whether the first of two predictors has the smaller loss.

    Parameters
    ----------
    *intervals : Interval
        Of the mean difference, first minus second: over days, over users.

    Returns
    -------
    str
        "better" or "worse" if every known interval lies on that side of 0; "too few days and users" if none is known;
        else "no difference seen".

    Examples
    --------
    >>> verdict(Interval(-0.3, -0.1), Interval(-0.4, 0.1))
    'no difference seen'
    >>> verdict(Interval(-0.3, -0.1), Interval(None, None))
    'better'
    """
    known = [(each.low, each.high) for each in intervals if each.low is not None and each.high is not None]
    if not known:
        return "too few days and users"
    if all(high < 0 for _, high in known):
        return "better"
    if all(low > 0 for low, _ in known):
        return "worse"
    return "no difference seen"
