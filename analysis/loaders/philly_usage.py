"""Philly's three utilisation files: a row per machine and minute, 45 million of them, streamed into usage_series.

``cluster_gpu_util`` (``time, machineId, gpu0_util … gpu7_util``) gives ``gpu_utilization`` of the entities
``<machine>/gpu<index>``; ``cluster_cpu_util`` (``time, machine_id, cpu_util``) ``cpu_utilization`` and
``cluster_mem_util`` (``time, machine_id, mem_total, mem_free``) ``mem_utilization`` and ``mem_total_gib`` of the
machine. They cover 2017-10-03 to 2017-12-15, less than the job log.

Assumptions:

* The suffix of a time decides its offset: PDT is -07:00, PST is -08:00; so the hour that comes twice is told apart.
* Percent become fractions. NA is a null value, not 0: no such GPU, or the machine was off.
* Memory is in kB (as /proc/meminfo has it; the source does not say); a total of 0 makes the utilisation null.
* The rows of cluster_gpu_util end with a comma, its header does not; other malformed rows are set aside.

Each GPU's minutes go to the job whose attempt had it then (see `analysis.loaders.philly_usage_jobs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.batches import Batches
from analysis.loaders.delimited import has_columns
from analysis.loaders.files import list_files
from analysis.loaders.philly_usage_jobs import Occupancy
from analysis.loaders.rows import LINE
from analysis.loaders.series import Codes, SeriesWriter, encode
from analysis.loaders.zones import is_plausible
from analysis.table_file import TableFile
from analysis.trace import LoadReport, Trace

__all__ = ["USAGE_ROLES", "PhillyUsage", "add_usage", "is_usage", "main_role", "read_usage"]

GPU_COLUMN: Final = r"^gpu[0-9]+_util$"
PERCENT: Final = 100.0
KB_PER_GIB: Final = 1024.0**2
#: Hours from the suffix's local time to UTC.
SUFFIXES: Final = {"PDT": 7, "PST": 8}
STAMP: Final = "%Y-%m-%d %H:%M:%S"
MISSING: Final = ("NA", "")


def _is_gpu(path: Path) -> bool:
    return has_columns(path, ("time", "machineId", "gpu0_util"))


def _is_cpu(path: Path) -> bool:
    return has_columns(path, ("time", "machine_id", "cpu_util"))


def _is_mem(path: Path) -> bool:
    return has_columns(path, ("time", "machine_id", "mem_total", "mem_free"))


#: Role of a file -> does this file look like it?
USAGE_ROLES: Final = {"gpu_util": _is_gpu, "cpu_util": _is_cpu, "mem_util": _is_mem}


def is_usage(path: Path) -> bool:
    """Whether a file is one of the three."""
    return any(looks_like(path) for looks_like in USAGE_ROLES.values())


def main_role(paths: Sequence[Path], *, is_log: Callable[[Path], bool]) -> str:
    """The role that must be filled: the job log, unless utilisation comes without one."""
    files = list_files(paths)
    if any(is_log(path) for path in files):
        return "log"
    return next((role for role, looks_like in USAGE_ROLES.items() if any(map(looks_like, files))), "log")


@dataclass(frozen=True)
class PhillyUsage:
    """What the files gave.

    Attributes
    ----------
    series : TableFile
        usage_series, in the files' order; within a block of rows one GPU index after the other.
    raws : list of Batches
        The files, for the load report.
    window : tuple of str or None
        First and last time.
    """

    series: TableFile
    raws: list[Batches]
    window: tuple[str | None, str | None]


def read_usage(files: Mapping[str, Path], *, occupancy: Occupancy | None = None) -> PhillyUsage:
    """Read utilisation files, in bounded memory.

    Parameters
    ----------
    files : mapping of str to Path
        Any of the roles of ``USAGE_ROLES``; other roles are passed over.
    occupancy : Occupancy, optional
        Learns each GPU's values as they pass by.

    Returns
    -------
    PhillyUsage
    """
    raws = []
    with SeriesWriter() as writer:
        for role in USAGE_ROLES:
            if role not in files:
                continue
            machine = "machineId" if role == "gpu_util" else "machine_id"
            raw = Batches(files[role], required=("time", machine), missing=MISSING)
            for batch in raw:
                rows = _Rows.of(raw, batch, machine=machine)
                _write_gpus(rows, writer, occupancy) if role == "gpu_util" else _write_machines(rows, writer)
            raws.append(raw)
    return PhillyUsage(writer.table(), raws, writer.window)


def add_usage(trace: Trace, files: Mapping[str, Path], *, occupancy: Occupancy) -> Trace:
    """Add usage and usage_series to a trace that has been read from the job log.

    Parameters
    ----------
    trace : Trace
        Its jobs and load report.
    files : mapping of str to Path
        As for `read_usage`.
    occupancy : Occupancy
        Which job had which GPU when.

    Returns
    -------
    Trace
        The load report counts the new files too.
    """
    found = read_usage(files, occupancy=occupancy)
    usage = occupancy.usage()
    share = usage.height / max(trace.jobs.height, 1)
    covered = f"{usage.height} of {trace.jobs.height} jobs ({share:.1%}) have measured GPU utilisation."
    rejects = pl.concat([trace.rejects, *(raw.rejects for raw in found.raws)])
    report = _with_files(trace.meta.load_report, found.raws, notes=[covered, *occupancy.notes])
    return trace.with_meta(load_report=report).with_tables(
        usage=usage,
        usage_series=found.series,
        rejects=rejects.sort("file", "line", "reason", nulls_last=True),
    )


def _with_files(report: LoadReport, raws: list[Batches], *, notes: list[str]) -> LoadReport:
    rows_in = sum(raw.rows_in for raw in raws)
    rejects = pl.concat([schema.empty_table("rejects"), *(raw.rejects for raw in raws)])
    reasons = dict(rejects["reason"].value_counts().iter_rows())
    merged = {
        reason: report.rejected_by_reason.get(reason, 0) + reasons.get(reason, 0)
        for reason in sorted({*report.rejected_by_reason, *reasons})
    }
    return replace(
        report,
        rows_in=report.rows_in + rows_in,
        rows_used=report.rows_used + rows_in - rejects.height,
        rows_set_aside=report.rows_set_aside + rejects.height,
        rejected_by_reason=merged,
        files=[*report.files, *({"name": raw.name, "size": raw.size, "rows": raw.rows_in} for raw in raws)],
        notes=[*report.notes, *notes, *(note for raw in raws for note in raw.notes)],
    )


@dataclass(frozen=True)
class _Rows:
    """Readable rows of a batch: numbers per measured column, instants, machines."""

    values: pl.DataFrame
    times: pl.Series
    machines: list[str]
    codes: Codes

    @classmethod
    def of(cls, raw: Batches, batch: pl.DataFrame, *, machine: str) -> _Rows:
        """Read a batch; rows that cannot be read are set aside."""
        names = [name for name in batch.columns if name not in (LINE, "time", machine)]
        times = _instants(batch["time"])
        values = batch.select(pl.col(names).cast(pl.Float64, strict=False).fill_nan(None))
        if sum(values.null_count().row(0)) > sum(batch.select(names).null_count().row(0)):
            values = batch.select(pl.col(names).str.strip_chars().cast(pl.Float64, strict=False).fill_nan(None))
        bad = [
            pl.when(values[name].is_null() & batch[name].is_not_null()).then(pl.lit(f"unreadable_{name}"))
            for name in names
            if values[name].null_count() > batch[name].null_count()
        ]
        if times.null_count() or batch[machine].null_count() or bad:
            reason = pl.coalesce(
                pl.when(batch["time"].is_null()).then(pl.lit("no_time")),
                pl.when(times.is_null()).then(pl.lit("unreadable_time")),
                pl.when(batch[machine].is_null()).then(pl.lit(f"no_{machine}")),
                *bad,
            )
            reasons = batch.select(reason=reason)["reason"]
            raw.set_aside(batch.select(LINE, reasons).drop_nulls("reason"))
            fine = reasons.is_null()
            batch, times, values = batch.filter(fine), times.filter(fine), values.filter(fine)
        machines, codes = encode(batch[machine])
        return cls(values, times, machines, codes)


def _instants(text: pl.Series) -> pl.Series:
    """Local times with PDT or PST as UTC instants; null where they are anything else."""
    stamp = pl.col(text.name)
    local = stamp.str.slice(0, len("2017-10-03 00:08:00")).str.to_datetime(STAMP, time_unit="us", strict=False)
    suffix = stamp.str.slice(len("2017-10-03 00:08:00 "))
    hours = suffix.replace_strict(SUFFIXES, default=None, return_dtype=pl.Int64)
    times = text.to_frame().select((local + pl.duration(hours=hours)).dt.replace_time_zone("UTC")).to_series()
    return times.to_frame().select(pl.when(is_plausible(times.name, times.dtype)).then(times.name)).to_series()


def _write_gpus(rows: _Rows, writer: SeriesWriter, occupancy: Occupancy | None) -> None:
    for name in rows.values.columns:
        gpu = name.removesuffix("_util")
        entities = [f"{machine}/{gpu}" for machine in rows.machines]
        value = rows.values[name]
        if occupancy is not None:
            occupancy.learn(machines=rows.machines, codes=rows.codes, gpu=gpu, times=rows.times, percent=value)
        writer.add(
            entities=entities, codes=rows.codes, time=rows.times, metric="gpu_utilization", value=value / PERCENT
        )


def _write_machines(rows: _Rows, writer: SeriesWriter) -> None:
    values = rows.values
    if "cpu_util" in values.columns:
        found = {"cpu_utilization": values["cpu_util"] / PERCENT}
    else:
        total = values["mem_total"].set(values["mem_total"] <= 0, None)
        found = {"mem_utilization": 1 - values["mem_free"] / total, "mem_total_gib": values["mem_total"] / KB_PER_GIB}
    for metric, value in found.items():
        writer.add(entities=rows.machines, codes=rows.codes, time=rows.times, metric=metric, value=value)
