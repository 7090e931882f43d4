"""How many GPUs were held, and how many jobs ran and waited, at every instant of a replay."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis.errors import SchemaError, UsageError
from analysis.replay.over_time import CHANGES
from analysis.replay.result import ReplayResult

__all__ = ["ALLOCATION", "allocation"]

#: Columns of the series.
ALLOCATION: Final[dict[str, pl.DataType]] = {
    "time": pl.Datetime("us", "UTC"),
    "time_s": pl.Float64(),  # seconds from the first submission of a GPU job
    "num_gpus": pl.Float64(),
    "num_running": pl.Int64(),
    "num_waiting": pl.Int64(),
}
#: What an event does to GPUs held and jobs running, and to jobs waiting.
HELD: Final = {event: held for event, (held, _) in CHANGES.items()}
WAITS: Final = {event: waits for event, (_, waits) in CHANGES.items()}
MILLI: Final = 1000


def allocation(of: ReplayResult | pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """GPUs held, and jobs running and waiting, as an exact step function of time.

    Parameters
    ----------
    of : ReplayResult, or DataFrame or LazyFrame of events
        A result with an event log, or one of a policy that does not preempt (its schedule says it all); or the log
        itself: ``pl.scan_parquet("events.parquet")``.

    Returns
    -------
    DataFrame, one row per instant at which something changed, in order
        As ``ALLOCATION`` says. A value holds from its time on until the next row's, and is what is true after
        everything at that instant; before the first row all are 0. GPUs are what the jobs asked for, summed in
        milli-GPUs.

    Raises
    ------
    UsageError
        If jobs were stopped or killed and the replay wrote no event log.
    SchemaError
        If columns of an event log are missing.

    Examples
    --------
    >>> from datetime import datetime
    >>> from analysis.replay import Cluster, replay
    >>> t = datetime(2024, 1, 1)
    >>> jobs = pl.DataFrame(
    ...     {"job_id": ["a", "b"], "submit_time": [t, t], "num_gpus": [2, 4], "duration_s": [10, 5]}
    ... )
    >>> result = replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=4))
    >>> allocation(result).select("time_s", "num_gpus", "num_running", "num_waiting").rows()
    [(0.0, 2.0, 1, 1), (10.0, 4.0, 1, 0), (15.0, 0.0, 0, 0)]
    """
    events = _events_of(of) if isinstance(of, ReplayResult) else of.lazy()
    needed = ["time", "time_s", "event", "num_gpus"]
    if missing := [name for name in needed if name not in events.collect_schema()]:
        raise SchemaError(table="events", violations=[f"column {name!r} is missing" for name in missing])
    event = pl.col("event").cast(pl.String)
    held = event.replace_strict(HELD, default=0, return_dtype=pl.Int64)
    waits = event.replace_strict(WAITS, default=0, return_dtype=pl.Int64)
    milli = (pl.col("num_gpus").fill_null(0) * MILLI).round().cast(pl.Int64)
    changes = events.select("time", "time_s", milli=milli * held, num_running=held, num_waiting=waits)
    totals = ["milli", "num_running", "num_waiting"]
    steps = changes.group_by("time").agg(pl.col("time_s").first(), pl.col(totals).sum()).sort("time").collect()
    # Who is rejected, or has no length and is alone, changes nothing.
    steps = steps.filter(pl.any_horizontal(pl.col(totals) != 0))
    series = steps.with_columns(pl.col(totals).cum_sum()).with_columns(num_gpus=pl.col("milli") / MILLI)
    return series.select(pl.col(name).cast(dtype) for name, dtype in ALLOCATION.items())


def _events_of(result: ReplayResult) -> pl.LazyFrame:
    if result.has_events:
        return result.events().lazy()
    schedule = result.schedule
    if (schedule["num_preemptions"] + schedule["num_restarts"]).sum():
        msg = (
            f"allocation: under policy {result.policy!r} jobs were stopped or killed, and a schedule knows only first "
            "starts and last ends. Replay with events=True (or events='events.parquet')."
        )
        raise UsageError(msg)
    table = pl.concat([schedule.select("start_time", "end_time", "state"), result.jobs], how="horizontal")
    until = result.stopped_time
    known = {"submitted": "submit_time", "started": "start_time", "ended": "end_time"}
    parts = [
        table.select(pl.col(name).alias("time"), pl.lit(event).alias("event"), "num_gpus", "state")
        for event, name in known.items()
    ]
    first = table["submit_time"].min()
    events = pl.concat(parts).filter(pl.col("time").is_not_null() & (pl.col("state") != "rejected"))
    if until is not None:
        events = events.filter(pl.col("time") <= until)
    return events.lazy().with_columns(time_s=(pl.col("time") - pl.lit(first)).dt.total_microseconds() / 1e6)
