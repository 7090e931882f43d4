"""Alibaba's disaggregated DLRM instances of 2025 (cluster-trace-gpu-v2025, the Prism paper): long-lived services.

Source: https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2025
(``disaggregated_DLRM_trace.csv``). Licence: none is stated, so it is recorded as unknown. Period: about 31 days, not
dated. Zone: none; times are seconds from the trace's start, which is written as 1970-01-01T00:00:00Z (clock
"relative"). A row is an instance of latency-sensitive inference: a CPU node (role CN) or a GPU node (HN, one GPU).

Assumptions:

* An empty creation or scheduling time lies before the trace's start, an empty deletion after its end. What is then
  known of the running time is a lower bound, and it stands in ``duration_s``: from the trace's start (left-censored),
  to its end (right-censored), or the whole window (both). The file does not say when the trace ends: its latest time
  is taken; option ``window_s`` says another.
* Instances without creation time were there before the trace begins: flag ``carry_in``.
* ``app_name`` is the recurrence group, ``role`` the workload. There is no state; an instance that was not deleted runs.
* Requests count (``num_gpus``, ``num_cpus``, ``mem_gib``); the limits are the same but for disks.
* ``max_instance_per_node`` -1 means no limit and becomes null.

Columns left behind: none (limits, RDMA, disk and ``max_instance_per_node`` are in ``extra``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from analysis.loaders.cells import Cell, integer, number, read_cells, text
from analysis.loaders.delimited import has_columns, read_delimited
from analysis.loaders.finish import finish_trace
from analysis.loaders.loading import assign_roles
from analysis.loaders.registry import loader
from analysis.trace import Trace, TraceMeta

__all__ = ["read_dlrm"]

META: Final = TraceMeta(
    name="dlrm",
    source="https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2025",
    citation="L. Yang et al., GPU-Disaggregated Serving for Deep Learning Recommendation Models at Scale, NSDI 2025",
    clock="relative",
    coverage="inference instances of disaggregated recommendation models in one cluster",
)
MAX_PER_NODE: Final = integer("max_instance_per_node")
COLUMNS: Final = {
    "job_id": text("instance_sn"),
    "workload": text("role"),
    "group": text("app_name"),
    "num_cpus": number("cpu_request"),
    "num_gpus": number("gpu_request"),
    "mem_gib": number("memory_request"),
    "submit_time": number("creation_time"),
    "start_time": number("scheduled_time"),
    "end_time": number("deletion_time"),
}
EXTRA: Final[dict[str, Cell]] = {
    "cpu_limit": number("cpu_limit"),
    "gpu_limit": number("gpu_limit"),
    "rdma_request": number("rdma_request"),
    "rdma_limit": number("rdma_limit"),
    "memory_limit": number("memory_limit"),
    "disk_request": number("disk_request"),
    "disk_limit": number("disk_limit"),
    "max_instance_per_node": replace(MAX_PER_NODE, value=pl.when(MAX_PER_NODE.value >= 0).then(MAX_PER_NODE.value)),
}
RAW: Final = tuple(cell.raw for cell in COLUMNS.values())


def _is_log(path: Path) -> bool:
    return has_columns(path, RAW)


@loader(
    "dlrm",
    summary="Alibaba 2025 disaggregated DLRM instances (long-lived inference services)",
    files=f"disaggregated_DLRM_trace.csv ({', '.join(RAW)}, …)",
    sniff=lambda paths: float(any(_is_log(path) for path in paths)),
)
def read_dlrm(
    paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None, window_s: float | None = None
) -> Trace:
    """Read Alibaba's DLRM instances.

    Parameters
    ----------
    paths : sequence of Path
        The file, or a folder with it.
    timezone : str, optional
        Recorded only: the times are relative.
    name : str, optional
        Name of the trace, by default "dlrm".
    window_s : float, optional
        When the trace ends [s from its start], by default the latest time in the file.

    Returns
    -------
    Trace
        Jobs only.
    """
    log = assign_roles(paths, main="log", roles={"log": _is_log}, loader="dlrm")["log"]
    raw = read_delimited(log, required=RAW)
    cells = read_cells(raw.frame, COLUMNS, extra=EXTRA).collect()
    latest = pl.max_horizontal(pl.col("submit_time", "start_time", "end_time").max())
    end_s = cells.select(latest).item() if window_s is None else float(window_s)
    meta = replace(META, name=name or META.name, time_zone=timezone or META.time_zone)
    notes = ["Times are seconds from the trace's start.", f"The trace is taken to end at {end_s or 0:,.0f} s."]
    return finish_trace(_censored(cells, end_s), meta=meta, raws=[raw], notes=notes)


def _censored(cells: pl.DataFrame, end_s: float | None) -> pl.DataFrame:
    """What the three times say together: censoring, a duration or its lower bound, and whether it still runs."""
    start, end = pl.col("start_time"), pl.col("end_time")
    censoring = (
        pl.when(start.is_null() & end.is_null())
        .then(pl.lit("both"))
        .when(start.is_null())
        .then(pl.lit("left"))
        .when(end.is_null())
        .then(pl.lit("right"))
        .otherwise(pl.lit("none"))
    )
    # Without any time in the file its end is not known, nor is how long its instances ran.
    ran = end.fill_null(pl.lit(end_s, dtype=pl.Float64)) - start.fill_null(0.0)
    return cells.with_columns(
        censoring=censoring,
        duration_s=pl.when(ran >= 0).then(ran),
        status=pl.when(end.is_null()).then(pl.lit("running")),
        flag_carry_in=pl.col("submit_time").is_null(),
        flag_invalid_times=(ran < 0).fill_null(value=False),
        num_tasks=1,
        num_nodes=1,
        is_single_node=True,
    )
