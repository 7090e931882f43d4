"""GPUs of the cluster and of its virtual clusters over time, in thousandths, as the sweeps need them."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import conform
from analysis.trace import Trace

__all__ = ["QUOTAS", "gpu_quotas", "mean_quota", "quota_at"]

#: ``vc`` null = the whole cluster; the first row of each holds for all time before it, too.
QUOTAS: Final = {"vc": pl.String(), "time_us": pl.Int64(), "milli_gpus": pl.Int64()}


def gpu_quotas(trace: Trace) -> pl.DataFrame:
    """GPUs of the cluster and of each virtual cluster over time.

    Parameters
    ----------
    trace : Trace
        Its capacity table counts if it has one, else the nodes and their virtual clusters.

    Returns
    -------
    DataFrame, sorted
        vc (null = the whole cluster), time_us (from when on; microseconds since 1970 UTC), milli_gpus. Empty where the
        log does not know its GPUs.
    """
    return _from_capacity(trace.capacity) if trace.capacity.height else _from_nodes(trace.nodes)


def _from_capacity(capacity: pl.DataFrame) -> pl.DataFrame:
    known = capacity.select("vc", time_us=pl.col("time").dt.timestamp("us"), milli_gpus=pl.col("num_gpus") * 1000)
    # A virtual cluster keeps its quota until the next row that names it.
    wide = known.pivot("vc", index="time_us", values="milli_gpus", aggregate_function="last").sort("time_us")
    of_vcs = wide.drop("time_us").fill_null(strategy="forward")
    whole = wide.select("time_us", milli_gpus=of_vcs.sum_horizontal(), vc=pl.lit(None, pl.String))
    return _table(whole, known)


def _from_nodes(nodes: pl.DataFrame) -> pl.DataFrame:
    counted = nodes.filter(pl.col("num_gpus") > 0).with_columns(time_us=pl.lit(0, pl.Int64))
    milli = pl.col("num_gpus").sum() * 1000
    whole = counted.group_by("time_us").agg(milli_gpus=milli, vc=pl.lit(None, pl.String))
    known = counted.filter(pl.col("vc").is_not_null()).group_by("vc", "time_us").agg(milli_gpus=milli)
    return _table(whole, known)


def _table(*parts: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([conform(part.with_columns(pl.col("milli_gpus").round()), QUOTAS) for part in parts]).sort(
        "vc", "time_us"
    )


def quota_at(quota: pl.DataFrame, times_us: NDArray[np.int64]) -> NDArray[np.int64]:
    """Quota from each instant on [thousandths of a GPU]; ``quota``: rows of one name of ``QUOTAS``, at least one."""
    changed, milli = quota["time_us"].to_numpy(), quota["milli_gpus"].to_numpy()
    if len(milli) == 1:
        return np.full(len(times_us), milli[0])
    at: NDArray[np.int64] = milli[np.maximum(np.searchsorted(changed, times_us, side="right") - 1, 0)]
    return at


def mean_quota(quota: pl.DataFrame, edges_us: NDArray[np.int64]) -> NDArray[np.float64]:
    """Time-weighted mean of a quota between each two instants [GPUs].

    Examples
    --------
    >>> quota = pl.DataFrame([("x", 0, 2000), ("x", 60, 4000)], schema=QUOTAS, orient="row")
    >>> mean_quota(quota, np.array([0, 40, 80])).tolist()
    [2.0, 3.0]
    """
    inside = quota["time_us"].to_numpy()
    inside = inside[(inside > edges_us[0]) & (inside < edges_us[-1])]
    times = np.union1d(edges_us, inside)
    reached = np.concatenate([[0.0], np.cumsum(quota_at(quota, times[:-1]) * np.diff(times).astype(np.float64))])
    means: NDArray[np.float64] = np.diff(np.interp(edges_us, times, reached)) / np.diff(edges_us) / 1000
    return means
