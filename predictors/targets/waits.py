"""A log seen as waits: each job "runs" from submission to start, so that what predicts durations predicts waits.

Seen so, a job's label becomes known when it starts, a job that waits is one that still runs, and history, intervals,
backtests and leak tests are those of ``predictors``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import polars as pl

from analysis import schema
from predictors.history import PAST, known_jobs
from predictors.jobs_table import as_jobs
from predictors.training_view import training_view

__all__ = ["RUN_COLUMNS", "WAITS_PAST", "log_of", "past_of_waits", "waits_of", "waits_view"]

US_PER_S: Final = 1e6
#: Columns of a view of waits that say what the job itself did.
RUN_COLUMNS: Final = ("start_time", "end_time", "duration_s", "censoring", "status", "time_limit_s")
#: What in-flight features need of the log itself, beside the history of waits.
_RUN_PAST: Final = (
    "start_time",
    "leave_time",
    "end_time",
    "duration_s",
    "is_failure",
    "is_killed",
    "time_limit_s",
)
#: Columns of the past that a predictor of waits keeps.
WAITS_PAST: Final = {**PAST, **{f"run_{name}": PAST[name] for name in _RUN_PAST}}


def waits_of(jobs: Any) -> pl.DataFrame:
    """See a log as waits.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table, as it is or as ``training_view`` shows it. A view of waits is given back as it is.

    Returns
    -------
    DataFrame, one row per job in the same order
        ``duration_s`` is the wait: start less submission, 0 where a clock ran backwards; ``start_time`` the
        submission, ``end_time`` the start. A job that never started (``censoring`` "never_started") has as lower
        bound (``censoring`` "right") the time to its end, or to the last event of the log where it has none. Null
        where the start is not known. ``user`` is the account where the log has no user; ``time_limit_s`` is null,
        because the limit of a job is none of its wait. What the job itself did stands in ``run_start_time``,
        ``run_end_time``, ``run_duration_s``, ``run_censoring``, ``run_status``, ``run_time_limit_s``.

    Examples
    --------
    >>> from datetime import datetime
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, 1)], "start_time": [datetime(2024, 1, 1, 1)],
    ...                     "end_time": [datetime(2024, 1, 1, 9)], "duration_s": [28800.0]})
    >>> waits_of(log).select("duration_s", "run_duration_s").rows()
    [(3600.0, 28800.0)]
    """
    table = as_jobs(jobs)
    if all(f"run_{name}" in table.columns for name in RUN_COLUMNS):
        return table
    came = pl.col("submit_time")
    has_times = ~pl.col("flags").list.contains("times_assumed")
    start = pl.when(has_times).then(pl.max_horizontal("start_time", came)).alias("_start")
    # max_horizontal ignores nulls: without a start (or a submission) there is no wait.
    start = pl.when(pl.col("start_time").is_not_null() & came.is_not_null()).then(start)
    last = table.select(pl.max_horizontal(pl.max("submit_time"), pl.max("start_time"), pl.max("end_time"))).item()
    waits_on = (pl.col("censoring") == "never_started") & pl.col("start_time").is_null()
    until = pl.when(waits_on).then(pl.coalesce("end_time", pl.lit(last, dtype=schema.TIME)))
    runs = table.with_columns(pl.col(name).alias(f"run_{name}") for name in RUN_COLUMNS)
    bound = until > came
    return runs.with_columns(
        user=pl.coalesce("user", "account"),
        start_time=came,
        end_time=start,
        duration_s=(pl.coalesce(start, pl.when(bound).then(until)) - came).dt.total_microseconds() / US_PER_S,
        censoring=pl.when(bound).then(pl.lit("right")).otherwise(pl.lit("none")).cast(schema.CENSORING),
        status=pl.when(start.is_not_null())
        .then(pl.lit("completed"))
        .when(waits_on)
        .then(pl.lit("running"))
        .cast(schema.STATUS),
        time_limit_s=pl.lit(None, pl.Float64),
    )


def waits_view(jobs: Any, *, cutoff: datetime) -> pl.DataFrame:
    """See a log as waits as it looked at a cutoff.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table. (``training_view`` of it would do too, but forgets when jobs left that never started.)
    cutoff : datetime
        As in ``training_view``.

    Returns
    -------
    DataFrame, one row per job submitted before the cutoff
        As ``waits_of`` gives it; a job that had not started has as lower bound how long it had waited. Of what jobs
        did only what lies before the cutoff is there.

    Raises
    ------
    UsageError
        If no job was submitted before the cutoff.
    """
    seen = training_view(waits_of(jobs), cutoff=cutoff)
    instant = pl.Series([cutoff])
    zoned = instant.dt.replace_time_zone("UTC") if cutoff.tzinfo is None else instant
    before = {
        name: (pl.col(name) < zoned.dt.convert_time_zone("UTC").item()) for name in ("run_start_time", "run_end_time")
    }
    has_ended = before["run_end_time"].fill_null(value=False)
    # What is known only at the end: null if that lies later, and nothing else is said of it then.
    late = {name: pl.when(has_ended).then(pl.col(name)) for name in ("run_duration_s", "run_status")}
    return seen.with_columns(**late, **{name: pl.when(known).then(pl.col(name)) for name, known in before.items()})


def log_of(waits: pl.DataFrame) -> pl.DataFrame:
    """Columns of a view of waits as they were in the log itself."""
    return waits.with_columns(pl.col(f"run_{name}").alias(name) for name in RUN_COLUMNS)


def past_of_waits(waits: pl.DataFrame) -> pl.DataFrame:
    """What history of waits and in-flight features need of a view of waits: ``WAITS_PAST``, one row per job."""
    of_waits = known_jobs(waits)
    runs = known_jobs(log_of(waits)).select(pl.col(name).alias(f"run_{name}") for name in _RUN_PAST)
    return pl.concat([of_waits, runs], how="horizontal")
