"""The tape: what the compiled loops note of every event, until Python takes it off and the loop goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from analysis.replay import _place
from analysis.replay._bits import I64
from analysis.replay._compiled import compiled, constant, melted
from analysis.replay._hardware import COUNT, MILLI, SIZE, Entries, Hardware, nodes_of

if TYPE_CHECKING:
    from analysis.replay._state import Work

# What may happen; the place in the tuple is the code.
KINDS: Final = ("submitted", "started", "preempted", "ended", "rejected", "killed")
SUBMITTED, STARTED, PREEMPTED, ENDED, REJECTED, KILLED = (constant(code) for code in range(6))
# Places in ``Tape.counts``.
ROWS, NODES, LOST, MOST_ROWS, MOST_NODES = 0, 1, 2, 3, 4
#: Events after which the tape is taken off, at least.
LENGTH: Final = 1 << 17


class Tape(NamedTuple):
    """Events behind each other; all arrays are empty where nobody asked for them."""

    time: I64
    kind: I64
    job: I64
    stop_node: I64  # place after the event's last node …
    node: I64  # … among these
    counts: I64  # rows and nodes there are, rows lost, and the numbers from which on the tape must be taken off


def no_tape() -> Tape:
    """A tape that nothing is noted on."""
    time, kind, job, stop_node, node = (np.empty(0, dtype=np.int64) for _ in range(5))
    return Tape(time, kind, job, stop_node, node, np.zeros(5, dtype=np.int64))


def make_tape(hw: Hardware, work: Work) -> Tape:
    """Lay out a tape that holds ``LENGTH`` events and those of one more instant.

    In one turn of the loop nobody can end, be stopped or start who does not run before or after it, and none of them
    twice: no more jobs than have room at once, of each.
    """
    classes = work.classes
    milli = classes[:, _place.WHOLE] * MILLI + classes[:, _place.PIECES] * classes[:, _place.MILLIS]
    gpus = int((hw.groups[:, SIZE] * hw.groups[:, COUNT]).sum())
    at_once = min(len(work.submit), gpus * MILLI // max(int(milli[work.job_class].min(initial=MILLI)), 1))
    arrivals = int(np.unique(work.submit, return_counts=True)[1].max(initial=0))
    pieces = classes[classes[:, _place.PIECES] > 0, _place.MILLIS]
    entries = min(int(work.first_entry[-1]), gpus * (MILLI // max(int(pieces.min(initial=MILLI)), 1)))
    rows, nodes = LENGTH + arrivals + 4 * at_once, LENGTH + 4 * entries
    time, kind, job, stop_node = (np.empty(rows, dtype=np.int64) for _ in range(4))
    counts = np.array([0, 0, 0, LENGTH, LENGTH], dtype=np.int64)
    return Tape(time, kind, job, stop_node, np.empty(nodes, dtype=np.int64), counts)


@melted
def is_full(t: Tape) -> bool:
    """Tell whether the tape must be taken off before the next instant."""
    return bool(t.counts[ROWS] > t.counts[MOST_ROWS] or t.counts[NODES] > t.counts[MOST_NODES])


@melted
def note(t: Tape, now: int, kind: int, job: int) -> None:
    """Write down an event, with the nodes that were added for it."""
    if len(t.time) > 0:
        write(t, now, kind, job)


@melted
def add_nodes(t: Tape, hw: Hardware, held: Entries, first: int, stop: int) -> None:
    """Write down the nodes of entries, for the event that is noted next."""
    if len(t.time) > 0:
        copy_nodes(t, hw, held, first, stop)


@compiled
def write(t: Tape, now: int, kind: int, job: int) -> None:
    """Write a row; its nodes have been written."""
    row = t.counts[ROWS]
    if row == len(t.time):
        t.counts[LOST] += 1
        return
    t.time[row], t.kind[row], t.job[row] = now, kind, job
    t.stop_node[row] = t.counts[NODES]
    t.counts[ROWS] = row + 1


@compiled
def copy_nodes(t: Tape, hw: Hardware, held: Entries, first: int, stop: int) -> None:
    """Write the nodes of entries, in the order of their ids and each once."""
    at = t.counts[NODES]
    if at + stop - first > len(t.node):
        t.counts[LOST] += 1
        return
    t.counts[NODES] = nodes_of(hw, held, first, stop, t.node, at)
