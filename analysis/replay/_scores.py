"""What scored placements keep beside the nodes: free CPUs and memory, and every class's nodes sorted by score.

A scored placement gives every node on which a class of jobs fits a whole number from 0 to 100; the highest wins, then
the lowest node id. A score depends on the class and the state of the node alone. So each class keeps its nodes in a
bucket table by score, and before it is asked it looks again only at nodes that changed since: nodes stand in a list in
the order of their last change.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.replay._bits import I64, U64, make_tables
from analysis.replay._compiled import ZERO, compiled, constant, melted

I16 = npt.NDArray[np.int16]
MILLI: Final = 1000
# Columns of a class table that every placement reads …
VC, WHOLE, PIECES, MILLIS, MODE, TYPES = 0, 1, 2, 3, 4, 5
# … and that scored ones read beside: milli-CPUs and MiB of the whole job, its row, and the kind of its GPU request.
CPU, MEM, NUMBER, KIND = 6, 7, 8, 9
NUM_COLUMNS: Final = 10
# Places in ``Scores.config``: the rule, the seed, the clock of changes, the node changed last …
RULE, SEED, CLOCK, LATEST = 0, 1, 2, 3
# … and the largest node in milli-GPUs and milli-CPUs, and the sum of the weights of typical tasks.
MOST_GPU, MOST_CPU, WEIGHT = 4, 5, 6
FULL_SCORE = constant(100)
#: Free CPUs or memory of a node that does not say how much it has.
UNLIMITED = constant(1 << 50)
NOBODY = constant(-1)


class Tasks(NamedTuple):
    """Typical tasks of a workload, sorted by what they ask of GPUs (G ways) and by CPUs (R steps)."""

    devices: I64  # [G] devices
    milli: I64  # [G] milli-GPUs of each
    cpu: I64  # [R] milli-CPUs, rising
    weight: I64  # [T, R + 1, G] tasks that a node of type t with the first r steps of CPUs can feed
    total: I64  # [1] all tasks, those without GPUs too


class Scores(NamedTuple):
    """State of a scored placement, as the compiled loop sees it."""

    config: I64
    vc: I64  # [N] VC of a node
    gpu_type: I64  # [N]
    starts: I64  # [V] jobs started so far in a VC
    node_at: I64  # [N] node of a place in the order of ids
    cpu: I64  # [N] free milli-CPUs
    mem: I64  # [N] free MiB
    left: I64  # [N] free milli-GPUs
    tab: I64  # bucket tables, one per class: places of nodes by what is missing to a full score
    bits: U64
    bucket: I16  # [C, N] where a node stands in a class's table; NOBODY where it does not fit
    seen: I64  # [C] clock when the class was last brought up to date
    stamp: I64  # [N] clock of a node's last change
    newer: I64  # [N] neighbours in the order of the last change
    older: I64  # [N]
    kinds: I64  # [N, K] devices held by each kind of GPU request; no columns if nobody asks
    part: I64  # [NUM_COLUMNS] room for the ask of a part of a job
    rooms: I64  # room for the state of a node's devices during a look ahead
    chosen: I64  # … and for the devices that it chose
    tasks: Tasks
    fitting: I64  # [N, G] devices with room for a typical task's share
    lost: I64  # [N, G] milli-GPUs on devices with less room
    asks: I64  # [C, NUM_COLUMNS] the class table
    later: I64  # [N, 2] CPUs and memory that a reservation leaves on its nodes
    veil: I64  # [N, 2] … and what of them is hidden


def make_scores(
    *, rule: int, seed: int, classes: I64, node_rows: dict[str, I64], tasks: Tasks, num_kinds: int
) -> Scores:
    """Lay out the state for empty nodes.

    ``node_rows`` has, in the internal order of nodes, ``vc``, ``gpu_type``, ``rank``, ``size``, ``cpu``, ``mem``.
    """
    size = node_rows["size"]
    num_nodes, num_classes = len(size), len(classes)
    limited = node_rows["cpu"][node_rows["cpu"] < UNLIMITED]
    tab, bits = make_tables([num_nodes] * num_classes, [int(FULL_SCORE) + 1] * num_classes)
    config = np.array(
        [rule, seed, 1, 0, size.max(initial=1) * MILLI, limited.max(initial=1), tasks.total[0]],
        dtype=np.int64,
    )
    place = np.arange(num_nodes, dtype=np.int64)
    most_shares = min(int(classes[:, PIECES].max(initial=0)), int(size.max(initial=1)) * MILLI)
    return Scores(
        config=config,
        vc=node_rows["vc"],
        gpu_type=node_rows["gpu_type"],
        starts=np.zeros(int(node_rows["vc"].max(initial=0)) + 1, dtype=np.int64),
        node_at=np.argsort(node_rows["rank"]).astype(np.int64),
        cpu=node_rows["cpu"].copy(),
        mem=node_rows["mem"].copy(),
        left=size * MILLI,
        tab=tab,
        bits=bits,
        bucket=np.full((num_classes, num_nodes), NOBODY, dtype=np.int16),
        seen=np.zeros(num_classes, dtype=np.int64),
        stamp=np.ones(num_nodes, dtype=np.int64),
        newer=place - 1,
        older=np.where(place + 1 < num_nodes, place + 1, NOBODY),
        kinds=np.zeros((num_nodes, num_kinds), dtype=np.int64),
        part=np.zeros(NUM_COLUMNS, dtype=np.int64),
        rooms=np.zeros(int(size.max(initial=1)), dtype=np.int64),
        chosen=np.zeros(max(most_shares, 1), dtype=np.int64),
        tasks=tasks,
        fitting=np.repeat(size[:, None], len(tasks.milli), axis=1),
        lost=np.zeros((num_nodes, len(tasks.milli)), dtype=np.int64),
        asks=classes,
        later=np.zeros((num_nodes, 2), dtype=np.int64),
        veil=np.zeros((num_nodes, 2), dtype=np.int64),
    )


@compiled
def touch(s: Scores, node: int) -> None:
    """Note that a node changed: it becomes the latest."""
    s.config[CLOCK] += 1
    s.stamp[node] = s.config[CLOCK]
    latest = s.config[LATEST]
    if node == latest:
        return
    newer, older = s.newer[node], s.older[node]
    s.older[newer] = older
    if older != NOBODY:
        s.newer[older] = newer
    s.newer[node], s.older[node] = NOBODY, latest
    s.newer[latest] = node
    s.config[LATEST] = node


@compiled
def look_ahead(s: Scores | None) -> int:
    """Begin to pretend; gives the clock of now."""
    return ZERO if s is None else int(s.config[CLOCK])


@compiled
def look_back(s: Scores | None, clock: int, c: I64) -> None:
    """End to pretend: all is as it was at that clock, and one class alone was asked in between.

    Without this every class would look again at all nodes of every look ahead.
    """
    if s is None:
        return
    node = s.config[LATEST]
    while node != NOBODY and s.stamp[node] > clock:
        s.stamp[node] = clock
        node = s.older[node]
    s.config[CLOCK] = clock
    s.seen[c[NUMBER]] = min(s.seen[c[NUMBER]], clock - 1)


@melted
def shift_room(s: Scores, node: int, before: int, now: int) -> None:
    """Count a device's change of room, without saying that the node changed."""
    s.left[node] += now - before
    for g in range(len(s.tasks.milli)):
        milli = s.tasks.milli[g]
        s.fitting[node, g] += int(now >= milli) - int(before >= milli)
        s.lost[node, g] += (now if now < milli else ZERO) - (before if before < milli else ZERO)


