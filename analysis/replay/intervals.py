"""How sure a gain is, and what share of the oracle's gain it is."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["block_interval", "captured_share"]

#: A gain of the oracle below this share of the base's mean (or 1 s) is no gain: a share of it would be noise.
LEAST_GAIN: Final = 0.01
MIN_DAYS: Final = 10
NUM_RESAMPLES: Final = 1000


def captured_share(gain: float, *, oracle_gain: float, base_mean: float) -> tuple[float | None, str | None]:
    """Share of the oracle's gain, or null and the reason why there is none.

    Examples
    --------
    >>> captured_share(30.0, oracle_gain=40.0, base_mean=100.0)
    (0.75, None)
    >>> captured_share(0.0, oracle_gain=0.0, base_mean=100.0)[1]
    'even true durations change the mean by less than 1 % or 1 s: no queue, no gain'
    """
    least = max(1.0, LEAST_GAIN * base_mean)
    if oracle_gain >= least:
        return gain / oracle_gain, None
    if oracle_gain <= -least:
        return None, "even true durations lose against the base here"
    return None, "even true durations change the mean by less than 1 % or 1 s: no queue, no gain"


def block_interval(
    differences: NDArray[np.float64], *, days: NDArray[np.int64], seed: int = 0
) -> tuple[float | None, float | None]:
    """95 % interval of a mean over jobs by moving-block bootstrap over days; null with less than 10 days.

    Blocks of ceil(n ** (1/3)) successive days of the n days are drawn with replacement until n days are full, so that
    what hangs together from day to day stays together; the mean of each resample is that of all jobs of its days.

    Parameters
    ----------
    differences : float64 array, one value per job
        What is averaged.
    days : int64 array, same length
        Day of each job, from 0.
    seed : int
        Same seed, same interval.
    """
    num_days = int(days.max(initial=-1)) + 1
    if num_days < MIN_DAYS:
        return None, None
    sums = np.bincount(days, weights=differences, minlength=num_days)
    counts = np.bincount(days, minlength=num_days)
    length = math.ceil(num_days ** (1 / 3))
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, num_days - length + 1, size=(NUM_RESAMPLES, math.ceil(num_days / length)))
    drawn = (starts[:, :, None] + np.arange(length)).reshape(NUM_RESAMPLES, -1)[:, :num_days]
    num_jobs = counts[drawn].sum(axis=1)
    means = sums[drawn].sum(axis=1)[num_jobs > 0] / num_jobs[num_jobs > 0]
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
