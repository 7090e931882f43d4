"""The compiled walk through a forest: bits of leaves that a row may still reach."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["forest_pass"]

#: Place of the one bit that is set, by the top five bits of its product with _PRODUCT (de Bruijn).
_PRODUCT = np.uint32(0x077CB531)
_PLACES = np.empty(32, dtype=np.int64)
for _bit in range(32):
    _PLACES[((0x077CB531 << _bit) & 0xFFFFFFFF) >> 27] = _bit


def _compiled(function: Any) -> Any:
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # no folder can be written for the cache
        return njit(function)


@_compiled
def forest_pass(matrix: Any, base: Any, forest: Any, out: Any) -> None:
    """Sum the leaves of each row, tree after tree."""
    num_trees = forest.masks.shape[1]
    bits = np.empty(num_trees, dtype=np.uint32)
    for row in range(len(matrix)):
        bits[:] = 0xFFFFFFFF
        for place in range(len(forest.columns)):
            value = matrix[row, forest.columns[place]]
            if forest.is_moved[place]:
                value = value - base[row]
            mask = _mask_row(np.float64(value), forest, place)
            if mask >= 0:
                for tree in range(num_trees):
                    bits[tree] &= forest.masks[mask, tree]
        total = forest.start
        for tree in range(num_trees):
            lowest = bits[tree] & (~bits[tree] + np.uint32(1))
            total += forest.leaves[tree, _PLACES[np.uint32(lowest * _PRODUCT) >> np.uint32(27)]]
        out[row] = total


@_compiled
def _mask_row(value: float, forest: Any, place: int) -> int:
    """Row of the masks for a value of a feature; -1 where no test fails."""
    first, stop = forest.bounds[place], forest.bounds[place + 1]
    if np.isnan(value):
        return int(forest.unknown[place])
    if abs(value) <= 1e-35:  # as LightGBM reads it
        value = 0.0
    low, high = first, stop
    while low < high:
        middle = (low + high) // 2
        if forest.thresholds[middle] < value:
            low = middle + 1
        else:
            high = middle
    return int(low - 1) if low > first else -1
