"""New predictions under policies that do not preempt, EASY among them."""

from __future__ import annotations

from analysis.replay._backfill import Backfill, add_runner, drop_runner, set_leaf
from analysis.replay._closed import Closed, Renewal
from analysis.replay._compiled import compiled
from analysis.replay._easy import predicted_here
from analysis.replay._events import mark
from analysis.replay._events_loop import forget_findings
from analysis.replay._place import VC
from analysis.replay._queues import Queues, push
from analysis.replay._renew import NUM, STAGE, TOLD, finish, is_running, take_in
from analysis.replay._state import State


@compiled
def renew(s: State, b: Backfill | None, now: int) -> None:
    """Put all who have been predicted again in their places, and let every VC have a pass."""
    renew_in(s, b, s.work.closed, now)


@compiled
def renew_in(s: State, b: Backfill | None, c: Closed | None, now: int) -> None:
    """Do that where predictions are made in the replay."""
    if c is None:
        return
    renew_all(s, b, c, c.renewal, now)


@compiled
def renew_all(s: State, b: Backfill | None, c: Closed, r: Renewal | None, now: int) -> None:
    """Do that where jobs are predicted more than once."""
    if r is None:
        return
    if r.facts[STAGE] != TOLD:
        return
    has_new_order = False
    for k in range(r.facts[NUM]):
        if take_in(c, r, k):
            has_new_order = has_new_order or c.slope[r.job[k]] != 0.0
            refit(s, b, r.job[k])
    if has_new_order:
        sort_again(s.queues)
    for vc in range(len(s.log.marks)):
        forget_findings(b, vc)
        mark(s.log, vc)
    finish(r, now)


@compiled
def refit(s: State, b: Backfill | None, job: int) -> None:
    """Tell EASY of a job's new prediction."""
    if b is None:
        return
    c = s.work.job_class[job]
    if is_running(s.log, job):
        vc = s.work.classes[c, VC]
        drop_runner(b, vc, job)
        add_runner(b, vc, job, s.log.start[job] + predicted_here(s, b, job))
    else:
        for k in range(b.predicted.shape[1]):
            set_leaf(b, c, k, b.leaf[job], b.predicted[job, k])


@compiled
def sort_again(q: Queues) -> None:
    """Put all queues in order after keys have changed."""
    for queue in range(len(q.length)):
        num = q.length[queue]
        q.length[queue] = 0
        for i in range(q.first[queue], q.first[queue] + num):
            push(q, queue, q.heap[i])
