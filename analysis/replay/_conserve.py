"""The event loop of conservative backfill: the rules stand in ``policies.backfill.conservative``."""

from __future__ import annotations

from analysis.replay._closed import foresee, learn, note_end
from analysis.replay._compiled import ZERO, compiled, constant, entry, melted
from analysis.replay._events import Events, next_event
from analysis.replay._events_conserve import node_events
from analysis.replay._hardware import release, retake
from analysis.replay._heap import float_up, sink, take_out
from analysis.replay._loosened import NO_NODE, has_gap, loosen, need_of
from analysis.replay._place import ANY_TYPE, NOWHERE, VC, node_of, place_quick
from analysis.replay._promises import Conserve, book, longest, plan, promise
from analysis.replay._renew import is_unfinished, must_tell, take_stock
from analysis.replay._renew_conserve import renew
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
    note_job,
)
from analysis.replay._tape import ENDED, STARTED, SUBMITTED, note

NOBODY = constant(-1)
#: In place of a promised start: the promise was taken back, or none can be given on the nodes that are there.
TORN = NEVER


@melted
def vc_of(s: Conserve, job: int) -> int:
    """VC of a job."""
    return int(s.work.classes[s.work.job_class[job], VC])


@melted
def join_line(s: Conserve, job: int) -> None:
    """Let a job wait, behind everybody of its VC."""
    p, vc = s.p, vc_of(s, job)
    p.sooner[job], p.later[job] = p.last[vc], NOBODY
    if p.last[vc] == NOBODY:
        p.first[vc] = job
    else:
        p.later[p.last[vc]] = job
    p.last[vc] = job
    float_up(p.starts, s.log.counters[WAITING], p.start[job], job)
    s.log.counters[WAITING] += 1


@melted
def leave_line(s: Conserve, job: int) -> None:
    """Let a job wait no longer."""
    p, vc = s.p, vc_of(s, job)
    before, after = p.sooner[job], p.later[job]
    if before == NOBODY:
        p.first[vc] = after
    else:
        p.later[before] = after
    if after == NOBODY:
        p.last[vc] = before
    else:
        p.sooner[after] = before
    s.log.counters[WAITING] -= 1
    take_out(p.starts, s.log.counters[WAITING], job)


@compiled
def begin(s: Conserve, job: int, now: int) -> None:
    """Let a job run whose places are taken and booked."""
    s.log.start[job] = now
    s.log.end[job] = now + s.work.run[job, s.log.column[job]]
    float_up(s.p.events, s.log.counters[RUNNING], min(s.log.end[job], s.p.due[job]), job)
    s.log.counters[RUNNING] += 1
    note_job(s.hw, s.work, s.log, STARTED, job, now)


@compiled
def end(s: Conserve, job: int, now: int) -> None:
    """Let a job go."""
    release(s.hw, s.log.held, s.work.first_entry[job], s.log.stop_entry[job])
    s.log.counters[RUNNING] -= 1
    take_out(s.p.events, s.log.counters[RUNNING], job)
    note_job(s.hw, s.work, s.log, ENDED, job, now)
    note_end(s.work.closed, job)
    if s.p.due[job] > now:
        book(s, job, now, ZERO + 1)
        came_free(s, job)
        s.p.is_loose[vc_of(s, job)] = 1


@melted
def shares_a_node(s: Conserve, one: int, other: int) -> bool:
    """Tell whether two jobs have places on the same node."""
    held, first = s.log.held, s.work.first_entry
    for e in range(first[one], s.log.stop_entry[one]):
        for f in range(first[other], s.log.stop_entry[other]):
            if node_of(s.hw, held.item[e]) == node_of(s.hw, held.item[f]):
                return True
    return False


@compiled
def correct(s: Conserve, job: int, now: int) -> None:
    """Move on the predicted end of a job that outlived it, and take back the promises that this may break."""
    p, vc = s.p, vc_of(s, job)
    before = p.due[job]
    p.due[job] += p.step_us[min(p.tries[job], len(p.step_us) - 1)]
    p.tries[job] += 1
    sink(p.events, s.log.counters[RUNNING], p.events.at[job], min(s.log.end[job], p.due[job]), job)
    one = p.first[vc]
    while one != NOBODY:
        if p.start[one] < p.due[job] and shares_a_node(s, one, job):
            book(s, one, now, ZERO + 1)
            came_free(s, one)
            move_promise(s, one, TORN)
            p.is_torn[vc] = 1
        one = p.later[one]
    start = p.start[job]
    p.start[job] = before
    book(s, job, now, ZERO - 1)
    p.start[job] = start


@melted
def move_promise(s: Conserve, job: int, at: int) -> None:
    """Change a promised start."""
    s.p.start[job] = at
    sink(s.p.starts, s.log.counters[WAITING], s.p.starts.at[job], at, job)


@compiled
def mend(s: Conserve, vc: int, now: int) -> None:
    """Give new promises to those who have none, in the order of submission."""
    p = s.p
    job = p.first[vc]
    while job != NOBODY:
        if p.start[job] == TORN and plan(s, job, now, NEVER):
            p.loosened.seen[job] = p.loosened.clock[0]
            move_promise(s, job, p.start[job])
            book(s, job, now, ZERO - 1)
        job = p.later[job]
    p.is_torn[vc] = 0
    p.is_loose[vc] = 1


@compiled
def tighten(s: Conserve, vc: int, now: int) -> None:
    """Move promises to earlier instants where that is possible now, in the order of submission."""
    p, f = s.p, s.p.loosened
    before = f.clock[0]
    job = p.first[vc]
    while job != NOBODY:
        if now < p.start[job] < TORN:
            if may_move(s, vc, job, now):
                hasten(s, vc, job, now)
            f.seen[job] = f.clock[0]
        job = p.later[job]
    f.all_seen[vc] = before
    p.is_loose[vc] = 0


