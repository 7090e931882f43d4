"""Harrell's index of concordance for predicted durations; some jobs are known only to have run for at least so long."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

__all__ = ["concordance"]


def concordance(predicted: ArrayLike, observed: ArrayLike, is_censored: ArrayLike | None = None) -> float | None:
    """Share of comparable pairs of jobs that a predictor puts in the right order [0-1]; half is chance.

    Two jobs are comparable if it is known which ran longer: the shorter one has ended, or both ran for the same time
    and only the other still runs. Equal predictions count half. In O(n log n).

    Parameters
    ----------
    predicted : array of float, one value per job
        Predicted duration; NaN = the job is left out. [s]
    observed : array of float, same length
        Duration, or how long a censored job is known to have run; NaN = the job is left out. [s]
    is_censored : array of bool, same length, optional
        Whether the job may run on; by default none.

    Returns
    -------
    float or None
        None where no pair can be compared.

    Raises
    ------
    ValueError
        If the lengths differ.

    References
    ----------
    .. [1] F. E. Harrell et al., "Evaluating the Yield of Medical Tests", JAMA 1982,
       doi:10.1001/jama.1982.03320430047030.

    Examples
    --------
    >>> concordance([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.6666666666666666
    >>> concordance([1.0, 2.0, 3.0], [10.0, 30.0, 20.0], [False, False, True])  # the third may outrun the second
    1.0
    """
    guess, times = np.asarray(predicted, dtype=np.float64), np.asarray(observed, dtype=np.float64)
    censored = np.zeros(times.shape, dtype=bool) if is_censored is None else np.asarray(is_censored, dtype=bool)
    if guess.shape != times.shape or censored.shape != times.shape:
        msg = f"concordance: {guess.shape} predictions for {times.shape} durations; expected one for each."
        raise ValueError(msg)
    usable = np.isfinite(guess) & np.isfinite(times)
    guess, times, censored = guess[usable], times[usable], censored[usable]
    ranks = np.unique(guess, return_inverse=True)[1].astype(np.int64)
    # From the longest: at equal times a censored job outlives an ended one, so it comes first.
    order = np.lexsort((~censored, -times))
    right, equal, pairs = _count_pairs(ranks[order], times[order], censored[order])
    return (right + equal / 2) / pairs if pairs else None


@njit(cache=True)
def _count_pairs(
    ranks: NDArray[np.int64], times: NDArray[np.float64], censored: NDArray[np.bool_]
) -> tuple[int, int, int]:
    """Pairs in order, pairs with equal predictions, comparable pairs; rows from the longest, censored first."""
    num_ranks = 1 + (ranks.max() if len(ranks) else 0)
    tree = np.zeros(num_ranks + 1, np.int64)  # Fenwick: how many longer jobs have a rank up to each
    held = np.zeros(num_ranks, np.int64)
    right, equal, pairs, added = 0, 0, 0, 0
    begin = 0
    while begin < len(ranks):
        stop = begin
        while stop < len(ranks) and times[stop] == times[begin] and censored[stop] == censored[begin]:
            stop += 1
        if not censored[begin]:
            for row in range(begin, stop):
                lower, place = 0, ranks[row] + 1
                while place > 0:
                    lower += tree[place]
                    place -= place & -place
                equal += held[ranks[row]]
                right += added - lower
                pairs += added
        for row in range(begin, stop):
            held[ranks[row]] += 1
            added += 1
            place = ranks[row] + 1
            while place <= num_ranks:
                tree[place] += 1
                place += place & -place
        begin = stop
    return right, equal, pairs
