"""How long jobs run: quantiles and distribution by GPU-count bucket and by status, by jobs and by GPU time.

A right-censored job counts with the time that it had run when the log ends (a lower bound), and the tables say how many
there are; a job without a known duration counts nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from analysis.characterize.buckets import BUCKET, WEIGHT, conform, grouped_schema
from analysis.characterize.cubes import in_order
from analysis.characterize.inputs import DURATIONS
from analysis.characterize.registry import characterization
from analysis.characterize.weighted import grid_shares, group_quantiles, with_all_gpu_jobs
from analysis.metrics import S_PER_H, US_PER_S
from analysis.schema import STATUS

__all__ = ["QUANTILES", "duration_cdf", "duration_quantiles", "durations_by_status"]

QUANTILES: Final = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99}

CENSORED_NOTE: Final = "A job still running when the log ends counts with the time that it had run (a lower bound)."
QUANTILE_NOTE: Final = (
    "Weight 'jobs': every job counts once, quantiles are interpolated linearly. Weight 'gpu_time': every job counts by "
    "its GPU time; a quantile is the smallest duration at or below which that share of the GPU time lies."
)
QUANTILE_SOURCE: Final = "Hyndman and Fan 1996, type 7, doi:10.1080/00031305.1996.10473566"
MEASURES: Final = {
    "num_jobs": pl.Int64(),
    "num_right_censored": pl.Int64(),
    "gpu_hours": pl.Float64(),
    "mean_s": pl.Float64(),
    "min_s": pl.Float64(),
    **{f"{name}_s": pl.Float64() for name in QUANTILES},
    "max_s": pl.Float64(),
}
QUANTILES_SCHEMA: Final = {"bucket": BUCKET, "weight": WEIGHT, **MEASURES}
STATUS_SCHEMA: Final = {"status": STATUS, "weight": WEIGHT, **MEASURES}
CDF_SCHEMA: Final = {"bucket": BUCKET, "weight": WEIGHT, "duration_s": pl.Float64(), "share": pl.Float64()}


@characterization(
    "duration_quantiles",
    inputs=(DURATIONS,),
    title="Durations by GPU count",
    definition=(
        f"Running time of a job, attempts summed, pauses left out. {QUANTILE_NOTE} Bucket 'all': all GPU jobs. "
        f"{CENSORED_NOTE}"
    ),
    source=QUANTILE_SOURCE,
    needs=("duration_s",),
)
def duration_quantiles(durations: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Mean and quantiles of the duration by GPU-count bucket, by jobs and by GPU time [s].

    A job with a null ``duration_s`` counts nowhere.

    Returns
    -------
    DataFrame, a row per bucket that has jobs ("all" = GPU jobs) and weight
        bucket, weight, num_jobs, num_right_censored, gpu_hours, mean_s, min_s, p5_s … p99_s, max_s. Rows of weight
        "gpu_time" are missing where a bucket has no GPU time; gpu_hours is null where GPUs are unknown.

    References
    ----------
    .. [1] Quantiles of weight "jobs" are type 7 of R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical
       Packages", The American Statistician 50(4), 1996, doi:10.1080/00031305.1996.10473566.

    Examples
    --------
    >>> jobs = pl.DataFrame({"num_gpus": [1.0, 1.0, 1.0], "duration_s": [10.0, 20.0, 70.0]})
    >>> table = duration_quantiles(jobs, where=pl.col("num_gpus") > 0)
    >>> table.filter(bucket="all").select("weight", "mean_s", "p50_s").rows()
    [('jobs', 33.3333333333, 20.0), ('gpu_time', 54.0, 70.0)]
    """
    known = with_all_gpu_jobs(durations.filter(pl.col("duration_s").is_not_null()))
    return conform(_quantiles(known, [*by, "bucket"]), grouped_schema(by, QUANTILES_SCHEMA))


