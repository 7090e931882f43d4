"""Who must go to make room: running jobs per node, last in the order first, and trees over the nodes.

For every node and number of GPUs ``g`` a leaf names the job with whose eviction, and that of all that come after it in
the order, ``g`` GPUs are free there (``ROOM``: they are already; ``NOBODY``: never). The best leaf is the one whose job
comes last. It says without a walk over the running jobs whether a job that asks for ``g`` can get them, and where.
"""

from __future__ import annotations

from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, compiled, constant, melted
from analysis.replay._hardware import COUNT, FIRST, SIZE, TYPE, Hardware
from analysis.replay._moving import KIND, NOBODY, REMAINING, ROOM, Moving, Preemption
from analysis.replay._offline import is_out
from analysis.replay._place import FAR, NOWHERE, TYPES, VC, WHOLE, allows
from analysis.replay._state import NEVER

#: Key of a leaf that nobody's eviction frees.
NEVER_FREE = constant(-NEVER - 1)


@melted
def comes_after(m: Moving, one: int, other: int) -> bool:
    """Tell whether a job comes after another in the order."""
    return bool(m.key[one] > m.key[other] or (m.key[one] == m.key[other] and one > other))


@melted
def yields(m: Moving, runner: int, job: int, now: int) -> bool:
    """Tell whether a running job comes after a waiting one.

    A running job's remaining time is kept as the instant at which it would be over, a waiting job's as a length.
    """
    key = m.key[job] + now if m.rule[KIND] == REMAINING else m.key[job]
    return bool(m.key[runner] > key or (m.key[runner] == key and runner > job))


@melted
def better(m: Moving, one: int, other: int) -> int:
    """Better of two places in the trees, the first if they are alike."""
    if m.tree_key[other] > m.tree_key[one]:
        return other
    return other if m.tree_key[other] == m.tree_key[one] and m.tree[other] > m.tree[one] else one


@melted
def key_of(m: Moving, value: int) -> int:
    """Key of a leaf."""
    if value == ROOM:
        return NEVER
    return NEVER_FREE if value == NOBODY else int(m.key[value])


@compiled
def set_tree(m: Moving, base: int, width: int, item: int, value: int) -> None:
    """Change one leaf of a tree.

    The trees keep the keys that they were built with: those of jobs on nodes that are not worked out yet may be old.
    """
    tree, keys = m.tree, m.tree_key
    i = width + item
    key = key_of(m, value)
    if tree[base + i] == value and keys[base + i] == key:
        return
    tree[base + i], keys[base + i] = value, key
    while i > 1:
        i >>= 1
        best = better(m, base + 2 * i, base + 2 * i + 1)
        if tree[base + i] == tree[best] and keys[base + i] == keys[best]:
            return
        tree[base + i], keys[base + i] = tree[best], keys[best]


@melted
def expect(m: Moving, node: int) -> None:
    """Note that a node's leaves must be worked out before somebody reads the trees."""
    if m.is_stale[node] == 0:
        m.is_stale[node] = 1
        m.stale[m.num_stale[0]] = node
        m.num_stale[0] += 1


@compiled
def catch_up(s: Preemption) -> None:
    """Work out the leaves of all nodes where something has changed."""
    m = s.m
    for k in range(m.num_stale[0]):
        m.is_stale[m.stale[k]] = 0
        refresh(s.hw, m, m.stale[k])
    m.num_stale[0] = 0


@compiled
def refresh(hw: Hardware, m: Moving, node: int) -> None:
    """Work out a node's leaves anew."""
    g = hw.group[node]
    item, width = node - hw.groups[g, FIRST], m.width[g]
    base, free = m.tree0[g], hw.free[node]
    slot, stop = m.slot0[node], m.slot0[node] + m.num_slots[node]
    last, is_away = ROOM, is_out(hw.offline, node)
    for gpus in range(1, hw.groups[g, SIZE] + 1):
        while free < gpus and slot < stop:
            free += m.slot_gpus[slot]
            last = m.slot_job[slot]
            slot += 1
        if m.is_asked[m.asked0[g] + gpus] == 1:
            is_found = free >= gpus and not is_away
            set_tree(m, base + (gpus - 1) * 2 * width, width, item, last if is_found else NOBODY)


@melted
def add_slot(m: Moving, node: int, job: int, gpus: int) -> None:
    """Note that a job runs on a node."""
    first = m.slot0[node]
    i = first + m.num_slots[node]
    m.num_slots[node] += 1
    while i > first and comes_after(m, job, m.slot_job[i - 1]):
        m.slot_job[i], m.slot_gpus[i] = m.slot_job[i - 1], m.slot_gpus[i - 1]
        i -= 1
    m.slot_job[i], m.slot_gpus[i] = job, gpus


