"""What Python calls: on to the next instant; start and stop jobs; one pass. Entries take the state out of its box."""

from __future__ import annotations

from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, constant, melted
from analysis.replay._events import next_event
from analysis.replay._hardware import release
from analysis.replay._place import ANY_TYPE, NOWHERE, fitting_type, grab, place_quick
from analysis.replay._state import MOST_WAITING, NEVER, NOW, RUNNING, UNTIL, WAITING
from analysis.replay._tape import SUBMITTED, is_full, note
from analysis.replay.steps import _passes
from analysis.replay.steps._box import Box, compiled, entry
from analysis.replay.steps._life import begin_run, end_run, join, may_stop, stop_run, try_start, vc_of
from analysis.replay.steps._nodes import node_events
from analysis.replay.steps._state import IS_PAUSED, NEXT, NUM_ENDED, NUM_STARTED, RUNS, WAITS, Steps

# What became of an attempt to start or to stop a job.
NO_ROOM, DID, WRONG_STATUS = constant(0), constant(1), constant(-1)
# In place of an instant: nothing more until then; the tape must be taken off first.
REACHED, FULL = constant(-1), constant(-2)

# --- jobs ------------------------------------------------------------------------------------------------------------


@compiled
def fits_in(s: Steps, job: int) -> bool:
    """Tell whether a job would find room now."""
    return bool(fitting_type(s.hw, s.work.classes[s.work.job_class[job]], ANY_TYPE, s.log.scratch) != NOWHERE)


@compiled
def start_job_in(s: Steps, job: int, now: int) -> int:
    """Start a waiting job; NO_ROOM if it does not fit."""
    if s.kept.status[job] != WAITS:
        return WRONG_STATUS
    return DID if try_start(s, job, now) else NO_ROOM


@compiled
def start_row_in(s: Steps, job: int, row: I64, now: int) -> int:
    """Start a waiting job as a row of the class table asks that is not its own; NO_ROOM if that does not fit."""
    if s.kept.status[job] != WAITS:
        return WRONG_STATUS
    stop = place_quick(s.hw, row, ANY_TYPE, s.log.held, s.work.first_entry[job])
    if stop == NOWHERE:
        return NO_ROOM
    begin_run(s, job, stop, now)
    return DID


@compiled
def start_on_in(s: Steps, job: int, nodes: I64, gpus: I64, slowdown: float, now: int) -> int:
    """Start a waiting job on whole GPUs of nodes, so many of each; NO_ROOM if they are not free."""
    if s.kept.status[job] != WAITS:
        return WRONG_STATUS
    for i in range(len(nodes)):
        if s.hw.free[nodes[i]] < gpus[i]:
            return NO_ROOM
    at = s.work.first_entry[job]
    for i in range(len(nodes)):
        at = grab(s.hw, nodes[i], gpus[i], s.log.held, at)
    s.kept.slowdown[job] = slowdown
    begin_run(s, job, at, now)
    return DID


@compiled
def start_jobs_in(s: Steps, jobs: I64, now: int, blocks: bool) -> int:  # noqa: FBT001 - numba takes no keywords
    """Start waiting jobs in the order given; where one does not fit, end or pass over it. Return how many started.

    Others are passed over that ask for the same as one that did not fit. Nobody starts, and the answer is below 0, if
    one of them does not wait.
    """
    k, started = s.kept, ZERO
    for i in range(len(jobs)):
        if k.status[jobs[i]] != WAITS:
            return -1 - i
        k.best[s.work.job_class[jobs[i]]] = 0
    for i in range(len(jobs)):
        c = s.work.job_class[jobs[i]]
        if k.best[c] == 0 and k.status[jobs[i]] == WAITS:
            if try_start(s, jobs[i], now):
                started += 1
            elif blocks:
                return started
            else:
                k.best[c] = 1
    return started


@compiled
def stop_job_in(s: Steps, job: int, now: int) -> int:
    """Stop a running job; NO_ROOM if its minimum run time is not over."""
    if s.kept.status[job] != RUNS:
        return WRONG_STATUS
    if not may_stop(s, job, now):
        return NO_ROOM
    release(s.hw, s.log.held, s.work.first_entry[job], s.log.stop_entry[job])
    stop_run(s, job, now)
    return DID


# --- time ------------------------------------------------------------------------------------------------------------


@melted
def touch(s: Steps, vc: int) -> None:
    """Note that something happened in a VC."""
    touched, marks = s.log.touched, s.log.marks
    if marks[vc] == 0:
        touched[0] += 1
        touched[touched[0]] = vc
        marks[vc] = 1


@melted
def arrive(s: Steps, job: int) -> None:
    """Let a new job wait."""
    v = vc_of(s, job)
    s.kept.status[job] = WAITS
    join(s.kept.waiting, v, job)
    s.kept.num_waiting[s.work.job_class[job]] += 1
    s.log.counters[WAITING] += 1
    touch(s, v)
    note(s.log.tape, s.work.submit[job], SUBMITTED, job)


