"""How jobs end, by count and by GPU time."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis.characterize.buckets import KIND, conform, grouped_schema
from analysis.characterize.cubes import in_order
from analysis.characterize.demand import share_of
from analysis.characterize.inputs import DURATIONS
from analysis.characterize.registry import characterization
from analysis.characterize.weighted import group_quantiles
from analysis.metrics import S_PER_H, US_PER_S
from analysis.schema import STATUS

__all__ = ["kind_of_bucket", "status_shares"]

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


def kind_of_bucket() -> pl.Expr:
    """Kind of the jobs of a bucket: "gpu", "cpu" or "unknown"."""
    bucket = pl.col("bucket").cast(pl.String)
    kind = pl.when(bucket == "0").then(pl.lit("cpu")).when(bucket == "unknown").then(pl.lit("unknown"))
    return kind.otherwise(pl.lit("gpu")).cast(KIND).alias("kind")


@characterization(
    "status",
    inputs=(DURATIONS,),
    title="How jobs end",
    definition=(
        "Jobs by their last status, GPU jobs and CPU jobs apart: share of the jobs and share of the GPU time. A "
        "job without a status counts as unknown; one still running counts with the GPU time that it had used when "
        "the log ends."
    ),
    needs=("status",),
    empty_means="The log does not say how jobs ended.",
    own_groups=("status",),
)
def status_shares(durations: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Shares of the job statuses by count and by GPU time, GPU jobs and CPU jobs apart.

    A null ``status`` counts as unknown.

    Returns
    -------
    DataFrame, a row per kind (gpu, cpu, unknown GPUs) and status that occurs
        kind, status, num_jobs, job_share (of the kind's jobs), gpu_hours, gpu_time_share (of the kind's GPU time; null
        if it has none), mean_duration_s, median_duration_s (null if no duration is known).
        Empty where no status is known.
    """
    schema = grouped_schema(by, STATUS_SCHEMA)
    cube = durations.with_columns(pl.col("status").fill_null("unknown"), kind_of_bucket())
    if not (cube["status"] != "unknown").any():
        return pl.DataFrame(schema=schema)
    keys = [*by, "kind", "status"]
    groups = cube.group_by(keys).agg(
        num_jobs=pl.col("num_jobs").sum(), gpu_hours=pl.col("sum_gpu_us").sum() / US_PER_S / S_PER_H
    )
    count, value = pl.col("num_jobs"), pl.col("duration_s")
    known = in_order(cube.filter(value.is_not_null()), [*keys, "duration_s"])
    means = known.group_by(keys, maintain_order=True).agg(mean_duration_s=(value * count).sum() / count.sum())
    medians = group_quantiles(known, keys, value="duration_s", weight="num_jobs", at={"median_duration_s": 0.5})
    times = means.hstack(medians.drop(keys))
    within = [*by, "kind"]
    shares = groups.join(times, on=keys, how="left", nulls_equal=True).with_columns(
        job_share=share_of("num_jobs", within), gpu_time_share=share_of("gpu_hours", within)
    )
    return conform(shares, schema).sort(keys)
