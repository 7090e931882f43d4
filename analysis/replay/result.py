"""What a replay gives back: the schedule and its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis import metrics as m
from analysis.errors import UsageError
from analysis.replay.cluster import Cluster

__all__ = ["SCHEDULE", "ReplayInterrupted", "ReplayResult"]

STATES: Final = ("finished", "unfinished", "rejected")
TIME: Final = pl.Datetime("us", "UTC")
QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

#: Columns of a schedule, one row per GPU job, sorted by (submit_time, job_id).
SCHEDULE: Final[dict[str, pl.DataType]] = {
    "job_id": pl.String(),
    "start_time": TIME,  # null = did not start
    "end_time": TIME,
    "nodes": pl.List(pl.String()),  # in the order of node ids
    "gpu_type": pl.String(),  # type it ran on in the replay; null = the cluster does not say
    "num_preemptions": pl.Int64(),
    "num_restarts": pl.Int64(),  # how often it was killed with a node, and waited again
    "wasted_gpu_s": pl.Float64(),  # GPU time of work that was lost
    "state": pl.Enum(STATES),
    "reason": pl.String(),  # why it was rejected, or right_censored, left_censored: ran for a lower bound
    "start_s": pl.Float64(),  # seconds from the first submission of a GPU job
    "end_s": pl.Float64(),
}


@dataclass(frozen=True)
class ReplayResult:
    """One replay.

    Attributes
    ----------
    schedule : DataFrame, one row per GPU job
        As ``SCHEDULE`` says.
    policy, placement : str
        Names.
    predicted : str or None
        Column of predicted durations; None = the true ones.
    cluster : Cluster
        What it ran on.
    notes : tuple of str
        What was assumed, in sentences; the cluster's notes first.
    jobs : DataFrame, one row per row of ``schedule``
        submit_time, num_gpus, duration_s (of the log); where the policy preempts or nodes go also run_s: time that the
        job held its GPUs, over all its starts, and early_run_s: the part of it until the last submission.
    counts : dict of str to int or float or None
        What only the event loop saw: max_queue_length; and num_cpu_jobs_left_out, num_censored, offered_load.
    event_log : Path, DataFrame or None
        The event log's file, or the log itself, if it was asked for; see ``events``.
    stopped_time : datetime or None
        The last instant that was replayed, where the replay was stopped before all jobs had ended (by ``until``, or by
        Ctrl-C); what runs or waits after it is ``unfinished`` in the schedule.
    """

    schedule: pl.DataFrame
    policy: str
    placement: str
    predicted: str | None
    cluster: Cluster
    notes: tuple[str, ...]
    jobs: pl.DataFrame
    counts: dict[str, float | int | None]
    event_log: Path | pl.DataFrame | None = None
    stopped_time: datetime | None = None

    @property
    def has_events(self) -> bool:
        """Whether the replay was asked for its event log."""
        return self.event_log is not None

    def events(self) -> pl.DataFrame:
        """Read the event log.

        Returns
        -------
        DataFrame, one row per event, in the order in which they happened
            As ``analysis.replay.event_log.EVENT_LOG`` says. For logs that no memory holds read the file piece by piece
            instead, e.g. with ``polars.scan_parquet(result.event_log)``.

        Raises
        ------
        UsageError
            If the replay was not asked for it.
        """
        if self.event_log is None:
            msg = "replay: this one kept no event log; say replay(..., events=True) or events='events.parquet'."
            raise UsageError(msg)
        return self.event_log if isinstance(self.event_log, pl.DataFrame) else pl.read_parquet(self.event_log)

    def job_metrics(self) -> pl.DataFrame:
        """Metrics of every finished job.

        Returns
        -------
        DataFrame, one row per finished job
            job_id, num_gpus, submit_time, start_time (the first), end_time, duration_s (in the log), run_s (in the
            replay: time with GPUs), jct_s, queueing_delay_s (until the first start),
            bounded_slowdown (JCT over the log's duration, so that it means the same on any hardware).
        """
        done = pl.concat(
            [self.schedule.select("job_id", "start_time", "end_time", "state"), self.jobs], how="horizontal"
        )
        run_s = pl.col("run_s") if "run_s" in self.jobs.columns else m.span_s().alias("run_s")
        return (
            done.filter(pl.col("state") == "finished")
            .drop("state", "early_run_s", strict=False)
            .with_columns(m.jct_s(), m.queueing_delay_s(), run_s)
            .with_columns(m.bounded_slowdown())
        )

    def metrics(self) -> dict[str, str | float | int | None]:
        """Metrics of the replay, one value each.

        Returns
        -------
        dict
            policy, placement, predictor (column name; null = true durations), num_finished, num_unfinished,
            num_rejected; mean, p50, p95, p99 and max (as ``mean_jct_s`` …; quantiles interpolate linearly) of jct_s,
            queueing_delay_s and bounded_slowdown over the finished jobs; makespan_s; gpu_allocation: GPU-seconds used
            by finished jobs over those that were there in the makespan (nodes count while they are there: not in
            failures and absences, but while they are drained); gpu_allocation_steady: the same from the first to the
            last submission, without the tail; num_preemptions; num_restarts: after kills by node events; num_starts;
            wasted_gpu_s; max_queue_length: most jobs waiting after a pass;
            offered_load: GPU-seconds submitted, at reference speed, over what the cluster could do from first to last
            submission; num_cpu_jobs_left_out; num_censored: jobs that ran for a lower bound. Null where nothing is
            there to count, as the means when no job finished.
        """
        done = self.job_metrics()
        state = self.schedule["state"]
        row: dict[str, str | float | int | None] = {
            "policy": self.policy,
            "placement": self.placement,
            "predictor": self.predicted,
            "num_finished": done.height,
            "num_unfinished": int((state == "unfinished").sum()),
            "num_rejected": int((state == "rejected").sum()),
        }
        for name in ("jct_s", "queueing_delay_s", "bounded_slowdown"):
            row |= _summary(done[name], name)
        makespan = done.select(m.makespan_s()).item() if done.height else None
        row["makespan_s"] = makespan
        row["gpu_allocation"] = self._allocation(done, done["run_s"], until=done["end_time"].max())
        last = self.jobs["submit_time"].max()
        row["gpu_allocation_steady"] = self._allocation(done, self._until(done, last), until=last)
        num_preemptions = int(self.schedule["num_preemptions"].sum())
        row["num_preemptions"] = num_preemptions
        num_restarts = int(self.schedule["num_restarts"].sum())
        row["num_restarts"] = num_restarts
        row["num_starts"] = self._num_starts(num_preemptions + num_restarts)
        row["wasted_gpu_s"] = float(self.schedule["wasted_gpu_s"].sum())
        return row | self.counts

    def _num_starts(self, num_stops: int) -> int:
        """All starts: those who were stopped started again, but for those who wait for it at the end."""
        has_started = self.schedule["start_time"].is_not_null()
        is_left = has_started & (self.schedule["state"] == "unfinished") & self.schedule["nodes"].is_null()
        return int(has_started.sum()) + num_stops - int(is_left.sum())

    def _until(self, done: pl.DataFrame, last: Any) -> pl.Series:
        """Time that each finished job held its GPUs until an instant, the last submission."""
        if "early_run_s" in self.jobs.columns:
            return self.jobs["early_run_s"].filter(self.schedule["state"] == "finished")
        span = _seconds(pl.col("end_time").clip(upper_bound=last) - pl.col("start_time"))
        return done.select(span.clip(lower_bound=0).alias("run_s"))["run_s"]

    def _allocation(self, done: pl.DataFrame, run_s: pl.Series, *, until: Any) -> float | None:
        if not done.height or until is None:
            return None
        first = done["submit_time"].min()
        there = self.cluster.gpu_s(first, until)  # type: ignore[arg-type]
        used = float((done["num_gpus"] * run_s).sum())
        return used / there if there > 0 else None


class ReplayInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a replay.

    Attributes
    ----------
    result : ReplayResult
        What there was by then: jobs that ran or waited, or were still to come, are ``unfinished`` in its schedule (with
        their start, if they had one). Its ``stopped_time`` is the last instant that was replayed, which is complete; an
        event log has been written up to it.
    """

    def __init__(self, result: ReplayResult) -> None:
        super().__init__(f"replay under {result.policy!r} stopped at {result.stopped_time} of the log's time")
        self.result = result


def _summary(values: pl.Series, name: str) -> dict[str, float | None]:
    quantiles = {key: values.quantile(q, interpolation="linear") for key, q in QUANTILES.items()}
    found = {"mean": values.mean(), **quantiles, "max": values.max()}
    return {f"{key}_{name}": None if value is None else float(value) for key, value in found.items()}  # type: ignore[arg-type]


def _seconds(span: pl.Expr) -> pl.Expr:
    return span.dt.total_microseconds() / m.US_PER_S
