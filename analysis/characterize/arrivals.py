"""When jobs arrive: by hour, weekday and month in the log's own time zone, and over the whole log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import polars as pl

from analysis.characterize.buckets import MAX_BINS, bin_width, conform, grouped_schema
from analysis.characterize.inputs import SLOT_S, SUBMISSION_TICKS, SUBMISSIONS
from analysis.characterize.prepare import Facts
from analysis.characterize.registry import characterization
from analysis.errors import UsageError
from analysis.metrics import S_PER_H, US_PER_S
from analysis.schema import TIME
from analysis.trace import Trace

__all__ = ["arrivals_by_hour", "arrivals_by_month", "arrivals_by_weekday", "arrivals_over_time"]

WEEKLY_SCHEMA: Final = {
    "weekday": pl.Int8(),
    "hour": pl.Int8(),
    "num_hours": pl.Int64(),
    "num_jobs": pl.Int64(),
    "jobs_per_hour": pl.Float64(),
    "gpu_hours": pl.Float64(),
}
DAILY: Final = {
    "num_days": pl.Int64(),
    "num_jobs": pl.Int64(),
    "jobs_per_day": pl.Float64(),
    "num_gpus": pl.Float64(),
    "gpu_hours": pl.Float64(),
}
WEEKDAY_SCHEMA: Final = {"weekday": pl.Int8(), **DAILY}
MONTH_SCHEMA: Final = {"month": pl.Date(), **DAILY}
OVER_TIME_SCHEMA: Final = {
    "time": TIME,
    "bin_s": pl.Float64(),
    "num_jobs": pl.Int64(),
    "num_gpus": pl.Float64(),
    "gpu_hours": pl.Float64(),
}
RELATIVE_CLOCK: Final = "Times count from the start of the log, so hours of the day and weekdays mean nothing."
SUMS: Final = ("num_jobs", "num_gpus", "gpu_hours")


def _clock_options(trace: Trace) -> dict[str, Any]:
    return {"time_zone": trace.meta.time_zone, "clock": trace.meta.clock}


@characterization(
    "arrivals_by_hour",
    inputs=(SUBMISSIONS,),
    title="Arrivals by hour and weekday",
    definition=(
        "Submissions per hour of the week, in the log's time zone: the number of jobs divided by how often that "
        "hour occurs between the first and the last submission (calendar hours touched). GPU-hours: of the jobs "
        "submitted then."
    ),
    needs=("submit_time",),
    empty_means=RELATIVE_CLOCK,
    options=_clock_options,
)
def arrivals_by_hour(
    submissions: pl.DataFrame, *, by: tuple[str, ...] = (), time_zone: str = "UTC", clock: str = "absolute"
) -> pl.DataFrame:
    """Submissions by weekday and hour of the day; a null ``submit_time`` counts nowhere.

    With clock "relative" neither hour nor weekday means anything, and the table is empty.

    Returns
    -------
    DataFrame, a row per hour of the week that occurs
        weekday (1 = Monday), hour (0-23), num_hours (how often it occurs), num_jobs, jobs_per_hour, gpu_hours.
    """
    schema = grouped_schema(by, WEEKLY_SCHEMA)
    if clock == "relative" or not submissions.height:
        return pl.DataFrame(schema=schema)
    keys = {"weekday": pl.col("local").dt.weekday(), "hour": pl.col("local").dt.hour()}
    local = _local(submissions, time_zone)
    calendar = (
        _calendar(local, "1h", time_zone)
        .group_by([expr.alias(name) for name, expr in keys.items()])
        .agg(num_hours=pl.len())
    )
    table = _on_calendar(local.with_columns(**keys), calendar, by=by, keys=("weekday", "hour"))
    table = table.with_columns(jobs_per_hour=pl.col("num_jobs") / pl.col("num_hours"))
    return conform(table, schema)


@characterization(
    "arrivals_by_weekday",
    inputs=(SUBMISSIONS,),
    title="Arrivals by weekday",
    definition=(
        "Submissions per day of the week, in the log's time zone: the number of jobs divided by how often that day "
        "occurs between the first and the last submission (calendar days touched). GPUs: asked for, summed over jobs."
    ),
    needs=("submit_time",),
    empty_means=RELATIVE_CLOCK,
    options=_clock_options,
)
def arrivals_by_weekday(
    submissions: pl.DataFrame, *, by: tuple[str, ...] = (), time_zone: str = "UTC", clock: str = "absolute"
) -> pl.DataFrame:
    """Submissions by day of the week; a null ``submit_time`` counts nowhere.

    Returns
    -------
    DataFrame, a row per weekday that occurs
        weekday (1 = Monday), num_days (how often it occurs), num_jobs, jobs_per_day, num_gpus (asked for), gpu_hours.
    """
    schema = grouped_schema(by, WEEKDAY_SCHEMA)
    if clock == "relative":
        return pl.DataFrame(schema=schema)
    return _by_day(submissions, weekday=pl.col("local").dt.weekday(), by=by, time_zone=time_zone, schema=schema)


@characterization(
    "arrivals_by_month",
    inputs=(SUBMISSIONS,),
    title="Arrivals by month",
    definition=(
        "Submissions per calendar month in the log's time zone, and per day of the month that lies between the first "
        "and the last submission. GPUs: asked for, summed over jobs."
    ),
    needs=("submit_time",),
    empty_means="The dates of the log mean nothing, so there are no months.",
    options=_clock_options,
)
def arrivals_by_month(
    submissions: pl.DataFrame, *, by: tuple[str, ...] = (), time_zone: str = "UTC", clock: str = "absolute"
) -> pl.DataFrame:
    """Submissions by calendar month; a null ``submit_time`` counts nowhere.

    Returns
    -------
    DataFrame, a row per month that the log touches
        month (its first day), num_days (that the log touches), num_jobs, jobs_per_day, num_gpus (asked for), gpu_hours.
        Empty where the dates mean nothing (clock "clock_only" or "relative").
    """
    schema = grouped_schema(by, MONTH_SCHEMA)
    if clock != "absolute":
        return pl.DataFrame(schema=schema)
    month = pl.col("local").dt.date().dt.truncate("1mo")
    return _by_day(submissions, month=month, by=by, time_zone=time_zone, schema=schema)


def _by_day(
    submissions: pl.DataFrame, *, by: tuple[str, ...], time_zone: str, schema: dict[str, pl.DataType], **key: pl.Expr
) -> pl.DataFrame:
    if not submissions.height:
        return pl.DataFrame(schema=schema)
    local = _local(submissions, time_zone)
    calendar = (
        _calendar(local, "1d", time_zone)
        .group_by([expr.alias(name) for name, expr in key.items()])
        .agg(num_days=pl.len())
    )
    table = _on_calendar(local.with_columns(**key), calendar, by=by, keys=tuple(key))
    return conform(table.with_columns(jobs_per_day=pl.col("num_jobs") / pl.col("num_days")), schema)


def _local(submissions: pl.DataFrame, time_zone: str) -> pl.DataFrame:
    """Jobs, GPUs and GPU-hours with the local time at which the slot begins."""
    instant = pl.from_epoch(pl.col("slot") * SLOT_S, time_unit="s").dt.replace_time_zone("UTC")
    return _measures(submissions).with_columns(local=instant.dt.convert_time_zone(time_zone))


def _measures(cube: pl.DataFrame) -> pl.DataFrame:
    return cube.with_columns(
        num_gpus=pl.col("sum_milli_gpus") / 1000, gpu_hours=pl.col("sum_gpu_us") / US_PER_S / S_PER_H
    )


def _calendar(local: pl.DataFrame, every: str, time_zone: str) -> pl.DataFrame:
    """Begin of each hour or day from the first to the last submission."""
    first, last = local.select(pl.col("local").min().alias("a"), pl.col("local").max().alias("b")).row(0)
    begin = first.replace(minute=0) if every == "1h" else first.replace(hour=0, minute=0)
    return pl.datetime_range(begin, last, every, time_zone=time_zone, eager=True).alias("local").to_frame()


def _on_calendar(
    local: pl.DataFrame, calendar: pl.DataFrame, *, by: tuple[str, ...], keys: tuple[str, ...]
) -> pl.DataFrame:
    """Sums of each group for every entry of the calendar, 0 where nothing was submitted."""
    counts = local.group_by([*by, *keys]).agg(pl.col(SUMS).sum())
    frame = local.select(by).unique().join(calendar, how="cross") if by else calendar
    table = frame.join(counts, on=[*by, *keys], how="left", nulls_equal=True)
    return table.with_columns(pl.col(SUMS).fill_null(0)).sort([*by, *keys])


@characterization(
    "arrivals_over_time",
    inputs=(SUBMISSION_TICKS,),
    title="Arrivals over time",
    definition="Jobs submitted, GPUs they ask for and GPU-hours they use, per bin of the log's whole length.",
    needs=("submit_time",),
)
def arrivals_over_time(
    submissions: pl.DataFrame, *, by: tuple[str, ...] = (), facts: Facts, max_bins: int = 200
) -> pl.DataFrame:
    """Submissions per bin of equal, round length from the first to the last one; at most ``max_bins`` (1000) bins.

    A null ``submit_time`` counts nowhere. All groups share the bins.

    Returns
    -------
    DataFrame, a row per bin, empty ones included
        time (where the bin begins), bin_s (its length) [s], num_jobs, num_gpus (asked for), gpu_hours.

    Raises
    ------
    UsageError
        If more than 1000 bins are asked for.
    """
    if max_bins > MAX_BINS:
        msg = f"arrivals_over_time: max_bins is {max_bins}; expected at most {MAX_BINS}."
        raise UsageError(msg)
    schema = grouped_schema(by, OVER_TIME_SCHEMA)
    if facts.first_submit_us is None or facts.last_submit_us is None or not submissions.height:
        return pl.DataFrame(schema=schema)
    length_us = facts.last_submit_us - facts.first_submit_us
    # One microsecond more, so that the last submission falls into a bin.
    width = bin_width((length_us + 1) / US_PER_S, max_bins=max_bins)
    ticks = width * US_PER_S // facts.tick_us
    bins = pl.DataFrame({"bin": range(length_us // (width * US_PER_S) + 1)}, schema={"bin": pl.Int64()})
    counts = _measures(submissions).with_columns(bin=pl.col("tick") // ticks)
    first = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=facts.first_submit_us)
    table = _on_calendar(counts, bins, by=by, keys=("bin",)).with_columns(
        time=pl.lit(first, TIME) + pl.duration(seconds=pl.col("bin") * width), bin_s=pl.lit(float(width))
    )
    return conform(table, schema)
