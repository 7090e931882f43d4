"""The engine's picture of the nodes: free GPUs per node in buckets, and single devices where jobs share them.

Nodes are numbered so that those of one *group* (same VC, GPU type and size) lie together, groups by VC, then by type in
the order of the type's lowest node in that VC, then by size, large first. ``rank`` keeps the order of node ids. Two
modes: without fractional jobs only counts of free GPUs are kept; with them every device has its own free milli-GPUs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from analysis.replay._bits import I64, U64, drop, make_tables, put
from analysis.replay._compiled import ZERO, compiled, entry
from analysis.replay._offline import Offline, absorb
from analysis.replay._scores import Scores, charge, note_room

MILLI: Final = 1000
# Columns of ``Hardware.groups`` …
FIRST, TYPE, SIZE, COUNT, FIRST_DEVICE = 0, 1, 2, 3, 4
# … and of ``Hardware.counts``.
WHOLE_NODES, FREE_GPUS = 0, 1


class Hardware(NamedTuple):
    """Nodes and what is free on them, as the compiled loop sees it."""

    groups: I64  # [G, 5] first node, type, GPUs per node, nodes, first device
    vc_groups: I64  # [V + 1] groups of VC v are vc_groups[v] … vc_groups[v + 1]
    group: I64  # [N] group of a node
    rank: I64  # [N] place of the node's id in the order of ids
    free: I64  # [N] wholly free GPUs
    counts: I64  # [G, 2] wholly free nodes, free GPUs
    tab: I64  # bucket tables, one per group: nodes by free GPUs
    bits: U64
    room: I64  # [D] free milli-GPUs of a device; empty without fractional jobs
    device0: I64  # [N + 1] devices of node n are device0[n] … device0[n + 1]
    device_node: I64  # [D]
    device_tab: I64  # bucket tables, one per group: partly used devices by room
    device_bits: U64
    scores: Scores | None = None  # where the placement is scored
    offline: Offline | None = None  # where nodes come and go


NO_OWNERS: Final[I64] = np.empty(0, dtype=np.int64)


class Entries(NamedTuple):
    """What jobs hold: (node, GPUs) without fractional jobs, (device, milli-GPUs) with them."""

    item: I64
    amount: I64
    owner: I64 = NO_OWNERS  # class of the job, where the placement is scored


def make_entries(size: int, hw: Hardware) -> Entries:
    """Room for what jobs hold."""
    item, amount = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    return Entries(item, amount, np.empty(size, dtype=np.int64) if hw.scores is not None else NO_OWNERS)


def build_hardware(*, vc: I64, gpu_type: I64, size: I64, rank: I64, has_fractions: bool) -> tuple[Hardware, I64]:
    """Lay out empty hardware.

    Parameters
    ----------
    vc, gpu_type, size, rank : int64 arrays, one value per node
        Indices of VC and type, GPUs (at least 1), and the place of the node's id in the order of ids.
    has_fractions : bool
        Whether devices must be told apart.

    Returns
    -------
    hardware : Hardware
        All free.
    order : int64 array
        Row of the input that each internal node is.
    """
    num_vcs = int(vc.max(initial=-1)) + 1
    key = vc * (int(gpu_type.max(initial=0)) + 1) + gpu_type
    lowest = np.full(int(key.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(lowest, key, rank)
    order = np.lexsort((rank, -size, lowest[key], vc)).astype(np.int64)
    vc, gpu_type, size, rank = vc[order], gpu_type[order], size[order], rank[order]
    changes = (np.diff(vc) != 0) | (np.diff(gpu_type) != 0) | (np.diff(size) != 0)
    first = np.concatenate([[0], np.flatnonzero(changes) + 1]).astype(np.int64)
    count = np.diff(np.append(first, len(vc)))
    device0 = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    groups = np.stack([first, gpu_type[first], size[first], count, device0[first]], axis=1)
    tab, bits = make_tables(count.tolist(), (size[first] + 1).tolist())
    device_tab, device_bits = make_tables(
        (count * size[first]).tolist() if has_fractions else [], [MILLI] * len(first) if has_fractions else []
    )
    hardware = Hardware(
        groups=np.ascontiguousarray(groups),
        vc_groups=np.searchsorted(vc[first], np.arange(num_vcs + 1)).astype(np.int64),
        group=np.repeat(np.arange(len(first), dtype=np.int64), count),
        rank=rank,
        free=size.copy(),
        counts=np.stack([count, count * size[first]], axis=1),
        tab=tab,
        bits=bits,
        room=np.full(int(device0[-1]) if has_fractions else 0, MILLI, dtype=np.int64),
        device0=device0,
        device_node=np.repeat(np.arange(len(vc), dtype=np.int64), size) if has_fractions else np.zeros(0, np.int64),
        device_tab=device_tab,
        device_bits=device_bits,
    )
    _fill(hardware)
    return hardware, order


@entry
def _fill(hw: Hardware) -> None:
    for n in range(len(hw.free)):
        g = hw.group[n]
        put(hw.tab, hw.bits, g, hw.free[n], n - hw.groups[g, FIRST])


@compiled
def set_free(hw: Hardware, node: int, now: int) -> None:
    """Change a node's number of wholly free GPUs."""
    g = hw.group[node]
    item = node - hw.groups[g, FIRST]
    size = hw.groups[g, SIZE]
    before = hw.free[node]
    drop(hw.tab, hw.bits, g, before, item)
    put(hw.tab, hw.bits, g, now, item)
    hw.counts[g, WHOLE_NODES] += int(now == size) - int(before == size)
    hw.counts[g, FREE_GPUS] += now - before
    hw.free[node] = now


