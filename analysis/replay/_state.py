"""What the event loop reads and changes, and how a job starts."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.replay._bits import I64
from analysis.replay._closed import Closed
from analysis.replay._compiled import constant, melted
from analysis.replay._hardware import Entries, Hardware
from analysis.replay._place import NOWHERE, VC, place_quick, type_of
from analysis.replay._queues import Ends, Queues, push_end
from analysis.replay._scores import count_start
from analysis.replay._tape import STARTED, Tape, add_nodes, is_full, note

NEVER: Final = np.iinfo(np.int64).max
I8 = npt.NDArray[np.int8]
# Columns of ``Log.counters``: jobs, …
RUNNING, WAITING, MOST_WAITING, NEXT = 0, 1, 2, 3
# … the last instant replayed, the last one that may be, and how many may be before Python has its turn.
NOW, UNTIL, BUDGET = 4, 5, 6
# Jobs from this one on may not arrive before Python has predicted them.
KNOWN: Final = 7
NUM_COUNTERS: Final = 8
# Why a loop came back: nothing is left to happen; its budget is spent or the tape full; nothing more until then; jobs
# arrive that Python must predict, and all that ended at this instant have.
FINISHED, PAUSED, REACHED, ASKED = constant(0), constant(1), constant(2), constant(3)


class Work(NamedTuple):
    """The jobs, in the order (submit_time, job_id)."""

    submit: I64  # [n] microseconds from the first submission
    job_class: I64  # [n]
    run: I64  # [n, K] microseconds on the types of speed column k
    column: I64  # [T] speed column of a type
    classes: I64  # [C, 6] see _place
    first_entry: I64  # [n + 1] room for what each job may hold
    closed: Closed | None = None  # where predictions are made in the replay


class Log(NamedTuple):
    """What happened."""

    start: I64  # [n] microseconds, -1 = never
    end: I64  # [n]
    stop_entry: I64  # [n] entry after a job's last
    column: I8  # [n] speed column of the type it ran on
    held: Entries
    scratch: Entries
    counters: I64
    touched: I64  # [V + 1] number of VCs where something happened now, then the VCs
    marks: I64  # [V] what happened there: 1 an arrival, 2 an end
    live: I64  # [Q] queues whose head may fit in this pass
    where: I64  # [Q] speed column that each of them would run on
    beside: I64  # [Q] 1: each of them fits beside the reservation
    tape: Tape


class State(NamedTuple):
    """Everything that the loop changes or reads."""

    hw: Hardware
    work: Work
    queues: Queues
    ends: Ends
    log: Log


@melted
def begin_instant(log: Log, now: int) -> int:
    """Count an instant; anything but FINISHED says why it is not its turn yet."""
    counters = log.counters
    if now > counters[UNTIL]:
        return REACHED
    if counters[BUDGET] <= 0 or is_full(log.tape):
        return PAUSED
    counters[BUDGET] -= 1
    counters[NOW] = now
    return FINISHED


@melted
def must_ask(log: Log, submit: I64, job: int, now: int) -> bool:
    """Tell whether a job arrives that Python has not predicted yet."""
    return bool(log.counters[KNOWN] <= job < len(submit) and submit[job] == now)


@melted
def note_job(hw: Hardware, work: Work, log: Log, kind: int, job: int, now: int) -> None:
    """Note an event of a job that has its nodes, or had them until now."""
    add_nodes(log.tape, hw, log.held, work.first_entry[job], log.stop_entry[job])
    note(log.tape, now, kind, job)


@melted
def start(s: State, job: int, types: int, now: int) -> bool:
    """Place a job and let it run; False, and nothing happens, if it does not fit."""
    row = s.work.classes[s.work.job_class[job]]
    at = s.work.first_entry[job]
    stop = place_quick(s.hw, row, types, s.log.held, at)
    if stop == NOWHERE:
        return False
    count_start(s.hw.scores, row[VC])
    column = s.work.column[type_of(s.hw, s.log.held.item[at])]
    end = now + s.work.run[job, column]
    s.log.column[job] = column
    s.log.start[job] = now
    s.log.end[job] = end
    s.log.stop_entry[job] = stop
    push_end(s.ends, s.log.counters[RUNNING], end, job)
    s.log.counters[RUNNING] += 1
    s.log.counters[WAITING] -= 1
    note_job(s.hw, s.work, s.log, STARTED, job, now)
    return True
