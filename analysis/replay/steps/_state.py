"""What the step-wise engine keeps beside the compiled engine's hardware, work and log: one layout, empty at first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.replay import _place
from analysis.replay._bits import I64
from analysis.replay._compiled import constant
from analysis.replay._events import Events
from analysis.replay._hardware import MILLI, Hardware
from analysis.replay._heap import Heap, make_heap
from analysis.replay._jobs import US, to_us
from analysis.replay._moving import _by_size, _ratio_table
from analysis.replay._prepare import Prepared
from analysis.replay._state import Log, Work
from analysis.replay.policies.rules import Costs

F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]
# Places in ``Kept.config``.
NEXT, MIN_RUN, LAST_SUBMIT, NUM_ENDED, NUM_STARTED, IS_PAUSED = 0, 1, 2, 3, 4, 5
# What a job is at (``Kept.status``).
COMING, WAITS, RUNS, DONE = constant(0), constant(1), constant(2), constant(3)


class Roster(NamedTuple):
    """Jobs of every VC in the order (submit_time, job_id): VC v has ``length[v]`` from ``first[v]`` on."""

    job: I64  # [n]
    first: I64  # [V]
    length: I64  # [V]
    base: I64  # [V + 1] VC v's are somewhere in base[v] … base[v + 1]


class Use(NamedTuple):
    """GPU time that every owner (user, account, VC) got so far, with a half-life."""

    owner: I64  # [n], or nothing where nobody asks
    gpu_time: F64  # [A] milli-GPUs times microseconds, as of …
    at: I64  # [A]
    milli: I64  # [A] milli-GPUs held since then
    half_life: F64  # [1] microseconds


class Kept(NamedTuple):
    """Data structures of the step-wise engine."""

    config: I64
    vc_classes: I64  # [V + 1] classes of VC v are vc_classes[v] … vc_classes[v + 1]
    num_waiting: I64  # [C] waiting jobs of a class
    milli: I64  # [C] milli-GPUs of a class's job
    checkpoint: I64  # [C] microseconds
    restart: I64  # [C]
    ratio: F64  # [n or 1, K] run time on speed column k over work …
    slowdown: F64  # [n] … times that, in the run that goes on
    status: I8  # [n]
    left: I64  # [n] work left at the last start or stop [us on the log's hardware]
    begin: I64  # [n] last start
    held: I64  # [n] time that it held GPUs in runs that are over
    early: I64  # [n] … of it until the last submission
    wasted: I64  # [n] … of it without work
    stops: I64  # [n] how often it had to start again
    ends: Heap
    waiting: Roster
    running: Roster
    ended: I64  # [n] jobs that ended at this instant
    started: I64  # [n] jobs that started at this instant
    key: F64  # [n] scratch of a pass: keys of waiting jobs in their order, or of every job by its row
    best: I64  # [C] scratch of a pass
    use: Use


class Steps(NamedTuple):
    """Everything that the step-wise engine changes or reads."""

    hw: Hardware
    work: Work
    log: Log
    kept: Kept
    events: Events | None = None  # where nodes come and go


def owner_codes(names: Sequence[object]) -> tuple[I64, list[object]]:
    """Number the distinct names in their order; null is one of them."""
    distinct = sorted(set(names), key=lambda name: (name is not None, str(name)))
    code = {name: number for number, name in enumerate(distinct)}
    return np.array([code[name] for name in names], dtype=np.int64), distinct


def make_kept(prepared: Prepared, costs: Costs, *, owner: I64, half_life_s: float) -> Kept:
    """Lay out the structures, empty."""
    n, classes = len(prepared.accepted), prepared.classes
    milli = classes[:, _place.WHOLE] * MILLI + classes[:, _place.PIECES] * classes[:, _place.MILLIS]
    last = prepared.submit[-1] if n else 0
    return Kept(
        config=np.array([0, round(costs.min_run_s * US), last, 0, 0, 0], dtype=np.int64),
        vc_classes=np.searchsorted(classes[:, _place.VC], np.arange(prepared.num_vcs + 1)).astype(np.int64),
        num_waiting=np.zeros(len(classes), dtype=np.int64),
        milli=milli,
        checkpoint=_by_size(costs.checkpoint_overhead_s, milli),
        restart=_by_size(costs.restart_cost_s, milli),
        ratio=_ratio_table(prepared),
        slowdown=np.ones(n, dtype=np.float64),
        status=np.zeros(n, dtype=np.int8),
        left=to_us(prepared.jobs["duration_s"][prepared.accepted]),
        begin=np.zeros(n, dtype=np.int64),
        held=np.zeros(n, dtype=np.int64),
        early=np.zeros(n, dtype=np.int64),
        wasted=np.zeros(n, dtype=np.int64),
        stops=np.zeros(n, dtype=np.int64),
        ends=make_heap(n),
        waiting=_roster(prepared),
        running=_roster(prepared),
        ended=np.empty(n, dtype=np.int64),
        started=np.empty(n, dtype=np.int64),
        key=np.empty(n, dtype=np.float64),
        best=np.empty(len(classes), dtype=np.int64),
        use=_make_use(owner, half_life_s),
    )


def _roster(prepared: Prepared) -> Roster:
    vc = prepared.classes[prepared.job_class, _place.VC]
    counts = np.bincount(vc, minlength=prepared.num_vcs)
    base = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    zeros = np.zeros(prepared.num_vcs, dtype=np.int64)
    return Roster(np.empty(len(vc), dtype=np.int64), base[:-1].copy(), zeros, base)


def _make_use(owner: I64, half_life_s: float) -> Use:
    num_owners = int(owner.max(initial=-1)) + 1
    return Use(
        owner=owner,
        gpu_time=np.zeros(num_owners, dtype=np.float64),
        at=np.zeros(num_owners, dtype=np.int64),
        milli=np.zeros(num_owners, dtype=np.int64),
        half_life=np.array([half_life_s * US if half_life_s < math.inf else math.inf]),
    )
