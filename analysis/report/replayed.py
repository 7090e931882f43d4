"""Queueing delay and GPUs in use from replays, for logs that do not say when jobs started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from analysis import metrics, schema
from analysis.characterize import queueing_delay_cdf, running_gpus

if TYPE_CHECKING:
    from analysis.replay import ReplayResult
    from analysis.trace import Trace

__all__ = ["Replayed", "as_replayed", "characterize_replays"]


@dataclass(frozen=True)
class Replayed:
    """Result tables by policy, and by policy in words where the jobs were replayed."""

    tables: dict[str, dict[str, pl.DataFrame]] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)


def as_replayed(jobs: pl.DataFrame, schedule: pl.DataFrame) -> pl.DataFrame:
    """Make a jobs table whose times are those of a replay; jobs that did not finish there are left out.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of the jobs table.
    schedule : DataFrame
        job_id, start_time, end_time, state, as a replay gives it.
    """
    ended = schedule.filter(pl.col("state") == "finished").select("job_id", "start_time", "end_time")
    columns = list(schema.JOBS)
    return (
        jobs.drop("start_time", "end_time")
        .join(ended, on="job_id", how="inner", maintain_order="left")
        .with_columns(
            metrics.queueing_delay_s(),
            censoring=pl.lit("none", dtype=schema.CENSORING),
            flags=pl.lit([], dtype=schema.FLAG_LIST),
        )
        .select(columns)
    )


def characterize_replays(trace: Trace, replays: Mapping[str, ReplayResult] | None) -> Replayed:
    """Compute the tables of queueing delay and GPUs in use of each replay, by policy."""
    tables, where = {}, {}
    for policy, result in (replays or {}).items():
        as_if = as_replayed(trace.jobs, result.schedule)
        tables[policy] = {"queueing_delay_cdf": queueing_delay_cdf(as_if), "running_gpus": running_gpus(as_if)}
        where[policy] = f"a cluster of {result.cluster.num_gpus:,} GPUs ({result.cluster.name})"
    return Replayed(tables, where)
