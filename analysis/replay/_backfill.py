"""What EASY backfill keeps: waiting jobs in search trees, running jobs by predicted end, and the head's reservation."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from analysis.replay import _place
from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, compiled, constant, melted
from analysis.replay._prepare import Prepared
from analysis.replay._queues import Queues

NOBODY: Final = constant(1 << 62)
NUM_RESERVED, NUM_WALKED = 0, 1
#: In place of a heap place: the job is on the sorted list.
NEAR: Final = constant(-1)
SLACK: Final = 64


class Backfill(NamedTuple):
    """Data structures of EASY backfill; classes and their jobs are numbered as in the other tables."""

    predicted: I64  # [n, K] predicted microseconds on the types of speed column k
    rank: I64  # [n]
    # Waiting jobs: per class and speed column a tree of minima over the class's jobs in queue order.
    tree: I64
    tree0: I64  # [C * K]
    width: I64  # [C] leaves of the class's trees, a power of two
    leaf: I64  # [n] place of a job among its class's jobs
    members: I64  # [n] jobs of all classes behind each other …
    member0: I64  # [C] … those of class c begin here
    first: I64  # [C] rank of the first waiting job, NOBODY if none waits
    vc_classes: I64  # [V + 1]
    fresh: I64  # [C] 1: somebody came since the last pass
    # Running jobs of each VC by predicted end: the next few as a sorted list, the others in an indexed heap.
    due: I64  # [n] predicted end of a job
    runner0: I64  # [V] both of VC v begin here
    near: I64  # [n] jobs on the list
    num_near: I64  # [V]
    end: I64  # [n] predicted ends in the heap …
    runner: I64  # [n] … and their jobs
    runners: I64  # [V]
    at: I64  # [n] place of a job in its VC's heap, or NEAR
    # What the last pass of a VC left behind: see _easy.
    settled: I64  # [V]
    last_head: I64  # [V]
    # The reservation that a pass works with.
    counts: I64
    node: I64  # reserved nodes …
    place_of: I64  # [N] … and where each stands there, plus 1; 0 = not reserved
    whole: I64  # wholly free GPUs that the head takes on each
    spare: I64  # without fractions: GPUs free at the shadow time that the head leaves
    veil: I64  # what is hidden of each node or device
    later: I64  # [D] room of a device at the shadow time
    freed: I64  # [N] GPUs of a node given back so far in a look ahead; 0 between them
    kept: I64  # [D] milli-GPUs of a device that the head's fractions take


def make_backfill(prepared: Prepared, queues: Queues) -> Backfill:
    """Lay out the structures, empty."""
    hw, n = prepared.hw, len(prepared.accepted)
    classes, job_class = prepared.classes, prepared.job_class
    num_columns = prepared.predicted.shape[1]
    members = np.lexsort((queues.rank, job_class)).astype(np.int64)
    counts = np.bincount(job_class, minlength=len(classes)).astype(np.int64)
    member0 = (np.cumsum(counts) - counts).astype(np.int64)
    leaf = np.empty(n, dtype=np.int64)
    leaf[members] = np.arange(n) - np.repeat(member0, counts)
    width = (1 << np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)).astype(np.int64)
    sizes = np.repeat(2 * width, num_columns)
    vc_jobs = np.bincount(classes[job_class, _place.VC], minlength=prepared.num_vcs).astype(np.int64)
    num_nodes, num_devices = len(hw.free), len(hw.room)
    return Backfill(
        predicted=prepared.predicted,
        rank=queues.rank,
        tree=np.full(int(sizes.sum()), NOBODY, dtype=np.int64),
        tree0=(np.cumsum(sizes) - sizes).astype(np.int64),
        width=width,
        leaf=leaf,
        members=members,
        member0=member0,
        first=np.full(len(classes), NOBODY, dtype=np.int64),
        vc_classes=np.searchsorted(classes[:, _place.VC], np.arange(prepared.num_vcs + 1)).astype(np.int64),
        fresh=np.zeros(len(classes), dtype=np.int64),
        due=np.empty(n, dtype=np.int64),
        near=np.empty(n, dtype=np.int64),
        num_near=np.zeros(prepared.num_vcs, dtype=np.int64),
        end=np.empty(n, dtype=np.int64),
        runner=np.empty(n, dtype=np.int64),
        runner0=(np.cumsum(vc_jobs) - vc_jobs).astype(np.int64),
        runners=np.zeros(prepared.num_vcs, dtype=np.int64),
        at=np.empty(n, dtype=np.int64),
        settled=np.zeros(prepared.num_vcs, dtype=np.int64),
        last_head=np.full(prepared.num_vcs, -1, dtype=np.int64),
        counts=np.zeros(2, dtype=np.int64),
        node=np.empty(num_nodes, dtype=np.int64),
        place_of=np.zeros(num_nodes, dtype=np.int64),
        whole=np.zeros(num_nodes, dtype=np.int64),
        spare=np.zeros(num_nodes, dtype=np.int64),
        veil=np.zeros(max(num_nodes, num_devices), dtype=np.int64),
        later=np.zeros(num_devices, dtype=np.int64),
        freed=np.zeros(num_nodes, dtype=np.int64),
        kept=np.zeros(num_devices, dtype=np.int64),
    )


@compiled
def set_leaf(b: Backfill, c: int, k: int, leaf: int, value: int) -> None:
    """Change one job's value in a class's tree of speed column k."""
    tree, base = b.tree, b.tree0[c * b.predicted.shape[1] + k]
    i = b.width[c] + leaf
    tree[base + i] = value
    while i > 1:
        i >>= 1
        least = min(tree[base + 2 * i], tree[base + 2 * i + 1])
        if tree[base + i] == least:
            return
        tree[base + i] = least


@compiled
def first_within(b: Backfill, c: int, k: int, limit: int) -> int:
    """Rank of a class's first waiting job that is predicted to take at most ``limit``; NOBODY if there is none."""
    tree, base, width = b.tree, b.tree0[c * b.predicted.shape[1] + k], b.width[c]
    if tree[base + 1] > limit:
        return NOBODY
    i = ZERO + 1
    while i < width:
        i *= 2
        if tree[base + i] > limit:
            i += 1
    return int(b.rank[b.members[b.member0[c] + i - width]])


