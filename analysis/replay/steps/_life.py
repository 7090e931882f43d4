"""A job's life in the step-wise engine: it waits, runs, is stopped, ends; and the rosters that it is on."""

from __future__ import annotations

import math

import numpy as np

from analysis.replay._compiled import ZERO, melted
from analysis.replay._hardware import release
from analysis.replay._heap import float_up, take_out
from analysis.replay._place import ANY_TYPE, NOWHERE, VC, place_quick, type_of
from analysis.replay._scores import count_start
from analysis.replay._state import NEVER, RUNNING, WAITING, note_job
from analysis.replay._tape import ENDED, PREEMPTED, STARTED
from analysis.replay.steps._box import compiled
from analysis.replay.steps._state import (
    DONE,
    LAST_SUBMIT,
    MIN_RUN,
    NUM_ENDED,
    NUM_STARTED,
    RUNS,
    WAITS,
    Roster,
    Steps,
    Use,
)

LN2 = math.log(2.0)

# --- rosters ---------------------------------------------------------------------------------------------------------


@compiled
def seat_of(r: Roster, v: int, job: int) -> int:
    """Place where a job stands, or would stand."""
    low, high = r.first[v], r.first[v] + r.length[v]
    if high == low or r.job[high - 1] < job:
        return int(high)
    while low < high:
        middle = (low + high) // 2
        if r.job[middle] < job:
            low = middle + 1
        else:
            high = middle
    return int(low)


@compiled
def make_way(r: Roster, v: int) -> None:
    """Slide a VC's jobs to the middle of their room."""
    n, old = r.length[v], r.first[v]
    new = r.base[v] + (r.base[v + 1] - r.base[v] - n) // 2
    for i in range(n):
        r.job[new + i] = r.job[old + i]
    r.first[v] = new


