"""Microsoft Philly (ATC 2019), the official files: the job log with its attempts, and the machine list.

Source: https://github.com/msr-fiddle/philly-traces (``trace-data.tar.gz``, a Git-LFS object). Licence: data CC-BY-4.0.
Period: submissions from 2017-08-07 to 2017-12-22. Zone: the job log states none; the utilisation files say PDT/PST,
so America/Los_Angeles is assumed (``timezone`` overrides). A record of ``cluster_job_log`` (one JSON array) is a job
with its scheduling attempts; its number, from 1, is the "line" in ``rejects``. A row of ``cluster_machine_list`` is a
machine.

Assumptions:

* JSON null, "" and "None" all mean missing.
* GPUs, nodes and GPU type are those of the first attempt's detail; without any, GPUs are unknown (null, flagged).
* Duration is the sum of the attempts, pauses out; null if an attempt lacks a time. The span from the first start to
  the last end is the difference of the two time stamps.
* A job without attempts, or whose attempts have no times at all, never started; its GPUs are unknown.
* A job whose last attempt has no end was still running: right-censored, no end. The log does not say when it was
  taken, so its duration is null; with option ``snapshot`` (a local time, or "last": the latest time in the log) it is
  the lower bound until then. "last" is not the default because many of these attempts may merely lack their end.
* The machine list contradicts the log: a machine's GPUs are the larger of the listed number and one more than the
  highest GPU index that a job used; jobs that used more than is listed are flagged ``over_capacity``.
* The list names no GPU model, only the memory of a GPU; that ("24GB") stands as ``gpu_type``.

* The utilisation files (see `analysis.loaders.philly_usage`) become ``usage_series`` and, joined by GPU and minute,
  ``usage`` per job; they also load alone.

Columns left behind: none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.errors import UsageError
from analysis.loaders.cells import map_status
from analysis.loaders.files import peek
from analysis.loaders.finish import finish_trace
from analysis.loaders.jobless import finish_without_jobs
from analysis.loaders.loading import assign_roles
from analysis.loaders.philly_attempts import Gathered, gather_attempts, parse_times
from analysis.loaders.philly_machines import Machines, is_machine_list, read_machines
from analysis.loaders.philly_usage import USAGE_ROLES, add_usage, is_usage, main_role, read_usage
from analysis.loaders.philly_usage_jobs import Occupancy
from analysis.loaders.records import read_records
from analysis.loaders.registry import loader
from analysis.loaders.rows import LINE, RawRows
from analysis.loaders.zones import ZoneNotes, to_utc
from analysis.metrics import US_PER_S
from analysis.trace import Trace, TraceMeta

__all__ = ["read_philly"]

META: Final = TraceMeta(
    name="philly",
    source="https://github.com/msr-fiddle/philly-traces",
    licence="CC-BY-4.0",
    citation="M. Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, ATC 2019",
    time_zone="America/Los_Angeles",
    time_zone_certainty="assumed",
    coverage="all jobs of the cluster's 14 virtual clusters in the period",
)
STATUSES: Final = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed"}
KEYS: Final = ("status", "vc", "jobid", "attempts", "submitted_time", "user")


def _is_log(path: Path) -> bool:
    start = peek(path)
    keys = ("jobid", "attempts", "submitted_time")
    return start.lstrip().startswith("[") and all(f'"{key}"' in start for key in keys)


@loader(
    "philly",
    summary="Microsoft Philly, the official job log with attempts, machine list, utilisation",
    files="cluster_job_log (a JSON array of jobs with 'attempts') and, optionally, cluster_machine_list (CSV) and "
    "cluster_gpu_util, cluster_cpu_util, cluster_mem_util (CSV)",
    sniff=lambda paths: float(any(_is_log(path) or is_usage(path) for path in paths)),
)
def read_philly(
    paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None, snapshot: str | None = None
) -> Trace:
    """Read Philly's job log, machine list and utilisation.

    Parameters
    ----------
    paths : sequence of Path
        The job log, optionally with the other files, in any order; or their folder. Utilisation files may come alone.
    timezone : str, optional
        Zone of the naive times, instead of America/Los_Angeles.
    name : str, optional
        Name of the trace, by default "philly".
    snapshot : str, optional
        When the log was taken: "YYYY-MM-DD HH:MM:SS" in the log's zone, or "last" for its latest time. Jobs that were
        running then get a lower bound as duration; without it theirs is null.

    Returns
    -------
    Trace
        Jobs, attempts and nodes; with the utilisation files also usage and usage_series (on disk until asked for).
    """
    roles = {"log": _is_log, "machines": is_machine_list, **USAGE_ROLES}
    files = assign_roles(paths, main=main_role(paths, is_log=_is_log), roles=roles, loader="philly")
    meta = replace(META, name=name or META.name)
    if timezone:
        meta = replace(meta, time_zone=timezone, time_zone_certainty="given")
    if "log" not in files:
        listed, found = read_machines(files.get("machines")), read_usage(files)
        return finish_without_jobs(
            meta=replace(meta, window=found.window),
            raws=[*found.raws, *([listed.raw] if listed.raw else [])],
            tables={"usage_series": found.series, "nodes": listed.nodes, "rejects": listed.rejects},
        )
    trace, occupancy = _read_log(files, meta, snapshot=snapshot)
    return trace if occupancy is None else add_usage(trace, files, occupancy=occupancy)


def _read_log(files: Mapping[str, Path], meta: TraceMeta, *, snapshot: str | None) -> tuple[Trace, Occupancy | None]:
    """The trace of job log and machine list and, if there are utilisation files, who had which GPU when."""
    log = read_records(files["log"], key="jobid")
    machines = read_machines(files.get("machines"))
    choices = ZoneNotes()
    gathered = gather_attempts(log.records, zone=meta.time_zone, notes=choices)
    found = machines.settle(gathered.attempts)
    jobs = _jobs(log.records, gathered, found)
    jobs = jobs.with_columns(to_utc(jobs["submit_time"], zone=meta.time_zone, notes=choices))
    jobs = _durations(jobs, _snapshot(snapshot, jobs, gathered, zone=meta.time_zone))
    raws: list[RawRows] = [log, *([machines.raw] if machines.raw else [])]
    tables = {"attempts": gathered.attempts.drop("highest"), "nodes": found.nodes, "rejects": machines.rejects}
    notes = [f"Times read in {meta.time_zone}.", *found.notes, *choices.sentences(meta.time_zone)]
    trace = finish_trace(jobs, meta=meta, raws=raws, tables=tables, notes=notes)
    if not any(role in files for role in USAGE_ROLES):
        return trace, None
    return trace, Occupancy(log.records, job_ids=trace.jobs["job_id"].to_list(), zone=meta.time_zone)


def _text(value: Any) -> str | None:
    return None if value in (None, "", "None") else str(value).strip()


def _jobs(records: Sequence[tuple[int, dict[str, Any]]], gathered: Gathered, machines: Machines) -> pl.DataFrame:
    """One row per record: its own fields, its attempts' sums, its machines' GPU type."""
    own = pl.DataFrame(
        [
            (line, *(_text(record.get(key)) for key in ("jobid", "user", "vc", "status", "submitted_time")))
            for line, record in records
        ],
        schema={LINE: pl.Int64(), **dict.fromkeys(("job_id", "user", "vc", "status_raw", "submitted"), pl.String())},
        orient="row",
    )
    rest = {
        line: {key: json.dumps(value) for key, value in record.items() if key not in KEYS} for line, record in records
    }
    jobs = own.join(gathered.jobs, on=LINE, how="left", maintain_order="left")
    jobs = jobs.join(machines.of_jobs, on=LINE, how="left", maintain_order="left")
    submitted = parse_times(pl.col("submitted"))
    unreadable = submitted.is_null() & pl.col("submitted").is_not_null()
    if any(rest.values()):
        jobs = jobs.with_columns(
            extra=pl.struct(other=pl.Series([json.dumps(rest[line]) for line in jobs[LINE]], dtype=pl.String))
        )
    return jobs.with_columns(
        map_status(STATUSES),
        submit_time=submitted,
        _problem=pl.coalesce("_problem", pl.when(unreadable).then(pl.lit("unreadable_submitted_time"))),
    ).drop("submitted")


def _snapshot(asked: str | None, jobs: pl.DataFrame, gathered: Gathered, *, zone: str) -> pl.Expr | None:
    if asked is None:
        return None
    if asked == "last":
        lasts = [jobs["submit_time"].max(), gathered.attempts["start_time"].max(), gathered.attempts["end_time"].max()]
        return pl.lit(max((time for time in lasts if time is not None), default=None), dtype=schema.TIME)
    taken = pl.select(parse_times(pl.lit(asked))).to_series()
    if taken.null_count():
        msg = f"philly: snapshot is {asked!r}; expected 'YYYY-MM-DD HH:MM:SS' in the log's zone, or 'last'."
        raise UsageError(msg)
    return pl.lit(to_utc(taken, zone=zone).item(), dtype=schema.TIME)


def _durations(jobs: pl.DataFrame, snapshot: pl.Expr | None) -> pl.DataFrame:
    """Sum of the attempts; for a job that still runs what it has run until the snapshot, if there is one."""
    is_running = pl.col("censoring") == "right"
    if snapshot is None:
        bound = pl.lit(None, dtype=pl.Float64)
    else:
        so_far = (snapshot - pl.col("last_start")).dt.total_microseconds() / US_PER_S
        bound = pl.when(so_far >= 0).then(pl.col("finished_s") + so_far)
    duration = pl.when(is_running.fill_null(value=False)).then(bound).otherwise("busy_s")
    return jobs.with_columns(duration_s=duration).drop("busy_s", "finished_s", "last_start")
