"""How often GPU jobs are tried, what the earlier tries cost, and how soon jobs fail."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from analysis.characterize.buckets import BUCKET, GPU_BUCKETS, conform, grouped_schema
from analysis.characterize.cubes import GROUPS, Cube
from analysis.characterize.demand import share_of
from analysis.characterize.durations import QUANTILES
from analysis.characterize.inputs import DURATIONS
from analysis.characterize.intervals import OPEN_BEGIN, OPEN_END
from analysis.characterize.registry import characterization
from analysis.characterize.waste import ACME, PHILLY, gpu_hours_of
from analysis.characterize.weighted import group_quantiles, with_all_gpu_jobs
from analysis.metrics import S_PER_H, US_PER_S
from analysis.trace import Trace

__all__ = ["retries", "time_to_failure"]

#: A job that was stopped by its time limit did not fail by itself.
BROKE: Final = ("failed", "node_fail")
#: More attempts than this are one row.
MOST_ATTEMPTS: Final = 5

RETRIES_SCHEMA: Final = {
    "num_attempts": pl.Int64(),
    "is_or_more": pl.Boolean(),
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "completed_share": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "lost_gpu_hours": pl.Float64(),
}
FAILURE_SCHEMA: Final = {
    "bucket": BUCKET,
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "mean_s": pl.Float64(),
    **{f"{name}_s": pl.Float64() for name in QUANTILES},
    "within_1min_share": pl.Float64(),
    "within_10min_share": pl.Float64(),
    "gpu_hours": pl.Float64(),
}

#: GPU jobs by how often they were tried, and how they ended.
ATTEMPTS: Final = Cube(
    "attempts",
    keys={"num_attempts": pl.col("num_attempts").clip(upper_bound=MOST_ATTEMPTS), "status": GROUPS["status"]},
    values={"num_jobs": pl.len().cast(pl.Int64), "sum_gpu_us": pl.col("gpu_us").sum()},
    where=(pl.col("num_gpus") > 0) & (pl.col("num_attempts") > 0),
)
#: GPU time of the attempts that were not their job's last.
LOST: Final = Cube(
    "lost attempts",
    keys={"num_attempts": pl.col("num_attempts").clip(upper_bound=MOST_ATTEMPTS)},
    # Thousandths are divided away before the sum, which would pass 2**63 otherwise.
    values={"sum_lost_us": (pl.col("held_milli_gpus") * (pl.col("until_us") - pl.col("begin_us")) // 1000).sum()},
    where=(pl.col("job_change") < 0)
    & ~pl.col("is_last")
    & (pl.col("begin_us") > OPEN_BEGIN)
    & (pl.col("until_us") < OPEN_END),
    table="changes",
)


def _options(trace: Trace) -> dict[str, Any]:
    return {"attempts": trace.attempts}


@characterization(
    "retries",
    inputs=(ATTEMPTS, LOST),
    title="Retries",
    definition=(
        f"GPU jobs by the number of their scheduling attempts ({MOST_ATTEMPTS} stands for that many or more), the "
        "share of them that completed in the end, and the GPU time of attempts that were not the last: lost unless "
        "the job went on from a checkpoint."
    ),
    source=PHILLY,
    needs=("num_attempts", "num_gpus"),
    options=_options,
    empty_means="The log does not say how often GPU jobs were tried.",
)
def retries(
    attempts_of_jobs: pl.DataFrame,
    lost: pl.DataFrame,
    *,
    by: tuple[str, ...] = (),
    attempts: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Jobs by how often they were tried, and what the earlier tries cost.

    Parameters
    ----------
    attempts : DataFrame, optional
        The attempts table; without it the lost GPU time is not known.

    Returns
    -------
    DataFrame, a row per number of attempts
        num_attempts, is_or_more, num_jobs, job_share, completed_share (null without a known status), gpu_hours of the
        jobs, lost_gpu_hours (null without an attempts table).
    """
    status = pl.col("status").cast(pl.String)
    known = status.is_not_null() & (status != "unknown")
    done = pl.col("num_jobs").filter(status == "completed").sum() / pl.col("num_jobs").filter(known).sum()
    keys = [*by, "num_attempts"]
    table = (
        attempts_of_jobs.group_by(keys)
        .agg(completed_share=done.fill_nan(None), gpu_hours=gpu_hours_of(), num_jobs=pl.col("num_jobs").sum())
        .join(lost, on=keys, how="left", nulls_equal=True)
        .with_columns(
            job_share=share_of("num_jobs", by),
            is_or_more=pl.col("num_attempts") == MOST_ATTEMPTS,
            lost_gpu_hours=pl.col("sum_lost_us").fill_null(0) / US_PER_S / S_PER_H
            if attempts is not None and attempts.height
            else None,
        )
    )
    return conform(table.sort(keys), grouped_schema(by, RETRIES_SCHEMA))


@characterization(
    "time_to_failure",
    inputs=(DURATIONS,),
    title="Time to failure",
    definition=(
        "How long GPU jobs ran that failed or lost their node: quantiles, and the share that failed within a minute "
        "and within ten. Jobs stopped by their time limit are no failures here. job_share: of all GPU jobs of the "
        "bucket."
    ),
    source=ACME,
    needs=("status", "duration_s", "num_gpus"),
    empty_means="No GPU job of the log is known to have failed.",
)
def time_to_failure(durations: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Quantiles of the running time of failed GPU jobs by GPU-count bucket [s].

    Returns
    -------
    DataFrame, a row per bucket with failed jobs ("all" = GPU jobs)
        bucket, num_jobs (failed), job_share, mean_s, p5_s … p99_s, within_1min_share, within_10min_share, gpu_hours.
    """
    cube = with_all_gpu_jobs(durations).filter(pl.col("bucket").is_in(("all", *GPU_BUCKETS)))
    keys = [*by, "bucket"]
    broke = pl.col("status").cast(pl.String).is_in(BROKE) & pl.col("duration_s").is_not_null()
    value, count = pl.col("duration_s"), pl.col("num_jobs")
    failed = cube.filter(broke).group_by([*keys, "duration_s"]).agg(count.sum(), pl.col("sum_gpu_us").sum())
    failed = failed.sort([*keys, "duration_s"])
    at = {f"{name}_s": share for name, share in QUANTILES.items()}
    quantiles = group_quantiles(failed, keys, value="duration_s", weight="num_jobs", at=at)
    table = (
        failed.group_by(keys, maintain_order=True)
        .agg(
            mean_s=(value * count).sum() / count.sum(),
            within_1min_share=count.filter(value <= 60).sum() / count.sum(),
            within_10min_share=count.filter(value <= 600).sum() / count.sum(),
            gpu_hours=gpu_hours_of(),
            num_jobs=count.sum(),
        )
        .join(quantiles, on=keys, nulls_equal=True)
        .join(cube.group_by(keys).agg(total=count.sum()), on=keys, nulls_equal=True)
        .with_columns(job_share=pl.col("num_jobs") / pl.col("total"))
    )
    return conform(table.sort(keys), grouped_schema(by, FAILURE_SCHEMA))
