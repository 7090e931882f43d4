"""How jobs end, by count and by GPU time."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis.characterize.buckets import KIND, conform, ensure_weights
from analysis.characterize.registry import characterization
from analysis.metrics import S_PER_H
from analysis.schema import STATUS

__all__ = ["status_shares"]

STATUS_SCHEMA: Final = {
    "kind": KIND,
    "status": STATUS,
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
    "mean_duration_s": pl.Float64(),
    "median_duration_s": pl.Float64(),
}


@characterization(
    "status",
    title="How jobs end",
    definition=(
        "Jobs by their last status, GPU jobs and CPU jobs apart: share of the jobs and share of the GPU time. A "
        "job without a status counts as unknown; one still running counts with the GPU time that it had used when "
        "the log ends."
    ),
    needs=("status",),
    empty_means="The log does not say how jobs ended.",
)
def status_shares(jobs: pl.DataFrame) -> pl.DataFrame:
    """Shares of the job statuses by count and by GPU time, GPU jobs and CPU jobs apart.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of the jobs table; a null ``status`` counts as unknown.

    Returns
    -------
    DataFrame, a row per kind (gpu, cpu, unknown GPUs) and status that occurs
        kind, status, num_jobs, job_share (of the kind's jobs), gpu_hours, gpu_time_share (of the kind's GPU time; null
        if it has none), mean_duration_s, median_duration_s (null if no duration is known).
        Empty where no status is known.
    """
    if not (jobs["status"].cast(pl.String).fill_null("unknown") != "unknown").any():
        return pl.DataFrame(schema=STATUS_SCHEMA)
    groups = (
        ensure_weights(jobs)
        .with_columns(pl.col("status").fill_null("unknown"))
        .group_by("kind", "status")
        .agg(
            num_jobs=pl.len().cast(pl.Int64),
            gpu_hours=pl.col("gpu_s").sum() / S_PER_H,
            mean_duration_s=pl.col("duration_s").mean(),
            median_duration_s=pl.col("duration_s").median(),
        )
        .sort("kind", "status")
    )
    kind_jobs, kind_hours = pl.col("num_jobs").sum().over("kind"), pl.col("gpu_hours").sum().over("kind")
    shares = groups.with_columns(
        job_share=pl.col("num_jobs") / kind_jobs,
        gpu_time_share=pl.when(kind_hours > 0).then(pl.col("gpu_hours") / kind_hours),
    )
    return conform(shares, STATUS_SCHEMA)