@melted
def next_instant(s: Steps, timer: int) -> int:
    """When something happens next; NEVER if nothing is left to happen."""
    k, counters = s.kept, s.log.counters
    job = k.config[NEXT]
    now = s.work.submit[job] if job < len(s.work.submit) else NEVER
    if counters[RUNNING] > 0:
        now = min(now, k.ends.when[0])
    if now == NEVER and counters[WAITING] == 0:
        return NEVER
    return int(min(min(now, timer), next_event(s.events)))


@compiled
def happen(s: Steps, now: int) -> None:
    """Let all jobs go that end now, then happen to nodes what happens now, then all wait that arrive now."""
    k, submit, counters, touched = s.kept, s.work.submit, s.log.counters, s.log.touched
    counters[NOW] = now
    counters[MOST_WAITING] = max(counters[MOST_WAITING], counters[WAITING])
    for i in range(1, touched[0] + 1):
        s.log.marks[touched[i]] = 0
    touched[0] = 0
    while counters[RUNNING] > 0 and k.ends.when[0] == now:
        job = k.ends.who[0]
        end_run(s, job, now)
        touch(s, vc_of(s, job))
    node_events(s, s.events, now)
    job = k.config[NEXT]
    while job < len(submit) and submit[job] == now:
        arrive(s, job)
        job += 1
    k.config[NEXT] = job


@compiled
def anybody_fits(s: Steps, v: int) -> bool:
    """Tell whether some waiting job of a VC would find room now."""
    for c in range(s.kept.vc_classes[v], s.kept.vc_classes[v + 1]):
        if s.kept.num_waiting[c] > 0 and fitting_type(s.hw, s.work.classes[c], ANY_TYPE, s.log.scratch) != NOWHERE:
            return True
    return False


@melted
def is_quiet(s: Steps) -> bool:
    """Tell whether nobody fits in all the VCs where something happened."""
    is_quiet = True
    for i in range(1, s.log.touched[0] + 1):
        is_quiet = is_quiet and not anybody_fits(s, s.log.touched[i])
    return is_quiet


@compiled
def step_in(s: Steps, timer: int, is_lazy: bool) -> int:  # noqa: FBT001 - as above
    """Go on to the next instant: all ends, node events, all arrivals. NEVER if nothing is left to happen.

    ``timer`` is an instant at which every VC has a pass. Lazy: on to the first instant at which somebody fits.
    """
    k, counters = s.kept, s.log.counters
    if k.config[IS_PAUSED] == 0:
        k.config[NUM_ENDED], k.config[NUM_STARTED] = 0, 0
    k.config[IS_PAUSED] = 0
    while True:
        now = next_instant(s, timer)
        if now == NEVER:
            return NEVER
        if now > counters[UNTIL]:
            counters[NOW] = counters[UNTIL]
            return REACHED
        if is_full(s.log.tape):
            k.config[IS_PAUSED] = 1
            return FULL
        happen(s, now)
        if now == timer:
            for v in range(len(s.log.marks)):
                touch(s, v)
            return now
        if not is_lazy or not is_quiet(s):
            return now


# --- entries ---------------------------------------------------------------------------------------------------------


@entry
def fits(box: Box, job: int) -> bool:
    """See ``fits_in``."""
    return fits_in(box.state, job)


@entry
def start_job(box: Box, job: int, now: int) -> int:
    """See ``start_job_in``."""
    return start_job_in(box.state, job, now)


@entry
def start_row(box: Box, job: int, row: I64, now: int) -> int:
    """See ``start_row_in``."""
    return start_row_in(box.state, job, row, now)


@entry
def start_on(box: Box, job: int, nodes: I64, gpus: I64, slowdown: float, now: int) -> int:
    """See ``start_on_in``."""
    return start_on_in(box.state, job, nodes, gpus, slowdown, now)


@entry
def start_jobs(box: Box, jobs: I64, now: int, blocks: bool) -> int:  # noqa: FBT001 - as above
    """See ``start_jobs_in``."""
    return start_jobs_in(box.state, jobs, now, blocks)


@entry
def stop_job(box: Box, job: int, now: int) -> int:
    """See ``stop_job_in``."""
    return stop_job_in(box.state, job, now)


@entry
def step(box: Box, timer: int, is_lazy: bool) -> int:  # noqa: FBT001 - as above
    """See ``step_in``."""
    return step_in(box.state, timer, is_lazy)


@entry
def strict_pass(box: Box, v: int, num: int, now: int) -> None:
    """See ``_passes.strict_pass``."""
    _passes.strict_pass(box.state, v, num, now)


@entry
def skip_pass(box: Box, v: int, now: int) -> None:
    """See ``_passes.skip_pass``."""
    _passes.skip_pass(box.state, v, now)


@entry
def preempting_pass(box: Box, v: int, behind: I64, now: int, blocks: bool) -> None:  # noqa: FBT001 - as above
    """See ``_passes.preempting_pass``."""
    _passes.preempting_pass(box.state, v, behind, now, blocks)
