"""The event loop of preemptive policies: the rules stand in ``policies.moving``."""

from __future__ import annotations

from analysis.replay._closed import foresee, guess_of, learn
from analysis.replay._compiled import ZERO, compiled, constant, entry, melted
from analysis.replay._events import Events, is_waiting_for_nodes, next_event
from analysis.replay._events_preempt import node_events
from analysis.replay._hardware import FIRST, SIZE, TYPE, release
from analysis.replay._moving import IS_STRICT, KIND, NOBODY, QUANTUM, SLICES, Preemption
from analysis.replay._place import (
    ANY_TYPE,
    MODE,
    NOWHERE,
    ON_ONE_NODE,
    PIECES,
    TYPES,
    VC,
    WHOLE,
    allows,
    grab,
    place_quick,
)
from analysis.replay._renew import is_unfinished, must_tell
from analysis.replay._renew_preempt import renew, take_stock
from analysis.replay._runs import (
    arrive,
    begin_run,
    begin_slice,
    change_key,
    dequeue,
    end_run,
    end_slice,
    queue_of,
    stop_run,
)
from analysis.replay._state import (
    ASKED,
    FINISHED,
    MOST_WAITING,
    NEVER,
    NEXT,
    NOW,
    RUNNING,
    WAITING,
    begin_instant,
    must_ask,
)
from analysis.replay._tape import SUBMITTED, note
from analysis.replay._victims import best_leaves, catch_up, comes_after, node_to_clear, resort
from analysis.replay._walk import walk

#: Not only queues where somebody came.
EVERY = True
# What became of an attempt to start a job …
FAILED, STARTED, PUSHED = constant(0), constant(1), constant(2)
# … what is known of a queue in a pass …
UNSEEN, LIVE, DEAD = 0, 1, 2
# … and what happened in a VC at an instant.
ARRIVED, CHANGED = constant(1), constant(2)


@melted
def evict(s: Preemption, job: int, now: int) -> None:
    """Stop a running job and free what it holds."""
    release(s.hw, s.log.held, s.work.first_entry[job], s.log.stop_entry[job])
    stop_run(s, job, now)


@compiled
def clear_node(s: Preemption, job: int, node: int, now: int) -> int:
    """Make room on a node for one that needs a single node, with as few evictions as the rules say, and take it.

    Returns the entry after the last written one, as those below, too.
    """
    m = s.m
    whole = s.work.classes[s.work.job_class[job], WHOLE]
    first = m.slot0[node]
    free, num = s.hw.free[node], ZERO
    while free < whole:
        free += m.slot_gpus[first + num]
        m.victim[num] = m.slot_job[first + num]
        num += 1
    free -= whole
    for k in range(num - 1, -1, -1):
        if m.slot_gpus[first + k] <= free:
            free -= m.slot_gpus[first + k]
            m.victim[k] = NOBODY
    for k in range(num):
        if m.victim[k] != NOBODY:
            evict(s, m.victim[k], now)
    return grab(s.hw, node, whole, s.log.held, s.work.first_entry[job])


