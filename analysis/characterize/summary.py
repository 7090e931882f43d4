"""One row that sums up a log."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from analysis.characterize.buckets import conform, grouped_schema
from analysis.characterize.cubes import Cube
from analysis.characterize.inputs import DURATIONS, GPUS, USER_DAYS, WAITS
from analysis.characterize.outcomes import kind_of_bucket
from analysis.characterize.registry import characterization
from analysis.characterize.tenants import VCS
from analysis.characterize.weighted import group_quantiles
from analysis.metrics import S_PER_H, US_PER_S
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


def _count(condition: pl.Expr) -> pl.Expr:
    return condition.sum().cast(pl.Int64)


OVERVIEW: Final = Cube(
    "overview",
    keys={},
    values={
        "num_jobs": pl.len().cast(pl.Int64),
        "num_submitted": pl.col("submit_us").count().cast(pl.Int64),
        "num_unknown_gpus": pl.col("num_gpus").null_count().cast(pl.Int64),
        "num_unknown_duration": pl.col("duration_s").null_count().cast(pl.Int64),
        "num_right_censored": _count(pl.col("is_right_censored")),
        "num_left_censored": _count(pl.col("censoring").is_in(["left", "both"])),
        "num_never_started": _count(pl.col("censoring") == "never_started"),
        "min_submit_us": pl.col("submit_us").min(),
        "max_submit_us": pl.col("submit_us").max(),
        "max_end_us": pl.col("end_us").max(),
    },
)


@characterization(
    "summary",
    inputs=(OVERVIEW, DURATIONS, WAITS, GPUS, USER_DAYS, VCS),
    title="Summary",
    definition=(
        "One row per log. Durations, GPUs and queueing delays are of GPU jobs; 'cpu' marks those of CPU jobs. "
        "Users over the whole log, and the most that submitted on one day. A censored job counts with what is "
        "known of it (a lower bound)."
    ),
    options=_options,
)
def summary(overview: pl.DataFrame, *cubes: pl.DataFrame, by: tuple[str, ...] = (), name: str = "") -> pl.DataFrame:
    """Sum up a log in one row; ``name`` is what the row is called, ``time_zone`` where days begin.

    Returns
    -------
    DataFrame of one row (of each group), also for an empty log
        trace; first_submit, last_submit, last_end; counts (num_users and num_vcs are 0 where the log names none;
        num_left_censored and num_right_censored both count jobs censored on both sides; peak_daily_users: most users
        that submitted on one day); gpu_hours; mean, median and max duration of GPU jobs, mean and median of CPU jobs,
        GPUs and queueing delay of GPU jobs (null where unknown); jobs_per_day from the first to the last submission.
    """
    durations, waits, gpus, user_days, vcs = cubes
    parts = [
        *_durations(durations, by),
        _measured(
            waits.with_columns(kind_of_bucket()).filter(kind="gpu"), "queueing_delay_s", "{}_queueing_delay_s", by
        ),
        _measured(
            gpus.filter(pl.col("milli_gpus") > 0).with_columns(num=pl.col("milli_gpus") / 1000), "num", "{}_gpus", by
        ),
        *_names(user_days, vcs, by),
    ]
    table = overview
    for part in parts:
        table = table.join(part, on=by, how="left", nulls_equal=True) if by else table.hstack(part)
    span_s = (pl.col("max_submit_us") - pl.col("min_submit_us")) / US_PER_S
    columns = table.with_columns(
        *(
            pl.from_epoch(pl.col(f"{short}_us"), time_unit="us").dt.replace_time_zone("UTC").alias(long)
            for short, long in (("min_submit", "first_submit"), ("max_submit", "last_submit"), ("max_end", "last_end"))
        ),
        pl.col(COUNTS).fill_null(0),
        trace=pl.lit(name),
        jobs_per_day=pl.when(span_s > 0).then(pl.col("num_submitted") / span_s * S_PER_DAY),
    )
    return conform(columns.sort(by) if by else columns, grouped_schema(by, SUMMARY_SCHEMA))


def _agg(table: pl.DataFrame, by: tuple[str, ...], **exprs: pl.Expr) -> pl.DataFrame:
    return table.group_by(by).agg(**exprs) if by else table.select(**exprs)


def _measured(cube: pl.DataFrame, value: str, pattern: str, by: tuple[str, ...]) -> pl.DataFrame:
    """Mean, median and maximum of a counted value, nulls left out; names by the pattern."""
    known = cube.filter(pl.col(value).is_not_null()).select(*by, value, "num_jobs").sort([*by, value])
    count, total = pl.col("num_jobs"), pl.col("num_jobs").sum()
    means = {
        pattern.format("mean"): pl.when(total > 0).then((pl.col(value) * count).sum() / total),
        pattern.format("max"): pl.col(value).max(),
    }
    at = {pattern.format("median"): 0.5}
    medians = group_quantiles(known, by, value=value, weight="num_jobs", at=at).drop(by)
    table = known.group_by(by, maintain_order=True).agg(**means) if by else known.select(**means)
    return table.hstack(medians)


def _durations(durations: pl.DataFrame, by: tuple[str, ...]) -> list[pl.DataFrame]:
    cube, count = durations.with_columns(kind_of_bucket()), pl.col("num_jobs")
    work = _agg(
        cube,
        by,
        num_gpu_jobs=count.filter(kind="gpu").sum(),
        num_cpu_jobs=count.filter(kind="cpu").sum(),
        gpu_hours=pl.col("sum_gpu_us").sum() / US_PER_S / S_PER_H,
    )
    kinds = (("gpu", "{}_duration_s"), ("cpu", "{}_cpu_duration_s"))
    return [work, *(_measured(cube.filter(kind=kind), "duration_s", pattern, by) for kind, pattern in kinds)]


def _names(user_days: pl.DataFrame, vcs: pl.DataFrame, by: tuple[str, ...]) -> list[pl.DataFrame]:
    """How many users and VCs are named, and the most users on one day."""
    daily = user_days.filter(pl.col("local_day").is_not_null()).group_by([*by, "local_day"])
    users = daily.agg(n=pl.col("user").drop_nulls().n_unique())
    return [
        _agg(user_days, by, num_users=pl.col("user").drop_nulls().n_unique()),
        _agg(users, by, peak_daily_users=pl.col("n").max()),
        _agg(vcs, by, num_vcs=pl.col("vc").drop_nulls().n_unique()),
    ]
