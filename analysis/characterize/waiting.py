"""What jobs wait for: too few GPUs free, or enough of them free and yet no start. Bounds that need no replay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import BUCKET, GPU_BUCKETS, conform, grouped_schema
from analysis.characterize.cubes import Rows
from analysis.characterize.prepare import hashed
from analysis.characterize.quotas import QUOTAS, gpu_quotas, quota_at
from analysis.characterize.registry import characterization
from analysis.characterize.weighted import with_all_gpu_jobs
from analysis.metrics import S_PER_H, US_PER_S
from analysis.trace import Trace

__all__ = ["what_jobs_wait_for"]

IntArray = NDArray[np.int64]

SCOPE: Final = pl.Enum(["cluster", "vc"])
WAITING_SCHEMA: Final = {
    "scope": SCOPE,
    "bucket": BUCKET,
    "num_jobs": pl.Int64(),
    "num_enough_free": pl.Int64(),
    "enough_free_share": pl.Float64(),
    "wait_hours": pl.Float64(),
    "enough_free_hours": pl.Float64(),
    "enough_free_time_share": pl.Float64(),
    "is_capacity_known": pl.Boolean(),
}

#: GPU jobs that waited longer than a second before they started.
WAITING: Final = Rows(
    "waiting jobs",
    columns={
        "scope_key": pl.col("vc_key"),
        **{name: pl.col(name) for name in ("bucket", "milli_gpus", "submit_us", "start_us")},
    },
    where=(pl.col("milli_gpus") > 0) & pl.col("has_times") & (pl.col("start_us") - pl.col("submit_us") > US_PER_S),
)
#: Every instant at which a job takes or gives back GPUs.
HELD: Final = Rows(
    "changes",
    columns={"holder_key": pl.col("vc_key"), **{name: pl.col(name) for name in ("time_us", "milli_change")}},
    table="changes",
)
#: What is summed up over waiting jobs.
SUMS: Final = {
    "num_jobs": pl.len().cast(pl.Int64),
    "num_enough_free": pl.col("is_enough").sum().cast(pl.Int64),
    "wait_us": (pl.col("start_us") - pl.col("submit_us")).sum(),
    "enough_us": pl.col("enough_us").sum(),
}


def _options(trace: Trace) -> dict[str, Any]:
    return {"quotas": gpu_quotas(trace)}


@characterization(
    "what_jobs_wait_for",
    inputs=(WAITING, HELD),
    title="What GPU jobs wait for",
    definition=(
        "GPU jobs that waited longer than 1 s. num_enough_free: at their submission at least as many GPUs were free as "
        "they ask for, so that it was not the lack of GPUs but fragmentation, a type of GPU, a limit or the order of "
        "the queue that held them; for the others the cluster had too few. enough_free_hours: the part of their "
        "waiting during which enough were free. Both are upper bounds of what a better placement could save. Scope "
        "'cluster': all GPUs; 'vc': those of the job's virtual cluster, where a lack is what ATC'19 calls fair-share "
        "delay and the rest fragmentation delay. Where the GPUs are not known, the most in use at one time stand for "
        "them (is_capacity_known false). A filter also takes away what other jobs hold: group instead."
    ),
    source="M. Jeon et al., ATC 2019, section 3.1, https://www.usenix.org/conference/atc19/presentation/jeon",
    needs=("start_time", "submit_time", "num_gpus"),
    empty_means="No GPU job is known to have waited longer than a second.",
    options=_options,
)
def what_jobs_wait_for(
    waiting: pl.DataFrame, held: pl.DataFrame, *, by: tuple[str, ...] = (), quotas: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Waiting jobs for which enough GPUs were free, and those for which too few were.

    Parameters
    ----------
    quotas : DataFrame, optional
        GPUs of the cluster and of virtual clusters over time, as `gpu_quotas` gives them; no rows of scope "vc" for
        those that it does not name.

    Returns
    -------
    DataFrame, a row per scope and bucket of waiting jobs ("all" = all GPU jobs)
        scope, bucket, num_jobs, num_enough_free and its share, wait_hours (of the jobs, not GPU-hours),
        enough_free_hours and its share, is_capacity_known.
    """
    schema = grouped_schema(by, WAITING_SCHEMA)
    known = pl.DataFrame(schema=QUOTAS) if quotas is None else quotas
    cubes = []
    for scope, name, jobs, times, milli in _scopes(waiting, held, known):
        quota = known.filter(pl.col("vc").eq_missing(name))
        marked = _mark(jobs, times, milli, quota).group_by([*by, "bucket"]).agg(**SUMS)
        cubes.append(marked.with_columns(scope=pl.lit(scope, SCOPE), is_known=pl.lit(quota.height > 0)))
    if not cubes:
        return pl.DataFrame(schema=schema)
    cube = with_all_gpu_jobs(pl.concat(cubes)).filter(pl.col("bucket").is_in(("all", *GPU_BUCKETS)))
    keys = [*by, "scope", "bucket"]
    to_hours = 1 / US_PER_S / S_PER_H
    table = (
        cube.group_by(keys)
        .agg(
            pl.col("num_jobs", "num_enough_free").sum(),
            wait_hours=pl.col("wait_us").sum() * to_hours,
            enough_free_hours=pl.col("enough_us").sum() * to_hours,
            is_capacity_known=pl.col("is_known").all(),
        )
        .with_columns(
            enough_free_share=pl.col("num_enough_free") / pl.col("num_jobs"),
            enough_free_time_share=pl.col("enough_free_hours") / pl.col("wait_hours"),
        )
    )
    return conform(table.sort(keys), schema)


