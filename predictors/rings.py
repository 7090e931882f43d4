"""What the ended jobs of a key say, twice: over the last 20 jobs, and over the last 20 batches of jobs alike.

A user who submits 500 jobs at once fills a window of 20 jobs with one batch; a window of batches (jobs of one owner
with the same size and limit, submitted in the same minute, count as one, by their mean) still remembers the 19 before.
All durations are log(1 + s). A job counts only if its end lies strictly before the instant of asking.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["RING_STATS", "Asks", "Ends", "ring_stats"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
WINDOW: Final = 20
US_PER_S: Final = 1e6
#: Columns of what is said of a key; ``batch_*`` over batches, the others over jobs.
RING_STATS: Final = (
    "count",
    "since_s",
    "last",
    "mean_2",  # log of the mean of seconds
    "median",
    "min",
    "max",
    "mean",
    "sd",
    "broke",
    "batch_count",
    "batch_median",
    "batch_median_3",
    "batch_last",
    "batch_sd",
)


class Ends(NamedTuple):
    """Ended jobs in the order of their ends: key (-1 = none), end [microseconds], log(1 + s), 1 if it broke, batch."""

    key: Ints
    end_us: Ints
    log_s: Floats
    broke: Floats
    batch: Ints


class Asks(NamedTuple):
    """Rows that ask, in any order: key (-1 = none) and instant [microseconds]."""

    key: Ints
    at_us: Ints


def ring_stats(ends: Ends, asks: Asks, *, order: Ints | None = None) -> Floats:
    """Describe, for each asking row, the jobs of its key that ended strictly before its instant.

    Parameters
    ----------
    ends : Ends
        What has ended.
    asks : Asks
        Who asks.
    order : array of int, one per row that asks, optional
        The rows in order of their instants, where that is known already.

    Returns
    -------
    array of float64, shape (rows, len(RING_STATS))
        Durations as log(1 + s); NaN where nothing of the key had ended (counts are 0), or the row has no key.
    """
    # numba takes half a second to import: only who computes pays.
    from predictors.expert_kernels import ring_pass

    num_keys = 1 + int(max(ends.key.max(initial=-1), asks.key.max(initial=-1)))
    out = np.full((len(asks.key), len(RING_STATS)), np.nan)
    rings = np.zeros((4, max(num_keys, 1), WINDOW))
    batches = np.full((max(num_keys, 1), WINDOW), -1, dtype=np.int64)
    counts = np.zeros((max(num_keys, 1), 2), dtype=np.int64)
    order = np.argsort(asks.at_us, kind="stable") if order is None else order
    ring_pass(ends, asks, order, (rings, batches, counts), out)
    return out
