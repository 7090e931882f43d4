"""What PAI's sensors and machine metrics measured, read block by block."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.batches import Batches
from analysis.loaders.cells import PROBLEM, number, read_cells, text
from analysis.loaders.delimited import LINE
from analysis.loaders.pai_jobs import Parts
from analysis.loaders.pai_tables import open_batches
from analysis.loaders.series import SeriesWriter, encode
from analysis.table_file import TableFile

__all__ = ["machine_series", "sensor_usage"]

SENSOR_COLUMNS: Final = {
    "job_name": text("job_name"),
    "task_name": text("task_name"),
    "worker_name": text("worker_name"),
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
#: What a sensor of each level belongs to.
KEYS: Final = {"job": ["job_name"], "task": ["job_name", "task_name"], "instance": ["worker_name"]}


def sensor_usage(path: Path, parts: Parts, *, level: str, num_rows: int) -> tuple[pl.DataFrame, Batches, list[str]]:
    """Sum the sensors per row of the jobs table.

    Parameters
    ----------
    path : Path
        pai_sensor_table.
    parts : Parts
        Jobs, tasks (whose plans the use is compared with) and workers.
    level : {"job", "task", "instance"}
        What a row of the jobs table is.
    num_rows : int
        Rows of the jobs table, for the coverage.

    Returns
    -------
    usage : DataFrame, as ``schema.USAGE``
        GPU and CPU utilisation: used over planned, summed over the workers that have both; memory: the largest worker.
    raw : Batches
        For the load report.
    notes : list of str
        Coverage, and how many sensors are above their plan.
    """
    raw = open_batches(path, "sensor")
    plans = _plans(parts)
    own = {"job": parts.jobs, "task": parts.tasks, "instance": parts.workers}[level]
    known = own.select(KEYS[level]).drop_nulls().unique() if own is not None else None
    pieces, num_above = [], 0
    for batch in raw:
        rows = read_cells(batch.lazy(), SENSOR_COLUMNS, left_behind=batch.columns).collect()
        if known is not None:
            rows = rows.join(known.with_columns(is_known=True), on=KEYS[level], how="left", maintain_order="left")
            orphan = pl.when(pl.col("is_known").is_null()).then(pl.lit(f"no_such_{level}"))
            rows = rows.with_columns(pl.coalesce(PROBLEM, orphan).alias(PROBLEM))
        raw.set_aside(rows.drop_nulls(PROBLEM).select(LINE, reason=PROBLEM))
        rows = rows.filter(pl.col(PROBLEM).is_null()).join(plans, on=["job_name", "task_name"], how="left")
        num_above += rows.filter(pl.col("gpu") > pl.col("plan_gpu")).height
        pieces.append(_sums(_compared(rows), KEYS[level]))
    sums = _sums(pl.concat(pieces), KEYS[level]) if pieces else None
    usage = schema.empty_table("usage") if sums is None else _usage(sums, KEYS[level])
    share = usage.height / num_rows if num_rows else 0.0
    notes = [f"Sensors cover {usage.height} of {num_rows} rows ({share:.1%})."]
    if num_above:
        notes.append(f"{num_above} sensors show more GPU use than was planned (sharing allows it); kept as they are.")
    return usage, raw, notes


def _plans(parts: Parts) -> pl.DataFrame:
    keys = ["job_name", "task_name"]
    if parts.tasks is None:
        return pl.DataFrame(
            schema={**dict.fromkeys(keys, pl.String()), **dict.fromkeys(("plan_gpu", "plan_cpu"), pl.Float64())}
        )
    return parts.tasks.select(*keys, "plan_gpu", "plan_cpu").unique(keys, keep="first", maintain_order=True)


def _compared(rows: pl.DataFrame) -> pl.DataFrame:
    """Use and plan where both are known."""
    both_gpu = pl.col("gpu").is_not_null() & (pl.col("plan_gpu") > 0)
    both_cpu = pl.col("cpu").is_not_null() & (pl.col("plan_cpu") > 0)
    return rows.with_columns(
        pl.when(both_gpu).then("gpu"),
        pl.when(both_gpu).then("plan_gpu"),
        pl.when(both_cpu).then("cpu"),
        pl.when(both_cpu).then("plan_cpu"),
    )


def _sums(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    return rows.group_by(keys).agg(pl.col("gpu", "plan_gpu", "cpu", "plan_cpu").sum(), pl.col("mem", "gpu_mem").max())


def _usage(sums: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    def over_plan(used: str, planned: str) -> pl.Expr:
        return pl.when(pl.col(planned) > 0).then(pl.col(used) / pl.col(planned))

    columns = {
        "job_id": pl.concat_str(keys, separator="/"),
        "gpu_utilization_mean": over_plan("gpu", "plan_gpu"),
        "gpu_mem_gib_max": pl.col("gpu_mem"),
        "cpu_utilization_mean": over_plan("cpu", "plan_cpu"),
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
        rows = rows.with_columns(pl.coalesce(PROBLEM, *missing).alias(PROBLEM))
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
