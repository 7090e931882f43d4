"""GPUs allocated against the GPUs that there are, by type of GPU: mean, peak, and over time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from analysis.characterize.buckets import MAX_BINS, conform, grouped_schema
from analysis.characterize.demand import share_of
from analysis.characterize.prepare import Facts
from analysis.characterize.registry import characterization
from analysis.characterize.running import Window, meta_window
from analysis.characterize.ticks import MAX_TICKS, TICKS, TickSweep, tick_sweeps
from analysis.metrics import S_PER_H, US_PER_S
from analysis.schema import TIME
from analysis.trace import Trace

__all__ = ["allocation_by_gpu_type", "allocation_over_time", "gpus_by_type"]

TYPE_SCHEMA: Final = {
    "gpu_type": pl.String(),
    "num_jobs": pl.Int64(),
    "total_gpus": pl.Float64(),
    "capacity_share": pl.Float64(),
    "mean_gpus": pl.Float64(),
    "peak_gpus": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
    "gpu_allocation": pl.Float64(),
    "peak_allocation": pl.Float64(),
}
OVER_TIME_SCHEMA: Final = {
    "gpu_type": pl.String(),
    "time": TIME,
    "bin_s": pl.Float64(),
    "mean_gpus": pl.Float64(),
    "max_gpus": pl.Float64(),
    "total_gpus": pl.Float64(),
    "gpu_allocation": pl.Float64(),
}
TOTALS_SCHEMA: Final = {"gpu_type": pl.String(), "total_gpus": pl.Float64()}
NO_TIMES: Final = "The log does not say when GPU jobs started and ended."
PEAK_NOTE: Final = (
    f"The peak is the highest mean of a tick, the smallest round time of which {MAX_TICKS} cover the log."
)
SHARE_NOTE: Final = (
    "GPUs held by jobs (allocated, not necessarily busy). Shares are of the GPUs of that type in the nodes table; "
    "above 1, or far below it, they say that the log and its list of nodes do not cover the same machines. A type that "
    "is not said is null; if no job says its type, that row has all GPUs."
)


def gpus_by_type(nodes: pl.DataFrame) -> pl.DataFrame:
    """Count the GPUs of each type; columns gpu_type (null = not said) and total_gpus, types without GPUs left out."""
    counted = nodes.filter(pl.col("num_gpus") > 0).group_by("gpu_type").agg(total_gpus=pl.col("num_gpus").sum())
    return conform(counted.sort("gpu_type", nulls_last=True), TOTALS_SCHEMA)


def _options(trace: Trace) -> dict[str, Any]:
    return {"window": meta_window(trace), "gpus": gpus_by_type(trace.nodes)}


def _totals(used: pl.DataFrame, gpus: pl.DataFrame | None) -> pl.DataFrame:
    """GPUs by type as far as they can be compared with the use: all under null where no job says its type."""
    known = pl.DataFrame(schema=TOTALS_SCHEMA) if gpus is None else gpus
    if used["gpu_type"].null_count() < used.height or not known.height:
        return known
    return known.select(gpu_type=pl.lit(None, pl.String), total_gpus=pl.col("total_gpus").sum())


@characterization(
    "allocation_by_gpu_type",
    inputs=(TICKS,),
    title="GPUs in use by type: mean, peak and share of what there is",
    definition=f"Time-weighted mean and peak over the whole window. {PEAK_NOTE} {SHARE_NOTE}",
    source="ours; the split by type as in Q. Weng et al., NSDI 2022, section 4",
    needs=("start_time", "num_gpus"),
    empty_means=NO_TIMES,
    options=_options,
    own_groups=("gpu_type",),
)
def allocation_by_gpu_type(
    ticks: pl.DataFrame,
    *,
    by: tuple[str, ...] = (),
    facts: Facts,
    window: Window = (None, None),
    gpus: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Mean and peak of the GPUs in use of each type, against those that there are.

    Parameters
    ----------
    window : pair of datetime, optional
        What the log covers; null = from the first to the last time in the jobs table.
    gpus : DataFrame, optional
        GPUs by type as `gpus_by_type` gives them; null = not known.

    Returns
    -------
    DataFrame, a row per type that jobs ran on (and, without a grouping, per type that there is)
        gpu_type (null = not said), num_jobs, total_gpus, capacity_share (of all GPUs), mean_gpus, peak_gpus, gpu_hours,
        gpu_time_share, gpu_allocation and peak_allocation (null where total_gpus is).
    """
    schema = grouped_schema(by, TYPE_SCHEMA)
    rows = [
        {**group, **_summed_up(sweep)}
        for group, sweep in tick_sweeps(ticks, keys=(*by, "gpu_type"), facts=facts, window=window)
    ]
    if not rows:
        return pl.DataFrame(schema=schema)
    names = [*by, "gpu_type", "num_jobs", "mean_gpus", "peak_gpus", "gpu_hours"]
    used = pl.DataFrame(rows, schema={name: schema[name] for name in names})
    totals = _totals(used, gpus)
    joined = used.join(totals, on="gpu_type", how="left" if by else "full", nulls_equal=True, coalesce=True)
    table = joined.with_columns(
        pl.col("num_jobs", "mean_gpus", "peak_gpus", "gpu_hours").fill_null(0),
        capacity_share=pl.col("total_gpus") / float(totals["total_gpus"].sum()) if totals.height else None,
        gpu_time_share=share_of("gpu_hours", by),
    ).with_columns(
        gpu_allocation=pl.col("mean_gpus") / pl.col("total_gpus"),
        peak_allocation=pl.col("peak_gpus") / pl.col("total_gpus"),
    )
    return conform(table.sort(*by, "gpu_type", nulls_last=True), schema)


