"""Scored placements, compiled: the best node for an ask, and where all parts of a job go."""

from __future__ import annotations

from analysis.replay._bits import I64, drop, first_item, has_bucket, next_bucket, next_item, put
from analysis.replay._compiled import ZERO, compiled, melted, viewed
from analysis.replay._hardware import (
    COUNT,
    FIRST,
    FREE_GPUS,
    MILLI,
    SIZE,
    TYPE,
    WHOLE_NODES,
    Entries,
    Hardware,
    release,
    set_room,
)
from analysis.replay._rules import NOWHERE, RANDOM, can_take, draw, pick_device, rehearse, score_of, tightest
from analysis.replay._scores import (
    CLOCK,
    CPU,
    FULL_SCORE,
    LATEST,
    MEM,
    MILLIS,
    MODE,
    NOBODY,
    NUMBER,
    PIECES,
    RULE,
    TYPES,
    VC,
    WHOLE,
    Scores,
    charge,
    share_of,
    total_milli,
)

ON_ONE_NODE, WHOLE_NODES_FIRST, SPREAD, FRACTIONS = 0, 1, 2, 3


@melted
def rescore(hw: Hardware, s: Scores, c: I64, node: int) -> None:
    """Put a node where it now belongs in a class's table."""
    number, rank = c[NUMBER], hw.rank[node]
    score = score_of(hw, s, c, node) if s.vc[node] == c[VC] else NOWHERE
    now = FULL_SCORE - score if score >= 0 else NOBODY
    before = ZERO + s.bucket[number, node]
    if now == before:
        return
    if before != NOBODY:
        drop(s.tab, s.bits, number, before, rank)
    if now != NOBODY:
        put(s.tab, s.bits, number, now, rank)
    s.bucket[number, node] = now


@compiled
def catch_up(hw: Hardware, s: Scores, c: I64) -> None:
    """Look again at the nodes that changed since the class was asked last."""
    node = s.config[LATEST]
    seen = s.seen[c[NUMBER]]
    while node != NOBODY and s.stamp[node] > seen:
        rescore(hw, s, c, node)
        node = s.older[node]
    s.seen[c[NUMBER]] = s.config[CLOCK]


@compiled
def best_of_class(hw: Hardware, s: Scores, c: I64) -> int:
    """Node for a class's whole ask; NOWHERE if it fits on none."""
    catch_up(hw, s, c)
    number = c[NUMBER]
    bucket = next_bucket(s.tab, s.bits, number, ZERO)
    if bucket < 0:
        return NOWHERE
    if s.config[RULE] != RANDOM:
        return int(s.node_at[first_item(s.tab, s.bits, number, bucket)])
    count, rank = ZERO, next_item(s.tab, s.bits, number, bucket, ZERO)
    while rank >= 0:
        count += 1
        rank = next_item(s.tab, s.bits, number, bucket, rank + 1)
    n = draw(s, c[VC], count, ZERO)
    rank = next_item(s.tab, s.bits, number, bucket, ZERO)
    for _ in range(n):
        rank = next_item(s.tab, s.bits, number, bucket, rank + 1)
    return int(s.node_at[rank])


@compiled
def best_of_all(hw: Hardware, s: Scores, c: I64, types: int) -> int:
    """Node for an ask that has no table, on some of its types; NOWHERE if it fits on none."""
    best, best_score, count = NOWHERE, NOWHERE, ZERO
    for rank in range(len(s.node_at)):
        node = s.node_at[rank]
        if s.vc[node] != c[VC] or (types >> s.gpu_type[node]) & 1 == 0:
            continue
        score = score_of(hw, s, c, node)
        count += score >= 0
        if score > best_score:
            best, best_score = node, score
    if s.config[RULE] != RANDOM or count == 0:
        return best
    n = draw(s, c[VC], count, ZERO)
    for rank in range(len(s.node_at)):
        node = s.node_at[rank]
        if s.vc[node] == c[VC] and (types >> s.gpu_type[node]) & 1 == 1 and can_take(hw, s, c, node):
            if n == 0:
                return int(node)
            n -= 1
    return NOWHERE


