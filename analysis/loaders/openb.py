"""Alibaba's "openb" pods and nodes of 2023 (cluster-trace-gpu-v2023, the FGD paper): fractional GPUs, GPU constraints.

Source: https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023/csv. Licence: none is stated, so it
is recorded as unknown. Period: 149 days, not dated. Zone: none; times are whole seconds from the trace's start, which
is written as 1970-01-01T00:00:00Z (clock "relative": neither hour nor weekday means anything). A row of the jobs table
is a pod, a row of the nodes table a machine.

Assumptions:

* ``num_gpus`` is ``num_gpu * gpu_milli / 1000``. A pod is one task on one node; only one that asked for fractions of
  several devices would have as many tasks as devices.
* ``pod_phase`` is the phase when the list was made, not an outcome. Succeeded and Failed are outcomes. A Running pod
  with a deletion time did end: how is not known, so its status is null. Running pods deleted at the latest deletion
  time of the list were still running: they are right-censored (status running, no end, duration at least up to there).
* Pending pods never started; their deletion is no end of a run. It stays in ``extra``.
* Pods created at 0 were there before the trace begins: flag ``carry_in``. Their run is taken as it is written.
* ``gpu_spec`` lists acceptable models; repetitions are dropped, the order kept; empty means any.
* The ``multigpu`` variants have no times: they load, and a replay refuses them. All variants but ``default`` are
  re-samplings made by the authors.
* Node numbers of the two node lists (all nodes, GPU nodes) are unrelated; give one of them.

Columns left behind: none (``num_gpu``, ``gpu_milli``, ``qos``, ``deletion_time`` are in ``extra``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from analysis.loaders.beside import finish_table
from analysis.loaders.cells import Cell, integer, map_status, number, read_cells, text, words
from analysis.loaders.delimited import has_columns, read_delimited, require_columns
from analysis.loaders.finish import finish_trace
from analysis.loaders.loading import assign_roles
from analysis.loaders.registry import loader
from analysis.trace import Trace, TraceMeta

__all__ = ["read_openb"]

META: Final = TraceMeta(
    name="openb",
    source="https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023",
    citation="Q. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with FGD, ATC 2023",
    clock="relative",
    coverage="pods of one cluster as the FGD paper samples them; variants are re-samplings",
)
PODS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
#: What a pod list has beside these, all of it or nothing.
TIMED: Final = ("gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")
NODES: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
MILLI: Final = 1e-3
MIB_TO_GIB: Final = 1 / 1024
POD_COLUMNS: Final = {
    "job_id": text("name"),
    "num_cpus": number("cpu_milli", factor=MILLI),
    "mem_gib": number("memory_mib", factor=MIB_TO_GIB),
    "allowed_gpu_types": words("gpu_spec"),
    "status_raw": text("pod_phase"),
    "submit_time": number("creation_time"),
    "start_time": number("scheduled_time"),
    "deleted_s": number("deletion_time"),
    "num_devices": number("num_gpu"),
    "milli_per_device": number("gpu_milli"),
}
EXTRA: Final[dict[str, Cell]] = {
    "num_gpu": integer("num_gpu"),
    "gpu_milli": integer("gpu_milli"),
    "qos": text("qos"),
    "deletion_time": number("deletion_time"),
}
NODE_COLUMNS: Final = {
    "node_id": text("sn"),
    "gpu_type": text("model"),
    "num_gpus": integer("gpu"),
    "num_cpus": number("cpu_milli", factor=MILLI),
    "mem_gib": number("memory_mib", factor=MIB_TO_GIB),
}
STATUSES: Final = {"Succeeded": "completed", "Failed": "failed", "Pending": "pending", "Running": "running"}


def _is_pods(path: Path) -> bool:
    return has_columns(path, PODS)


def _is_nodes(path: Path) -> bool:
    return has_columns(path, NODES)


@loader(
    "openb",
    summary="Alibaba 2023 pods and nodes (fractional GPUs, GPU-type constraints)",
    files=f"a pod list ({', '.join(PODS)}, …) and, optionally, a node list ({', '.join(NODES)})",
    sniff=lambda paths: float(any(_is_pods(path) for path in paths)),
)
def read_openb(paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None) -> Trace:
    """Read a pod list and a node list of Alibaba's 2023 trace.

    Parameters
    ----------
    paths : sequence of Path
        The two files in any order, the node list optional.
    timezone : str, optional
        Recorded only: the times are relative.
    name : str, optional
        Name of the trace, by default "openb".

    Returns
    -------
    Trace
        Jobs (pods) and nodes.
    """
    files = assign_roles(paths, main="pods", roles={"pods": _is_pods, "nodes": _is_nodes}, loader="openb")
    raws = [read_delimited(files["pods"], required=PODS)]
    if set(TIMED) & set(raws[0].columns):
        require_columns(files["pods"], raws[0].columns, (*PODS, *TIMED))
    tables = {}
    if "nodes" in files:
        raws.append(read_delimited(files["nodes"], required=NODES))
        cells = read_cells(raws[1].frame, NODE_COLUMNS)
        tables["nodes"], tables["rejects"] = finish_table("nodes", cells, file=raws[1].name, keys=("node_id",))
    meta = replace(META, name=name or META.name, time_zone=timezone or META.time_zone)
    partial = _pods(read_cells(raws[0].frame, POD_COLUMNS, extra=EXTRA))
    notes = ["Times are seconds from the trace's start."]
    if "submit_time" not in partial.collect_schema().names():
        notes = ["This list has no times: it can be characterized, not replayed."]
    return finish_trace(partial, meta=meta, raws=raws, tables=tables, notes=notes)


def _pods(cells: pl.LazyFrame) -> pl.LazyFrame:
    """GPUs of all devices, and, where the list has times, what may be read from them."""
    shares_several = (pl.col("num_devices") > 1) & (pl.col("milli_per_device") < 1000)
    pods = cells.with_columns(
        num_gpus=pl.col("num_devices") * pl.col("milli_per_device") * MILLI,
        num_tasks=pl.when(shares_several).then("num_devices").otherwise(1),
        num_nodes=1,
        is_single_node=True,
    )
    if "deleted_s" in cells.collect_schema().names():
        pods = _with_outcomes(pods)
    return pods.drop("deleted_s", "num_devices", "milli_per_device", strict=False)


def _with_outcomes(pods: pl.LazyFrame) -> pl.LazyFrame:
    is_last = pl.col("deleted_s") == pl.col("deleted_s").max()
    still_runs = (is_last & (pl.col("status_raw") == "Running")).fill_null(value=False)
    never_ran = pl.col("start_time").is_null()
    ended_somehow = (pl.col("status_raw") == "Running") & ~still_runs
    return pods.with_columns(
        end_time=pl.when(~still_runs & ~never_ran).then("deleted_s"),
        duration_s=pl.when(pl.col("deleted_s") >= pl.col("start_time")).then(
            pl.col("deleted_s") - pl.col("start_time")
        ),
        censoring=pl.when(still_runs).then(pl.lit("right")).when(never_ran).then(pl.lit("never_started")),
        flag_carry_in=pl.col("submit_time") == 0,
        status=pl.when(~ended_somehow.fill_null(value=False)).then(map_status(STATUSES)),
    )
