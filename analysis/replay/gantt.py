"""Bars of a Gantt chart: which GPUs each job held, and when."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import polars as pl

from analysis.errors import UnknownNameError
from analysis.frames import in_utc, jobs_to_polars
from analysis.replay.result import ReplayResult

__all__ = ["GANTT", "gantt", "gantt_window"]

#: Columns of the table, one row per job, node and stretch of time.
GANTT: Final[dict[str, pl.DataType]] = {
    "job_id": pl.String(),
    "node": pl.String(),  # null = the schedule does not say; then all GPUs are one pool
    "lane": pl.Float64(),  # lower edge, counted in GPUs from the first node on
    "num_gpus": pl.Float64(),  # height
    "start_time": pl.Datetime("us", "UTC"),
    "end_time": pl.Datetime("us", "UTC"),
    "group": pl.String(),  # what gives the colour; null = the log does not say
    "grouped_by": pl.String(),  # name of that
    "first_lane": pl.Int64(),  # of the node
    "num_lanes": pl.Int64(),  # GPUs of all nodes
    "window_start": pl.Datetime("us", "UTC"),  # the stretch that was asked for; bars may reach beyond
    "window_end": pl.Datetime("us", "UTC"),
    "num_left_out": pl.Int64(),  # jobs of the stretch that were stopped, of which the schedule does not tell enough
}
MOST_BARS: Final = 2000
#: What is left of a GPU below this is nothing.
LEAST: Final = 1e-6
SIZES: Final = ((1, "1 GPU"), (4, "2-4 GPUs"), (8, "5-8 GPUs"))
Window = tuple[datetime, datetime]
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def gantt(
    result: ReplayResult,
    jobs: Any = None,
    *,
    color_by: str | None = None,
    window: Window | None = None,
    events: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Lay the jobs of a schedule out as bars, a lane for each GPU of each node.

    A schedule knows the nodes of a job and not its devices: on its node a job is drawn on the lowest lanes that are
    free. A job on several nodes fills the emptiest first. Fractions share a lane.

    Parameters
    ----------
    result : ReplayResult
        The schedule and the cluster.
    jobs : DataFrame of polars or pandas, optional
        The jobs table that was replayed, for ``color_by``.
    color_by : str, optional
        Column of ``jobs``, or "size". By default vc where there are several, else user, else the size.
    window : tuple of two datetimes, optional
        The stretch of time, naive ones in UTC; by default `gantt_window` of the result.
    events : DataFrame, optional
        The event log, by default the one that the replay kept: every stretch in which a job held GPUs is a bar. Without
        it, jobs that were stopped are left out and counted: a schedule does not tell where and when they ran.

    Returns
    -------
    DataFrame, one row per job, node and stretch
        As ``GANTT`` says, by start.

    Raises
    ------
    UnknownNameError
        If the jobs table has no column ``color_by``.
    """
    bars, left_out = _bars(result, events)
    low, high = (in_utc(time) for time in window or _window_of(bars, result))
    inside = bars.filter((pl.col("start_time") < high) & (pl.col("end_time") > low))
    num_left_out = left_out.filter((pl.col("start_time") < high) & (pl.col("end_time") > low)).height
    named, grouped_by = _with_group(inside, jobs, color_by)
    nodes = result.cluster.nodes.filter(pl.col("num_gpus") > 0).select("node_id", "num_gpus").rows()
    if not any(named["nodes"].list.len()):
        nodes = [(None, result.cluster.num_gpus)]
    table = pl.DataFrame(
        _placed(named, nodes), schema=[*list(GANTT)[:7], "first_lane"], orient="row", infer_schema_length=None
    )
    return table.with_columns(
        grouped_by=pl.lit(grouped_by),
        num_lanes=pl.lit(result.cluster.num_gpus),
        window_start=pl.lit(low),
        window_end=pl.lit(high),
        num_left_out=pl.lit(num_left_out),
    ).select(pl.col(name).cast(dtype) for name, dtype in GANTT.items())