def _summed_up(sweep: TickSweep) -> dict[str, float]:
    hours = float(sweep.edges[-1] - sweep.edges[0]) / US_PER_S / S_PER_H
    mean = sweep.mean()
    return {
        "num_jobs": sweep.num_jobs,
        "mean_gpus": mean,
        "peak_gpus": float(sweep.held.max()),
        "gpu_hours": mean * hours,
    }


@characterization(
    "allocation_over_time",
    inputs=(TICKS,),
    title="GPUs in use over time, by type",
    definition=f"Time-weighted mean and peak of each bin. {PEAK_NOTE} {SHARE_NOTE}",
    source="ours",
    needs=("start_time", "num_gpus"),
    empty_means=NO_TIMES,
    options=_options,
    own_groups=("gpu_type",),
)
def allocation_over_time(
    ticks: pl.DataFrame,
    *,
    by: tuple[str, ...] = (),
    facts: Facts,
    window: Window = (None, None),
    gpus: pl.DataFrame | None = None,
    max_bins: int = MAX_BINS // 2,
) -> pl.DataFrame:
    """GPUs in use of each type over time, in bins of equal, round length (at most ``max_bins``).

    Window and ``gpus`` are as in `allocation_by_gpu_type`.

    Returns
    -------
    DataFrame, a row per type and bin
        gpu_type (null = not said), time (where the bin begins), bin_s (its length) [s], mean_gpus, max_gpus,
        total_gpus, gpu_allocation (null where total_gpus is).
    """
    schema = grouped_schema(by, OVER_TIME_SCHEMA)
    tables = [
        pl.DataFrame(schema={name: schema[name] for name in schema if name not in ("total_gpus", "gpu_allocation")})
    ]
    for group, sweep in tick_sweeps(ticks, keys=(*by, "gpu_type"), facts=facts, window=window):
        binned = _binned(sweep, max_bins).with_columns(pl.lit(v).alias(k) for k, v in group.items())
        tables.append(conform(binned, tables[0].schema))
    table = pl.concat(tables)
    joined = table.join(_totals(table, gpus), on="gpu_type", how="left", nulls_equal=True)
    return conform(
        joined.with_columns(gpu_allocation=pl.col("mean_gpus") / pl.col("total_gpus")).sort(
            *by, "gpu_type", "time", nulls_last=True
        ),
        schema,
    )


def _binned(sweep: TickSweep, max_bins: int) -> pl.DataFrame:
    bins = sweep.bins(max_bins=max_bins)
    starts = np.searchsorted(sweep.edges, bins[:-1])
    return pl.DataFrame(
        {
            "time": pl.Series(bins[:-1]).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
            "bin_s": np.diff(bins) / US_PER_S,
            "mean_gpus": sweep.binned(sweep.held, bins),
            "max_gpus": np.maximum.reduceat(sweep.held, starts),
        }
    )
