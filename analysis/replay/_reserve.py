"""The head's reservation under EASY: when and where it will fit, and hiding that from jobs that would outlast it."""

from __future__ import annotations

from analysis.replay._backfill import (
    NOBODY,
    NUM_RESERVED,
    NUM_WALKED,
    Backfill,
    next_due,
    walk_next,
)
from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, compiled, constant, melted
from analysis.replay._hardware import MILLI, Hardware, release, retake, set_free, set_room
from analysis.replay._offline import is_out
from analysis.replay._place import (
    ANY_TYPE,
    FAR,
    MODE,
    NOWHERE,
    ON_ONE_NODE,
    TYPES,
    VC,
    WHOLE,
    allows,
    fitting_type,
    node_of,
    place,
    type_of,
)
from analysis.replay._scores import look_ahead, look_back
from analysis.replay._state import State
from analysis.replay._supply import hide_supply, note_supply, outlast_supply, show_supply

#: Shadow time of a head that will not fit on the nodes that are there: whoever is predicted to end at all ends before.
OUT_OF_SIGHT = constant(1 << 61)


@melted
def give_back(s: State, job: int) -> None:
    """Free what a running job holds, for a look ahead."""
    release(s.hw, s.log.held, s.work.first_entry[job], s.log.stop_entry[job])


@compiled
def find_shadow(s: State, b: Backfill, row: I64, now: int) -> int:
    """Reserve for a class's job at the earliest instant at which it fits; return that instant, the shadow time.

    Running jobs are given back by predicted end, one instant after the other, until the job fits; then all is undone.
    Where it never does, since too many nodes are out, nothing is reserved and the shadow time is far.
    """
    vc = row[VC]
    b.counts[NUM_WALKED] = 0
    forget(s.hw, b)
    if len(s.hw.room) == 0 and row[MODE] == ON_ONE_NODE:
        return find_node(s, b, row, now)
    shadow, clock = now, look_ahead(s.hw.scores)
    while next_due(b, vc, b.counts[NUM_WALKED]) < NOBODY:
        time = max(next_due(b, vc, b.counts[NUM_WALKED]), now + 1)
        if time > shadow and shadow > now and fitting_type(s.hw, row, ANY_TYPE, s.log.scratch) != NOWHERE:
            break
        give_back(s, walk_next(b, vc))
        shadow = time
    if not note_rooms(s, b, row):
        shadow = OUT_OF_SIGHT
    for k in range(b.counts[NUM_WALKED]):
        job = b.near[b.runner0[vc] + k]
        retake(s.hw, s.log.held, s.work.first_entry[job], s.log.stop_entry[job])
    look_back(s.hw.scores, clock, row)
    return shadow


@compiled
def find_node(s: State, b: Backfill, row: I64, now: int) -> int:
    """Do what ``find_shadow`` does, where one node takes it all: then it is enough to count, node by node."""
    hw, held, vc = s.hw, s.log.held, row[VC]
    shadow, fits = now, False
    while next_due(b, vc, b.counts[NUM_WALKED]) < NOBODY:
        time = max(next_due(b, vc, b.counts[NUM_WALKED]), now + 1)
        if fits and time > shadow:
            break
        job = walk_next(b, vc)
        shadow = time
        for e in range(s.work.first_entry[job], s.log.stop_entry[job]):
            node = held.item[e]
            if is_out(hw.offline, node):
                continue
            b.freed[node] += held.amount[e]
            if hw.free[node] + b.freed[node] >= row[WHOLE] and allows(row[TYPES], type_of(hw, node)):
                fits = True
    best, best_free = NOWHERE, FAR
    for k in range(b.counts[NUM_WALKED]):
        job = b.near[b.runner0[vc] + k]
        for e in range(s.work.first_entry[job], s.log.stop_entry[job]):
            node = held.item[e]
            free = hw.free[node] + b.freed[node]
            # A node that nobody left has as little room as now, when the job does not fit.
            is_candidate = b.freed[node] > 0 and free >= row[WHOLE] and allows(row[TYPES], type_of(hw, node))
            if is_candidate and (free < best_free or (free == best_free and hw.rank[node] < hw.rank[best])):
                best, best_free = node, free
            b.freed[node] = 0
    if best == NOWHERE:
        return OUT_OF_SIGHT
    b.counts[NUM_RESERVED] = 1
    b.node[0], b.whole[0], b.spare[0], b.place_of[best] = best, row[WHOLE], best_free - row[WHOLE], 1
    return shadow


