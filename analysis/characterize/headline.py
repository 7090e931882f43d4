"""A log in the form of the summaries that the authors of Helios and AcmeTrace published, to be compared with theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from analysis.characterize.buckets import KINDS, conform, grouped_schema
from analysis.characterize.cubes import GROUPS, Cube
from analysis.characterize.registry import characterization
from analysis.characterize.running import known_gpus
from analysis.characterize.weighted import counted_quantile
from analysis.metrics import US_PER_S
from analysis.trace import Trace

__all__ = ["FOLDED", "headline_figures"]

#: The authors' three outcomes; the rare ones count as failed.
FOLDED: Final = {
    "completed": ("completed",),
    "cancelled": ("cancelled",),
    "failed": ("failed", "timeout", "node_fail"),
}
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

#: Jobs by kind and one value: how long they ran, how long they waited, how many GPUs they asked for, how they ended.
RUNS: Final = Cube(
    "headline durations",
    keys={"kind": pl.col("kind"), "value": pl.col("run_s")},
    values={"num_jobs": pl.len().cast(pl.Int64)},
)
DELAYS: Final = Cube(
    "headline delays",
    keys={"kind": pl.col("kind"), "value": pl.col("wait_s")},
    values={"num_jobs": pl.len().cast(pl.Int64)},
    where=pl.col("has_times"),
)
SIZES: Final = Cube(
    "headline sizes",
    keys={"kind": pl.col("kind"), "value": pl.col("milli_gpus")},
    values={"num_jobs": pl.len().cast(pl.Int64)},
)
ENDS: Final = Cube(
    "headline outcomes",
    keys={"kind": pl.col("kind"), "status": GROUPS["status"]},
    values={"num_jobs": pl.len().cast(pl.Int64), "sum_gpu_us": pl.col("gpu_us").sum()},
)


def _options(trace: Trace) -> dict[str, Any]:
    return {"name": trace.meta.name, "total_gpus": known_gpus(trace)}


@characterization(
    "headline",
    inputs=(RUNS, DELAYS, SIZES, ENDS),
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
)
def headline_figures(
    runs: pl.DataFrame,
    delays: pl.DataFrame,
    sizes: pl.DataFrame,
    ends: pl.DataFrame,
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
        completed, cancelled and failed shares of all, CPU and GPU jobs; GPU-seconds and shares of GPU time.
    """
    schema = grouped_schema(by, HEADLINE_SCHEMA)
    parts = [_shares(ends, by)]
    for cube, what in ((runs, "duration_s"), (delays, "queueing_delay_s")):
        parts += [_measures(cube, by, kind=kind, what=f"{kind}_{what}") for kind in ("gpu", "cpu")]
    in_gpus = sizes.with_columns(pl.col("value") / 1000)
    parts.append(_measures(in_gpus, by, kind="gpu", what="gpus"))
    table = parts[0]
    for part in parts[1:]:
        table = table.join(part, on=by, how="left", nulls_equal=True) if by else table.hstack(part)
    table = table.with_columns(trace=pl.lit(name), total_gpus=pl.lit(None if by else total_gpus, pl.Float64)).filter(
        pl.col("num_jobs") > 0
    )
    return conform(table.sort(by) if by else table, schema)


def _measures(cube: pl.DataFrame, by: Sequence[str], *, kind: str, what: str) -> pl.DataFrame:
    value, count = pl.col("value"), pl.col("num_jobs")
    known = cube.filter((pl.col("kind").cast(pl.String) == kind) & value.is_not_null()).sort([*by, "value"])
    measures = {
        f"mean_{what}": pl.when(count.sum() > 0).then((value * count).sum() / count.sum()),
        f"median_{what}": counted_quantile("value", "num_jobs", 0.5),
        f"max_{what}": value.max(),
    }
    return known.group_by(by, maintain_order=True).agg(**measures) if by else known.select(**measures)


def _shares(ends: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    count, work = pl.col("num_jobs"), pl.col("sum_gpu_us")
    kind, status = pl.col("kind").cast(pl.String), pl.col("status").cast(pl.String)
    measures = {"num_jobs": count.sum()}
    measures |= {f"num_{name}_jobs": count.filter(kind == name).sum() for name in ("cpu", "gpu")}
    for group, members in (("all", KINDS), ("cpu", ("cpu",)), ("gpu", ("gpu",))):
        total = count.filter(kind.is_in(members)).sum()
        for outcome, statuses in FOLDED.items():
            held = count.filter(kind.is_in(members) & status.is_in(statuses)).sum()
            measures[f"{group}_{outcome}_share"] = pl.when(total > 0).then(held / total)
    all_time = work.sum()
    for outcome, statuses in FOLDED.items():
        held = work.filter(status.is_in(statuses)).sum()
        measures[f"{outcome}_gpu_s"] = held / US_PER_S
        measures[f"{outcome}_gpu_time_share"] = pl.when(all_time > 0).then(held / all_time)
    return ends.group_by(by).agg(**measures) if by else ends.select(**measures)
