"""What PAI's sensors and machine metrics measured, read block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.batches import Batches
from analysis.loaders.cells import PROBLEM, number, read_cells, text
from analysis.loaders.pai_read import Parts, find_orphans
from analysis.loaders.pai_tables import open_batches
from analysis.loaders.rows import LINE
from analysis.loaders.series import SeriesWriter, encode
from analysis.loaders.zones import is_plausible
from analysis.table_file import TableFile

__all__ = ["machine_series", "sensor_usage"]

SENSOR_COLUMNS: Final = {
    "job_name": text("job_name"),
    "task_name": text("task_name"),
    "worker_name": text("worker_name"),
    "gpu_name": text("gpu_name"),
    "cpu": number("cpu_usage"),
    "gpu": number("gpu_wrk_util"),
    "mem": number("max_mem"),
    "gpu_mem": number("max_gpu_wrk_mem"),
}
METRIC_COLUMNS: Final = {
    "machine": text("machine"),
    "start_time": number("start_time", zero_is_missing=True),
    "end_time": number("end_time", zero_is_missing=True),
    "cpu_iowait": number("machine_cpu_iowait"),
    "cpu_kernel": number("machine_cpu_kernel"),
    "cpu_user": number("machine_cpu_usr"),
    "gpu": number("machine_gpu"),
    "load_1": number("machine_load_1"),
    "net_receive_bytes": number("machine_net_receive"),
    "num_workers": number("machine_num_worker"),
    "cpu_utilization": number("machine_cpu"),
}
PERCENTS: Final = ("cpu_iowait", "cpu_kernel", "cpu_user", "cpu_utilization")
PLAIN: Final = ("load_1", "net_receive_bytes", "num_workers")
#: What is summed and what is compared over the sensors of a task.
SUMS: Final = ("gpu", "num_gpu", "cpu", "num_cpu")
MAXIMA: Final = ("mem", "gpu_mem", "highest_gpu", "gpu_name")
TASK: Final = ["job_name", "task_name"]
#: What a sensor of each level belongs to.
KEYS: Final = {"job": ["job_name"], "task": ["job_name", "task_name"], "instance": ["worker_name"]}


def sensor_usage(path: Path, parts: Parts, *, level: str) -> pl.DataFrame:
    """Sum the sensors per row of the jobs table.

    Parameters
    ----------
    path : Path
        pai_sensor_table.
    parts : Parts
        Jobs, tasks (whose plans the use is compared with) and workers; gets the file, a note, the workers' devices.
    level : {"job", "task", "instance"}
        What a row of the jobs table is.

    Returns
    -------
    DataFrame, as ``schema.USAGE``
        GPU and CPU utilisation: used over planned, summed over the workers that have both; memory: the largest worker.
    """
    raw = open_batches(path, "sensor")
    own = {"job": parts.jobs, "task": parts.tasks, "instance": parts.workers}[level]
    on = "worker_name" if level == "instance" else "job_name"
    sums = _scan_sensors(raw, KEYS[level], orphans=None, on=on)
    orphans = find_orphans(sums, own, on=on)
    if orphans is not None:
        sums = _scan_sensors(raw, KEYS[level], orphans=orphans, on=on)
    planned = sums.join(_plans(parts), on=TASK, how="left")
    num_above = planned.filter(pl.col("highest_gpu") > pl.col("plan_gpu")).height
    if num_above:
        parts.notes.append(f"{num_above} tasks use more GPU than was planned (sharing allows it); kept as they are.")
    if level == "instance":
        parts.devices = sums.group_by(job_id="worker_name").agg(pl.col("gpu_name").max())
    parts.raws.append(raw)
    return _usage(planned, KEYS[level])


def _scan_sensors(raw: Batches, keys: list[str], *, orphans: pl.Series | None, on: str) -> pl.DataFrame:
    """Sums per key and task, which has one plan; rows that belong to nothing are set aside."""
    by = list(dict.fromkeys([*keys, *TASK]))
    types = {name: pl.String() if name in (*by, "gpu_name") else pl.Float64() for name in [*by, *SUMS, *MAXIMA]}
    pieces = [pl.DataFrame(schema=types)]
    for batch in raw:
        rows = read_cells(batch.lazy(), SENSOR_COLUMNS, left_behind=batch.columns).collect()
        if orphans is not None:
            is_orphan = pl.col(on).is_in(orphans.implode(), nulls_equal=True)
            orphan = pl.when(is_orphan).then(pl.lit("no_such_worker" if on == "worker_name" else "no_such_job"))
            rows = rows.with_columns(pl.coalesce(PROBLEM, orphan).alias(PROBLEM))
        raw.set_aside(rows.drop_nulls(PROBLEM).select(LINE, reason=PROBLEM))
        kept = rows.filter(pl.col(PROBLEM).is_null()).with_columns(
            num_gpu=pl.col("gpu").is_not_null(), num_cpu=pl.col("cpu").is_not_null(), highest_gpu="gpu"
        )
        pieces.append(_sums(kept, by).cast(types))  # type: ignore[arg-type]
    return _sums(pl.concat(pieces), by)


def _sums(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    return rows.group_by(by).agg(pl.col(SUMS).sum(), pl.col(MAXIMA).max())


def _plans(parts: Parts) -> pl.DataFrame:
    keys = ["job_name", "task_name"]
    if parts.tasks is None:
        return pl.DataFrame(
            schema={**dict.fromkeys(keys, pl.String()), **dict.fromkeys(("plan_gpu", "plan_cpu"), pl.Float64())}
        )
    return parts.tasks.select(*keys, "plan_gpu", "plan_cpu").unique(keys, keep="first", maintain_order=True)


def _usage(planned: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Used over planned, of the workers that have both; the largest worker's memory."""

    def compared(name: str) -> list[pl.Expr]:
        has_plan = pl.col(f"plan_{name}") > 0
        plan = (pl.col(f"plan_{name}") * pl.col(f"num_{name}")).alias(f"planned_{name}")
        return [pl.when(has_plan).then(name).alias(name), pl.when(has_plan).then(plan)]

    def share(name: str) -> pl.Expr:
        return pl.when(pl.col(f"planned_{name}") > 0).then(pl.col(name) / pl.col(f"planned_{name}"))

    rows = planned.select(*keys, "mem", "gpu_mem", *compared("gpu"), *compared("cpu"))
    sums = rows.group_by(keys).agg(
        pl.col("gpu", "planned_gpu", "cpu", "planned_cpu").sum(), pl.col("mem", "gpu_mem").max()
    )
    columns = {
        "job_id": pl.concat_str(keys, separator="/"),
        "gpu_utilization_mean": share("gpu"),
        "gpu_mem_gib_max": pl.col("gpu_mem"),
        "cpu_utilization_mean": share("cpu"),
        "mem_gib_max": pl.col("mem"),
    }
    return sums.select(
        columns.get(name, pl.lit(None)).cast(dtype).alias(name) for name, dtype in schema.USAGE.items()
    ).sort("job_id")


