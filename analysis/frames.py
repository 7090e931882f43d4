"""The edge: tables of other libraries in, polars inside."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import narwhals as nw
import polars as pl
import polars.selectors as cs

from analysis import schema
from analysis.errors import UsageError

__all__ = ["in_utc", "jobs_to_polars", "to_polars"]


def in_utc(time: datetime) -> datetime:
    """Give a naive time the zone UTC; an aware one stays."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def to_polars(frame: Any) -> pl.DataFrame:
    """Turn a pandas, polars or Arrow table, eager or lazy, into a polars DataFrame.

    Parameters
    ----------
    frame : DataFrame, LazyFrame, pyarrow Table, …
        Anything that narwhals knows. A pandas index is dropped; pandas' NaN means missing and becomes null.

    Returns
    -------
    polars.DataFrame
        The same rows in the same order.

    Raises
    ------
    UsageError
        If it is no table.

    Examples
    --------
    >>> import pandas as pd
    >>> to_polars(pd.DataFrame({"num_gpus": [1.0, None]}))["num_gpus"].to_list()
    [1.0, None]
    """
    if isinstance(frame, pl.DataFrame):
        return frame
    known = nw.from_native(frame, pass_through=True)
    if isinstance(known, nw.LazyFrame):
        return known.collect(backend="polars").to_native()  # type: ignore[no-any-return]
    if not isinstance(known, nw.DataFrame):
        msg = f"found a {type(frame).__name__}; expected a pandas, polars or Arrow table."
        raise UsageError(msg)
    table = known.to_polars()
    return table.with_columns(cs.float().fill_nan(None)) if known.implementation.is_pandas_like() else table


def jobs_to_polars(jobs: Any) -> pl.DataFrame:
    """Turn a jobs table of any library into polars, with the schema's dtypes for the columns that the schema has.

    What other libraries have no type for comes back as it was: pandas keeps enums as categories, lists, structs and
    booleans with nulls as objects.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        A jobs table, or some of its columns; more columns pass through. A polars table passes through as it is.

    Returns
    -------
    polars.DataFrame
        The same rows in the same order. A column that cannot be read as the schema's dtype keeps its own, so that
        whoever needs it can say what is wrong.

    Raises
    ------
    UsageError
        If it is no table.

    Examples
    --------
    >>> import pandas as pd
    >>> jobs = pd.DataFrame({"status": pd.Categorical(["failed", None]), "flags": [["carry_in"], []]})
    >>> jobs_to_polars(jobs).schema["status"] == schema.STATUS
    True
    """
    if isinstance(jobs, pl.DataFrame):
        return jobs
    table = to_polars(jobs)
    known = [name for name in table.columns if name in schema.JOBS]
    return table.with_columns(_as_schema_has_it(name, table[name], jobs) for name in known)


def _as_schema_has_it(name: str, column: pl.Series, jobs: Any) -> pl.Series:
    dtype = schema.JOBS[name]
    try:
        if str(getattr(jobs[name], "dtype", "")) == "object":
            # Narwhals makes text of pandas' objects; the objects themselves tell more.
            values = [_plain(value) for value in jobs[name]]
            told = pl.Series(name, values, dtype=None if name == "extra" else dtype, strict=False)
            return told.cast(dtype) if told.dtype == pl.Null else told
        if isinstance(dtype, pl.Datetime) and isinstance(column.dtype, pl.Datetime):
            zoned = column.dt.replace_time_zone("UTC") if column.dtype.time_zone is None else column
            return zoned.dt.convert_time_zone("UTC").dt.cast_time_unit("us")
        return column if name == "extra" else column.cast(dtype)
    except (pl.exceptions.PolarsError, TypeError, ValueError):
        return column


def _plain(value: Any) -> Any:
    """A cell of an object column: arrays as lists, a missing value as null."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return None if isinstance(value, float) and value != value else value
