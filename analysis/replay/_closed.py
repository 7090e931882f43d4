"""Predictions in closed loop: what a replay may know of a job at its submission, from the jobs that ended in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, compiled

F64 = npt.NDArray[np.float64]
# Places in ``Closed.rule``.
LAST, IS_MEDIAN, DEFAULT, IS_ROLLING = 0, 1, 2, 3


class Renewal(NamedTuple):
    """What is kept where jobs that wait or run are predicted again: see ``_renew``."""

    facts: I64
    # Jobs that have arrived and not ended, in the order of submission, as of the last time:
    job: I64  # [n]
    kept: I64  # [n] work done before the last start that need not be done again [us on the hardware of the log]
    age: I64  # [n] … and what was done since
    is_running: I64  # [n]
    told: I64  # [n] the new prediction
    # Jobs.
    first: I64  # [n] predicted at the submission
    # What a group says of those that have done no work, and how many durations were known of it then.
    memo: I64  # [G]
    memo_seen: I64  # [G]


class Closed(NamedTuple):
    """What is learnt of jobs that end, and told of jobs that arrive."""

    rule: I64
    group: I64  # [L, n] group of a job on each level, in the order in which levels are asked; -1 = none
    ring: I64  # the last durations of each group [us on the hardware of the log]
    seen: I64  # [G] durations learnt so far
    value: I64  # [n] what a job's end teaches
    ratio: F64  # [n or 1, K] run time on speed column k over that on the hardware of the log
    guess: I64  # [n] predicted microseconds on the hardware of the log
    on_types: I64  # [n, K] … on the types of speed column k
    # Place in the order: offset + slope * guess.
    offset: F64  # [n]
    slope: F64  # [n]
    key: F64  # [n]
    ended: I64  # [n] jobs in the order in which they ended
    num_ended: I64  # [2] how many there are, and how many have been learnt of
    scratch: I64  # [k]
    renewal: Renewal | None = None  # where jobs are predicted more than once


@compiled
def note_end(c: Closed | None, job: int) -> None:
    """Note that a job has ended; nothing where predictions stand beforehand."""
    if c is None:
        return
    c.ended[c.num_ended[0]] = job
    c.num_ended[0] += 1


@compiled
def learn(c: Closed | None) -> None:
    """Take in the jobs that have ended since the last time, in the order of submission, whatever order they ended in.

    They have ended at the same instant: this is called once at each.
    """
    if c is None:
        return
    first, stop = c.num_ended[1], c.num_ended[0]
    c.num_ended[1] = stop
    for k in range(first + 1, stop):
        job = c.ended[k]
        i = k
        while i > first and c.ended[i - 1] > job:
            c.ended[i] = c.ended[i - 1]
            i -= 1
        c.ended[i] = job
    for k in range(first, stop):
        job = c.ended[k]
        for level in range(len(c.group)):
            g = c.group[level, job]
            if g >= 0:
                c.ring[g * c.rule[LAST] + c.seen[g] % c.rule[LAST]] = c.value[job]
                c.seen[g] += 1


@compiled
def foresee(c: Closed | None, job: int) -> None:
    """Predict a job that arrives; nothing where predictions stand beforehand."""
    if c is None:
        return
    if c.rule[IS_ROLLING] == 1:
        c.guess[job] = rolling(c, job)
    note_first(c.renewal, job, c.guess[job])
    spread(c, job, ZERO)


@compiled
def note_first(r: Renewal | None, job: int, guess: int) -> None:
    """Keep what a job was predicted at its submission, where that may change."""
    if r is not None:
        r.first[job] = guess


@compiled
def spread(c: Closed, job: int, kept: int) -> None:
    """Work out what a prediction means: for the rest of a job on each type, and for its place in the order."""
    left = max(c.guess[job] - kept, ZERO)
    for k in range(c.ratio.shape[1]):
        ratio = ratio_in(c, job, k)
        c.on_types[job, k] = left if ratio == 1.0 else int(np.rint(left * ratio))
    c.key[job] = c.offset[job] + c.slope[job] * c.guess[job]


@compiled
def ratio_in(c: Closed, job: int, column: int) -> float:
    """Run time on a speed column over that on the hardware of the log."""
    return float(c.ratio[job if len(c.ratio) > 1 else ZERO, column])


@compiled
def guess_of(c: Closed | None, job: int, otherwise: int) -> int:
    """Predicted microseconds of a job that has arrived, on the hardware of the log."""
    return otherwise if c is None else int(c.guess[job])


@compiled
def rolling(c: Closed, job: int) -> int:
    """Mean or median of the last durations of the first of a job's groups that has any, in whole us, rounded down."""
    for level in range(len(c.group)):
        g = c.group[level, job]
        if g >= 0 and c.seen[g] > 0:
            return of_group(c, g)
    return int(c.rule[DEFAULT])


@compiled
def of_group(c: Closed, g: int) -> int:
    """Mean or median of the last durations of a group that has any."""
    first, num = g * c.rule[LAST], min(c.seen[g], c.rule[LAST])
    return median(c, first, num) if c.rule[IS_MEDIAN] == 1 else mean(c, first, num)


@compiled
def mean(c: Closed, first: int, num: int) -> int:
    """Mean of some places of the ring."""
    total = ZERO
    for i in range(first, first + num):
        total += c.ring[i]
    return int(total // num)


@compiled
def median(c: Closed, first: int, num: int) -> int:
    """Median of some places of the ring; of an even number the mean of the two in the middle."""
    values = c.scratch
    for k in range(num):
        value = c.ring[first + k]
        i = k
        while i > 0 and values[i - 1] > value:
            values[i] = values[i - 1]
            i -= 1
        values[i] = value
    middle = num // 2
    return int(values[middle]) if num % 2 == 1 else int((values[middle - 1] + values[middle]) // 2)


@compiled
def comes_before(key: F64 | None, one: int, other: int) -> bool:
    """Tell whether a rank comes before another; with keys ranks are jobs, which stand in the order of submission."""
    if key is None:
        return one < other
    return bool(key[one] < key[other] or (key[one] == key[other] and one < other))
