"""When jobs hold GPUs: an interval per job or attempt, and the instants at which anything changes."""

from __future__ import annotations

from typing import Final

import polars as pl

__all__ = ["NEEDED", "OPEN_BEGIN", "OPEN_END", "changes", "intervals"]

#: A job that ran before the log begins, or is still running when it ends, holds its GPUs from or to here; clip it.
OPEN_BEGIN: Final = -(2**62)
OPEN_END: Final = 2**62
#: Columns of the prepared jobs that are read here, beside job_id where there are attempts.
NEEDED: Final = ("num_gpus", "milli_gpus", "start_us", "end_us", "has_times", "censoring")
EARLY: Final = ("left", "both")
LATE: Final = ("right", "both")


def intervals(prepared: pl.LazyFrame, attempts: pl.LazyFrame | None = None) -> pl.LazyFrame:
    """When each GPU job held how many GPUs.

    Parameters
    ----------
    prepared : LazyFrame, one row per job
        As `analysis.characterize.prepare.prepare` gives it. CPU jobs, unknown GPUs, assumed times and unknown starts
        are left out.
    attempts : LazyFrame, optional
        Columns of the attempts table; a job that has attempts with a start holds GPUs in these only, any other from
        its first start to its last end (pauses included).

    Returns
    -------
    LazyFrame, one row per interval of positive length
        All columns of the jobs, and begin_us, until_us (microseconds since 1970 UTC, ``OPEN_BEGIN`` and ``OPEN_END``
        where the log does not reach), held_milli_gpus, is_first and is_last of the job.
    """
    begin, end, censoring = pl.col("start_us"), pl.col("end_us"), pl.col("censoring")
    held = prepared.filter(
        (pl.col("num_gpus") > 0) & pl.col("has_times") & (censoring != "never_started")
    ).with_columns(
        begin_us=pl.when(begin.is_null() & censoring.is_in(EARLY)).then(OPEN_BEGIN).otherwise(begin),
        until_us=pl.when(end.is_null() & censoring.is_in(LATE)).then(OPEN_END).otherwise(end),
        held_milli_gpus=pl.col("milli_gpus"),
        is_first=True,
        is_last=True,
    )
    if attempts is not None:
        started = _started(attempts)
        tries = held.join(started, on="job_id", how="inner").with_columns(
            begin_us=pl.col("try_start_us"),
            until_us=pl.when(pl.col("try_end_us").is_null() & pl.col("is_latest"))
            .then(pl.col("until_us"))
            .otherwise(pl.col("try_end_us")),
            held_milli_gpus=pl.coalesce("try_milli_gpus", "milli_gpus"),
            is_first=pl.col("is_earliest"),
            is_last=pl.col("is_latest"),
        )
        rest = held.join(started, on="job_id", how="anti")
        columns = held.collect_schema().names()
        held = pl.concat([rest, tries.select(columns)])
    return held.filter(pl.col("until_us") > pl.col("begin_us"))


def _started(attempts: pl.LazyFrame) -> pl.LazyFrame:
    number = pl.col("attempt")
    return attempts.filter(pl.col("start_time").is_not_null()).select(
        "job_id",
        try_start_us=pl.col("start_time").dt.timestamp("us"),
        try_end_us=pl.col("end_time").dt.timestamp("us"),
        try_milli_gpus=(pl.col("gpus").fill_nan(None) * 1000).round().cast(pl.Int64),
        is_earliest=number == number.min().over("job_id"),
        is_latest=number == number.max().over("job_id"),
    )


def changes(prepared: pl.LazyFrame, attempts: pl.LazyFrame | None = None) -> pl.LazyFrame:
    """Instants at which GPUs are taken or given back, two per interval of `intervals`.

    Returns
    -------
    LazyFrame
        All columns of the jobs, and time_us, milli_change (thousandths of a GPU, signed), job_change (1 or -1),
        is_first (a job takes its first GPUs), is_last (it gives back its last).
    """
    held = intervals(prepared, attempts)
    taken = held.with_columns(
        time_us="begin_us", milli_change="held_milli_gpus", job_change=pl.lit(1, pl.Int64), is_last=pl.lit(value=False)
    )
    given = held.with_columns(
        time_us="until_us",
        milli_change=-pl.col("held_milli_gpus"),
        job_change=pl.lit(-1, pl.Int64),
        is_first=pl.lit(value=False),
    )
    return pl.concat([taken, given])