@compiled
def note_room(s: Scores | None, node: int, before: int, now: int) -> None:
    """Keep up with a device's change of room; nothing where the placement is not scored."""
    if s is None:
        return
    shift_room(s, node, before, now)
    touch(s, node)


@melted
def share_of(total: int, amount: int, whole: int) -> int:
    """What part of a job's CPUs or memory goes with part of its GPUs, rounded down."""
    return total * amount // whole


@melted
def total_milli(c: I64) -> int:
    """Milli-GPUs of a class."""
    return int(c[WHOLE] * MILLI + c[PIECES] * c[MILLIS])


@compiled
def charge(s: Scores | None, node: int, number: int, amount: int) -> None:
    """Take (amount > 0) or give back (amount < 0) the CPUs and memory that go with milli-GPUs of a class."""
    if s is None:
        return
    c = s.asks[number]
    sign = 1 if amount > 0 else -1
    size = amount * sign
    whole = total_milli(c)
    if s.cpu[node] < UNLIMITED:
        s.cpu[node] -= sign * share_of(c[CPU], size, whole)
    if s.mem[node] < UNLIMITED:
        s.mem[node] -= sign * share_of(c[MEM], size, whole)
    if s.kinds.shape[1] > 0:
        s.kinds[node, c[KIND]] += sign


@compiled
def lacks_supply(s: Scores | None, node: int) -> bool:
    """Whether more CPUs or memory of a node were taken than it has; never where the placement is not scored."""
    if s is None:
        return False
    return bool(s.cpu[node] < 0 or s.mem[node] < 0)


@compiled
def count_start(s: Scores | None, vc: int) -> None:
    """Count a started job: the next random choices in its VC differ."""
    if s is not None:
        s.starts[vc] += 1


@melted
def steps_of(s: Scores, cpu: int) -> int:
    """Number of steps of CPUs that free milli-CPUs suffice for."""
    low, high = ZERO, ZERO + len(s.tasks.cpu)
    while low < high:
        middle = (low + high) // 2
        if s.tasks.cpu[middle] <= cpu:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def unallocatable(s: Scores, node: int) -> int:
    """Free milli-GPUs of a node that the next typical task cannot use, times the sum of weights."""
    lost = s.config[WEIGHT] * s.left[node]
    weight = s.tasks.weight[s.gpu_type[node], steps_of(s, s.cpu[node])]
    for g in range(len(s.tasks.milli)):
        if s.fitting[node, g] >= s.tasks.devices[g]:
            lost -= weight[g] * (s.left[node] - s.lost[node, g])
    return int(lost)
