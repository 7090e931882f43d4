"""AcmeTrace (Shanghai AI Lab, NSDI 2024): the job logs of the clusters Seren and Kalos, and their utilisation files.

Source: https://github.com/InternLM/AcmeTrace (``data/job_trace/trace_seren.csv``, ``trace_kalos.csv``); utilisation:
https://huggingface.co/datasets/Qinghao/AcmeTrace. Licence: CC-BY-4.0. Period: March to August 2023. Zone: every time
bears its offset (+08:00 in Seren, +00:00 in Kalos) and is read with it; both clusters stand in Asia/Shanghai's zone,
which is what hours and weekdays mean. A row of a log is a job, ``gpu_num`` 0 a CPU job.

Assumptions:

* Durations and waits are recomputed from the time stamps. Kalos' published ``duration`` is end - submit, so its
  ``gpu_time`` holds queueing too: such rows are flagged ``duration_includes_queue`` (and ``duration_mismatch``). The
  published figures stay in ``extra``, so that the authors' summary can be reproduced.
* A cancelled job without start never ran; its published duration is a wait and counts for nothing.
* Kalos is told from Seren by its memory columns. ``mem_per_pod_GB`` is per pod, and how many pods a job has is not
  said: it stays in ``extra``.
* TIMEOUT, NODE_FAIL and PREEMPTED keep their own status; the authors count the first two as failed.
* No jobs can be joined with the utilisation: which nodes a job had is not published. The utilisation files (see
  `analysis.loaders.acme_usage`) become ``usage_series``; they load with a log or alone.

Columns left behind: none (``duration``, ``queue``, ``gpu_time``, ``fail_time``, ``stop_time`` are in ``extra``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from analysis.errors import UsageError
from analysis.loaders.acme_usage import is_series, read_series
from analysis.loaders.cells import Cell, integer, number, read_cells, text, time
from analysis.loaders.delimited import Delimited, has_columns, read_delimited
from analysis.loaders.finish import finish_trace
from analysis.loaders.jobless import finish_without_jobs
from analysis.loaders.many_files import group_files
from analysis.loaders.registry import loader
from analysis.trace import Trace, TraceMeta

__all__ = ["read_acme"]

META: Final = TraceMeta(
    name="acme",
    source="https://github.com/InternLM/AcmeTrace",
    licence="CC-BY-4.0",
    citation="Q. Hu et al., Characterization of Large Language Model Development in the Datacenter, NSDI 2024",
    time_zone="Asia/Shanghai",
    time_zone_certainty="declared",
    coverage="all jobs of one cluster",
)
WITH_OFFSET: Final = "%Y-%m-%d %H:%M:%S%z"
COLUMNS: Final = {
    "job_id": text("job_id"),
    "user": text("user"),
    "num_nodes": integer("node_num"),
    "num_gpus": number("gpu_num"),
    "num_cpus": number("cpu_num"),
    "workload": text("type"),
    "status_raw": text("state"),
    "submit_time": time("submit_time", WITH_OFFSET),
    "start_time": time("start_time", WITH_OFFSET),
    "end_time": time("end_time", WITH_OFFSET),
    "published_duration_s": number("duration"),
}
EXTRA: Final[dict[str, Cell]] = {
    "duration": number("duration"),
    "queue": number("queue"),
    "gpu_time": number("gpu_time"),
    "mem_per_pod_GB": number("mem_per_pod_GB"),
    "shared_mem_per_pod": number("shared_mem_per_pod"),
    "fail_time": time("fail_time", WITH_OFFSET),
    "stop_time": time("stop_time", WITH_OFFSET),
}
RAW: Final = tuple(cell.raw for cell in COLUMNS.values())
STATUSES: Final = {
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "NODE_FAIL": "node_fail",
    "PREEMPTED": "preempted",
    "SUSPENDED": "suspended",
    "RUNNING": "running",
    "PENDING": "pending",
}
FILES: Final = (
    f"trace_seren.csv or trace_kalos.csv ({', '.join(RAW)}, …) and/or utilisation files "
    "(<METRIC>.csv: Time and a column per server or GPU)"
)


def _is_log(path: Path) -> bool:
    return has_columns(path, RAW)


@loader(
    "acme",
    summary="AcmeTrace: Seren and Kalos (LLM development), job log and utilisation",
    files=FILES,
    sniff=lambda paths: float(any(_is_log(path) or is_series(path) for path in paths)),
)
def read_acme(paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None) -> Trace:
    """Read one cluster of AcmeTrace.

    Parameters
    ----------
    paths : sequence of Path
        One job log, any number of utilisation files, or both; or their folder.
    timezone : str, optional
        Zone in which hours and weekdays mean something, and of times without offset, instead of Asia/Shanghai.
    name : str, optional
        Name of the trace, by default the cluster's.

    Returns
    -------
    Trace
        Jobs and, with utilisation files, usage_series (on disk until it is asked for).

    Raises
    ------
    UsageError
        If there are two job logs: ids and nodes of the two clusters have nothing in common.
    """
    files = group_files(paths, roles={"log": _is_log, "series": is_series}, expected=FILES)
    logs = files["log"]
    if len(logs) > 1:
        msg = (
            f"load acme: found several job logs ({', '.join(path.name for path in logs)}); load one cluster at a time."
        )
        raise UsageError(msg)
    meta = META
    if timezone:
        meta = replace(meta, time_zone=timezone, time_zone_certainty="given")
    found = read_series(files["series"], zone=meta.time_zone) if files["series"] else None
    if not logs:
        meta = replace(meta, name=name or META.name, window=found.window if found else meta.window)
        tables = {"usage_series": found.table} if found else {}
        return finish_without_jobs(
            meta=meta, raws=found.raws if found else [], tables=tables, notes=found.notes if found else []
        )
    raw = read_delimited(logs[0], required=RAW)
    cluster = "kalos" if "mem_per_pod_GB" in raw.columns else "seren"
    meta = replace(meta, name=name or cluster)
    trace = finish_trace(
        _jobs(raw, cluster),
        meta=meta,
        raws=[raw, *(found.raws if found else [])],
        statuses=STATUSES,
        notes=["Times are read with their own offsets.", *(found.notes if found else [])],
    )
    return trace.with_tables(usage_series=found.table) if found else trace


def _jobs(raw: Delimited, cluster: str) -> pl.LazyFrame:
    cells = read_cells(raw.frame, COLUMNS, extra=EXTRA)
    # Without a start the published duration is none: in Kalos it is the wait.
    return cells.with_columns(
        cluster=pl.lit(cluster),
        published_duration_s=pl.when(pl.col("start_time").is_not_null()).then("published_duration_s"),
    )
