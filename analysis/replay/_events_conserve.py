"""Node events under conservative backfill: all promises of the VC are void, and everybody is planned anew."""

from __future__ import annotations

from analysis.replay._compiled import ZERO, compiled, melted
from analysis.replay._events import (
    BACK,
    KILLED,
    NEXT,
    Events,
    bring_back,
    list_killed,
    lose_run,
    next_event,
    take_down,
)
from analysis.replay._hardware import MILLI, SIZE, Hardware, release
from analysis.replay._heap import float_up, sink, take_out
from analysis.replay._place import VC
from analysis.replay._promises import Conserve, book
from analysis.replay._state import NEVER, RUNNING, WAITING
from analysis.replay._timeline import change

NOBODY = -1


@melted
def tear_all(s: Conserve, vc: int, now: int) -> None:
    """Take back all promises of a VC."""
    p = s.p
    job = p.first[vc]
    while job != NOBODY:
        if p.start[job] != NEVER:
            book(s, job, now, ZERO + 1)
            p.start[job] = NEVER
            sink(p.starts, s.log.counters[WAITING], p.starts.at[job], NEVER, job)
        job = p.later[job]
    p.is_torn[vc] = 1


@melted
def rejoin_line(s: Conserve, job: int, vc: int) -> None:
    """Let a killed job wait at its place in the order of submission; the counter has it already."""
    p = s.p
    before = p.last[vc]
    while before > job:
        before = p.sooner[before]
    after = p.first[vc] if before == NOBODY else p.later[before]
    p.sooner[job], p.later[job] = before, after
    if before == NOBODY:
        p.first[vc] = job
    else:
        p.later[before] = job
    if after == NOBODY:
        p.last[vc] = job
    else:
        p.sooner[after] = job
    p.start[job] = NEVER
    float_up(p.starts, s.log.counters[WAITING] - 1, NEVER, job)


@compiled
def kill(s: Conserve, x: Events, job: int, now: int) -> None:
    """Let a job wait again that lost a node."""
    book(s, job, now, ZERO + 1)
    release(s.hw, s.log.held, s.work.first_entry[job], s.log.stop_entry[job])
    s.log.counters[RUNNING] -= 1
    take_out(s.p.events, s.log.counters[RUNNING], job)
    lose_run(s.hw, s.work, s.log, x, s.p.predicted, job, now)
    s.p.tries[job] = 0
    rejoin_line(s, job, s.work.classes[s.work.job_class[job], VC])


@melted
def change_supply(s: Conserve, node: int, sign: int, now: int) -> None:
    """Let a node be there from now on, or not, as far as anybody knows."""
    hw: Hardware = s.hw
    if len(hw.room) == 0:
        change(s.p.lines, node, now, NEVER, sign * hw.groups[hw.group[node], SIZE], now)
        return
    for device in range(hw.device0[node], hw.device0[node + 1]):
        change(s.p.lines, device, now, NEVER, sign * MILLI, now)


@compiled
def node_events(s: Conserve, x: Events | None, now: int) -> None:
    """Let happen to nodes what happens now."""
    if x is None:
        return
    while next_event(x) <= now:
        node, kind = x.node[x.facts[NEXT]], x.kind[x.facts[NEXT]]
        x.facts[NEXT] += 1
        tear_all(s, x.vc[node], now)
        if kind == BACK:
            bring_back(s.hw, s.hw.offline, node)
            change_supply(s, node, ZERO + 1, now)
            continue
        take_down(s.hw, s.hw.offline, node)
        change_supply(s, node, ZERO - 1, now)
        if kind == KILLED:
            found = list_killed(s.hw, s.work, s.log, x, s.p.events.who, s.log.counters[RUNNING], node)
            for k in range(found):
                kill(s, x, x.victim[k], now)
