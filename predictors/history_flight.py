"""Compiled core of in-flight features: who waits and runs at an instant; batch and streaming both call it.

All sums are whole numbers (thousandths of a GPU or CPU, milliseconds, whole seconds of predicted work), so that nothing
is left over when the last job has gone and the order of events at one instant does not show.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictors.history_kernel import NO_KEY, Wanted, compiled

__all__ = [
    "FIELDS",
    "FLIGHT_STATS",
    "JOB_FIELDS",
    "NEVER",
    "Question",
    "Rows",
    "Steps",
    "ask_all",
    "batch_pass",
    "flight_pass",
    "join_batch",
    "move_all",
    "position",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Places of the statistics in a row of ``columns``.
FLIGHT_STATS: Final = (
    "unfinished",
    "unfinished_gpus",
    "unfinished_cpus",
    "pending",
    "pending_gpus",
    "pending_cpus",
    "pending_gpu_s",
    "pending_cpu_s",
    "running",
    "running_gpus",
    "running_cpus",
    "elapsed_mean_s",
    "since_submit_s",
)
NEVER: Final = -(2**62)
#: What is kept of a slot: jobs that wait and run, their milli-GPUs and milli-CPUs, predicted work of those that wait,
#: the sum of the starts, the last submission and its job, and the last one of another job.
WAIT, RUN, WAIT_GPUS, WAIT_CPUS, RUN_GPUS, RUN_CPUS, GPU_WORK, CPU_WORK, STARTS, LAST, LAST_JOB, BEFORE = range(12)
FIELDS: Final = 12
#: What is kept of a job: milli-GPUs, milli-CPUs, predicted work of each, start [ms], and where it is.
GPUS, CPUS, JOB_GPU_WORK, JOB_CPU_WORK, START, PHASE = range(6)
JOB_FIELDS: Final = 6
#: Where a job is.
UNSEEN, PENDING, RUNNING, GONE = range(4)
MINUTE_US: Final = 60_000_000
#: No prediction of work is longer [s].
LONGEST_S: Final = 1e8
MS_PER_S: Final = 1000.0
US_PER_S: Final = 1e6


@compiled
def add_waiting(slot: Ints, job: Ints, sign: int) -> None:
    """Add a job to those of a slot that wait, or take it away."""
    slot[WAIT] += sign
    slot[WAIT_GPUS] += sign * job[GPUS]
    slot[WAIT_CPUS] += sign * job[CPUS]
    slot[GPU_WORK] += sign * job[JOB_GPU_WORK]
    slot[CPU_WORK] += sign * job[JOB_CPU_WORK]


@compiled
def add_running(slot: Ints, job: Ints, sign: int) -> None:
    """Add a job to those of a slot that run, or take it away."""
    slot[RUN] += sign
    slot[RUN_GPUS] += sign * job[GPUS]
    slot[RUN_CPUS] += sign * job[CPUS]
    slot[STARTS] += sign * job[START]


@compiled
def take_in(slot: Ints, job: Ints, phase: int, when: int, serial: int) -> None:
    """Move a job of a slot to another phase; ``when`` is its submission [us]. The caller writes the job's own phase."""
    if phase == PENDING:
        add_waiting(slot, job, 1)
        if slot[LAST_JOB] != serial:
            slot[BEFORE] = slot[LAST]
        slot[LAST], slot[LAST_JOB] = when, serial
        return
    if job[PHASE] == PENDING:
        add_waiting(slot, job, -1)
    elif job[PHASE] == RUNNING:
        add_running(slot, job, -1)
    if phase == RUNNING:
        add_running(slot, job, 1)


@compiled
def put(wanted: Wanted, row: int, stat: int, value: float) -> None:
    """Write a statistic if it is wanted."""
    if wanted.columns[stat] >= 0:
        wanted.out[wanted.columns[stat], row] = value


