"""How full the virtual clusters are against their quotas, and how unevenly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import MAX_BINS, bin_width, conform, grouped_schema
from analysis.characterize.cubes import GROUPS
from analysis.characterize.demand import share_of
from analysis.characterize.prepare import Facts
from analysis.characterize.quotas import QUOTAS, VC_CHANGES, free_of_quota, gpu_quotas
from analysis.characterize.registry import characterization
from analysis.characterize.running import Sweep, Window, meta_window, sweeps
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


@dataclass(frozen=True)
class _Load:
    """GPUs in use and the quota of one virtual cluster [GPUs] from each instant to the next."""

    edges: NDArray[np.int64]
    held: FloatArray
    quota: FloatArray | None

    @classmethod
    def of(cls, sweep: Sweep, quota: pl.DataFrame) -> _Load:
        if not quota.height:
            return cls(np.append(sweep.times, sweep.last_us), sweep.milli / 1000, None)
        times, milli, held = free_of_quota(sweep, quota)
        return cls(np.append(times, sweep.last_us), held / 1000, milli / 1000)

    def mean(self, values: FloatArray) -> float:
        """Time-weighted mean."""
        return float(np.average(values, weights=np.diff(self.edges)))

    def binned(self, values: FloatArray, bins: NDArray[np.int64]) -> FloatArray:
        """Time-weighted mean of each bin."""
        reached = np.concatenate([[0.0], np.cumsum(values * np.diff(self.edges))])
        means: FloatArray = np.diff(np.interp(bins, self.edges, reached)) / np.diff(bins)
        return means


def _options(trace: Trace) -> dict[str, Any]:
    return {"window": meta_window(trace), "quotas": gpu_quotas(trace)}


def _loads(
    changes: pl.DataFrame, by: tuple[str, ...], facts: Facts, window: Window, quotas: pl.DataFrame | None
) -> Iterator[tuple[dict[str, Any], Sweep, _Load]]:
    """Load of each virtual cluster that has a name and jobs, by group."""
    known = pl.DataFrame(schema=QUOTAS) if quotas is None else quotas
    named = changes.filter(pl.col("vc").is_not_null())
    for group, sweep in sweeps(named, by=(*by, "vc"), facts=facts, window=window):
        yield group, sweep, _Load.of(sweep, known.filter(pl.col("vc") == group["vc"]))


@characterization(
    "vc_load",
    inputs=(VC_CHANGES,),
    title="Load of the virtual clusters",
    definition=(
        "GPUs in use by the jobs of each virtual cluster over the whole window, time-weighted, and their share of "
        "its quota (from the nodes, or from the quotas over time). over_quota_time_share: time with more in use than "
        "the quota. idle_time_share: time with none. Virtual clusters without any GPU job are not listed."
    ),
    source=HELIOS,
    needs=("vc", "start_time", "num_gpus"),
    empty_means="The log does not say when GPU jobs started and ended.",
    options=_options,
    own_groups=("vc",),
)
def loads_of_vcs(
    changes: pl.DataFrame,
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
    for group, sweep, load in _loads(changes, by, facts, window, quotas):
        hours = float(load.edges[-1] - load.edges[0]) / US_PER_S / S_PER_H
        mean = load.mean(load.held)
        row = {
            **group,
            "num_jobs": sweep.num_jobs,
            "mean_gpus": mean,
            "peak_gpus": float(load.held.max()),
            "gpu_hours": mean * hours,
            "idle_time_share": load.mean((load.held == 0).astype(float)),
        }
        if load.quota is not None and load.mean(load.quota) > 0:
            quota = load.mean(load.quota)
            has_any = load.quota > 0
            row |= {
                "quota_gpus": quota,
                "mean_load": mean / quota,
                "peak_load": float((load.held[has_any] / load.quota[has_any]).max()),
                "over_quota_time_share": load.mean((load.held > load.quota).astype(float)),
            }
        rows.append(row)
    schema = grouped_schema(by, VC_SCHEMA)
    table = pl.DataFrame(rows, schema={name: schema[name] for name in schema if name != "gpu_time_share"})
    return conform(table.with_columns(gpu_time_share=share_of("gpu_hours", by)).sort(*by, "vc"), schema)


@characterization(
    "vc_imbalance",
    inputs=(VC_CHANGES,),
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
    changes: pl.DataFrame,
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
    found = {group["vc"]: load for group, _, load in _loads(changes, by, facts, window, quotas)}
    with_quota = {vc: load for vc, load in found.items() if load.quota is not None}
    if quotas is None or not with_quota:
        return pl.DataFrame(schema=IMBALANCE_SCHEMA)
    edges = next(iter(with_quota.values())).edges
    width = bin_width((edges[-1] - edges[0]) / US_PER_S, max_bins=max_bins) * US_PER_S
    bins = np.append(np.arange(edges[0], edges[-1], width), edges[-1])
    for (vc,), quota in quotas.filter(pl.col("vc").is_not_null()).partition_by("vc", as_dict=True).items():
        with_quota.setdefault(vc, _idle(quota, first_us=int(bins[0]), last_us=int(bins[-1])))
    held = np.array([load.binned(load.held, bins) for load in with_quota.values()])
    quota_gpus = np.array([load.binned(_known(load.quota), bins) for load in with_quota.values()])
    return _measures(held, quota_gpus, bins)


def _known(quota: FloatArray | None) -> FloatArray:
    return np.zeros(0) if quota is None else quota


def _idle(quota: pl.DataFrame, *, first_us: int, last_us: int) -> _Load:
    """Load of a virtual cluster that nobody used."""
    empty = np.zeros(1, dtype=np.int64)
    return _Load.of(Sweep(np.array([first_us]), empty, empty, last_us, 0), quota)


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
