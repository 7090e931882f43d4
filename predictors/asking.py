"""When a prediction is asked for: at the submission, again at the start, or at any instant of a column."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis import schema
from analysis.errors import UnknownNameError, UsageError
from predictors.history import asking_times

__all__ = ["ASKED", "INSTANTS", "asked_at", "instants"]

#: Column that holds the instant of asking of each row.
ASKED: Final = "asked_time"

#: Named instants of asking, and the column of each.
INSTANTS: Final = {"submission": "submit_time", "start": "start_time"}


def asked_at(jobs: pl.DataFrame, at: str) -> pl.DataFrame:
    """Add the instant at which a prediction is asked for as ``asked_time``; history is known up to it.

    Parameters
    ----------
    jobs : DataFrame
        A jobs table as ``as_jobs`` gives it.
    at : str
        "submission", "start", or a column of datetimes (without a zone: UTC).

    Returns
    -------
    DataFrame
        The same rows; where the instant is null it is the submission.

    Raises
    ------
    UnknownNameError
        If there is no such column.
    UsageError
        If it holds no datetimes.
    """
    column = INSTANTS.get(at, at)
    if column not in jobs.columns:
        hint = "Give 'submission', 'start', or a column of datetimes in the jobs table."
        raise UnknownNameError(kind="instant of asking", found=at, known=[*INSTANTS, *jobs.columns], hint=hint)
    found = asking_times(jobs, "start") if at == "start" else jobs[column]
    if found.dtype == pl.Null:
        found = found.cast(schema.TIME)
    if not isinstance(found.dtype, pl.Datetime):
        msg = f"at: the column {column!r} has dtype {found.dtype}; expected datetimes, the instant of asking per job."
        raise UsageError(msg)
    zoned = found.dt.replace_time_zone("UTC") if found.dtype.time_zone is None else found
    instant = zoned.dt.convert_time_zone("UTC").dt.cast_time_unit("us").alias(ASKED)
    return jobs.with_columns(instant).with_columns(pl.coalesce(ASKED, "submit_time"))


def instants(jobs: pl.DataFrame) -> pl.Series:
    """When each row is asked about: ``asked_time`` if ``asked_at`` was here, and else the submission."""
    return jobs[ASKED if ASKED in jobs.columns else "submit_time"]
