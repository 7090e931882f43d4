"""Whose past is looked at, and what is kept of a log for it: keys, and the table of jobs that history needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis import schema
from predictors.families import cluster_names, job_family
from predictors.jobs_table import as_jobs, is_failure, is_killed, is_known, microseconds
from predictors.training_view import known_end

__all__ = ["FLIGHT_KEYS", "HISTORY_KEYS", "PAST", "ended_jobs", "id_order", "key_columns", "known_jobs"]

#: Whose ended jobs are looked at; a key whose columns are null for a job gives it no history. "all" is everybody's.
HISTORY_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "user": ("user",),
    "vc": ("vc",),
    "vc_size": ("vc", "size"),
    "user_size": ("user", "size"),
    "user_limit": ("user", "time_limit_s"),
    "user_size_limit": ("user", "size", "time_limit_s"),
    "user_family": ("user", "job_family"),
    "group": ("group",),
    "user_name": ("user", "job_name"),
    "user_similar": ("user", "similar_name"),
    "all": (),
}
#: Whose waiting and running jobs are looked at.
FLIGHT_KEYS: Final[Mapping[str, tuple[str, ...]]] = {"user": ("user",), "vc": ("vc",), "all": ()}
#: Jobs of one user that ask for the same are a batch if they come in the same minute.
BATCH_KEY: Final = ("user", "size", "time_limit_s")
#: The work of a waiting job is predicted when it comes: the median of the first of these with ended jobs.
WORK_KEYS: Final = ("user_size_limit", "user", "vc", "all")

_KEY_TYPES: Final[Mapping[str, pl.DataType]] = {
    "user": pl.String(),
    "vc": pl.String(),
    "group": pl.String(),
    "job_name": pl.String(),
    "job_family": pl.String(),
    "size": pl.Float64(),
    "time_limit_s": pl.Float64(),
}
#: Columns of a table of past jobs.
PAST: Final[Mapping[str, pl.DataType]] = {
    "job_id": pl.String(),
    "submit_time": schema.TIME,
    "start_time": schema.TIME,  # null where the source does not say
    "leave_time": schema.TIME,  # when it neither waited nor ran any more
    "end_time": schema.TIME,  # when its duration became known; null = it is not known
    "duration_s": pl.Float64(),
    "is_failure": pl.Boolean(),
    "is_killed": pl.Boolean(),
    **_KEY_TYPES,
    "similar_name": pl.String(),
}
#: What a table of ended jobs alone cannot tell.
_NOT_TOLD: Final = ("submit_time", "start_time", "leave_time", "similar_name")
_NOT_ENDED: Final = ("end_time", "duration_s", "is_failure", "is_killed")


def key_columns() -> dict[str, pl.Expr]:
    """Columns that keys are made of, all known at the submission.

    ``size`` is the number of GPUs, for a CPU job the CPUs with a minus sign (so that the two never meet);
    ``job_family`` is the job's name without its numbers and hashes. The cluster of similar names is not among them: it
    depends on the names that came before (``known_jobs``).
    """
    gpus, cpus = pl.col("num_gpus"), pl.col("num_cpus")
    size = pl.when(gpus > 0).then(gpus).otherwise(-cpus.fill_null(0.0))
    derived = {"size": size, "job_family": job_family(pl.col("job_name"))}
    return {name: derived.get(name, pl.col(name)) for name in _KEY_TYPES}


def known_jobs(jobs: Any) -> pl.DataFrame:
    """All that history and in-flight features need of a log.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table.

    Returns
    -------
    DataFrame with the columns of ``PAST``, one row per job
        Sorted by (submission, id), jobs without a submission last. Duration, end and outcome are null where the
        duration is not known in full.
    """
    table = _in_order(as_jobs(jobs))
    ends = known_end(table)["end_time"]
    has_times = ~pl.col("flags").list.contains("times_assumed")
    came = pl.col("submit_time")
    ended = is_known() & ends.is_not_null()
    found = table.select(
        "job_id",
        "submit_time",
        start_time=pl.when(has_times).then(_not_before(pl.col("start_time"), came)),
        leave_time=pl.coalesce(ends, pl.when(has_times).then(_not_before(pl.col("end_time"), came))),
        end_time=ends,
        duration_s=pl.col("duration_s"),
        is_failure=is_failure(),
        is_killed=is_killed(),
        _ended=ended,
        **key_columns(),
    )
    found = found.with_columns(pl.when("_ended").then(pl.col(name)).alias(name) for name in _NOT_ENDED)
    # Of a job without a submission nobody knows after which names its own came.
    named = pl.when(came.is_not_null()).then("job_family").alias("job_family")
    similar = cluster_names(found["user"], found.select(named)["job_family"])
    return found.with_columns(similar).select(pl.col(name).cast(dtype) for name, dtype in PAST.items())


def _not_before(time: pl.Expr, came: pl.Expr) -> pl.Expr:
    """A clock that runs backwards must not let a job start or leave before it came; null if either is."""
    return pl.when(time < came).then(came).when(time >= came).then(time)


def ended_jobs(jobs: Any) -> pl.DataFrame:
    """Ended jobs of a log in the order in which they ended: enough for history, too little for in-flight features.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table; jobs without a known end and a fully known duration are left out.

    Returns
    -------
    DataFrame with the columns of ``PAST``
        Sorted by (end, submission, id). Submissions, starts, leavings and clusters of similar names are null, so that
        nobody takes these for all jobs that were in flight or had a name.
    """
    past = known_jobs(jobs).filter(pl.col("end_time").is_not_null()).sort("end_time", maintain_order=True)
    return past.with_columns(pl.lit(None, PAST[name]).alias(name) for name in _NOT_TOLD)


def id_order(job_id: pl.Series) -> NDArray[np.int64]:
    """Ids that are integers as such, others as the largest integer, so that they come last (then by their text).

    Unlike ``schema.job_order`` it looks at each id alone: a later job with another kind of id changes no order.
    """
    is_number = job_id.str.contains(r"^-?[0-9]{1,18}$")
    number = job_id if is_number.all() else pl.select(pl.when(is_number).then(job_id)).to_series()
    return number.cast(pl.Int64).fill_null(schema.LAST_US).to_numpy()


def id_key(job_id: str) -> tuple[int, str]:
    """Sort key of one id, in the order of ``id_order`` and then of the text."""
    digits = job_id.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 18
    return (int(job_id) if is_number else schema.LAST_US, job_id)


def _in_order(table: pl.DataFrame) -> pl.DataFrame:
    when, has_time = microseconds(table["submit_time"])
    when = np.where(has_time, when, schema.LAST_US)
    number = id_order(table["job_id"])
    step, more = np.diff(when), np.diff(number)
    if ((step > 0) | ((step == 0) & (more > 0))).all():
        return table
    keys = pl.DataFrame({"when": when, "number": number, "text": table["job_id"]})
    return table[keys.select(pl.arg_sort_by("when", "number", "text", maintain_order=True)).to_series()]


def milli(size: float) -> tuple[int, int]:
    """GPUs and CPUs of a job's ``size`` in thousandths; a CPU job's size is negative."""
    whole = int(min(abs(size), 1e9) * 1000 + 0.5) if math.isfinite(size) else 0
    return (whole, 0) if size > 0 else (0, whole)
