"""Placement ``consolidate``, compiled: where a job goes, or that it does not fit now.

The rules stand in ``analysis.replay.placement``. A *class* of jobs asks for the same thing in the same VC, so that if
one of them does not fit, none does; ``_scores`` names the columns of the class table. Modes: on one node; whole nodes
and best fit for the rest; anywhere; fractions anywhere.
"""

from __future__ import annotations

from analysis.replay._bits import I64, first_item, has_bucket, next_bucket, next_item
from analysis.replay._compiled import ZERO, compiled, constant, melted
from analysis.replay._hardware import (
    FIRST,
    FIRST_DEVICE,
    FREE_GPUS,
    MILLI,
    SIZE,
    TYPE,
    WHOLE_NODES,
    Entries,
    Hardware,
    release,
    set_free,
    set_room,
)
from analysis.replay._scored import FRACTIONS, ON_ONE_NODE, SPREAD, WHOLE_NODES_FIRST, place_scored, scored_node
from analysis.replay._scores import MILLIS, MODE, PIECES, TYPES, VC, WHOLE, Scores, look_ahead, look_back

__all__ = [
    "ANY_TYPE",
    "FAR",
    "FRACTIONS",
    "MILLIS",
    "MODE",
    "NOWHERE",
    "ONE",
    "ON_ONE_NODE",
    "PIECES",
    "SPREAD",
    "TYPES",
    "VC",
    "WHOLE",
    "WHOLE_NODES_FIRST",
    "allows",
    "fitting_type",
    "node_of",
    "place",
    "place_quick",
    "type_of",
]

NOWHERE = constant(-1)
ONE = constant(1)
FAR = constant(1 << 62)
#: All bits: every GPU type.
ANY_TYPE = constant(-1)


@melted
def allows(types: int, gpu_type: int) -> bool:
    """Tell whether a type's bit is set."""
    return (types >> gpu_type) & 1 == 1


@compiled
def best_node(hw: Hardware, vc: int, whole: int, types: int) -> int:
    """Node with the smallest sufficient number of free GPUs, then the lowest id; NOWHERE if none."""
    best, best_free = NOWHERE, FAR
    for g in range(hw.vc_groups[vc], hw.vc_groups[vc + 1]):
        if hw.groups[g, SIZE] < whole or not allows(types, hw.groups[g, TYPE]):
            continue
        free = next_bucket(hw.tab, hw.bits, g, whole)
        if free < 0 or free > best_free:
            continue
        node = hw.groups[g, FIRST] + first_item(hw.tab, hw.bits, g, free)
        if free < best_free or hw.rank[node] < hw.rank[best]:
            best, best_free = node, free
    return best


@compiled
def most_free(hw: Hardware, g: int, below: int) -> int:
    """Largest number of free GPUs, less than ``below``, that a node of the group has."""
    for free in range(min(below - 1, hw.groups[g, SIZE]), 0, -1):
        if has_bucket(hw.tab, hw.bits, g, free):
            return free
    return 0


@melted
def type_end(hw: Hardware, vc: int, g: int) -> int:
    """First group after those of the same VC and type as ``g``."""
    stop = g + 1
    while stop < hw.vc_groups[vc + 1] and hw.groups[stop, TYPE] == hw.groups[g, TYPE]:
        stop += 1
    return stop


@melted
def type_fits(hw: Hardware, start: int, stop: int, whole: int, mode: int) -> bool:
    """Tell whether whole GPUs beyond one node fit on the groups of one type."""
    sure, rest = 0, 0
    for g in range(start, stop):
        size = hw.groups[g, SIZE]
        if mode == SPREAD:
            sure += hw.counts[g, FREE_GPUS]
        else:
            sure += hw.counts[g, WHOLE_NODES] * size
            rest = max(rest, most_free(hw, g, size))
    return sure + rest >= whole


