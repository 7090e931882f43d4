"""Mixed hardware for a comparison: whether a cluster is mixed, and a mixed version of one that is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import polars as pl

from analysis.replay import speeds
from analysis.replay.cluster import Cluster

__all__ = ["is_mixed", "mixed_cluster"]


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
