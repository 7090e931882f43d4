"""What preemptive policies keep: the work of every job, waiting jobs by key, running jobs by event and by node."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from analysis.replay import _place
from analysis.replay._bits import I64
from analysis.replay._compiled import constant
from analysis.replay._hardware import COUNT, MILLI, SIZE, TYPE, Hardware
from analysis.replay._heap import Heap, make_heap
from analysis.replay._jobs import US, to_us
from analysis.replay._prepare import Prepared
from analysis.replay._state import Log, Work
from analysis.replay.policies.registry import Policy
from analysis.replay.policies.rules import MovingKey, SecondsBySize

F64 = npt.NDArray[np.float64]
# Places in ``Moving.rule``.
KIND, QUANTUM, MIN_RUN, IS_STRICT, LAST_SUBMIT = 0, 1, 2, 3, 4
REMAINING, LEVELS, SLICES = constant(0), constant(1), constant(2)
#: Key of a running job that may not be stopped.
SAFE: Final = constant(np.iinfo(np.int64).min + 1)
# In place of a job: nobody's eviction makes room; there is room already.
NOBODY: Final = constant(-1)
ROOM: Final = constant(-2)


class Moving(NamedTuple):
    """Data structures of preemption."""

    rule: I64
    thresholds: I64  # [L] milli-GPUs times microseconds
    place_of_level: I64  # [L + 1]
    milli: I64  # [C] milli-GPUs of a class's job
    checkpoint: I64  # [C] microseconds
    restart: I64  # [C]
    is_wide: I64  # [C] 1: whole nodes of one size for each type, without rest
    ratio: F64  # [n or 1, K] run time on speed column k over work
    # Jobs.
    left: I64  # [n] work left at the last start or stop [us on the log's hardware]
    guess: I64  # [n] the same of the predicted work
    held: I64  # [n] time that it held GPUs in runs that are over
    early: I64  # [n] … of it until the last submission
    wasted: I64  # [n] … of it without work
    stops: I64  # [n]
    begin: I64  # [n] last start
    key: I64  # [n] place in the order: while it waits, and while it runs
    # Waiting jobs: heaps by (key, job), one per VC where the head blocks, else one per class.
    heap: I64
    first: I64  # [Q]
    length: I64  # [Q]
    fresh: I64  # [Q] 1: somebody came since the last pass
    mark: I64  # [Q] in a pass: 0 not looked at, 1 live, 2 nobody fits any more
    vc_queues: I64  # [V + 1]
    stuck: I64  # [V] head that found no room in the last pass
    waiting: I64  # [V]
    # Running jobs: a heap by next event, and a list per VC.
    events: Heap
    runner: I64  # all lists behind each other …
    runner0: I64  # [V]
    num_runners: I64  # [V]
    place: I64  # [n] place on the list
    tick: I64  # [V] end of the slice; NEVER while nobody waits
    slice0: I64  # [V] where counting of slices begins
    # Without fractions: what runs on each node, last in the order first, and who must go for g GPUs there.
    slot0: I64  # [N + 1]
    slot_job: I64
    slot_gpus: I64
    num_slots: I64  # [N]
    tree: I64  # per group and number of GPUs a tree of maxima over the group's nodes
    tree_key: I64  # the key that a job in a tree had
    tree0: I64  # [G]
    width: I64  # [G]
    is_asked: I64  # whether somebody may ask for so many GPUs of a group's nodes …
    asked0: I64  # [G] … whose answers begin here
    is_stale: I64  # [N] 1: the node's leaves must be worked out anew …
    stale: I64  # … and these are such nodes
    num_stale: I64
    # Scratch.
    victim: I64  # [n] jobs looked at, last in the order first
    pick: I64  # [N]
    picked: I64  # [N]


class Preemption(NamedTuple):
    """Everything that the preemptive loop changes or reads."""

    hw: Hardware
    work: Work
    log: Log
    m: Moving


def make_moving(policy: Policy, rule: MovingKey, prepared: Prepared) -> Moving:
    """Lay out the structures, empty."""
    hw, classes = prepared.hw, prepared.classes
    milli = classes[:, _place.WHOLE] * MILLI + classes[:, _place.PIECES] * classes[:, _place.MILLIS]
    thresholds = np.array([round(value * MILLI * US) for value in rule.thresholds_gpu_s], dtype=np.int64)
    is_strict = policy.trait == "strict"
    facts = [
        {"remaining": REMAINING, "levels": LEVELS, "slices": SLICES}[rule.kind],
        max(round(rule.quantum_s * US), 1),
        round(rule.costs.min_run_s * US),
        is_strict,
        prepared.submit[-1] if len(prepared.submit) else 0,
    ]
    return Moving(
        rule=np.array(facts, dtype=np.int64),
        thresholds=thresholds,
        place_of_level=_level_places(rule, thresholds, prepared, milli),
        milli=milli,
        checkpoint=_by_size(rule.costs.checkpoint_overhead_s, milli),
        restart=_by_size(rule.costs.restart_cost_s, milli),
        is_wide=wide_classes(classes, hw),
        ratio=_ratio_table(prepared),
        **_job_arrays(prepared),
        **_lines(prepared, is_strict=is_strict),
        **_node_arrays(prepared),
        victim=np.empty(len(prepared.accepted), dtype=np.int64),
        pick=np.empty(len(hw.free), dtype=np.int64),
        picked=np.empty(len(hw.free), dtype=np.int64),
    )


def _job_arrays(prepared: Prepared) -> dict[str, Any]:
    """What is kept of every job."""
    n = len(prepared.accepted)
    return {
        "left": to_us(prepared.jobs["duration_s"][prepared.accepted]),
        "guess": prepared.predicted_log.copy(),
        **{name: np.zeros(n, dtype=np.int64) for name in ("held", "early", "wasted", "stops")},
        **{name: np.empty(n, dtype=np.int64) for name in ("begin", "key")},
    }


def _lines(prepared: Prepared, *, is_strict: bool) -> dict[str, Any]:
    """Queues of those who wait, and lists of those who run."""
    n, num_vcs, classes = len(prepared.accepted), prepared.num_vcs, prepared.classes
    vc = classes[prepared.job_class, _place.VC]
    num_queues = num_vcs if is_strict else len(classes)
    counts = np.bincount(vc if is_strict else prepared.job_class, minlength=num_queues)
    by_class = np.searchsorted(classes[:, _place.VC], np.arange(num_vcs + 1))
    vc_counts = np.bincount(vc, minlength=num_vcs)
    first_submit = np.zeros(num_vcs, dtype=np.int64)
    first_submit[vc[::-1]] = prepared.submit[::-1]
    return {
        "heap": np.empty(n, dtype=np.int64),
        "first": (np.cumsum(counts) - counts).astype(np.int64),
        **{name: np.zeros(num_queues, dtype=np.int64) for name in ("length", "fresh", "mark")},
        "vc_queues": (np.arange(num_vcs + 1) if is_strict else by_class).astype(np.int64),
        "stuck": np.full(num_vcs, NOBODY, dtype=np.int64),
        "waiting": np.zeros(num_vcs, dtype=np.int64),
        "events": make_heap(n),
        "runner": np.empty(n, dtype=np.int64),
        "runner0": (np.cumsum(vc_counts) - vc_counts).astype(np.int64),
        "num_runners": np.zeros(num_vcs, dtype=np.int64),
        "place": np.empty(n, dtype=np.int64),
        "tick": np.full(num_vcs, np.iinfo(np.int64).max, dtype=np.int64),
        "slice0": first_submit,
    }


def _node_arrays(prepared: Prepared) -> dict[str, Any]:
    """What runs on each node, and the trees over the nodes."""
    hw = prepared.hw
    tree0, width, tree = _trees(hw)
    is_asked, asked0 = _asked(prepared.classes, hw)
    num_slots = 0 if len(hw.room) else int((hw.groups[:, SIZE] * hw.groups[:, COUNT]).sum())
    return {
        "slot0": hw.device0,
        **{name: np.empty(num_slots, dtype=np.int64) for name in ("slot_job", "slot_gpus")},
        "num_slots": np.zeros(len(hw.free), dtype=np.int64),
        "tree": tree,
        "tree_key": np.where(tree == ROOM, np.iinfo(np.int64).max, np.iinfo(np.int64).min),
        "tree0": tree0,
        "width": width,
        "is_asked": is_asked,
        "asked0": asked0,
        "is_stale": np.zeros(len(hw.free), dtype=np.int64),
        "stale": np.empty(len(hw.free), dtype=np.int64),
        "num_stale": np.zeros(1, dtype=np.int64),
    }


def _trees(hw: Hardware) -> tuple[I64, I64, I64]:
    """First word and width of every group's trees, and the trees of empty nodes: room everywhere."""
    count, size = hw.groups[:, COUNT], hw.groups[:, SIZE]
    width = (1 << np.ceil(np.log2(np.maximum(count, 1))).astype(np.int64)).astype(np.int64)
    words = 2 * width * size
    tree0 = (np.cumsum(words) - words).astype(np.int64)
    if len(hw.room):
        return tree0, width, np.empty(0, dtype=np.int64)
    tree = np.full(int(words.sum()), NOBODY, dtype=np.int64)
    for g in range(len(hw.groups)):
        table = tree[tree0[g] : tree0[g] + words[g]].reshape(size[g], 2 * width[g])
        table[:, width[g] : width[g] + count[g]] = ROOM
        level = width[g]
        while level > 1:
            level >>= 1
            children = table[:, 2 * level : 4 * level].reshape(size[g], level, 2)
            table[:, level : 2 * level] = np.where((children == ROOM).any(axis=2), ROOM, NOBODY)
    return tree0, width, tree


