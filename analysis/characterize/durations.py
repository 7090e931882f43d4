"""How long jobs run: quantiles and distribution by GPU-count bucket, by jobs and by GPU time.

A right-censored job counts with the time that it had run when the log ends (a lower bound), and the tables say how many
there are; a job without a known duration counts nowhere.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from analysis.characterize.buckets import BUCKET, BUCKETS, WEIGHT, ensure_weights, log_grid, share_below
from analysis.characterize.buckets import weighted_quantiles as _weighted_quantiles
from analysis.characterize.registry import characterization
from analysis.metrics import S_PER_H

__all__ = ["QUANTILES", "duration_cdf", "duration_quantiles"]

QUANTILES: Final = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99}

CENSORED_NOTE: Final = "A job still running when the log ends counts with the time that it had run (a lower bound)."

QUANTILES_SCHEMA: Final = {
    "bucket": BUCKET,
    "weight": WEIGHT,
    "num_jobs": pl.Int64(),
    "num_right_censored": pl.Int64(),
    "gpu_hours": pl.Float64(),
    "mean_s": pl.Float64(),
    "min_s": pl.Float64(),
    **{f"{name}_s": pl.Float64() for name in QUANTILES},
    "max_s": pl.Float64(),
}
CDF_SCHEMA: Final = {"bucket": BUCKET, "weight": WEIGHT, "duration_s": pl.Float64(), "share": pl.Float64()}


def bucket_groups(jobs: pl.DataFrame, value: str) -> list[tuple[str, pl.DataFrame]]:
    """Jobs with a known ``value`` by bucket, in order, "all" (= GPU jobs) first; buckets without a job left out."""
    known = ensure_weights(jobs).filter(pl.col(value).is_not_null())
    parts = {str(key[0]): part for key, part in known.partition_by("bucket", as_dict=True).items()}
    gpu_jobs = known.filter(pl.col("num_gpus") > 0)
    if gpu_jobs.height:
        parts["all"] = gpu_jobs
    return [(bucket, parts[bucket]) for bucket in BUCKETS if bucket in parts]


def count_right_censored(jobs: pl.DataFrame) -> int:
    """Jobs whose duration is only a lower bound."""
    return int(jobs["censoring"].is_in(["right", "both"]).sum())


@characterization(
    "duration_quantiles",
    title="Durations by GPU count",
    definition=(
        "Running time of a job, attempts summed, pauses left out. Weight 'jobs': every job counts once, quantiles "
        "are interpolated linearly. Weight 'gpu_time': every job counts by its GPU time; a quantile is the "
        "smallest duration at or below which that share of the GPU time lies. Bucket 'all': all GPU jobs. "
        f"{CENSORED_NOTE}"
    ),
    needs=("duration_s",),
)
def duration_quantiles(jobs: pl.DataFrame) -> pl.DataFrame:
    """Mean and quantiles of the duration by GPU-count bucket, by jobs and by GPU time [s].

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of the jobs table; a null ``duration_s`` counts nowhere.

    Returns
    -------
    DataFrame, a row per bucket that has jobs ("all" = GPU jobs) and weight
        bucket, weight, num_jobs, num_right_censored, gpu_hours, mean_s, min_s, p5_s … p99_s, max_s. Rows of weight
        "gpu_time" are missing where a bucket has no GPU time; gpu_hours is null where GPUs are unknown.

    References
    ----------
    .. [1] Quantiles of weight "jobs" are type 7 of R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical
       Packages", The American Statistician 50(4), 1996, doi:10.1080/00031305.1996.10473566.
    """
    rows = []
    for bucket, part in bucket_groups(jobs, "duration_s"):
        values = part["duration_s"].to_numpy()
        weights = part["gpu_s"].fill_null(0.0).to_numpy()
        known_gpus = part["gpu_s"].null_count() < part.height
        shared = {
            "bucket": bucket,
            "num_jobs": part.height,
            "num_right_censored": count_right_censored(part),
            "gpu_hours": float(weights.sum()) / S_PER_H if known_gpus else None,
            "min_s": float(values.min()),
            "max_s": float(values.max()),
        }
        plain = np.quantile(values, list(QUANTILES.values())).tolist()
        rows.append({**shared, "weight": "jobs", "mean_s": float(values.mean()), **_named(plain)})
        if weights.sum() > 0:
            heavy = _weighted_quantiles(values, weights=weights, at=tuple(QUANTILES.values()))
            mean = float(np.average(values, weights=weights))
            rows.append({**shared, "weight": "gpu_time", "mean_s": mean, **_named(heavy)})
    return pl.DataFrame(rows, schema=QUANTILES_SCHEMA)


def _named(values: list[float | None]) -> dict[str, float | None]:
    return {f"{name}_s": value for name, value in zip(QUANTILES, values, strict=True)}


@characterization(
    "duration_cdf",
    title="Duration distribution by GPU count",
    definition=(
        "Share of the jobs, or of their GPU time, that belongs to jobs of at most this duration, on a grid of 20 "
        f"points per factor of ten from 1 s; shorter jobs count at 1 s. {CENSORED_NOTE}"
    ),
    needs=("duration_s",),
)
def duration_cdf(jobs: pl.DataFrame) -> pl.DataFrame:
    """Cumulative distribution of the duration on a log grid by GPU-count bucket, by jobs and by GPU time.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of the jobs table; a null ``duration_s`` counts nowhere.

    Returns
    -------
    DataFrame, a row per bucket, weight and grid point
        bucket, weight, duration_s (grid point) [s], share (of the bucket's jobs or GPU time, 0-1).
    """
    groups = bucket_groups(jobs, "duration_s")
    grid = log_grid(max((float(part["duration_s"].to_numpy().max()) for _, part in groups), default=1.0))
    return cdf_table(groups, value="duration_s", grid=grid, schema=CDF_SCHEMA)


def cdf_table(
    groups: list[tuple[str, pl.DataFrame]],
    *,
    value: str,
    grid: np.ndarray[tuple[int], np.dtype[np.float64]],
    schema: dict[str, pl.DataType],
) -> pl.DataFrame:
    """Distribution of ``value`` by bucket and weight on a grid; a weight of sum 0 has no rows."""
    parts = [pl.DataFrame(schema=schema)]
    for bucket, part in groups:
        heavy = part["gpu_s"].fill_null(0.0).to_numpy()
        for weight, weights in (("jobs", None), ("gpu_time", heavy)):
            shares = share_below(part[value].to_numpy(), weights=weights, grid=grid)
            if not np.isnan(shares).any():
                columns = {"bucket": bucket, "weight": weight, value: grid, "share": shares}
                parts.append(pl.DataFrame(columns, schema=schema))
    return pl.concat(parts)
