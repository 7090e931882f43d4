"""The event loop: time jumps; at an instant all ends, then node events, then all arrivals, then one pass per VC."""

from __future__ import annotations

from analysis.replay import _tape
from analysis.replay._backfill import NOBODY, Backfill
from analysis.replay._closed import comes_before, foresee, learn, note_end
from analysis.replay._compiled import ZERO, constant, entry, melted
from analysis.replay._easy import easy_arrive, easy_end, easy_pass, head_rank
from analysis.replay._events import Events, is_waiting_for_nodes, next_event
from analysis.replay._events_loop import node_events
from analysis.replay._hardware import release
from analysis.replay._place import NOWHERE, PIECES, VC, fitting_type
from analysis.replay._queues import Queues, pop, pop_end, push
from analysis.replay._renew import is_unfinished, must_tell, take_stock
from analysis.replay._renew_loop import renew
from analysis.replay._state import (
    ASKED,
    FINISHED,
    MOST_WAITING,
    NEVER,
    NEXT,
    NOW,
    RUNNING,
    WAITING,
    State,
    begin_instant,
    must_ask,
    note_job,
    start,
)
from analysis.replay._tape import SUBMITTED, note

# What happened in a VC at an instant.
ARRIVED, ENDED = constant(1), constant(2)


@melted
def head_of(q: Queues, queue: int) -> int:
    """Job at the head of a queue."""
    place = q.place_at[q.heap[q.first[queue]]]
    return int(place if q.num_slots == 1 else place // q.num_slots)


@melted
def drop_started(s: State, queue: int) -> None:
    """Drop places in line of jobs that started from another queue."""
    q = s.queues
    while q.num_slots > 1 and q.length[queue] > 0 and s.log.start[head_of(q, queue)] >= 0:
        pop(q, queue)


@melted
def keep_live(s: State, num_live: int) -> int:
    """Keep those queues of the list whose head exists and may fit (only a yes can be wrong); return how many.

    A single queue is not asked: the attempt to start its head is as quick.
    """
    q, live = s.queues, s.log.live
    kept = ZERO
    for k in range(num_live):
        queue = live[k]
        drop_started(s, queue)
        if q.length[queue] == 0:
            continue
        row = s.work.classes[s.work.job_class[head_of(q, queue)]]
        is_quick = num_live > 1 and row[PIECES] == 0
        if not is_quick or fitting_type(s.hw, row, q.types[queue], s.log.scratch) != NOWHERE:
            live[kept] = queue
            kept += 1
    return kept


@melted
def queue_pass(s: State, vc: int, now: int, ended: bool) -> None:  # noqa: FBT001 - numba takes no keywords
    """Start the first head, in the policy's order over all queues of the VC, that fits; again until none does.

    Where the head blocks, a VC has one queue. Else it has one per class (and type): those behind a class's head ask for
    the same, so a head that does not fit settles its class. Without an end since the last pass only queues with a
    newcomer need a look: the others were found not to fit, and nothing came free.
    """
    q, live = s.queues, s.log.live
    num_live = ZERO
    for queue in range(q.vc_queues[vc], q.vc_queues[vc + 1]):
        if q.length[queue] > 0 and (ended or q.fresh[queue] == 1):
            live[num_live] = queue
            num_live += 1
        q.fresh[queue] = 0
    while True:
        num_live = keep_live(s, num_live)
        if num_live == 0:
            return
        best = ZERO
        for k in range(1, num_live):
            if comes_before(q.key, q.heap[q.first[live[k]]], q.heap[q.first[live[best]]]):
                best = k
        queue = live[best]
        if start(s, head_of(q, queue), q.types[queue], now):
            pop(q, queue)
        else:
            num_live -= 1
            live[best] = live[num_live]


@melted
def arrive(s: State, b: Backfill | None, job: int) -> None:
    """Put a job into its queues."""
    if b is not None:
        easy_arrive(s, b, job)
        return
    q = s.queues
    for place_in_line in range(job * q.num_slots, (job + 1) * q.num_slots):
        if q.rank[place_in_line] >= 0:
            push(q, q.queue[place_in_line], q.rank[place_in_line])
            q.fresh[q.queue[place_in_line]] = 1


@melted
def touch(s: State, vc: int, mark: int) -> None:
    """Note that something happened in a VC."""
    touched, marks = s.log.touched, s.log.marks
    if marks[vc] == 0:
        touched[0] += 1
        touched[touched[0]] = vc
    marks[vc] |= mark


@melted
def end_all(s: State, b: Backfill | None, now: int) -> None:
    """Let all jobs go that end now."""
    counters = s.log.counters
    while counters[RUNNING] > 0 and s.ends.time[0] == now:
        job = pop_end(s.ends, counters[RUNNING])
        counters[RUNNING] -= 1
        release(s.hw, s.log.held, s.work.first_entry[job], s.log.stop_entry[job])
        note_job(s.hw, s.work, s.log, _tape.ENDED, job, now)
        note_end(s.work.closed, job)
        vc = s.work.classes[s.work.job_class[job], VC]
        touch(s, vc, ENDED)
        if b is not None:
            easy_end(b, vc, job)


@melted
def pass_all(s: State, b: Backfill | None, now: int) -> None:
    """One scheduling pass in every VC where something happened."""
    touched, marks = s.log.touched, s.log.marks
    for k in range(1, touched[0] + 1):
        vc = touched[k]
        ended = marks[vc] >= ENDED
        marks[vc] = 0
        if b is not None:
            if head_rank(b, vc) != NOBODY:
                easy_pass(s, b, vc, now)
        else:
            queue_pass(s, vc, now, ended)
    touched[0] = 0


@entry
def run(s: State, b: Backfill | None, x: Events | None) -> int:
    """Replay until all have ended or nothing helps those who wait, or Python shall have its turn; say which.

    ``b`` is None for policies without backfill, ``x`` where all nodes stay: numba then leaves their code out.
    """
    submit, counters, closed = s.work.submit, s.log.counters, s.work.closed
    n = len(submit)
    while counters[NEXT] < n or counters[RUNNING] > 0 or is_waiting_for_nodes(x, s.log) or is_unfinished(closed):
        job = counters[NEXT]
        now = min(submit[job] if job < n else NEVER, next_event(x))
        if counters[RUNNING] > 0:
            now = min(now, s.ends.time[0])
        if is_unfinished(closed):
            now = counters[NOW]
        why = begin_instant(s.log, now)
        if why != FINISHED:
            return why
        end_all(s, b, now)
        learn(closed)
        take_stock(closed, x, s.log, now)
        if must_ask(s.log, submit, job, now) or must_tell(closed):
            return ASKED
        renew(s, b, now)
        node_events(s, b, x, now)
        while job < n and submit[job] == now:
            foresee(closed, job)
            arrive(s, b, job)
            counters[WAITING] += 1
            touch(s, s.work.classes[s.work.job_class[job], VC], ARRIVED)
            note(s.log.tape, now, SUBMITTED, job)
            job += 1
        counters[NEXT] = job
        pass_all(s, b, now)
        counters[MOST_WAITING] = max(counters[MOST_WAITING], counters[WAITING])
    return FINISHED
