"""Rows of the jobs table from PAI's jobs, tasks and instances, at the three levels."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.loaders.cells import PROBLEM, integer, number, read_cells, text
from analysis.loaders.delimited import LINE, Delimited
from analysis.loaders.pai_tables import open_batches, open_table

__all__ = ["Parts", "job_rows", "read_instances", "read_jobs", "read_tags", "read_tasks", "task_rows", "worker_rows"]

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
        number of machines per job.
    raws, rejects, notes : list
        Files, rows set aside, sentences.
    """

    jobs: pl.DataFrame | None = None
    tasks: pl.DataFrame | None = None
    workers: pl.DataFrame | None = None
    tags: pl.DataFrame | None = None
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
            orphan = pl.when(~pl.col(on).is_in(known[on].drop_nulls().implode())).then(pl.lit("no_such_job"))
            rows = rows.with_columns(pl.coalesce(PROBLEM, orphan).alias(PROBLEM))
        if own:
            return rows
        aside = rows.drop_nulls(PROBLEM)
        self.rejects.append(
            aside.select(file=pl.lit(raw.name), line=LINE, reason=PROBLEM, raw=pl.lit(None, dtype=pl.String))
        )
        return rows.filter(pl.col(PROBLEM).is_null()).drop(PROBLEM, LINE)


def _with_problems(rows: pl.DataFrame) -> pl.DataFrame:
    """Note the rows that ended before the trace begins."""
    ends = [name for name in ("job_end", "end_time") if name in rows.columns]
    for name in ends:
        before = pl.when(pl.col(name) < 0).then(pl.lit(BEFORE))
        rows = rows.with_columns(pl.coalesce(PROBLEM, before).alias(PROBLEM))
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
    """Read pai_instance_table block by block: all of it at its own level, else the machines per job."""
    raw = open_batches(path, "instance")
    columns = {"job": [*JOB_KEY, "machine"], "task": [*TASK_KEY, "machine"]}.get(level, list(INSTANCE_COLUMNS))
    pieces = []
    for batch in raw:
        rows = read_cells(batch.lazy(), INSTANCE_COLUMNS, left_behind=batch.columns).collect()
        checks = [pl.when(pl.col("worker_name").is_null()).then(pl.lit("no_worker_name"))]
        if parts.jobs is not None:
            known = pl.col("job_name").is_in(parts.jobs["job_name"].drop_nulls().implode())
            checks.append(pl.when(~known.fill_null(value=False)).then(pl.lit("no_such_job")))
        rows = _with_problems(rows).with_columns(pl.coalesce(PROBLEM, *checks).alias(PROBLEM))
        raw.set_aside(rows.drop_nulls(PROBLEM).select(LINE, reason=PROBLEM))
        kept = rows.filter(pl.col(PROBLEM).is_null())
        pieces.append(kept.select(LINE, *columns) if level == "instance" else kept.select(columns).unique())
    numbers = {LINE: pl.Int64(), "start_time": pl.Float64(), "end_time": pl.Float64()}
    schema_ = {name: numbers.get(name, pl.String()) for name in ([LINE, *columns] if level == "instance" else columns)}
    parts.workers = pl.concat([pl.DataFrame(schema=schema_), *pieces])
    parts.raws.append(raw)


def read_tags(parts: Parts, path: Path, *, level: str) -> None:
    """Read pai_group_tag_table; of two tags of one job the first in order counts, the other is set aside."""
    del level
    raw = open_table(path, "group_tag")
    rows = read_cells(raw.frame, TAG_COLUMNS, left_behind=("user",)).collect()
    rows = rows.sort("inst_id", "group", "workload", "gpu_type_spec", LINE, nulls_last=True)
    again = pl.when(~pl.col("inst_id").is_first_distinct()).then(pl.lit("duplicate_id"))
    rows = rows.with_columns(pl.coalesce(PROBLEM, again).alias(PROBLEM))
    parts.tags = parts.keep(raw, rows, own=False, known=parts.jobs, on="inst_id")


def _job_columns(parts: Parts) -> pl.DataFrame:
    """What every row of a job shares: user, submission, tags; by job_name."""
    columns = dict.fromkeys(("job_name", "inst_id", "user"), pl.String()) | {"submit_time": pl.Float64()}
    jobs = pl.DataFrame(schema=columns) if parts.jobs is None else parts.jobs.select(*columns)
    jobs = jobs.unique("job_name", keep="first", maintain_order=True)
    return _with_tags(jobs, parts)


def _with_tags(jobs: pl.DataFrame, parts: Parts) -> pl.DataFrame:
    if parts.tags is None:
        return jobs
    spec = pl.when(pl.col("gpu_type_spec").is_not_null()).then(pl.concat_list("gpu_type_spec"))
    tags = parts.tags.with_columns(allowed_gpu_types=spec).drop("gpu_type_spec", "extra", strict=False)
    return jobs.join(tags, on="inst_id", how="left", maintain_order="left")


def _num_nodes(parts: Parts, keys: list[str]) -> pl.DataFrame:
    if parts.workers is None:
        return pl.DataFrame(schema={**dict.fromkeys(keys, pl.String()), "num_nodes": pl.UInt32()})
    return parts.workers.drop_nulls("machine").group_by(keys).agg(num_nodes=pl.col("machine").n_unique())


Made = tuple[pl.DataFrame, int, pl.DataFrame | None]


