"""AcmeTrace's utilisation files: wide (a column per server or GPU) to the long usage_series, streamed.

A file holds one metric, named by the file: ``GPU_UTIL.csv``, or split ``GPU_UTIL-2023-07-….csv``, which are read as
one. ``Time`` steps by 15 s, as text with an offset or as epoch seconds. The columns are servers (an address) or GPUs
(``<address>-<index>``); they are the entities. An empty cell becomes a null value.

Choices:

* Percent become fractions, MiB become GiB; the metric's name says the unit. In epoch form (not yet processed by the
  authors) the node utilisations are fractions already. DCGM's activity metrics are fractions; where a file's values
  show that they were turned into percent, they are turned back.
* Values above 100 % are counted in a note and stay as they are (Kalos' CPU utilisation reaches 239 %).
* A row whose time has been seen for this metric is set aside (``duplicate_time``).
* A column ``<name>.1`` beside ``<name>`` (a known fault of two hours of memory data) fills the gaps of ``<name>``.
* Files of server power (IPMI: ``Time``, ``Sys_Total_Power``, …) name no server: their rows are no duplicates, the
  entity is the file's name.
"""

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
from analysis.loaders.files import peek
from analysis.loaders.many_files import bare_name
from analysis.loaders.rows import LINE
from analysis.loaders.series import SeriesWriter
from analysis.loaders.zones import is_plausible, to_utc
from analysis.table_file import TableFile

__all__ = ["FoundSeries", "is_series", "read_series"]

TIME: Final = "Time"
POWER: Final = "Sys_Total_Power"
PERCENT: Final = 100.0
MIB: Final = 1024.0
#: Metric of the file -> name with its unit, what a value is divided by.
METRICS: Final = {
    "NODE_CPU_UTILIZATION": ("cpu_utilization", PERCENT),
    "NODE_MEMORY_UTILIZATION": ("mem_utilization", PERCENT),
    "NODE_IB_SEND": ("ib_send", 1.0),
    "NODE_IB_RECEIVE": ("ib_receive", 1.0),
    "GPU_UTIL": ("gpu_utilization", PERCENT),
    "MEM_COPY_UTIL": ("gpu_mem_copy_utilization", PERCENT),
    "FB_USED": ("gpu_mem_used_gib", MIB),
    "FB_FREE": ("gpu_mem_free_gib", MIB),
    "GPU_TEMP": ("gpu_temperature_c", 1.0),
    "MEMORY_TEMP": ("gpu_mem_temperature_c", 1.0),
    "POWER_USAGE": ("gpu_power_w", 1.0),
    "MEM_CLOCK": ("gpu_mem_clock_mhz", 1.0),
    "SM_CLOCK": ("gpu_sm_clock_mhz", 1.0),
    "SM_ACTIVE": ("gpu_sm_active", 1.0),
    "SM_OCCUPANCY": ("gpu_sm_occupancy", 1.0),
    "PIPE_TENSOR_ACTIVE": ("gpu_tensor_active", 1.0),
    "DRAM_ACTIVE": ("gpu_dram_active", 1.0),
    "XID_ERRORS": ("gpu_xid_error", 1.0),
}
RATIOS: Final = ("_utilization", "_active", "_occupancy")
#: Rounding may lift an activity a little above 1, but never this far.
SURELY_PERCENT: Final = 1.5
NAME: Final = re.compile(r"^(?:DCGM_FI_(?:DEV|PROF)_)?(.+?)(?:-20\d\d-.*)?$")
COLUMN: Final = re.compile(r"^\d+\.\d+\.\d+\.\d+")


def is_series(path: Path) -> bool:
    """Whether a file's header is ``Time`` and servers, GPUs or power."""
    columns = [name.strip() for name in peek(path).split("\n", 1)[0].split(",")]
    return columns[0] == TIME and (POWER in columns or any(COLUMN.match(name) for name in columns[1:]))


@dataclass(frozen=True)
class FoundSeries:
    """What the files gave: the table on disk, the files for the load report, sentences, first and last time."""

    table: TableFile
    raws: list[Batches]
    notes: list[str]
    window: tuple[str | None, str | None]