@melted
def first_type(hw: Hardware, vc: int, whole: int, mode: int, types: int) -> int:
    """First group of the first type on which whole GPUs beyond one node fit; NOWHERE if none."""
    g = hw.vc_groups[vc]
    while g < hw.vc_groups[vc + 1]:
        stop = type_end(hw, vc, g)
        if allows(types, hw.groups[g, TYPE]) and type_fits(hw, g, stop, whole, mode):
            return int(g)
        g = stop
    return NOWHERE


@compiled
def grab(hw: Hardware, node: int, whole: int, held: Entries, at: int) -> int:
    """Take wholly free GPUs of one node, lowest device first; return the next free entry."""
    if len(hw.room) == 0:
        set_free(hw, node, hw.free[node] - whole)
        held.item[at], held.amount[at] = node, whole
        return at + 1
    for device in range(hw.device0[node], hw.device0[node + 1]):
        if whole > 0 and hw.room[device] == MILLI:
            set_room(hw, device, ZERO)
            held.item[at], held.amount[at] = device, MILLI
            at += 1
            whole -= 1
    return at


@melted
def grab_wide(hw: Hardware, c: I64, g: int, held: Entries, at: int) -> int:
    """Take whole nodes of one type, large ones first, then best fit for the rest; it is known to fit."""
    left, vc = c[WHOLE], c[VC]
    stop = type_end(hw, vc, g)
    types = ONE << hw.groups[g, TYPE]
    if c[MODE] == WHOLE_NODES_FIRST:
        for k in range(g, stop):
            size = hw.groups[k, SIZE]
            while left >= size and hw.counts[k, WHOLE_NODES] > 0:
                node = hw.groups[k, FIRST] + first_item(hw.tab, hw.bits, k, size)
                at = grab(hw, node, size, held, at)
                left -= size
    while left > 0:
        node = best_node(hw, vc, left, types)
        if node == NOWHERE:
            node = fullest_node(hw, g, stop)
        take = min(left, hw.free[node])
        at = grab(hw, node, take, held, at)
        left -= take
    return at


@melted
def fullest_node(hw: Hardware, start: int, stop: int) -> int:
    """Node of one type with the most free GPUs, then the lowest id."""
    best, best_free = NOWHERE, 0
    for g in range(start, stop):
        free = most_free(hw, g, FAR)
        if free == 0 or free < best_free:
            continue
        node = hw.groups[g, FIRST] + first_item(hw.tab, hw.bits, g, free)
        if free > best_free or hw.rank[node] < hw.rank[best]:
            best, best_free = node, free
    return best


@compiled
def best_device(hw: Hardware, vc: int, milli: int, types: int) -> int:
    """Partly used device with the least sufficient room, then lowest node, then lowest device; NOWHERE if none."""
    best, best_room = NOWHERE, MILLI
    for g in range(hw.vc_groups[vc], hw.vc_groups[vc + 1]):
        if not allows(types, hw.groups[g, TYPE]):
            continue
        room = next_bucket(hw.device_tab, hw.device_bits, g, milli)
        if room < 0 or room > best_room:
            continue
        device = hw.groups[g, FIRST_DEVICE] + first_item(hw.device_tab, hw.device_bits, g, room)
        if room < best_room or hw.rank[hw.device_node[device]] < hw.rank[hw.device_node[best]]:
            best, best_room = device, room
    return best


@melted
def free_device(hw: Hardware, node: int) -> int:
    """Lowest wholly free device of a node."""
    for device in range(hw.device0[node], hw.device0[node + 1]):
        if hw.room[device] == MILLI:
            return device
    return NOWHERE


@melted
def tight_device(hw: Hardware, node: int, milli: int) -> int:
    """Partly used device of one node with the least sufficient room, else its lowest free one; NOWHERE if none."""
    best, best_room = NOWHERE, MILLI
    for device in range(hw.device0[node], hw.device0[node + 1]):
        if milli <= hw.room[device] < best_room:
            best, best_room = device, hw.room[device]
    return best if best != NOWHERE else free_device(hw, node)