def job_rows(parts: Parts) -> Made:
    """One row per job: the sum of its tasks, from the first start to the last end.

    Returns
    -------
    rows : DataFrame
        For ``finish_trace``.
    rows_merged : int
        Raw rows folded into others.
    attempts : DataFrame or None
    """
    jobs = parts.jobs if parts.jobs is not None else pl.DataFrame()
    jobs = _with_tags(jobs.drop("extra", strict=False), parts)
    sums = _task_sums(parts.tasks) if parts.tasks is not None else None
    if sums is None:
        rows = jobs.with_columns(end_time="job_end")
        parts.notes.append("Without pai_task_table GPUs and starts are not known.")
        rows = rows.with_columns(start_time=pl.lit(None, dtype=pl.Float64), gpu_types=pl.lit(None, dtype=pl.String))
    else:
        rows = jobs.join(sums, on="job_name", how="left", maintain_order="left")
        ended = pl.when(pl.col("all_ended").fill_null(value=False)).then("last_end")
        rows = rows.with_columns(end_time=pl.coalesce(ended, "job_end")).drop("last_end", "all_ended")
    rows = rows.join(_num_nodes(parts, JOB_KEY), on="job_name", how="left", maintain_order="left")
    extra = pl.struct("inst_id", gpu_type="gpu_types")
    return (
        rows.with_columns(job_id="job_name", extra=extra).drop("job_name", "inst_id", "job_end", "gpu_types"),
        0,
        None,
    )


def _task_sums(tasks: pl.DataFrame) -> pl.DataFrame:
    has_gpus = (pl.col("num_gpus") > 0).fill_null(value=False)
    types = pl.col("gpu_type").drop_nulls().unique().sort()
    return tasks.group_by("job_name").agg(
        num_gpus=pl.when(pl.col("num_gpus").is_not_null().all()).then(pl.col("num_gpus").sum()),
        num_cpus=pl.when(pl.col("num_cpus").is_not_null().any()).then(pl.col("num_cpus").sum()),
        mem_gib=pl.when(pl.col("mem_gib").is_not_null().any()).then(pl.col("mem_gib").sum()),
        num_tasks=pl.when(has_gpus.any())
        .then(pl.col("inst_num").filter(has_gpus).sum())
        .otherwise(pl.col("inst_num").sum()),
        start_time=pl.col("start_time").min(),
        last_end=pl.col("end_time").max(),
        all_ended=pl.col("end_time").is_not_null().all(),
        gpu_type=pl.when(types.len() == 1).then(types.first()),
        gpu_types=pl.when(types.len() > 0).then(types.str.join("|")),
    )


def task_rows(parts: Parts) -> Made:
    """One row per task; arguments and results as for `job_rows`."""
    tasks = parts.tasks if parts.tasks is not None else pl.DataFrame()
    rows = tasks.drop("extra", strict=False).join(_job_columns(parts), on="job_name", how="left", maintain_order="left")
    rows = rows.join(_num_nodes(parts, TASK_KEY), on=TASK_KEY, how="left", maintain_order="left")
    rows = rows.with_columns(
        job_id=pl.concat_str(TASK_KEY, separator="/"),
        num_tasks="inst_num",
        extra=pl.struct("job_name", "task_name", "inst_id"),
    )
    return rows.drop("job_name", "task_name", "inst_id", "inst_num", "plan_cpu", "plan_mem", "plan_gpu"), 0, None


def worker_rows(parts: Parts) -> Made:
    """One row per worker, its repeated rows as attempts; arguments and results as for `job_rows`."""
    all_rows = parts.workers if parts.workers is not None else pl.DataFrame()
    rows = all_rows.rename({"worker_name": "job_id"}).sort(
        "job_id", "start_time", "end_time", "status_raw", "machine", LINE, nulls_last=False
    )
    length = pl.col("end_time") - pl.col("start_time")
    rows = rows.with_columns(valid=pl.when(length >= 0).then(length))
    workers = rows.group_by("job_id", maintain_order=True).agg(
        pl.col(LINE).min(),
        pl.col("job_name", "task_name").first(),
        pl.col("status_raw").last(),
        start_time=pl.col("start_time").min(),
        end_time=pl.col("end_time").last(),
        duration_s=pl.when(pl.col("valid").is_not_null().all()).then(pl.col("valid").sum()),
        flag_invalid_times=(length < 0).fill_null(value=False).any(),
        num_attempts=pl.len(),
        num_nodes=pl.col("machine").drop_nulls().n_unique(),
    )
    workers = workers.join(_per_instance(parts), on=TASK_KEY, how="left", maintain_order="left")
    workers = workers.join(_job_columns(parts), on="job_name", how="left", maintain_order="left")
    workers = workers.with_columns(
        num_tasks=1, is_single_node=True, extra=pl.struct("job_name", "task_name", "inst_id")
    )
    workers = workers.drop("job_name", "task_name", "inst_id")
    return workers, rows.height - workers.height, _attempts(rows)


def _per_instance(parts: Parts) -> pl.DataFrame:
    if parts.tasks is None:
        parts.notes.append("Without pai_task_table GPUs of the instances are not known.")
        return pl.DataFrame(schema=dict.fromkeys(TASK_KEY, pl.String()))
    each = pl.col("inst_num").clip(lower_bound=1)
    return parts.tasks.unique(TASK_KEY, keep="first", maintain_order=True).select(
        *TASK_KEY, "gpu_type", *(pl.col(name) / each for name in ("num_gpus", "num_cpus", "mem_gib"))
    )


def _attempts(rows: pl.DataFrame) -> pl.DataFrame:
    times = [
        (pl.col(name) * 1e6).round().cast(pl.Int64).cast(schema.TIME).alias(name) for name in ("start_time", "end_time")
    ]
    return rows.select(
        "job_id",
        *times,
        attempt=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("job_id"),
        nodes=pl.when(pl.col("machine").is_not_null()).then(pl.concat_list("machine")),
        gpus=pl.lit(None, dtype=pl.Float64),
    ).select(*schema.ATTEMPTS)
