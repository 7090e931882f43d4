"""The rules of scored placements, compiled: may a node take an ask, how good is it, and which device for a share.

``analysis.replay.placement`` says each rule in words. An *ask* is a row of the class table that must go to one node.
"""

from __future__ import annotations

import math

from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, compiled, constant, melted
from analysis.replay._hardware import MILLI, Hardware
from analysis.replay._scores import (
    CPU,
    FULL_SCORE,
    KIND,
    MEM,
    MILLIS,
    MOST_CPU,
    MOST_GPU,
    PIECES,
    RULE,
    SEED,
    TYPES,
    UNLIMITED,
    WEIGHT,
    WHOLE,
    Scores,
    shift_room,
    steps_of,
    total_milli,
    unallocatable,
)

FIRST_FIT, WORST_FIT, RANDOM, BEST_FIT, DOT_PRODUCT, GPU_PACKING, GPU_CLUSTERING, FGD = 1, 2, 3, 4, 5, 6, 7, 8
NOWHERE = constant(-1)
#: Bands of GPU packing and GPU clustering.
HALF, THIRD, QUARTER = constant(50), constant(33), constant(25)


@compiled
def draw(s: Scores, vc: int, most: int, salt: int) -> int:
    """Number from 0 to ``most`` - 1 that follows from the seed, the VC's jobs started so far, and ``salt``."""
    # Multipliers of splitmix64's mixer, the shifts kept positive by 62 bits.
    mask = (1 << 62) - 1
    x = (s.config[SEED] * 0x2545F491 + s.starts[vc] * 0x9E3779B1 + salt * 0x85EBCA6B) & mask
    x = ((x ^ (x >> 30)) * 0x1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x133111EB) & mask
    return int((x ^ (x >> 31)) % most)


