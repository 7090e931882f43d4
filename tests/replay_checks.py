"""What must be true of any schedule, read from the schedule alone."""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import UTC, datetime

import numpy as np
import polars as pl
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from analysis.replay import Cluster, ReplayResult
from analysis.replay.outages import every_outage

GPU = 1000


def schedule_bytes(result: ReplayResult) -> bytes:
    """The schedule as a file."""
    buffer = io.BytesIO()
    result.schedule.write_ipc(buffer)
    return buffer.getvalue()


def joined(result: ReplayResult, jobs: pl.DataFrame) -> pl.DataFrame:
    """The schedule beside what the jobs asked for, times in microseconds."""
    asked = jobs.select("job_id", "submit_time", "num_gpus", "duration_s", "vc", "allowed_gpu_types")
    return result.schedule.join(asked, on="job_id", how="left", maintain_order="left").with_columns(
        submit=pl.col("submit_time").dt.epoch("us"),
        start=pl.col("start_time").dt.epoch("us"),
        end=pl.col("end_time").dt.epoch("us"),
        milli=(pl.col("num_gpus") * GPU).round().cast(pl.Int64),
    )


def can_be_shared_out(asks: Iterable[tuple[int, list[str]]], cluster: Cluster) -> bool:
    """Tell whether jobs of (milli-GPUs, nodes) can hold their GPUs on their nodes all at the same time.

    A flow from the jobs through their nodes, each as wide as its GPUs, must carry all that they ask for.
    """
    asks = list(asks)
    sizes = dict(cluster.nodes.select("node_id", "num_gpus").iter_rows())
    numbers = {node: 1 + len(asks) + i for i, node in enumerate(sizes)}
    sink = 1 + len(asks) + len(sizes)
    edges = [(0, 1 + j, milli) for j, (milli, _) in enumerate(asks)]
    edges += [(1 + j, numbers[node], milli) for j, (milli, nodes) in enumerate(asks) for node in nodes]
    edges += [(numbers[node], sink, size * GPU) for node, size in sizes.items()]
    tails, heads, widths = (np.array(column, dtype=np.int32) for column in zip(*edges, strict=True))
    graph = csr_array((widths, (tails, heads)), shape=(sink + 1, sink + 1), dtype=np.int32)
    return bool(maximum_flow(graph, 0, sink).flow_value == sum(milli for milli, _ in asks))


def faults_at_events(result: ReplayResult, jobs: pl.DataFrame) -> list[str]:
    """What is wrong after some event of a replay's log: GPUs held twice, or nodes held that are out."""
    milli = dict(joined(result, jobs).select("job_id", "milli").iter_rows())
    outages: dict[str, list[tuple[datetime, datetime | None, str]]] = {}
    for node, down, up, kind in every_outage(result.cluster).iter_rows():
        outages.setdefault(node, []).append((down or datetime.min.replace(tzinfo=UTC), up, kind))
    faults: list[str] = []
    holds: dict[str, list[str]] = {}
    for time, event, job, nodes in result.events().select("time", "event", "job_id", "nodes").iter_rows():
        if event == "started":
            holds[job] = nodes
            if not can_be_shared_out(((milli[j], where) for j, where in holds.items()), result.cluster):
                faults.append(f"{time}: too many GPUs held when {job} starts")
            out = [n for n in nodes for down, up, _ in outages.get(n, ()) if down <= time and (up is None or time < up)]
            faults += [f"{time}: {job} starts on {n}, which is out" for n in out]
        elif event in {"ended", "preempted", "killed"}:
            assert holds.pop(job) == nodes
            gone = [n for n in nodes for down, _, kind in outages.get(n, ()) if kind != "drain" and down == time]
            if event == "killed" and not gone:
                faults.append(f"{time}: {job} is killed, but none of its nodes goes")
        lost = {n for where in holds.values() for n in where} & set(outages)
        faults += [
            f"{time}: {n} is held although it went at {down}"
            for n in lost
            for down, up, kind in outages[n]
            if kind != "drain" and down < time and (up is None or time < up)
        ]
    return faults + [f"{job} never lets go" for job in holds]


def overcommitted(result: ReplayResult, jobs: pl.DataFrame) -> list[int]:
    """Instants at which running jobs hold more GPUs than their nodes have; intervals are half open."""
    done = joined(result, jobs).filter(pl.col("state") == "finished")
    instants = done["start"].unique().sort().to_list()
    return [
        now
        for now in instants
        if not can_be_shared_out(
            done.filter((pl.col("start") <= now) & (pl.col("end") > now)).select("milli", "nodes").iter_rows(),
            result.cluster,
        )
    ]
