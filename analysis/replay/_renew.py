"""Predicting again who waits or runs: when, whom, and what of each.

At the first instant at or after a due time, when the ends of the instant are known. All who have arrived and not ended
are listed with their ages: the work that they have done and that is not lost. Those of age 0 are predicted as on their
submission; the others by those durations only that are longer than their age, asked of the first group that has any;
where no group has, the prediction stays, overdue or not. Each loop then puts whoever has a new one in its place.
"""

from __future__ import annotations

import numpy as np

from analysis.replay._closed import IS_MEDIAN, IS_ROLLING, LAST, Closed, Renewal, of_group, ratio_in, spread
from analysis.replay._compiled import ZERO, compiled, constant
from analysis.replay._events import Events, to_work
from analysis.replay._state import NEVER, NEXT, Log

# Places in ``Renewal.facts``: the due time, the time from one to the next, how many jobs are on the list, the first job
# that has not been listed yet, and what is done already of this time: nothing, the list, or the predictions, too.
DUE, EVERY, NUM, UNLISTED, STAGE = 0, 1, 2, 3, 4
NUM_FACTS = 5
IDLE, LISTED, TOLD = constant(0), constant(1), constant(2)


def make_renewal(*, num_jobs: int, num_groups: int, every_us: int) -> Renewal:
    """Lay out what is kept, empty; the first time is due ``every_us`` after the first submission."""
    facts = np.zeros(NUM_FACTS, dtype=np.int64)
    facts[DUE] = facts[EVERY] = every_us
    names = ("job", "kept", "age", "is_running", "told", "first")
    return Renewal(
        facts=facts,
        memo=np.zeros(num_groups, dtype=np.int64),
        memo_seen=np.zeros(num_groups, dtype=np.int64),
        **{name: np.zeros(num_jobs, dtype=np.int64) for name in names},
    )


@compiled
def is_due(r: Renewal, now: int) -> bool:
    """Tell whether jobs are to be predicted again now, and have not been listed yet."""
    return bool(r.facts[STAGE] == IDLE and r.facts[DUE] <= now)


@compiled
def must_tell(c: Closed | None) -> bool:
    """Tell whether Python must predict jobs again."""
    if c is None:
        return False
    return is_listed(c.renewal)


@compiled
def is_listed(r: Renewal | None) -> bool:
    """Tell whether jobs are listed that have no new predictions yet."""
    if r is None:
        return False
    return bool(r.facts[STAGE] == LISTED)


@compiled
def is_unfinished(c: Closed | None) -> bool:
    """Tell whether the loop left an instant for Python to predict, and is not through with it."""
    if c is None:
        return False
    return has_begun(c.renewal)


@compiled
def has_begun(r: Renewal | None) -> bool:
    """Tell whether jobs are listed that have not been put in their places."""
    if r is None:
        return False
    return bool(r.facts[STAGE] != IDLE)


@compiled
def is_running(log: Log, job: int) -> bool:
    """Tell whether a job that has not ended runs."""
    return bool(log.start[job] >= 0 and log.end[job] < NEVER)


@compiled
def list_jobs(r: Renewal, log: Log, now: int) -> None:
    """List who has arrived and not ended: who stood on the last list, and who came since."""
    num, last = ZERO, r.facts[NUM]
    for k in range(last + log.counters[NEXT] - r.facts[UNLISTED]):
        job = r.job[k] if k < last else r.facts[UNLISTED] + k - last
        if log.start[job] < 0 or log.end[job] > now:
            r.job[num] = job
            r.is_running[num] = is_running(log, job)
            num += 1
    r.facts[NUM], r.facts[UNLISTED] = num, log.counters[NEXT]


@compiled
def note_age(c: Closed, r: Renewal, log: Log, k: int, kept: int, ran: int) -> None:
    """Note the age of a job on the list that kept so much work, and has run for so long since if it runs."""
    job = r.job[k]
    r.kept[k] = kept
    r.age[k] = kept
    if r.is_running[k] == 1:
        r.age[k] += to_work(ran, ratio_in(c, job, log.column[job]))


@compiled
def take_stock(c: Closed | None, x: Events | None, log: Log, now: int) -> None:
    """List jobs with their ages if it is time, and predict them if Python need not; policies that do not preempt."""
    if c is None:
        return
    take_stock_for(c, c.renewal, x, log, now)


@compiled
def take_stock_for(c: Closed, r: Renewal | None, x: Events | None, log: Log, now: int) -> None:
    """Do that where jobs are predicted more than once."""
    if r is None:
        return
    if is_due(r, now):
        list_jobs(r, log, now)
        for k in range(r.facts[NUM]):
            note_age(c, r, log, k, kept_by(x, r.job[k]), now - log.start[r.job[k]])
        tell_all(c, r)


@compiled
def kept_by(x: Events | None, job: int) -> int:
    """Work that a job need not do again since it was killed."""
    if x is None:
        return ZERO
    return int(x.work[job] - x.left[job])


@compiled
def tell_all(c: Closed, r: Renewal) -> None:
    """Predict all jobs on the list again, or let Python do it."""
    r.facts[STAGE] = LISTED
    if c.rule[IS_ROLLING] == 1:
        for k in range(r.facts[NUM]):
            r.told[k] = again(c, r, r.job[k], r.age[k])
        r.facts[STAGE] = TOLD


@compiled
def again(c: Closed, r: Renewal, job: int, age: int) -> int:
    """Predict a job of an age; what it was predicted last if nobody who has ended was older."""
    for level in range(len(c.group)):
        g = c.group[level, job]
        if g < 0 or c.seen[g] == 0:
            continue
        if age == 0:
            return remembered(c, r, g)
        num = collect(c, g, age)
        if num > 0:
            return middle_of(c, num)
    return int(c.guess[job])


@compiled
def remembered(c: Closed, r: Renewal, g: int) -> int:
    """What a group says of those that have done no work; worked out once for all of them."""
    if r.memo_seen[g] != c.seen[g]:
        r.memo[g] = of_group(c, g)
        r.memo_seen[g] = c.seen[g]
    return int(r.memo[g])


@compiled
def collect(c: Closed, g: int, age: int) -> int:
    """Put those of a group's last durations that are longer than an age into ``scratch``, rising; return how many."""
    first, values, num = g * c.rule[LAST], c.scratch, ZERO
    for k in range(first, first + min(c.seen[g], c.rule[LAST])):
        value = c.ring[k]
        if value > age:
            i = num
            while i > 0 and values[i - 1] > value:
                values[i] = values[i - 1]
                i -= 1
            values[i] = value
            num += 1
    return num


@compiled
def middle_of(c: Closed, num: int) -> int:
    """Median or mean of the first values of ``scratch``, in whole us, rounded down."""
    values, total = c.scratch, ZERO
    if c.rule[IS_MEDIAN] == 1:
        return int((values[(num - 1) // 2] + values[num // 2]) // 2)
    for k in range(num):
        total += values[k]
    return int(total // num)


@compiled
def take_in(c: Closed, r: Renewal, k: int) -> bool:
    """Take over the new prediction of a job on the list; False if it is the one that it had."""
    job = r.job[k]
    if r.told[k] == c.guess[job]:
        return False
    c.guess[job] = r.told[k]
    spread(c, job, r.kept[k])
    return True


@compiled
def finish(r: Renewal, now: int) -> None:
    """Note that all who were listed have been put in their places."""
    r.facts[STAGE] = IDLE
    r.facts[DUE] = now + r.facts[EVERY]
