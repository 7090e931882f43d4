"""Typical tasks of a workload, as Fragmentation Gradient Descent weighs them."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from analysis.replay._bits import I64
from analysis.replay._scores import MILLI, Tasks

#: Share of the tasks that the typical ones stand for, in percent.
POPULARITY: Final = 95


def no_tasks(num_types: int) -> Tasks:
    """Typical tasks of a placement that asks for none."""
    nothing = np.zeros(0, dtype=np.int64)
    weight = np.zeros((max(num_types, 1), 1, 0), dtype=np.int64)
    return Tasks(nothing, nothing, nothing, weight, np.zeros(1, dtype=np.int64))


def typical_tasks(*, milli: I64, num_tasks: I64, cpu: I64, types: I64, num_types: int, most_devices: int) -> Tasks:
    """Most frequent tasks, those of CPU jobs too, until ``POPULARITY`` percent of the jobs are counted.

    Each job counts once, as one of its tasks: an equal share of its GPUs and CPUs, rounded down. Equally frequent tasks
    are taken in falling order of CPUs, milli-GPUs, devices and types.

    Parameters
    ----------
    milli, num_tasks, cpu, types : int64 arrays, one value per job
        Milli-GPUs and milli-CPUs of the whole job, its tasks, and a bit for each type that it may use.
    num_types : int
        GPU types of the cluster.
    most_devices : int
        GPUs of the largest node: a task asks for no more.
    """
    each = milli // num_tasks
    devices = np.minimum(-(-each // MILLI), most_devices)
    every = (1 << num_types) - 1
    specs = (
        pl.DataFrame({"cpu": cpu // num_tasks, "milli": np.minimum(each, MILLI), "devices": devices})
        .with_columns(types=pl.Series(types & every))
        .group_by(pl.all())
        .agg(weight=pl.len().cast(pl.Int64))
        .sort(["weight", "cpu", "milli", "devices", "types"], descending=True)
        .with_columns(before=pl.col("weight").cum_sum() - pl.col("weight"))
        .filter(pl.col("before") * 100 < POPULARITY * len(milli))
    )
    return _tabulate(specs, num_types)


def _tabulate(specs: pl.DataFrame, num_types: int) -> Tasks:
    asks = specs.filter(pl.col("milli") > 0)
    groups = asks.select("devices", "milli").unique().sort("devices", "milli")
    steps = asks["cpu"].unique().sort().to_numpy()
    group = asks.join(groups.with_row_index("group"), on=["devices", "milli"], maintain_order="left")["group"]
    weight = np.zeros((max(num_types, 1), len(steps) + 1, groups.height), dtype=np.int64)
    needed = np.searchsorted(steps, asks["cpu"].to_numpy()) + 1
    for g, need, row in zip(group.to_list(), needed.tolist(), asks.iter_rows(named=True), strict=True):
        usable = [t for t in range(num_types) if row["types"] >> t & 1]
        weight[usable, need:, g] += row["weight"]
    return Tasks(
        devices=groups["devices"].to_numpy().astype(np.int64),
        milli=groups["milli"].to_numpy().astype(np.int64),
        cpu=steps.astype(np.int64),
        weight=weight,
        total=np.array([specs["weight"].sum()], dtype=np.int64),
    )
