"""What jobs wait for: too few GPUs free, or enough of them free and yet no start. Bounds that need no replay."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from analysis.characterize.buckets import BUCKET, GPU_BUCKETS, conform, grouped_schema
from analysis.characterize.cubes import GROUPS, Rows
from analysis.characterize.inputs import CHANGES
from analysis.characterize.prepare import Facts
from analysis.characterize.quotas import QUOTAS, VC_CHANGES, free_of_quota, gpu_quotas, of_all_groups
from analysis.characterize.registry import characterization
from analysis.characterize.running import Sweep, Window, meta_window, sweeps
from analysis.characterize.weighted import with_all_gpu_jobs
from analysis.metrics import S_PER_H, US_PER_S
from analysis.trace import Trace

__all__ = ["what_jobs_wait_for"]

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
        "scope_vc": GROUPS["vc"],
        **{name: pl.col(name) for name in ("bucket", "milli_gpus", "submit_us", "start_us")},
    },
    where=(pl.col("milli_gpus") > 0) & pl.col("has_times") & (pl.col("start_us") - pl.col("submit_us") > US_PER_S),
)


def _options(trace: Trace) -> dict[str, Any]:
    return {"window": meta_window(trace), "quotas": gpu_quotas(trace)}


@characterization(
    "what_jobs_wait_for",
    inputs=(WAITING, CHANGES, VC_CHANGES),
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
    waiting: pl.DataFrame,
    changes: pl.DataFrame,
    vc_changes: pl.DataFrame,
    *,
    by: tuple[str, ...] = (),
    facts: Facts,
    window: Window = (None, None),
    quotas: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Waiting jobs for which enough GPUs were free, and those for which too few were.

    Parameters
    ----------
    window : pair of datetime, optional
        What the log covers.
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
    of_vc = waiting.partition_by("scope_vc", as_dict=True)
    marked = []
    for scope, keys, cube in (("cluster", [], changes), ("vc", ["vc"], vc_changes)):
        for group, sweep in sweeps(of_all_groups(cube, [*keys, "time_us"]), by=tuple(keys), facts=facts, window=window):
            quota = known.filter(pl.col("vc").eq_missing(group.get("vc")))
            jobs = of_vc.get((group["vc"],)) if keys else waiting
            if jobs is None or (keys and (not quota.height or group["vc"] is None)):
                continue
            marked.append(_mark(jobs, sweep, quota).with_columns(scope=pl.lit(scope, SCOPE)))
    if not marked:
        return pl.DataFrame(schema=schema)
    cube = with_all_gpu_jobs(pl.concat(marked)).filter(pl.col("bucket").is_in(("all", *GPU_BUCKETS)))
    keys = [*by, "scope", "bucket"]
    to_hours = 1 / US_PER_S / S_PER_H
    table = (
        cube.group_by(keys)
        .agg(
            num_jobs=pl.len(),
            num_enough_free=pl.col("is_enough").sum(),
            wait_hours=(pl.col("start_us") - pl.col("submit_us")).sum() * to_hours,
            enough_free_hours=pl.col("enough_us").sum() * to_hours,
            is_capacity_known=pl.col("is_known").all(),
        )
        .with_columns(
            enough_free_share=pl.col("num_enough_free") / pl.col("num_jobs"),
            enough_free_time_share=pl.col("enough_free_hours") / pl.col("wait_hours"),
        )
    )
    return conform(table.sort(keys), schema)


def _mark(waiting: pl.DataFrame, sweep: Sweep, quota: pl.DataFrame) -> pl.DataFrame:
    """Add is_enough (at submission), enough_us (of the waiting), is_known; without a quota the peak stands for it."""
    is_known = quota.height > 0
    peak = pl.DataFrame([(None, 0, int(sweep.milli.max()))], schema=QUOTAS, orient="row")
    times, milli, held = free_of_quota(sweep, quota if is_known else peak)
    free = milli - held
    request = waiting["milli_gpus"].to_numpy()
    submit, start = waiting["submit_us"].to_numpy(), waiting["start_us"].to_numpy()
    first, last = (np.maximum(np.searchsorted(times, t, side="right") - 1, 0) for t in (submit, start))
    is_enough, enough_us = np.zeros(len(request), dtype=bool), np.zeros(len(request), dtype=np.int64)
    # Jobs that ask for the same are done at once: there are few different requests.
    for asked in np.unique(request):
        jobs = np.flatnonzero(request == asked)
        enough = free >= asked
        until = np.concatenate([[0], np.cumsum(np.where(enough[:-1], np.diff(times), 0))])
        is_enough[jobs] = enough[first[jobs]]
        to_submit = until[first[jobs]] + enough[first[jobs]] * (submit[jobs] - times[first[jobs]])
        enough_us[jobs] = until[last[jobs]] + enough[last[jobs]] * (start[jobs] - times[last[jobs]]) - to_submit
    return waiting.with_columns(
        pl.Series("is_enough", is_enough), pl.Series("enough_us", enough_us), pl.lit(value=is_known).alias("is_known")
    )
