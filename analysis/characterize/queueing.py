"""How long jobs wait before they start, by GPU-count bucket; empty where the log does not say when jobs start."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis.characterize.buckets import BUCKET, WEIGHT, conform, grouped_schema
from analysis.characterize.cubes import in_order
from analysis.characterize.durations import QUANTILES, bucket_cdf
from analysis.characterize.inputs import WAITS
from analysis.characterize.registry import characterization
from analysis.characterize.weighted import group_quantiles, with_all_gpu_jobs

__all__ = ["queueing_delay_cdf", "queueing_delay_quantiles"]

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


@characterization(
    "queueing_delay",
    inputs=(WAITS,),
    title="Queueing delay by GPU count",
    definition=(
        "Time from submission to first start of the jobs that started. waited_share: jobs that waited longer than "
        "1 s. Jobs that never started have no delay and are counted beside. Bucket 'all': all GPU jobs."
    ),
    needs=("queueing_delay_s",),
    empty_means="The log does not say when jobs started.",
)
def queueing_delay_quantiles(waits: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Mean and quantiles of the queueing delay by GPU-count bucket [s].

    A null ``queueing_delay_s`` or assumed times count nowhere.

    Returns
    -------
    DataFrame, a row per bucket in which a job started ("all" = GPU jobs)
        bucket, num_jobs (that started), num_never_started, waited_share (longer than 1 s), mean_s, p5_s … p99_s, max_s.
    """
    keys = [*by, "bucket"]
    cube = with_all_gpu_jobs(waits)
    never = cube.group_by(keys).agg(pl.col("num_never_started").sum())
    count, wait = pl.col("num_jobs"), pl.col("queueing_delay_s")
    names = [*keys, "queueing_delay_s", "num_jobs"]
    known = in_order(cube.filter(wait.is_not_null()).select(names), names[:-1])
    table = known.group_by(keys, maintain_order=True).agg(
        count.sum(),
        waited_share=count.filter(wait > 1).sum() / count.sum(),
        mean_s=(wait * count).sum() / count.sum(),
        max_s=wait.max(),
    )
    at = {f"{name}_s": share for name, share in QUANTILES.items()}
    quantiles = group_quantiles(known, keys, value="queueing_delay_s", weight="num_jobs", at=at)
    whole = table.hstack(quantiles.drop(keys)).join(never, on=keys, how="left", nulls_equal=True)
    return conform(whole, grouped_schema(by, WAITS_SCHEMA)).sort(keys)


@characterization(
    "queueing_delay_cdf",
    inputs=(WAITS,),
    title="Queueing delay distribution by GPU count",
    definition=(
        "Share of the jobs that started, or of their GPU time, that waited at most this long, on a grid of 20 "
        "points per factor of ten from 1 s; shorter waits count at 1 s."
    ),
    needs=("queueing_delay_s",),
    empty_means="The log does not say when jobs started.",
)
def queueing_delay_cdf(waits: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Cumulative distribution of the queueing delay on a log grid by GPU-count bucket, by jobs and by GPU time.

    A null ``queueing_delay_s`` or assumed times count nowhere.

    Returns
    -------
    DataFrame, a row per bucket, weight and grid point
        bucket, weight, queueing_delay_s (grid point) [s], share (0-1).
    """
    known = waits.filter(pl.col("queueing_delay_s").is_not_null())
    return bucket_cdf(known, by=by, value="queueing_delay_s", schema=grouped_schema(by, CDF_SCHEMA))