@melted
def take_piece(hw: Hardware, device: int, milli: int, held: Entries, at: int) -> int:
    """Take a share of one device; return the next free entry."""
    set_room(hw, device, hw.room[device] - milli)
    held.item[at], held.amount[at] = device, milli
    return at + 1


@compiled
def spread_pieces(hw: Hardware, c: I64, types: int, held: Entries, at: int) -> int:
    """Place a class's fractions one by one on any node of the types; NOWHERE if one of them finds no place."""
    start = at
    for _ in range(c[PIECES]):
        device = best_device(hw, c[VC], c[MILLIS], types)
        if device == NOWHERE:
            node = best_node(hw, c[VC], ONE, types)
            if node == NOWHERE:
                release(hw, held, start, at)
                return NOWHERE
            device = free_device(hw, node)
        at = take_piece(hw, device, c[MILLIS], held, at)
    return at


@melted
def node_holds(hw: Hardware, node: int, c: I64) -> bool:
    """Tell whether whole GPUs and fractions fit together on one node."""
    slots = (hw.free[node] - c[WHOLE]) * (MILLI // c[MILLIS])
    for device in range(hw.device0[node], hw.device0[node + 1]):
        if hw.room[device] < MILLI:
            slots += hw.room[device] // c[MILLIS]
    return bool(slots >= c[PIECES])


@melted
def first_holding(hw: Hardware, g: int, free: int, c: I64) -> int:
    """Lowest node of a group with so many free GPUs that holds the class; NOWHERE if none."""
    item = next_item(hw.tab, hw.bits, g, free, ZERO)
    while item >= 0:
        node = hw.groups[g, FIRST] + item
        if node_holds(hw, node, c):
            return int(node)
        item = next_item(hw.tab, hw.bits, g, free, item + 1)
    return NOWHERE


@melted
def best_node_mixed(hw: Hardware, c: I64, types: int) -> int:
    """Node with the fewest free GPUs, then the lowest id, that holds whole GPUs and fractions; NOWHERE if none."""
    best, best_free = NOWHERE, FAR
    for g in range(hw.vc_groups[c[VC]], hw.vc_groups[c[VC] + 1]):
        if not allows(types, hw.groups[g, TYPE]):
            continue
        free = next_bucket(hw.tab, hw.bits, g, c[WHOLE])
        while 0 <= free <= best_free:
            node = first_holding(hw, g, free, c)
            if node != NOWHERE:
                if free < best_free or hw.rank[node] < hw.rank[best]:
                    best, best_free = node, free
                break
            free = next_bucket(hw.tab, hw.bits, g, free + 1)
    return best


@melted
def place_on_one(hw: Hardware, c: I64, types: int, held: Entries, at: int) -> int:
    """Place a class on the best single node; NOWHERE if it does not fit."""
    node = best_node(hw, c[VC], c[WHOLE], types) if c[PIECES] == 0 else best_node_mixed(hw, c, types)
    if node == NOWHERE:
        return NOWHERE
    if c[WHOLE] > 0:
        at = grab(hw, node, c[WHOLE], held, at)
    for _ in range(c[PIECES]):
        at = take_piece(hw, tight_device(hw, node, c[MILLIS]), c[MILLIS], held, at)
    return at


@melted
def place_on_type(hw: Hardware, c: I64, g: int, held: Entries, at: int) -> int:
    """Place a class over nodes of the one type that begins with group ``g``; NOWHERE if it does not fit."""
    start = at
    if c[WHOLE] > 0:
        if not type_fits(hw, g, type_end(hw, c[VC], g), c[WHOLE], c[MODE]):
            return NOWHERE
        at = grab_wide(hw, c, g, held, at)
    if c[PIECES] > 0:
        stop = spread_pieces(hw, c, ONE << hw.groups[g, TYPE], held, at)
        if stop == NOWHERE:
            release(hw, held, start, at)
        return stop
    return at


@compiled
def place(hw: Hardware, c: I64, types: int, held: Entries, at: int) -> int:
    """Place one job of a class and write what it holds.

    ``types`` narrows the class's allowed types. Returns the entry after the last written one, or NOWHERE, and then
    nothing is taken.
    """
    return place_by(hw, hw.scores, c, types, held, at)


@compiled
def place_by(hw: Hardware, scores: Scores | None, c: I64, types: int, held: Entries, at: int) -> int:
    """Place by score, or by the rules of ``consolidate``; numba leaves out the one that is not asked for."""
    if scores is not None:
        return place_scored(hw, scores, c, types, held, at)
    types &= c[TYPES]
    if c[MODE] == ON_ONE_NODE or (c[MODE] == SPREAD and c[PIECES] <= 1):
        stop = place_on_one(hw, c, types, held, at)
        if stop != NOWHERE or c[MODE] == ON_ONE_NODE:
            return stop
    if c[MODE] == FRACTIONS and c[PIECES] == 1:
        return spread_pieces(hw, c, types, held, at)
    g = hw.vc_groups[c[VC]]
    while g < hw.vc_groups[c[VC] + 1]:
        if allows(types, hw.groups[g, TYPE]):
            stop = place_on_type(hw, c, g, held, at)
            if stop != NOWHERE:
                return stop
        g = type_end(hw, c[VC], g)
    return NOWHERE


@melted
def node_of(hw: Hardware, item: int) -> int:
    """Node of an entry."""
    return item if len(hw.room) == 0 else hw.device_node[item]


@melted
def type_of(hw: Hardware, item: int) -> int:
    """GPU type of an entry."""
    return int(hw.groups[hw.group[node_of(hw, item)], TYPE])


@melted
def place_quick(hw: Hardware, c: I64, types: int, held: Entries, at: int) -> int:
    """Do what ``place`` does; the job of whole GPUs on one node, nearly every job, without a call through it."""
    if c[MODE] != ON_ONE_NODE or c[PIECES] > 0 or len(hw.room) > 0:
        return place(hw, c, types, held, at)
    node = best_node(hw, c[VC], c[WHOLE], types & c[TYPES])
    return NOWHERE if node == NOWHERE else grab(hw, node, c[WHOLE], held, at)


@compiled
def fitting_type(hw: Hardware, c: I64, types: int, scratch: Entries) -> int:
    """GPU type on which ``place`` would put the class now; NOWHERE if it does not fit. Takes nothing."""
    return fitting_by(hw, hw.scores, c, types, scratch)


@compiled
def fitting_by(hw: Hardware, scores: Scores | None, c: I64, types: int, scratch: Entries) -> int:
    """Do what ``fitting_type`` does, by score or by the rules of ``consolidate``."""
    if scores is not None and c[MODE] == ON_ONE_NODE:
        node = scored_node(hw, scores, c, types & c[TYPES])
        return hw.groups[hw.group[node], TYPE] if node != NOWHERE else NOWHERE
    if c[PIECES] > 0 or scores is not None:
        clock = look_ahead(scores)
        stop = place(hw, c, types, scratch, ZERO)
        if stop != NOWHERE:
            release(hw, scratch, ZERO, stop)
        look_back(scores, clock, c)
        return type_of(hw, scratch.item[0]) if stop != NOWHERE else NOWHERE
    types &= c[TYPES]
    if c[MODE] != WHOLE_NODES_FIRST:
        node = best_node(hw, c[VC], c[WHOLE], types)
        if node != NOWHERE or c[MODE] == ON_ONE_NODE:
            return hw.groups[hw.group[node], TYPE] if node != NOWHERE else NOWHERE
    g = first_type(hw, c[VC], c[WHOLE], c[MODE], types)
    return hw.groups[g, TYPE] if g != NOWHERE else NOWHERE
