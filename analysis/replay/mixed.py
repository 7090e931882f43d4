"""Mixed hardware for a comparison: a mixed version of a cluster, and the load that jobs put on one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import polars as pl

from analysis import metrics
from analysis.replay import speeds
from analysis.replay.cluster import Cluster

__all__ = ["is_mixed", "mixed_cluster", "offered_load"]


def offered_load(jobs: pl.DataFrame, cluster: Cluster) -> float | None:
    """Arriving GPU-seconds over what the cluster can do between the first and the last submission [ratio].

    Both are counted in V100 GPU-seconds where the cluster states its types (a type of unknown speed counts as 1), else
    in GPU-seconds of the log; null if all jobs come at one instant.
    """
    known = jobs.filter((pl.col("num_gpus") > 0) & pl.col("duration_s").is_not_null())
    if not known.height:
        return None
    last, first = known["submit_time"].max(), known["submit_time"].min()
    span_s = (last - first).total_seconds()  # type: ignore[operator, union-attr]
    work = known.select(metrics.gpu_s(), "gpu_type")
    capacity = float(cluster.num_gpus)
    if cluster.gpu_types:
        rate = {name: _speed(cluster, name) for name in work["gpu_type"].drop_nulls().unique()}
        work = work.with_columns(pl.col("gpu_s") * pl.col("gpu_type").replace_strict(rate, default=1.0))
        nodes = cluster.nodes.select("num_gpus", "gpu_type").iter_rows()
        capacity = sum(gpus * _speed(cluster, gpu_type) for gpus, gpu_type in nodes)
    return float(work["gpu_s"].sum()) / (span_s * capacity) if span_s > 0 else None


def _speed(cluster: Cluster, gpu_type: str | None) -> float:
    return cluster.speed_of(gpu_type) or speeds.REFERENCE_SPEED


def is_mixed(cluster: Cluster) -> bool:
    """Tell whether a cluster has GPU types that differ in speed."""
    return len({_speed(cluster, name) for name in cluster.gpu_types}) > 1


#: Types given to the nodes in turn, so that the whole is about as fast as if all were V100 (with the shipped speeds).
MIXED_TYPES: Final = ("A100", "V100", "P100", "A100", "P100", "V100", "P100")


def mixed_cluster(cluster: Cluster) -> Cluster:
    """Make a mixed version of a cluster: the same nodes, with GPU types that differ in speed.

    Parameters
    ----------
    cluster : Cluster
        One that has types of differing speed already is returned as it is.

    Returns
    -------
    Cluster
        Same node ids, GPUs and VCs; types by turns in the order of the nodes, 2 A100 : 2 V100 : 3 P100, which together
        are about as fast as V100s; ``notes`` says so.
    """
    if is_mixed(cluster):
        return replace(cluster, notes=(*cluster.notes, "The cluster is mixed already; it is used as it is."))
    numbered = cluster.nodes.with_row_index("place")
    turns = pl.col("place").mod(len(MIXED_TYPES)).replace_strict(dict(enumerate(MIXED_TYPES)), return_dtype=pl.String)
    nodes = numbered.with_columns(gpu_type=turns).drop("place")
    gpus = {name: int(nodes.filter(pl.col("gpu_type") == name)["num_gpus"].sum()) for name in ("A100", "V100", "P100")}
    ratios = speeds.shipped_speeds()
    pace = sum(count * ratios[name] for name, count in gpus.items()) / max(sum(gpus.values()), 1)
    note = (
        "Made up to show mixed hardware: the same nodes, but "
        + ", ".join(f"{count:,} GPUs {name} (speed {ratios[name]:.2f})" for name, count in gpus.items() if count)
        + f"; mean speed {pace:.2f} of a V100. A job whose GPU type the log does not say counts as run on a V100."
    )
    return replace(cluster, nodes=nodes, name=f"{cluster.name}, mixed", speed={}, notes=(note,))
