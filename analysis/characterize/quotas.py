"""GPUs of the cluster and of its virtual clusters over time, in thousandths, as the sweeps need them."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import conform
from analysis.characterize.cubes import GROUPS, Cube
from analysis.characterize.inputs import CHANGES
from analysis.characterize.running import Sweep
from analysis.trace import Trace

__all__ = ["QUOTAS", "VC_CHANGES", "free_of_quota", "gpu_quotas", "of_all_groups"]

#: ``vc`` null = the whole cluster; the first row of each holds for all time before it, too.
QUOTAS: Final = {"vc": pl.String(), "time_us": pl.Int64(), "milli_gpus": pl.Int64()}

#: Changes of the GPUs in use in each virtual cluster; see `analysis.characterize.intervals`.
VC_CHANGES: Final = Cube(
    "changes of vcs", keys={"vc": GROUPS["vc"], "time_us": pl.col("time_us")}, values=CHANGES.values, table="changes"
)


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


def of_all_groups(changes: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Changes of all groups together: whoever is asked about, all jobs hold GPUs."""
    values = [name for name in changes.columns if name.startswith(("sum_", "num_"))]
    return changes.group_by(keys).agg(pl.col(values).sum()).sort(keys)


def free_of_quota(sweep: Sweep, quota: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Instants at which a quota or its use changes, the quota and what is in use from each on [thousandths of a GPU].

    Parameters
    ----------
    sweep : Sweep
        GPUs in use.
    quota : DataFrame
        Rows of one virtual cluster (or of the whole) of ``QUOTAS``; at least one, sorted by time.
    """
    changed, milli = quota["time_us"].to_numpy(), quota["milli_gpus"].to_numpy()
    inside = (changed > sweep.times[0]) & (changed < sweep.last_us)
    times = np.union1d(sweep.times, changed[inside])
    held = sweep.milli[np.searchsorted(sweep.times, times, side="right") - 1]
    place = np.maximum(np.searchsorted(changed, times, side="right") - 1, 0)
    return times, milli[place], held
