"""From a jobs table to what a scored placement reads: classes with CPUs and memory, typical tasks, state of the nodes.

Integers all: milli-GPUs, milli-CPUs, MiB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis import schema
from analysis.replay import _scores
from analysis.replay._bits import I64
from analysis.replay._hardware import MILLI, Hardware, build_hardware
from analysis.replay._jobs import demands
from analysis.replay._prepare import Site, _allowed_types, _choose_modes, _most_entries, lay_out
from analysis.replay._scores import Scores, Tasks, make_scores
from analysis.replay._typical import no_tasks, typical_tasks
from analysis.replay.cluster import Cluster
from analysis.replay.placement import Placement

MIB_PER_GIB = 1024


@dataclass(frozen=True)
class Asks:
    """What a packing knows before its first job.

    Attributes
    ----------
    job_class, milli : int64 arrays, one value per job
        Row of the class table, and milli-GPUs.
    num_entries : int
        Devices that all jobs together can hold.
    """

    hw: Hardware
    scores: Scores
    job_class: I64
    milli: I64
    num_entries: int
    node_ids: pl.Series


def in_parts(column: pl.Series, per_unit: int, *, unknown: int) -> I64:
    """Whole parts of a unit, nearest."""
    known = column.cast(pl.Float64).fill_nan(None)
    parts = np.rint(known.fill_null(0.0).to_numpy() * per_unit).astype(np.int64)
    return np.where(known.is_null().to_numpy(), unknown, parts)


def with_columns(jobs: pl.DataFrame) -> pl.DataFrame:
    """The columns that are read; those that are missing are null."""
    names = ("num_gpus", "num_tasks", "num_cpus", "mem_gib", "allowed_gpu_types", "is_single_node")
    return jobs.select(
        pl.col(name) if name in jobs.columns else pl.lit(None, dtype=schema.JOBS[name]).alias(name) for name in names
    )


def ask_rows(jobs: pl.DataFrame, *, cluster: Cluster, placement: Placement, seed: int, typical: pl.DataFrame) -> Asks:
    """Lay out classes and empty nodes for jobs in their order."""
    site = lay_out(cluster, use_vcs=False, notes=[])
    table = with_columns(jobs)
    job_class, classes, milli = _class_table(table, site)
    size = site.nodes["num_gpus"].to_numpy().astype(np.int64)
    rank = np.arange(len(size), dtype=np.int64)
    hw, order = build_hardware(vc=site.vc, gpu_type=site.gpu_type, size=size, rank=rank, has_fractions=True)
    _choose_modes(classes, hw)
    tasks = tasks_of(with_columns(typical), site)
    hw, scores = scored_hardware(hw, order, site, classes, placement=placement, seed=seed, tasks=tasks)
    return Asks(
        hw=hw,
        scores=scores,
        job_class=job_class,
        milli=milli,
        num_entries=int(_most_entries(classes, hw)[job_class].sum()) if len(classes) else 0,
        node_ids=site.nodes["node_id"][order],
    )


def _class_table(table: pl.DataFrame, site: Site) -> tuple[I64, I64, I64]:
    whole, pieces, millis = demands(table)
    is_cpu_job = (table["num_gpus"] == 0).to_numpy()
    whole, pieces, millis = (np.where(is_cpu_job, 0, part) for part in (whole, pieces, millis))
    single = table["is_single_node"].cast(pl.Int64).fill_null(2).to_numpy()
    allowed, masks = _allowed_types(table, site, [])
    cpu = in_parts(table["num_cpus"], MILLI, unknown=0)
    mem = in_parts(table["mem_gib"], MIB_PER_GIB, unknown=0)
    rows = np.stack([whole * 0, whole, pieces, millis, single, masks[allowed], cpu, mem], axis=1)
    classes, job_class = np.unique(rows, axis=0, return_inverse=True)
    return job_class.astype(np.int64).ravel(), numbered(classes), whole * MILLI + pieces * millis


def numbered(classes: I64) -> I64:
    """The class table with each row's number and the kind of its GPU request: a share, or so many GPUs."""
    whole, pieces = classes[:, _scores.WHOLE], classes[:, _scores.PIECES]
    request = whole * 2 + (pieces > 0)
    kind = np.unique(request, return_inverse=True)[1]
    return np.ascontiguousarray(np.column_stack([classes, np.arange(len(classes)), kind]), dtype=np.int64)


def tasks_of(table: pl.DataFrame, site: Site) -> Tasks:
    """Typical tasks of jobs on a site."""
    allowed, masks = _allowed_types(table, site, [])
    known = table["num_gpus"].is_not_null().to_numpy()
    if not known.any():
        return no_tasks()
    return typical_tasks(
        milli=np.rint(table["num_gpus"].fill_null(0.0).to_numpy() * MILLI).astype(np.int64)[known],
        num_tasks=table["num_tasks"].fill_null(1).clip(lower_bound=1).cast(pl.Int64).to_numpy()[known],
        cpu=in_parts(table["num_cpus"], MILLI, unknown=0)[known],
        types=masks[allowed][known],
        num_types=len(site.gpu_types),
        most_devices=int(site.nodes["num_gpus"].max()),  # type: ignore[arg-type]
    )


def scored_hardware(
    hw: Hardware, order: I64, site: Site, classes: I64, *, placement: Placement, seed: int, tasks: Tasks
) -> tuple[Hardware, Scores]:
    """Hardware with the state of a scored placement."""
    nodes = site.nodes[order]
    rows = {
        "vc": site.vc[order],
        "gpu_type": site.gpu_type[order],
        "rank": hw.rank,
        "size": nodes["num_gpus"].to_numpy().astype(np.int64),
        "cpu": in_parts(nodes["num_cpus"], MILLI, unknown=int(_scores.UNLIMITED)),
        "mem": in_parts(nodes["mem_gib"], MIB_PER_GIB, unknown=int(_scores.UNLIMITED)),
    }
    is_clustering = placement.name == "gpu_clustering"
    num_kinds = int(classes[:, _scores.KIND].max(initial=-1)) + 1 if is_clustering else 0
    scores = make_scores(
        rule=placement.code, seed=seed, classes=classes, node_rows=rows, tasks=tasks, num_kinds=num_kinds
    )
    return hw._replace(scores=scores), scores
