"""CPUs and memory under EASY's reservation, where the placement is scored: hidden like the reserved GPUs."""

from __future__ import annotations

from analysis.replay._compiled import ZERO, compiled
from analysis.replay._hardware import Entries, Hardware
from analysis.replay._scores import CPU, MEM, UNLIMITED, Scores, share_of, total_milli, touch


@compiled
def note_supply(hw: Hardware, s: Scores | None, scratch: Entries, stop: int) -> None:
    """Note what the head will leave on its nodes of what is free at the shadow time, which is now pretended."""
    if s is None:
        return
    for e in range(stop):
        node = hw.device_node[scratch.item[e]]
        s.later[node, 0], s.later[node, 1] = s.cpu[node], s.mem[node]
    for e in range(stop):
        outlast_supply(s, hw.device_node[scratch.item[e]], scratch, e)


@compiled
def outlast_supply(s: Scores | None, node: int, held: Entries, e: int) -> None:
    """Note that what an entry holds will not be free at the shadow time."""
    if s is None:
        return
    c = s.asks[held.owner[e]]
    whole = total_milli(c)
    s.later[node, 0] -= share_of(c[CPU], held.amount[e], whole)
    s.later[node, 1] -= share_of(c[MEM], held.amount[e], whole)


@compiled
def hide_supply(s: Scores | None, node: int) -> None:
    """Hide CPUs and memory of a reserved node that are free now, but not beside the head."""
    if s is None:
        return
    s.veil[node, 0] = max(s.cpu[node] - s.later[node, 0], ZERO) if s.cpu[node] < UNLIMITED else ZERO
    s.veil[node, 1] = max(s.mem[node] - s.later[node, 1], ZERO) if s.mem[node] < UNLIMITED else ZERO
    s.cpu[node] -= s.veil[node, 0]
    s.mem[node] -= s.veil[node, 1]
    touch(s, node)


@compiled
def show_supply(s: Scores | None, node: int) -> None:
    """Undo ``hide_supply``."""
    if s is None:
        return
    s.cpu[node] += s.veil[node, 0]
    s.mem[node] += s.veil[node, 1]
    touch(s, node)
