"""What jobs did with the GPUs that they held: measured utilization and memory, and GPU-hours held idle."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.characterize.buckets import BUCKET, conform, grouped_schema
from analysis.characterize.cubes import GROUPS, Rows
from analysis.characterize.durations import QUANTILES
from analysis.characterize.inputs import DURATIONS
from analysis.characterize.registry import characterization
from analysis.characterize.weighted import group_quantiles, with_all_gpu_jobs
from analysis.metrics import S_PER_H, US_PER_S
from analysis.trace import Trace

__all__ = ["idle_gpu_hours", "measured_series", "use_of_devices"]

#: Columns of the usage table that a job has of its own; those that are shares of what it holds.
METRICS: Final = tuple(name for name in schema.USAGE if name != "job_id")
FRACTIONS: Final = tuple(name for name in METRICS if "utilization" in name)
#: Below this mean utilization a job hardly uses its GPUs.
LOW: Final = 0.1
#: Samples are counted to three digits: a relative error below 0.005 for quantiles.
DIGITS: Final = 3
SAMPLE_QUANTILES: Final = {"p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99}

USE_SCHEMA: Final = {
    "metric": pl.String(),
    "num_jobs": pl.Int64(),
    "num_measured": pl.Int64(),
    "coverage": pl.Float64(),
    "mean": pl.Float64(),
    "gpu_time_weighted_mean": pl.Float64(),
    **dict.fromkeys(QUANTILES, pl.Float64()),
    "max": pl.Float64(),
    "num_above_one": pl.Int64(),
}
IDLE_SCHEMA: Final = {
    "bucket": BUCKET,
    "num_jobs": pl.Int64(),
    "num_measured": pl.Int64(),
    "coverage": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "measured_gpu_hours": pl.Float64(),
    "gpu_utilization": pl.Float64(),
    "idle_gpu_hours": pl.Float64(),
    "idle_share": pl.Float64(),
    "low_use_job_share": pl.Float64(),
    "num_above_one": pl.Int64(),
}
SERIES_SCHEMA: Final = {
    "metric": pl.String(),
    "num_entities": pl.Int64(),
    "num_samples": pl.Int64(),
    "num_missing": pl.Int64(),
    "mean": pl.Float64(),
    **dict.fromkeys(SAMPLE_QUANTILES, pl.Float64()),
    "max": pl.Float64(),
    "zero_share": pl.Float64(),
    "above_one_share": pl.Float64(),
}
NOT_MEASURED: Final = "The log holds no measured use of its jobs."
COVERAGE_NOTE: Final = (
    "coverage: GPU jobs with a measurement over all GPU jobs; a missing one is not 0 and enters no mean. Values "
    "above 1 (more used than asked for, which sharing allows) are counted in num_above_one and not clipped."
)

#: GPU jobs with what they held; joined with what was measured of them.
HELD: Final = Rows(
    "GPU jobs",
    columns={name: pl.col(name) for name in ("job_id", "bucket", "gpu_us")},
    where=pl.col("num_gpus") > 0,
)


def _usage_options(trace: Trace) -> dict[str, Any]:
    return {"usage": trace.usage}


@characterization(
    "device_use",
    inputs=(HELD,),
    title="Measured use of GPU jobs",
    definition=(
        "What was measured of each GPU job, as the log's usage table has it: utilization as shares of what the job "
        f"asked for (busy time of the device, not allocation), memory in GiB. {COVERAGE_NOTE} Quantiles are over jobs."
    ),
    source="M. Jeon et al., ATC 2019, section 4.1 (utilization by GPU count); Q. Weng et al., NSDI 2022, section 4",
    needs=("num_gpus",),
    empty_means=NOT_MEASURED,
    options=_usage_options,
    beside=("usage",),
    heavy=True,
)
def use_of_devices(held: pl.DataFrame, *, by: tuple[str, ...] = (), usage: pl.DataFrame | None = None) -> pl.DataFrame:
    """Mean and quantiles over GPU jobs of everything that was measured of them.

    Parameters
    ----------
    usage : DataFrame, optional
        The usage table; one row a job. Null = nothing was measured.

    Returns
    -------
    DataFrame, a row per metric that was measured of any GPU job
        metric (column of the usage table), num_jobs (GPU jobs), num_measured, coverage, mean (over jobs),
        gpu_time_weighted_mean (null without GPU time), p5 … p99, max, num_above_one (null for memory).
    """
    result = grouped_schema(by, USE_SCHEMA)
    if usage is None or not usage.height:
        return pl.DataFrame(schema=result)
    joined = held.join(usage, on="job_id", how="left")
    long = joined.unpivot(METRICS, index=[*by, "gpu_us"], variable_name="metric", value_name="value")
    keys, value, weight = [*by, "metric"], pl.col("value"), pl.col("gpu_us")
    measured = value.is_not_null() & (weight > 0)
    time = weight.filter(measured).sum()
    table = (
        long.sort([*keys, "value"])
        .group_by(keys, maintain_order=True)
        .agg(
            num_jobs=pl.len(),
            num_measured=value.count(),
            mean=value.mean(),
            gpu_time_weighted_mean=pl.when(time > 0).then((value * weight).filter(measured).sum() / time),
            **{name: value.quantile(at, interpolation="linear") for name, at in QUANTILES.items()},
            max=value.max(),
            num_above_one=pl.when(pl.col("metric").first().is_in(FRACTIONS)).then((value > 1).sum()),
        )
        .filter(pl.col("num_measured") > 0)
        .with_columns(coverage=pl.col("num_measured") / pl.col("num_jobs"))
    )
    return conform(table.sort(keys), result)


@characterization(
    "idle_gpu_hours",
    inputs=(HELD, DURATIONS),
    title="GPU-hours held idle",
    definition=(
        "GPU-hours that measured GPU jobs held and, by their mean utilization, did not use: GPU-hours times one "
        "minus the utilization, none where it is above 1. gpu_utilization: mean weighted by GPU time. "
        f"low_use_job_share: measured jobs with a mean utilization below {LOW:.0%}. {COVERAGE_NOTE} Bucket 'all': all "
        "GPU jobs."
    ),
    source="M. Jeon et al., ATC 2019, section 4.1; B. Li et al., HPCA 2022, doi:10.1109/HPCA53966.2022.00093",
    needs=("num_gpus", "duration_s"),
    empty_means=NOT_MEASURED,
    options=_usage_options,
    beside=("usage",),
    heavy=True,
)
def idle_gpu_hours(
    held: pl.DataFrame, durations: pl.DataFrame, *, by: tuple[str, ...] = (), usage: pl.DataFrame | None = None
) -> pl.DataFrame:
    """GPU-hours that jobs held without using them, by GPU-count bucket.

    Parameters
    ----------
    usage : DataFrame, optional
        The usage table; null = nothing was measured.

    Returns
    -------
    DataFrame, a row per bucket with measured jobs ("all" = GPU jobs)
        bucket, num_jobs, num_measured, coverage (of the jobs), gpu_hours (of all jobs), measured_gpu_hours,
        gpu_utilization, idle_gpu_hours and idle_share (of the measured GPU-hours), low_use_job_share, num_above_one.
    """
    result = grouped_schema(by, IDLE_SCHEMA)
    if usage is None or not usage.height:
        return pl.DataFrame(schema=result)
    keys, hours = [*by, "bucket"], pl.col("gpu_us") / US_PER_S / S_PER_H
    share = pl.col("gpu_utilization_mean")
    measured = held.join(usage.select("job_id", "gpu_utilization_mean"), on="job_id").filter(share.is_not_null())
    known = hours.filter(pl.col("gpu_us").is_not_null()).sum()
    found = (
        with_all_gpu_jobs(measured)
        .sort(keys)
        .group_by(keys, maintain_order=True)
        .agg(
            num_measured=pl.len(),
            measured_gpu_hours=known,
            gpu_utilization=pl.when(known > 0).then((hours * share).sum() / known),
            idle_gpu_hours=(hours * (1 - share).clip(lower_bound=0)).sum(),
            low_use_job_share=(share < LOW).mean(),
            num_above_one=(share > 1).sum(),
        )
    )
    totals = with_all_gpu_jobs(durations).group_by(keys)
    whole = totals.agg(pl.col("num_jobs").sum(), gpu_hours=pl.col("sum_gpu_us").sum() / US_PER_S / S_PER_H)
    table = found.join(whole, on=keys, nulls_equal=True).with_columns(
        coverage=pl.col("num_measured") / pl.col("num_jobs"),
        idle_share=pl.when(pl.col("measured_gpu_hours") > 0).then(
            pl.col("idle_gpu_hours") / pl.col("measured_gpu_hours")
        ),
    )
    return conform(table.sort(keys), result)


def _series_options(trace: Trace) -> dict[str, Any]:
    return {"series": trace.scan("usage_series")}


@characterization(
    "measured_series",
    inputs=(),
    title="Measured samples of GPUs, nodes and containers",
    definition=(
        "Every sample of the log's usage series counts once: utilization (as a share), memory, power and whatever "
        "else the log measured of its GPUs, nodes or containers, idle ones too. Missing samples are counted and "
        "enter no mean. zero_share: samples of 0. above_one_share: of utilizations above 1, which are not clipped. "
        "Quantiles to three digits. The samples belong to no job, so a grouping or a filter of jobs changes nothing."
    ),
    source="Q. Hu et al., NSDI 2024, section 3.3 (infrastructure utilization)",
    empty_means="The log holds no measured samples.",
    options=_series_options,
    own_groups=tuple(GROUPS),
    heavy=True,
)
def measured_series(*, by: tuple[str, ...] = (), series: pl.LazyFrame | None = None) -> pl.DataFrame:
    """Mean and quantiles of every measured metric over all samples.

    Parameters
    ----------
    series : LazyFrame, optional
        Columns of the usage_series table; null = nothing was measured.

    Returns
    -------
    DataFrame, a row per metric
        metric (its name says its unit), num_entities, num_samples, num_missing, mean, p25 … p99, max (null without a
        sample), zero_share, above_one_share (null where the metric is no utilization).
    """
    del by
    if series is None:
        return pl.DataFrame(schema=SERIES_SCHEMA)
    value, count = pl.col("value"), pl.col("num_samples")
    counted = (
        series.with_columns(rounded=value.round_sig_figs(DIGITS))
        .group_by("metric", "rounded")
        .agg(num_samples=pl.len().cast(pl.Int64), total=value.sum(), most=value.max(), num_above=(value > 1).sum())
        .collect(engine="streaming")
    )
    entities = series.group_by("metric").agg(num_entities=pl.col("entity").n_unique()).collect(engine="streaming")
    known = counted.filter(pl.col("rounded").is_not_null()).sort("metric", "rounded")
    is_share = pl.col("metric").first().str.ends_with("utilization")
    table = known.group_by("metric", maintain_order=True).agg(
        mean=pl.col("total").sum() / count.sum(),
        max=pl.col("most").max(),
        zero_share=count.filter(pl.col("rounded") == 0).sum() / count.sum(),
        above_one_share=pl.when(is_share).then(pl.col("num_above").sum() / count.sum()),
        num_samples=count.sum(),
    )
    quantiles = group_quantiles(known, ["metric"], value="rounded", weight="num_samples", at=SAMPLE_QUANTILES)
    missing = counted.filter(pl.col("rounded").is_null()).select("metric", num_missing="num_samples")
    whole = entities
    for part in (table, quantiles, missing):
        whole = whole.join(part, on="metric", how="left")
    return conform(whole.with_columns(pl.col("num_missing", "num_samples").fill_null(0)).sort("metric"), SERIES_SCHEMA)
