"""A whole log told to a ``HistoryState``, so that a service begins with the past it has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl

from predictors.features import SUBMISSION_COLUMNS
from predictors.history_job import microseconds_of
from predictors.history_keys import known_jobs
from predictors.history_state import HistoryState
from predictors.jobs_table import as_jobs

__all__ = ["tell_log"]


def tell_log(state: HistoryState, jobs: Any, *, until: datetime | None = None) -> int:
    """Tell a log: submissions, starts and ends up to an instant.

    Parameters
    ----------
    state : HistoryState
        It is changed: what happened before the last submission told is taken in, so the heap of events stays small.
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table; a job without a submission counts by its end alone.
    until : datetime, optional
        What happened at this instant or later is not told. Without a zone it is read as UTC; by default all is told.

    Returns
    -------
    int
        Number of events told.

    Raises
    ------
    UsageError
        If a job is in flight already.

    Examples
    --------
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, day) for day in (1, 2)], "user": ["ann", "ann"],
    ...                     "duration_s": [60.0, 20.0]})
    >>> state = HistoryState(["user__last", "user__count"])
    >>> tell_log(state, log, until=datetime(2024, 1, 2))
    2
    >>> state.features_of({"job_id": "new", "submit_time": datetime(2024, 1, 3), "user": "ann"})
    {'user__last': 60.0, 'user__count': 1.0}
    """
    table = as_jobs(jobs)
    times = ("submit_time", "start_time", "leave_time", "end_time")
    known = known_jobs(table).select("job_id", "duration_s", *(pl.col(name).alias(f"_{name}") for name in times))
    columns = table.select("job_id", *SUBMISSION_COLUMNS, status=pl.col("status").cast(pl.String))
    told = known.join(columns, on="job_id", how="left", maintain_order="left")
    last = until.replace(tzinfo=UTC) if until is not None and until.tzinfo is None else until
    before = state.num_told
    # Jobs without a submission first: their ends may lie anywhere.
    for job in told.sort(pl.col("_submit_time").is_not_null(), maintain_order=True).iter_rows(named=True):
        _tell(state, job, last)
    return state.num_told - before


def _tell(state: HistoryState, job: dict[str, Any], until: datetime | None) -> None:
    def is_told(name: str) -> bool:
        return job[name] is not None and (until is None or job[name] < until)

    came = job["_submit_time"] is not None
    if is_told("_submit_time"):
        state.submitted(job)
        # Whoever is told later came later.
        state.advance(max(microseconds_of(job["_submit_time"], "submitted", job["job_id"]), state.clock_us))
    elif came:
        return
    if is_told("_start_time"):
        state.started(job["job_id"], job["_start_time"])
    if is_told("_leave_time") and (came or job["_end_time"] is not None):
        duration = float("nan") if job["duration_s"] is None else job["duration_s"]
        state.ended(job["job_id"] if came else job, job["_leave_time"], duration_s=duration, status=job["status"])
