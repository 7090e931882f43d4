"""What characterizations share: GPU-count buckets, kinds of jobs, round bin widths, log grids, result schemas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.schema import STATUS

__all__ = [
    "BUCKETS",
    "GPU_BUCKETS",
    "KINDS",
    "MAX_BINS",
    "WEIGHTS",
    "bin_width",
    "conform",
    "gpu_bucket",
    "grouped_schema",
    "job_kind",
    "log_grid",
]

#: Buckets of GPU jobs by whole-job GPU count; a fraction above 1 counts as the devices that it takes (1.5 as 2).
GPU_BUCKETS: Final = ("<1", "1", "2", "3-4", "5-8", ">8")
#: All labels of the ``bucket`` column, in order: "all" = all GPU jobs together, "0" = CPU jobs.
BUCKETS: Final = ("all", "0", *GPU_BUCKETS, "unknown")
BUCKET: Final = pl.Enum(BUCKETS)
#: What a share or quantile is weighted by: every job counts once, or by the GPU time that it used.
WEIGHTS: Final = ("jobs", "gpu_time")
WEIGHT: Final = pl.Enum(WEIGHTS)
KINDS: Final = ("gpu", "cpu", "unknown")
KIND: Final = pl.Enum(KINDS)

POINTS_PER_DECADE: Final = 20
#: At most this many points in a table over time.
MAX_BINS: Final = 1000
NICE_WIDTHS_S: Final = (
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800),
    *(3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600),
)


def gpu_bucket() -> pl.Expr:
    """GPU-count bucket of every job, an Enum of ``BUCKETS``; null GPUs are "unknown".

    Examples
    --------
    >>> jobs = pl.DataFrame({"num_gpus": [0.0, 0.46, 1.0, 1.5, 4.0, 16.0, None]})
    >>> jobs.select(gpu_bucket()).to_series().to_list()
    ['0', '<1', '1', '2', '3-4', '>8', 'unknown']
    """
    # Thousandths of a GPU, so that ten times 0.1 is one GPU and not a little more.
    milli = (pl.col("num_gpus") * 1000).round()
    # Counting the bounds that are passed is several times faster than a chain of texts.
    passed = pl.sum_horizontal((milli > bound).cast(pl.UInt8) for bound in (0, 999, 1000, 2000, 4000, 8000))
    # Places among the labels, of which the first is of no job.
    place = pl.when(milli.is_null()).then(BUCKETS.index("unknown")).otherwise(passed + 1)
    return place.cast(pl.UInt8).cat.to(BUCKET).alias("bucket")


def job_kind() -> pl.Expr:
    """Kind of every job: "gpu", "cpu" (0 GPUs) or "unknown" (the source does not say)."""
    gpus = pl.col("num_gpus")
    place = pl.when(gpus.is_null()).then(2).when(gpus > 0).then(0).otherwise(1)
    return place.cast(pl.UInt8).cat.to(KIND).alias("kind")


def bin_width(length_s: float, *, max_bins: int = MAX_BINS) -> int:
    """Smallest round width with which ``length_s`` falls into at most ``max_bins`` bins [s].

    Examples
    --------
    >>> bin_width(90 * 86400)
    10800
    """
    for width in NICE_WIDTHS_S:
        if length_s <= width * max_bins:
            return width
    return int(-(-length_s // (86400 * max_bins)) * 86400)


def conform(table: pl.DataFrame, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Bring a result table to exactly these columns, in this order and of these dtypes."""
    return table.select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def grouped_schema(by: Sequence[str], schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """Columns of a result table with the grouping first.

    Examples
    --------
    >>> list(grouped_schema(("vc",), {"num_jobs": pl.Int64()}))
    ['vc', 'num_jobs']
    """
    dtypes: dict[str, pl.DataType] = {"gpu_bucket": BUCKET, "status": STATUS}
    return {**{name: dtypes.get(name, pl.String()) for name in by}, **schema}


def log_grid(largest: float) -> NDArray[np.float64]:
    """Grid of 20 points per factor of ten, from 1 to the first point that is not below ``largest``.

    The points do not depend on the data, so that curves of several traces share them.
    """
    decades = math.log10(largest) if largest > 1 else 0.0
    steps = np.arange(math.ceil(decades * POINTS_PER_DECADE - 1e-9) + 1)
    grid: NDArray[np.float64] = 10.0 ** (steps / POINTS_PER_DECADE)
    if grid[-1] < largest:
        grid[-1] = largest
    return grid
