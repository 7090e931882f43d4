"""How a job starts, changes its place in the order, is stopped and ends under a preemptive policy."""

from __future__ import annotations

import numpy as np

from analysis.replay._closed import note_end
from analysis.replay._compiled import ZERO, compiled, melted
from analysis.replay._hardware import release
from analysis.replay._heap import float_up, sink, take_out
from analysis.replay._moving import (
    IS_STRICT,
    KIND,
    LAST_SUBMIT,
    LEVELS,
    MIN_RUN,
    REMAINING,
    SAFE,
    SLICES,
    Moving,
    Preemption,
)
from analysis.replay._place import VC, type_of
from analysis.replay._scores import count_start
from analysis.replay._state import NEVER, RUNNING, WAITING, note_job
from analysis.replay._tape import ENDED, PREEMPTED, STARTED
from analysis.replay._victims import comes_after, move_out, settle_in

# --- waiting jobs ----------------------------------------------------------------------------------------------------


@melted
def queue_of(s: Preemption, job: int) -> int:
    """Queue in which a job waits."""
    c = s.work.job_class[job]
    return int(s.work.classes[c, VC] if s.m.rule[IS_STRICT] == 1 else c)


@compiled
def enqueue(s: Preemption, job: int) -> None:
    """Let a job wait, with its key."""
    m, queue = s.m, queue_of(s, job)
    m.length[queue] += 1
    rise_in(m, m.first[queue], m.length[queue] - 1, job)
    m.waiting[s.work.classes[s.work.job_class[job], VC]] += 1
    s.log.counters[WAITING] += 1


@compiled
def rise_in(m: Moving, first: int, i: int, job: int) -> None:
    """Let a job rise from place i of the queue that begins at ``first``."""
    heap = m.heap
    while i > 0:
        up = (i - 1) >> 1
        if not comes_after(m, heap[first + up], job):
            break
        heap[first + i] = heap[first + up]
        i = up
    heap[first + i] = job


@compiled
def dequeue(s: Preemption, queue: int) -> None:
    """Take the first job out of a queue."""
    m = s.m
    heap, first = m.heap, m.first[queue]
    n = m.length[queue] - 1
    m.length[queue] = n
    job, last = heap[first], heap[first + n]
    i = ZERO
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and comes_after(m, heap[first + down], heap[first + down + 1]):
            down += 1
        if not comes_after(m, last, heap[first + down]):
            break
        heap[first + i] = heap[first + down]
        i = down
    heap[first + i] = last
    m.waiting[s.work.classes[s.work.job_class[job], VC]] -= 1
    s.log.counters[WAITING] -= 1


# --- the key of a running job ----------------------------------------------------------------------------------------


@melted
def ratio_of(s: Preemption, job: int) -> float:
    """Run time over work where a job runs."""
    ratio = s.m.ratio
    return float(ratio[job if len(ratio) > 1 else ZERO, s.log.column[job]])


@melted
def scaled(value: int, ratio: float) -> int:
    """Round to the nearest whole microsecond, half to even."""
    return value if ratio == 1.0 else int(np.rint(value * ratio))


@melted
def level_of(s: Preemption, job: int, held: int) -> int:
    """Level of a job that has held its GPUs for so long."""
    service = s.m.milli[s.work.job_class[job]] * held
    level = ZERO
    while level < len(s.m.thresholds) and s.m.thresholds[level] <= service:
        level += 1
    return level


