"""When nodes are not there: tables of outages, a seeded failure model, and what is left of a cluster over time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.errors import UsageError

if TYPE_CHECKING:
    from analysis.replay.cluster import Cluster

__all__ = [
    *("KINDS", "OUTAGES", "away_s", "every_outage", "failures", "no_outages"),
    *("outage_problems", "outage_table", "refuse_outages"),
]

TIME: Final = pl.Datetime("us", "UTC")
#: ``failure`` and ``absence`` (the node leaves) kill what runs there; under a ``drain`` it may end.
KINDS: Final = ("failure", "drain", "absence")
#: Columns of ``Cluster.outages``: from ``down`` until before ``up`` nobody starts on the node; null = never comes back.
OUTAGES: Final[dict[str, pl.DataType]] = {
    "node_id": pl.String(),
    "down": TIME,
    "up": TIME,
    "kind": pl.Enum(KINDS),
}
US_PER_S: Final = 1_000_000
#: More would eat the machine's memory: 100,000 nodes that fail once a week for two years.
MOST_OUTAGES: Final = 10_000_000
NAMED: Final = 3


def no_outages() -> pl.DataFrame:
    """Table of outages without a row."""
    return pl.DataFrame(schema=OUTAGES)


def outage_table(outages: pl.DataFrame) -> pl.DataFrame:
    """Outages with the columns of ``OUTAGES`` and in the order of (down, node_id, kind, up); ``kind`` may be missing.

    Raises
    ------
    UsageError
        If a column is missing, is of another kind, or if a kind of outage is not known.
    """
    missing = [name for name in ("node_id", "down", "up") if name not in outages.columns]
    if missing:
        msg = f"outages: column {', '.join(map(repr, missing))} is missing; expected {', '.join(OUTAGES)}."
        raise UsageError(msg)
    kind = outages["kind"].cast(pl.String).fill_null("failure") if "kind" in outages.columns else None
    if kind is not None and not kind.is_in(KINDS).all():
        unknown = kind.filter(~kind.is_in(KINDS)).unique().sort().to_list()
        msg = f"outages: kind is {', '.join(map(repr, unknown[:NAMED]))}; expected one of {', '.join(KINDS)}."
        raise UsageError(msg)
    table = outages.with_columns(kind=pl.lit("failure") if kind is None else kind)
    wrong = [n for n in ("down", "up") if not (table.schema[n].is_temporal() or table.schema[n] == pl.Null)]
    if wrong:
        msg = f"outages: {', '.join(wrong)} does not hold instants; expected columns of dtype {TIME}."
        raise UsageError(msg)
    table = table.select(pl.col(name).cast(dtype) for name, dtype in OUTAGES.items())
    return table.sort("down", "node_id", "kind", "up", nulls_last=True)


def outage_problems(outages: pl.DataFrame, node_ids: pl.Series) -> list[str]:
    """What is wrong with outages of these nodes, in words."""
    problems = []
    if outages["node_id"].null_count() or outages["down"].null_count():
        problems.append("outages: node_id or down is null")
    strangers = outages.filter(~pl.col("node_id").is_in(node_ids.implode()))["node_id"].unique().sort()
    if len(strangers):
        found = ", ".join(map(repr, strangers.head(NAMED)))
        known = ", ".join(map(repr, node_ids.head(NAMED)))
        problems.append(f"outages: {len(strangers)} nodes that do not exist (first {found}; known are {known} …)")
    backwards = int((outages["up"] < outages["down"]).sum())
    if backwards:
        problems.append(f"outages: up is before down in {backwards} rows")
    return problems


def every_outage(cluster: Cluster) -> pl.DataFrame:
    """Outages of the GPU nodes of a cluster, with the times before and after they are there as absences.

    Returns
    -------
    DataFrame
        As ``OUTAGES``; ``down`` null = was never there before.
    """
    nodes = cluster.nodes.filter(pl.col("num_gpus") > 0)
    nothing, absence = pl.lit(None, dtype=TIME), pl.lit("absence", dtype=OUTAGES["kind"])
    comes = nodes.filter(pl.col("available_from").is_not_null())
    goes = nodes.filter(pl.col("available_to").is_not_null())
    return pl.concat(
        [
            comes.select("node_id", down=nothing, up="available_from", kind=absence),
            goes.select("node_id", down="available_to", up=nothing, kind=absence),
            cluster.outages.filter(pl.col("node_id").is_in(nodes["node_id"].implode())),
        ]
    )


def refuse_outages(cluster: Cluster, *, what: str) -> None:
    """Refuse a cluster whose nodes come and go, for what cannot do with them yet.

    Raises
    ------
    UsageError
        If some node with GPUs is not always there.
    """
    gone = every_outage(cluster)
    if gone.height:
        nodes = gone["node_id"].unique().sort()
        msg = (
            f"{what} needs nodes that are always there; found outages of {len(nodes)} nodes (first {nodes[0]!r}) in "
            f"cluster {cluster.name!r}. Take one of the other policies, or cluster.without_outages()."
        )
        raise UsageError(msg)


def away_s(cluster: Cluster, start: datetime, end: datetime) -> pl.DataFrame:
    """How long nodes were not there between two instants: in failures and absences, each instant once, not in drains.

    Returns
    -------
    DataFrame, one row per GPU node that was away
        node_id, num_gpus, gpu_type, away_s.
    """
    first, last = pl.lit(start, dtype=TIME), pl.lit(end, dtype=TIME)
    gone = every_outage(cluster).filter(pl.col("kind") != "drain")
    spans = (
        gone.select("node_id", start=pl.col("down").fill_null(first), end=pl.col("up").fill_null(last))
        .with_columns(start=pl.max_horizontal("start", first), end=pl.min_horizontal("end", last))
        .filter(pl.col("start") < pl.col("end"))
        .sort("node_id", "start")
    )
    seen = pl.col("end").cum_max().shift(1).over("node_id").fill_null(pl.col("start"))
    new_us = (pl.col("end") - pl.max_horizontal("start", seen)).dt.total_microseconds().clip(lower_bound=0)
    total = spans.with_columns(us=new_us).group_by("node_id").agg(away_s=pl.col("us").sum() / US_PER_S)
    return total.join(cluster.nodes.select("node_id", "num_gpus", "gpu_type"), on="node_id").sort("node_id")


def failures(
    node_ids: list[str], *, mtbf_s: float, mttr_s: float, seed: int, since: datetime, until: datetime
) -> pl.DataFrame:
    """Failures of nodes, each with a stream of its own that depends on the seed and the node's id only.

    Parameters
    ----------
    node_ids : list of str
        Nodes.
    mtbf_s, mttr_s : float
        Means of the exponential times from repair (or ``since``) to failure, and from failure to repair. [s]
    seed : int
        0 or more.
    since, until : datetime
        All nodes are there at the first; none fails at or after the second. Naive times are UTC.

    Returns
    -------
    DataFrame
        As ``OUTAGES``.

    Raises
    ------
    UsageError
        If a mean, the seed or the span is not possible, or if that makes more than 10,000,000 failures.
    """
    begin, stop = (pl.Series([at]).cast(TIME).to_physical()[0] for at in (since, until))
    problems = [
        f"{name} is {value!r}, not a number above 0"
        for name, value in (("mtbf_s", mtbf_s), ("mttr_s", mttr_s))
        if not 0 < value < float("inf")
    ]
    problems += [f"seed is {seed!r}, not a whole number of 0 or more"] if seed < 0 else []
    problems += [f"until ({until}) is not after since ({since})"] if stop <= begin else []
    if not problems:
        expected = len(node_ids) * (stop - begin) / US_PER_S / (mtbf_s + mttr_s)
        if expected > MOST_OUTAGES:
            problems = [f"that makes about {expected:,.0f} failures; expected at most {MOST_OUTAGES:,}"]
    if problems:
        msg = (
            f"failures of nodes: {'; '.join(problems)}. Give means in seconds, such as mtbf_s=30 * 86_400, mttr_s=3600."
        )
        raise UsageError(msg)
    spans = [_failures_of(name, mtbf_s=mtbf_s, mttr_s=mttr_s, seed=seed, span_us=stop - begin) for name in node_ids]
    count = [len(span) for span in spans]
    times = np.concatenate([*spans, np.empty((0, 2), dtype=np.int64)]) + begin
    table = pl.DataFrame(
        {
            "node_id": pl.Series(np.repeat(np.array(node_ids, dtype=object), count), dtype=pl.String),
            "down": pl.Series(times[:, 0]).cast(TIME),
            "up": pl.Series(times[:, 1]).cast(TIME),
        }
    )
    return outage_table(table)


def _failures_of(node_id: str, *, mtbf_s: float, mttr_s: float, seed: int, span_us: int) -> npt.NDArray[np.int64]:
    """Down and up of one node in microseconds from the beginning."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *node_id.encode()])))
    chunk = int(span_us / US_PER_S / (mtbf_s + mttr_s)) + 4
    rows: list[npt.NDArray[np.int64]] = []
    at = 0.0
    while at < span_us:
        drawn = rng.exponential(1.0, size=(chunk, 2)) * (mtbf_s * US_PER_S, mttr_s * US_PER_S)
        times = at + np.cumsum(drawn).reshape(chunk, 2)
        rows.append(np.rint(times[times[:, 0] < span_us]).astype(np.int64))
        at = float(times[-1, 1])
    return np.concatenate(rows)
