"""Alibaba's spot-GPU cluster of 2026 (cluster-trace-v2026-spot-gpu, the GFS paper): jobs with a priority class, nodes.

Source: https://github.com/alibaba/clusterdata, folder ``cluster-trace-v2026-spot-gpu`` (``job_info_df.csv``,
``node_info_df.csv``). Licence: none is stated, so it is recorded as unknown. Period: 184 days, not dated. Zone: none;
``submit_time`` counts seconds from the first job, which is written as 1970-01-01T00:00:00Z (clock "relative"). A row of
the job file is a job, a row of the node file a node. Either file alone will do.

Assumptions:

* Requests are per worker: GPUs and CPUs of a job are request times ``worker_num``.
* There are no starts, ends, waits, states, users. ``duration`` is running time; start and end stay null with the flag
  ``times_assumed``.
* Jobs submitted at 0 were there before: flag ``carry_in``. Those of them that last as long as the whole window were
  still running at its end: right-censored.
* ``organization`` is the account; ``job_type`` (HP or Spot) is the workload; ``gpu_model`` is the model that a job
  asks for and so the one it ran on.

Columns left behind: none (``cpu_request``, ``gpu_request`` per worker are in ``extra``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from analysis.loaders.beside import finish_table
from analysis.loaders.cells import Cell, integer, number, read_cells, text
from analysis.loaders.delimited import Delimited, has_columns, read_delimited
from analysis.loaders.finish import finish_trace
from analysis.loaders.jobless import finish_without_jobs
from analysis.loaders.loading import assign_roles
from analysis.loaders.registry import loader
from analysis.trace import Trace, TraceMeta

__all__ = ["read_spot_gpu"]

META: Final = TraceMeta(
    name="spot_gpu",
    source="https://github.com/alibaba/clusterdata/tree/master/cluster-trace-v2026-spot-gpu",
    citation="GFS: A Preemption-aware Scheduling Framework for GPU Clusters with Predictive Spot Instance Management, "
    "ASPLOS 2026, arXiv:2509.11134",
    clock="relative",
    coverage="jobs of one cluster with high-priority and spot tenants",
)
JOB_COLUMNS: Final = {
    "job_id": text("job_name"),
    "account": text("organization"),
    "gpu_type": text("gpu_model"),
    "cpu_request": number("cpu_request"),
    "gpu_request": number("gpu_request"),
    "num_tasks": integer("worker_num"),
    "submit_time": number("submit_time"),
    "duration_s": number("duration"),
    "workload": text("job_type"),
}
EXTRA: Final[dict[str, Cell]] = {"cpu_request": number("cpu_request"), "gpu_request": number("gpu_request")}
NODE_COLUMNS: Final = {
    "node_id": text("node_name"),
    "gpu_type": text("gpu_model"),
    "num_gpus": integer("gpu_capacity_num"),
    "num_cpus": number("cpu_num"),
}
JOBS: Final = tuple(cell.raw for cell in JOB_COLUMNS.values())
NODES: Final = tuple(cell.raw for cell in NODE_COLUMNS.values())


def _is_jobs(path: Path) -> bool:
    return has_columns(path, JOBS)


def _is_nodes(path: Path) -> bool:
    return has_columns(path, NODES)


@loader(
    "spot_gpu",
    summary="Alibaba 2026 spot-GPU cluster (high-priority and spot jobs; nodes)",
    files=f"job_info_df.csv ({', '.join(JOBS)}) and/or node_info_df.csv ({', '.join(NODES)})",
    sniff=lambda paths: float(any(_is_jobs(path) or _is_nodes(path) for path in paths)),
)
def read_spot_gpu(paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None) -> Trace:
    """Read jobs and nodes of Alibaba's spot-GPU trace.

    Parameters
    ----------
    paths : sequence of Path
        One or both files in any order, or their folder.
    timezone : str, optional
        Recorded only: the times are relative.
    name : str, optional
        Name of the trace, by default "spot_gpu".

    Returns
    -------
    Trace
        Jobs (no starts) and nodes; of the node file alone a trace without jobs.
    """
    roles = {"jobs": _is_jobs, "nodes": _is_nodes}
    main = "nodes" if not any(_is_jobs(path) for path in paths) and any(_is_nodes(path) for path in paths) else "jobs"
    files = assign_roles(paths, main=main, roles=roles, loader="spot_gpu")
    meta = replace(META, name=name or META.name, time_zone=timezone or META.time_zone)
    tables, raws = {}, []
    if "nodes" in files:
        raws.append(read_delimited(files["nodes"], required=NODES))
        cells = read_cells(raws[0].frame, NODE_COLUMNS)
        tables["nodes"], tables["rejects"] = finish_table("nodes", cells, file=raws[0].name, keys=("node_id",))
    if "jobs" not in files:
        return finish_without_jobs(meta=meta, raws=raws, tables=tables)
    jobs = read_delimited(files["jobs"], required=JOBS)
    notes = ["Times are seconds from the first job; start and end are not in the source."]
    return finish_trace(_jobs(jobs), meta=meta, raws=[jobs, *raws], tables=tables, notes=notes)


def _jobs(raw: Delimited) -> pl.LazyFrame:
    cells = read_cells(raw.frame, JOB_COLUMNS, extra=EXTRA)
    window_s = (pl.col("submit_time") + pl.col("duration_s")).max()
    is_carried = pl.col("submit_time") == 0
    spans_window = (is_carried & (pl.col("duration_s") >= window_s) & (pl.col("duration_s") > 0)).fill_null(value=False)
    return cells.with_columns(
        num_gpus=pl.col("gpu_request") * pl.col("num_tasks"),
        num_cpus=pl.col("cpu_request") * pl.col("num_tasks"),
        allowed_gpu_types=pl.when(pl.col("gpu_type").is_not_null()).then(pl.concat_list("gpu_type")),
        censoring=pl.when(spans_window).then(pl.lit("right")),
        status=pl.when(spans_window).then(pl.lit("running")),
        flag_carry_in=is_carried,
    ).drop("cpu_request", "gpu_request")
