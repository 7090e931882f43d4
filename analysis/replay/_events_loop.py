"""Node events under policies that do not preempt, EASY among them."""

from __future__ import annotations

from analysis.replay._backfill import Backfill
from analysis.replay._compiled import ZERO, compiled, melted
from analysis.replay._easy import easy_arrive, easy_end
from analysis.replay._events import (
    BACK,
    KILLED,
    NEXT,
    Events,
    bring_back,
    is_empty,
    list_killed,
    lose_run,
    mark,
    next_event,
    take_down,
)
from analysis.replay._hardware import release
from analysis.replay._place import VC
from analysis.replay._queues import Queues, push, push_end
from analysis.replay._state import RUNNING, State


@compiled
def is_in_line(q: Queues, queue: int, rank: int) -> bool:
    """Tell whether a place in line is still in its queue, since the job started from another one."""
    found = False
    for i in range(q.first[queue], q.first[queue] + q.length[queue]):
        found = found or q.heap[i] == rank
    return found


@melted
def line_up(s: State, job: int) -> None:
    """Put a killed job back into its queues."""
    q = s.queues
    for place in range(job * q.num_slots, (job + 1) * q.num_slots):
        queue, rank = q.queue[place], q.rank[place]
        if rank >= 0 and (q.num_slots == 1 or not is_in_line(q, queue, rank)):
            push(q, queue, rank)
            q.fresh[queue] = 1


@compiled
def put_back(s: State, b: Backfill | None, vc: int, job: int) -> None:
    """Let a killed job wait."""
    if b is None:
        line_up(s, job)
    else:
        easy_end(b, vc, job)
        easy_arrive(s, b, job)


@melted
def drop_ends(s: State, num: int) -> None:
    """Leave those out of the heap of ``num`` ends who have none any more."""
    kept = ZERO
    for i in range(num):
        time, job = s.ends.time[i], s.ends.job[i]
        if s.log.start[job] >= 0:
            push_end(s.ends, kept, time, job)
            kept += 1
    s.log.counters[RUNNING] = kept


@compiled
def kill_on(s: State, b: Backfill | None, x: Events, node: int, now: int) -> None:
    """Kill whoever runs on a node."""
    num = s.log.counters[RUNNING]
    found = list_killed(s.hw, s.work, s.log, x, s.ends.job, num, node)
    for k in range(found):
        job = x.victim[k]
        release(s.hw, s.log.held, s.work.first_entry[job], s.log.stop_entry[job])
        if b is None:
            lose_run(s.hw, s.work, s.log, x, s.work.run, job, now)
        else:
            lose_run(s.hw, s.work, s.log, x, b.predicted, job, now)
        put_back(s, b, s.work.classes[s.work.job_class[job], VC], job)
    if found > 0:
        drop_ends(s, num)


@compiled
def forget_findings(b: Backfill | None, vc: int) -> None:
    """Let EASY look at everybody again."""
    if b is not None:
        b.settled[vc] = 0


@compiled
def node_events(s: State, b: Backfill | None, x: Events | None, now: int) -> None:
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
            kill_on(s, b, x, node, now)
        else:
            take_down(s.hw, s.hw.offline, node)
        forget_findings(b, x.vc[node])
        mark(s.log, x.vc[node])
