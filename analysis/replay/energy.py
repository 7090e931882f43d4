"""Energy that a replay takes, from the power of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from analysis import metrics as m
from analysis.replay.outages import away_s

if TYPE_CHECKING:
    from analysis.replay.result import ReplayResult

__all__ = ["energy"]

J_PER_KWH: Final = 3.6e6


def energy(result: ReplayResult) -> pl.DataFrame:
    """Work out what nodes draw idle, and what their busy GPUs draw beyond that.

    A node draws ``idle_w`` while it is there (not in failures and absences), from the first submission to the last end,
    and each of its GPUs (busy_w - idle_w) / num_gpus more while a job holds it: power grows evenly with busy GPUs.
    Nodes are never switched off.

    Parameters
    ----------
    result : ReplayResult
        Of a cluster whose nodes state ``idle_w`` and ``busy_w``. Only finished jobs count.

    Returns
    -------
    DataFrame, one row per GPU type, in the order of the cluster's nodes
        gpu_type (null: not described), num_nodes, num_gpus, gpu_hours (held by finished jobs), idle_kwh, busy_kwh
        (beyond idle), total_kwh. Energy is null, which is not 0, where a node of the type does not state the power that
        it needs. A job on several nodes is counted with the mean power of their GPUs, which is exact where they are
        alike; one that was stopped or killed and moved, with the nodes of its last run. No rows where no job finished.

    Examples
    --------
    Two GPUs of 300 W for half an hour, on a node that draws nothing else.

    >>> from datetime import datetime
    >>> from analysis.replay import Cluster, replay
    >>> nodes = pl.DataFrame({"node_id": ["a"], "num_gpus": [2], "idle_w": [0.0], "busy_w": [600.0]})
    >>> jobs = pl.DataFrame({"job_id": ["1"], "submit_time": [datetime(2024, 1, 1)], "num_gpus": [2]})
    >>> result = replay(jobs.with_columns(duration_s=1800.0), cluster=Cluster(nodes))
    >>> energy(result)["total_kwh"].to_list()
    [0.3]
    """
    done = result.job_metrics()
    nodes = result.cluster.nodes.filter(pl.col("num_gpus") > 0)
    used = _used(result, nodes)
    of_type = (
        _there(result, nodes, done)
        .group_by("gpu_type", maintain_order=True)
        .agg(
            num_nodes=pl.len().cast(pl.Int64),
            num_gpus=pl.col("num_gpus").sum(),
            idle_kwh=_all_or_null(pl.col("idle_w") * pl.col("there_s") / J_PER_KWH),
        )
    )
    table = of_type.join(used, on="gpu_type", how="left", nulls_equal=True, maintain_order="left")
    # A type that nobody used took nothing beyond idle, whatever its power.
    busy = pl.when(pl.col("gpu_hours").is_null()).then(0.0).otherwise("busy_kwh")
    table = table.with_columns(pl.col("gpu_hours").fill_null(0.0), busy_kwh=busy)
    columns = ("gpu_type", "num_nodes", "num_gpus", "gpu_hours", "idle_kwh", "busy_kwh")
    return table.select(*columns, total_kwh=pl.col("idle_kwh") + pl.col("busy_kwh"))


def _there(result: ReplayResult, nodes: pl.DataFrame, done: pl.DataFrame) -> pl.DataFrame:
    """Nodes, with the time that each was there; none where nothing was done."""
    window = done.select(first=pl.col("submit_time").min(), last=pl.col("end_time").max(), makespan_s=m.makespan_s())
    first, last, makespan_s = window.row(0)
    if makespan_s is None:
        return nodes.head(0).with_columns(there_s=pl.lit(0.0))
    away = away_s(result.cluster, first, last).select("node_id", "away_s")
    there_s = makespan_s - pl.col("away_s").fill_null(0.0)
    return nodes.join(away, on="node_id", how="left", maintain_order="left").with_columns(there_s=there_s)


def _used(result: ReplayResult, nodes: pl.DataFrame) -> pl.DataFrame:
    """GPU-hours that finished jobs held on each type, and what these GPUs drew beyond idle."""
    per_gpu_w = nodes.select("node_id", "gpu_type", gpu_w=(pl.col("busy_w") - pl.col("idle_w")) / pl.col("num_gpus"))
    held = result.job_metrics().select("job_id", gpu_s=pl.col("num_gpus") * pl.col("run_s"))
    places = result.schedule.select("job_id", "nodes").join(held, on="job_id", maintain_order="left")
    jobs = (
        places.explode("nodes", empty_as_null=True)
        .join(per_gpu_w, left_on="nodes", right_on="node_id", maintain_order="left")
        .group_by("job_id", maintain_order=True)
        .agg(pl.col("gpu_type", "gpu_s").first(), gpu_w=_all_or_null(pl.col("gpu_w")) / pl.len())
    )
    kwh = pl.when(pl.col("gpu_s") > 0).then(pl.col("gpu_w") * pl.col("gpu_s") / J_PER_KWH).otherwise(0.0)
    return jobs.group_by("gpu_type", maintain_order=True).agg(
        gpu_hours=pl.col("gpu_s").sum() / m.S_PER_H, busy_kwh=_all_or_null(kwh)
    )


def _all_or_null(values: pl.Expr) -> pl.Expr:
    return pl.when(values.null_count() == 0).then(values.sum())