def _scopes(
    waiting: pl.DataFrame, held: pl.DataFrame, quotas: pl.DataFrame
) -> Iterator[tuple[str, str | None, pl.DataFrame, IntArray, IntArray]]:
    """The cluster and each virtual cluster with a quota: its waiting jobs, and the GPUs in use from each instant on."""
    if not waiting.height or not held.height:
        return
    # What is looked at in order stays in the cache.
    jobs = waiting.sort("submit_us")
    order = np.argsort(held["time_us"].to_numpy())
    times, change = held["time_us"].to_numpy()[order], held["milli_change"].to_numpy()[order]
    yield "cluster", None, jobs, *_levels(times, change)
    names = quotas.select("vc").drop_nulls().unique().with_columns(key=hashed(pl.col("vc"))).sort("key")
    by_holder, held_bounds = _by_name(held["holder_key"].gather(order), names["key"])
    by_scope, job_bounds = _by_name(jobs["scope_key"], names["key"])
    for place, name in enumerate(names["vc"]):
        changes = by_holder[held_bounds[place] : held_bounds[place + 1]]
        own = by_scope[job_bounds[place] : job_bounds[place + 1]]
        if len(own) and len(changes):
            yield "vc", name, jobs[own], *_levels(times[changes], change[changes])


def _by_name(keys: pl.Series, known: pl.Series) -> tuple[IntArray, IntArray]:
    """Rows in the order of their key among those known (sorted), as they come within it; and where each key begins."""
    numbers, first = known.to_numpy(), keys.fill_null(0).to_numpy()
    place = np.searchsorted(numbers, first)
    is_known = keys.is_not_null().to_numpy() & (np.append(numbers, 0)[place] == first)
    # Numbers of 16 bits are sorted fastest; who is not known comes last.
    place = np.where(is_known, place, len(numbers)).astype(np.uint16 if len(numbers) < 2**16 else np.uint32)
    bounds = np.cumsum(np.append(0, np.bincount(place, minlength=len(numbers))))
    return np.argsort(place, kind="stable"), bounds


def _levels(times: IntArray, change: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct instants, and what is in use from each on."""
    last = np.append(np.flatnonzero(np.diff(times)), len(times) - 1)
    return times[last], np.cumsum(change)[last]


def _mark(waiting: pl.DataFrame, times: IntArray, milli: IntArray, quota: pl.DataFrame) -> pl.DataFrame:
    """Add is_enough (at submission) and enough_us (of the waiting); without a quota the peak stands for it."""
    # Numba takes half a second to import, and few tables need it.
    from analysis.characterize.waiting_loop import enough_before

    if quota.height:
        # Instants at which the quota changes: the use stays what it was.
        changes = quota["time_us"].to_numpy()[1:]
        place = np.searchsorted(times, changes, side="right")
        milli = np.insert(milli, place, np.where(place > 0, milli[np.maximum(place - 1, 0)], 0))
        times = np.insert(times, place, changes)
        free = quota_at(quota, times) - milli
    else:
        free = milli.max() - milli
    request = waiting["milli_gpus"].to_numpy()
    submit, start = waiting["submit_us"].to_numpy(), waiting["start_us"].to_numpy()
    # Before the first instant nothing is in use; only what lies between the first submission and the last start counts.
    times = np.concatenate([[submit.min()], np.clip(times, submit.min(), start.max())])
    free = np.concatenate([free[:1] + milli[:1], free])
    asked, rank = np.unique(request, return_inverse=True)
    is_enough, until_submit = enough_before((times, free), asked, rank, submit, np.arange(len(submit)))
    _, until_start = enough_before((times, free), asked, rank, start, np.argsort(start))
    enough_us = until_start - until_submit
    return waiting.with_columns(pl.Series("is_enough", is_enough), pl.Series("enough_us", enough_us))