def _asked(classes: I64, hw: Hardware) -> tuple[I64, I64]:
    """Numbers of GPUs that some class may ask of one node of each group: what it needs, or the whole node."""
    size = hw.groups[:, SIZE]
    first = (np.cumsum(size + 1) - (size + 1)).astype(np.int64)
    asked = np.zeros(int((size + 1).sum()), dtype=np.int64)
    for g in range(len(size)):
        needs = classes[:, _place.WHOLE]
        asked[first[g] + np.unique(needs[needs <= size[g]])] = 1
        asked[first[g] + size[g]] = 1
    return asked, first


def _by_size(seconds: SecondsBySize, milli: I64) -> I64:
    """Microseconds for each class."""
    steps = seconds if isinstance(seconds, tuple) else ((math.inf, seconds),)
    bounds = [limit * MILLI for limit, _ in steps[:-1]]
    values = np.array([round(value * US) for _, value in steps], dtype=np.int64)
    chosen: I64 = values[np.searchsorted(bounds, milli, side="left")] if bounds else np.full(len(milli), values[0])
    return chosen


def wide_classes(classes: I64, hw: Hardware) -> I64:
    """Whether a class asks for whole nodes of one size, without rest, whatever type it gets."""
    wide = np.zeros(len(classes), dtype=np.int64)
    for c, row in enumerate(classes):
        groups = hw.groups[hw.vc_groups[row[_place.VC]] : hw.vc_groups[row[_place.VC] + 1]]
        types = groups[:, TYPE]
        sizes = groups[:, SIZE]
        wide[c] = (
            row[_place.MODE] == _place.WHOLE_NODES_FIRST
            and row[_place.PIECES] == 0
            and len(np.unique(types)) == len(types)
            and bool(np.all(row[_place.WHOLE] % sizes == 0))
        )
    return wide


