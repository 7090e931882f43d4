"""A trace in which every table is filled: a synthetic log replayed on its own nodes, and measured."""

from __future__ import annotations

import polars as pl

from analysis import schema
from analysis.loaders.synthetic import synthesize
from analysis.replay import Cluster, replay
from analysis.report.replayed import as_replayed
from analysis.trace import Trace

__all__ = ["rich_trace"]


def rich_trace(*, num_jobs: int = 1500, seed: int = 1) -> Trace:
    """Make it: jobs as they ran in a replay, attempts with their nodes, a made-up utilization of each job."""
    log = synthesize(like="venus", num_jobs=num_jobs, seed=seed)
    schedule = replay(log.jobs, cluster=Cluster.from_trace(log), policy="fifo_skip").schedule
    jobs = as_replayed(log.jobs, schedule)
    attempts = (
        schedule.filter(pl.col("state") == "finished")
        .join(jobs.select("job_id", "num_gpus"), on="job_id")
        .select("job_id", "start_time", "end_time", "nodes", attempt=pl.lit(1, pl.Int64), gpus="num_gpus")
        .select(list(schema.ATTEMPTS))
    )
    number = pl.col("job_id").cast(pl.Int64)
    usage = jobs.filter(pl.col("num_gpus") > 0).select(
        "job_id",
        gpu_utilization_mean=(number % 10) / 10,
        gpu_utilization_p50=(number % 10) / 10,
        gpu_utilization_p95=(number % 10) / 10 + 0.1,
        gpu_mem_gib_max=(number % 80).cast(pl.Float64),
        cpu_utilization_mean=(number % 5) / 10,
        mem_gib_max=(number % 200).cast(pl.Float64),
    )
    return Trace(
        schema.sort_jobs(jobs),
        meta=log.meta,
        tables={"nodes": log.nodes, "attempts": attempts, "usage": usage.select(list(schema.USAGE))},
    )
