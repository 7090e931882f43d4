"""The event log of a replay: what happened to every job, in the order in which it happened.

At one instant: ends, then kills of jobs whose node went down, then submissions, then what the scheduling pass did; a
job that is stopped for another stands before that one's start, so that after every row no GPU is held twice. A job that
takes no part is submitted and rejected at once, before everything else of its instant. A job that was stopped or killed
and starts again is ``started`` again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.errors import UsageError
from analysis.replay._bits import I64
from analysis.replay._jobs import US
from analysis.replay._prepare import EXCEEDS_CAPACITY, Prepared
from analysis.replay._tape import KINDS, LOST, NODES, REJECTED, ROWS, SUBMITTED, Tape

__all__ = ["EVENTS", "EVENT_LOG", "EventSink"]

#: What may happen to a job.
EVENTS: Final = KINDS
#: Columns of an event log, one row per event.
EVENT_LOG: Final[dict[str, pl.DataType]] = {
    "time": pl.Datetime("us", "UTC"),
    "time_s": pl.Float64(),  # seconds from the first submission of a GPU job
    "event": pl.String(),  # one of EVENTS
    "job_id": pl.String(),
    "num_gpus": pl.Float64(),  # of the job; null = the log does not say (such a job is rejected)
    "nodes": pl.List(pl.String()),  # where it has started, or has been until now, in the order of ids; else null
}
_ARROW: Final = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("time_s", pa.float64()),
        ("event", pa.string()),
        ("job_id", pa.string()),
        ("num_gpus", pa.float64()),
        ("nodes", pa.list_(pa.string())),
    ]
)


class EventSink:
    """Takes events off the tape and writes them, a row group at a time, to a file that appears when all is written.

    Parameters
    ----------
    target : Path or None
        A Parquet file; None keeps the events in memory.
    prepared : Prepared
        The jobs that they are about.
    """

    def __init__(self, target: Path | None, prepared: Prepared) -> None:
        jobs = prepared.jobs
        self._target = target
        self._accepted = prepared.accepted
        self._ids = jobs["job_id"].to_arrow()
        self._gpus = jobs["num_gpus"].cast(pl.Float64).to_arrow()
        self._nodes = prepared.node_ids.to_arrow()
        submit = jobs["submit_time"].to_physical().to_numpy()
        self._first = int(submit[0]) if len(submit) else 0
        refused = np.flatnonzero((prepared.reason >= 0) & (prepared.reason <= EXCEEDS_CAPACITY))
        self._refused, self._refused_at, self._told = refused, submit[refused] - self._first, 0
        self._kinds = pa.array(KINDS)
        self._tables: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        """Open the file, under a hidden name beside its own."""
        if self._target is not None:
            self._staging = self._target.with_name(f".{self._target.name}.tmp")
            try:
                self._writer = pq.ParquetWriter(self._staging, _ARROW, compression="zstd")
            except OSError as error:
                raise _unwritable(self._target, error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the file its name, or remove it if something failed."""
        if self._writer is None or self._target is None:
            return
        try:
            self._writer.close()
            if kind is None:
                self._staging.replace(self._target)
        except OSError as failure:
            raise _unwritable(self._target, failure) from failure
        finally:
            with suppress(OSError):
                self._staging.unlink(missing_ok=True)

    def take(self, tape: Tape) -> None:
        """Write the events of a tape and empty it."""
        rows = int(tape.counts[ROWS])
        if tape.counts[LOST]:
            msg = f"event log: {tape.counts[LOST]} events found no room on the tape of {len(tape.time)}."
            raise RuntimeError(msg)
        nodes = tape.node[: tape.counts[NODES]]
        if rows:
            self._write(
                tape.time[:rows], tape.kind[:rows], self._accepted[tape.job[:rows]], tape.stop_node[:rows], nodes
            )
        tape.counts[ROWS] = tape.counts[NODES] = 0

    def finish(self, until: int) -> None:
        """Tell the rejections up to an instant that no event came after."""
        nothing = np.empty(0, dtype=np.int64)
        if np.searchsorted(self._refused_at, until, side="right") > self._told:
            self._write(nothing, nothing, nothing, nothing, nothing, until=until)

    def table(self) -> pl.DataFrame | None:
        """All events, where they were kept in memory."""
        if self._target is not None:
            return None
        tables = self._tables or [_ARROW.empty_table()]
        return _as_frame(pa.concat_tables(tables))

    def _write(self, time: I64, kind: I64, row: I64, stop: I64, nodes: I64, *, until: int | None = None) -> None:
        last = int(time[-1]) if until is None else until
        told = int(np.searchsorted(self._refused_at, last, side="right"))
        refused, at = self._refused[self._told : told], self._refused_at[self._told : told]
        self._told = told
        if len(refused):
            place = np.repeat(np.searchsorted(time, at, side="left"), 2)
            time = np.insert(time, place, np.repeat(at, 2))
            kind = np.insert(kind, place, np.tile([SUBMITTED, REJECTED], len(refused)))
            row = np.insert(row, place, np.repeat(refused, 2))
            stop = np.insert(stop, place, np.concatenate([[0], stop])[place])
        table = pa.table(
            [
                pa.array(time + self._first, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
                (pl.Series(time) / US).to_arrow(),  # as in the schedule: polars rounds in its own way
                self._kinds.take(pa.array(kind)),
                self._ids.take(pa.array(row)).cast(pa.string()),
                self._gpus.take(pa.array(row)),
                self._lists(stop, nodes),
            ],
            schema=_ARROW,
        )
        if self._writer is None:
            self._tables.append(table)
            return
        try:
            self._writer.write_table(table, row_group_size=table.num_rows)
        except OSError as error:
            raise _unwritable(self._target, error) from error

    def _lists(self, stop: I64, nodes: I64) -> pa.Array:
        offsets = np.concatenate([[0], stop])
        is_empty = np.diff(offsets) == 0
        names = self._nodes.take(pa.array(nodes)).cast(pa.string())
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), names, mask=pa.array(is_empty))


def _unwritable(target: Path | None, error: OSError) -> UsageError:
    why = error.strerror or str(error)
    return UsageError(f"{target}: cannot be written ({why}); choose a file in a folder that you may write to.")


def _as_frame(table: pa.Table) -> pl.DataFrame:
    frame: Any = pl.from_arrow(table)
    return frame.select(pl.col(name).cast(dtype) for name, dtype in EVENT_LOG.items())  # type: ignore[no-any-return]
