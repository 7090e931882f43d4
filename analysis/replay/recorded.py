"""The log's own schedule as a replay result: what the scheduler that ran did, in the terms of the others."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from analysis import metrics as m
from analysis import schema
from analysis.errors import SchemaError
from analysis.frames import jobs_to_polars
from analysis.replay.cluster import Cluster
from analysis.replay.result import SCHEDULE, ReplayResult

__all__ = ["RECORDED", "recorded"]

#: Name of the log's own schedule where policies are named.
RECORDED: Final = "recorded"
NEEDED: Final = ("job_id", "submit_time", "start_time", "end_time", "num_gpus", "duration_s")
UNKNOWN_START: Final = "unknown_start"


def recorded(jobs: Any, *, cluster: Cluster, attempts: pl.DataFrame | None = None) -> ReplayResult:
    """Give the log's own starts and ends as a replay result.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table; CPU jobs are left out and counted.
    cluster : Cluster
        What the log ran on, for shares of its GPUs; nothing is placed.
    attempts : DataFrame, optional
        The trace's attempts: the nodes that each job had. Without them the lists of nodes are empty.

    Returns
    -------
    ReplayResult
        policy "recorded". A job without a recorded start is ``rejected`` (``unknown_start``): the log never started
        it, or does not say. A job without an end counts until its known running time (``right_censored``), or is
        ``unfinished``. Attempts after the first count as preemptions, whatever ended the one before.
        ``max_queue_length`` is over the jobs with a recorded start.

    Raises
    ------
    SchemaError
        If a column is missing.

    Examples
    --------
    >>> from datetime import datetime, timedelta
    >>> t = datetime(2024, 1, 1)
    >>> log = {"job_id": ["a"], "submit_time": [t], "num_gpus": [1.0], "duration_s": [60.0]}
    >>> log |= {"start_time": [t + timedelta(seconds=30)], "end_time": [t + timedelta(seconds=90)]}
    >>> result = recorded(pl.DataFrame(log), cluster=Cluster.uniform(num_nodes=1, num_gpus=8))
    >>> result.metrics()["mean_jct_s"]
    90.0
    """
    table = jobs_to_polars(jobs)
    if missing := [name for name in NEEDED if name not in table.columns]:
        violations = [f"column {name!r} is missing; expected {schema.JOBS[name]}" for name in missing]
        raise SchemaError(table="jobs", violations=violations)
    gpu_jobs = schema.sort_jobs(table.filter(pl.col("num_gpus").fill_null(1) > 0))
    gpu_jobs = gpu_jobs.with_columns(pl.col("submit_time", "start_time", "end_time").cast(schema.TIME))
    schedule = _schedule(gpu_jobs, attempts)
    submits = gpu_jobs["submit_time"].drop_nulls().dt.timestamp("us").to_numpy()
    window = float(np.ptp(submits)) / m.US_PER_S if len(submits) else 0.0
    submitted = float(gpu_jobs.select((pl.col("num_gpus") * pl.col("duration_s")).sum()).item() or 0.0)
    counts: dict[str, float | int | None] = {
        "max_queue_length": _most_waiting(gpu_jobs),
        "offered_load": submitted / (cluster.num_gpus * window) if window > 0 else None,
        "num_cpu_jobs_left_out": table.height - gpu_jobs.height,
        "num_censored": int((schedule["reason"] == "right_censored").sum()),
    }
    notes = [*cluster.notes, "Recorded: starts and ends are the log's own; nothing is simulated."]
    return ReplayResult(
        schedule=schedule,
        policy=RECORDED,
        placement=RECORDED,
        predicted=None,
        cluster=cluster,
        notes=tuple(notes),
        jobs=gpu_jobs.select("submit_time", "num_gpus", "duration_s"),
        counts=counts,
    )


def _schedule(jobs: pl.DataFrame, attempts: pl.DataFrame | None) -> pl.DataFrame:
    start, end = pl.col("start_time"), pl.col("end_time")
    ran = pl.duration(microseconds=(pl.col("duration_s") * m.US_PER_S).round())
    is_known = start.is_not_null()
    table = jobs.with_columns(
        reason=pl.when(~is_known).then(pl.lit(UNKNOWN_START)).when(end.is_null()).then(pl.lit("right_censored")),
        end_time=pl.when(is_known).then(pl.coalesce(end, start + ran)),
    ).with_columns(
        state=pl.when(~is_known)
        .then(pl.lit("rejected"))
        .when(end.is_null())
        .then(pl.lit("unfinished"))
        .otherwise(pl.lit("finished"))
    )
    nodes = _nodes(attempts)
    table = table.join(nodes, on="job_id", how="left", maintain_order="left")
    origin = jobs["submit_time"].min()
    since = {
        f"{name}_s": (pl.col(f"{name}_time") - pl.lit(origin, dtype=schema.TIME)).dt.total_microseconds() / m.US_PER_S
        for name in ("start", "end")
    }
    gpu_type = pl.col("gpu_type") if "gpu_type" in jobs.columns else pl.lit(None)
    tries = pl.col("num_attempts") if "num_attempts" in jobs.columns else pl.lit(None)
    table = table.with_columns(
        **since,
        nodes=pl.col("nodes").fill_null([]),
        gpu_type=gpu_type,
        num_preemptions=pl.max_horizontal(tries - 1, pl.lit(0)).fill_null(0),
        num_restarts=pl.lit(0),
        wasted_gpu_s=pl.lit(0.0),
    )
    return table.select(pl.col(name).cast(dtype) for name, dtype in SCHEDULE.items())


def _nodes(attempts: pl.DataFrame | None) -> pl.DataFrame:
    """Nodes of each job's last attempt that names any."""
    if attempts is None or not attempts.height:
        return pl.DataFrame(schema={"job_id": pl.String(), "nodes": pl.List(pl.String())})
    named = attempts.filter(pl.col("nodes").list.len() > 0).sort("job_id", "attempt")
    return named.group_by("job_id", maintain_order=True).last().select("job_id", "nodes")


def _most_waiting(jobs: pl.DataFrame) -> int:
    """Most jobs at one time that were submitted and not started; a start counts before a submission of its instant."""
    waited = jobs.filter(pl.col("start_time") > pl.col("submit_time"))
    if not waited.height:
        return 0
    begin, end = (waited[name].dt.timestamp("us").to_numpy() for name in ("submit_time", "start_time"))
    change = np.repeat([1, -1], [len(begin), len(end)])
    order = np.lexsort((change, np.concatenate([begin, end])))
    return int(np.cumsum(change[order]).max())
