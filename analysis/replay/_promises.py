"""What conservative backfill keeps, and how a job gets its promise: the earliest that touches nobody else's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.replay import _place
from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, compiled, melted
from analysis.replay._hardware import COUNT, FIRST, SIZE, TYPE, Hardware, release, set_free, set_room
from analysis.replay._heap import Heap, make_heap
from analysis.replay._loosened import Loosened, make_loosened
from analysis.replay._moving import wide_classes
from analysis.replay._place import ANY_TYPE, FAR, MODE, NOWHERE, ON_ONE_NODE, PIECES, TYPES, VC, WHOLE, allows, type_of
from analysis.replay._prepare import Prepared
from analysis.replay._state import NEVER, Log, Work
from analysis.replay._timeline import Timeline, change, end_of, first_gap, least, make_timeline, sort_first, span_at


class Promises(NamedTuple):
    """Data structures of conservative backfill."""

    predicted: I64  # [n, K]
    is_wide: I64  # [C]
    step_us: I64  # lengths by which a prediction that proved too short is moved on
    start: I64  # [n] promised start
    due: I64  # [n] predicted end, of the promise or the run
    tries: I64  # [n] corrections so far
    later: I64  # [n] waiting jobs in the order of submission …
    sooner: I64  # [n]
    first: I64  # [V]
    last: I64  # [V]
    is_loose: I64  # [V] 1: something came free earlier than predicted
    is_torn: I64  # [V] 1: promises were taken back
    lines: Timeline
    events: Heap  # running jobs by end, or predicted end if that is earlier
    starts: Heap  # waiting jobs by promised start
    low: I64  # [U] scratch
    begins: I64  # [P] scratch of sweeps
    ends: I64
    loosened: Loosened
    was: I64  # scratch: nodes of a promise that is moved


class Conserve(NamedTuple):
    """Everything that the loop changes or reads."""

    hw: Hardware
    work: Work
    log: Log
    p: Promises


#: Tsafrir et al.: 1, 5, 15, 30 minutes, 1, 2, 5, 10, 20, 50, 100 hours.
STEPS_MIN = (1, 5, 15, 30, 60, 120, 300, 600, 1_200, 3_000, 6_000)


def make_promises(prepared: Prepared) -> Promises:
    """Lay out the structures, empty."""
    n, v = len(prepared.accepted), prepared.num_vcs
    lines = make_timeline(prepared.hw, int(prepared.first_entry[-1]))
    spans = len(lines.since)

    return Promises(
        predicted=prepared.predicted,
        is_wide=wide_classes(prepared.classes, prepared.hw),
        step_us=np.array(STEPS_MIN, dtype=np.int64) * 60_000_000,
        start=np.empty(n, dtype=np.int64),
        due=np.empty(n, dtype=np.int64),
        tries=np.zeros(n, dtype=np.int64),
        later=np.empty(n, dtype=np.int64),
        sooner=np.empty(n, dtype=np.int64),
        first=np.full(v, -1, dtype=np.int64),
        last=np.full(v, -1, dtype=np.int64),
        is_loose=np.zeros(v, dtype=np.int64),
        is_torn=np.zeros(v, dtype=np.int64),
        lines=lines,
        events=make_heap(n),
        starts=make_heap(n),
        low=np.empty(len(lines.head), dtype=np.int64),
        begins=np.empty(spans, dtype=np.int64),
        ends=np.empty(spans, dtype=np.int64),
        loosened=make_loosened(n, len(prepared.hw.free), v),
        was=np.empty(int(np.diff(prepared.first_entry).max(initial=0)), dtype=np.int64),
    )


@melted
def longest(s: Conserve, job: int) -> int:
    """Longest predicted time over the types that a job may use in its VC, at least 1 us."""
    row, hw = s.work.classes[s.work.job_class[job]], s.hw
    length = ZERO + 1
    for g in range(hw.vc_groups[row[VC]], hw.vc_groups[row[VC] + 1]):
        if allows(row[TYPES], hw.groups[g, TYPE]):
            length = max(length, s.p.predicted[job, s.work.column[hw.groups[g, TYPE]]])
    return int(length)


@compiled
def book(s: Conserve, job: int, now: int, sign: int) -> None:
    """Write a promise or a run into the timeline (sign -1), or strike it out from now on (+1)."""
    held = s.log.held
    for e in range(s.work.first_entry[job], s.log.stop_entry[job]):
        change(s.p.lines, held.item[e], max(s.p.start[job], now), s.p.due[job], sign * held.amount[e], now)


@melted
def promise(s: Conserve, job: int, at: int) -> None:
    """Note a promise whose places have been written."""
    column = s.work.column[type_of(s.hw, s.log.held.item[s.work.first_entry[job]])]
    s.log.column[job] = column
    s.p.start[job] = at
    s.p.due[job] = at + max(s.p.predicted[job, column], 1)


@compiled
def plan(s: Conserve, job: int, now: int, limit: int) -> bool:
    """Promise a job the earliest instant, before ``limit``; False, and nothing is written, if there is none."""
    c = s.work.job_class[job]
    row, length = s.work.classes[c], longest(s, job)
    if len(s.hw.room) == 0 and row[MODE] == ON_ONE_NODE and row[PIECES] == 0:
        return plan_on_node(s, job, length, now, limit)
    at = now
    if s.p.is_wide[c] == 1 and len(s.hw.room) == 0:
        at = first_for_wide(s, job, length, now)
    while at < limit:
        if place_then(s, job, length, at, now):
            promise(s, job, at)
            return True
        at = next_change(s, row[VC], at, now)
    return False


@compiled
def plan_on_node(s: Conserve, job: int, length: int, now: int, limit: int) -> bool:
    """Do that for whole GPUs on one node."""
    hw, x, row = s.hw, s.p.lines, s.work.classes[s.work.job_class[job]]
    need = row[WHOLE]
    best, best_at, best_free = NOWHERE, limit - 1, FAR
    for g in range(hw.vc_groups[row[VC]], hw.vc_groups[row[VC] + 1]):
        if hw.groups[g, SIZE] < need or not allows(row[TYPES], hw.groups[g, TYPE]):
            continue
        for node in range(hw.groups[g, FIRST], hw.groups[g, FIRST] + hw.groups[g, COUNT]):
            span = span_at(x, node, now)
            at = first_gap(x, span, need, length, now, best_at)
            if at == NEVER:
                continue
            free = least(x, span, at, at + length)
            is_tie = best != NOWHERE and at == best_at
            if not is_tie or free < best_free or (free == best_free and hw.rank[node] < hw.rank[best]):
                best, best_at, best_free = node, at, free
    if best == NOWHERE:
        return False
    entry = s.work.first_entry[job]
    s.log.held.item[entry], s.log.held.amount[entry] = best, need
    s.log.stop_entry[job] = entry + 1
    promise(s, job, best_at)
    return True


@melted
def units_of(s: Conserve, vc: int, which: int) -> int:
    """First unit of a VC (which = 0), or the one after its last (1)."""
    hw = s.hw
    g = hw.vc_groups[vc + which]
    node = hw.groups[g, FIRST] if g < len(hw.groups) else len(hw.free)
    return int(hw.device0[node] if len(hw.room) > 0 else node)


@melted
def set_unit(s: Conserve, unit: int, free: int) -> int:
    """Pretend that so much of a unit is free; return what was."""
    if len(s.hw.room) > 0:
        was = s.hw.room[unit]
        if was != free:
            set_room(s.hw, unit, free)
    else:
        was = s.hw.free[unit]
        if was != free:
            set_free(s.hw, unit, free)
    return int(was)


@compiled
def place_then(s: Conserve, job: int, length: int, at: int, now: int) -> bool:
    """Place a job on what is free all through a window and write where; nothing is taken. False if it does not fit."""
    row, first = s.work.classes[s.work.job_class[job]], s.work.first_entry[job]
    start, stop = units_of(s, row[VC], ZERO), units_of(s, row[VC], ZERO + 1)
    for u in range(start, stop):
        s.p.low[u] = set_unit(s, u, max(least(s.p.lines, span_at(s.p.lines, u, now), at, at + length), ZERO))
    fits = _place.fitting_type(s.hw, row, ANY_TYPE, s.log.scratch) != NOWHERE
    if fits:
        s.log.stop_entry[job] = _place.place(s.hw, row, ANY_TYPE, s.log.held, first)
        release(s.hw, s.log.held, first, s.log.stop_entry[job])
    for u in range(start, stop):
        set_unit(s, u, s.p.low[u])
    return fits


@compiled
def next_change(s: Conserve, vc: int, at: int, now: int) -> int:
    """First instant after another at which what is free in a VC changes."""
    x, best = s.p.lines, NEVER
    for u in range(units_of(s, vc, ZERO), units_of(s, vc, ZERO + 1)):
        span = span_at(x, u, now)
        while end_of(x, span) <= at:
            span = x.after[span]
        best = min(best, end_of(x, span))
    return best


@compiled
def first_for_wide(s: Conserve, job: int, length: int, now: int) -> int:
    """First instant from which as many nodes as a gang needs are wholly free for so long, all of one type."""
    hw, row = s.hw, s.work.classes[s.work.job_class[job]]
    best = NEVER
    for g in range(hw.vc_groups[row[VC]], hw.vc_groups[row[VC] + 1]):
        if allows(row[TYPES], hw.groups[g, TYPE]) and hw.groups[g, SIZE] * hw.groups[g, COUNT] >= row[WHOLE]:
            best = min(best, sweep(s, g, row[WHOLE] // hw.groups[g, SIZE], length, now))
    return best


@compiled
def sweep(s: Conserve, g: int, need: int, length: int, now: int) -> int:
    """First instant at which ``need`` nodes of a group may begin to be wholly taken for so long."""
    hw, x = s.hw, s.p.lines
    begins, ends, size = s.p.begins, s.p.ends, s.hw.groups[g, SIZE]
    num = ZERO
    for node in range(hw.groups[g, FIRST], hw.groups[g, FIRST] + hw.groups[g, COUNT]):
        span = span_at(x, node, now)
        while span >= 0:
            since = max(x.since[span], now)
            if x.free[span] == size and end_of(x, span) - length >= since:
                begins[num], ends[num] = since, end_of(x, span) - length
                num += 1
            span = x.after[span]
    sort_first(begins, num)
    sort_first(ends, num)
    over = ZERO
    for k in range(num):
        while ends[over] < begins[k]:
            over += 1
        if k + 1 - over >= need:
            return int(begins[k])
    return NEVER
