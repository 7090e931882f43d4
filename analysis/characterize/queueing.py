"""How long jobs wait before they start, by GPU-count bucket; empty where the log does not say when jobs start."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from analysis.characterize.buckets import BUCKET, WEIGHT, log_grid
from analysis.characterize.durations import QUANTILES, bucket_groups, cdf_table
from analysis.characterize.registry import characterization

__all__ = ["has_real_times", "queueing_delay_cdf", "queueing_delay_quantiles"]

WAITS_SCHEMA: Final = {
    "bucket": BUCKET,
    "num_jobs": pl.Int64(),
    "num_never_started": pl.Int64(),
    "waited_share": pl.Float64(),
    "mean_s": pl.Float64(),
    **{f"{name}_s": pl.Float64() for name in QUANTILES},
    "max_s": pl.Float64(),
}
CDF_SCHEMA: Final = {"bucket": BUCKET, "weight": WEIGHT, "queueing_delay_s": pl.Float64(), "share": pl.Float64()}


def has_real_times() -> pl.Expr:
    """True where start and end are the source's own; a row flagged ``times_assumed`` says nothing about them."""
    return ~pl.col("flags").list.contains("times_assumed")


@characterization(
    "queueing_delay",
    title="Queueing delay by GPU count",
    definition=(
        "Time from submission to first start of the jobs that started. waited_share: jobs that waited longer than "
        "1 s. Jobs that never started have no delay and are counted beside. Bucket 'all': all GPU jobs."
    ),
    needs=("queueing_delay_s",),
    empty_means="The log does not say when jobs started.",
)
def queueing_delay_quantiles(jobs: pl.DataFrame) -> pl.DataFrame:
    """Mean and quantiles of the queueing delay by GPU-count bucket [s].

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of the jobs table; a null ``queueing_delay_s`` or assumed times count nowhere.

    Returns
    -------
    DataFrame, a row per bucket in which a job started ("all" = GPU jobs)
        bucket, num_jobs (that started), num_never_started, waited_share (longer than 1 s), mean_s, p5_s … p99_s, max_s.
    """
    real = jobs.filter(has_real_times())
    never = dict(bucket_groups(real.filter(pl.col("censoring") == "never_started"), "job_id"))
    rows = []
    for bucket, part in bucket_groups(real, "queueing_delay_s"):
        waits = part["queueing_delay_s"].to_numpy()
        quantiles = np.quantile(waits, list(QUANTILES.values())).tolist()
        rows.append(
            {
                "bucket": bucket,
                "num_jobs": part.height,
                "num_never_started": never[bucket].height if bucket in never else 0,
                "waited_share": float((waits > 1).mean()),
                "mean_s": float(waits.mean()),
                **{f"{name}_s": value for name, value in zip(QUANTILES, quantiles, strict=True)},
                "max_s": float(waits.max()),
            }
        )
    return pl.DataFrame(rows, schema=WAITS_SCHEMA)


@characterization(
    "queueing_delay_cdf",
    title="Queueing delay distribution by GPU count",
    definition=(
        "Share of the jobs that started, or of their GPU time, that waited at most this long, on a grid of 20 "
        "points per factor of ten from 1 s; shorter waits count at 1 s."
    ),
    needs=("queueing_delay_s",),
    empty_means="The log does not say when jobs started.",
)
def queueing_delay_cdf(jobs: pl.DataFrame) -> pl.DataFrame:
    """Cumulative distribution of the queueing delay on a log grid by GPU-count bucket, by jobs and by GPU time.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of the jobs table; a null ``queueing_delay_s`` or assumed times count nowhere.

    Returns
    -------
    DataFrame, a row per bucket, weight and grid point
        bucket, weight, queueing_delay_s (grid point) [s], share (0-1).
    """
    groups = bucket_groups(jobs.filter(has_real_times()), "queueing_delay_s")
    grid = log_grid(max((float(part["queueing_delay_s"].to_numpy().max()) for _, part in groups), default=1.0))
    return cdf_table(groups, value="queueing_delay_s", grid=grid, schema=CDF_SCHEMA)
