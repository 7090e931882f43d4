"""The event loop: time jumps from instant to instant; at each all ends, then all arrivals, then one pass per VC."""

from __future__ import annotations

import numpy as np
from numba import njit

from analysis.replay._bits import I64
from analysis.replay._easy import easy_end, easy_pass, easy_push
from analysis.replay._hardware import release
from analysis.replay._place import NOWHERE, PIECES, VC, fitting_type
from analysis.replay._queues import pop, pop_end, push
from analysis.replay._state import MOST_WAITING, NEVER, RUNNING, WAITING, State, start

STRICT, SKIP, EASY = 0, 1, 2


@njit(cache=True)
def strict_pass(s: State, vc: int, now: int) -> None:
    """Start jobs from the head of the VC's queue until one does not fit."""
    q = s.queues
    while q.length[vc] > 0:
        rank = q.heap[q.first[vc]]
        if rank == q.blocked[vc]:
            return
        if not start(s, q.place_at[rank], -1, now):
            q.blocked[vc] = rank
            return
        pop(q, vc)


@njit(cache=True)
def drop_started(s: State, queue: int) -> None:
    """Drop places in line of jobs that started from another queue."""
    q = s.queues
    while q.length[queue] > 0:
        job = q.place_at[q.heap[q.first[queue]]] // q.num_slots
        if s.log.start[job] < 0:
            return
        pop(q, queue)


@njit(cache=True)
def may_fit(s: State, queue: int) -> bool:
    """Tell quickly whether a queue's head could start; only a yes can be wrong."""
    q = s.queues
    job = q.place_at[q.heap[q.first[queue]]] // q.num_slots
    row = s.work.classes[s.work.job_class[job]]
    return row[PIECES] > 0 or fitting_type(s.hw, row, q.types[queue], s.log.scratch) != NOWHERE


@njit(cache=True)
def skip_pass(s: State, vc: int, now: int, ended: bool, live: I64) -> None:  # noqa: FBT001 - numba takes no keywords
    """Go down the order and start what fits.

    Those behind a class's head ask for the same, so a head that does not fit settles its class. Without an end since
    the last pass only queues with a newcomer need a look: the others were found not to fit, and nothing came free.
    """
    q = s.queues
    num_live = 0
    for queue in range(q.vc_queues[vc], q.vc_queues[vc + 1]):
        if not (ended or q.fresh[queue] == 1):
            continue
        q.fresh[queue] = 0
        drop_started(s, queue)
        if q.length[queue] > 0 and may_fit(s, queue):
            live[num_live] = queue
            num_live += 1
    while num_live > 0:
        best = 0
        for k in range(1, num_live):
            if q.heap[q.first[live[k]]] < q.heap[q.first[live[best]]]:
                best = k
        queue = live[best]
        job = q.place_at[q.heap[q.first[queue]]] // q.num_slots
        if start(s, job, q.types[queue], now):
            pop(q, queue)
            num_live = keep_live(s, live, num_live)
        else:
            num_live -= 1
            live[best] = live[num_live]


@njit(cache=True)
def keep_live(s: State, live: I64, num_live: int) -> int:
    """Keep the queues that still have somebody waiting who may fit; return how many."""
    kept = 0
    for k in range(num_live):
        drop_started(s, live[k])
        if s.queues.length[live[k]] > 0 and may_fit(s, live[k]):
            live[kept] = live[k]
            kept += 1
    return kept


@njit(cache=True)
def arrive(s: State, job: int, kind: int) -> None:
    """Put a job into its queues."""
    if kind == EASY:
        easy_push(s.reservations, job)
        return
    q = s.queues
    for place_in_line in range(job * q.num_slots, (job + 1) * q.num_slots):
        if q.rank[place_in_line] >= 0:
            push(q, q.queue[place_in_line], q.rank[place_in_line])
            q.fresh[q.queue[place_in_line]] = 1


@njit(cache=True)
def touch(touched: I64, marks: I64, vc: int, mark: int) -> None:
    """Note that something happened in a VC: 1 an arrival, 2 an end."""
    if marks[vc] == 0:
        touched[0] += 1
        touched[touched[0]] = vc
    marks[vc] |= mark


@njit(cache=True)
def end_all(s: State, now: int, kind: int, touched: I64, marks: I64) -> None:
    """Let all jobs go that end now."""
    counters = s.log.counters
    while counters[RUNNING] > 0 and s.ends.time[0] == now:
        job = pop_end(s.ends, counters[RUNNING])
        counters[RUNNING] -= 1
        release(s.hw, s.log.held, s.work.first_entry[job], s.log.stop_entry[job])
        vc = s.work.classes[s.work.job_class[job], VC]
        touch(touched, marks, vc, 2)
        if kind == EASY:
            easy_end(s.reservations, vc, job)


@njit(cache=True)
def pass_all(s: State, now: int, kind: int, touched: I64, marks: I64, live: I64) -> None:  # noqa: PLR0917, RUF100
    """One scheduling pass in every VC where something happened."""
    for k in range(1, touched[0] + 1):
        vc = touched[k]
        ended = marks[vc] >= 2
        marks[vc] = 0
        if kind == STRICT:
            if ended:
                s.queues.blocked[vc] = -1
            strict_pass(s, vc, now)
        elif kind == SKIP:
            skip_pass(s, vc, now, ended, live)
        else:
            easy_pass(s, vc, now, ended)
    touched[0] = 0


@njit(cache=True)
def run(s: State, kind: int) -> None:
    """Replay until the last job has ended."""
    num_vcs = len(s.hw.vc_groups) - 1
    touched = np.zeros(num_vcs + 1, dtype=np.int64)
    marks = np.zeros(num_vcs, dtype=np.int64)
    live = np.empty(max(len(s.queues.first), 1), dtype=np.int64)
    submit, counters = s.work.submit, s.log.counters
    n, job = len(submit), 0
    while job < n or counters[RUNNING] > 0:
        now = submit[job] if job < n else NEVER
        if counters[RUNNING] > 0:
            now = min(now, s.ends.time[0])
        end_all(s, now, kind, touched, marks)
        while job < n and submit[job] == now:
            arrive(s, job, kind)
            counters[WAITING] += 1
            touch(touched, marks, s.work.classes[s.work.job_class[job], VC], 1)
            job += 1
        pass_all(s, now, kind, touched, marks, live)
        counters[MOST_WAITING] = max(counters[MOST_WAITING], counters[WAITING])
