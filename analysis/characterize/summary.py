"""One row that sums up a log."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from analysis.characterize.buckets import conform
from analysis.characterize.registry import characterization
from analysis.metrics import S_PER_H, gpu_s
from analysis.schema import TIME
from analysis.trace import Trace

__all__ = ["summary"]

COUNTS: Final = (
    *("num_jobs", "num_gpu_jobs", "num_cpu_jobs", "num_unknown_gpus", "num_unknown_duration", "num_right_censored"),
    *("num_left_censored", "num_never_started", "num_users", "peak_daily_users", "num_vcs"),
)
MEASURES: Final = (
    *("gpu_hours", "mean_duration_s", "median_duration_s", "max_duration_s", "mean_cpu_duration_s"),
    *("median_cpu_duration_s", "mean_gpus", "median_gpus", "max_gpus", "mean_queueing_delay_s"),
    *("median_queueing_delay_s", "jobs_per_day"),
)
SUMMARY_SCHEMA: Final = {
    "trace": pl.String(),
    "first_submit": TIME,
    "last_submit": TIME,
    "last_end": TIME,
    **dict.fromkeys(COUNTS, pl.Int64()),
    **dict.fromkeys(MEASURES, pl.Float64()),
}
S_PER_DAY: Final = 86400


def _options(trace: Trace) -> dict[str, Any]:
    return {"name": trace.meta.name, "time_zone": trace.meta.time_zone}


@characterization(
    "summary",
    title="Summary",
    definition=(
        "One row per log. Durations, GPUs and queueing delays are of GPU jobs; 'cpu' marks those of CPU jobs. "
        "Users over the whole log, and the most that submitted on one day. A censored job counts with what is "
        "known of it (a lower bound)."
    ),
    options=_options,
)
def summary(jobs: pl.DataFrame, *, name: str = "", time_zone: str = "UTC") -> pl.DataFrame:
    """Sum up a log in one row.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of the jobs table.
    name : str
        What the row is called.
    time_zone : str
        Zone in which days begin.

    Returns
    -------
    DataFrame of one row, also for an empty log
        trace; first_submit, last_submit, last_end; counts (num_users and num_vcs are 0 where the log names none;
        num_left_censored and num_right_censored both count jobs censored on both sides; peak_daily_users: most users
        that submitted on one day); gpu_hours; mean, median and max duration of GPU jobs, mean and median of CPU jobs,
        GPUs and queueing delay of GPU jobs (null where unknown); jobs_per_day from the first to the last submission.
    """
    gpus, duration = pl.col("num_gpus"), pl.col("duration_s")
    is_gpu, is_cpu = gpus > 0, gpus == 0
    wait = pl.col("queueing_delay_s").filter(is_gpu & ~pl.col("flags").list.contains("times_assumed"))
    censoring = pl.col("censoring")
    span_s = (pl.col("submit_time").max() - pl.col("submit_time").min()).dt.total_microseconds() / 1e6
    # Zone before date: a day begins at the site's midnight.
    day = pl.col("submit_time").dt.convert_time_zone(time_zone).dt.date()
    daily = jobs.group_by(day.alias("day")).agg(n=pl.col("user").drop_nulls().n_unique())
    peak_users = daily.filter(pl.col("day").is_not_null())["n"].max()
    table = jobs.select(
        trace=pl.lit(name),
        first_submit=pl.col("submit_time").min(),
        last_submit=pl.col("submit_time").max(),
        last_end=pl.col("end_time").max(),
        num_jobs=pl.len(),
        num_gpu_jobs=is_gpu.sum(),
        num_cpu_jobs=is_cpu.sum(),
        num_unknown_gpus=gpus.null_count(),
        num_unknown_duration=duration.null_count(),
        num_right_censored=censoring.is_in(["right", "both"]).sum(),
        num_left_censored=censoring.is_in(["left", "both"]).sum(),
        num_never_started=(censoring == "never_started").sum(),
        num_users=pl.col("user").drop_nulls().n_unique(),
        peak_daily_users=pl.lit(peak_users or 0),
        num_vcs=pl.col("vc").drop_nulls().n_unique(),
        gpu_hours=gpu_s().sum() / S_PER_H,
        mean_duration_s=duration.filter(is_gpu).mean(),
        median_duration_s=duration.filter(is_gpu).median(),
        max_duration_s=duration.filter(is_gpu).max(),
        mean_cpu_duration_s=duration.filter(is_cpu).mean(),
        median_cpu_duration_s=duration.filter(is_cpu).median(),
        mean_gpus=gpus.filter(is_gpu).mean(),
        median_gpus=gpus.filter(is_gpu).median(),
        max_gpus=gpus.filter(is_gpu).max(),
        mean_queueing_delay_s=wait.mean(),
        median_queueing_delay_s=wait.median(),
        jobs_per_day=pl.when(span_s > 0).then(pl.col("submit_time").count() / span_s * S_PER_DAY),
    )
    return conform(table, SUMMARY_SCHEMA)