@compiled
def join(r: Roster, v: int, job: int) -> None:
    """Enter a job."""
    if r.first[v] + r.length[v] == r.base[v + 1] and r.first[v] > r.base[v]:
        make_way(r, v)
    first, n = r.first[v], r.length[v]
    at = seat_of(r, v, job)
    r.length[v] = n + 1
    if first + n == r.base[v + 1] or (first > r.base[v] and at - first < n // 2):
        for i in range(first - 1, at - 1):
            r.job[i] = r.job[i + 1]
        r.job[at - 1] = job
        r.first[v] = first - 1
        return
    for i in range(first + n, at, -1):
        r.job[i] = r.job[i - 1]
    r.job[at] = job


@compiled
def leave(r: Roster, v: int, job: int) -> None:
    """Strike a job off."""
    first, n = r.first[v], r.length[v]
    at = seat_of(r, v, job)
    r.length[v] = n - 1
    if at - first < n // 2:
        for i in range(at, first, -1):
            r.job[i] = r.job[i - 1]
        r.first[v] = first + 1
    else:
        for i in range(at, first + n - 1):
            r.job[i] = r.job[i + 1]


# --- a job's life ----------------------------------------------------------------------------------------------------


@melted
def vc_of(s: Steps, job: int) -> int:
    """VC of a job."""
    return int(s.work.classes[s.work.job_class[job], VC])


@melted
def ratio_of(s: Steps, job: int) -> float:
    """Run time over work where a job runs."""
    ratio = s.kept.ratio
    return float(ratio[job if len(ratio) > 1 else ZERO, s.log.column[job]] * s.kept.slowdown[job])


@melted
def scaled(value: int, ratio: float) -> int:
    """Round to the nearest whole microsecond, half to even."""
    return value if ratio == 1.0 else int(np.rint(value * ratio))


@compiled
def count_use(u: Use, job: int, milli: int, now: int) -> None:
    """Bring an owner's use up to date, and change what it holds from now on."""
    if len(u.owner) == 0:
        return
    a = u.owner[job]
    since = now - u.at[a]
    if since > 0:
        half_life = u.half_life[0]
        if half_life == np.inf:
            u.gpu_time[a] += float(u.milli[a]) * since
        else:
            lost = -math.expm1(-LN2 * since / half_life)
            u.gpu_time[a] += (u.milli[a] * (half_life / LN2) - u.gpu_time[a]) * lost
        u.at[a] = now
    u.milli[a] += milli


@compiled
def begin_run(s: Steps, job: int, stop_entry: int, now: int) -> None:
    """Let a waiting job run that has been placed."""
    k, log, c = s.kept, s.log, s.work.job_class[job]
    v = s.work.classes[c, VC]
    leave(k.waiting, v, job)
    k.num_waiting[c] -= 1
    count_start(s.hw.scores, v)
    log.stop_entry[job] = stop_entry
    log.column[job] = s.work.column[type_of(s.hw, log.held.item[s.work.first_entry[job]])]
    restart = k.restart[c] if k.stops[job] > 0 else ZERO
    if log.start[job] < 0:
        log.start[job] = now
    log.end[job] = now + restart + scaled(k.left[job], ratio_of(s, job))
    k.begin[job] = now
    k.status[job] = RUNS
    join(k.running, v, job)
    float_up(k.ends, log.counters[RUNNING], log.end[job], job)
    log.counters[RUNNING] += 1
    log.counters[WAITING] -= 1
    if k.config[NUM_STARTED] < len(k.started):
        # Whoever is stopped and started again and again at one instant could need more.
        k.started[k.config[NUM_STARTED]] = job
    k.config[NUM_STARTED] += 1
    count_use(k.use, job, k.milli[c], now)
    note_job(s.hw, s.work, log, STARTED, job, now)


@melted
def forget_run(s: Steps, job: int, now: int) -> None:
    """Take a job off all lists of running jobs, and count the time that it held its GPUs."""
    s.log.counters[RUNNING] -= 1
    take_out(s.kept.ends, s.log.counters[RUNNING], job)
    leave_run(s, job, now)


@melted
def leave_run(s: Steps, job: int, now: int) -> None:
    """Do that but for the heap of ends."""
    k, begin = s.kept, s.kept.begin[job]
    leave(k.running, vc_of(s, job), job)
    k.held[job] += now - begin
    k.early[job] += max(min(now, k.config[LAST_SUBMIT]) - begin, 0)
    count_use(k.use, job, -k.milli[s.work.job_class[job]], now)


@compiled
def end_run(s: Steps, job: int, now: int) -> None:
    """Let a job go that has done its work."""
    k = s.kept
    release(s.hw, s.log.held, s.work.first_entry[job], s.log.stop_entry[job])
    forget_run(s, job, now)
    note_job(s.hw, s.work, s.log, ENDED, job, now)
    if k.stops[job] > 0:
        k.wasted[job] += k.restart[s.work.job_class[job]]
    k.left[job] = 0
    k.status[job] = DONE
    k.ended[k.config[NUM_ENDED]] = job
    k.config[NUM_ENDED] += 1


@compiled
def stop_run(s: Steps, job: int, now: int) -> None:
    """Let a job wait again whose GPUs have been released."""
    k, c = s.kept, s.work.job_class[job]
    ran = now - k.begin[job]
    restart = k.restart[c] if k.stops[job] > 0 else ZERO
    useful = max(ran - restart - k.checkpoint[c], 0)
    ratio = ratio_of(s, job)
    done = min(useful if ratio == 1.0 else int(useful / ratio), k.left[job])
    forget_run(s, job, now)
    s.log.end[job] = NEVER
    note_job(s.hw, s.work, s.log, PREEMPTED, job, now)
    k.left[job] -= done
    k.wasted[job] += ran - useful
    wait_again(s, job)


@melted
def wait_again(s: Steps, job: int) -> None:
    """Let a job wait that must start again."""
    k, c = s.kept, s.work.job_class[job]
    k.stops[job] += 1
    k.slowdown[job] = 1.0
    k.status[job] = WAITS
    join(k.waiting, s.work.classes[c, VC], job)
    k.num_waiting[c] += 1
    s.log.counters[WAITING] += 1


@melted
def may_stop(s: Steps, job: int, now: int) -> bool:
    """Tell whether a running job's minimum run time is over."""
    return bool(now >= s.kept.begin[job] + s.kept.config[MIN_RUN])


@melted
def try_start(s: Steps, job: int, now: int) -> bool:
    """Start a waiting job if it fits."""
    row = s.work.classes[s.work.job_class[job]]
    stop = place_quick(s.hw, row, ANY_TYPE, s.log.held, s.work.first_entry[job])
    if stop == NOWHERE:
        return False
    begin_run(s, job, stop, now)
    return True
