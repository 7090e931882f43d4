"""The cluster under a synthetic log: its GPUs and window, who belongs to which virtual cluster, the nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis import schema
from analysis.loaders.synthetic_published import S_PER_DAY, PublishedLog

__all__ = ["ClusterPlan", "assign_vcs", "make_nodes", "plan_cluster"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

GPUS_PER_NODE: Final = 8
#: Weekly rhythms need some weeks: a shorter log gets a smaller cluster instead of a shorter window.
MIN_WINDOW_DAYS: Final = 28
#: The cluster has at least this many times the GPUs of its widest job …
CLUSTER_PER_WIDEST: Final = 2.2
#: … and its widest job at least this many times those of the mean job, so that the published mean can be met.
WIDEST_PER_MEAN: Final = 16
#: Mean size of a virtual cluster, at least: users are few, and many small ones would stand idle beside full ones.
NODES_PER_VC: Final = 12
#: Decay of the size of virtual clusters by rank.
VC_SIZE_EXPONENT: Final = 0.7
#: A user's own virtual cluster holds this share of their jobs; the wider rest goes to a larger one.
USUAL_SHARE: Final = 0.9
#: Share of a user's jobs that go to another virtual cluster than their own.
GUEST_SHARE: Final = 0.03


@dataclass(frozen=True)
class ClusterPlan:
    """Size of the cluster, length of the window in whole days, widest job (a power of two), virtual clusters."""

    num_nodes: int
    window_days: int
    max_gpus: int
    num_vcs: int


def plan_cluster(log: PublishedLog, *, num_gpu_jobs: int) -> ClusterPlan:
    """Choose window and cluster so that the offered load is the published log's.

    With the published number of jobs this is the published cluster. Fewer jobs shorten the window down to
    `MIN_WINDOW_DAYS`, then shrink the cluster until its widest job would be too narrow for the published mean, then
    shorten the window again; more jobs lengthen the window. Virtual clusters are the published number at most.

    Examples
    --------
    >>> from analysis.loaders.synthetic_published import published_log
    >>> plan_cluster(published_log("venus"), num_gpu_jobs=125_303)
    ClusterPlan(num_nodes=128, window_days=181, max_gpus=256, num_vcs=10)
    """
    gpu_days = num_gpu_jobs * log.mean_gpu_s / log.offered_load / S_PER_DAY
    floor = CLUSTER_PER_WIDEST * 2 ** math.ceil(math.log2(WIDEST_PER_MEAN * log.mean_gpus))
    full = math.ceil(log.num_gpus / GPUS_PER_NODE)
    # Rounded down, so that the window does not fall below its minimum by the odd node.
    num_nodes = int(gpu_days / MIN_WINDOW_DAYS / GPUS_PER_NODE)
    num_nodes = min(max(num_nodes, math.ceil(floor / GPUS_PER_NODE)), full)
    widest = 2 ** int(math.log2(num_nodes * GPUS_PER_NODE / CLUSTER_PER_WIDEST))
    num_vcs = max(2, min(round(log.num_vcs * math.sqrt(num_nodes / full)), num_nodes // NODES_PER_VC))
    days = max(1, round(gpu_days / (num_nodes * GPUS_PER_NODE)))
    return ClusterPlan(num_nodes, days, min(widest, log.max_gpus), num_vcs)


def assign_vcs(
    plan: ClusterPlan, *, user: Ints, num_gpus: Ints, gpu_s: Floats, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Give each user a virtual cluster that holds their usual jobs, and each virtual cluster nodes for its load.

    Parameters
    ----------
    plan : ClusterPlan
    user, num_gpus : ndarray of int64, one per job
    gpu_s : ndarray of float64, one per job
        GPU-seconds.
    rng : Generator

    Returns
    -------
    vc : ndarray of int64, one per job
        Virtual cluster, from 0: the user's own, but for jobs too wide for it and a few guests.
    nodes : ndarray of int64, one per virtual cluster
        At least the widest job of it; sums to the plan's nodes.
    """
    room = _first_sizes(plan)
    width = -(-num_gpus // GPUS_PER_NODE)
    # Jobs too wide for their user's own go to the smallest that holds them.
    by_room = np.argsort(room, kind="stable")
    wide_vc = by_room[np.searchsorted(room[by_room], width)]
    usual = _usual_width(user, width)
    is_usual = width <= usual[user]
    wide_load = _sums(wide_vc, gpu_s * ~is_usual, length=len(room))
    load = _sums(user, gpu_s * is_usual, length=len(usual))
    home = _homes(room, width=usual, load=load, used=wide_load)
    vc = np.where(width <= room[home[user]], home[user], wide_vc)
    guest_of = rng.integers(len(room), size=len(usual))
    vc = np.where((rng.random(len(user)) < GUEST_SHARE) & (width <= room[guest_of[user]]), guest_of[user], vc)
    widest = np.ones(len(room), dtype=np.int64)
    np.maximum.at(widest, vc, width)
    used = _sums(vc, gpu_s, length=len(room))
    return vc, _sizes_by_load(plan.num_nodes, load=used, least=widest)


def make_nodes(nodes_per_vc: Ints, *, gpu_type: str | None, vc_names: list[str]) -> pl.DataFrame:
    """Build the nodes table: eight GPUs each, CPUs and memory unknown (null)."""
    names = [name for name, count in zip(vc_names, nodes_per_vc.tolist(), strict=True) for _ in range(count)]
    table = pl.DataFrame({"vc": names}).with_row_index("row", offset=1)
    known = table.select(
        node_id=pl.format("node-{}", pl.col("row").cast(pl.String).str.zfill(4)),
        gpu_type=pl.lit(gpu_type, dtype=pl.String),
        num_gpus=pl.lit(GPUS_PER_NODE, dtype=pl.Int64),
        vc=pl.col("vc"),
    )
    missing = {name: pl.lit(None, dtype=dtype) for name, dtype in schema.NODES.items() if name not in known.columns}
    return known.with_columns(**missing).select(list(schema.NODES))


def _sums(group: Ints, weights: Floats, *, length: int) -> Floats:
    return np.bincount(group, weights=weights, minlength=length).astype(np.float64)


def _usual_width(user: Ints, width: Ints) -> Ints:
    """Nodes that hold `USUAL_SHARE` of a user's jobs, one per user; 0 for users without jobs."""
    order = np.lexsort((width, user))
    count = np.bincount(user)
    last = np.cumsum(count) - count + np.ceil(USUAL_SHARE * count).astype(np.int64) - 1
    return np.where(count > 0, width[order[np.maximum(last, 0)]], 0)


def _homes(room: Ints, *, width: Ints, load: Floats, used: Floats) -> Ints:
    """Own virtual cluster of each user: heaviest first, each to the emptiest wide enough (longest processing time)."""
    home = np.zeros(len(width), dtype=np.int64)
    used = used.copy()
    for one in np.lexsort((np.arange(len(load)), -load)):
        fits = np.flatnonzero(room >= width[one])
        home[one] = fits[np.argmin((used[fits] + load[one]) / room[fits])]
        used[home[one]] += load[one]
    return home


def _first_sizes(plan: ClusterPlan) -> Ints:
    """Nodes per virtual cluster before its users are known: the first holds the widest job, the rest decay."""
    first = -(-plan.max_gpus // GPUS_PER_NODE)
    rest = plan.num_nodes - first
    count = max(1, min(plan.num_vcs - 1, rest))
    weights = 1 / np.arange(1, count + 1) ** VC_SIZE_EXPONENT
    sizes = _sizes_by_load(rest, load=weights, least=np.ones(count, dtype=np.int64))
    return np.concatenate([[first], sizes])


def _sizes_by_load(num_nodes: int, *, load: Floats, least: Ints) -> Ints:
    """Share nodes out in proportion to load, none below its least; largest remainders get the odd ones."""
    sizes = least.astype(np.float64)
    free = np.ones(len(load), dtype=bool)
    while free.any():
        total = load[free].sum()
        fair = np.zeros(len(load))
        fair[free] = (num_nodes - least[~free].sum()) * (load[free] / total if total else 1 / free.sum())
        short = free & (fair < least)
        if not short.any():
            sizes[free] = fair[free]
            break
        free &= ~short
    whole = np.maximum(np.floor(sizes + 1e-9).astype(np.int64), least)
    odd = num_nodes - int(whole.sum())
    whole[np.argsort(-(sizes - whole), kind="stable")[:odd]] += 1
    return whole
