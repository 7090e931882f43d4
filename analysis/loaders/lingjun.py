"""Alibaba's Lingjun cluster of 2023 (the Crux paper): jobs, their workers with hosts, and the network topology.

Source: https://github.com/alibaba/alibaba-lingjun-dataset-2023 (``data/job.csv``, ``worker.csv``, ``topo.csv``).
Licence: Apache-2.0. Period: two weeks in summer 2023. Zone: none is stated; Asia/Shanghai is assumed (``timezone``
overrides). Times have **minute resolution**: half the jobs last about four minutes, so rounding matters. A row of the
job file is a job of KubeDL, of the worker file a pod, of the topology a host.

Assumptions:

* Submission is ``gmt_job_submitted``, else ``gmt_created``; start is ``gmt_job_running``; end ``gmt_job_finished``,
  else ``gmt_job_stopped``. A job without start that is not running never ran.
* GPUs, CPUs, memory are summed over the job's workers (column RES); hosts are counted from them. Without workers (or
  without the worker file) they are unknown. ``num_tasks`` counts the workers that have GPUs (all, if none has).
* Jobs and workers join by ``job_name``. Workers of no listed job are set aside (``no_such_job``), jobs without workers
  counted in a note.
* The topology names hosts but no GPUs: each is taken to have as many as the largest worker asks for (8); without any
  worker with GPUs the rows are set aside.
* Option ``drop_deleted`` sets aside the rows with ``is_deleted`` 1, which the authors say may be dropped.

Columns left behind: the switches of the topology (DSW, PSW, ASW: the nodes table has no place for them) and the
workers' own times. The job file's other columns are in ``extra``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis.loaders.beside import finish_table
from analysis.loaders.cells import PROBLEM, number, read_cells, text, time
from analysis.loaders.delimited import Delimited, has_columns, read_delimited
from analysis.loaders.finish import finish_trace
from analysis.loaders.lingjun_workers import Workers, read_workers
from analysis.loaders.loading import assign_roles
from analysis.loaders.registry import loader
from analysis.trace import Trace, TraceMeta

__all__ = ["read_lingjun"]

META: Final = TraceMeta(
    name="lingjun",
    source="https://github.com/alibaba/alibaba-lingjun-dataset-2023",
    licence="Apache-2.0",
    citation="J. Cao et al., Crux: GPU-Efficient Communication Scheduling for Deep Learning Training, SIGCOMM 2024",
    time_zone="Asia/Shanghai",
    time_zone_certainty="assumed",
    coverage="jobs of one cluster of more than 800 hosts in two weeks",
)
MINUTE: Final = ("%Y/%m/%d %H:%M", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S")
COLUMNS: Final = {
    "job_id": text("id"),
    "job_name": text("job_name"),
    "user": text("user_id"),
    "account": text("tenant_id"),
    "vc": text("workspace_id"),
    "workload": text("kind"),
    "status_raw": text("status"),
    "created": time("gmt_created", *MINUTE),
    "submit_time": time("gmt_job_submitted", *MINUTE),
    "start_time": time("gmt_job_running", *MINUTE),
    "end_time": time("gmt_job_finished", *MINUTE),
    "stopped": time("gmt_job_stopped", *MINUTE),
    "time_limit_s": number("job_max_running_time_minutes", factor=60),
    "is_deleted": text("is_deleted"),
}
EXTRA: Final = {raw: text(raw) for raw in ("gmt_created", "gmt_job_stopped", "is_deleted")}
JOBS: Final = ("id", "job_name", "status", "gmt_job_submitted", "gmt_job_running", "gmt_job_finished")
WORKERS: Final = ("job_name", "worker_name", "host_ip", "RES")
HOSTS: Final = ("ip", "DSW", "PSW", "ASW")
STATUSES: Final = {
    "Succeeded": "completed",
    "Failed": "failed",
    "Stopped": "cancelled",
    "Running": "running",
    "Restarting": "running",
    "Created": "pending",
    "Queuing": "pending",
    "Queued": "pending",
    "Pending": "pending",
}


def _is_jobs(path: Path) -> bool:
    return has_columns(path, JOBS)


def _is_workers(path: Path) -> bool:
    return has_columns(path, WORKERS)


def _is_hosts(path: Path) -> bool:
    return has_columns(path, HOSTS)


@loader(
    "lingjun",
    summary="Alibaba Lingjun 2023 (LLM training): jobs, workers, topology",
    files=f"job.csv ({', '.join(JOBS)}, …) and, optionally, worker.csv ({', '.join(WORKERS)}, …) and topo.csv",
    sniff=lambda paths: float(any(_is_jobs(path) for path in paths)),
)
def read_lingjun(
    paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None, drop_deleted: bool = False
) -> Trace:
    """Read jobs, workers and hosts of the Lingjun data set.

    Parameters
    ----------
    paths : sequence of Path
        The files in any order, workers and topology optional; or their folder.
    timezone : str, optional
        Zone of the naive times, instead of Asia/Shanghai.
    name : str, optional
        Name of the trace, by default "lingjun".
    drop_deleted : bool, default False
        Set aside the jobs that are marked as deleted.

    Returns
    -------
    Trace
        Jobs and, with workers and topology, nodes.
    """
    roles = {"jobs": _is_jobs, "workers": _is_workers, "hosts": _is_hosts}
    files = assign_roles(paths, main="jobs", roles=roles, loader="lingjun")
    meta = replace(META, name=name or META.name)
    if timezone:
        meta = replace(meta, time_zone=timezone, time_zone_certainty="given")
    raws = [read_delimited(files["jobs"], required=JOBS)]
    cells = read_cells(raws[0].frame, COLUMNS, extra=EXTRA).collect()
    notes = [f"Times read in {meta.time_zone}; they are rounded to minutes."]
    found = Workers.none()
    if "workers" in files:
        raws.append(read_delimited(files["workers"], required=WORKERS))
        found = read_workers(raws[-1], cells["job_name"])
        notes += found.notes
    rejects = [found.rejects]
    tables: dict[str, Any] = {}
    if "hosts" in files:
        raws.append(read_delimited(files["hosts"], required=HOSTS))
        tables["nodes"], more = _nodes(raws[-1], found.gpus_per_host)
        rejects.append(more)
        notes += [f"Every host of the topology is taken to have {found.gpus_per_host} GPUs."] * bool(
            tables["nodes"].height
        )
    tables["rejects"] = pl.concat(rejects)
    jobs = _jobs(cells, drop_deleted=drop_deleted).join(found.of_jobs, on="job_name", how="left")
    return finish_trace(jobs, meta=meta, raws=raws, tables=tables, statuses=STATUSES, notes=notes)


def _jobs(cells: pl.DataFrame, *, drop_deleted: bool) -> pl.DataFrame:
    have = cells.columns
    submit = ["submit_time", *(["created"] if "created" in have else [])]
    end = ["end_time", *(["stopped"] if "stopped" in have else [])]
    jobs = cells.with_columns(submit_time=pl.coalesce(submit), end_time=pl.coalesce(end))
    runs = (pl.col("status_raw") == "Running").fill_null(value=False)
    never_ran = pl.col("start_time").is_null() & ~runs
    jobs = jobs.with_columns(censoring=pl.when(never_ran).then(pl.lit("never_started")))
    if drop_deleted and "is_deleted" in have:
        deleted = pl.when(pl.col("is_deleted") == "1").then(pl.lit("is_deleted"))
        jobs = jobs.with_columns(pl.coalesce(PROBLEM, deleted).alias(PROBLEM))
    return jobs.drop("created", "stopped", "is_deleted", strict=False)


def _nodes(raw: Delimited, gpus_per_host: int | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    cells = read_cells(raw.frame, {"node_id": text("ip")}).with_columns(num_gpus=pl.lit(gpus_per_host, dtype=pl.Int64))
    nodes, rejects = finish_table("nodes", cells.drop("extra", strict=False), file=raw.name, keys=("node_id",))
    return nodes, rejects
