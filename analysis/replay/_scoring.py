"""From tables to what scored placements read: CPUs and memory in whole parts, typical tasks, state of the nodes.

Integers all: milli-GPUs, milli-CPUs, MiB.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from analysis.replay import _scores
from analysis.replay._bits import I64
from analysis.replay._hardware import MILLI, Hardware
from analysis.replay._scores import Scores, Tasks, make_scores
from analysis.replay._typical import no_tasks, typical_tasks
from analysis.replay.placement import Placement

MIB_PER_GIB: Final = 1024


class Scoring(NamedTuple):
    """A scored placement that was asked for."""

    placement: Placement
    seed: int


class Places(NamedTuple):
    """Nodes in the internal order: their rows, VCs and types."""

    nodes: pl.DataFrame
    vc: I64
    gpu_type: I64
    num_types: int


def in_parts(column: pl.Series, per_unit: int, *, unknown: int) -> I64:
    """Whole parts of a unit, nearest."""
    known = column.cast(pl.Float64).fill_nan(None)
    parts = np.rint(known.fill_null(0.0).to_numpy() * per_unit).astype(np.int64)
    return np.where(known.is_null().to_numpy(), unknown, parts)


def cpus_and_memory(jobs: pl.DataFrame) -> tuple[I64, I64]:
    """Milli-CPUs and MiB of whole jobs; null asks for none."""
    return in_parts(jobs["num_cpus"], MILLI, unknown=0), in_parts(jobs["mem_gib"], MIB_PER_GIB, unknown=0)


def numbered(classes: I64) -> I64:
    """The class table with each row's number and the kind of its GPU request: whole GPUs, and shares or not."""
    request = classes[:, _scores.WHOLE] * 2 + (classes[:, _scores.PIECES] > 0)
    kind = np.unique(request, return_inverse=True)[1]
    return np.ascontiguousarray(np.column_stack([classes, np.arange(len(classes)), kind]), dtype=np.int64)


def tasks_of(jobs: pl.DataFrame, types: I64, places: Places) -> Tasks:
    """Typical tasks of jobs, of which ``types`` has the bits of the types that each may use."""
    known = jobs["num_gpus"].is_not_null().to_numpy()
    if not known.any():
        return no_tasks(places.num_types)
    return typical_tasks(
        milli=np.rint(jobs["num_gpus"].fill_null(0.0).to_numpy() * MILLI).astype(np.int64)[known],
        num_tasks=jobs["num_tasks"].fill_null(1).clip(lower_bound=1).cast(pl.Int64).to_numpy()[known],
        cpu=in_parts(jobs["num_cpus"], MILLI, unknown=0)[known],
        types=types[known],
        num_types=places.num_types,
        most_devices=int(places.nodes["num_gpus"].to_numpy().max()),
    )


def scored_hardware(
    hw: Hardware, places: Places, classes: I64, tasks: Tasks, scoring: Scoring
) -> tuple[Hardware, Scores]:
    """Hardware with the state of a scored placement, and that state."""
    rows = {
        "vc": places.vc,
        "gpu_type": places.gpu_type,
        "rank": hw.rank,
        "size": places.nodes["num_gpus"].to_numpy().astype(np.int64),
        "cpu": in_parts(places.nodes["num_cpus"], MILLI, unknown=int(_scores.UNLIMITED)),
        "mem": in_parts(places.nodes["mem_gib"], MIB_PER_GIB, unknown=int(_scores.UNLIMITED)),
    }
    is_clustering = scoring.placement.name == "gpu_clustering"
    scores = make_scores(
        rule=scoring.placement.code,
        seed=scoring.seed,
        classes=classes,
        node_rows=rows,
        tasks=tasks,
        num_kinds=int(classes[:, _scores.KIND].max(initial=-1)) + 1 if is_clustering else 0,
    )
    return hw._replace(scores=scores), scores