@compiled
def set_room(hw: Hardware, device: int, now: int) -> None:
    """Change a device's free milli-GPUs, and its node's count of wholly free GPUs with it."""
    node = hw.device_node[device]
    g = hw.group[node]
    item = device - hw.groups[g, FIRST_DEVICE]
    before = hw.room[device]
    if 0 < before < MILLI:
        drop(hw.device_tab, hw.device_bits, g, before, item)
    if 0 < now < MILLI:
        put(hw.device_tab, hw.device_bits, g, now, item)
    hw.room[device] = now
    note_room(hw.scores, node, before, now)
    step = int(now == MILLI) - int(before == MILLI)
    if step != 0:
        set_free(hw, node, hw.free[node] + step)


@compiled
def add(hw: Hardware, held: Entries, e: int, sign: int) -> None:
    """Give back (sign 1) or take again (sign -1) what an entry says."""
    item, amount = held.item[e], sign * held.amount[e]
    if len(hw.room) == 0:
        if not absorb(hw.offline, item, item, amount):
            set_free(hw, item, hw.free[item] + amount)
        return
    if len(held.owner) > 0:
        charge(hw.scores, hw.device_node[item], held.owner[e], -amount)
    if not absorb(hw.offline, hw.device_node[item], item, amount):
        set_room(hw, item, hw.room[item] + amount)


@compiled
def release(hw: Hardware, held: Entries, start: int, stop: int) -> None:
    """Give back all that the entries from ``start`` to ``stop`` hold."""
    for e in range(start, stop):
        add(hw, held, e, ZERO + 1)


@compiled
def retake(hw: Hardware, held: Entries, start: int, stop: int) -> None:
    """Undo ``release``."""
    for e in range(start, stop):
        add(hw, held, e, ZERO - 1)


@compiled
def nodes_of(hw: Hardware, held: Entries, first: int, stop: int, nodes: I64, at: int) -> int:
    """List the nodes of some entries from a place on, in the order of node ids and each once; return where it ends."""
    begin = at
    for e in range(first, stop):
        node = held.item[e] if len(hw.room) == 0 else hw.device_node[held.item[e]]
        i = at
        while i > begin and hw.rank[nodes[i - 1]] > hw.rank[node]:
            i -= 1
        if i > begin and nodes[i - 1] == node:
            continue
        for k in range(at, i, -1):
            nodes[k] = nodes[k - 1]
        nodes[i] = node
        at += 1
    return at


@entry
def list_nodes(hw: Hardware, held: Entries, first: I64, stop: I64, nodes: I64, length: I64) -> int:
    """List the nodes of all jobs behind each other, in the order of node ids and each once; return how many.

    ``length`` is filled with the number of nodes of each job.
    """
    at = ZERO
    for job in range(len(first)):
        begin = at
        at = nodes_of(hw, held, first[job], stop[job], nodes, begin)
        length[job] = at - begin
    return at
