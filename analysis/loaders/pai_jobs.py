"""Rows of the jobs table from PAI's jobs, tasks and instances, at the three levels."""

from __future__ import annotations

import polars as pl

from analysis import schema
from analysis.loaders.pai_read import JOB_KEY, TASK_KEY, Parts
from analysis.loaders.rows import LINE

__all__ = ["job_rows", "task_rows", "worker_rows"]


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
    # Only plain sums, minima and counts per job: there are more than a million jobs.
    has_gpus = (pl.col("num_gpus") > 0).fill_null(value=False)
    amounts = ("num_gpus", "num_cpus", "mem_gib")
    sums = (
        tasks.with_columns(with_gpus=pl.when(has_gpus).then("inst_num"))
        .group_by("job_name")
        .agg(
            pl.col(*amounts, "inst_num", "with_gpus").sum(),
            *(pl.col(name).count().alias(f"{name}_known") for name in amounts),
            size=pl.len(),
            start_time=pl.col("start_time").min(),
            last_end=pl.col("end_time").max(),
            num_ended=pl.col("end_time").count(),
            first_type=pl.col("gpu_type").min(),
            last_type=pl.col("gpu_type").max(),
        )
    )
    of_several = sums.filter(pl.col("first_type") != pl.col("last_type")).select("job_name")
    types = tasks.join(of_several, on="job_name", how="semi").group_by("job_name")
    named = types.agg(several=pl.col("gpu_type").drop_nulls().unique().sort().str.join("|"))
    return sums.join(named, on="job_name", how="left").select(
        "job_name",
        "start_time",
        "last_end",
        pl.when(pl.col("num_gpus_known") == pl.col("size")).then("num_gpus").alias("num_gpus"),
        *(pl.when(pl.col(f"{name}_known") > 0).then(name).alias(name) for name in ("num_cpus", "mem_gib")),
        num_tasks=pl.when(pl.col("with_gpus") > 0).then("with_gpus").otherwise("inst_num"),
        all_ended=pl.col("num_ended") == pl.col("size"),
        gpu_type=pl.when(pl.col("first_type") == pl.col("last_type")).then("first_type"),
        gpu_types=pl.coalesce("several", "first_type"),
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
        machine=pl.col("machine").last(),
    )
    workers = workers.join(_per_instance(parts), on=TASK_KEY, how="left", maintain_order="left")
    workers = workers.join(_job_columns(parts), on="job_name", how="left", maintain_order="left")
    if parts.devices is not None:
        workers = workers.join(parts.devices, on="job_id", how="left", maintain_order="left")
    names = ["job_name", "task_name", "inst_id", "machine", *(["gpu_name"] if parts.devices is not None else [])]
    workers = workers.with_columns(num_tasks=1, is_single_node=True, extra=pl.struct(names)).drop(names)
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