@compiled
def next_key(s: Preemption, job: int, now: int) -> int:
    """Give a running job the key that it has from now on; return the instant at which it changes."""
    m, begin, kind = s.m, s.m.begin[job], s.m.rule[KIND]
    if kind == SLICES:
        m.key[job] = SAFE
        return NEVER
    if now < begin + m.rule[MIN_RUN]:
        m.key[job] = SAFE
        return int(begin + m.rule[MIN_RUN])
    if kind == REMAINING:
        left, ratio = m.guess[job], ratio_of(s, job)
        m.key[job] = begin + (left if left <= 0 or ratio >= 1.0 else scaled(left, ratio))
        return NEVER
    level = level_of(s, job, m.held[job] + now - begin)
    m.key[job] = m.place_of_level[level]
    if level == len(m.thresholds):
        return NEVER
    milli = m.milli[s.work.job_class[job]]
    return int(begin + (m.thresholds[level] + milli - 1) // milli - m.held[job])


# --- start, change, stop, end ----------------------------------------------------------------------------------------


@compiled
def begin_run(s: Preemption, job: int, stop_entry: int, now: int) -> None:
    """Let a job run that has been placed and has left its queue."""
    m, log, c = s.m, s.log, s.work.job_class[job]
    count_start(s.hw.scores, s.work.classes[c, VC])
    log.stop_entry[job] = stop_entry
    log.column[job] = s.work.column[type_of(s.hw, log.held.item[s.work.first_entry[job]])]
    restart = m.restart[c] if m.stops[job] > 0 else ZERO
    if log.start[job] < 0:
        log.start[job] = now
    log.end[job] = now + restart + scaled(m.left[job], ratio_of(s, job))
    m.begin[job] = now
    change = next_key(s, job, now)
    log.counters[RUNNING] += 1
    float_up(m.events, log.counters[RUNNING] - 1, min(log.end[job], change), job)
    vc = s.work.classes[c, VC]
    m.place[job] = m.runner0[vc] + m.num_runners[vc]
    m.runner[m.place[job]] = job
    m.num_runners[vc] += 1
    settle_in(s, job)
    note_job(s.hw, s.work, log, STARTED, job, now)


@compiled
def change_key(s: Preemption, job: int, now: int) -> None:
    """Let a running job's key change."""
    move_out(s, job)
    change = next_key(s, job, now)
    settle_in(s, job)
    sink(s.m.events, s.log.counters[RUNNING], s.m.events.at[job], min(s.log.end[job], change), job)


@melted
def forget_run(s: Preemption, job: int, now: int) -> None:
    """Take a job off all lists of running jobs, and count the time that it held its GPUs."""
    m, vc, begin = s.m, s.work.classes[s.work.job_class[job], VC], s.m.begin[job]
    move_out(s, job)
    s.log.counters[RUNNING] -= 1
    take_out(m.events, s.log.counters[RUNNING], job)
    m.num_runners[vc] -= 1
    last = m.runner[m.runner0[vc] + m.num_runners[vc]]
    m.runner[m.place[job]] = last
    m.place[last] = m.place[job]
    if m.stops[job] > 0 or now < s.log.end[job]:
        m.held[job] += now - begin
        m.early[job] += max(min(now, m.rule[LAST_SUBMIT]) - begin, 0)


@compiled
def end_run(s: Preemption, job: int, now: int) -> None:
    """Let a job go that has done its work."""
    release(s.hw, s.log.held, s.work.first_entry[job], s.log.stop_entry[job])
    forget_run(s, job, now)
    note_job(s.hw, s.work, s.log, ENDED, job, now)
    note_end(s.work.closed, job)
    if s.m.stops[job] > 0:
        s.m.wasted[job] += s.m.restart[s.work.job_class[job]]


@compiled
def stop_run(s: Preemption, job: int, now: int) -> None:
    """Let a job wait again whose GPUs have been released."""
    m, c, kind = s.m, s.work.job_class[job], s.m.rule[KIND]
    ran = now - m.begin[job]
    restart = m.restart[c] if m.stops[job] > 0 else ZERO
    useful = max(ran - restart - m.checkpoint[c], 0)
    ratio = ratio_of(s, job)
    done = min(useful if ratio == 1.0 else int(useful / ratio), m.left[job])
    forget_run(s, job, now)
    s.log.end[job] = NEVER
    note_job(s.hw, s.work, s.log, PREEMPTED, job, now)
    m.left[job] -= done
    m.wasted[job] += ran - useful
    m.stops[job] += 1
    if kind == REMAINING:
        m.guess[job] = max(m.guess[job] - done, m.key[job] - now)
        m.key[job] = m.guess[job]
    elif kind == SLICES:
        m.key[job] = now
    enqueue(s, job)


@melted
def arrive(s: Preemption, job: int) -> None:
    """Let a job wait that is new, or lost its node."""
    m, kind = s.m, s.m.rule[KIND]
    if kind == REMAINING:
        m.key[job] = m.guess[job]
    elif kind == LEVELS:
        m.key[job] = m.place_of_level[level_of(s, job, m.held[job])]
    else:
        m.key[job] = s.work.submit[job]
    enqueue(s, job)
    m.fresh[queue_of(s, job)] = 1


@compiled
def end_slice(s: Preemption, vc: int, now: int) -> None:
    """Let everybody who runs in a VC be stopped, longest since its start first."""
    m = s.m
    for i in range(m.runner0[vc], m.runner0[vc] + m.num_runners[vc]):
        job = m.runner[i]
        m.key[job] = 2 * now - m.begin[job]


@compiled
def begin_slice(s: Preemption, vc: int) -> None:
    """Let nobody who runs in a VC be stopped."""
    m = s.m
    for i in range(m.runner0[vc], m.runner0[vc] + m.num_runners[vc]):
        m.key[m.runner[i]] = SAFE