@compiled
def clear_nodes(s: Preemption, job: int, now: int) -> int:
    """Make room on whole nodes for one that needs several, and take them; NOWHERE if it cannot be done."""
    hw, m, row = s.hw, s.m, s.work.classes[s.work.job_class[job]]
    group, last = NOWHERE, NOBODY
    for g in range(hw.vc_groups[row[VC]], hw.vc_groups[row[VC] + 1]):
        if allows(row[TYPES], hw.groups[g, TYPE]):
            found = best_leaves(s, job, g, row[WHOLE] // hw.groups[g, SIZE], now)
            if found != NOBODY and (last == NOBODY or comes_after(m, found, last)):
                group, last = g, found
    if last == NOBODY:
        return NOWHERE
    dequeue(s, queue_of(s, job))
    size = hw.groups[group, SIZE]
    best_leaves(s, job, group, row[WHOLE] // size, now)
    at = s.work.first_entry[job]
    for k in range(row[WHOLE] // size):
        node = hw.groups[group, FIRST] + m.pick[k]
        while m.num_slots[node] > 0:
            evict(s, m.slot_job[m.slot0[node]], now)
        at = grab(hw, node, size, s.log.held, at)
    return int(at)


@compiled
def push_out(s: Preemption, job: int, now: int) -> int:
    """Place a job where running ones are that come after it, and let it leave its queue; NOWHERE if it cannot be."""
    c = s.work.job_class[job]
    row = s.work.classes[c]
    if s.m.num_runners[row[VC]] == 0:
        return NOWHERE
    if len(s.hw.room) > 0 or (s.m.is_wide[c] == 0 and (row[MODE] != ON_ONE_NODE or row[PIECES] > 0)):
        return walk(s, job, now)
    if s.m.is_wide[c] == 1:
        catch_up(s)
        return clear_nodes(s, job, now)
    node = node_to_clear(s, job, now)
    if node == NOWHERE:
        return NOWHERE
    dequeue(s, queue_of(s, job))
    return clear_node(s, job, node, now)


@compiled
def try_start(s: Preemption, queue: int, now: int) -> int:
    """Start the first job of a queue on what is free, or else in place of others."""
    job = s.m.heap[s.m.first[queue]]
    at = s.work.first_entry[job]
    stop = place_quick(s.hw, s.work.classes[s.work.job_class[job]], ANY_TYPE, s.log.held, at)
    told = STARTED
    if stop != NOWHERE:
        dequeue(s, queue)
    else:
        stop = push_out(s, job, now)
        told = PUSHED
    if stop == NOWHERE:
        return FAILED
    begin_run(s, job, stop, now)
    return told


@compiled
def strict_pass(s: Preemption, vc: int, now: int, changed: bool) -> None:  # noqa: FBT001 - numba takes no keywords
    """Start jobs from the head of a VC's queue until one finds no room."""
    m = s.m
    while m.length[vc] > 0:
        head = m.heap[m.first[vc]]
        if not changed and head == m.stuck[vc]:
            return
        if try_start(s, vc, now) == FAILED:
            m.stuck[vc] = head
            return
        m.stuck[vc] = NOBODY


@melted
def list_live(s: Preemption, vc: int, num_live: int, all_of_them: bool) -> int:  # noqa: FBT001 - as above
    """List queues whose head may find room and is not on the list yet; return how many are on it now."""
    m, live = s.m, s.log.live
    for queue in range(m.vc_queues[vc], m.vc_queues[vc + 1]):
        if m.mark[queue] == UNSEEN and m.length[queue] > 0 and (all_of_them or m.fresh[queue] == 1):
            m.mark[queue] = LIVE
            live[num_live] = queue
            num_live += 1
    return num_live


@compiled
def skip_pass(s: Preemption, vc: int, now: int, changed: bool) -> None:  # noqa: FBT001 - numba takes no keywords
    """Start, in the order over all queues of a VC, whoever finds room; a head that does not settles its queue."""
    m, live = s.m, s.log.live
    num_live = list_live(s, vc, ZERO, changed)
    while num_live > 0:
        best = ZERO
        for k in range(1, num_live):
            if comes_after(m, m.heap[m.first[live[best]]], m.heap[m.first[live[k]]]):
                best = k
        queue = live[best]
        told = try_start(s, queue, now)
        if told == FAILED or m.length[queue] == 0:
            m.mark[queue] = DEAD if told == FAILED else UNSEEN
            num_live -= 1
            live[best] = live[num_live]
        if told == PUSHED:
            num_live = list_live(s, vc, num_live, EVERY)
    for queue in range(m.vc_queues[vc], m.vc_queues[vc + 1]):
        m.mark[queue] = UNSEEN
        m.fresh[queue] = 0


@melted
def touch(s: Preemption, vc: int, mark: int) -> None:
    """Note that something happened in a VC."""
    touched, marks = s.log.touched, s.log.marks
    if marks[vc] == 0:
        touched[0] += 1
        touched[touched[0]] = vc
    marks[vc] |= mark


@melted
def all_events(s: Preemption, now: int) -> None:
    """Let all jobs go that end now, and change the keys that change now."""
    while s.log.counters[RUNNING] > 0 and s.m.events.when[0] == now:
        job = s.m.events.who[0]
        touch(s, s.work.classes[s.work.job_class[job], VC], CHANGED)
        if s.log.end[job] == now:
            end_run(s, job, now)
        else:
            change_key(s, job, now)


@compiled
def vc_pass(s: Preemption, vc: int, now: int, changed: bool) -> None:  # noqa: FBT001 - numba takes no keywords
    """One scheduling pass over a VC; at the end of a slice around it whoever runs may be stopped."""
    m = s.m
    is_slice_end = m.tick[vc] == now
    if is_slice_end:
        end_slice(s, vc, now)
        resort(s, vc)
    if m.rule[IS_STRICT] == 1:
        strict_pass(s, vc, now, changed)
    else:
        skip_pass(s, vc, now, changed)
    if is_slice_end:
        begin_slice(s, vc)
        resort(s, vc)
    if m.rule[KIND] == SLICES:
        passed = (now - m.slice0[vc]) // m.rule[QUANTUM]
        m.tick[vc] = m.slice0[vc] + (passed + 1) * m.rule[QUANTUM] if m.waiting[vc] > 0 else NEVER


@melted
def pass_all(s: Preemption, now: int) -> None:
    """One scheduling pass in every VC where something happened."""
    touched, marks = s.log.touched, s.log.marks
    for k in range(1, touched[0] + 1):
        vc = touched[k]
        changed = marks[vc] >= CHANGED
        marks[vc] = 0
        vc_pass(s, vc, now, changed)
    touched[0] = 0


@melted
def first_tick(s: Preemption) -> int:
    """The next end of a slice."""
    first = NEVER
    if s.m.rule[KIND] == SLICES:
        for vc in range(len(s.m.tick)):
            first = min(first, s.m.tick[vc])
    return first


@entry
def run(s: Preemption, x: Events | None) -> int:
    """Replay until all have ended or nothing helps those who wait, or Python shall have its turn; say which.

    ``x`` is None where all nodes stay.
    """
    submit, counters, closed = s.work.submit, s.log.counters, s.work.closed
    n = len(submit)
    while counters[NEXT] < n or counters[RUNNING] > 0 or is_waiting_for_nodes(x, s.log) or is_unfinished(closed):
        job = counters[NEXT]
        now = min(min(submit[job] if job < n else NEVER, first_tick(s)), next_event(x))
        if counters[RUNNING] > 0:
            now = min(now, s.m.events.when[0])
        if is_unfinished(closed):
            now = counters[NOW]
        why = begin_instant(s.log, now)
        if why != FINISHED:
            return why
        all_events(s, now)
        learn(closed)
        take_stock(s, closed, now)
        if must_ask(s.log, submit, job, now) or must_tell(closed):
            return ASKED
        renew(s, closed, now)
        node_events(s, x, now)
        if s.m.rule[KIND] == SLICES:
            for vc in range(len(s.m.tick)):
                if s.m.tick[vc] == now:
                    touch(s, vc, CHANGED)
        while job < n and submit[job] == now:
            foresee(closed, job)
            s.m.guess[job] = guess_of(closed, job, s.m.guess[job])
            arrive(s, job)
            touch(s, s.work.classes[s.work.job_class[job], VC], ARRIVED)
            note(s.log.tape, now, SUBMITTED, job)
            job += 1
        counters[NEXT] = job
        pass_all(s, now)
        counters[MOST_WAITING] = max(counters[MOST_WAITING], counters[WAITING])
    return FINISHED