def _level_places(rule: MovingKey, thresholds: I64, prepared: Prepared, milli: I64) -> I64:
    """Place of every level in the order."""
    num_levels = len(thresholds) + 1
    if not rule.is_gittins:
        return np.arange(num_levels, dtype=np.int64)
    if rule.service_gpu_s is None:
        service = prepared.predicted_log.astype(np.float64) * milli[prepared.job_class]
    else:
        service = np.asarray(rule.service_gpu_s, dtype=np.float64) * MILLI * US
    bounds = np.concatenate([[0.0], thresholds, [np.inf]])
    index = np.zeros(num_levels)
    for k in range(num_levels):
        alive = service[service > bounds[k]]
        if len(alive):
            cost = (np.minimum(alive, bounds[k + 1]) - bounds[k]).sum()
            index[k] = (alive <= bounds[k + 1]).sum() / cost
    places = np.empty(num_levels, dtype=np.int64)
    places[np.argsort(-index, kind="stable")] = np.arange(num_levels)
    return places


def _ratio_table(prepared: Prepared) -> F64:
    """Run time over work of every job on every speed column; one row if it is the same for all."""
    length = max((np.asarray(ratio).size for ratio in prepared.ratios), default=1)
    columns = [np.broadcast_to(np.asarray(ratio, dtype=np.float64), length) for ratio in prepared.ratios]
    return np.ascontiguousarray(np.stack(columns, axis=1))
