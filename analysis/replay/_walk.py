"""Preemption the long way, for jobs that the trees say nothing about: fractions, gangs with a rest, spread jobs."""

from __future__ import annotations

from analysis.replay._compiled import ZERO, compiled, melted
from analysis.replay._hardware import MILLI, add, release, retake
from analysis.replay._moving import NOBODY, Moving, Preemption
from analysis.replay._offline import is_out, there
from analysis.replay._place import ANY_TYPE, NOWHERE, VC, fitting_type, place
from analysis.replay._runs import dequeue, queue_of, stop_run
from analysis.replay._scores import lacks_supply
from analysis.replay._victims import comes_after, yields


@melted
def sift(m: Moving, n: int, i: int) -> None:
    """Let a place of the heap of victims, first in the order on top, sink where it belongs."""
    job = m.victim[i]
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and comes_after(m, m.victim[down], m.victim[down + 1]):
            down += 1
        if not comes_after(m, job, m.victim[down]):
            break
        m.victim[i] = m.victim[down]
        i = down
    m.victim[i] = job


@compiled
def list_victims(s: Preemption, job: int, now: int) -> int:
    """List the running jobs of a job's VC that come after it, last in the order first; return how many they are."""
    m, vc = s.m, s.work.classes[s.work.job_class[job], VC]
    num = ZERO
    for i in range(m.runner0[vc], m.runner0[vc] + m.num_runners[vc]):
        if yields(m, m.runner[i], job, now):
            m.victim[num] = m.runner[i]
            num += 1
    for i in range(num // 2 - 1, -1, -1):
        sift(m, num, i)
    for n in range(num - 1, 0, -1):
        m.victim[0], m.victim[n] = m.victim[n], m.victim[0]
        sift(m, n, ZERO)
    return num


@compiled
def free_of(s: Preemption, node: int) -> int:
    """Wholly free GPUs of a node for those who run there already, drained or not."""
    hw = s.hw
    if not is_out(hw.offline, node):
        return int(hw.free[node])
    if len(hw.room) == 0:
        return there(hw.offline, node, node, ZERO)
    count = ZERO
    for device in range(hw.device0[node], hw.device0[node + 1]):
        count += there(hw.offline, node, device, ZERO) == MILLI
    return int(count)


@melted
def take_again(s: Preemption, job: int) -> bool:
    """Give a victim its GPUs back: the same devices of fractions, as many whole GPUs of the same nodes.

    False, and nothing happens, if they are not all free, or the CPUs or memory that go with them are not.
    """
    hw, held = s.hw, s.log.held
    first, stop = s.work.first_entry[job], s.log.stop_entry[job]
    if len(hw.room) > 0:
        return take_devices(s, first, stop)
    for e in range(first, stop):
        if free_of(s, held.item[e]) < held.amount[e]:
            return False
    retake(hw, held, first, stop)
    return True


@compiled
def take_devices(s: Preemption, first: int, stop: int) -> bool:
    """Do that where devices are told apart."""
    hw, held = s.hw, s.log.held
    taken = take_parts(s, first, stop)
    fits = taken == stop
    for e in range(first, stop):
        if fits and held.amount[e] == MILLI:
            node = hw.device_node[held.item[e]]
            fits = free_of(s, node) >= whole_on(s, node, first, stop)
    if not fits:
        for e in range(first, taken):
            if held.amount[e] < MILLI:
                add(hw, held, e, ZERO + 1)
        return False
    is_short = False
    for e in range(first, stop):
        node = hw.device_node[held.item[e]]
        if held.amount[e] == MILLI:
            device = hw.device0[node]
            while there(hw.offline, node, device, hw.room[device]) < MILLI:
                device += 1
            held.item[e] = device
            add(hw, held, e, ZERO - 1)
        is_short = is_short or lacks_supply(hw.scores, node)
    if is_short:
        release(hw, held, first, stop)
        return False
    return True


@melted
def take_parts(s: Preemption, first: int, stop: int) -> int:
    """Take the fractions among entries until one does not fit; return that one's entry, or ``stop``."""
    hw, held = s.hw, s.log.held
    for e in range(first, stop):
        if held.amount[e] < MILLI:
            item = held.item[e]
            if there(hw.offline, hw.device_node[item], item, hw.room[item]) < held.amount[e]:
                return e
            add(hw, held, e, ZERO - 1)
    return stop


@melted
def whole_on(s: Preemption, node: int, first: int, stop: int) -> int:
    """Whole GPUs that entries hold on a node."""
    count = ZERO
    for e in range(first, stop):
        if s.log.held.amount[e] == MILLI and s.hw.device_node[s.log.held.item[e]] == node:
            count += 1
    return int(count)


@compiled
def walk(s: Preemption, job: int, now: int) -> int:
    """Free running jobs from the last in the order on until a job fits, place it, give back what it did not need.

    Returns the entry after the last written one; NOWHERE, and nothing happened, if the job does not fit even so.
    """
    m, held, row = s.m, s.log.held, s.work.classes[s.work.job_class[job]]
    num = list_victims(s, job, now)
    k, fits = ZERO, False
    while not fits and k < num:
        one = m.victim[k]
        release(s.hw, held, s.work.first_entry[one], s.log.stop_entry[one])
        fits = fitting_type(s.hw, row, ANY_TYPE, s.log.scratch) != NOWHERE
        k += 1
    if not fits:
        for i in range(num):
            retake(s.hw, held, s.work.first_entry[m.victim[i]], s.log.stop_entry[m.victim[i]])
        return NOWHERE
    dequeue(s, queue_of(s, job))
    stop = place(s.hw, row, ANY_TYPE, held, s.work.first_entry[job])
    for i in range(k - 1, -1, -1):
        if take_again(s, m.victim[i]):
            m.victim[i] = NOBODY
    for i in range(k):
        if m.victim[i] != NOBODY:
            stop_run(s, m.victim[i], now)
    return int(stop)
