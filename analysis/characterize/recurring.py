"""How much of the work comes again: jobs of one user and name, request or group, and how alike their durations are."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from analysis.characterize.buckets import KIND, grouped_schema
from analysis.characterize.groupings import (
    BIN_LOG,
    GROUPING,
    JOB_GROUPS,
    MIN_GROUP,
    GroupedJobs,
    grouped_jobs,
)
from analysis.characterize.prepare import BINS_PER_DOUBLING
from analysis.characterize.registry import characterization

__all__ = ["recurrence"]

#: Groupings that name work that may come again.
RECURRING: Final = ("user_request", "user_name", "group")

RECURRENCE_SCHEMA: Final = {
    "kind": KIND,
    "grouping": GROUPING,
    "num_jobs": pl.Int64(),
    "num_groups": pl.Int64(),
    "repeated_job_share": pl.Float64(),
    "recurring_job_share": pl.Float64(),
    "recurring_gpu_time_share": pl.Float64(),
    "median_abs_log_ratio": pl.Float64(),
    "within_2x_share": pl.Float64(),
    "within_2x_gpu_time_share": pl.Float64(),
}


@characterization(
    "recurrence",
    title="Work that comes again",
    definition=(
        "Jobs of known duration grouped by user (account where no user is named) and request (GPUs, or CPUs of CPU "
        "jobs, and time limit), by user and name, and by the source's own recurrence group. repeated: the group has "
        f"at least 2 jobs; recurring: at least {MIN_GROUP}. median_abs_log_ratio: half of the jobs of recurring "
        "groups are off their group's median duration by less than this (natural logarithm of 1 s + duration); "
        "within_2x: share of them within a factor of two of it. num_jobs: jobs that have a group. Jobs whose "
        "duration is only a lower bound are left out."
    ),
    source="Recurring tasks: Q. Weng et al., MLaaS in the Wild (PAI), NSDI 2022; the measures of likeness are ours",
    needs=("duration_s",),
    empty_means="The log names neither users nor recurrence groups.",
    inputs=tuple(JOB_GROUPS[grouping] for grouping in RECURRING),
)
def recurrence(*job_groups: pl.DataFrame, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """How many jobs come again, their share of the GPU time, and how alike their durations are.

    Parameters
    ----------
    *job_groups : DataFrame
        Collected from those ``JOB_GROUPS`` that may come again.
    by : tuple of str
        Columns of the grouping of the table.

    Returns
    -------
    DataFrame, a row per kind of job and grouping that the log knows
        kind, grouping, num_jobs (with a group), num_groups, repeated_job_share, recurring_job_share,
        recurring_gpu_time_share (null without GPU time), median_abs_log_ratio, within_2x_share,
        within_2x_gpu_time_share (all three null without a recurring group; shares are 0-1).
    """
    rows = [
        {**outer, "grouping": grouping, **_row(jobs)}
        for grouping in RECURRING
        for outer, jobs in grouped_jobs(dict(zip(RECURRING, job_groups, strict=True)), grouping, by)
    ]
    table = pl.DataFrame(rows, schema=grouped_schema(by, RECURRENCE_SCHEMA), orient="row")
    return table.sort([*by, "kind", "grouping"])


def _row(jobs: GroupedJobs) -> dict[str, Any]:
    num_jobs, gpu_time = jobs.num_jobs, int(jobs.gpu_us.sum())
    recurring = jobs.of_at_least(MIN_GROUP)
    row: dict[str, Any] = dict.fromkeys(list(RECURRENCE_SCHEMA)[2:]) | {
        "num_jobs": num_jobs,
        "num_groups": len(jobs.start),
        "repeated_job_share": int(jobs.sizes[jobs.sizes >= 2].sum()) / num_jobs,
        "recurring_job_share": recurring.num_jobs / num_jobs,
        "recurring_gpu_time_share": int(recurring.gpu_us.sum()) / gpu_time if gpu_time else None,
    }
    if recurring.num_jobs:
        row["median_abs_log_ratio"] = _median(recurring) * BIN_LOG
        row["within_2x_share"], row["within_2x_gpu_time_share"] = recurring.shares_within(BINS_PER_DOUBLING)
    return row


def _median(jobs: GroupedJobs) -> int:
    order = np.argsort(jobs.off_median, kind="stable")
    reached = np.cumsum(jobs.count[order])
    return int(jobs.off_median[order][np.searchsorted(reached, (reached[-1] + 1) // 2)])
