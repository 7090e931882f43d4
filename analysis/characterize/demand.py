"""How many GPUs jobs ask for, by jobs, by GPUs and by GPU time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from analysis.characterize.buckets import BUCKET, GPU_BUCKETS, conform, grouped_schema
from analysis.characterize.inputs import DURATIONS, GPUS
from analysis.characterize.registry import characterization
from analysis.metrics import S_PER_H, US_PER_S

__all__ = ["gpu_demand", "gpu_fractions", "share_of"]

DEMAND_SCHEMA: Final = {
    "bucket": BUCKET,
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "num_gpus": pl.Float64(),
    "gpu_share": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
}
FRACTIONS_SCHEMA: Final = {
    "num_gpus": pl.Float64(),
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
}


def share_of(column: str, by: Sequence[str] = ()) -> pl.Expr:
    """Share of a column's total in each group; null where the total is 0, since nothing has no shares."""
    total = pl.col(column).sum().over(by) if by else pl.col(column).sum()
    return pl.when(total > 0).then(pl.col(column) / total)


@characterization(
    "gpu_demand",
    inputs=(DURATIONS,),
    title="GPU demand",
    definition=(
        "GPU jobs by the GPUs that the whole job asks for: their share of the jobs, of the GPUs requested (a sum "
        "over jobs, not what ran at one time) and of the GPU time used. A fraction above one GPU counts as the "
        "devices it takes (1.5 as 2)."
    ),
    needs=("num_gpus",),
    empty_means="No job of the log asks for a GPU.",
)
def gpu_demand(durations: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Shares of the GPU-count buckets by jobs, by GPUs requested and by GPU time.

    CPU jobs and jobs with unknown GPUs are left out (the summary counts them).

    Returns
    -------
    DataFrame, a row per bucket that has jobs
        bucket, num_jobs, job_share, num_gpus (requested, summed), gpu_share, gpu_hours (0 where no duration is known),
        gpu_time_share (null if no GPU time is known at all). Shares are of each group's jobs.
    """
    groups = (
        durations.filter(pl.col("bucket").is_in(GPU_BUCKETS))
        .group_by([*by, "bucket"])
        .agg(
            num_jobs=pl.col("num_jobs").sum(),
            num_gpus=pl.col("sum_milli_gpus").sum() / 1000,
            gpu_hours=pl.col("sum_gpu_us").sum() / US_PER_S / S_PER_H,
        )
        .sort([*by, "bucket"])
    )
    shares = groups.with_columns(
        job_share=share_of("num_jobs", by), gpu_share=share_of("num_gpus", by), gpu_time_share=share_of("gpu_hours", by)
    )
    return conform(shares, grouped_schema(by, DEMAND_SCHEMA))


@characterization(
    "gpu_fractions",
    inputs=(GPUS,),
    title="Fractions of a GPU",
    definition=(
        "GPU jobs that ask for no whole number of GPUs, by what they ask for, to a hundredth of a GPU: their share of "
        "all GPU jobs and of all GPU time. Of a whole job: four tasks of half a GPU ask for two and are not here."
    ),
    source="Weng et al., MLaaS in the Wild (NSDI 2022), section 4; Weng et al., FGD (ATC 2023), table 1",
    needs=("num_gpus",),
    empty_means="No job of the log asks for a fraction of a GPU.",
)
def gpu_fractions(gpus: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Jobs that ask for fractions of a GPU, by the fraction.

    Returns
    -------
    DataFrame, a row per number of GPUs that is not whole
        num_gpus (hundredths), num_jobs, job_share (of the group's GPU jobs), gpu_hours, gpu_time_share (of the group's
        GPU time; null if there is none).

    Examples
    --------
    >>> jobs = pl.DataFrame({"num_gpus": [0.5, 0.5, 1.0, 8.0], "duration_s": [60.0, 60.0, 60.0, 60.0]})
    >>> gpu_fractions(jobs).select("num_gpus", "num_jobs", "job_share", "gpu_time_share").rows()
    [(0.5, 2, 0.5, 0.1)]
    """
    milli = pl.col("milli_gpus")
    hundredths = pl.when(milli % 1000 != 0).then((milli / 10).round().cast(pl.Int64))
    groups = (
        gpus.filter(milli > 0)
        .group_by([*by, hundredths.alias("hundredths")])
        .agg(pl.col("num_jobs").sum(), gpu_hours=pl.col("sum_gpu_us").sum() / US_PER_S / S_PER_H)
        .sort([*by, "hundredths"])
        .with_columns(job_share=share_of("num_jobs", by), gpu_time_share=share_of("gpu_hours", by))
        .filter(pl.col("hundredths").is_not_null())
    )
    return conform(groups.with_columns(num_gpus=pl.col("hundredths") / 100), grouped_schema(by, FRACTIONS_SCHEMA))
