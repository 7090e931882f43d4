"""Metrics of a replay by VC, by user, or by any other column of the jobs table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from analysis import metrics as m
from analysis.errors import UnknownNameError
from analysis.frames import jobs_to_polars
from analysis.replay.result import ReplayResult

__all__ = ["metrics_by"]

#: As in the metrics of a whole replay.
SUMMARIES: Final = ("mean", "p50", "p95", "p99", "max")
OF_JOBS: Final = ("jct_s", "queueing_delay_s", "bounded_slowdown")


def metrics_by(results: Mapping[str, ReplayResult], jobs: Any, *, by: str = "vc") -> pl.DataFrame:
    """Metrics of replays, for each VC or user by itself.

    Parameters
    ----------
    results : mapping of str to ReplayResult
        By the name of the schedule.
    jobs : DataFrame of polars or pandas, one row per job
        The jobs table that was replayed; needs job_id and ``by``.
    by : str, default "vc"
        A column of ``jobs``.

    Returns
    -------
    DataFrame, one row per schedule and value of ``by``
        schedule, ``by`` (null: the log does not say), num_jobs (GPU jobs), num_finished, num_unfinished, num_rejected,
        gpu_hours (held in the replay by finished jobs), gpu_hours_share (of all groups of the schedule); mean, p50,
        p95, p99 and max of jct_s, queueing_delay_s and bounded_slowdown over the finished jobs (null where none is;
        quantiles interpolate linearly); num_preemptions, wasted_gpu_s. Most GPU-hours in the first schedule first, the
        same order in all.

    Raises
    ------
    UnknownNameError
        If the jobs table has no such column.

    Examples
    --------
    >>> from datetime import datetime
    >>> from analysis.replay import Cluster, replay
    >>> t = datetime(2024, 1, 1)
    >>> jobs = pl.DataFrame({"job_id": ["1", "2"], "submit_time": [t, t], "num_gpus": [1, 1], "duration_s": [3600, 60]})
    >>> jobs = jobs.with_columns(user=pl.Series(["ann", "bob"]))
    >>> result = replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=1))
    >>> metrics_by({"fifo": result}, jobs, by="user").select("user", "gpu_hours", "mean_queueing_delay_s").rows()
    [('ann', 1.0, 0.0), ('bob', 0.016666666666666666, 3600.0)]
    """
    table = jobs_to_polars(jobs)
    if by not in table.columns:
        raise UnknownNameError(kind="column of the jobs table", found=by, known=table.columns)
    names = table.select("job_id", pl.col(by).alias("group"))
    found = pl.concat([_of_one(label, result, names) for label, result in results.items()])
    first = found.filter(pl.col("schedule") == found["schedule"].first()).select("group", "gpu_hours").unique("group")
    order = first.sort("gpu_hours", "group", descending=[True, False], nulls_last=True).with_row_index("place")
    placed = found.join(order.select("group", "place"), on="group", how="left", nulls_equal=True, maintain_order="left")
    labels = pl.Enum(list(results))
    placed = placed.with_columns(label=pl.col("schedule").cast(labels))
    return placed.sort("label", "place").drop("label", "place").rename({"group": by})


def _of_one(label: str, result: ReplayResult, names: pl.DataFrame) -> pl.DataFrame:
    all_jobs = result.schedule.select("job_id", "state", "num_preemptions", "wasted_gpu_s")
    done = result.job_metrics()
    done = done.select("job_id", *OF_JOBS, gpu_hours=pl.col("num_gpus") * pl.col("run_s") / m.S_PER_H)
    table = all_jobs.join(done, on="job_id", how="left", maintain_order="left")
    table = table.join(names, on="job_id", how="left", maintain_order="left")
    is_state = {state: pl.col("state") == state for state in ("finished", "unfinished", "rejected")}
    grouped = table.group_by("group", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("num_jobs"),
        *(test.sum().cast(pl.Int64).alias(f"num_{state}") for state, test in is_state.items()),
        pl.col("gpu_hours").sum(),
        *(_summary(name, how) for name in OF_JOBS for how in SUMMARIES),
        pl.col("num_preemptions").sum(),
        pl.col("wasted_gpu_s").sum(),
    )
    share = pl.col("gpu_hours") / pl.when(pl.col("gpu_hours").sum() > 0).then(pl.col("gpu_hours").sum())
    columns = grouped.columns
    place = columns.index("gpu_hours") + 1
    grouped = grouped.with_columns(schedule=pl.lit(label), gpu_hours_share=share)
    return grouped.select("schedule", *columns[:place], "gpu_hours_share", *columns[place:])


def _summary(name: str, how: str) -> pl.Expr:
    values = pl.col(name)
    if how in {"mean", "max"}:
        found = values.mean() if how == "mean" else values.max()
    else:
        found = values.quantile(int(how[1:]) / 100, interpolation="linear")
    return found.alias(f"{how}_{name}")
