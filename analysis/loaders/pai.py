"""Alibaba's PAI cluster of 2020 (cluster-trace-gpu-v2020, the NSDI 2022 paper): seven headerless tables.

Source: https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2020 (the tables:
https://aliopentrace.oss-cn-beijing.aliyuncs.com/v2020GPUTraces/). Licence: CC-BY-4.0. Period: July and August 2020.
Zone: times are seconds with a constant taken off; read as Unix time at +08:00 they give the right hour and weekday but
a false date, so the clock is "clock_only" and the zone "Etc/GMT-8" (+08:00).

What a row of the jobs table is, ``level`` says: a "job" (a row of pai_job_table with the tasks of that name), a "task"
(a row of pai_task_table), or an "instance" (a worker of pai_instance_table; its repeated rows are attempts).

Assumptions:

* ``plan_gpu`` and ``plan_cpu`` are percent of one device and per instance: GPUs = inst_num * plan_gpu / 100. A task
  with neither plan_gpu nor gpu_type is a CPU role (0 GPUs); a missing plan_gpu beside a gpu_type is unknown. A job is
  the sum of its tasks; ``num_tasks`` counts the instances that have GPUs (all, if none has). GB are taken as GiB.
* Start 0 or empty is missing, so is end 0. ``start_time`` of the job table is the submission; a task's start is its
  launch. A job starts with its first task and ends with its last; if a task has no end, the job's own end counts.
* Workers begin again: their duration is the sum of the attempts, their status that of the last to begin.
* Terminated is success; there is no state for cancelled. A task's GPU model is what was asked for ("MISC": older ones);
  a job of several models has none, they are in ``extra``. ``gpu_type_spec`` of the tags is the only one allowed.
* Sensors are averages over a worker's life: ``usage`` is the GPUs used over the GPUs planned, of the workers that have
  a sensor (a left join; a note says how many have). More use than planned is legal when sharing: counted, not clipped.
* Machine metrics are repeated for each worker on the machine: equal (machine, start, end) count once. ``usage_series``
  has them at the interval's start, with ``interval_s``, its length.

At level "instance" ``extra`` names the machine and, with sensors, the device: `analysis.characterize.sharing_pairs`
tells who shared a GPU.

Columns left behind: inst_name, avg_mem, avg_gpu_wrk_mem, read/write counters of the sensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

import polars as pl

from analysis import schema
from analysis.errors import BadFileError, UsageError
from analysis.loaders.beside import finish_table
from analysis.loaders.cells import integer, number, read_cells, text
from analysis.loaders.finish import finish_trace
from analysis.loaders.jobless import finish_without_jobs
from analysis.loaders.many_files import group_files
from analysis.loaders.pai_jobs import job_rows, task_rows, worker_rows
from analysis.loaders.pai_read import Parts, read_instances, read_jobs, read_tags, read_tasks
from analysis.loaders.pai_tables import TABLES, is_header_file, open_table, role_of
from analysis.loaders.pai_usage import machine_series, sensor_usage
from analysis.loaders.registry import loader
from analysis.table_file import TableFile
from analysis.trace import Trace, TraceMeta

__all__ = ["read_pai"]

Level = Literal["job", "task", "instance"]
META: Final = TraceMeta(
    name="pai",
    source="https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2020",
    licence="CC-BY-4.0",
    citation="Q. Weng et al., MLaaS in the Wild: Workload Analysis and Scheduling in Large-Scale Heterogeneous GPU "
    "Clusters, NSDI 2022",
    time_zone="Etc/GMT-8",
    time_zone_certainty="assumed",
    clock="clock_only",
    coverage="all jobs of one cluster of about 1,800 machines in two months",
)
STATUSES: Final = {"Terminated": "completed", "Failed": "failed", "Running": "running", "Waiting": "pending"}
SPEC_COLUMNS: Final = {
    "node_id": text("machine"),
    "gpu_type": text("gpu_type", missing=("", "CPU")),
    "num_cpus": number("cap_cpu"),
    "mem_gib": number("cap_mem"),
    "num_gpus": integer("cap_gpu"),
}
FILES: Final = (
    "any of pai_job_table, pai_task_table, pai_instance_table, pai_sensor_table, pai_group_tag_table, "
    "pai_machine_spec, pai_machine_metric (.csv or .tar.gz, without header)"
)
#: How sure a first row of a table makes us.
CERTAINTY: Final = {
    "job": 0.95,
    "task": 0.95,
    "instance": 0.95,
    "sensor": 0.8,
    "machine_metric": 0.8,
    "machine_spec": 0.7,
}


def _sniff(paths: Sequence[Path]) -> float:
    return max((CERTAINTY.get(role_of(path) or "", 0.0) for path in paths), default=0.0)


@loader("pai", summary="Alibaba PAI 2020: jobs, tasks, instances, sensors, machines", files=FILES, sniff=_sniff)
def read_pai(
    paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None, level: Level = "job"
) -> Trace:
    """Read the tables of Alibaba's PAI trace.

    Parameters
    ----------
    paths : sequence of Path
        Any of the seven tables in any order, or their folder. Jobs need the job table, tasks the task table, instances
        the instance table; the machine tables also load alone.
    timezone : str, optional
        Zone in which hours and weekdays mean something, instead of +08:00.
    name : str, optional
        Name of the trace, by default "pai".
    level : {"job", "task", "instance"}, default "job"
        What a row of the jobs table is.

    Returns
    -------
    Trace
        Jobs; nodes, usage and usage_series where their tables are given; attempts at level "instance".

    Raises
    ------
    UsageError
        If ``level`` is another word, or there are two files of one table.
    BadFileError
        If the table of that level is missing.
    """
    if level not in get_args(Level):
        msg = f"load pai: level is {level!r}; expected one of {', '.join(get_args(Level))}."
        raise UsageError(msg)
    files = _files(paths, level)
    meta = replace(META, name=name or META.name)
    if timezone:
        meta = replace(meta, time_zone=timezone, time_zone_certainty="given")
    machines = _machines(files)
    if level not in files:
        tables = {**machines.tables, "rejects": machines.rejects}
        return finish_without_jobs(meta=meta, raws=machines.raws, tables=tables, notes=machines.notes)
    parts = _parts(files, level)
    makers = {"job": job_rows, "task": task_rows, "instance": worker_rows}
    beside: dict[str, Any] = {"usage": sensor_usage(files["sensor"], parts, level=level)} if "sensor" in files else {}
    rows, merged, attempts = makers[level](parts)
    if attempts is not None:
        beside["attempts"] = attempts
    notes = ["Hours and weekdays are right at +08:00, dates are not.", *machines.notes]
    if "usage" in beside:
        covered = beside["usage"].height
        notes.append(f"Sensors cover {covered} of {rows.height} rows ({covered / max(rows.height, 1):.1%}).")
    series = machines.tables.pop("usage_series", None)
    trace = finish_trace(
        rows,
        meta=meta,
        raws=[*parts.raws, *machines.raws],
        tables={**beside, **machines.tables, "rejects": pl.concat([*parts.rejects, machines.rejects])},
        rows_merged=merged,
        statuses=STATUSES,
        notes=[*notes, *parts.notes],
    )
    return trace if series is None else trace.with_tables(usage_series=series)


def _files(paths: Sequence[Path], level: str) -> dict[str, Path]:
    """One file per table."""
    given = [path for path in paths if not is_header_file(path)]
    roles = {table: (lambda path, table=table: role_of(path) == table) for table in TABLES}
    grouped = group_files(given, roles=roles, expected=FILES)
    crowded = {table: found for table, found in grouped.items() if len(found) > 1}
    if crowded:
        said = "; ".join(f"{table}: {', '.join(path.name for path in found)}" for table, found in crowded.items())
        msg = f"load pai: found several files of one table ({said}); give one of each by name."
        raise UsageError(msg)
    files = {table: found[0] for table, found in grouped.items() if found}
    if level not in files and not set(files) <= {"machine_spec", "machine_metric"}:
        raise BadFileError(
            next(iter(files.values())),
            kind="missing",
            found=f"the tables {', '.join(files)}",
            expected=f"pai_{level}_table too, for level {level!r}",
            fix="Give it as well, or choose another level.",
        )
    return files


def _parts(files: Mapping[str, Path], level: str) -> Parts:
    """The tables that jobs are made of; the level's own table is the first of the raws."""
    parts = Parts()
    readers = {"job": read_jobs, "task": read_tasks, "instance": read_instances, "group_tag": read_tags}
    order = [level, *(table for table in ("job", "task", "instance", "group_tag") if table != level)]
    for table in [*(t for t in ("job", "task") if t in files), *(t for t in ("instance", "group_tag") if t in files)]:
        readers[table](parts, files[table], level=level)
    parts.raws.sort(key=lambda raw: order.index(role_of(raw.path) or level))
    return parts


@dataclass
class _Machines:
    """Tables of machines, and what they tell the load report."""

    tables: dict[str, Any] = field(default_factory=dict)
    raws: list[Any] = field(default_factory=list)
    rejects: pl.DataFrame = field(default_factory=lambda: schema.empty_table("rejects"))
    notes: list[str] = field(default_factory=list)


def _machines(files: Mapping[str, Path]) -> _Machines:
    found = _Machines()
    if "machine_spec" in files:
        raw = open_table(files["machine_spec"], "machine_spec")
        cells = read_cells(raw.frame, SPEC_COLUMNS)
        found.tables["nodes"], found.rejects = finish_table("nodes", cells, file=raw.name, keys=("node_id",))
        found.raws.append(raw)
    if "machine_metric" in files:
        series: tuple[TableFile, Any, list[str]] = machine_series(files["machine_metric"], found.tables.get("nodes"))
        found.tables["usage_series"] = series[0]
        found.raws.append(series[1])
        found.notes += series[2]
    return found