@melted
def forget(hw: Hardware, b: Backfill) -> None:
    """Drop the last reservation."""
    for i in range(b.counts[NUM_RESERVED]):
        node = b.node[i]
        b.place_of[node] = 0
        if len(hw.room) > 0:
            for device in range(hw.device0[node], hw.device0[node + 1]):
                b.kept[device] = 0
    b.counts[NUM_RESERVED] = 0


@melted
def note_rooms(s: State, b: Backfill, row: I64) -> bool:
    """Place the head on what is free at the shadow time, note what it takes and leaves, and take it back.

    False, and nothing happens, if it does not fit.
    """
    hw, scratch = s.hw, s.log.scratch
    stop = place(hw, row, ANY_TYPE, scratch, ZERO)
    if stop == NOWHERE:
        return False
    for e in range(stop):
        node = node_of(hw, scratch.item[e])
        if b.place_of[node] == 0:
            i = b.counts[NUM_RESERVED]
            b.counts[NUM_RESERVED] += 1
            b.node[i], b.whole[i], b.place_of[node] = node, 0, i + 1
        if len(hw.room) > 0 and scratch.amount[e] == MILLI:
            b.whole[b.place_of[node] - 1] += 1
        elif len(hw.room) > 0:
            b.kept[scratch.item[e]] += scratch.amount[e]
    for i in range(b.counts[NUM_RESERVED]):
        b.spare[i] = hw.free[b.node[i]]
    release(hw, scratch, ZERO, stop)
    if len(hw.room) > 0:
        for i in range(b.counts[NUM_RESERVED]):
            for device in range(hw.device0[b.node[i]], hw.device0[b.node[i] + 1]):
                b.later[device] = hw.room[device]
    note_supply(hw, hw.scores, scratch, stop)
    return True


@compiled
def hide(hw: Hardware, b: Backfill) -> None:
    """Hide the reserved share of the reserved nodes: what is free now beyond what the head will leave."""
    for i in range(b.counts[NUM_RESERVED]):
        node = b.node[i]
        hide_supply(hw.scores, node)
        if len(hw.room) > 0:
            hide_devices(hw, b, i)
        else:
            b.veil[i] = max(hw.free[node] - b.spare[i], 0)
            if b.veil[i] > 0:
                set_free(hw, node, hw.free[node] - b.veil[i])


@melted
def hide_devices(hw: Hardware, b: Backfill, i: int) -> None:
    """Hide devices of a reserved node: for whole GPUs those with the least room now, so that free ones stay seen."""
    start, stop = hw.device0[b.node[i]], hw.device0[b.node[i] + 1]
    for device in range(start, stop):
        b.veil[device] = -1
    for _ in range(b.whole[i]):
        best = -1
        for device in range(start, stop):
            is_whole = b.veil[device] < 0 and b.later[device] == MILLI and b.kept[device] == 0
            if is_whole and (best < 0 or hw.room[device] < hw.room[best]):
                best = device
        if best >= 0:
            b.veil[best] = hw.room[best]
    for device in range(start, stop):
        if b.veil[device] < 0:
            b.veil[device] = max(hw.room[device] - (b.later[device] - b.kept[device]), 0) if b.kept[device] > 0 else 0
        if b.veil[device] > 0:
            set_room(hw, device, hw.room[device] - b.veil[device])


@compiled
def show(hw: Hardware, b: Backfill) -> None:
    """Undo ``hide``."""
    for i in range(b.counts[NUM_RESERVED]):
        node = b.node[i]
        show_supply(hw.scores, node)
        if len(hw.room) > 0:
            for device in range(hw.device0[node], hw.device0[node + 1]):
                if b.veil[device] > 0:
                    set_room(hw, device, hw.room[device] + b.veil[device])
        elif b.veil[i] > 0:
            set_free(hw, node, hw.free[node] + b.veil[i])


@melted
def outlast(s: State, b: Backfill, job: int) -> None:
    """Note that a job which started will still hold its GPUs at the shadow time."""
    hw, held = s.hw, s.log.held
    for e in range(s.work.first_entry[job], s.log.stop_entry[job]):
        node = node_of(hw, held.item[e])
        if b.place_of[node] == 0:
            continue
        if len(hw.room) > 0:
            b.later[held.item[e]] -= held.amount[e]
            outlast_supply(hw.scores, node, held, e)
        else:
            b.spare[b.place_of[node] - 1] -= held.amount[e]