@characterization(
    "durations_by_status",
    inputs=(DURATIONS,),
    title="Durations by how jobs end",
    definition=(
        f"Running time of GPU jobs by their last status. {QUANTILE_NOTE} A job without a status counts as unknown. "
        f"{CENSORED_NOTE}"
    ),
    source=QUANTILE_SOURCE,
    needs=("duration_s", "status"),
    own_groups=("status",),
)
def durations_by_status(durations: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Mean and quantiles of the duration of GPU jobs by last status, by jobs and by GPU time [s].

    Returns
    -------
    DataFrame, a row per status that occurs and weight
        status, weight, and the columns of `duration_quantiles`. Empty where no status is known.
    """
    schema = grouped_schema(by, STATUS_SCHEMA)
    known = durations.filter(pl.col("duration_s").is_not_null() & (pl.col("sum_milli_gpus") > 0))
    known = known.with_columns(pl.col("status").fill_null("unknown"))
    if not (known["status"] != "unknown").any():
        return pl.DataFrame(schema=schema)
    return conform(_quantiles(known, [*by, "status"]), schema)


def _quantiles(known: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Rows of both weights by ``keys``; from counted durations, none null."""
    value, heavy = pl.col("duration_s"), pl.col("sum_gpu_us")
    shared = {
        "num_jobs": pl.col("num_jobs").sum(),
        "num_right_censored": pl.col("num_right_censored").sum(),
        "gpu_hours": pl.when((pl.col("bucket") != "unknown").any()).then(heavy.sum() / US_PER_S / S_PER_H),
        "min_s": value.min(),
        "max_s": value.max(),
    }
    ordered = in_order(known, [*keys, "duration_s"])
    parts = []
    for weight, column in (("jobs", "num_jobs"), ("gpu_time", "sum_gpu_us")):
        total = pl.col(column).sum()
        table = ordered.group_by(keys, maintain_order=True).agg(
            **shared,
            mean_s=pl.when(total > 0).then((value * pl.col(column)).sum() / total),
            weight=pl.lit(weight, WEIGHT),
        )
        quantiles = group_quantiles(
            ordered,
            keys,
            value="duration_s",
            weight=column,
            at={f"{name}_s": at for name, at in QUANTILES.items()},
            interpolated=weight == "jobs",
        )
        both = table.hstack(quantiles.drop(keys))
        parts.append(both.filter(pl.col("mean_s").is_not_null()))
    return pl.concat(parts).sort([*keys, "weight"])


@characterization(
    "duration_cdf",
    inputs=(DURATIONS,),
    title="Duration distribution by GPU count",
    definition=(
        "Share of the jobs, or of their GPU time, that belongs to jobs of at most this duration, on a grid of 20 "
        f"points per factor of ten from 1 s; shorter jobs count at 1 s. {CENSORED_NOTE}"
    ),
    needs=("duration_s",),
)
def duration_cdf(durations: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Cumulative distribution of the duration on a log grid by GPU-count bucket, by jobs and by GPU time.

    A job with a null ``duration_s`` counts nowhere.

    Returns
    -------
    DataFrame, a row per bucket, weight and grid point
        bucket, weight, duration_s (grid point) [s], share (of the bucket's jobs or GPU time, 0-1).
    """
    known = durations.filter(pl.col("duration_s").is_not_null())
    return bucket_cdf(known, by=by, value="duration_s", schema=grouped_schema(by, CDF_SCHEMA))


def bucket_cdf(cube: pl.DataFrame, *, by: tuple[str, ...], value: str, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """Distribution of ``value`` (no nulls) by bucket and weight; a weight of sum 0 has no rows."""
    keys = [*by, "bucket"]
    weights = (("jobs", "num_jobs"), ("gpu_time", "sum_gpu_us"))
    shares = grid_shares(with_all_gpu_jobs(cube), by=keys, value=value, weights=weights)
    return conform(shares, schema).sort([*keys, "weight", value])