@dataclass
class _Metric:
    """One metric while its files are read."""

    name: str
    divisor: float
    is_known: bool
    seen: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    num_duplicates: int = 0
    num_above: int = 0
    highest: float = 0.0

    @classmethod
    def of(cls, path: Path) -> _Metric:
        stem = metric_of(path)
        name, divisor = METRICS.get(stem, (stem.lower(), 1.0))
        return cls(name, divisor, stem in METRICS)

    def new_rows(self, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows have a time that was not seen before; they are seen now."""
        is_new = np.zeros(len(times), dtype=bool)
        is_new[np.unique(times, return_index=True)[1]] = True
        if len(self.seen) and len(times) and times.min() <= self.seen[-1]:
            is_new &= ~np.isin(times, self.seen)
        self.num_duplicates += int((~is_new).sum())
        self.seen = np.sort(np.concatenate([self.seen, times[is_new]]))
        return is_new

    def settle_unit(self, values: pl.Series, *, is_epoch: bool) -> None:
        """Find out from the first values whether they are fractions or percent."""
        if self.name in ("cpu_utilization", "mem_utilization") and is_epoch:
            self.divisor = 1.0
        highest = values.max()
        if self.name.endswith(RATIOS[1:]) and isinstance(highest, float) and highest > SURELY_PERCENT:
            self.divisor = PERCENT

    def watch(self, values: pl.Series) -> None:
        """Count the ratios above 100 %."""
        if not self.name.endswith(RATIOS):
            return
        above = values.filter(values > 1)
        self.num_above += len(above)
        self.highest = max(self.highest, float(above.max() or 0.0))  # type: ignore[arg-type]

    def notes(self) -> list[str]:
        said = [] if self.is_known else [f"Metric {self.name!r} is not documented; its values are kept as they are."]
        if self.num_duplicates:
            said.append(f"{self.name}: {self.num_duplicates} rows repeat a time and were set aside.")
        if self.num_above:
            said.append(f"{self.name}: {self.num_above} values are above 100 % (highest {self.highest:.2%}); kept.")
        return said


def metric_of(path: Path) -> str:
    """The source's name of a file's metric.

    Examples
    --------
    >>> metric_of(Path("GPU_UTIL-2023-07-01.csv.gz")), metric_of(Path("DCGM_FI_DEV_FB_USED.csv"))
    ('GPU_UTIL', 'FB_USED')
    """
    match = NAME.match(bare_name(path))
    return match[1] if match else bare_name(path)


def read_series(paths: Sequence[Path], *, zone: str) -> FoundSeries:
    """Read utilisation files into one table on disk.

    Parameters
    ----------
    paths : sequence of Path
        Files for which `is_series` is true, sorted: the parts of a split metric follow each other.
    zone : str
        IANA name of the zone of times without offset.

    Returns
    -------
    FoundSeries
        Rows of a metric in the files' order; within a block of rows one entity after the other.
    """
    raws: list[Batches] = []
    metrics: dict[str, _Metric] = {}
    with SeriesWriter() as writer:
        for path in paths:
            raw = Batches(path, required=(TIME,))
            if POWER in raw.columns:
                _read_power(raw, writer, zone=zone)
            else:
                _read_wide(raw, metrics.setdefault(metric_of(path), _Metric.of(path)), writer, zone=zone)
            raws.append(raw)
    notes = [note for metric in metrics.values() for note in metric.notes()]
    return FoundSeries(writer.table(), raws, notes, writer.window)


def _read_wide(raw: Batches, metric: _Metric, writer: SeriesWriter, *, zone: str) -> None:
    names = [column for column in raw.columns if column != TIME]
    twins = {name: base for name in names if (base := re.sub(r"(\.1|_2)$", "", name)) != name and base in names}
    entities = [name for name in names if name not in twins]
    for batch in raw:
        frame, times, is_epoch = _numbers(raw, batch, names, zone)
        is_new = metric.new_rows(times.dt.epoch("us").to_numpy())
        raw.set_aside(frame.filter(pl.Series(~is_new)).select(LINE, reason=pl.lit("duplicate_time")))
        frame, times = frame.filter(pl.Series(is_new)), times.filter(pl.Series(is_new))
        if not frame.height or not entities:
            continue
        frame = frame.with_columns(pl.coalesce(base, twin).alias(base) for twin, base in twins.items())
        value = pl.concat([frame[name] for name in entities], rechunk=True)
        if len(metric.seen) == frame.height:
            metric.settle_unit(value, is_epoch=is_epoch)
        value = value / metric.divisor if metric.divisor != 1 else value
        metric.watch(value)
        writer.add(
            entities=entities,
            codes=np.repeat(np.arange(len(entities)), frame.height),
            time=pl.concat([times] * len(entities), rechunk=True),
            metric=metric.name,
            value=value,
        )


def _read_power(raw: Batches, writer: SeriesWriter, *, zone: str) -> None:
    names = [column for column in raw.columns if column.endswith("_Power")]
    for batch in raw:
        frame, times, _ = _numbers(raw, batch, names, zone)
        for name in names:
            writer.add(
                entities=[bare_name(raw.path)],
                codes=np.zeros(frame.height, dtype=np.int32),
                time=times,
                metric=f"{name.lower()}_w",
                value=frame[name],
            )


def _numbers(raw: Batches, batch: pl.DataFrame, names: list[str], zone: str) -> tuple[pl.DataFrame, pl.Series, bool]:
    """Rows that can be read, as numbers, with their instants; the others are set aside."""
    times, is_epoch = _instants(batch[TIME], zone)
    times = times.to_frame(TIME).select(pl.when(is_plausible(TIME, times.dtype)).then(TIME)).to_series()
    is_missing = batch[TIME].is_null() | batch[TIME].is_in(list(MISSING))
    reason: pl.Expr = pl.when(is_missing).then(pl.lit("no_Time")).when(times.is_null()).then(pl.lit("unreadable_Time"))
    frame = batch.select(LINE, pl.col(names).str.strip_chars().cast(pl.Float64, strict=False).fill_nan(None))
    if sum(frame.null_count().row(0)) > sum(batch.select(names).null_count().row(0)):
        bad = [
            pl.when(frame[name].is_null() & ~batch[name].str.strip_chars().is_in(list(MISSING))).then(
                pl.lit(f"unreadable_{name}")
            )
            for name in names
        ]
        reason = pl.coalesce(reason, *bad)
    reasons = batch.select(reason=reason)["reason"]
    raw.set_aside(batch.select(LINE, reasons).drop_nulls("reason"))
    return frame.filter(reasons.is_null()), times.filter(reasons.is_null()), is_epoch


def _instants(text: pl.Series, zone: str) -> tuple[pl.Series, bool]:
    """Times written with an offset, as epoch seconds, or naive; and whether they are epoch seconds."""
    bare = text.str.strip_chars()
    seconds = bare.cast(pl.Float64, strict=False)
    if seconds.null_count() < len(seconds):
        return to_utc(seconds, zone=zone), True
    aware = bare.str.to_datetime("%Y-%m-%d %H:%M:%S%z", time_unit="us", strict=False)
    if aware.null_count() < len(aware):
        return aware.cast(schema.TIME), False
    return to_utc(bare.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False), zone=zone), False
