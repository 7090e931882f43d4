"""New predictions under preemptive policies."""

from __future__ import annotations

from analysis.replay._closed import Closed, Renewal
from analysis.replay._compiled import ZERO, compiled
from analysis.replay._events import mark
from analysis.replay._moving import KIND, REMAINING, Moving, Preemption
from analysis.replay._renew import NUM, STAGE, TOLD, finish, is_due, is_running, list_jobs, note_age, take_in, tell_all
from analysis.replay._runs import change_key, rise_in


@compiled
def take_stock(s: Preemption, c: Closed | None, now: int) -> None:
    """List jobs with their ages if it is time, and predict them if Python need not."""
    if c is None:
        return
    take_stock_for(s, c, c.renewal, now)


@compiled
def take_stock_for(s: Preemption, c: Closed, r: Renewal | None, now: int) -> None:
    """Do that where jobs are predicted more than once."""
    if r is None:
        return
    m = s.m
    if is_due(r, now):
        list_jobs(r, s.log, now)
        for k in range(r.facts[NUM]):
            job = r.job[k]
            restart = m.restart[s.work.job_class[job]] if m.stops[job] > 0 else ZERO
            ran = max(now - m.begin[job] - restart, ZERO)
            note_age(c, r, s.log, k, c.value[job] - m.left[job], ran)
        tell_all(c, r)


@compiled
def renew(s: Preemption, c: Closed | None, now: int) -> None:
    """Put all who have been predicted again in their places, and let every VC have a pass."""
    if c is None:
        return
    renew_all(s, c, c.renewal, now)


@compiled
def renew_all(s: Preemption, c: Closed, r: Renewal | None, now: int) -> None:
    """Do that where jobs are predicted more than once."""
    if r is None:
        return
    if r.facts[STAGE] != TOLD:
        return
    for k in range(r.facts[NUM]):
        if take_in(c, r, k):
            s.m.guess[r.job[k]] = r.told[k] - r.kept[k]
            if s.m.rule[KIND] == REMAINING:
                rekey(s, r.job[k], now)
    if s.m.rule[KIND] == REMAINING:
        sort_again(s.m)
    for vc in range(len(s.log.marks)):
        mark(s.log, vc)
    finish(r, now)


@compiled
def rekey(s: Preemption, job: int, now: int) -> None:
    """Give a job the key that its new prediction means: as if it had been predicted so at its last start."""
    if is_running(s.log, job):
        change_key(s, job, now)
    else:
        s.m.key[job] = s.m.guess[job]


@compiled
def sort_again(m: Moving) -> None:
    """Put all queues in order after keys have changed."""
    for queue in range(len(m.length)):
        first = m.first[queue]
        for i in range(m.length[queue]):
            rise_in(m, first, i, m.heap[first + i])
