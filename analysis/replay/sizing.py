"""Size a cluster from a trace: its own nodes, else its quotas, else what the log shows in use or submitted."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import polars as pl

from analysis import metrics
from analysis.errors import UnknownNameError, UsageError
from analysis.replay.cluster import NODE_COLUMNS, Cluster
from analysis.replay.outages import outage_table

if TYPE_CHECKING:
    from analysis.trace import Trace

__all__ = ["QUOTAS", "size_cluster"]

#: How a VC's quotas over time become nodes: its largest for ever, or as they were.
QUOTAS: Final = ("largest", "over_time")
GPUS_PER_NODE: Final = 8
#: Load that a cluster is sized to where the log shows no GPU in use.
LOAD: Final = 0.9


def size_cluster(trace: Trace, *, quotas: str = "largest") -> Cluster:
    """Make the cluster of a trace, in the order that `Cluster.from_trace` states, and note what was assumed.

    Raises
    ------
    UsageError
        If the trace shows no GPU at all, or ``quotas`` is not one of ``QUOTAS``.
    """
    if quotas not in QUOTAS:
        raise UnknownNameError(kind="way to read quotas", found=quotas, known=QUOTAS)
    name = trace.meta.name or "the trace's own"
    if trace.nodes.height:
        return Cluster(trace.nodes, name=name)
    if trace.capacity.height:
        return _from_quotas(trace.capacity, name, is_fixed=quotas == "largest")
    jobs = trace.jobs.filter(pl.col("num_gpus") > 0)
    widest = float(jobs["num_gpus"].max() or 0.0)  # type: ignore[arg-type]
    if not widest:
        msg = (
            f"trace {name!r}: no node, no quota and no job with a GPU, so there is no cluster to size. "
            "Name one with --cluster, e.g. --cluster 52x8."
        )
        raise UsageError(msg)
    peak = _peak_gpus(jobs)
    needed = peak if peak is not None else _gpus_for_load(jobs)
    num_nodes = max(1, math.ceil(max(needed, widest) / GPUS_PER_NODE))
    source = (
        f"the log shows at most {peak:,.6g} GPUs in use at once"
        if peak is not None
        else f"the log has no start times; its work is {LOAD:.0%} of this from the first to the last submission"
    )
    note = (
        f"Cluster sized from the log, since it lists no nodes: {num_nodes} nodes of {GPUS_PER_NODE} GPUs, one queue "
        f"({source}; widest job {widest:g} GPUs)."
    )
    sized = Cluster.uniform(num_nodes=num_nodes, num_gpus=GPUS_PER_NODE, name=f"{name}, sized from the log")
    return Cluster(sized.nodes, name=sized.name, notes=(note,))


def _from_quotas(capacity: pl.DataFrame, name: str, *, is_fixed: bool) -> Cluster:
    """Nodes from quotas over time: of each VC its largest, as whole nodes and one for the rest, all the time or not."""
    largest = capacity.group_by("vc").agg(pl.col("num_gpus").max()).sort("vc")
    nodes: list[dict[str, object]] = []
    for vc, num_gpus in largest.iter_rows():
        whole, rest = divmod(int(num_gpus), GPUS_PER_NODE)
        sizes = [GPUS_PER_NODE] * whole + ([rest] if rest else [])
        nodes += [{"node_id": f"{vc}-{i:03d}", "num_gpus": size, "vc": vc} for i, size in enumerate(sizes)]
    table = pl.DataFrame(nodes, schema={key: NODE_COLUMNS[key] for key in ("node_id", "num_gpus", "vc")})
    how = "throughout" if is_fixed else "at most, and while it has less its last nodes take no new jobs"
    note = (
        f"Cluster from the quotas: every VC has its largest quota of the log {how}, as nodes of {GPUS_PER_NODE} "
        "GPUs and one node for the rest."
    )
    cluster = Cluster(table, name=name, notes=(note,))
    if is_fixed:
        return cluster
    return Cluster(table, outages=_quota_outages(cluster, capacity), name=name, notes=(note,))


def _quota_outages(cluster: Cluster, capacity: pl.DataFrame) -> pl.DataFrame:
    """Drain the last nodes of every VC, in the order of node ids, while they do not fit into its quota together."""
    needs = cluster.nodes.select("node_id", "vc", needs=pl.col("num_gpus").cum_sum().over("vc"))
    changes = (
        needs.filter(pl.col("vc").is_not_null())
        .join(capacity.select("vc", "time", quota="num_gpus"), on="vc")
        .sort("node_id", "time")
        .with_columns(is_out=pl.col("quota") < pl.col("needs"))
        .filter(pl.col("is_out") != pl.col("is_out").shift(1).over("node_id").fill_null(value=False))
        .with_columns(up=pl.col("time").shift(-1).over("node_id"))
    )
    return outage_table(changes.filter("is_out").select("node_id", "up", down="time", kind=pl.lit("drain")))


def _peak_gpus(jobs: pl.DataFrame) -> float | None:
    """Most GPUs in use at once by the log's own times; null where it has none. An end frees GPUs before a start."""
    ran = jobs.filter(pl.col("start_time").is_not_null() & pl.col("end_time").is_not_null())
    if not ran.height:
        return None
    changes = pl.concat(
        [
            ran.select(time="start_time", change="num_gpus"),
            ran.select(time="end_time", change=-pl.col("num_gpus")),
        ]
    ).sort("time", "change")
    # Sums of fractions drift by rounding: a thousandth of a GPU is below what any log states.
    return round(float(changes["change"].cum_sum().max() or 0.0), 3)  # type: ignore[arg-type]


def _gpus_for_load(jobs: pl.DataFrame) -> float:
    """GPUs that submitted work keeps busy for `LOAD` of the time from the first to the last submission."""
    submit = pl.col("submit_time")
    window = (submit.max() - submit.min()).dt.total_seconds()
    window_s, work = jobs.select(window.alias("window"), metrics.gpu_s().sum()).row(0)
    window_s, work = window_s or 0.0, work or 0.0
    return work / (LOAD * window_s) if window_s > 0 else 0.0