@melted
def pieces_fit(hw: Hardware, node: int, c: I64) -> bool:
    """Tell whether whole GPUs and shares of one device each fit together on a node."""
    slots = (hw.free[node] - c[WHOLE]) * (MILLI // c[MILLIS])
    for device in range(hw.device0[node], hw.device0[node + 1]):
        if hw.room[device] < MILLI:
            slots += hw.room[device] // c[MILLIS]
    return bool(slots >= c[PIECES])


@compiled
def can_take(hw: Hardware, s: Scores, c: I64, node: int) -> bool:
    """Tell whether an ask fits on a node now."""
    if (c[TYPES] >> s.gpu_type[node]) & 1 == 0 or s.cpu[node] < c[CPU] or s.mem[node] < c[MEM]:
        return False
    if hw.free[node] < c[WHOLE] or s.left[node] < total_milli(c):
        return False
    return c[PIECES] == 0 or pieces_fit(hw, node, c)


@melted
def tightest(hw: Hardware, node: int, milli: int) -> int:
    """Device with the least sufficient room, the lowest of equal ones."""
    best, best_room = NOWHERE, MILLI + 1
    for device in range(hw.device0[node], hw.device0[node + 1]):
        if milli <= hw.room[device] < best_room:
            best, best_room = device, hw.room[device]
    return best


@melted
def roomiest(hw: Hardware, node: int, milli: int) -> int:
    """Device with the most room, the lowest of equal ones."""
    best, best_room = NOWHERE, milli - 1
    for device in range(hw.device0[node], hw.device0[node + 1]):
        if hw.room[device] > best_room:
            best, best_room = device, hw.room[device]
    return best


@melted
def nth_device(hw: Hardware, node: int, milli: int, n: int) -> int:
    """The n-th device with room; n counts from 0 and begins anew after the last."""
    count = 0
    for device in range(hw.device0[node], hw.device0[node + 1]):
        count += hw.room[device] >= milli
    n = n % max(count, 1)
    for device in range(hw.device0[node], hw.device0[node + 1]):
        if hw.room[device] >= milli:
            if n == 0:
                return device
            n -= 1
    return NOWHERE


@compiled
def after_share(hw: Hardware, s: Scores, node: int, device: int, milli: int, cpu: int) -> int:
    """What ``unallocatable`` would be with a share of one device and CPUs taken."""
    room, left = hw.room[device], s.left[node] - milli
    now = room - milli
    weight = s.tasks.weight[s.gpu_type[node], steps_of(s, s.cpu[node] - cpu)]
    lost = s.config[WEIGHT] * left
    for g in range(len(s.tasks.milli)):
        need = s.tasks.milli[g]
        if s.fitting[node, g] - (room >= need > now) >= s.tasks.devices[g]:
            small = s.lost[node, g] + (now if now < need else ZERO) - (room if room < need else ZERO)
            lost -= weight[g] * (left - small)
    return int(lost)


@compiled
def after_whole(s: Scores, node: int, whole: int, cpu: int) -> int:
    """What ``unallocatable`` would be with free devices and CPUs taken."""
    left = s.left[node] - whole * MILLI
    weight = s.tasks.weight[s.gpu_type[node], steps_of(s, s.cpu[node] - cpu)]
    lost = s.config[WEIGHT] * left
    for g in range(len(s.tasks.milli)):
        if s.fitting[node, g] - whole >= s.tasks.devices[g]:
            lost -= weight[g] * (left - s.lost[node, g])
    return int(lost)


@melted
def gain_score(s: Scores, grown: int) -> int:
    """Score of a growth of what is unallocatable: 100 / (1 + exp(growth in GPUs)), rounded down."""
    gpus = grown / (float(MILLI) * max(s.config[WEIGHT], 1))
    return int(FULL_SCORE / (1.0 + math.exp(gpus)))


@compiled
def least_lost(hw: Hardware, s: Scores, node: int, milli: int, cpu: int) -> tuple[int, int]:
    """Device for a share whose score of the growth is highest, the lowest of equal ones; and that score."""
    before = unallocatable(s, node)
    best, best_score = NOWHERE, NOWHERE
    previous = NOWHERE
    for device in range(hw.device0[node], hw.device0[node + 1]):
        room = hw.room[device]
        if room < milli or room == previous:
            continue
        previous = room
        score = gain_score(s, after_share(hw, s, node, device, milli, cpu) - before)
        if score > best_score:
            best, best_score = device, score
    return best, best_score


@compiled
def pick_device(hw: Hardware, s: Scores, node: int, milli: int, cpu: int) -> int:
    """Device of a node on which a share goes; NOWHERE if none has room."""
    rule = s.config[RULE]
    if rule == FGD:
        return least_lost(hw, s, node, milli, cpu)[0]
    if rule == WORST_FIT:
        return roomiest(hw, node, milli)
    if rule == RANDOM:
        return nth_device(hw, node, milli, draw(s, s.vc[node], 1 << 20, ZERO + 1))
    if rule == FIRST_FIT:
        return nth_device(hw, node, milli, ZERO)
    return tightest(hw, node, milli)


@melted
def pretend(hw: Hardware, s: Scores, node: int, device: int, now: int) -> None:
    """Change a device's room for a look ahead."""
    shift_room(s, node, hw.room[device], now)
    hw.room[device] = now


@compiled
def rehearse(hw: Hardware, s: Scores, c: I64, node: int) -> tuple[int, int, int]:
    """Choose the devices of an ask's shares, one after the other on what is left, and give all back.

    The CPUs of the whole ask and its whole GPUs, lowest devices first, are taken before. The choices stand in
    ``chosen``. Returns the growth of what is unallocatable, how many free devices were broken into, and the percent
    that were free on the used ones that were chosen.
    """
    before, cpu = unallocatable(s, node), s.cpu[node]
    device0, count = hw.device0[node], hw.device0[node + 1] - hw.device0[node]
    for d in range(count):
        s.rooms[d] = hw.room[device0 + d]
    s.cpu[node] = cpu - c[CPU]
    fresh, used = ZERO + c[WHOLE], ZERO
    for _ in range(c[WHOLE]):
        pretend(hw, s, node, tightest(hw, node, MILLI), ZERO)
    for k in range(c[PIECES]):
        device = pick_device(hw, s, node, c[MILLIS], ZERO)
        s.chosen[k] = device
        room = hw.room[device]
        if room == MILLI:
            fresh += 1
        else:
            used += room * 100 // MILLI
        pretend(hw, s, node, device, room - c[MILLIS])
    grown = unallocatable(s, node) - before
    s.cpu[node] = cpu
    for d in range(count):
        pretend(hw, s, node, device0 + d, s.rooms[d])
    return grown, fresh, used


@melted
def fgd_score(hw: Hardware, s: Scores, c: I64, node: int) -> int:
    """Score of Fragmentation Gradient Descent."""
    if c[PIECES] == 0:
        return gain_score(s, after_whole(s, node, c[WHOLE], c[CPU]) - unallocatable(s, node))
    if c[WHOLE] == 0 and c[PIECES] == 1:
        return least_lost(hw, s, node, c[MILLIS], c[CPU])[1]
    return gain_score(s, rehearse(hw, s, c, node)[0])


@melted
def best_fit_score(s: Scores, c: I64, node: int) -> int:
    """Full score less the share of the largest node that stays free, the mean of GPUs and CPUs."""
    gpu = (s.left[node] - total_milli(c)) * s.config[MOST_CPU]
    cpu = (s.cpu[node] - c[CPU] if s.cpu[node] < UNLIMITED else ZERO) * s.config[MOST_GPU]
    both = 2 * s.config[MOST_GPU] * s.config[MOST_CPU]
    return int((both - gpu - cpu) * FULL_SCORE // both)


@melted
def dot_product_score(s: Scores, c: I64, node: int) -> int:
    """Full score less half the dot product of what is free and what is asked, as shares of the largest node."""
    most_gpu, most_cpu = s.config[MOST_GPU], s.config[MOST_CPU]
    gpu = (s.left[node] / most_gpu) * (total_milli(c) / most_gpu)
    cpu = (s.cpu[node] / most_cpu) * (c[CPU] / most_cpu) if s.cpu[node] < UNLIMITED else 0.0
    return int(FULL_SCORE * (1.0 - (cpu + gpu) / 2))


@melted
def packing_score(hw: Hardware, s: Scores, c: I64, node: int) -> int:
    """Used devices before free ones of used nodes before idle nodes."""
    if total_milli(c) == 0:
        return int(ZERO)
    size = hw.device0[node + 1] - hw.device0[node]
    if hw.free[node] == size:
        return int(max(THIRD - size, min(size, THIRD)))
    if c[PIECES] == 0:
        return int(max(HALF - c[WHOLE], THIRD))
    _, fresh, used = rehearse(hw, s, c, node)
    return int(max(HALF - fresh, THIRD) if fresh > 0 else max(FULL_SCORE - used // 10, HALF))


@melted
def clustering_score(s: Scores, c: I64, node: int) -> int:
    """Bands by what kinds of requests a node already holds, fuller nodes first within a band."""
    if total_milli(c) == 0:
        return int(ZERO)
    same, others = s.kinds[node, c[KIND]] > 0, ZERO
    for k in range(s.kinds.shape[1]):
        others += s.kinds[node, k] > 0 and k != c[KIND]
    band = ZERO
    if same:
        band = ZERO + (3 if others == 0 else 2)
    elif others == 0:
        band = ZERO + 1
    return int(QUARTER * (s.config[MOST_GPU] - s.left[node]) // s.config[MOST_GPU] + QUARTER * band)


@compiled
def score_of(hw: Hardware, s: Scores, c: I64, node: int) -> int:
    """Score of a node for an ask; NOWHERE if it does not fit there."""
    if not can_take(hw, s, c, node):
        return NOWHERE
    rule, score = s.config[RULE], ZERO + 0
    if rule == FGD:
        score = fgd_score(hw, s, c, node)
    elif rule == BEST_FIT:
        score = best_fit_score(s, c, node)
    elif rule == DOT_PRODUCT:
        score = dot_product_score(s, c, node)
    elif rule == GPU_PACKING:
        score = packing_score(hw, s, c, node)
    elif rule == GPU_CLUSTERING:
        score = clustering_score(s, c, node)
    elif rule == WORST_FIT:
        score = s.left[node] * FULL_SCORE // s.config[MOST_GPU]
    return int(score)
