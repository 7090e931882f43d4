"""New predictions under conservative backfill: where one has changed, all promises of the VC are void."""

from __future__ import annotations

from analysis.replay._closed import Closed, Renewal
from analysis.replay._compiled import ZERO, compiled
from analysis.replay._events_conserve import tear_all
from analysis.replay._heap import sink
from analysis.replay._place import VC
from analysis.replay._promises import Conserve, book
from analysis.replay._renew import NUM, STAGE, TOLD, finish, is_running, take_in
from analysis.replay._state import RUNNING


@compiled
def renew(s: Conserve, c: Closed | None, now: int) -> None:
    """Put all who have been predicted again in their places."""
    if c is None:
        return
    renew_all(s, c, c.renewal, now)


@compiled
def renew_all(s: Conserve, c: Closed, r: Renewal | None, now: int) -> None:
    """Do that where jobs are predicted more than once.

    All are torn before the first run gets a new end: what is booked must never be more than there is.
    """
    if r is None:
        return
    if r.facts[STAGE] != TOLD:
        return
    marks = s.log.marks
    for k in range(r.facts[NUM]):
        vc = s.work.classes[s.work.job_class[r.job[k]], VC]
        if marks[vc] == 0 and r.told[k] != c.guess[r.job[k]]:
            marks[vc] = 1
            tear_all(s, vc, now)
    for vc in range(len(marks)):
        marks[vc] = 0
    for k in range(r.facts[NUM]):
        if take_in(c, r, k) and is_running(s.log, r.job[k]):
            move_end(s, r.job[k], now)
    finish(r, now)


@compiled
def move_end(s: Conserve, job: int, now: int) -> None:
    """Give a run the end that is predicted now; one that has passed changes nothing."""
    p = s.p
    due = s.log.start[job] + p.predicted[job, s.log.column[job]]
    if due <= now:
        return
    book(s, job, now, ZERO + 1)
    p.due[job] = due
    p.tries[job] = 0
    book(s, job, now, ZERO - 1)
    sink(p.events, s.log.counters[RUNNING], p.events.at[job], min(s.log.end[job], due), job)
