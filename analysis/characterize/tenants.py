"""Who uses the cluster: the largest users and virtual clusters by GPU time."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis.characterize.buckets import conform
from analysis.characterize.demand import share_of
from analysis.characterize.registry import characterization
from analysis.metrics import S_PER_H, gpu_s

__all__ = ["top_tenants", "top_users", "top_vcs"]

NUM_TOP: Final = 20

TENANT_SCHEMA: Final = {
    "rank": pl.Int64(),
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
    "cumulative_gpu_time_share": pl.Float64(),
    "median_duration_s": pl.Float64(),
    "completed_share": pl.Float64(),
}


def top_tenants(jobs: pl.DataFrame, *, by: str, num_top: int = NUM_TOP) -> pl.DataFrame:
    """Largest tenants by GPU time (by jobs where the log has no GPU time).

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of the jobs table.
    by : str
        Column that names the tenant (user, vc, account …); jobs where it is null form one tenant named null.
    num_top : int, default 20
        Rows at most.

    Returns
    -------
    DataFrame, one row per tenant
        The column ``by``, rank, num_jobs, job_share, gpu_hours, gpu_time_share (of all tenants), cumulative share down
        to this rank, median_duration_s, completed_share (of the tenant's jobs with a known status; null without one).
        Empty where the column is null everywhere.
    """
    columns = {by: pl.String(), **TENANT_SCHEMA}
    if jobs[by].null_count() == jobs.height:
        return pl.DataFrame(schema=columns)
    known = pl.col("status").is_not_null() & (pl.col("status") != "unknown")
    groups = (
        jobs.with_columns(gpu_s())
        .group_by(by)
        .agg(
            num_jobs=pl.len().cast(pl.Int64),
            gpu_hours=pl.col("gpu_s").sum() / S_PER_H,
            median_duration_s=pl.col("duration_s").median(),
            completed_share=(pl.col("status") == "completed").filter(known).mean(),
        )
        # Rounded before sorting: sums of floats differ in their last digits with the order of the rows.
        .with_columns(pl.col("gpu_hours").round_sig_figs(12))
        .sort(["gpu_hours", "num_jobs", by], descending=[True, True, False], nulls_last=True)
        .with_columns(job_share=share_of("num_jobs"), gpu_time_share=share_of("gpu_hours"))
        .with_columns(cumulative_gpu_time_share=pl.col("gpu_time_share").cum_sum(), rank=pl.int_range(1, pl.len() + 1))
    )
    return conform(groups.head(num_top), columns)


@characterization(
    "top_users",
    title="Largest users",
    definition="Users by GPU time, the largest 20: their share of all jobs and of all GPU time.",
    needs=("user",),
)
def top_users(jobs: pl.DataFrame) -> pl.DataFrame:
    """Largest users by GPU time, at most 20; columns as in `top_tenants`."""
    return top_tenants(jobs, by="user")


@characterization(
    "top_vcs",
    title="Largest virtual clusters",
    definition=(
        "Virtual clusters, partitions or queues by GPU time, the largest 20: their share of all jobs and of all "
        "GPU time."
    ),
    needs=("vc",),
)
def top_vcs(jobs: pl.DataFrame) -> pl.DataFrame:
    """Largest virtual clusters, partitions or queues by GPU time, at most 20; columns as in `top_tenants`."""
    return top_tenants(jobs, by="vc")
