"""GPUs held and jobs waiting over time, of one replay or of several side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.errors import UnknownNameError, UsageError
from analysis.replay.result import ReplayResult

__all__ = ["OVER_TIME", "over_time"]

#: Columns of the table: means over bins of equal length, the same bins for every schedule.
OVER_TIME: Final[dict[str, pl.DataType]] = {
    "schedule": pl.String(),
    "time": pl.Datetime("us", "UTC"),  # at which the bin begins
    "bin_s": pl.Float64(),
    "num_gpus": pl.Float64(),  # held
    "gpu_allocation": pl.Float64(),  # … of all GPUs of the cluster
    "num_waiting": pl.Float64(),  # jobs
    "waiting_gpus": pl.Float64(),  # that they ask for
    "is_averaged": pl.Boolean(),  # jobs that were stopped count with their mean
}
#: What an event does to GPUs held, and to jobs waiting.
CHANGES: Final = {
    "submitted": (0, 1),
    "started": (1, -1),
    "preempted": (-1, 1),
    "killed": (-1, 1),
    "ended": (-1, 0),
    "rejected": (0, -1),
}
F64 = npt.NDArray[np.float64]
US: Final = 1_000_000


def over_time(
    results: Mapping[str, ReplayResult], *, events: Mapping[str, pl.DataFrame] | None = None, num_bins: int = 300
) -> pl.DataFrame:
    """GPUs held and jobs waiting, as means over bins of time.

    The means are exact: areas below the step functions over the length of a bin. A schedule tells of a job that was
    stopped only its first start and its last end. Without an event log (``replay(..., events=True)``) it counts in
    between with its mean: it holds its GPUs for the share of that time in which it had them, and waits for the rest;
    sums over the whole stretch are right, the course within is smoothed.

    Parameters
    ----------
    results : mapping of str to ReplayResult
        By the name of the schedule.
    events : mapping of str to DataFrame, optional
        Event logs of some of them, by default those that the replays kept: time, event (submitted, started, preempted,
        killed, ended, rejected), num_gpus.
    num_bins : int, default 300
        Bins from the first submission to the last end of all of them.

    Returns
    -------
    DataFrame, one row per schedule and bin
        As ``OVER_TIME`` says; no rows if there is no job. Jobs that were rejected count nowhere.

    Raises
    ------
    UsageError
        If ``num_bins`` is below 1.
    UnknownNameError
        If an event log has another kind of event.

    Examples
    --------
    >>> from datetime import datetime
    >>> from analysis.replay import Cluster, replay
    >>> t = datetime(2024, 1, 1)
    >>> jobs = pl.DataFrame({"job_id": ["a", "b"], "submit_time": [t, t], "num_gpus": [2, 4], "duration_s": [10, 10]})
    >>> result = replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=4))
    >>> over_time({"fifo": result}, num_bins=2).select("num_gpus", "num_waiting", "waiting_gpus").rows()
    [(2.0, 1.0, 4.0), (4.0, 0.0, 0.0)]
    """
    if num_bins < 1:
        msg = f"over_time: num_bins is {num_bins}; expected at least 1."
        raise UsageError(msg)
    changes = {name: _changes(result, (events or {}).get(name)) for name, result in results.items()}
    instants = np.concatenate([np.empty(0, dtype=np.int64), *(table["at"].to_numpy() for table, _ in changes.values())])
    if not len(instants):
        return pl.DataFrame(schema=OVER_TIME)
    width = max(-(-int(np.ptp(instants)) // num_bins), 1)
    edges = int(instants.min()) + width * np.arange(num_bins + 1, dtype=np.int64)
    parts = [
        _binned(table, edges).with_columns(
            schedule=pl.lit(name),
            gpu_allocation=pl.col("num_gpus") / results[name].cluster.num_gpus,
            is_averaged=pl.lit(is_averaged),
        )
        for name, (table, is_averaged) in changes.items()
    ]
    return pl.concat(parts).select(pl.col(name).cast(dtype) for name, dtype in OVER_TIME.items())


def _changes(result: ReplayResult, events: pl.DataFrame | None) -> tuple[pl.DataFrame, bool]:
    """Changes of GPUs held, jobs and GPUs waiting, and whether they hold only on average; none after a stop."""
    if events is None and isinstance(result.event_log, Path):
        events = pl.read_parquet(result.event_log, columns=["time", "event", "num_gpus"])
    elif events is None and result.has_events:
        events = result.events()
    changes, is_averaged = _from_schedule(result) if events is None else _from_events(events)
    if result.stopped_time is not None:
        stop = pl.Series([result.stopped_time]).cast(OVER_TIME["time"]).to_physical()[0]
        changes = changes.filter(pl.col("at") <= stop)
    return changes, is_averaged


def _from_schedule(result: ReplayResult) -> tuple[pl.DataFrame, bool]:
    """Changes of GPUs held, jobs and GPUs waiting, and whether they hold only on average."""
    table = pl.concat(
        [result.schedule.select("start_time", "end_time", "num_preemptions", "num_restarts", "state"), result.jobs],
        how="horizontal",
    )
    table = table.filter(pl.col("state") != "rejected")
    span = (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / US
    share = pl.lit(1.0)
    stopped = pl.col("num_preemptions") + pl.col("num_restarts") > 0
    if "run_s" in table.columns:
        share = pl.when(stopped & (span > 0)).then((pl.col("run_s") / span).clip(0.0, 1.0)).otherwise(1.0)
    table = table.with_columns(share=share, gpus=pl.col("num_gpus").fill_null(0.0))
    held, rest = pl.col("gpus") * pl.col("share"), 1 - pl.col("share")
    parts = [
        table.select(at="submit_time", held=pl.lit(0.0), jobs=pl.lit(1.0), gpus="gpus"),
        table.select(at="start_time", held=held, jobs=-pl.col("share"), gpus=-held),
        table.select(at="end_time", held=-held, jobs=-rest, gpus=-pl.col("gpus") * rest),
    ]
    changes = pl.concat([part.drop_nulls("at") for part in parts])
    is_averaged = bool(table.select(stopped.any()).item()) and "run_s" in table.columns
    return changes.with_columns(at=pl.col("at").to_physical()), is_averaged


def _from_events(events: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    kinds = events["event"].cast(pl.String)
    if unknown := sorted(set(kinds.unique()) - set(CHANGES)):
        raise UnknownNameError(kind="event of a replay", found=unknown[0], known=CHANGES)
    held, waits = (
        kinds.replace_strict({kind: change[place] for kind, change in CHANGES.items()}, return_dtype=pl.Float64)
        for place in (0, 1)
    )
    gpus = events["num_gpus"].fill_null(0.0)
    at = events["time"].dt.cast_time_unit("us").to_physical()
    return pl.DataFrame({"at": at, "held": held * gpus, "jobs": waits, "gpus": waits * gpus}), False


def _binned(changes: pl.DataFrame, edges: npt.NDArray[np.int64]) -> pl.DataFrame:
    """Mean of each running total over each bin."""
    changes = changes.sort("at", maintain_order=True)
    at = (changes["at"].to_numpy() - edges[0]) / US
    seconds = (edges - edges[0]) / US
    place = np.searchsorted(at, seconds, side="right")
    columns = {"num_gpus": "held", "num_waiting": "jobs", "waiting_gpus": "gpus"}
    means = {name: _means(at, changes[column].to_numpy(), seconds, place) for name, column in columns.items()}
    time = pl.Series(edges[:-1]).cast(OVER_TIME["time"])
    return pl.DataFrame({"time": time, "bin_s": np.diff(seconds), **means})


def _means(at: F64, change: F64, seconds: F64, place: npt.NDArray[np.intp]) -> F64:
    """Mean over each bin of the sum of all changes so far: the area up to t is the sum of change x (t - at)."""
    total = np.concatenate([[0.0], np.cumsum(change)])[place]
    moment = np.concatenate([[0.0], np.cumsum(change * at)])[place]
    found: F64 = np.diff(seconds * total - moment) / np.diff(seconds)
    # Sums of many products of large numbers: what should be nothing may be a trifle.
    return np.where(found < 1e-6, 0.0, found)
