"""Node events in the step-wise engine: as in the compiled loops, between the ends and the arrivals of an instant."""

from __future__ import annotations

from analysis.replay import _tape
from analysis.replay._compiled import ZERO, melted
from analysis.replay._events import (
    BACK,
    KILLED,
    NEXT,
    Events,
    bring_back,
    gain_of,
    is_empty,
    list_killed,
    mark,
    next_event,
    take_down,
    to_run,
    to_work,
)
from analysis.replay._hardware import release
from analysis.replay._heap import float_up
from analysis.replay._state import NEVER, RUNNING, note_job
from analysis.replay.steps._box import compiled
from analysis.replay.steps._life import leave_run, ratio_of, vc_of, wait_again
from analysis.replay.steps._state import RUNS, Steps


@compiled
def kill(s: Steps, x: Events, job: int, now: int) -> None:
    """Let a job wait again that lost a node; it is still in the heap of ends."""
    k, log = s.kept, s.log
    release(s.hw, log.held, s.work.first_entry[job], log.stop_entry[job])
    ran, ratio = now - k.begin[job], ratio_of(s, job)
    restart = k.restart[s.work.job_class[job]] if k.stops[job] > 0 else ZERO
    done = min(to_work(max(ran - restart, ZERO), ratio), k.left[job])
    gain = gain_of(x, job, k.left[job], done)
    leave_run(s, job, now)
    log.end[job] = NEVER
    note_job(s.hw, s.work, log, _tape.KILLED, job, now)
    k.left[job] -= gain
    k.wasted[job] += max(ran - to_run(gain, ratio), ZERO)
    x.kills[job] += 1
    wait_again(s, job)
    # It may have been a guest there.
    mark(log, vc_of(s, job))


@melted
def drop_ends(s: Steps, num: int) -> None:
    """Leave those out of the heap of ``num`` ends who do not run any more; as the compiled loop, push by push.

    Jobs that end at one instant do so in the order of the heap, and so it must be the same heap.
    """
    k, kept = s.kept, ZERO
    for i in range(num):
        when, job = k.ends.when[i], k.ends.who[i]
        if k.status[job] == RUNS:
            float_up(k.ends, kept, when, job)
            kept += 1
    s.log.counters[RUNNING] = kept


@compiled
def kill_on(s: Steps, x: Events, node: int, now: int) -> None:
    """Kill whoever runs on a node."""
    num = s.log.counters[RUNNING]
    found = list_killed(s.hw, s.work, s.log, x, s.kept.ends.who, num, node)
    for i in range(found):
        kill(s, x, x.victim[i], now)
    if found > 0:
        drop_ends(s, num)


@compiled
def node_events(s: Steps, x: Events | None, now: int) -> None:
    """Let happen to nodes what happens now."""
    if x is None:
        return
    while next_event(x) <= now:
        node, kind = x.node[x.facts[NEXT]], x.kind[x.facts[NEXT]]
        x.facts[NEXT] += 1
        if kind == BACK:
            bring_back(s.hw, s.hw.offline, node)
        elif kind == KILLED and not is_empty(s.hw, node):
            take_down(s.hw, s.hw.offline, node)
            kill_on(s, x, node, now)
        else:
            take_down(s.hw, s.hw.offline, node)
        mark(s.log, x.vc[node])
