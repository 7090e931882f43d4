"""PAI's tables of jobs, tasks, instances and tags, read; what cannot be used is set aside with its line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.loaders.batches import Batches
from analysis.loaders.cells import PROBLEM, integer, number, read_cells, text
from analysis.loaders.delimited import Delimited
from analysis.loaders.pai_tables import open_batches, open_table
from analysis.loaders.rows import LINE
from analysis.loaders.zones import is_plausible

__all__ = ["JOB_KEY", "TASK_KEY", "Parts", "find_orphans", "read_instances", "read_jobs", "read_tags", "read_tasks"]

PERCENT: Final = 0.01
BEFORE: Final = "before_trace"
JOB_COLUMNS: Final = {
    "job_name": text("job_name"),
    "inst_id": text("inst_id"),
    "user": text("user"),
    "status_raw": text("status"),
    "submit_time": number("start_time", zero_is_missing=True),
    "job_end": number("end_time", zero_is_missing=True),
}
TASK_COLUMNS: Final = {
    "job_name": text("job_name"),
    "task_name": text("task_name"),
    "inst_num": integer("inst_num"),
    "status_raw": text("status"),
    "start_time": number("start_time", zero_is_missing=True),
    "end_time": number("end_time", zero_is_missing=True),
    "plan_cpu": number("plan_cpu"),
    "plan_mem": number("plan_mem"),
    "plan_gpu": number("plan_gpu"),
    "gpu_type": text("gpu_type"),
}
INSTANCE_COLUMNS: Final = {
    "job_name": text("job_name"),
    "task_name": text("task_name"),
    "worker_name": text("worker_name"),
    "status_raw": text("status"),
    "start_time": number("start_time", zero_is_missing=True),
    "end_time": number("end_time", zero_is_missing=True),
    "machine": text("machine"),
}
TAG_COLUMNS: Final = {
    "inst_id": text("inst_id"),
    "gpu_type_spec": text("gpu_type_spec"),
    "group": text("group"),
    "workload": text("workload"),
}
JOB_KEY, TASK_KEY = ["job_name"], ["job_name", "task_name"]


@dataclass
class Parts:
    """The tables so far, with what they tell the load report.

    Attributes
    ----------
    jobs, tasks, workers, tags : DataFrame or None
        Readable rows; null if the table is not given. ``workers`` holds all rows at level "instance", else only the
        machines per job or task.
    devices : DataFrame or None
        At level "instance": ``job_id``, ``gpu_name`` of the sensors.
    raws, rejects, notes : list
        Files, rows set aside, sentences.
    """

    jobs: pl.DataFrame | None = None
    tasks: pl.DataFrame | None = None
    workers: pl.DataFrame | None = None
    tags: pl.DataFrame | None = None
    devices: pl.DataFrame | None = None
    raws: list[Any] = field(default_factory=list)
    rejects: list[pl.DataFrame] = field(default_factory=lambda: [schema.empty_table("rejects")])
    notes: list[str] = field(default_factory=list)

    def keep(
        self, raw: Delimited, rows: pl.DataFrame, *, own: bool, known: pl.DataFrame | None, on: str
    ) -> pl.DataFrame:
        """Set aside what cannot be read or belongs to nothing; ``own`` rows only get their problem noted."""
        self.raws.append(raw)
        rows = _with_problems(rows)
        if known is not None:
            orphans = find_orphans(rows, known, on=on)
            is_orphan = (
                pl.lit(value=False) if orphans is None else pl.col(on).is_in(orphans.implode(), nulls_equal=True)
            )
            orphan = pl.when(is_orphan).then(pl.lit("no_such_job"))
            rows = rows.with_columns(pl.coalesce(PROBLEM, orphan).alias(PROBLEM))
        if own:
            return rows
        aside = rows.drop_nulls(PROBLEM)
        self.rejects.append(
            aside.select(file=pl.lit(raw.name), line=LINE, reason=PROBLEM, raw=pl.lit(None, dtype=pl.String))
        )
        return rows.filter(pl.col(PROBLEM).is_null()).drop(PROBLEM, LINE)


def _with_problems(rows: pl.DataFrame) -> pl.DataFrame:
    """Note the rows that ended before the trace begins, and those with a time in no century of ours."""
    for name in (name for name in ("job_end", "end_time", "start_time") if name in rows.columns):
        before = pl.when(pl.col(name) < 0).then(pl.lit(BEFORE)) if name != "start_time" else pl.lit(None)
        absurd = pl.when(~is_plausible(name, rows[name].dtype)).then(pl.lit("implausible_time"))
        rows = rows.with_columns(pl.coalesce(PROBLEM, before, absurd).alias(PROBLEM))
    return rows


def read_jobs(parts: Parts, path: Path, *, level: str) -> None:
    """Read pai_job_table."""
    raw = open_table(path, "job")
    rows = read_cells(raw.frame, JOB_COLUMNS).collect()
    parts.jobs = parts.keep(raw, rows, own=level == "job", known=None, on="job_name")


def read_tasks(parts: Parts, path: Path, *, level: str) -> None:
    """Read pai_task_table; tasks of no listed job are set aside."""
    raw = open_table(path, "task")
    rows = read_cells(raw.frame, TASK_COLUMNS).collect()
    kept = parts.keep(raw, rows, own=level == "task", known=parts.jobs, on="job_name")
    num = pl.col("inst_num")
    is_cpu_role = pl.col("plan_gpu").is_null() & pl.col("gpu_type").is_null()
    parts.tasks = kept.with_columns(
        num_gpus=pl.when(is_cpu_role).then(0.0).otherwise(num * pl.col("plan_gpu") / 100),
        num_cpus=num * pl.col("plan_cpu") / 100,
        mem_gib=num * pl.col("plan_mem"),
    )


def read_instances(parts: Parts, path: Path, *, level: str) -> None:
    """Read pai_instance_table block by block: all of it at its own level, else the machines per job or task."""
    raw = open_batches(path, "instance")
    columns = {"job": [*JOB_KEY, "machine"], "task": [*TASK_KEY, "machine"]}.get(level, [LINE, *INSTANCE_COLUMNS])
    workers = _scan_instances(raw, columns, orphans=None)
    orphans = find_orphans(workers, parts.jobs, on="job_name")
    parts.workers = workers if orphans is None else _scan_instances(raw, columns, orphans=orphans)
    parts.raws.append(raw)


def find_orphans(rows: pl.DataFrame, known: pl.DataFrame | None, *, on: str) -> pl.Series | None:
    """Keys of rows that no row of ``known`` has; null if there are none, or nothing is known."""
    if known is None:
        return None
    # Once, over distinct keys: a look-up among a million names for each block would be most of the work.
    names = rows.select(pl.col(on).unique()).join(known.select(on).drop_nulls(), on=on, how="anti", nulls_equal=True)[
        on
    ]
    return names if len(names) else None


def _scan_instances(raw: Batches, columns: list[str], *, orphans: pl.Series | None) -> pl.DataFrame:
    numbers = {LINE: pl.Int64(), "start_time": pl.Float64(), "end_time": pl.Float64()}
    pieces = [pl.DataFrame(schema={name: numbers.get(name, pl.String()) for name in columns})]
    for batch in raw:
        rows = read_cells(batch.lazy(), INSTANCE_COLUMNS, left_behind=batch.columns).collect()
        checks = [pl.when(pl.col("worker_name").is_null()).then(pl.lit("no_worker_name"))]
        if orphans is not None:
            is_orphan = pl.col("job_name").is_in(orphans.implode(), nulls_equal=True)
            checks.append(pl.when(is_orphan).then(pl.lit("no_such_job")))
        rows = _with_problems(rows).with_columns(pl.coalesce(PROBLEM, *checks).alias(PROBLEM))
        raw.set_aside(rows.drop_nulls(PROBLEM).select(LINE, reason=PROBLEM))
        kept = rows.filter(pl.col(PROBLEM).is_null()).select(columns)
        pieces.append(kept if LINE in columns else kept.unique())
    return pl.concat(pieces)


def read_tags(parts: Parts, path: Path, *, level: str) -> None:
    """Read pai_group_tag_table; of two tags of one job the first in order counts, the other is set aside."""
    del level
    raw = open_table(path, "group_tag")
    rows = read_cells(raw.frame, TAG_COLUMNS, left_behind=("user",)).collect()
    rows = rows.sort("inst_id", "group", "workload", "gpu_type_spec", LINE, nulls_last=True)
    again = pl.when(~pl.col("inst_id").is_first_distinct()).then(pl.lit("duplicate_id"))
    rows = rows.with_columns(pl.coalesce(PROBLEM, again).alias(PROBLEM))
    parts.tags = parts.keep(raw, rows, own=False, known=parts.jobs, on="inst_id")
