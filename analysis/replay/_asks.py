"""From a jobs table to what a packing reads: classes of jobs, and empty nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis import schema
from analysis.replay._bits import I64
from analysis.replay._hardware import MILLI, Hardware, build_hardware
from analysis.replay._jobs import demands
from analysis.replay._prepare import Site, _allowed_types, _choose_modes, _most_entries, lay_out
from analysis.replay._scores import Scores
from analysis.replay._scoring import Places, Scoring, cpus_and_memory, numbered, scored_hardware, tasks_of
from analysis.replay.cluster import Cluster


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


def with_columns(jobs: pl.DataFrame) -> pl.DataFrame:
    """The columns that are read; those that are missing are null."""
    names = ("num_gpus", "num_tasks", "num_cpus", "mem_gib", "allowed_gpu_types", "is_single_node")
    return jobs.select(
        pl.col(name) if name in jobs.columns else pl.lit(None, dtype=schema.JOBS[name]).alias(name) for name in names
    )


def ask_rows(jobs: pl.DataFrame, *, cluster: Cluster, scoring: Scoring, typical: pl.DataFrame) -> Asks:
    """Lay out classes and empty nodes for jobs in their order."""
    site = lay_out(cluster, use_vcs=False, notes=[])
    table, tasks_from = with_columns(jobs), with_columns(typical)
    job_class, classes, milli = _class_table(table, site)
    size = site.nodes["num_gpus"].to_numpy().astype(np.int64)
    rank = np.arange(len(size), dtype=np.int64)
    hw, order = build_hardware(vc=site.vc, gpu_type=site.gpu_type, size=size, rank=rank, has_fractions=True)
    _choose_modes(classes, hw)
    places = Places(site.nodes[order], site.vc[order], site.gpu_type[order], len(site.gpu_types))
    allowed, masks = _allowed_types(tasks_from, site, [])
    hw, scores = scored_hardware(hw, places, classes, tasks_of(tasks_from, masks[allowed], places), scoring)
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
    rows = np.stack([whole * 0, whole, pieces, millis, single, masks[allowed], *cpus_and_memory(table)], axis=1)
    classes, job_class = np.unique(rows, axis=0, return_inverse=True)
    return job_class.astype(np.int64).ravel(), numbered(classes), whole * MILLI + pieces * millis
