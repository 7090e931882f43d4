"""How GPU jobs end, by size and by user, and the GPU time that brought no result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from analysis.characterize.buckets import BUCKET, GPU_BUCKETS, conform, grouped_schema
from analysis.characterize.cubes import GROUPS, Cube
from analysis.characterize.demand import share_of
from analysis.characterize.inputs import DURATIONS
from analysis.characterize.registry import characterization
from analysis.characterize.weighted import with_all_gpu_jobs
from analysis.metrics import S_PER_H, US_PER_S
from analysis.schema import STATUS

__all__ = ["ACME", "PHILLY", "gpu_hours_of", "outcomes_by_size", "outcomes_by_user", "wasted_gpu_time"]

#: Outcomes after which the GPU time has (or may have) brought no result.
WASTED: Final = ("failed", "cancelled", "timeout", "node_fail", "preempted")
#: What the papers count as failed.
FAILED: Final = ("failed", "timeout", "node_fail")
NUM_TOP: Final = 20

WASTE_SCHEMA: Final = {
    "status": STATUS,
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
    "mean_gpu_hours": pl.Float64(),
}
OUTCOMES: Final = {
    "num_jobs": pl.Int64(),
    "completed_share": pl.Float64(),
    "failed_share": pl.Float64(),
    "cancelled_share": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "completed_gpu_time_share": pl.Float64(),
    "failed_gpu_time_share": pl.Float64(),
    "cancelled_gpu_time_share": pl.Float64(),
    "wasted_gpu_hours": pl.Float64(),
}
SIZE_SCHEMA: Final = {"bucket": BUCKET, **OUTCOMES}
USER_SCHEMA: Final = {
    "user": pl.String(),
    "rank": pl.Int64(),
    **OUTCOMES,
    "share_of_waste": pl.Float64(),
    "cumulative_share_of_waste": pl.Float64(),
}
ACME: Final = "Q. Hu et al., NSDI 2024, section 5 (failures), https://www.usenix.org/conference/nsdi24/presentation/hu"
PHILLY: Final = (
    "M. Jeon et al., ATC 2019, tables 6 and 7 (job status, failures), "
    "https://www.usenix.org/conference/atc19/presentation/jeon"
)
NO_STATUS: Final = "The log does not say how GPU jobs ended."

#: GPU jobs by user and status.
USER_STATUS: Final = Cube(
    "users by status",
    keys={"user": GROUPS["user"], "status": GROUPS["status"]},
    values={"num_jobs": pl.len().cast(pl.Int64), "sum_gpu_us": pl.col("gpu_us").sum()},
    where=pl.col("num_gpus") > 0,
)


def gpu_hours_of(where: pl.Expr | None = None) -> pl.Expr:
    """GPU-hours of a group of a cube, or of those of its rows that fulfil a condition."""
    column = pl.col("sum_gpu_us")
    return (column if where is None else column.filter(where)).sum() / US_PER_S / S_PER_H


def _has_status(cube: pl.DataFrame) -> bool:
    return bool((cube["status"].cast(pl.String).fill_null("unknown") != "unknown").any())


@characterization(
    "waste",
    inputs=(DURATIONS,),
    title="GPU time without a result",
    definition=(
        "GPU jobs that failed, were cancelled, ran into their time limit, lost their node or were preempted: their "
        "share of all GPU jobs and of all GPU time. Time of cancelled and timed-out jobs is lost at most: a user may "
        "stop a training that has converged, and checkpoints survive; logs do not say."
    ),
    source=PHILLY,
    needs=("status", "num_gpus"),
    empty_means=NO_STATUS,
    own_groups=("status",),
)
def wasted_gpu_time(durations: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """GPU time by outcomes that may have brought no result.

    Returns
    -------
    DataFrame, a row per such status that occurs
        status, num_jobs, job_share (of all GPU jobs), gpu_hours, gpu_time_share (of all GPU time; null without any),
        mean_gpu_hours (a job's). Jobs with an unknown duration count as jobs, with no GPU time.
    """
    schema = grouped_schema(by, WASTE_SCHEMA)
    jobs = durations.filter(pl.col("bucket").is_in(GPU_BUCKETS))
    if not _has_status(jobs):
        return pl.DataFrame(schema=schema)
    groups = jobs.group_by([*by, "status"]).agg(num_jobs=pl.col("num_jobs").sum(), gpu_hours=gpu_hours_of())
    shares = groups.with_columns(
        job_share=share_of("num_jobs", by),
        gpu_time_share=share_of("gpu_hours", by),
        mean_gpu_hours=pl.col("gpu_hours") / pl.col("num_jobs"),
    )
    return conform(shares.filter(pl.col("status").is_in(WASTED)).sort([*by, "status"]), schema)


def _outcomes(cube: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Shares of completed, failed and cancelled, by jobs and by GPU time, of each group; of GPU jobs with a status."""
    status = pl.col("status").cast(pl.String)
    known = cube.filter(status.is_not_null() & (status != "unknown"))
    classes: Mapping[str, tuple[str, ...]] = {
        "completed": ("completed",),
        "failed": FAILED,
        "cancelled": ("cancelled",),
    }
    jobs, hours = pl.col("num_jobs").sum(), gpu_hours_of()
    wasted = gpu_hours_of(status.is_in(WASTED))
    aggregates = [jobs.alias("num_jobs"), hours.alias("gpu_hours"), wasted.alias("wasted_gpu_hours")]
    for name, members in classes.items():
        held = status.is_in(members)
        aggregates.append((pl.col("num_jobs").filter(held).sum() / jobs).alias(f"{name}_share"))
        share = pl.when(hours > 0).then(gpu_hours_of(held) / hours)
        aggregates.append(share.alias(f"{name}_gpu_time_share"))
    return known.group_by(keys).agg(aggregates)


OUTCOMES_NOTE: Final = (
    "failed_share holds time-outs and node failures too, as in the papers. Jobs without a known status are left out; "
    "what is missing to 100 % still runs, waits or was preempted. wasted_gpu_hours: GPU time of failed, timed-out, "
    "node-failed, cancelled and preempted jobs, an upper bound of what was lost."
)


@characterization(
    "outcomes_by_size",
    inputs=(DURATIONS,),
    title="How GPU jobs end, by GPU count",
    definition=f"Shares of GPU jobs, and of their GPU time, by outcome. {OUTCOMES_NOTE} Bucket 'all': all GPU jobs.",
    source=PHILLY,
    needs=("status", "num_gpus"),
    empty_means=NO_STATUS,
)
def outcomes_by_size(durations: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Completed, failed and cancelled shares by GPU-count bucket, by jobs and by GPU time.

    Returns
    -------
    DataFrame, a row per bucket that has GPU jobs with a status ("all" = all of them)
        bucket, num_jobs, completed_share, failed_share (with time-outs and node failures), cancelled_share, gpu_hours,
        the same shares of GPU time (null without any), wasted_gpu_hours.
    """
    cube = with_all_gpu_jobs(durations)
    cube = cube.filter(pl.col("bucket").is_in(("all", *GPU_BUCKETS)))
    return conform(_outcomes(cube, [*by, "bucket"]).sort([*by, "bucket"]), grouped_schema(by, SIZE_SCHEMA))


@characterization(
    "outcomes_by_user",
    inputs=(USER_STATUS,),
    title="Users with most GPU time without a result",
    definition=f"The 20 users whose GPU jobs wasted most GPU time. {OUTCOMES_NOTE}",
    source=ACME,
    needs=("status", "user", "num_gpus"),
    empty_means=NO_STATUS,
    own_groups=("user",),
)
def outcomes_by_user(users: pl.DataFrame, *, by: tuple[str, ...] = (), num_top: int = NUM_TOP) -> pl.DataFrame:
    """Outcomes of the users with most wasted GPU time.

    Parameters
    ----------
    num_top : int, default 20
        Users at most, in each group.

    Returns
    -------
    DataFrame, a row per user
        user (null = the log does not say), rank, the columns of `outcomes_by_size`, share_of_waste (of all wasted GPU
        time of the group; null if there is none) and its sum down to this rank.
    """
    schema = grouped_schema(by, USER_SCHEMA)
    if users["user"].null_count() == users.height:
        return pl.DataFrame(schema=schema)
    rank = pl.int_range(1, pl.len() + 1)
    reached = pl.col("share_of_waste").cum_sum()
    table = (
        _outcomes(users, [*by, "user"])
        .with_columns(share_of_waste=share_of("wasted_gpu_hours", by))
        .sort([*by, "wasted_gpu_hours", "num_jobs", "user"], descending=[*([False] * len(by)), True, True, False])
        .with_columns(rank=rank.over(by) if by else rank, cumulative_share_of_waste=reached.over(by) if by else reached)
    )
    return conform(table.filter(pl.col("rank") <= num_top), schema)