def gantt_window(result: ReplayResult, *, events: pl.DataFrame | None = None, most_bars: int = MOST_BARS) -> Window:
    """Find a stretch of time with no more jobs than a figure can show, around the longest queue.

    Parameters
    ----------
    result : ReplayResult
        The schedule.
    events : DataFrame, optional
        Its event log.
    most_bars : int, default 2000
        Jobs that run in the stretch, at most; all time if there are not more.

    Returns
    -------
    start, end : datetime
    """
    return _window_of(_bars(result, events)[0], result, most_bars=most_bars)


def _bars(result: ReplayResult, events: pl.DataFrame | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Stretches in which jobs held GPUs, by start; and jobs of which they are not known."""
    jobs = pl.concat([result.schedule, result.jobs], how="horizontal").filter(pl.col("start_time").is_not_null())
    columns = ("job_id", "nodes", "num_gpus", "start_time", "end_time")
    if events is None and result.has_events:
        events = result.events()
    if events is None:
        ran = jobs.filter(pl.col("end_time") > pl.col("start_time"))
        stopped = (pl.col("num_preemptions") + pl.col("num_restarts") > 0) & (pl.lit(result.policy) != "recorded")
        known, unknown = ran.filter(~stopped), ran.filter(stopped)
        return known.select(columns).sort("start_time", "job_id"), unknown.select(columns)
    last = events["time"].max()
    held = events.filter(pl.col("event").cast(pl.String).is_in(["started", "preempted", "killed", "ended"]))
    held = held.with_columns(end_time=pl.col("time").shift(-1).over("job_id"), event=pl.col("event").cast(pl.String))
    bars = held.filter(pl.col("event") == "started").rename({"time": "start_time"})
    bars = bars.with_columns(pl.col("end_time").fill_null(last), pl.col("nodes").fill_null([]))
    bars = bars.filter(pl.col("end_time") > pl.col("start_time")).select(columns)
    return bars.sort("start_time", "job_id"), bars.clear()


def _window_of(bars: pl.DataFrame, result: ReplayResult, *, most_bars: int = MOST_BARS) -> Window:
    if not bars.height:
        return EPOCH, EPOCH
    starts, ends = (np.sort(bars[name].to_physical().to_numpy()) for name in ("start_time", "end_time"))
    center = _busiest(result, fallback=int(starts[len(starts) // 2]))
    narrow, wide = 0, int(max(center - starts[0], ends[-1] - center)) + 1

    def count(half: int) -> int:
        return int(np.searchsorted(starts, center + half) - np.searchsorted(ends, center - half, side="right"))

    if count(wide) > most_bars:
        while wide - narrow > 1_000_000:
            middle = (narrow + wide) // 2
            narrow, wide = (narrow, middle) if count(middle) > most_bars else (middle, wide)
        wide = max(narrow, 1_000_000)
    low, high = max(center - wide, int(starts[0])), min(center + wide, int(ends[-1]))
    limits = pl.Series([low, high]).cast(GANTT["start_time"])
    return limits[0], limits[1]


def _busiest(result: ReplayResult, *, fallback: int) -> int:
    """Instant at which the jobs that wait ask for most GPUs, in microseconds; the first such."""
    table = pl.concat([result.schedule.select("start_time"), result.jobs], how="horizontal").drop_nulls("start_time")
    waited = table.filter(pl.col("start_time") > pl.col("submit_time"))
    if not waited.height:
        return fallback
    at = np.concatenate([waited[name].to_physical().to_numpy() for name in ("submit_time", "start_time")])
    gpus = waited["num_gpus"].to_numpy()
    order = np.argsort(at, kind="stable")
    return int(at[order][np.cumsum(np.concatenate([gpus, -gpus])[order]).argmax()])


def _with_group(bars: pl.DataFrame, jobs: Any, color_by: str | None) -> tuple[pl.DataFrame, str]:
    """Add what gives the colour, and say what it is."""
    table = None if jobs is None else jobs_to_polars(jobs)
    known = [] if table is None else table.columns
    if color_by not in {None, "size", *known}:
        raise UnknownNameError(kind="column to colour by", found=str(color_by), known=["size", *known])
    for name in ("vc", "user") if color_by is None else (color_by,):
        if table is None or name not in known:
            continue
        named = bars.join(
            table.select("job_id", group=pl.col(name).cast(pl.String)), on="job_id", how="left", maintain_order="left"
        )
        if color_by is not None or named["group"].n_unique() > 1:
            return named, name
    size = pl.lit("over 8 GPUs")
    for most, text in reversed(SIZES):
        size = pl.when(pl.col("num_gpus") <= most).then(pl.lit(text)).otherwise(size)
    return bars.with_columns(group=size), "size"


class _Node:
    """Lanes of one node; each a list of what it holds: (end, lower edge, upper edge)."""

    def __init__(self, node_id: str | None, first_lane: int, num_gpus: int) -> None:
        self.node_id, self.first_lane = node_id, first_lane
        self.lanes: list[list[tuple[datetime, float, float]]] = [[] for _ in range(num_gpus)]

    def free_at(self, now: datetime) -> int:
        """Lanes that hold nothing any more."""
        for place, lane in enumerate(self.lanes):
            self.lanes[place] = [held for held in lane if held[0] > now]
        return sum(not lane for lane in self.lanes)

    def take(self, num_gpus: float, end: datetime) -> Iterable[tuple[float, float]]:
        """Give a job lanes, lowest first: (lower edge, height) of each piece; neighbouring lanes are one piece."""
        whole, rest = int(num_gpus + LEAST), num_gpus - int(num_gpus + LEAST)

        # A log's own schedule may hold more than there is: then on what is free soonest.
        def when_free(lane: int) -> tuple[bool, datetime, int]:
            held = self.lanes[lane]
            return bool(held), max((one[0] for one in held), default=end), lane

        order = sorted(range(len(self.lanes)), key=when_free)
        chosen = sorted(order[:whole])
        for lane in chosen:
            self.lanes[lane].append((end, 0.0, 1.0))
        runs = np.split(np.array(chosen), np.flatnonzero(np.diff(chosen) != 1) + 1) if chosen else []
        pieces = [(float(self.first_lane + run[0]), float(len(run))) for run in runs]
        if rest > LEAST:
            pieces.append(self._share(rest, end))
        return pieces

    def _share(self, part: float, end: datetime) -> tuple[float, float]:
        """Room in a lane that is in part use, else in a free one."""
        for lane in sorted(range(len(self.lanes)), key=lambda lane: (not self.lanes[lane], lane)):
            edge = 0.0
            for _, low, high in sorted(self.lanes[lane], key=lambda held: held[1]):
                if low - edge >= part - LEAST:
                    break
                edge = max(edge, high)
            if edge + part <= 1 + LEAST:
                self.lanes[lane].append((end, edge, edge + part))
                return self.first_lane + lane + edge, part
        return float(self.first_lane), part


def _placed(bars: pl.DataFrame, nodes: list[tuple[str | None, int]]) -> list[tuple[Any, ...]]:
    site: dict[str | None, _Node] = {}
    first_lane = 0
    for node_id, num_gpus in nodes:
        site[node_id] = _Node(node_id, first_lane, num_gpus)
        first_lane += num_gpus
    rows: list[tuple[Any, ...]] = []
    columns = ("job_id", "nodes", "num_gpus", "start_time", "end_time", "group")
    for job_id, names, num_gpus, start, end, group in bars.select(columns).iter_rows():
        own = [site[name] for name in names or [] if name in site] or ([site[None]] if None in site else [])
        free = {node.node_id: node.free_at(start) for node in own}
        left = float(num_gpus)
        for node in sorted(own, key=lambda node: -free[node.node_id]):
            part = min(left, float(max(free[node.node_id], 1))) if len(own) > 1 else left
            left -= part
            pieces = node.take(part, end) if part > LEAST else []
            rows += [
                (job_id, node.node_id, lane, height, start, end, group, node.first_lane) for lane, height in pieces
            ]
    return rows
