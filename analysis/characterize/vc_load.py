"""How full the virtual clusters are against their quotas, and how unevenly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import MAX_BINS, conform, grouped_schema
from analysis.characterize.cubes import GROUPS
from analysis.characterize.demand import share_of
from analysis.characterize.prepare import Facts
from analysis.characterize.quotas import QUOTAS, gpu_quotas, mean_quota
from analysis.characterize.registry import characterization
from analysis.characterize.running import Window, meta_window
from analysis.characterize.ticks import TICKS, TickSweep, tick_sweeps
from analysis.characterize.utilization import PEAK_NOTE
from analysis.metrics import S_PER_H, US_PER_S
from analysis.schema import TIME
from analysis.trace import Trace

__all__ = ["loads_of_vcs", "vc_imbalance"]

#: A virtual cluster with this share of its quota in use counts as full.
FULL: Final = 0.95
VC_SCHEMA: Final = {
    "vc": pl.String(),
    "num_jobs": pl.Int64(),
    "quota_gpus": pl.Float64(),
    "mean_gpus": pl.Float64(),
    "peak_gpus": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
    "mean_load": pl.Float64(),
    "peak_load": pl.Float64(),
    "over_quota_time_share": pl.Float64(),
    "idle_time_share": pl.Float64(),
}
IMBALANCE_SCHEMA: Final = {
    "time": TIME,
    "bin_s": pl.Float64(),
    "num_vcs": pl.Int64(),
    "load": pl.Float64(),
    "mean_vc_load": pl.Float64(),
    "min_vc_load": pl.Float64(),
    "max_vc_load": pl.Float64(),
    "coefficient_of_variation": pl.Float64(),
    "full_vc_share": pl.Float64(),
}
HELIOS: Final = "Q. Hu et al., SC 2021, section 3 (utilization of VCs), doi:10.1145/3458817.3476223"
FloatArray = NDArray[np.float64]


def _options(trace: Trace) -> dict[str, Any]:
    return {"window": meta_window(trace), "quotas": gpu_quotas(trace)}


def _loads(
    ticks: pl.DataFrame, by: tuple[str, ...], facts: Facts, window: Window, quotas: pl.DataFrame | None
) -> Iterator[tuple[dict[str, Any], TickSweep, FloatArray | None]]:
    """Use and quota (null = not known) in every tick of each virtual cluster that has a name and jobs, by group."""
    known = pl.DataFrame(schema=QUOTAS) if quotas is None else quotas
    named = ticks.filter(pl.col("vc").is_not_null())
    for group, sweep in tick_sweeps(named, keys=(*by, "vc"), facts=facts, window=window):
        quota = known.filter(pl.col("vc") == group["vc"])
        yield group, sweep, mean_quota(quota, sweep.edges) if quota.height else None


@characterization(
    "vc_load",
    inputs=(TICKS,),
    title="Load of the virtual clusters",
    definition=(
        "GPUs in use by the jobs of each virtual cluster over the whole window, time-weighted, and their share of its "
        "quota (from the nodes, or from the quotas over time). over_quota_time_share: ticks with more in use than the "
        f"quota. idle_time_share: ticks with none. {PEAK_NOTE} Virtual clusters without any GPU job are not listed."
    ),
    source=HELIOS,
    needs=("vc", "start_time", "num_gpus"),
    empty_means="The log does not say when GPU jobs started and ended.",
    options=_options,
    own_groups=("vc",),
)
def loads_of_vcs(
    ticks: pl.DataFrame,
    *,
    by: tuple[str, ...] = (),
    facts: Facts,
    window: Window = (None, None),
    quotas: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """GPUs in use of each virtual cluster against its quota.

    Parameters
    ----------
    window : pair of datetime, optional
        What the log covers.
    quotas : DataFrame, optional
        As `analysis.characterize.quotas.gpu_quotas` gives them; null = not known.

    Returns
    -------
    DataFrame, a row per virtual cluster with GPU jobs
        vc, num_jobs, quota_gpus (time-weighted mean), mean_gpus, peak_gpus, gpu_hours, gpu_time_share, mean_load and
        peak_load (of the quota at that time), over_quota_time_share, idle_time_share. Null where the quota is not known
        or 0.
    """
    rows = []
    for group, sweep, quota in _loads(ticks, by, facts, window, quotas):
        mean = sweep.mean()
        row = {
            **group,
            "num_jobs": sweep.num_jobs,
            "mean_gpus": mean,
            "peak_gpus": float(sweep.held.max()),
            "gpu_hours": mean * float(sweep.edges[-1] - sweep.edges[0]) / US_PER_S / S_PER_H,
            "idle_time_share": sweep.mean((sweep.held == 0).astype(float)),
        }
        if quota is not None and quota.any():
            row |= {
                "quota_gpus": sweep.mean(quota),
                "mean_load": mean / sweep.mean(quota),
                "peak_load": float((sweep.held[quota > 0] / quota[quota > 0]).max()),
                "over_quota_time_share": sweep.mean((sweep.held > quota * (1 + 1e-9)).astype(float)),
            }
        rows.append(row)
    schema = grouped_schema(by, VC_SCHEMA)
    table = pl.DataFrame(rows, schema={name: schema[name] for name in schema if name != "gpu_time_share"})
    return conform(table.with_columns(gpu_time_share=share_of("gpu_hours", by)).sort(*by, "vc"), schema)


@characterization(
    "vc_imbalance",
    inputs=(TICKS,),
    title="Imbalance of the virtual clusters over time",
    definition=(
        "Load (GPUs in use over quota, time-weighted) of the virtual clusters in each bin: its mean, least and most, "
        "and its coefficient of variation over the virtual clusters (0 = all are equally full). full_vc_share: "
        f"virtual clusters with a load of at least {FULL:.0%}. load: all GPUs in use over all quotas. Where some are "
        "full while others are not, jobs wait although GPUs are free. Only virtual clusters with a known quota; one "
        "without jobs has the load 0. A grouping changes nothing, since quotas are not divided among users or kinds "
        "of jobs."
    ),
    source=HELIOS,
    needs=("vc", "start_time", "num_gpus"),
    empty_means="The log does not say how many GPUs its virtual clusters have.",
    options=_options,
    own_groups=tuple(GROUPS),
)
def vc_imbalance(
    ticks: pl.DataFrame,
    *,
    by: tuple[str, ...] = (),
    facts: Facts,
    window: Window = (None, None),
    quotas: pl.DataFrame | None = None,
    max_bins: int = MAX_BINS // 2,
) -> pl.DataFrame:
    """How unevenly the quotas of the virtual clusters are used, over time.

    Window and quotas are as in `loads_of_vcs`; ``max_bins`` is the most bins.

    Returns
    -------
    DataFrame, a row per bin
        time (where the bin begins), bin_s [s], num_vcs (with a quota above 0), load, mean_vc_load, min_vc_load,
        max_vc_load, coefficient_of_variation (null if nothing is in use), full_vc_share.
    """
    known = pl.DataFrame(schema=QUOTAS) if quotas is None else quotas.filter(pl.col("vc").is_not_null())
    sweeps = {group["vc"]: sweep for group, sweep, _ in _loads(ticks, by, facts, window, known)}
    if not sweeps or not known.height:
        return pl.DataFrame(schema=IMBALANCE_SCHEMA)
    frame = next(iter(sweeps.values()))
    bins = frame.bins(max_bins=max_bins)
    names = known["vc"].unique().sort().to_list()
    idle = np.zeros(len(bins) - 1)
    held = np.array([frame.binned(sweeps[vc].held, bins) if vc in sweeps else idle for vc in names])
    return _measures(held, np.array([mean_quota(known.filter(vc=vc), bins) for vc in names]), bins)


def _measures(held: FloatArray, quota: FloatArray, bins: NDArray[np.int64]) -> pl.DataFrame:
    has_any = quota > 0
    load = np.where(has_any, held / np.where(has_any, quota, 1), np.nan)
    count = has_any.sum(axis=0)
    mean = np.nansum(load, axis=0) / np.maximum(count, 1)
    spread = np.sqrt(np.nansum((load - mean) ** 2, axis=0) / np.maximum(count, 1))
    total = quota.sum(axis=0)
    table = pl.DataFrame(
        {
            "time": pl.Series(bins[:-1]).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
            "bin_s": np.diff(bins) / US_PER_S,
            "num_vcs": count,
            "load": held.sum(axis=0) / np.where(total > 0, total, np.nan),
            "mean_vc_load": mean,
            "min_vc_load": np.where(has_any, load, np.inf).min(axis=0),
            "max_vc_load": np.where(has_any, load, -np.inf).max(axis=0),
            "coefficient_of_variation": spread / np.where(mean > 0, mean, np.nan),
            "full_vc_share": (load >= FULL).sum(axis=0) / np.maximum(count, 1),
        }
    ).filter(pl.col("num_vcs") > 0)
    return conform(table.fill_nan(None), IMBALANCE_SCHEMA)