def machine_series(path: Path, nodes: pl.DataFrame | None) -> tuple[TableFile, Batches, list[str]]:
    """Make usage_series of the machine metrics, each (machine, interval) once.

    Parameters
    ----------
    path : Path
        pai_machine_metric.
    nodes : DataFrame or None
        The machines' GPUs: with them ``gpu_utilization`` is a share of the machine, else ``gpus_used`` is a number.

    Returns
    -------
    series : TableFile
        Sorted by (metric, machine, start). ``interval_s`` is null for an interval without end.
    raw : Batches
    notes : list of str
        How many rows repeated an interval.
    """
    raw = open_batches(path, "machine_metric")
    pieces, num_kept = [], 0
    for batch in raw:
        rows = read_cells(batch.lazy(), METRIC_COLUMNS, left_behind=batch.columns).collect()
        missing = [pl.when(pl.col(name).is_null()).then(pl.lit(f"no_{name}")) for name in ("machine", "start_time")]
        absurd = pl.when(~is_plausible("start_time", rows["start_time"].dtype)).then(pl.lit("implausible_start_time"))
        rows = rows.with_columns(pl.coalesce(PROBLEM, *missing, absurd).alias(PROBLEM))
        raw.set_aside(rows.drop_nulls(PROBLEM).select(LINE, reason=PROBLEM))
        rows = rows.filter(pl.col(PROBLEM).is_null()).drop(PROBLEM, LINE)
        num_kept += rows.height
        pieces.append(rows.unique())
    intervals = _intervals(pieces, nodes)
    with SeriesWriter() as writer:
        if intervals.height:
            machines, codes = encode(intervals["machine"])
            times = (intervals["start_time"] * 1e6).round().cast(pl.Int64).cast(schema.TIME)
            for metric in sorted(set(intervals.columns) - {"machine", "start_time", "end_time"}):
                writer.add(entities=machines, codes=codes, time=times, metric=metric, value=intervals[metric])
    repeated = num_kept - intervals.height
    notes = [f"{repeated} machine metrics repeat an interval of their machine (one row per worker); each counts once."]
    return writer.table(), raw, notes if repeated else []


def _intervals(pieces: list[pl.DataFrame], nodes: pl.DataFrame | None) -> pl.DataFrame:
    """One row per machine and interval; where its rows differ, their mean, whatever their order."""
    keys = ["machine", "start_time", "end_time"]
    values = [*PERCENTS, *PLAIN, "gpu"]
    if not pieces:
        return pl.DataFrame(schema={"machine": pl.String(), **dict.fromkeys(keys[1:], pl.Float64())})
    distinct = pl.concat(pieces).unique().sort(*keys, *values, nulls_last=True)
    rows = distinct.group_by(keys, maintain_order=True).agg(pl.col(values).mean())
    rows = rows.with_columns(
        *(pl.col(name) / 100 for name in PERCENTS), interval_s=pl.col("end_time") - pl.col("start_time")
    )
    if nodes is None:
        return rows.with_columns(gpus_used=pl.col("gpu") / 100).drop("gpu")
    size = nodes.select(machine="node_id", num_gpus="num_gpus")
    rows = rows.join(size, on="machine", how="left", maintain_order="left")
    share = pl.when(pl.col("num_gpus") > 0).then(pl.col("gpu") / (100 * pl.col("num_gpus")))
    return rows.with_columns(gpu_utilization=share).drop("gpu", "num_gpus")
