"""EASY backfill: one pass over the queue of a VC."""

from __future__ import annotations

from typing import Final

from analysis.replay._backfill import (
    NOBODY,
    Backfill,
    add_runner,
    drop_runner,
    first_within,
    leave,
    next_due,
    shorten,
    wait,
)
from analysis.replay._compiled import ZERO, compiled, constant, melted
from analysis.replay._place import ANY_TYPE, NOWHERE, fitting_type
from analysis.replay._reserve import find_shadow, hide, outlast, show
from analysis.replay._state import State, start

# What is known after a pass that started nobody. Old candidates need no second look at an arrival while it holds:
# nobody who waits fits at all; or nobody may start beside the reservation, whose instant does not move with the clock
# (it does while a running job is overdue).
UNKNOWN: Final = 0
NONE_MAY: Final = 1
NONE_FITS: Final = 2
# What ``look`` asks.
ANYWHERE, BESIDE = constant(0), constant(1)


@melted
def easy_arrive(s: State, b: Backfill, job: int) -> None:
    """Put a job into the queue."""
    wait(b, s.work.job_class[job], job)


@melted
def easy_end(b: Backfill, vc: int, job: int) -> None:
    """Forget a running job."""
    drop_runner(b, vc, job)
    b.settled[vc] = UNKNOWN


@compiled
def easy_start(s: State, b: Backfill, vc: int, rank: int, now: int) -> bool:
    """Start the job of a rank; False if it does not fit."""
    job = s.queues.place_at[rank]
    if not start(s, job, ANY_TYPE, now):
        return False
    c = s.work.job_class[job]
    leave(b, c, job)
    add_runner(b, vc, job, now + predicted_here(s, b, job))
    return True


@melted
def predicted_here(s: State, b: Backfill, job: int) -> int:
    """Predicted microseconds of a job on the type where it runs."""
    return int(b.predicted[job, s.log.column[job]])


@melted
def head_rank(b: Backfill, vc: int) -> int:
    """Rank of the first waiting job of a VC; NOBODY if none waits."""
    head = NOBODY
    for c in range(b.vc_classes[vc], b.vc_classes[vc + 1]):
        head = min(head, b.first[c])
    return head


@melted
def is_overdue(b: Backfill, vc: int, now: int) -> bool:
    """Tell whether a running job should have ended already."""
    return bool(next_due(b, vc, ZERO) <= now)


@compiled
def easy_pass(s: State, b: Backfill, vc: int, now: int) -> None:
    """Start jobs from the head; reserve for the one that does not fit; backfill behind it."""
    known = b.settled[vc]
    head = head_rank(b, vc)
    while head != NOBODY and easy_start(s, b, vc, head, now):
        known = UNKNOWN
        head = head_rank(b, vc)
    if head != b.last_head[vc] or (known == NONE_MAY and is_overdue(b, vc, now)):
        known = UNKNOWN
    b.last_head[vc] = head
    if head == NOBODY:
        b.settled[vc] = UNKNOWN
        return
    num_live = candidates(s, b, vc, known)
    if num_live == 0:
        b.settled[vc] = known if known != UNKNOWN else NONE_FITS
        return
    shadow = find_shadow(s, b, s.work.classes[s.work.job_class[s.queues.place_at[head]]], now)
    shorten(b, vc)
    started = backfill(s, b, vc, num_live, now, shadow)
    b.settled[vc] = NONE_MAY if started == 0 and not is_overdue(b, vc, now) else UNKNOWN


@melted
def candidates(s: State, b: Backfill, vc: int, known: int) -> int:
    """List the classes where somebody waits and may fit; those without newcomers may be known to be hopeless."""
    live = s.log.live
    num_live = ZERO
    for c in range(b.vc_classes[vc], b.vc_classes[vc + 1]):
        if b.first[c] != NOBODY and (known == UNKNOWN or b.fresh[c] == 1):
            live[num_live] = c
            num_live += 1
        b.fresh[c] = 0
    return look(s, b, num_live, ANYWHERE)


@compiled
def look(s: State, b: Backfill, num_live: int, where: int) -> int:
    """Find out which classes of the list fit now.

    ANYWHERE: keep those that do, note the speed column that they would run on, and return how many they are. BESIDE:
    only note which fit with the reservation hidden.
    """
    live = s.log.live
    if where == BESIDE:
        hide(s.hw, b)
    kept = ZERO
    for k in range(num_live):
        c = live[k]
        fits = NOWHERE
        if b.first[c] != NOBODY:
            fits = fitting_type(s.hw, s.work.classes[c], ANY_TYPE, s.log.scratch)
        if where == BESIDE:
            s.log.beside[k] = fits != NOWHERE
        elif fits != NOWHERE:
            live[kept], s.log.where[kept] = c, s.work.column[fits]
            kept += 1
    if where == BESIDE:
        show(s.hw, b)
    return kept


@compiled
def backfill(s: State, b: Backfill, vc: int, num_live: int, now: int, shadow: int) -> int:
    """Start, in queue order, those who may; return how many.

    One goes where best fit puts it if it ends in time there, as predicted; else beside the reservation.
    """
    live, span = s.log.live, shadow - now
    started = ZERO
    while num_live > 0:
        look(s, b, num_live, BESIDE)
        best, column = NOBODY, ZERO
        for k in range(num_live):
            rank = b.first[live[k]] if s.log.beside[k] else first_within(b, live[k], s.log.where[k], span)
            if rank < best:
                best, column = rank, s.log.where[k]
        if best == NOBODY:
            break
        job = s.queues.place_at[best]
        ends_in_time = b.predicted[job, column] <= span
        if not ends_in_time:
            hide(s.hw, b)
        easy_start(s, b, vc, best, now)
        if not ends_in_time:
            show(s.hw, b)
            if predicted_here(s, b, job) > span:
                outlast(s, b, job)
        started += 1
        num_live = look(s, b, num_live, ANYWHERE)
    return started
