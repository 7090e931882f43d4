"""MIT Supercloud's GPU series: one file per job and node, a sample every 100 ms, streamed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis import schema
from analysis.loaders.batches import Batches
from analysis.loaders.cells import MISSING
from analysis.loaders.delimited import has_columns
from analysis.loaders.rows import LINE
from analysis.loaders.series import SeriesWriter
from analysis.loaders.zones import to_utc
from analysis.table_file import TableFile

__all__ = ["FoundGpus", "is_gpu_series", "read_gpu_series"]

RAW: Final = ("timestamp", "gpu_index", "utilization_gpu_pct")
MIB: Final = 1024.0
#: Column -> metric with its unit, what a value is divided by.
METRICS: Final = {
    "utilization_gpu_pct": ("gpu_utilization", 100.0),
    "utilization_memory_pct": ("gpu_mem_copy_utilization", 100.0),
    "memory_free_MiB": ("gpu_mem_free_gib", MIB),
    "memory_used_MiB": ("gpu_mem_used_gib", MIB),
    "temperature_gpu": ("gpu_temperature_c", 1.0),
    "temperature_memory": ("gpu_mem_temperature_c", 1.0),
    "power_draw_W": ("gpu_power_w", 1.0),
    "pcie_link_width_current": ("gpu_pcie_lanes", 1.0),
}
#: Utilisation is counted in tenths of a percent, as the files have it, so that a job's median needs no samples kept.
TENTHS: Final = 1000
JOB: Final = re.compile(r"^(\d+)")

Counts = NDArray[np.int64]


def is_gpu_series(path: Path) -> bool:
    """Whether a file is a GPU series of a job: by its header, and a name that begins with the job's id."""
    return JOB.match(path.name) is not None and has_columns(path, RAW)


@dataclass
class _Measured:
    """What was seen of one job so far: samples by utilisation, and the highest memory."""

    counts: Counts = field(default_factory=lambda: np.zeros(TENTHS + 1, dtype=np.int64))
    mem_gib: float | None = None

    def quantile(self, share: float) -> float:
        """The lowest utilisation that at least this share of the samples do not exceed (0-1)."""
        rank = max(int(np.ceil(share * self.counts.sum())), 1)
        return float(np.searchsorted(np.cumsum(self.counts), rank)) / TENTHS

    def mean(self) -> float:
        return float(self.counts @ np.arange(TENTHS + 1)) / TENTHS / float(self.counts.sum())


@dataclass(frozen=True)
class FoundGpus:
    """What the files gave: usage per job, the series on disk (null: no files), the files, first and last time."""

    usage: pl.DataFrame
    table: TableFile | None
    raws: list[Batches]
    window: tuple[str | None, str | None]


def read_gpu_series(paths: Sequence[Path]) -> FoundGpus:
    """Read GPU series into one table on disk and one row of usage per job.

    Parameters
    ----------
    paths : sequence of Path
        Files for which `is_gpu_series` is true.

    Returns
    -------
    FoundGpus
        Entities of the series are ``<file>/<gpu index>``. ``usage``: mean, median and 95th percentile of the
        utilisation over all samples of all GPUs of the job (0-1), and the most memory that one GPU used [GiB].
    """
    if not paths:
        return FoundGpus(schema.empty_table("usage"), None, [], (None, None))
    raws: list[Batches] = []
    jobs: dict[str, _Measured] = {}
    with SeriesWriter() as writer:
        for path in paths:
            raw = Batches(path, required=RAW)
            found = JOB.match(path.name)
            job = jobs.setdefault(found[1] if found else path.name, _Measured())
            for batch in raw:
                _add(raw, batch, job, writer)
            raws.append(raw)
    return FoundGpus(_usage(jobs), writer.table(), raws, writer.window)


def _add(raw: Batches, batch: pl.DataFrame, job: _Measured, writer: SeriesWriter) -> None:
    names = [name for name in METRICS if name in batch.columns]
    numbers = batch.select(
        LINE,
        "gpu_index",
        pl.col("timestamp", *names).str.strip_chars().cast(pl.Float64, strict=False).fill_nan(None),
    )
    reason = _reasons(batch, numbers, names)
    raw.set_aside(batch.select(LINE, reason).drop_nulls("reason"))
    numbers = numbers.filter(reason.is_null())
    if not numbers.height:
        return
    gpus = numbers["gpu_index"].str.strip_chars()
    distinct = gpus.unique().sort()
    codes = gpus.replace_strict(distinct, pl.arange(0, len(distinct), eager=True), return_dtype=pl.Int64).to_numpy()
    stem = raw.path.name.removesuffix(".gz").removesuffix(".csv")
    times = to_utc(numbers["timestamp"], zone="UTC")
    for name in names:
        metric, divisor = METRICS[name]
        entities = [f"{stem}/{gpu}" for gpu in distinct]
        writer.add(entities=entities, codes=codes, time=times, metric=metric, value=numbers[name] / divisor)
    _count(job, numbers)


def _reasons(batch: pl.DataFrame, numbers: pl.DataFrame, names: Sequence[str]) -> pl.Series:
    """Why a row cannot be used; null if it can."""
    checks = [pl.when(pl.col("gpu_index").is_null()).then(pl.lit("no_gpu_index"))]
    is_time = numbers["timestamp"].is_between(0, 4e9).fill_null(value=False)
    checks.append(pl.when(~is_time).then(pl.lit("unreadable_timestamp")))
    for name in names:
        is_bad = numbers[name].is_null() & ~batch[name].str.strip_chars().is_in([*MISSING]) & batch[name].is_not_null()
        checks.append(pl.when(is_bad).then(pl.lit(f"unreadable_{name}")))
    return batch.select(reason=pl.coalesce(checks))["reason"]


def _count(job: _Measured, numbers: pl.DataFrame) -> None:
    tenths = (numbers["utilization_gpu_pct"].drop_nulls() * (TENTHS / 100)).round().clip(0, TENTHS)
    job.counts += np.bincount(tenths.cast(pl.Int64).to_numpy(), minlength=TENTHS + 1)
    most = numbers["memory_used_MiB"].max() if "memory_used_MiB" in numbers.columns else None
    if isinstance(most, float):
        job.mem_gib = max(most / MIB, job.mem_gib or 0.0)


def _usage(jobs: dict[str, _Measured]) -> pl.DataFrame:
    rows = []
    for job_id, job in sorted(jobs.items()):
        row: dict[str, object] = {"job_id": job_id, "gpu_mem_gib_max": job.mem_gib}
        if job.counts.sum():
            row |= {
                "gpu_utilization_mean": job.mean(),
                "gpu_utilization_p50": job.quantile(0.5),
                "gpu_utilization_p95": job.quantile(0.95),
            }
        rows.append(row)
    return pl.DataFrame(rows, schema=schema.USAGE)
