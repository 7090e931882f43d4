"""From a simulation to a ``ReplayResult``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from analysis.replay._prepare import EXCEEDS_CAPACITY
from analysis.replay._schedule import job_table, make_schedule
from analysis.replay._state import MOST_WAITING, NEVER
from analysis.replay.cluster import Cluster
from analysis.replay.event_log import EventSink
from analysis.replay.load import offered_load
from analysis.replay.result import ReplayResult
from analysis.replay.steps._state import DONE

if TYPE_CHECKING:
    from analysis.replay.steps.simulation import Simulation


def outcome(sim: Simulation, name: str, cluster: Cluster, predicted: str | None, placement: str) -> ReplayResult:
    """Build the result; who has not ended is unfinished."""
    prepared, stops = sim.prepared, sim.stops()
    counts: dict[str, float | int | None] = {
        "max_queue_length": max(int(sim.log.counters[MOST_WAITING]), sim.num_waiting),
        "offered_load": offered_load(prepared, cluster),
        "num_cpu_jobs_left_out": prepared.num_cpu_jobs,
        "num_censored": int((prepared.reason > EXCEEDS_CAPACITY).sum()),
    }
    return ReplayResult(
        schedule=_mark_unfinished(make_schedule(prepared, sim.log, stops), sim),
        policy=name,
        placement=placement,
        predicted=predicted,
        cluster=cluster,
        notes=tuple(prepared.notes),
        jobs=job_table(prepared, stops),
        counts=counts,
        event_log=None if sim.sink is None else _events_so_far(sim, sim.sink),
    )


def _events_so_far(sim: Simulation, sink: EventSink) -> pl.DataFrame | None:
    sink.finish(NEVER if sim.is_over else sim.now_us)
    return sink.table()


def _mark_unfinished(schedule: pl.DataFrame, sim: Simulation) -> pl.DataFrame:
    is_open = np.zeros(schedule.height, dtype=bool)
    is_open[sim.prepared.accepted] = sim.kept.status != DONE
    if not is_open.any():
        return schedule
    unfinished = pl.lit(pl.Series(is_open))
    dtype = schedule.schema["state"]
    return schedule.with_columns(
        state=pl.when(unfinished).then(pl.lit("unfinished", dtype=dtype)).otherwise("state"),
        end_time=pl.when(~unfinished).then("end_time"),
        end_s=pl.when(~unfinished).then("end_s"),
    )
