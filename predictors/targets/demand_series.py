"""Demand of a cluster as one number per hour, with gaps as null: from a Trace, or from a table of times and values."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.running import gpu_intervals, meta_window
from analysis.errors import HindcastError, UnknownNameError, UsageError
from analysis.frames import to_polars
from analysis.schema import TIME
from analysis.trace import Trace

__all__ = ["HOUR_US", "SERIES", "as_hours", "busy_gpus", "demand_series"]

HOUR_US: Final = 3_600_000_000
#: Columns of a demand series.
SERIES: Final = {"time": TIME, "value": pl.Float64()}
#: No series is longer: a stray date would make one of millions of hours. [hours]
MOST_HOURS: Final = 100 * 366 * 24


def demand_series(table: Any, *, time: str = "time", value: str = "value") -> pl.DataFrame:
    """Bring observations to one mean per hour.

    Parameters
    ----------
    table : DataFrame of polars or pandas, or Trace
        One row per observation, at any pace and in any order; of a Trace see ``busy_gpus``.
    time : str, default "time"
        Column of datetimes or ISO text; without a zone they are read as UTC.
    value : str, default "value"
        Column of what was busy, at least 0; null and NaN are missing, never 0.

    Returns
    -------
    DataFrame, one row per hour from the first to the last with observations
        ``time`` (where the hour begins) and ``value`` (mean of its observations). Null in an hour that has less than
        half as many observations as the median hour with any: what is seen of it is too little to stand for it.

    Raises
    ------
    UnknownNameError
        If a column is not there.
    UsageError
        If times are no datetimes, a value is below 0, or the table spans more than a century.
    HindcastError
        If no row has both a time and a value.

    Examples
    --------
    >>> from datetime import datetime
    >>> times = [datetime(2024, 1, 1, 0, 10), datetime(2024, 1, 1, 0, 50), datetime(2024, 1, 1, 2)]
    >>> seen = pl.DataFrame({"time": times, "value": [2.0, 4.0, 7.0]})
    >>> demand_series(seen)["value"].to_list()
    [3.0, None, 7.0]
    """
    if isinstance(table, Trace):
        return busy_gpus(table)
    seen = _observed(to_polars(table), time=time, value=value)
    hours = seen.group_by(pl.col("time").dt.truncate("1h")).agg(pl.col("value").mean(), num=pl.len()).sort("time")
    enough = 2 * hours["num"] >= hours["num"].median()
    hours = hours.select("time", value=pl.when(enough).then("value"))
    span = (hours["time"][-1] - hours["time"][0]).total_seconds() / 3600
    if span > MOST_HOURS:
        first, last = hours["time"][0], hours["time"][-1]
        msg = f"demand: times from {first} to {last}; expected less than a century: a date is wrong."
        raise UsageError(msg)
    return hours.upsample("time", every="1h").select(pl.col(name).cast(dtype) for name, dtype in SERIES.items())


def _observed(table: pl.DataFrame, *, time: str, value: str) -> pl.DataFrame:
    """Observations with a time and a value, in UTC."""
    for name in (time, value):
        if name not in table.columns:
            raise UnknownNameError(kind="column of the demand table", found=name, known=table.columns)
    seen = table.select(time=_times(table[time], time), value=_numbers(table[value], value)).drop_nulls()
    if not seen.height:
        msg = f"demand: none of {table.height} rows has both a {time} and a {value}; a forecast needs some past."
        raise HindcastError(msg)
    below = seen.filter(pl.col("value") < 0)
    if below.height:
        msg = (
            f"demand: {below.height} of {seen.height} values of {value!r} are below 0 (the least is "
            f"{below['value'].min()!r}); expected what is busy, at least 0, and null where it is not known."
        )
        raise UsageError(msg)
    return seen


def _times(column: pl.Series, name: str) -> pl.Series:
    if column.dtype == pl.String:
        try:
            column = column.str.to_datetime(time_unit="us")
        except pl.exceptions.PolarsError as error:
            msg = f"demand: the column {name!r} holds text that is no time ({str(error).splitlines()[0][:80]})."
            raise UsageError(msg) from error
    if not isinstance(column.dtype, pl.Datetime):
        msg = f"demand: the column {name!r} has dtype {column.dtype}; expected datetimes."
        raise UsageError(msg)
    zoned = column.dt.replace_time_zone("UTC") if column.dtype.time_zone is None else column
    return zoned.dt.convert_time_zone("UTC").dt.cast_time_unit("us")


def _numbers(column: pl.Series, name: str) -> pl.Series:
    if not (column.dtype.is_numeric() or column.dtype == pl.Null):
        msg = f"demand: the column {name!r} has dtype {column.dtype}; expected numbers."
        raise UsageError(msg)
    number = column.cast(pl.Float64)
    return number.to_frame().select(pl.when(pl.col(number.name).is_finite()).then(number.name)).to_series()


def busy_gpus(trace: Trace) -> pl.DataFrame:
    """GPUs held by jobs, time-weighted mean of every full hour of a Trace.

    Parameters
    ----------
    trace : Trace
        Its jobs (and attempts) say when GPUs were held; see ``analysis.characterize.running.gpu_intervals``.

    Returns
    -------
    DataFrame, one row per full hour of the window
        ``time``, ``value`` [GPUs]. Jobs that began before the log does are not seen: its first days are too low where
        the source cuts them off.

    Raises
    ------
    HindcastError
        If no GPU job has known times, or the log covers no full hour.
    """
    held = gpu_intervals(trace, attempts=trace.attempts, window=meta_window(trace))
    if not held.height:
        msg = "demand: no GPU job of the trace has a known start and end, so GPUs in use over time are not known."
        raise HindcastError(msg)
    begin, end = int(held["begin_us"].min()), int(held["end_us"].max())  # type: ignore[arg-type]
    edges = np.arange(-(-begin // HOUR_US), end // HOUR_US + 1) * HOUR_US
    if len(edges) < 2:
        msg = "demand: the trace covers no full hour; a forecast needs at least one."
        raise HindcastError(msg)
    changes = pl.concat(
        [held.select(at="begin_us", milli="milli_gpus"), held.select(at="end_us", milli=-pl.col("milli_gpus"))]
    )
    steps = changes.group_by("at").agg(pl.col("milli").sum()).sort("at")
    at, level = steps["at"].to_numpy(), np.cumsum(steps["milli"].to_numpy())
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(at).astype(np.float64))])
    mean = np.diff(np.interp(edges, at, area)) / HOUR_US / 1000
    time = pl.Series(edges[:-1]).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    return pl.DataFrame({"time": time, "value": np.maximum(mean, 0.0)}, schema=SERIES)


def as_hours(series: Any) -> tuple[NDArray[np.float64], int]:
    """Values of a series, NaN where null, and the hour (since 1970) of the first.

    Raises
    ------
    HindcastError
        What ``demand_series`` raises.
    """
    table = demand_series(series)
    first = table["time"].dt.epoch("us")[0] // HOUR_US
    return table["value"].fill_null(np.nan).to_numpy(), int(first)