@compiled
def hasten(s: Conserve, vc: int, job: int, now: int) -> None:
    """Move a promise to an earlier instant if that is possible now."""
    p, first = s.p, s.work.first_entry[job]
    num, due = s.log.stop_entry[job] - first, p.due[job]
    for k in range(num):
        p.was[k] = node_of(s.hw, s.log.held.item[first + k])
    book(s, job, now, ZERO + 1)
    if plan(s, job, now, p.start[job]):
        move_promise(s, job, p.start[job])
        for k in range(num):
            loosen(p.loosened, vc, p.was[k], due)
    book(s, job, now, ZERO - 1)


@melted
def came_free(s: Conserve, job: int) -> None:
    """Note that a job's places are free until its predicted end."""
    for e in range(s.work.first_entry[job], s.log.stop_entry[job]):
        loosen(s.p.loosened, vc_of(s, job), node_of(s.hw, s.log.held.item[e]), s.p.due[job])


@compiled
def may_move(s: Conserve, vc: int, job: int, now: int) -> bool:
    """Tell whether a promise may move to an earlier instant; only a no is sure."""
    f, hw, c = s.p.loosened, s.hw, s.work.job_class[job]
    row, length = s.work.classes[c], longest(s, job)
    node = f.newest[vc]
    while node != NO_NODE and f.when[node] > f.seen[job]:
        if len(hw.room) > 0 or holds(s, job, node):
            return True
        limit = min(s.p.start[job], f.until[node]) - 1
        if has_gap(hw, s.p.lines, node, need_of(hw, row, s.p.is_wide[c], node), length, now, limit):
            return True
        node = f.older[node]
    return False


@melted
def holds(s: Conserve, job: int, node: int) -> bool:
    """Tell whether a job has places on a node."""
    is_held = False
    for e in range(s.work.first_entry[job], s.log.stop_entry[job]):
        is_held = is_held or s.log.held.item[e] == node
    return is_held


@compiled
def arrive(s: Conserve, job: int, now: int) -> None:
    """Start a newcomer whom nobody waits before, if it fits; else promise it something."""
    vc = vc_of(s, job)
    first = s.work.first_entry[job]
    if s.p.first[vc] == NOBODY:
        stop = place_quick(s.hw, s.work.classes[s.work.job_class[job]], ANY_TYPE, s.log.held, first)
        if stop != NOWHERE:
            s.log.stop_entry[job] = stop
            promise(s, job, now)
            book(s, job, now, ZERO - 1)
            begin(s, job, now)
            return
    if plan(s, job, now, NEVER):
        s.p.loosened.seen[job] = s.p.loosened.clock[0]
        book(s, job, now, ZERO - 1)
    else:
        s.p.start[job] = TORN
    join_line(s, job)


@melted
def all_events(s: Conserve, now: int) -> None:
    """Let all jobs go that end now; correct predictions that prove too short now."""
    p = s.p
    while s.log.counters[RUNNING] > 0 and p.events.when[0] == now:
        job = p.events.who[0]
        if s.log.end[job] == now:
            end(s, job, now)
        else:
            correct(s, job, now)


@melted
def keep_promises(s: Conserve, now: int) -> None:
    """Start everybody who was promised now."""
    p = s.p
    while s.log.counters[WAITING] > 0 and p.starts.when[0] == now:
        job = p.starts.who[0]
        leave_line(s, job)
        retake(s.hw, s.log.held, s.work.first_entry[job], s.log.stop_entry[job])
        begin(s, job, now)


@melted
def settle_promises(s: Conserve, now: int) -> None:
    """Make new promises where old ones were taken back, and better ones where something came free."""
    p = s.p
    for vc in range(len(p.first)):
        if p.is_torn[vc] == 1:
            mend(s, vc, now)
        if p.is_loose[vc] == 1:
            tighten(s, vc, now)


@entry
def run(s: Conserve, x: Events | None) -> int:
    """Replay until all have ended or nothing helps those who wait, or Python shall have its turn; say which.

    ``x`` is None where all nodes stay.
    """
    submit, counters, p = s.work.submit, s.log.counters, s.p
    n = len(submit)
    while counters[NEXT] < n or counters[RUNNING] > 0 or counters[WAITING] > 0:
        job = counters[NEXT]
        now = min(submit[job] if job < n else NEVER, next_event(x))
        if counters[RUNNING] > 0:
            now = min(now, p.events.when[0])
        if counters[WAITING] > 0:
            now = min(now, p.starts.when[0])
        if is_unfinished(s.work.closed):
            now = counters[NOW]
        if now == NEVER:
            break
        why = begin_instant(s.log, now)
        if why != FINISHED:
            return why
        all_events(s, now)
        # Asked before anybody starts: who has no length must not end before the others arrive.
        learn(s.work.closed)
        take_stock(s.work.closed, x, s.log, now)
        if must_ask(s.log, submit, job, now) or must_tell(s.work.closed):
            return ASKED
        renew(s, s.work.closed, now)
        node_events(s, x, now)
        settle_promises(s, now)
        keep_promises(s, now)
        while job < n and submit[job] == now:
            note(s.log.tape, now, SUBMITTED, job)
            foresee(s.work.closed, job)
            arrive(s, job, now)
            job += 1
        counters[NEXT] = job
        keep_promises(s, now)
        counters[MOST_WAITING] = max(counters[MOST_WAITING], counters[WAITING])
    return FINISHED
