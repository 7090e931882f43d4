"""Node events under preemptive policies."""

from __future__ import annotations

from analysis.replay import _tape
from analysis.replay._compiled import ZERO, compiled
from analysis.replay._events import (
    BACK,
    KILLED,
    NEXT,
    Events,
    bring_back,
    gain_of,
    list_killed,
    mark,
    next_event,
    take_down,
    to_run,
    to_work,
)
from analysis.replay._hardware import release
from analysis.replay._moving import KIND, REMAINING, Preemption
from analysis.replay._runs import arrive, forget_run, ratio_of
from analysis.replay._state import NEVER, note_job
from analysis.replay._victims import expect


@compiled
def kill(s: Preemption, x: Events, job: int, now: int) -> None:
    """Let a job wait again that lost a node: since its last start it has done what it has saved."""
    m, log = s.m, s.log
    release(s.hw, log.held, s.work.first_entry[job], log.stop_entry[job])
    ran, ratio = now - m.begin[job], ratio_of(s, job)
    restart = m.restart[s.work.job_class[job]] if m.stops[job] > 0 else ZERO
    done = min(to_work(max(ran - restart, ZERO), ratio), m.left[job])
    gain = gain_of(x, job, m.left[job], done)
    forget_run(s, job, now)
    log.end[job] = NEVER
    note_job(s.hw, s.work, log, _tape.KILLED, job, now)
    m.left[job] -= gain
    if m.rule[KIND] == REMAINING:
        m.guess[job] -= gain
    m.wasted[job] += max(ran - to_run(gain, ratio), ZERO)
    m.stops[job] += 1
    x.kills[job] += 1
    arrive(s, job)


@compiled
def kill_on(s: Preemption, x: Events, node: int, now: int) -> None:
    """Kill whoever runs on a node."""
    m, vc = s.m, x.vc[node]
    first = m.runner0[vc]
    found = list_killed(s.hw, s.work, s.log, x, m.runner[first : first + m.num_runners[vc]], m.num_runners[vc], node)
    for k in range(found):
        kill(s, x, x.victim[k], now)


@compiled
def node_events(s: Preemption, x: Events | None, now: int) -> None:
    """Let happen to nodes what happens now."""
    if x is None:
        return
    while next_event(x) <= now:
        node, kind = x.node[x.facts[NEXT]], x.kind[x.facts[NEXT]]
        x.facts[NEXT] += 1
        if kind == BACK:
            bring_back(s.hw, s.hw.offline, node)
        else:
            take_down(s.hw, s.hw.offline, node)
            if kind == KILLED:
                kill_on(s, x, node, now)
        if len(s.hw.room) == 0:
            expect(s.m, node)
        mark(s.log, x.vc[node])
