"""How many GPUs jobs ask for, by jobs, by GPUs and by GPU time."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis.characterize.buckets import BUCKET, conform, ensure_weights
from analysis.characterize.registry import characterization
from analysis.metrics import S_PER_H

__all__ = ["gpu_demand", "share_of"]

DEMAND_SCHEMA: Final = {
    "bucket": BUCKET,
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "num_gpus": pl.Float64(),
    "gpu_share": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
}


def share_of(column: str) -> pl.Expr:
    """Share of a column's total; null where the total is 0, since nothing has no shares."""
    total = pl.col(column).sum()
    return pl.when(total > 0).then(pl.col(column) / total)


@characterization(
    "gpu_demand",
    title="GPU demand",
    definition=(
        "GPU jobs by the GPUs that the whole job asks for: their share of the jobs, of the GPUs requested (a sum "
        "over jobs, not what ran at one time) and of the GPU time used. A fraction above one GPU counts as the "
        "devices it takes (1.5 as 2)."
    ),
    needs=("num_gpus",),
    empty_means="No job of the log asks for a GPU.",
)
def gpu_demand(jobs: pl.DataFrame) -> pl.DataFrame:
    """Shares of the GPU-count buckets by jobs, by GPUs requested and by GPU time.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of the jobs table; CPU jobs and jobs with unknown GPUs are left out (the summary counts them).

    Returns
    -------
    DataFrame, a row per bucket that has jobs
        bucket, num_jobs, job_share, num_gpus (requested, summed), gpu_share, gpu_hours (0 where no duration is known),
        gpu_time_share (null if no GPU time is known at all).
    """
    groups = (
        ensure_weights(jobs)
        .filter(pl.col("num_gpus") > 0)
        .group_by("bucket")
        .agg(
            num_jobs=pl.len().cast(pl.Int64),
            num_gpus=pl.col("num_gpus").sum(),
            gpu_hours=pl.col("gpu_s").sum() / S_PER_H,
        )
        .sort("bucket")
    )
    shares = groups.with_columns(
        job_share=share_of("num_jobs"), gpu_share=share_of("num_gpus"), gpu_time_share=share_of("gpu_hours")
    )
    return conform(shares, DEMAND_SCHEMA)
