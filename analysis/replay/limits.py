"""Time limits: what a replay does to jobs that would run for longer than they asked."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis import schema
from analysis.errors import SchemaError

__all__ = ["TIMEOUT", "cut_at_limits", "mark_timeouts"]

#: In a schedule, the reason of a job that was ended by its limit.
TIMEOUT: Final = "timeout"


def cut_at_limits(jobs: pl.DataFrame, *, enforce: bool) -> tuple[pl.DataFrame, pl.Series]:
    """Let no job run for longer than its limit.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Needs duration_s and time_limit_s; null in either means that nothing is cut.
    enforce : bool
        False: nothing is done, and time_limit_s is not read.

    Returns
    -------
    jobs : DataFrame
        duration_s at most time_limit_s.
    job_ids : Series of str
        Of the jobs that were cut.

    Raises
    ------
    SchemaError
        If a column is missing, or a limit is not above 0.

    Examples
    --------
    >>> jobs = pl.DataFrame({"job_id": ["a", "b"], "duration_s": [100.0, 50.0], "time_limit_s": [60.0, None]})
    >>> cut, job_ids = cut_at_limits(jobs, enforce=True)
    >>> cut["duration_s"].to_list(), job_ids.to_list()
    ([60.0, 50.0], ['a'])
    """
    if not enforce:
        return jobs, pl.Series("job_id", [], dtype=pl.String)
    if missing := [name for name in ("job_id", "duration_s", "time_limit_s") if name not in jobs.columns]:
        violations = [f"column {name!r} is missing; expected {schema.JOBS[name]} to enforce limits" for name in missing]
        raise SchemaError(table="jobs", violations=violations)
    limit = pl.col("time_limit_s").cast(pl.Float64).fill_nan(None)
    duration = pl.col("duration_s").cast(pl.Float64).fill_nan(None)
    wrong = jobs.filter(limit <= 0)
    if wrong.height:
        ids = wrong["job_id"].head(3).to_list()
        found = f"column 'time_limit_s' has {wrong.height} values of 0 or below (first job ids {ids}); expected seconds"
        raise SchemaError(table="jobs", violations=[f"{found} above 0, or null for no limit"])
    cut = jobs.with_columns(duration_s=pl.when(duration > limit).then(limit).otherwise(duration))
    return cut, jobs.filter(duration > limit)["job_id"].cast(pl.String)


def mark_timeouts(schedule: pl.DataFrame, job_ids: pl.Series) -> pl.DataFrame:
    """Give the jobs that ended at their limit the reason ``timeout``; their state is finished."""
    if not len(job_ids):
        return schedule
    ended = (pl.col("state") == "finished") & pl.col("job_id").is_in(job_ids.implode())
    return schedule.with_columns(reason=pl.when(ended).then(pl.lit(TIMEOUT)).otherwise("reason"))
