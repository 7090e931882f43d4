"""Quantiles and distributions of counted values, over a cube that is sorted by the value in each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import BUCKET, GPU_BUCKETS, log_grid

__all__ = ["grid_shares", "group_quantiles", "with_all_gpu_jobs"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def group_quantiles(
    table: pl.DataFrame,
    keys: Sequence[str],
    *,
    value: str,
    weight: str,
    at: Mapping[str, float],
    interpolated: bool = True,
) -> pl.DataFrame:
    """Quantiles of counted values in every group: many groups at once, by search in the running sum of the weight.

    Parameters
    ----------
    table : DataFrame
        Sorted by ``keys`` and ``value``, no null values.
    keys : sequence of str
        Columns of the groups; none = one group.
    value, weight : str
        What is ordered, and how often it occurs or what it weighs (integers).
    at : mapping of str to float
        Column of the result -> probability (0-1).
    interpolated : bool, default True
        Linear interpolation between the occurrences (type 7 of Hyndman and Fan); else the smallest value at or below
        which at least that share of the weight lies.

    Returns
    -------
    DataFrame, a row per group in order
        ``keys`` and the quantiles; null in a group without weight.

    Examples
    --------
    >>> table = pl.DataFrame({"g": ["a", "a", "a", "b"], "x": [1.0, 2.0, 10.0, 5.0], "n": [1, 1, 2, 9]})
    >>> group_quantiles(table, ["g"], value="x", weight="n", at={"median": 0.5}).rows()
    [('a', 6.0), ('b', 5.0)]
    """
    lengths = table.group_by(keys, maintain_order=True).agg(n=pl.len()) if keys else table.select(n=pl.len())
    ends = np.cumsum(lengths["n"].to_numpy().astype(np.int64))
    values = np.append(table[value].to_numpy(), np.nan)
    reached = np.concatenate([[0], np.cumsum(table[weight].to_numpy())]).astype(np.int64)
    before, after = reached[np.concatenate([[0], ends[:-1]]).astype(np.int64)] if len(ends) else ends, reached[ends]
    found = {}
    for name, share in at.items():
        if interpolated:
            result = _between(values, reached[1:], before, after, share)
        else:
            # A relative hair of slack: 0.2 of 10 must be met by 2, whatever the rounding of the product.
            target = before + np.maximum(np.ceil((after - before) * (share * (1 - 1e-12))).astype(np.int64), 1)
            result = values[np.searchsorted(reached[1:], target)]
        found[name] = pl.Series(np.where(after > before, result, np.nan)).fill_nan(None)
    return lengths.drop("n").with_columns(**found) if keys else pl.DataFrame(found)


def _between(values: Floats, reached: Ints, before: Ints, after: Ints, share: float) -> Floats:
    place = (after - before - 1) * share
    # A hair beside a whole place is that place: 0.9 of 11 values is the tenth, whatever the rounding.
    below = np.floor(place + 1e-9)
    rest = place - below
    rest[np.abs(rest) < 1e-9] = 0
    first = before + below.astype(np.int64) + 1
    low = values[np.searchsorted(reached, first)]
    high = values[np.searchsorted(reached, np.minimum(first + 1, after))]
    result: Floats = low + (high - low) * rest
    return result


def grid_shares(
    cube: pl.DataFrame, *, by: Sequence[str], value: str, weights: Sequence[tuple[str, str]]
) -> pl.DataFrame:
    """Cumulative distribution on the log grid of `log_grid`, which all groups share.

    Parameters
    ----------
    cube : DataFrame
        Columns ``by``, ``value`` (no nulls) and the weights.
    by : sequence of str
        Columns of the groups.
    value : str
        What is distributed; values below 1 count at 1.
    weights : sequence of (str, str)
        Name of each weight in the result, and its column (integers).

    Returns
    -------
    DataFrame, a row per group, weight and grid point
        ``by``, weight (str), ``value`` (grid point), share (0-1); a group without weight has no rows of that weight.
    """
    largest = cube[value].max()
    grid = log_grid(float(largest) if isinstance(largest, int | float) else 1.0)
    points = pl.DataFrame({value: grid}).with_row_index("place").with_columns(pl.col("place").cast(pl.Int64))
    place = pl.Series("place", grid.searchsorted(cube[value].to_numpy(), side="left"), dtype=pl.Int64)
    columns = [column for _, column in weights]
    held = cube.with_columns(place).group_by([*by, "place"]).agg(pl.col(columns).sum())
    frame = held.select(by).unique().join(points, how="cross") if by else points
    keys = [*by, "place"]
    filled = frame.join(held, on=keys, how="left", nulls_equal=True).sort(keys)
    parts = []
    for name, column in weights:
        reached, total = pl.col(column).fill_null(0).cum_sum(), pl.col(column).sum()
        shares = filled.with_columns(
            _over(reached, by).alias("reached"), _over(total, by).alias("total"), weight=pl.lit(name)
        )
        parts.append(shares.filter(pl.col("total") > 0))
    return (
        pl.concat(parts).with_columns(share=pl.col("reached") / pl.col("total")).select(*by, "weight", value, "share")
    )


def with_all_gpu_jobs(cube: pl.DataFrame) -> pl.DataFrame:
    """Add the GPU jobs together as bucket "all" to a cube that has ``bucket``."""
    together = cube.filter(pl.col("bucket").is_in(GPU_BUCKETS)).with_columns(bucket=pl.lit("all", BUCKET))
    return pl.concat([together, cube])


def _over(expr: pl.Expr, by: Sequence[str]) -> pl.Expr:
    return expr.over(by) if by else expr
