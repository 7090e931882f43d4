"""From what the loop wrote down to the schedule's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from analysis.replay._bits import I64
from analysis.replay._events import LAST_SUBMIT, Events
from analysis.replay._hardware import MILLI, TYPE, list_nodes
from analysis.replay._jobs import US
from analysis.replay._moving import Moving
from analysis.replay._place import MILLIS, PIECES, WHOLE
from analysis.replay._prepare import NO_REASON, REASONS, Prepared
from analysis.replay._state import NEVER, NOW, Log
from analysis.replay.result import SCHEDULE, STATES

# Places in ``STATES``.
FINISHED, UNFINISHED, REJECTED = 0, 1, 2


class Stops(NamedTuple):
    """What preemption and nodes did to every accepted job."""

    stopped: I64  # how often
    wasted: I64  # milli-GPUs times microseconds
    held: I64  # microseconds
    early: I64  # … of them until the last submission
    killed: I64 | None = None  # how often its node went down under it; None = no node ever does


def count_stops(prepared: Prepared, log: Log, m: Moving, x: Events | None = None) -> Stops:
    """Sum up; the loop counts the time of those who were stopped, and of runs that are over."""
    never = m.stops == 0
    killed = None if x is None else x.kills
    now = log.counters[NOW]
    last = prepared.submit[-1] if len(prepared.submit) else 0
    is_over = ~never & ((log.end <= now) | (log.end == NEVER))
    begin = np.where(never, np.where(log.start < 0, now, log.start), m.begin)
    end = np.where(is_over, begin, np.minimum(np.where(log.end < 0, now, log.end), now))
    return Stops(
        stopped=m.stops if killed is None else m.stops - killed,
        wasted=m.wasted * m.milli[prepared.job_class],
        held=np.where(never, 0, m.held) + end - begin,
        early=np.where(never, 0, m.early) + np.maximum(np.minimum(end, last) - begin, 0),
        killed=killed,
    )


def count_kills(prepared: Prepared, log: Log, x: Events) -> Stops:
    """Sum up where the policy does not preempt; each job's first start takes the place of its last."""
    milli = prepared.classes[:, WHOLE] * MILLI + prepared.classes[:, PIECES] * prepared.classes[:, MILLIS]
    last, now = x.facts[LAST_SUBMIT], log.counters[NOW]
    runs = log.start >= 0
    end = np.minimum(log.end, now)
    held = x.held + np.where(runs, end - log.start, 0)
    early = x.early + np.where(runs, np.maximum(np.minimum(end, last) - log.start, 0), 0)
    log.start[x.first >= 0] = x.first[x.first >= 0]
    return Stops(np.zeros_like(x.kills), x.wasted * milli[prepared.job_class], held, early, x.kills)


def make_schedule(prepared: Prepared, log: Log, stops: Stops | None) -> pl.DataFrame:
    """Build the table."""
    accepted, height = prepared.accepted, prepared.jobs.height
    is_known = {"start": log.start >= 0, "end": (log.start >= 0) & (log.end <= log.counters[NOW])}
    first = prepared.jobs["submit_time"].to_physical().min()
    state = np.full(height, REJECTED, dtype=np.int8)
    state[accepted] = np.where(is_known["end"], FINISHED, UNFINISHED)
    nodes, gpu_type = _places(prepared, log, height)
    columns = {"job_id": prepared.jobs["job_id"]}
    for name, values in (("start", log.start), ("end", log.end)):
        is_null = ~spread(is_known[name], accepted, height, fill=0).astype(bool)
        time = pl.Series(spread(values, accepted, height))
        if is_null.any():
            time = time.set(pl.Series(is_null), None)
        columns[f"{name}_time"] = (time + (first or 0)).cast(SCHEDULE[f"{name}_time"])
        columns[f"{name}_s"] = time / US
    reason = np.where(prepared.reason == NO_REASON, len(REASONS), prepared.reason).astype(np.int8)
    count: pl.Series | pl.Expr = pl.lit(0, dtype=pl.Int64)
    killed: pl.Series | pl.Expr = pl.lit(0, dtype=pl.Int64)
    wasted: pl.Series | pl.Expr = pl.lit(0.0)
    if stops is not None:
        count = pl.Series(spread(stops.stopped, accepted, height, fill=0))
        if stops.killed is not None:
            killed = pl.Series(spread(stops.killed, accepted, height, fill=0))
        wasted = pl.Series(spread(stops.wasted, accepted, height, fill=0)) / (MILLI * US)
    table = pl.DataFrame(columns).with_columns(
        nodes=nodes,
        gpu_type=gpu_type,
        num_preemptions=count,
        num_restarts=killed,
        wasted_gpu_s=wasted,
        state=_named(state, STATES),
        reason=_named(reason, (*REASONS, None)),
    )
    return table.select(pl.col(name).cast(dtype) for name, dtype in SCHEDULE.items())


def _named(codes: npt.NDArray[np.int8], names: Sequence[str | None]) -> pl.Series | pl.Expr:
    """Name of every code; one value for all, which takes no room, where they are alike."""
    if len(codes) and codes.min() == codes.max():
        return pl.lit(names[codes[0]], dtype=pl.String)
    return pl.Series(names, dtype=pl.String).gather(codes.astype(np.uint32))


def job_table(prepared: Prepared, stops: Stops | None) -> pl.DataFrame:
    """What a result keeps of every job beside its row in the schedule."""
    table = prepared.jobs.select("submit_time", "num_gpus", "duration_s")
    if stops is None:
        return table
    accepted, height = prepared.accepted, table.height
    return table.with_columns(
        run_s=pl.Series(spread(stops.held, accepted, height, fill=0)) / US,
        early_run_s=pl.Series(spread(stops.early, accepted, height, fill=0)) / US,
    )


def spread(values: npt.NDArray[Any], accepted: I64, height: int, fill: int = -1) -> npt.NDArray[Any]:
    """Values of the accepted jobs as values of all."""
    if len(accepted) == height:
        return values
    full = np.full(height, fill, dtype=np.int64)
    full[accepted] = values
    return full


def _places(prepared: Prepared, log: Log, height: int) -> tuple[pl.Series, pl.Series | pl.Expr]:
    """Node ids, in their order and each once, and GPU type of every job."""
    hw, first = prepared.hw, prepared.first_entry[:-1]
    length = np.zeros(len(first), dtype=np.int64)
    # Conservative backfill writes down the places of jobs that wait; those who were stopped have left theirs.
    stop = np.where((log.start < 0) | (log.end == NEVER), first, log.stop_entry)
    node = np.empty(len(log.held.item), dtype=np.int64)
    node = node[: list_nodes(hw, log.held, first, stop, node, length)]
    offsets = np.zeros(height + 1, dtype=np.int64)
    np.cumsum(spread(length, prepared.accepted, height, fill=0), out=offsets[1:])
    has_nodes = offsets[1:] > offsets[:-1]
    types = np.full(height, len(prepared.gpu_types), dtype=np.int8)
    types[has_nodes] = hw.groups[hw.group, TYPE].astype(np.int8)[node[offsets[:-1][has_nodes]]]
    mask = None if has_nodes.all() else pa.array(~has_nodes)
    ids = prepared.node_ids.gather(node).to_arrow(compat_level=pl.CompatLevel.newest())
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), ids, mask=mask)
    return pl.Series(lists, dtype=pl.List(pl.String)), _named(types, (*prepared.gpu_types, None))
