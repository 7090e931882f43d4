"""When jobs arrive: by hour and weekday in the log's own time zone, and over the whole log."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from analysis.characterize.buckets import conform
from analysis.characterize.registry import characterization
from analysis.metrics import S_PER_H, gpu_s
from analysis.schema import TIME
from analysis.trace import Trace

__all__ = ["MAX_BINS", "arrivals_by_hour", "arrivals_over_time", "bin_width"]

WEEKLY_SCHEMA: Final = {
    "weekday": pl.Int8(),
    "hour": pl.Int8(),
    "num_hours": pl.Int64(),
    "num_jobs": pl.Int64(),
    "jobs_per_hour": pl.Float64(),
    "gpu_hours": pl.Float64(),
}
OVER_TIME_SCHEMA: Final = {
    "time": TIME,
    "bin_s": pl.Float64(),
    "num_jobs": pl.Int64(),
    "num_gpus": pl.Float64(),
    "gpu_hours": pl.Float64(),
}
#: At most this many points in a table over time.
MAX_BINS: Final = 1000
NICE_WIDTHS_S: Final = (
    *(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800),
    *(3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600),
)


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


def _clock_options(trace: Trace) -> dict[str, Any]:
    return {"time_zone": trace.meta.time_zone, "clock": trace.meta.clock}


@characterization(
    "arrivals_by_hour",
    title="Arrivals by hour and weekday",
    definition=(
        "Submissions per hour of the week, in the log's time zone: the number of jobs divided by how often that "
        "hour occurs between the first and the last submission (calendar hours touched). GPU-hours: of the jobs "
        "submitted then."
    ),
    needs=("submit_time",),
    empty_means="Times count from the start of the log, so hours of the day and weekdays mean nothing.",
    options=_clock_options,
)
def arrivals_by_hour(jobs: pl.DataFrame, *, time_zone: str = "UTC", clock: str = "absolute") -> pl.DataFrame:
    """Submissions by weekday and hour of the day.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of the jobs table; a null ``submit_time`` counts nowhere.
    time_zone : str
        IANA name of the zone in which hours and weekdays are read.
    clock : {"absolute", "clock_only", "relative"}
        With "relative" neither hour nor weekday means anything, and the table is empty.

    Returns
    -------
    DataFrame, a row per hour of the week that occurs
        weekday (1 = Monday), hour (0-23), num_hours (how often it occurs), num_jobs, jobs_per_hour, gpu_hours.
    """
    submitted = jobs.filter(pl.col("submit_time").is_not_null()).with_columns(gpu_s())
    if clock == "relative" or not submitted.height:
        return pl.DataFrame(schema=WEEKLY_SCHEMA)
    local = submitted.with_columns(local=pl.col("submit_time").dt.convert_time_zone(time_zone))
    counts = local.group_by(*_week_hour()).agg(num_jobs=pl.len(), gpu_hours=pl.col("gpu_s").sum() / S_PER_H)
    first, last = local.select(pl.col("local").min().alias("a"), pl.col("local").max().alias("b")).row(0)
    hours = pl.datetime_range(_whole_hour(first), last, "1h", time_zone=time_zone, eager=True).alias("local")
    table = (
        hours.to_frame()
        .group_by(*_week_hour())
        .agg(num_hours=pl.len())
        .join(counts, on=["weekday", "hour"], how="left")
        .with_columns(pl.col("num_jobs").fill_null(0), pl.col("gpu_hours").fill_null(0.0))
        .with_columns(jobs_per_hour=pl.col("num_jobs") / pl.col("num_hours"))
    )
    return conform(table.sort("weekday", "hour"), WEEKLY_SCHEMA)


def _week_hour() -> tuple[pl.Expr, pl.Expr]:
    return pl.col("local").dt.weekday().alias("weekday"), pl.col("local").dt.hour().alias("hour")


def _whole_hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


@characterization(
    "arrivals_over_time",
    title="Arrivals over time",
    definition="Jobs submitted, GPUs they ask for and GPU-hours they use, per bin of the log's whole length.",
    needs=("submit_time",),
)
def arrivals_over_time(jobs: pl.DataFrame, *, max_bins: int = 200) -> pl.DataFrame:
    """Submissions per bin of equal, round length from the first to the last one.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of the jobs table; a null ``submit_time`` counts nowhere.
    max_bins : int, default 200
        Upper bound of the number of bins.

    Returns
    -------
    DataFrame, a row per bin, empty ones included
        time (where the bin begins), bin_s (its length) [s], num_jobs, num_gpus (asked for), gpu_hours.
    """
    submitted = jobs.filter(pl.col("submit_time").is_not_null()).with_columns(gpu_s())
    if not submitted.height:
        return pl.DataFrame(schema=OVER_TIME_SCHEMA)
    first, last = submitted.select(pl.col("submit_time").min().alias("a"), pl.col("submit_time").max().alias("b")).row(
        0
    )
    # One microsecond more, so that the last submission falls into a bin.
    width = bin_width((last - first).total_seconds() + 1e-6, max_bins=max_bins)
    place = ((pl.col("submit_time") - first).dt.total_microseconds() // (width * 1_000_000)).alias("bin")
    counts = submitted.group_by(place).agg(
        num_jobs=pl.len(), num_gpus=pl.col("num_gpus").sum(), gpu_hours=pl.col("gpu_s").sum() / S_PER_H
    )
    num_bins = int((last - first) / timedelta(seconds=width)) + 1
    table = (
        pl.DataFrame({"bin": range(num_bins)})
        .join(counts, on="bin", how="left")
        .with_columns(
            pl.col("num_jobs", "num_gpus", "gpu_hours").fill_null(0),
            time=pl.lit(first) + pl.duration(seconds=pl.col("bin") * width),
            bin_s=pl.lit(float(width)),
        )
    )
    return conform(table.sort("bin"), OVER_TIME_SCHEMA)
