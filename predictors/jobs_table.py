"""What predictors take in: a jobs table of any origin, brought to the schema's types, with its labels told apart."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis import schema
from analysis.errors import SchemaError
from analysis.frames import jobs_to_polars

__all__ = ["FAILURES", "KILLS", "as_jobs", "is_failure", "is_killed", "is_known", "limits_s", "lower_bound_s"]

#: Statuses of a job that broke: its duration says when it broke, not how long such a job takes.
FAILURES: Final = ("failed", "node_fail")
#: Statuses of a job that somebody or its limit put an end to.
KILLS: Final = ("cancelled", "timeout")
#: The columns that a predictor ever reads; everything else passes through untouched.
READ: Final = tuple(
    name for name in schema.JOBS if name not in {"extra", "allowed_gpu_types", "eligible_time", "queueing_delay_s"}
)


def as_jobs(jobs: Any) -> pl.DataFrame:
    """Bring a jobs table to the schema's types; columns that are missing become null.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        Needs ``submit_time``; times without a zone are read as UTC. Without ``job_id`` the row number (from 1) is
        the id. A table without ``end_time`` is one whose ends are not known: its rows get the flag
        ``times_assumed``.

    Returns
    -------
    DataFrame, one row per job in the same order
        Every column that predictors read has the schema's dtype; NaN and infinities are null.

    Raises
    ------
    SchemaError
        If ``submit_time`` is missing or a column cannot be read as its type; all such columns at once.

    Examples
    --------
    >>> from datetime import datetime
    >>> as_jobs(pl.DataFrame({"submit_time": [datetime(2024, 1, 1)], "num_gpus": [2]}))["num_gpus"].to_list()
    [2.0]
    """
    table = jobs_to_polars(jobs)
    violations = {} if "submit_time" in table.columns else {"submit_time": "is missing; a prediction needs it"}
    columns: list[pl.Series] = []
    for name in READ:
        if name in table.columns:
            try:
                columns.append(_cast(table[name], name))
            except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
                violations[name] = (
                    f"has dtype {table.schema[name]}, which cannot be read as {schema.JOBS[name]} "
                    f"({str(error).splitlines()[0][:80]})"
                )
    if violations:
        raise SchemaError(table="jobs", violations=violations)
    missing = [pl.lit(None, dtype=schema.JOBS[name]).alias(name) for name in READ if name not in table.columns]
    return _fill(table.with_columns(*columns, *missing), given=table.columns)


def _fill(table: pl.DataFrame, *, given: list[str]) -> pl.DataFrame:
    """Fill the columns that may not be null."""
    flags = pl.col("flags").fill_null(pl.lit([], dtype=schema.JOBS["flags"]))
    if "end_time" not in given:
        flags = flags.list.concat(pl.lit(["times_assumed"], dtype=schema.JOBS["flags"]))
    table = table.with_columns(flags=flags, censoring=pl.col("censoring").fill_null("none"))
    if "job_id" not in given:
        table = table.with_columns(job_id=pl.int_range(1, pl.len() + 1).cast(pl.String))
    return table


def _cast(column: pl.Series, name: str) -> pl.Series:
    dtype = schema.JOBS[name]
    if column.dtype == dtype and not dtype.is_float():
        return column
    if isinstance(dtype, pl.Datetime):
        return _as_utc(column)
    if name == "status":  # a word outside the set is not an error here: loaders have counted it
        known = column.cast(pl.String).is_in(schema.STATUSES)
        return column.to_frame().select(
            pl.when(known).then(pl.col(name).cast(pl.String)).when(~known).then(pl.lit("unknown")).cast(dtype)
        )[name]
    if dtype.is_float():
        column = column.cast(pl.Float64)
        # A limit of 0 (or less) is none: a source that writes it means that nothing was asked for.
        is_told = pl.col(name).is_finite() & ((pl.col(name) > 0) | pl.lit(name != "time_limit_s"))
        return column.to_frame().select(pl.when(is_told).then(pl.col(name)).alias(name))[name]
    return column.cast(dtype)


def _as_utc(column: pl.Series) -> pl.Series:
    if isinstance(column.dtype, pl.Datetime):
        zoned = column.dt.replace_time_zone("UTC") if column.dtype.time_zone is None else column
        return zoned.dt.convert_time_zone("UTC").dt.cast_time_unit("us")
    if column.dtype == pl.Null:
        return column.cast(schema.TIME)
    msg = "expected datetimes"
    raise TypeError(msg)


def limits_s(jobs: pl.DataFrame) -> NDArray[np.float64]:
    """Requested limits; infinite where there is none [s]."""
    return jobs["time_limit_s"].fill_null(np.inf).to_numpy()


def is_known() -> pl.Expr:
    """Whether a job's duration is known in full; false where it is null or only a lower bound."""
    return (pl.col("duration_s").is_not_null() & (pl.col("censoring") == "none")).alias("is_known")


def lower_bound_s() -> pl.Expr:
    """Known lower bound of a censored job's duration [s]; null where the duration is known or nothing is."""
    is_bound = pl.col("censoring").is_in(["left", "right", "both"])
    return pl.when(is_bound).then(pl.col("duration_s")).alias("lower_bound_s")


def is_failure() -> pl.Expr:
    """Whether a job broke (failed or lost its node); null where its status is not known."""
    return _is_one_of(FAILURES).alias("is_failure")


def is_killed() -> pl.Expr:
    """Whether a job was cancelled or cut off at its limit; null where its status is not known."""
    return _is_one_of(KILLS).alias("is_killed")


def _is_one_of(statuses: tuple[str, ...]) -> pl.Expr:
    unknown = pl.col("status").is_null() | pl.col("status").is_in(["unknown", "running", "pending"])
    return pl.when(~unknown).then(pl.col("status").is_in(statuses))


def microseconds(times: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Times as integers, and where they are known; 0 where they are not [microseconds]."""
    return times.dt.epoch("us").fill_null(0).to_numpy(), times.is_not_null().to_numpy()
