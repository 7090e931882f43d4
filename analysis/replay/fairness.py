"""How evenly users or VCs fared in a replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from analysis import metrics as m
from analysis.errors import UnknownNameError
from analysis.replay.groups import metrics_by
from analysis.replay.result import ReplayResult

__all__ = ["MEASURES", "fairness"]

#: What a group is judged by: the mean over its finished jobs.
MEASURES: Final = ("bounded_slowdown", "queueing_delay_s", "jct_s")


def fairness(
    results: Mapping[str, ReplayResult], jobs: Any, *, by: str = "user", measure: str = "bounded_slowdown"
) -> pl.DataFrame:
    """Compare what the groups of jobs lived through, each group counting once.

    Parameters
    ----------
    results : mapping of str to ReplayResult
        By the name of the schedule.
    jobs : DataFrame of polars or pandas, one row per job
        The jobs table that was replayed; needs job_id and ``by``.
    by : str, default "user"
        A column of ``jobs``.
    measure : str, default "bounded_slowdown"
        One of ``MEASURES``.

    Returns
    -------
    DataFrame, one row per schedule
        schedule, num_groups (with a finished job; only these count), num_groups_left_out (with GPU jobs, none of which
        finished), num_jobs_of_nobody (``by`` is null; they count in no group), mean and max over groups, worst (the
        group with the max; the first by name of several), jain (``metrics.jain_index``), max_over_mean. Null where
        no group counts, or the mean is 0.

    Raises
    ------
    UnknownNameError
        If the jobs table has no such column, or there is no such measure.

    Examples
    --------
    >>> from datetime import datetime
    >>> from analysis.replay import Cluster, replay
    >>> t = datetime(2024, 1, 1)
    >>> jobs = pl.DataFrame({"job_id": ["1", "2"], "submit_time": [t, t], "num_gpus": [1, 1], "duration_s": [60, 60]})
    >>> jobs = jobs.with_columns(user=pl.Series(["ann", "bob"]))
    >>> result = replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=1))
    >>> fairness({"fifo": result}, jobs).select("worst", "mean", "max", "jain").row(0)
    ('bob', 1.5, 2.0, 0.9)
    """
    if measure not in MEASURES:
        raise UnknownNameError(kind="measure of fairness", found=measure, known=MEASURES)
    table = metrics_by(results, jobs, by=by).rename({by: "group"})
    value = pl.col(f"mean_{measure}").filter(pl.col("group").is_not_null())
    counts = value.is_not_null()
    grouped = table.group_by("schedule", maintain_order=True).agg(
        num_groups=counts.sum().cast(pl.Int64),
        num_groups_left_out=counts.not_().sum().cast(pl.Int64),
        num_jobs_of_nobody=pl.col("num_jobs").filter(pl.col("group").is_null()).sum(),
        mean=value.mean(),
        max=value.max(),
        worst=pl.col("group").filter(pl.col(f"mean_{measure}") == value.max(), pl.col("group").is_not_null()).min(),
        jain=m.jain_index(value),
    )
    share = pl.when(pl.col("mean") > 0).then(pl.col("max") / pl.col("mean"))
    return grouped.with_columns(share.alias("max_over_mean"))
