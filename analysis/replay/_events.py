"""Node events: nodes that go and come, and what a job that is killed with its node keeps of its work.

At one instant they come after the ends and before the arrivals. What is killed waits again, as on its arrival.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.replay import _tape
from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, compiled, constant, melted
from analysis.replay._hardware import SIZE, Hardware, set_free, set_room
from analysis.replay._offline import Offline
from analysis.replay._place import node_of
from analysis.replay._state import NEVER, WAITING, Log, Work, note_job

F64 = npt.NDArray[np.float64]
# What happens to a node, in this order at one instant.
KILLED, DRAINED, BACK = constant(0), constant(1), constant(2)
# Places in ``Events.facts``: the next event, microseconds of work from checkpoint to checkpoint (0 = none is made), the
# last submission.
NEXT, INTERVAL, LAST_SUBMIT = 0, 1, 2
#: What happened in a VC at an instant, as the loops note it: not only an arrival.
CHANGED: Final = constant(2)


class Events(NamedTuple):
    """What happens to nodes, and what it has done to jobs."""

    time: I64  # [E] microseconds from the first submission, rising
    node: I64  # [E]
    kind: I64  # [E]
    vc: I64  # [N] VC of a node
    facts: I64
    # Jobs.
    work: I64  # [n] microseconds on the hardware of the log
    guess: I64  # [n] … as predicted
    ratio: F64  # [n or 1, K] run time on speed column k over work
    kills: I64  # [n]
    # The same where the policy does not preempt; those that do keep it themselves.
    left: I64  # [n] work left at the last start
    first: I64  # [n] first start, -1 while a job was not killed
    held: I64  # [n] time that it held GPUs in runs that are over
    early: I64  # [n] … of it until the last submission
    wasted: I64  # [n] … of it without work that was kept
    victim: I64  # [n] scratch


@melted
def is_waiting_for_nodes(x: Events | None, log: Log) -> bool:
    """Tell whether somebody waits and something will happen to a node."""
    return bool(log.counters[WAITING] > 0 and next_event(x) < NEVER)


@compiled
def next_event(x: Events | None) -> int:
    """Instant of the next node event; NEVER if there is none."""
    if x is None:
        return NEVER
    k = x.facts[NEXT]
    return int(x.time[k]) if k < len(x.time) else NEVER


@melted
def mark(log: Log, vc: int) -> None:
    """Note that something happened in a VC."""
    if log.marks[vc] == 0:
        log.touched[0] += 1
        log.touched[log.touched[0]] = vc
    log.marks[vc] |= CHANGED


@melted
def gain_of(x: Events, job: int, left: int, done: int) -> int:
    """Work that a killed job keeps of what it has done since its last start: up to its last checkpoint."""
    interval = x.facts[INTERVAL]
    if interval == 0:
        return ZERO
    before = x.work[job] - left
    return int(max((before + done) // interval * interval - before, ZERO))


@melted
def to_run(work: int, ratio: float) -> int:
    """Microseconds that work takes, nearest, half to even."""
    return work if ratio == 1.0 else int(np.rint(work * ratio))


@melted
def to_work(run: int, ratio: float) -> int:
    """Work that is done in microseconds, rounded down."""
    return run if ratio == 1.0 else int(run / ratio)


@melted
def ratio_on(x: Events, job: int, column: int) -> float:
    """Run time over work of a job on a speed column."""
    return float(x.ratio[job if len(x.ratio) > 1 else ZERO, column])


@compiled
def take_down(hw: Hardware, off: Offline | None, node: int) -> None:
    """Hide what is free on a node, for one outage more."""
    if off is None:
        return
    off.down[node] += 1
    if off.down[node] > 1:
        return
    if len(hw.room) == 0:
        off.hidden[node] = hw.free[node]
        set_free(hw, node, ZERO)
        return
    for device in range(hw.device0[node], hw.device0[node + 1]):
        off.hidden[device] = hw.room[device]
        set_room(hw, device, ZERO)


@compiled
def bring_back(hw: Hardware, off: Offline | None, node: int) -> None:
    """Show what is free on a node again, when its last outage is over."""
    if off is None:
        return
    off.down[node] -= 1
    if off.down[node] > 0:
        return
    if len(hw.room) == 0:
        set_free(hw, node, off.hidden[node])
        return
    for device in range(hw.device0[node], hw.device0[node + 1]):
        set_room(hw, device, off.hidden[device])


@melted
def is_empty(hw: Hardware, node: int) -> bool:
    """Tell whether nobody runs on a node that is not out."""
    return bool(hw.free[node] == hw.groups[hw.group[node], SIZE])


@compiled
def holds(hw: Hardware, work: Work, log: Log, job: int, node: int) -> bool:
    """Tell whether a job has places on a node."""
    found = False
    for e in range(work.first_entry[job], log.stop_entry[job]):
        found = found or node_of(hw, log.held.item[e]) == node
    return found


@compiled
def list_killed(hw: Hardware, work: Work, log: Log, x: Events, jobs: I64, num: int, node: int) -> int:
    """List those of some jobs that have places on a node, in ``victim``; return how many."""
    found = ZERO
    for i in range(num):
        if holds(hw, work, log, jobs[i], node):
            x.victim[found] = jobs[i]
            found += 1
    return found


@melted
def lose_run(hw: Hardware, work: Work, log: Log, x: Events, predicted: I64, job: int, now: int) -> None:
    """Count what a killed job did and lost, and give it the run times of what is left; policies that do not preempt."""
    begin, ratio = log.start[job], ratio_on(x, job, log.column[job])
    done = min(to_work(now - begin, ratio), x.left[job])
    gain = gain_of(x, job, x.left[job], done)
    x.left[job] -= gain
    x.kills[job] += 1
    x.held[job] += now - begin
    x.early[job] += max(min(now, x.facts[LAST_SUBMIT]) - begin, ZERO)
    x.wasted[job] += max(now - begin - to_run(gain, ratio), ZERO)
    guess = max(x.guess[job] - (x.work[job] - x.left[job]), ZERO)
    if gain > 0:
        for k in range(work.run.shape[1]):
            predicted[job, k] = to_run(guess, ratio_on(x, job, k))
            work.run[job, k] = to_run(x.left[job], ratio_on(x, job, k))
    if x.first[job] < 0:
        x.first[job] = begin
    log.start[job], log.end[job] = -1, NEVER
    log.counters[WAITING] += 1
    note_job(hw, work, log, _tape.KILLED, job, now)