@compiled
def scored_node(hw: Hardware, s: Scores, c: I64, types: int) -> int:
    """Node for a class's whole ask on some of its types."""
    return best_of_class(hw, s, c) if types == c[TYPES] else best_of_all(hw, s, c, types)


@viewed
def ask_part(s: Scores, c: I64, whole: int, pieces: int) -> I64:
    """Ask of a part of a class's job, with its part of the CPUs and memory, in ``part``."""
    part = s.part
    for column in range(len(c)):
        part[column] = c[column]
    part[WHOLE], part[PIECES] = whole, pieces
    amount, everything = total_milli(part), total_milli(c)
    part[CPU], part[MEM] = share_of(c[CPU], amount, everything), share_of(c[MEM], amount, everything)
    return part


@compiled
def take_device(hw: Hardware, s: Scores, c: I64, device: int, milli: int, held: Entries, at: int) -> int:
    """Take room of a device, and the CPUs and memory that go with it; return the next free entry."""
    charge(s, hw.device_node[device], c[NUMBER], milli)
    set_room(hw, device, hw.room[device] - milli)
    held.item[at], held.amount[at], held.owner[at] = device, milli, c[NUMBER]
    return at + 1


@melted
def take_whole(hw: Hardware, s: Scores, c: I64, node: int, whole: int, held: Entries, at: int) -> int:
    """Take wholly free devices of a node, lowest first."""
    for _ in range(whole):
        at = take_device(hw, s, c, tightest(hw, node, MILLI), MILLI, held, at)
    return at


@compiled
def take_node(hw: Hardware, s: Scores, c: I64, node: int, held: Entries, at: int) -> int:
    """Take a class's whole ask on one node."""
    if c[WHOLE] == 0 and c[PIECES] == 1:
        s.chosen[0] = pick_device(hw, s, node, c[MILLIS], c[CPU])
    elif c[PIECES] > 0:
        rehearse(hw, s, c, node)
    at = take_whole(hw, s, c, node, c[WHOLE], held, at)
    for k in range(c[PIECES]):
        at = take_device(hw, s, c, s.chosen[k], c[MILLIS], held, at)
    return at


@compiled
def usable(hw: Hardware, s: Scores, c: I64, node: int, most: int) -> int:
    """Most free GPUs of a node, up to ``most``, for which it has the CPUs and memory that go with them."""
    everything = total_milli(c)
    for whole in range(min(hw.free[node], most), 0, -1):
        cpu, mem = share_of(c[CPU], whole * MILLI, everything), share_of(c[MEM], whole * MILLI, everything)
        if s.cpu[node] >= cpu and s.mem[node] >= mem:
            return int(whole)
    return int(ZERO)


@melted
def take_whole_nodes(hw: Hardware, s: Scores, c: I64, g: int, left: int, held: Entries, at: int) -> tuple[int, int]:
    """Take wholly free nodes of a group, lowest first, while the need is at least their size; entry and rest."""
    size, first = hw.groups[g, SIZE], hw.groups[g, FIRST]
    for node in range(first, first + hw.groups[g, COUNT]):
        if left >= size and hw.free[node] == size and usable(hw, s, c, node, size) == size:
            at = take_whole(hw, s, c, node, size, held, at)
            left -= size
    return at, left


@melted
def roomiest_node(hw: Hardware, s: Scores, c: I64, types: int, left: int) -> int:
    """Node of some types where most of the GPUs still needed can go, then the lowest; NOWHERE if none can."""
    best, best_count = NOWHERE, ZERO
    for rank in range(len(s.node_at)):
        node = s.node_at[rank]
        if s.vc[node] == c[VC] and (types >> s.gpu_type[node]) & 1 == 1:
            count = usable(hw, s, c, node, left)
            if count > best_count:
                best, best_count = node, count
    return best


