"""EASY backfill: one pass over the queue of a VC."""

from __future__ import annotations

from typing import Final

from analysis.replay._backfill import NOBODY, Backfill, add_runner, drop_runner, first_within, leave, wait
from analysis.replay._compiled import ZERO, compiled
from analysis.replay._place import ANY_TYPE, NOWHERE, fitting_type
from analysis.replay._reserve import find_shadow, hide, outlast, show
from analysis.replay._state import State, start

# What is known after a pass that started nobody. Old candidates need no second look at an arrival while it holds:
# nobody who waits fits at all; or nobody may start beside the reservation, whose instant does not move with the clock
# (it does while a running job is overdue).
UNKNOWN: Final = 0
NONE_MAY: Final = 1
NONE_FITS: Final = 2


@compiled
def easy_arrive(s: State, b: Backfill, job: int) -> None:
    """Put a job into the queue."""
    wait(b, s.work.job_class[job], job)


@compiled
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


@compiled
def predicted_here(s: State, b: Backfill, job: int) -> int:
    """Predicted microseconds of a job on the type where it runs."""
    return b.predicted[job, s.log.column[job]]


@compiled
def head_rank(b: Backfill, vc: int) -> int:
    """Rank of the first waiting job of a VC; NOBODY if none waits."""
    head = NOBODY
    for c in range(b.vc_classes[vc], b.vc_classes[vc + 1]):
        head = min(head, b.first[c])
    return head


@compiled
def is_overdue(b: Backfill, vc: int, now: int) -> bool:
    """Tell whether a running job should have ended already."""
    return b.runners[vc] > 0 and b.end[b.runner0[vc]] <= now


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
    row = s.work.classes[s.work.job_class[s.queues.place_at[head]]]
    shadow = find_shadow(s, b, row, now)
    started = 0
    while num_live > 0:
        rank, num_live = next_candidate(s, b, num_live, shadow - now)
        if rank == NOBODY:
            break
        backfill(s, b, vc, rank, now, shadow)
        started += 1
    b.settled[vc] = NONE_MAY if started == 0 and not is_overdue(b, vc, now) else UNKNOWN


@compiled
def candidates(s: State, b: Backfill, vc: int, known: int) -> int:
    """List the classes that have somebody waiting who fits now; those without newcomers may be known to be hopeless."""
    live = s.log.live
    num_live = ZERO
    for c in range(b.vc_classes[vc], b.vc_classes[vc + 1]):
        look = b.first[c] != NOBODY and (known == UNKNOWN or b.fresh[c] == 1)
        b.fresh[c] = 0
        if look and fitting_type(s.hw, s.work.classes[c], ANY_TYPE, s.log.scratch) != NOWHERE:
            live[num_live] = c
            num_live += 1
    return num_live


@compiled
def next_candidate(s: State, b: Backfill, num_live: int, span: int) -> tuple[int, int]:
    """First job in queue order that may start now; and how many classes are still worth a look."""
    live, where = s.log.live, s.log.where
    kept = ZERO
    for k in range(num_live):
        gpu_type = fitting_type(s.hw, s.work.classes[live[k]], ANY_TYPE, s.log.scratch)
        if gpu_type != NOWHERE and b.first[live[k]] != NOBODY:
            live[kept], where[kept] = live[k], s.work.column[gpu_type]
            kept += 1
    hide(s.hw, b)
    best = NOBODY
    for k in range(kept):
        c = live[k]
        if fitting_type(s.hw, s.work.classes[c], ANY_TYPE, s.log.scratch) != NOWHERE:
            best = min(best, b.first[c])
        else:
            best = min(best, first_within(b, c, where[k], span))
    show(s.hw, b)
    return best, kept


@compiled
def backfill(s: State, b: Backfill, vc: int, rank: int, now: int, shadow: int) -> None:
    """Start a candidate: where best fit puts it if it ends in time there, else beside the reservation."""
    job = s.queues.place_at[rank]
    gpu_type = fitting_type(s.hw, s.work.classes[s.work.job_class[job]], ANY_TYPE, s.log.scratch)
    if b.predicted[job, s.work.column[gpu_type]] <= shadow - now:
        easy_start(s, b, vc, rank, now)
        return
    hide(s.hw, b)
    easy_start(s, b, vc, rank, now)
    show(s.hw, b)
    outlast(s, b, job)
