"""Inputs that several tables share, so that they are counted once."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis.characterize.cubes import Cube

__all__ = [
    "CHANGES",
    "DURATIONS",
    "GPUS",
    "SLOT_S",
    "SUBMISSIONS",
    "SUBMISSION_TICKS",
    "USER_DAYS",
    "WAITS",
    "WORK",
    "tenants",
]

#: Sums that most cubes of jobs have: jobs, and their GPU time.
WORK: Final = {"num_jobs": pl.len().cast(pl.Int64), "sum_gpu_us": pl.col("gpu_us").sum()}

#: All jobs by size, end and duration (null = not known) [s].
DURATIONS: Final = Cube(
    "durations",
    keys={"bucket": pl.col("bucket"), "status": pl.col("status"), "duration_s": pl.col("run_s")},
    values={
        **WORK,
        "sum_milli_gpus": pl.col("milli_gpus").sum(),
        "num_right_censored": pl.col("is_right_censored").sum().cast(pl.Int64),
    },
)

#: Jobs whose times are the source's own by size and queueing delay (null = not known) [s].
WAITS: Final = Cube(
    "waits",
    keys={"bucket": pl.col("bucket"), "queueing_delay_s": pl.col("wait_s")},
    values={**WORK, "num_never_started": (pl.col("censoring") == "never_started").sum().cast(pl.Int64)},
    where=pl.col("has_times"),
)

#: Quarters of an hour: every time zone is a whole number of them away from UTC.
SLOT_S: Final = 900

#: Jobs with a submission by quarter of an hour since 1970 UTC.
SUBMISSIONS: Final = Cube(
    "submissions",
    keys={"slot": pl.col("submit_us") // (SLOT_S * 1_000_000)},
    values={**WORK, "sum_milli_gpus": pl.col("milli_gpus").sum()},
    where=pl.col("submit_us").is_not_null(),
)

#: The same by tick since the first submission of the log; a tick is what `Facts.tick_us` says.
SUBMISSION_TICKS: Final = Cube(
    "submission_ticks",
    keys={"tick": (pl.col("submit_us") - pl.col("log_first_submit_us")) // pl.col("log_tick_us")},
    values=SUBMISSIONS.values,
    where=pl.col("submit_us").is_not_null(),
)

#: All jobs by the GPUs that they ask for, in thousandths (null = not known).
GPUS: Final = Cube("gpus", keys={"milli_gpus": pl.col("milli_gpus")}, values=WORK)

#: All jobs by user and day of submission in the log's zone; null is a key too.
USER_DAYS: Final = Cube("user_days", keys={"user": pl.col("user"), "local_day": pl.col("local_day")}, values=WORK)

#: Changes of the GPUs in use by instant (microseconds since 1970 UTC); see `analysis.characterize.intervals`.
CHANGES: Final = Cube(
    "changes",
    keys={"time_us": pl.col("time_us")},
    values={
        "sum_milli_change": pl.col("milli_change").sum(),
        # Small numbers: there may be tens of millions of instants.
        "sum_job_change": pl.col("job_change").sum().cast(pl.Int32),
        "num_first": pl.col("is_first").sum().cast(pl.Int32),
        "num_last": pl.col("is_last").sum().cast(pl.Int32),
    },
    table="changes",
)


def tenants(column: str) -> Cube:
    """All jobs by who ran them, how they ended and their duration (null = not known) [s]."""
    return Cube(
        f"tenants_{column}",
        keys={column: pl.col(column), "duration_s": pl.col("run_s")},
        values={
            **WORK,
            "num_completed": (pl.col("status") == "completed").sum().cast(pl.Int64),
            "num_known_status": (pl.col("status").is_not_null() & (pl.col("status") != "unknown")).sum().cast(pl.Int64),
        },
    )