@compiled
def take_wide(hw: Hardware, s: Scores, c: I64, types: int, held: Entries, at: int) -> int:
    """Take the whole GPUs of a wide job on nodes of one type; NOWHERE, with entries still held, if they do not fit."""
    left = c[WHOLE]
    if c[MODE] == WHOLE_NODES_FIRST:
        for g in range(hw.vc_groups[c[VC]], hw.vc_groups[c[VC] + 1]):
            if (types >> hw.groups[g, TYPE]) & 1 == 1:
                at, left = take_whole_nodes(hw, s, c, g, left, held, at)
    while left > 0:
        take = left
        node = best_of_all(hw, s, ask_part(s, c, left, ZERO), types)
        if node == NOWHERE and c[MODE] == SPREAD:
            node = roomiest_node(hw, s, c, types, left)
            if node != NOWHERE:
                take = usable(hw, s, c, node, left)
        if node == NOWHERE:
            return -1 - at
        at = take_whole(hw, s, c, node, take, held, at)
        left -= take
    return at


@compiled
def take_shares(hw: Hardware, s: Scores, c: I64, types: int, held: Entries, at: int) -> int:
    """Take a class's shares one by one on any node of some types; below 0, with entries still held, if one fails."""
    for _ in range(c[PIECES]):
        part = ask_part(s, c, ZERO, ZERO + 1)
        node = best_of_all(hw, s, part, types)
        if node == NOWHERE:
            return -1 - at
        device = pick_device(hw, s, node, c[MILLIS], part[CPU])
        at = take_device(hw, s, c, device, c[MILLIS], held, at)
    return at


@compiled
def may_hold(hw: Hardware, c: I64, start: int, stop: int) -> bool:
    """Tell whether the groups of one type have the free GPUs that a wide job needs; only a yes can be wrong."""
    sure, rest = ZERO, ZERO
    for g in range(start, stop):
        if c[MODE] != WHOLE_NODES_FIRST:
            sure += hw.counts[g, FREE_GPUS]
            continue
        size = hw.groups[g, SIZE]
        sure += hw.counts[g, WHOLE_NODES] * size
        free = size - 1
        while free > rest and not has_bucket(hw.tab, hw.bits, g, free):
            free -= 1
        rest = max(rest, free)
    return bool(sure + rest >= c[WHOLE])


@melted
def place_over(hw: Hardware, s: Scores, c: I64, types: int, held: Entries, at: int) -> int:
    """Place a wide job on nodes of one type; NOWHERE, and nothing is taken, if it does not fit."""
    stop = take_wide(hw, s, c, types, held, at)
    if stop >= 0:
        stop = take_shares(hw, s, c, types, held, stop)
    if stop < 0:
        release(hw, held, at, -1 - stop)
        return NOWHERE
    return stop


@compiled
def place_scored(hw: Hardware, s: Scores, c: I64, types: int, held: Entries, at: int) -> int:
    """Do what ``_place.place`` does, by score."""
    types &= c[TYPES]
    is_one_share = c[MODE] == FRACTIONS and c[PIECES] == 1
    if c[MODE] == ON_ONE_NODE or is_one_share or (c[MODE] == SPREAD and c[PIECES] <= 1):
        node = scored_node(hw, s, c, types)
        if node != NOWHERE:
            return take_node(hw, s, c, node, held, at)
        if c[MODE] != SPREAD:
            return NOWHERE
    g = hw.vc_groups[c[VC]]
    while g < hw.vc_groups[c[VC] + 1]:
        own, first = (ZERO + 1) << hw.groups[g, TYPE], g
        g += 1
        while g < hw.vc_groups[c[VC] + 1] and hw.groups[g, TYPE] == hw.groups[first, TYPE]:
            g += 1
        if types & own != 0 and may_hold(hw, c, first, g):
            stop = place_over(hw, s, c, own, held, at)
            if stop != NOWHERE:
                return stop
    return NOWHERE