@melted
def wait(b: Backfill, c: int, job: int) -> None:
    """Put a job into its class's trees."""
    for k in range(b.predicted.shape[1]):
        set_leaf(b, c, k, b.leaf[job], b.predicted[job, k])
    b.first[c] = min(b.first[c], b.rank[job])
    b.fresh[c] = 1


@compiled
def leave(b: Backfill, c: int, job: int) -> None:
    """Take a job out of its class's trees."""
    for k in range(b.predicted.shape[1]):
        set_leaf(b, c, k, b.leaf[job], NOBODY)
    if b.first[c] == b.rank[job]:
        b.first[c] = first_within(b, c, ZERO, NOBODY - 1)


@melted
def settle(b: Backfill, base: int, i: int, time: int, job: int) -> None:
    """Write a running job into its place in the heap."""
    b.end[base + i] = time
    b.runner[base + i] = job
    b.at[job] = i


@compiled
def rise(b: Backfill, base: int, i: int, time: int, job: int) -> None:
    """Let a running job rise from place i."""
    while i > 0:
        up = (i - 1) >> 1
        if b.end[base + up] <= time:
            break
        settle(b, base, i, b.end[base + up], b.runner[base + up])
        i = up
    settle(b, base, i, time, job)


@compiled
def push_far(b: Backfill, vc: int, job: int) -> None:
    """Add a running job to the heap."""
    b.runners[vc] += 1
    rise(b, b.runner0[vc], b.runners[vc] - 1, b.due[job], job)


@compiled
def drop_far(b: Backfill, vc: int, job: int) -> None:
    """Take a running job out of the heap."""
    base, hole = b.runner0[vc], b.at[job]
    b.runners[vc] -= 1
    n = b.runners[vc]
    if hole == n:
        return
    time, moved = b.end[base + n], b.runner[base + n]
    i = hole
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and b.end[base + down + 1] < b.end[base + down]:
            down += 1
        if b.end[base + down] >= time:
            break
        settle(b, base, i, b.end[base + down], b.runner[base + down])
        i = down
    rise(b, base, i, time, moved)


@melted
def place_near(b: Backfill, vc: int, time: int) -> int:
    """Place on the sorted list of the first job that is predicted to end at a time or later."""
    base, low, high = b.runner0[vc], ZERO, b.num_near[vc]
    while low < high:
        middle = (low + high) >> 1
        if b.due[b.near[base + middle]] < time:
            low = middle + 1
        else:
            high = middle
    return int(low)


@melted
def add_runner(b: Backfill, vc: int, job: int, time: int) -> None:
    """Note that a job runs and when it is predicted to end."""
    b.due[job] = time
    base, n = b.runner0[vc], b.num_near[vc]
    if n == 0 or time > b.due[b.near[base + n - 1]]:
        push_far(b, vc, job)
        return
    place = place_near(b, vc, time)
    for i in range(base + n, base + place, -1):
        b.near[i] = b.near[i - 1]
    b.near[base + place] = job
    b.at[job] = NEAR
    b.num_near[vc] = n + 1


@melted
def drop_runner(b: Backfill, vc: int, job: int) -> None:
    """Forget a running job."""
    if b.at[job] != NEAR:
        drop_far(b, vc, job)
        return
    i = b.runner0[vc] + place_near(b, vc, b.due[job])
    while b.near[i] != job:
        i += 1
    b.num_near[vc] -= 1
    for k in range(i, b.runner0[vc] + b.num_near[vc]):
        b.near[k] = b.near[k + 1]


@melted
def next_due(b: Backfill, vc: int, place: int) -> int:
    """Predicted end of the running job at a place in the order of predicted ends; NOBODY beyond the last."""
    base = b.runner0[vc]
    if place < b.num_near[vc]:
        return int(b.due[b.near[base + place]])
    return int(b.end[base]) if b.runners[vc] > 0 else NOBODY


@melted
def walk_next(b: Backfill, vc: int) -> int:
    """Next running job by predicted end; the list grows from the heap as far as somebody walks."""
    base, place = b.runner0[vc], b.counts[NUM_WALKED]
    if place == b.num_near[vc]:
        job = b.runner[base]
        drop_far(b, vc, job)
        b.near[base + place] = job
        b.at[job] = NEAR
        b.num_near[vc] = place + 1
    b.counts[NUM_WALKED] = place + 1
    return int(b.near[base + place])


@melted
def shorten(b: Backfill, vc: int) -> None:
    """Put the end of the list back into the heap if it is much longer than what was walked."""
    while b.num_near[vc] > 2 * b.counts[NUM_WALKED] + SLACK:
        b.num_near[vc] -= 1
        push_far(b, vc, b.near[b.runner0[vc] + b.num_near[vc]])
