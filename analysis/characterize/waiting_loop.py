"""Compiled loop of `analysis.characterize.waiting`; numba is imported with this module, when its table is asked for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analysis.characterize.look_back_loop import compiled

__all__ = ["enough_before"]

Ints = NDArray[np.int64]


@compiled
def enough_before(
    free: tuple[Ints, Ints], asked: Ints, rank: Ints, moments: Ints, order: Ints
) -> tuple[NDArray[np.bool_], Ints]:
    """Whether enough is free at a moment of each job, and how long enough has been free before it.

    Parameters
    ----------
    free : tuple of two arrays of int
        Instants, ascending, and what is free from each on; the first is not after any moment.
    asked : array of int
        What jobs ask for, ascending.
    rank, moments : array of int, a value per job
        Place in ``asked``; moment in the unit of the instants.
    order : array of int
        Jobs by their moment.

    Returns
    -------
    tuple of two arrays, a value per job
        Whether enough is free; and the time since the first instant with enough free, up to the moment.
    """
    times, level = free
    reached, is_enough, before = np.zeros_like(asked), np.zeros(len(rank), np.bool_), np.zeros_like(moments)
    at = 0
    for job in order:
        while at + 1 < len(times) and times[at + 1] <= moments[job]:
            gap, place = times[at + 1] - times[at], 0
            while place < len(asked) and asked[place] <= level[at]:
                reached[place] += gap
                place += 1
            at += 1
        is_enough[job] = asked[rank[job]] <= level[at]
        before[job] = reached[rank[job]] + (moments[job] - times[at] if is_enough[job] else 0)
    return is_enough, before