@compiled
def ask(slot: Ints, job: Ints, serial: int, now: int, has_starts: int, wanted: Wanted, row: int) -> None:
    """Write what waits and runs in a slot beside the job itself; before any start was seen only their sum is known."""
    if job[PHASE] == PENDING:
        add_waiting(slot, job, -1)
    elif job[PHASE] == RUNNING:
        add_running(slot, job, -1)
    put(wanted, row, 0, slot[WAIT] + slot[RUN])
    put(wanted, row, 1, (slot[WAIT_GPUS] + slot[RUN_GPUS]) / 1000)
    put(wanted, row, 2, (slot[WAIT_CPUS] + slot[RUN_CPUS]) / 1000)
    if has_starts:
        put(wanted, row, 3, slot[WAIT])
        put(wanted, row, 4, slot[WAIT_GPUS] / 1000)
        put(wanted, row, 5, slot[WAIT_CPUS] / 1000)
        put(wanted, row, 6, slot[GPU_WORK] / 1000)
        put(wanted, row, 7, slot[CPU_WORK] / 1000)
        put(wanted, row, 8, slot[RUN])
        put(wanted, row, 9, slot[RUN_GPUS] / 1000)
        put(wanted, row, 10, slot[RUN_CPUS] / 1000)
        if slot[RUN] > 0:
            put(wanted, row, 11, (slot[RUN] * (now // 1000) - slot[STARTS]) / slot[RUN] / MS_PER_S)
    last = slot[BEFORE] if slot[LAST_JOB] == serial else slot[LAST]
    if last != NEVER:
        put(wanted, row, 12, (now - last) / US_PER_S)
    if job[PHASE] == PENDING:
        add_waiting(slot, job, 1)
    elif job[PHASE] == RUNNING:
        add_running(slot, job, 1)


class Steps(NamedTuple):
    """Jobs of a log in the order of their submissions, and the orders of their starts and of their leaving."""

    submit: Ints
    start: Ints
    leave: Ints
    by_start: Ints
    by_leave: Ints


class Rows(NamedTuple):
    """Rows that ask: their order, instants [us], submissions of the log that came before, own place in it, own ones."""

    order: Ints
    now: Ints
    barrier: Ints
    own: Ints  # -1 = it is not in the log
    came: Ints


@compiled
def move(slots: Ints, jobs: Ints, job_slot: Ints, job: int, phase: int, when: int) -> None:
    """Move a job of the log to another phase; what has gone does not start."""
    if phase == RUNNING and jobs[job, PHASE] != PENDING:
        return
    if job_slot[job] >= 0:
        take_in(slots[job_slot[job]], jobs[job], phase, when, job)
    jobs[job, PHASE] = phase


@compiled
def flight_pass(slots: Ints, jobs: Ints, steps: Steps, job_slot: Ints, rows: Rows, wanted: Wanted) -> None:
    """Describe rows by the jobs of a log that wait and run at their instants.

    ``slots`` and ``jobs`` have one row more than there are slots and jobs, for rows whose key or job is not in the log.
    """
    s, t, u, num_starts = 0, 0, 0, 0
    for row in rows.order:
        now = rows.now[row]
        while s < rows.barrier[row]:
            move(slots, jobs, job_slot, s, PENDING, steps.submit[s])
            s += 1
        while t < len(steps.by_start) and steps.start[steps.by_start[t]] < now:
            move(slots, jobs, job_slot, steps.by_start[t], RUNNING, 0)
            num_starts += 1
            t += 1
        while u < len(steps.by_leave) and steps.leave[steps.by_leave[u]] < now:
            move(slots, jobs, job_slot, steps.by_leave[u], GONE, 0)
            u += 1
        slot, own = wanted.slot[row], rows.own[row]
        if slot == NO_KEY:
            continue
        # A row that says another key than the log is not taken out of that key's sums.
        job = own if own >= 0 and job_slot[own] == slot else len(jobs) - 1
        ask(slots[slot], jobs[job], job, now, num_starts, wanted, row)


@compiled
def position(batches: Ints, slot: int, when: int) -> int:
    """Number of jobs that were submitted before with the same request in the same minute."""
    if slot < 0 or batches[slot, 0] != when // MINUTE_US:
        return 0
    return int(batches[slot, 1])


@compiled
def join_batch(batches: Ints, slot: int, when: int) -> int:
    """Take in a submission; returns its position in its batch."""
    place = position(batches, slot, when)
    batches[slot, 0], batches[slot, 1] = when // MINUTE_US, place + 1
    return place


@compiled
def batch_pass(batches: Ints, submit: Ints, places: Ints, job_slot: Ints, rows: Rows, wanted: Wanted) -> None:
    """Write each row's position in its batch, as it was when its job came."""
    s = 0
    for row in rows.order:
        while s < rows.barrier[row]:
            if job_slot[s] >= 0:
                places[s] = join_batch(batches, job_slot[s], submit[s])
            s += 1
        slot, own = wanted.slot[row], rows.own[row]
        if slot == NO_KEY:
            continue
        put(wanted, row, 0, places[own] if 0 <= own < s else position(batches, slot, rows.came[row]))


@compiled
def move_all(slots: Ints, of_job: Ints, job: Ints, phase: int, when: int, serial: int) -> None:
    """Move one job to another phase in all its slots."""
    if phase == RUNNING and job[PHASE] != PENDING:
        return
    for slot in of_job:
        if slot >= 0:
            take_in(slots[slot], job, phase, when, serial)
    job[PHASE] = phase


class Question(NamedTuple):
    """What one job asks of each of its keys: the slots, and per key which statistic goes to which row of ``out``."""

    slot: Ints
    columns: Ints
    out: Floats


@compiled
def ask_all(slots: Ints, question: Question, job: Ints, serial: int, now: int, has_starts: int) -> None:
    """Answer one job for all its keys; a slot of -2 stands for the last row of ``slots``, where nobody is."""
    for key in range(len(question.slot)):
        slot = question.slot[key]
        if slot != NO_KEY:
            place = slot if slot >= 0 else len(slots) - 1
            ask(
                slots[place],
                job,
                serial,
                now,
                has_starts,
                Wanted(question.slot, question.columns[key], question.out),
                0,
            )
