"""Where promises may move to: the nodes on which something came free since a waiting job was looked at last.

When a job was looked at last no earlier start was to be had, and with less free there is none either: an earlier start
must use a node where more came free since, at a time when more is free there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, compiled, constant, melted
from analysis.replay._hardware import SIZE, TYPE, Hardware
from analysis.replay._place import MODE, ON_ONE_NODE, TYPES, WHOLE, allows
from analysis.replay._state import NEVER
from analysis.replay._timeline import Timeline, first_gap, span_at

NO_NODE: Final = constant(-1)


class Loosened(NamedTuple):
    """Per VC a list of its nodes, those first where something came free last."""

    clock: I64  # [1] how often something came free
    when: I64  # [N] clock at the last time on a node, 0 = never
    until: I64  # [N] when what came free there since everybody looked was to be used
    newest: I64  # [V] first node of the list …
    newer: I64  # [N] … and its neighbours
    older: I64  # [N]
    seen: I64  # [n] clock when a waiting job was looked at
    all_seen: I64  # [V] no waiting job was looked at before


def make_loosened(num_jobs: int, num_nodes: int, num_vcs: int) -> Loosened:
    """Lay out the structures: nothing came free."""
    return Loosened(
        clock=np.zeros(1, dtype=np.int64),
        when=np.zeros(num_nodes, dtype=np.int64),
        until=np.zeros(num_nodes, dtype=np.int64),
        newest=np.full(num_vcs, NO_NODE, dtype=np.int64),
        newer=np.full(num_nodes, NO_NODE, dtype=np.int64),
        older=np.full(num_nodes, NO_NODE, dtype=np.int64),
        seen=np.zeros(num_jobs, dtype=np.int64),
        all_seen=np.zeros(num_vcs, dtype=np.int64),
    )


@compiled
def loosen(f: Loosened, vc: int, node: int, until: int) -> None:
    """Note that more is free on a node, for no longer than until an instant."""
    if f.when[node] <= f.all_seen[vc]:
        f.until[node] = until
    else:
        f.until[node] = max(f.until[node], until)
    is_listed = f.when[node] > 0
    f.clock[0] += 1
    f.when[node] = f.clock[0]
    first = f.newest[vc]
    if first == node:
        return
    if is_listed:
        newer, older = f.newer[node], f.older[node]
        f.older[newer] = older
        if older != NO_NODE:
            f.newer[older] = newer
    f.older[node], f.newer[node] = first, NO_NODE
    if first != NO_NODE:
        f.newer[first] = node
    f.newest[vc] = node


@melted
def need_of(hw: Hardware, row: I64, is_wide: int, node: int) -> int:
    """GPUs that a job of whole GPUs uses at least of a node that it uses; NEVER if it cannot use it."""
    g = hw.group[node]
    if not allows(row[TYPES], hw.groups[g, TYPE]):
        return NEVER
    if row[MODE] == ON_ONE_NODE:
        return int(row[WHOLE])
    return int(hw.groups[g, SIZE] if is_wide == 1 else ZERO + 1)


@compiled
def has_gap(hw: Hardware, x: Timeline, node: int, need: int, length: int, now: int, limit: int) -> bool:
    """Tell whether so much is free for so long on a node from an instant on that is not after ``limit``."""
    if need > hw.groups[hw.group[node], SIZE] or limit < now:
        return False
    return first_gap(x, span_at(x, node, now), need, length, now, limit) != NEVER
