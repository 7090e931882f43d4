"""Ranks: the order of a policy as integers, and the queues that keep it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.errors import HindcastError
from analysis.replay import _place
from analysis.replay._bits import I64
from analysis.replay._closed import F64
from analysis.replay._hardware import TYPE
from analysis.replay._jobs import US
from analysis.replay._prepare import Prepared
from analysis.replay._queues import Queues
from analysis.replay.policies import Policy


def key_values(policy: Policy, prepared: Prepared, predicted: I64) -> npt.NDArray[Any]:
    """Sort key of every accepted job, with the predicted microseconds given.

    Raises
    ------
    HindcastError
        If the key is null or NaN somewhere: such a job has no place in the order.
    """
    jobs = prepared.jobs if len(prepared.accepted) == prepared.jobs.height else prepared.jobs[prepared.accepted]
    absent = [pl.lit(None, dtype).alias(name) for name, dtype in policy.optional.items() if name not in jobs.columns]
    frame = jobs.with_columns(*absent, predicted_duration_s=pl.Series(predicted / US, dtype=pl.Float64))
    rule: Any = policy.rule
    key = frame.select(rule.alias("key"))["key"]
    bad = key.is_null() | (key.is_nan() if key.dtype.is_float() else False)
    if bad.any():
        ids = frame.filter(bad)["job_id"].head(3).to_list()
        msg = (
            f"policy {policy.name!r}: its key is null or NaN for {int(bad.sum())} jobs (first ids {ids}); every job "
            "needs a place in the order. Fill the key's nulls, e.g. with .fill_null(float('inf'))."
        )
        raise HindcastError(msg)
    if key.dtype.is_numeric() or key.dtype.is_temporal() or key.dtype == pl.Boolean:
        return key.to_physical().to_numpy()
    return key.rank("dense").to_numpy()


def _ranks(order: I64, num_places: int) -> tuple[I64, I64]:
    rank = np.full(num_places, -1, dtype=np.int64)
    rank[order] = np.arange(len(order), dtype=np.int64)
    return rank, order.astype(np.int64)


def job_ranks(policy: Policy, prepared: Prepared) -> tuple[I64, I64]:
    """Rank of every accepted job, ties by (submit_time, job_id), and the job at every rank."""
    key = key_values(policy, prepared, prepared.predicted_log)
    n = len(key)
    if np.all(key[1:] >= key[:-1]):
        same = np.arange(n, dtype=np.int64)
        return same, same
    return _ranks(np.argsort(key, kind="stable"), n)


def type_slots(prepared: Prepared) -> list[list[int]]:
    """GPU types of every VC in the order of each type's lowest node there."""
    hw = prepared.hw
    return [
        list(dict.fromkeys(hw.groups[hw.vc_groups[v] : hw.vc_groups[v + 1], TYPE].tolist()))
        for v in range(prepared.num_vcs)
    ]


def pair_ranks(policy: Policy, prepared: Prepared, slots: list[list[int]]) -> tuple[I64, I64]:
    """Rank of every (job, GPU type) pair: by key, predicted finish, job, type; -1 where the job may not use it."""
    num_slots = max(len(types) for types in slots)
    table = np.array([types + [-1] * (num_slots - len(types)) for types in slots], dtype=np.int64)
    classes = prepared.classes[prepared.job_class]
    gpu_type = table[classes[:, _place.VC]]
    usable = (gpu_type >= 0) & ((classes[:, _place.TYPES, None] >> np.maximum(gpu_type, 0)) & 1 == 1)
    per_column = [key_values(policy, prepared, prepared.predicted[:, k]) for k in range(prepared.predicted.shape[1])]
    rows = np.arange(len(gpu_type))[:, None]
    column = prepared.column[gpu_type]
    key = np.stack(per_column, axis=1)[rows, column].ravel()
    finish = prepared.predicted[rows, column].ravel()
    places = np.flatnonzero(usable.ravel())
    order = places[np.lexsort((finish[places], key[places]))]
    return _ranks(order, usable.size)


def make_queues(policy: Policy, prepared: Prepared, key: F64 | None = None) -> Queues:
    """Lay out the queues that the policy's trait asks for, empty; ``key`` will hold keys that are known at arrival."""
    classes, num_vcs = prepared.classes, prepared.num_vcs
    vc_classes = np.searchsorted(classes[:, _place.VC], np.arange(num_vcs + 1)).astype(np.int64)
    num_slots, types = 1, np.full(len(classes), -1, dtype=np.int64)
    if policy.trait == "fastest":
        slots = type_slots(prepared)
        num_slots = max(len(row) for row in slots)
        rank, place_at = pair_ranks(policy, prepared, slots)
        queue = prepared.job_class[:, None] * num_slots + np.arange(num_slots)
        padded = np.array([[1 << t for t in row] + [0] * (num_slots - len(row)) for row in slots], dtype=np.int64)
        types = padded[classes[:, _place.VC]].ravel()
    else:
        same = np.arange(len(prepared.accepted), dtype=np.int64)
        rank, place_at = (same, same) if key is not None else job_ranks(policy, prepared)
        queue = prepared.job_class
    vc_queues = vc_classes * num_slots
    if policy.trait == "strict":
        queue = classes[prepared.job_class, _place.VC]
        types = np.full(num_vcs, -1, dtype=np.int64)
        vc_queues = np.arange(num_vcs + 1, dtype=np.int64)
    counts = np.bincount(queue.ravel(), minlength=len(types))
    return Queues(
        num_slots=num_slots,
        rank=rank,
        place_at=place_at,
        queue=queue.ravel().astype(np.int64),
        heap=np.empty(rank.size, dtype=np.int64),
        first=np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64),
        length=np.zeros(len(types), dtype=np.int64),
        fresh=np.zeros(len(types), dtype=np.int64),
        vc_queues=vc_queues,
        types=types,
        key=key,
    )
