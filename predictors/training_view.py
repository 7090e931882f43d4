"""What was known of a log at a cutoff: ended jobs with their labels, running ones with a lower bound, no later ones."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.errors import UsageError
from predictors.jobs_table import as_jobs

__all__ = ["known_end", "training_view"]

US_PER_S: Final = 1_000_000
#: What a job leaves behind only when it ends, beside its duration, end and status.
AFTERMATH: Final = ("status_raw", "num_attempts", "extra")
#: What is not known of a job before it starts.
AT_START: Final = ("start_time", "gpu_type", "queueing_delay_s")


def known_end(jobs: Any) -> pl.DataFrame:
    """When each job's duration became known.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table.

    Returns
    -------
    DataFrame with ``end_time`` (datetime, UTC) and ``end_is_proxy`` (bool), same length and order
        The end in the log, never before the submission (a clock that runs backwards must not let a job into its
        own past). Where the log has no times (flag ``times_assumed``): start, or else submission, plus duration,
        and ``end_is_proxy`` is true. Null where the job has not ended or its end is not known.

    Examples
    --------
    >>> day = datetime(2024, 1, 1)
    >>> jobs = pl.DataFrame({"submit_time": [day], "duration_s": [90.0]})
    >>> known_end(jobs).row(0)[1], str(known_end(jobs).row(0)[0])
    (True, '2024-01-01 00:01:30+00:00')
    """
    length = pl.duration(microseconds=(pl.col("duration_s") * US_PER_S).round().cast(pl.Int64))
    ended = pl.col("censoring").is_in(["none", "left"])
    is_proxy = ended & pl.col("end_time").is_null() & pl.col("flags").list.contains("times_assumed")
    proxy = pl.coalesce("start_time", "submit_time") + length
    end = pl.when(is_proxy).then(proxy).when(ended).then(pl.col("end_time"))
    return as_jobs(jobs).select(
        end_time=pl.when(end < pl.col("submit_time")).then(pl.col("submit_time")).otherwise(end),
        end_is_proxy=is_proxy & pl.col("duration_s").is_not_null(),
    )


def training_view(jobs: Any, *, cutoff: datetime) -> pl.DataFrame:
    """Show a log as it looked at a cutoff; a job running then is censored, not dropped and not finished.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table.
    cutoff : datetime
        Jobs submitted strictly before it are seen; those that ended strictly before it have labels. Without a zone
        it counts as UTC.

    Returns
    -------
    DataFrame, one row per job submitted before the cutoff, in their order
        The columns of the jobs table. Ended jobs are as in the log. A job that had started and not ended has
        ``censoring`` "right", ``status`` "running", and as ``duration_s`` its elapsed time, a lower bound; one that
        had not started has "never_started", "pending" and null. What came after the cutoff is null.

    Raises
    ------
    UsageError
        If no job was submitted before the cutoff.

    Examples
    --------
    >>> from datetime import timedelta
    >>> day = datetime(2024, 1, 1)
    >>> log = pl.DataFrame({"submit_time": [day, day], "start_time": [day, day],
    ...                     "end_time": [day + timedelta(seconds=5), day + timedelta(hours=9)],
    ...                     "duration_s": [5.0, 32400.0]})
    >>> view = training_view(log, cutoff=day + timedelta(hours=1))
    >>> view.select("duration_s", "censoring").rows()
    [(5.0, 'none'), (3600.0, 'right')]
    """
    table = as_jobs(jobs)
    at = pl.Series([cutoff]).dt.replace_time_zone("UTC") if cutoff.tzinfo is None else pl.Series([cutoff])
    instant = pl.lit(at.dt.convert_time_zone("UTC").dt.cast_time_unit("us")[0], dtype=schema.TIME)
    seen = table.with_columns(_end=known_end(table)["end_time"]).filter(pl.col("submit_time") < instant)
    if not seen.height:
        msg = (
            f"training_view: no job of {table.height} was submitted before the cutoff {cutoff.isoformat()}; "
            "choose a later cutoff, or look at the submission times of the log."
        )
        raise UsageError(msg)
    return _mask(seen, instant).drop("_end")


def _mask(seen: pl.DataFrame, instant: pl.Expr) -> pl.DataFrame:
    """Take back what came after the cutoff."""
    ended = (pl.col("_end") < instant).fill_null(value=False)
    assumed = pl.col("flags").list.contains("times_assumed")
    start = pl.when(assumed).then(pl.coalesce("start_time", "submit_time")).otherwise(pl.col("start_time"))
    started = (start < instant).fill_null(value=False)
    elapsed = (instant - start).dt.total_microseconds() / US_PER_S
    # A job that the log itself lost sight of is known for no longer than the log followed it.
    cut_short = pl.col("censoring").is_in(["right", "both"])
    bound = pl.when(cut_short).then(pl.min_horizontal(elapsed, "duration_s")).otherwise(elapsed)
    masks = {
        "duration_s": pl.when(ended).then(pl.col("duration_s")).when(started).then(bound),
        "end_time": pl.when(ended).then(pl.col("end_time")),
        "status": _choose(ended, started, pl.col("status"), "running", "pending", schema.STATUS),
        "censoring": _choose(ended, started, pl.col("censoring"), "right", "never_started", schema.CENSORING),
    }
    masks |= {name: pl.when(ended).then(pl.col(name)) for name in AFTERMATH if name in seen.columns}
    masks |= {name: pl.when(ended | started).then(pl.col(name)) for name in AT_START if name in seen.columns}
    return seen.with_columns(**masks)


def _choose(ended: pl.Expr, started: pl.Expr, was: pl.Expr, running: str, waiting: str, dtype: pl.DataType) -> pl.Expr:
    return pl.when(ended).then(was).when(started).then(pl.lit(running, dtype)).otherwise(pl.lit(waiting, dtype))