@melted
def drop_slot(m: Moving, node: int, job: int) -> None:
    """Note that a job left a node."""
    i = m.slot0[node]
    while m.slot_job[i] != job:
        i += 1
    m.num_slots[node] -= 1
    for k in range(i, m.slot0[node] + m.num_slots[node]):
        m.slot_job[k], m.slot_gpus[k] = m.slot_job[k + 1], m.slot_gpus[k + 1]


@compiled
def settle_in(s: Preemption, job: int) -> None:
    """Enter a job on its nodes, with its key."""
    if len(s.hw.room) > 0:
        return
    held = s.log.held
    for e in range(s.work.first_entry[job], s.log.stop_entry[job]):
        add_slot(s.m, held.item[e], job, held.amount[e])
        expect(s.m, held.item[e])


@compiled
def move_out(s: Preemption, job: int) -> None:
    """Strike a job off its nodes; its key must not have changed yet."""
    if len(s.hw.room) > 0:
        return
    held = s.log.held
    for e in range(s.work.first_entry[job], s.log.stop_entry[job]):
        drop_slot(s.m, held.item[e], job)
        expect(s.m, held.item[e])


@compiled
def resort(s: Preemption, vc: int) -> None:
    """Put the nodes of a VC in order after many keys have changed."""
    hw, m = s.hw, s.m
    if len(hw.room) > 0:
        return
    for g in range(hw.vc_groups[vc], hw.vc_groups[vc + 1]):
        for node in range(hw.groups[g, FIRST], hw.groups[g, FIRST] + hw.groups[g, COUNT]):
            total = m.num_slots[node]
            m.num_slots[node] = 0
            for i in range(m.slot0[node], m.slot0[node] + total):
                add_slot(m, node, m.slot_job[i], m.slot_gpus[i])
            expect(m, node)


@melted
def freed_on(s: Preemption, node: int, last: int) -> int:
    """GPUs free on a node when all that come after a job, and it, have gone from there."""
    m = s.m
    free = s.hw.free[node]
    for i in range(m.slot0[node], m.slot0[node] + m.num_slots[node]):
        free += m.slot_gpus[i]
        if m.slot_job[i] == last:
            break
    return int(free)


@compiled
def node_to_clear(s: Preemption, job: int, now: int) -> int:
    """Node where one that needs a single node gets its GPUs by eviction; NOWHERE if it cannot."""
    hw, m, row = s.hw, s.m, s.work.classes[s.work.job_class[job]]
    whole = row[WHOLE]
    catch_up(s)
    last = NOBODY
    for g in range(hw.vc_groups[row[VC]], hw.vc_groups[row[VC] + 1]):
        if hw.groups[g, SIZE] >= whole and allows(row[TYPES], hw.groups[g, TYPE]):
            top = m.tree[m.tree0[g] + (whole - 1) * 2 * m.width[g] + 1]
            if last == NOBODY or (top >= 0 and comes_after(m, top, last)):
                last = top
    if last < 0 or not yields(m, last, job, now):
        return NOWHERE
    best, best_free = NOWHERE, FAR
    for e in range(s.work.first_entry[last], s.log.stop_entry[last]):
        node = s.log.held.item[e]
        g = hw.group[node]
        if hw.groups[g, SIZE] < whole or not allows(row[TYPES], hw.groups[g, TYPE]):
            continue
        leaf = m.tree[m.tree0[g] + (whole - 1) * 2 * m.width[g] + m.width[g] + node - hw.groups[g, FIRST]]
        free = freed_on(s, node, last)
        if leaf == last and (free < best_free or (free == best_free and hw.rank[node] < hw.rank[best])):
            best, best_free = node, free
    return best


@compiled
def best_leaves(s: Preemption, job: int, g: int, need: int, now: int) -> int:
    """Nodes of a group that are wholly free once all from some job on have gone, as few jobs as give ``need`` nodes.

    Their places in the group come first in ``pick``, in rising order. Returns the last job that must go; NOBODY if it
    cannot be done without one that comes before ``job``.
    """
    m, width = s.m, s.m.width[g]
    base = m.tree0[g] + (s.hw.groups[g, SIZE] - 1) * 2 * width
    found, last = ZERO, ROOM
    while True:
        top = m.tree[base + 1]
        if found >= need and top != last:
            break
        if top == NOBODY or (top != ROOM and not yields(m, top, job, now)):
            break
        i = ZERO + 1
        while i < width:
            i = 2 * i if m.tree[base + 2 * i] == top else 2 * i + 1
        last = top
        m.pick[found], m.picked[found] = i - width, top
        found += 1
        set_tree(m, base, width, i - width, NOBODY)
    for k in range(found):
        set_tree(m, base, width, m.pick[k], m.picked[k])
    if found < need or last == ROOM:
        return NOBODY
    rise(m.pick, found)
    return int(last)


@melted
def rise(values: I64, n: int) -> None:
    """Sort the first few values."""
    for k in range(1, n):
        value = values[k]
        i = k
        while i > 0 and values[i - 1] > value:
            values[i] = values[i - 1]
            i -= 1
        values[i] = value
