"""A log in the form of the summaries that the authors of Helios and AcmeTrace published, to be compared with theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from analysis.characterize.buckets import BUCKETS, GPU_BUCKETS, conform, grouped_schema
from analysis.characterize.inputs import DURATIONS, GPUS, WAITS
from analysis.characterize.registry import characterization
from analysis.characterize.running import known_gpus
from analysis.characterize.weighted import group_quantiles
from analysis.metrics import US_PER_S
from analysis.trace import Trace

__all__ = ["FOLDED", "headline_figures"]

#: The authors' three outcomes; the rare ones count as failed.
FOLDED: Final = {
    "completed": ("completed",),
    "cancelled": ("cancelled",),
    "failed": ("failed", "timeout", "node_fail"),
}
#: Buckets of all jobs, and of those of a kind.
KINDS: Final = {"all": BUCKETS, "cpu": ("0",), "gpu": GPU_BUCKETS}
COUNTS: Final = {name: pl.Int64() for name in ("num_jobs", "num_cpu_jobs", "num_gpu_jobs")}
HEADLINE_SCHEMA: Final = {
    "trace": pl.String(),
    "total_gpus": pl.Float64(),
    **COUNTS,
    **{
        f"{how}_{kind}_{what}_s": pl.Float64()
        for what in ("duration", "queueing_delay")
        for kind in ("gpu", "cpu")
        for how in ("mean", "median", "max")
    },
    **{f"{how}_gpus": pl.Float64() for how in ("mean", "median", "max")},
    **{f"{kind}_{outcome}_share": pl.Float64() for kind in ("all", "cpu", "gpu") for outcome in FOLDED},
    **{f"{outcome}_gpu_s": pl.Float64() for outcome in FOLDED},
    **{f"{outcome}_gpu_time_share": pl.Float64() for outcome in FOLDED},
}


def _options(trace: Trace) -> dict[str, Any]:
    return {"name": trace.meta.name, "total_gpus": known_gpus(trace)}


@characterization(
    "headline",
    inputs=(DURATIONS, WAITS, GPUS),
    title="Headline figures, as published for other clusters",
    definition=(
        "One row in the form of the published summaries of Helios, Philly, PAI, Seren and Kalos: means and medians of "
        "GPU jobs and of CPU jobs, outcomes by jobs and by GPU time. As there, time-outs and node failures count as "
        "failed. Shares are of all jobs of the kind, so that what is missing to 100 % ended otherwise or is not known. "
        "GPUs: of the GPU jobs."
    ),
    source=(
        "Q. Hu et al., SC 2021, doi:10.1145/3458817.3476223 (HeliosArtifact, helios_cluster_summary.csv); Q. Hu et "
        "al., NSDI 2024 (AcmeTrace, cluster_summary.csv)"
    ),
    options=_options,
)
def headline_figures(
    durations: pl.DataFrame,
    waits: pl.DataFrame,
    gpus: pl.DataFrame,
    *,
    by: tuple[str, ...] = (),
    name: str = "",
    total_gpus: float | None = None,
) -> pl.DataFrame:
    """Headline figures in one row (or one a group), comparable with the published ones.

    Parameters
    ----------
    name : str
        What the row is called.
    total_gpus : float, optional
        GPUs of the whole cluster; null = not known, and always null in groups.

    Returns
    -------
    DataFrame of one row, or of one a group; of none for no jobs
        trace; total_gpus; num_jobs, num_cpu_jobs, num_gpu_jobs; mean, median and max of duration and queueing delay
        [s] of GPU and of CPU jobs (null without any that is known); mean, median and max GPUs of the GPU jobs;
        completed, cancelled and failed shares of all, CPU and GPU jobs; GPU-seconds and shares of GPU time (null where
        no end is known).
    """
    schema = grouped_schema(by, HEADLINE_SCHEMA)
    parts = [_shares(durations, by)]
    for cube, value in ((durations, "duration_s"), (waits, "queueing_delay_s")):
        parts += [
            _measures(cube, by, value=value, buckets=KINDS[kind], what=f"{kind}_{value}") for kind in ("gpu", "cpu")
        ]
    sizes = gpus.filter(pl.col("milli_gpus") > 0).with_columns(bucket=pl.lit("all"), gpus=pl.col("milli_gpus") / 1000)
    parts.append(_measures(sizes, by, value="gpus", buckets=("all",), what="gpus"))
    table = parts[0]
    for part in parts[1:]:
        table = table.join(part, on=by, how="left", nulls_equal=True) if by else table.hstack(part)
    table = table.with_columns(trace=pl.lit(name), total_gpus=pl.lit(None if by else total_gpus, pl.Float64)).filter(
        pl.col("num_jobs") > 0
    )
    return conform(table.sort(by) if by else table, schema)


def _measures(cube: pl.DataFrame, by: Sequence[str], *, value: str, buckets: Sequence[str], what: str) -> pl.DataFrame:
    held, count = pl.col(value), pl.col("num_jobs")
    known = pl.col("bucket").is_in(buckets) & held.is_not_null()
    counted = cube.filter(known).select(*by, value, "num_jobs").sort([*by, value])
    measures = {
        f"mean_{what}": pl.when(count.sum() > 0).then((held * count).sum() / count.sum()),
        f"max_{what}": held.max(),
    }
    table = counted.group_by(by, maintain_order=True).agg(**measures) if by else counted.select(**measures)
    medians = group_quantiles(counted, by, value=value, weight="num_jobs", at={f"median_{what}": 0.5})
    return table.hstack(medians.drop(by))


def _shares(cube: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    # Few rows are looked at a few dozen times.
    cube = cube.group_by(list(dict.fromkeys([*by, "bucket", "status"]))).agg(pl.col("num_jobs", "sum_gpu_us").sum())
    count, work = pl.col("num_jobs"), pl.col("sum_gpu_us")
    bucket, status = pl.col("bucket").cast(pl.String), pl.col("status").cast(pl.String)
    measures = {"num_jobs": count.sum()}
    measures |= {f"num_{kind}_jobs": count.filter(bucket.is_in(KINDS[kind])).sum() for kind in ("cpu", "gpu")}
    # Where no end is known, a share of 0 would say that nothing of the kind happened.
    is_known = status != "unknown"
    for kind, members in KINDS.items():
        known = count.filter(bucket.is_in(members) & is_known).sum()
        total = count.filter(bucket.is_in(members)).sum()
        for outcome, statuses in FOLDED.items():
            held = count.filter(bucket.is_in(members) & status.is_in(statuses)).sum()
            measures[f"{kind}_{outcome}_share"] = pl.when(known > 0).then(held / total)
    all_time, known = work.sum(), count.filter(is_known).sum()
    for outcome, statuses in FOLDED.items():
        held = work.filter(status.is_in(statuses)).sum()
        measures[f"{outcome}_gpu_s"] = pl.when(known > 0).then(held / US_PER_S)
        measures[f"{outcome}_gpu_time_share"] = pl.when((all_time > 0) & (known > 0)).then(held / all_time)
    return cube.group_by(by).agg(**measures) if by else cube.select(**measures)
