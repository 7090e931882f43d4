"""A pass by given keys, lowest first, ties by (submit_time, job_id), with or without preemption."""

from __future__ import annotations

from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, constant, melted
from analysis.replay._hardware import release, retake
from analysis.replay._place import ANY_TYPE, NOWHERE, fitting_type, place
from analysis.replay._walk import take_again
from analysis.replay.steps._box import compiled
from analysis.replay.steps._life import begin_run, may_stop, stop_run, try_start
from analysis.replay.steps._state import COMING, F64, RUNS, Steps

NOBODY = constant(-1)
#: In place of a class's first job: none waits, or they do not fit.
OUT = constant(-2)


@compiled
def strict_pass(s: Steps, v: int, num: int, now: int) -> None:
    """Start waiting jobs of a VC by the keys in ``kept.key``, which has ``num`` of them, until one does not fit."""
    k = s.kept
    r = k.waiting
    while num > 0:
        i = ZERO
        for j in range(1, num):
            if k.key[j] < k.key[i]:
                i = ZERO + j
        if not try_start(s, r.job[r.first[v] + i], now):
            return
        num -= 1
        for j in range(i, num):
            k.key[j] = k.key[j + 1]


@melted
def best_of_classes(s: Steps, v: int) -> None:
    """Find the place of the first waiting job, by key, of every class that fits now."""
    k = s.kept
    r = k.waiting
    for c in range(k.vc_classes[v], k.vc_classes[v + 1]):
        is_out = k.num_waiting[c] == 0 or fitting_type(s.hw, s.work.classes[c], ANY_TYPE, s.log.scratch) == NOWHERE
        k.best[c] = OUT if is_out else NOBODY
    for i in range(r.length[v]):
        c = s.work.job_class[r.job[r.first[v] + i]]
        if k.best[c] == NOBODY or (k.best[c] >= 0 and k.key[i] < k.key[k.best[c]]):
            k.best[c] = i


@melted
def next_of_class(s: Steps, v: int, c: int) -> int:
    """Place of the first waiting job of one class by key; OUT if none waits."""
    k = s.kept
    r = k.waiting
    best = OUT
    if k.num_waiting[c] == 0:
        return best
    for i in range(r.length[v]):
        if s.work.job_class[r.job[r.first[v] + i]] == c and (best == OUT or k.key[i] < k.key[best]):
            best = ZERO + i
    return best


@melted
def first_class(s: Steps, v: int) -> int:
    """Class whose first job comes first; OUT if all are out."""
    k = s.kept
    own = OUT
    for c in range(k.vc_classes[v], k.vc_classes[v + 1]):
        i = k.best[c]
        if i < 0:
            continue
        if own == OUT or k.key[i] < k.key[k.best[own]] or (k.key[i] == k.key[k.best[own]] and i < k.best[own]):
            own = ZERO + c
    return own


@compiled
def skip_pass(s: Steps, v: int, now: int) -> None:
    """Start waiting jobs of a VC by the keys in ``kept.key``, passing over what does not fit.

    Whoever asks for the same as one that did not fit is passed over too.
    """
    k = s.kept
    r = k.waiting
    best_of_classes(s, v)
    while True:
        own = first_class(s, v)
        if own == OUT:
            return
        top = k.best[own]
        if not try_start(s, r.job[r.first[v] + top], now):
            k.best[own] = OUT
            continue
        for j in range(top, r.length[v]):
            k.key[j] = k.key[j + 1]
        for c in range(k.vc_classes[v], k.vc_classes[v + 1]):
            k.best[c] -= k.best[c] > top
        k.best[own] = next_of_class(s, v, own)


@melted
def comes_after(key: F64, one: int, other: int) -> bool:
    """Tell whether a job comes after another in the order."""
    return bool(key[one] > key[other] or (key[one] == key[other] and one > other))


@melted
def first_waiting(s: Steps, v: int) -> int:
    """First waiting job of a VC, by key, of a class that is not known to find no room; NOBODY if none is left."""
    k = s.kept
    r = k.waiting
    best = NOBODY
    for i in range(r.first[v], r.first[v] + r.length[v]):
        job = r.job[i]
        if k.best[s.work.job_class[job]] == 0 and (best == NOBODY or comes_after(k.key, best, job)):
            best = job
    return best


@compiled
def push_out(s: Steps, job: int, behind: I64, now: int) -> bool:
    """Stop running jobs from the last in the order on until a job fits, start it, give back what it did not need.

    ``behind`` are the running jobs, last first. False, and nothing happened, if the job does not fit even so.
    """
    k, held, row = s.kept, s.log.held, s.work.classes[s.work.job_class[job]]
    first, stop = s.work.first_entry, s.log.stop_entry
    num, fits_now = ZERO, False
    while not fits_now and num < len(behind) and comes_after(k.key, behind[num], job):
        one = behind[num]
        num += 1
        if k.status[one] == RUNS and may_stop(s, one, now):
            release(s.hw, held, first[one], stop[one])
            fits_now = fitting_type(s.hw, row, ANY_TYPE, s.log.scratch) != NOWHERE
    if not fits_now:
        for i in range(num):
            if k.status[behind[i]] == RUNS and may_stop(s, behind[i], now):
                retake(s.hw, held, first[behind[i]], stop[behind[i]])
        return False
    at = place(s.hw, row, ANY_TYPE, held, first[job])
    for i in range(num - 1, -1, -1):
        one = behind[i]
        if k.status[one] == RUNS and may_stop(s, one, now):
            # What has its GPUs again was never stopped.
            k.status[one] = RUNS if take_again(s, one) else COMING  # type: ignore[arg-type]
    for i in range(num):
        if k.status[behind[i]] == COMING:
            stop_run(s, behind[i], now)
    begin_run(s, job, at, now)
    return True


@compiled
def preempting_pass(s: Steps, v: int, behind: I64, now: int, blocks: bool) -> None:  # noqa: FBT001 - as above
    """Start waiting jobs of a VC by the keys of all its jobs in ``kept.key``, in place of those that come after them.

    ``behind`` are its running jobs, last in the order first.
    """
    k = s.kept
    for c in range(len(k.best)):
        k.best[c] = 0
    while True:
        job = first_waiting(s, v)
        if job == NOBODY:
            return
        if not try_start(s, job, now) and not push_out(s, job, behind, now):
            if blocks:
                return
            k.best[s.work.job_class[job]] = 1
