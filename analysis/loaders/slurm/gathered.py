"""What is read of a Slurm cluster before it becomes a Trace: blocks of records and steps of some exports."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import polars as pl

from analysis.loaders.slurm.blocks import Export
from analysis.loaders.slurm.records import Reading

__all__ = ["Source"]


@dataclass
class Source:
    """What was read so far.

    Attributes
    ----------
    name, zone : str, str or None
        Of the trace; the zone that the user gave.
    nodes, partitions : list of Path
        Files with the cluster's nodes and partitions.
    window : pair of datetime or None
        What the user said that the export covers.
    snapshot : datetime or None
        When the user said that the export was made.
    exports, readings : list
        The exports, and what was noticed in each.
    """

    name: str
    zone: str | None
    nodes: list[Path]
    partitions: list[Path]
    window: tuple[datetime | None, datetime | None] = (None, None)
    snapshot: datetime | None = None
    exports: list[Export] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    records: list[list[pl.DataFrame]] = field(default_factory=list)
    steps: list[pl.DataFrame] = field(default_factory=list)

    def start(self, export: Export, reading: Reading) -> None:
        """Begin an export."""
        self.exports.append(export)
        self.readings.append(reading)
        self.records.append([])

    def add(self, *, records: pl.DataFrame, steps: pl.DataFrame) -> None:
        """Take a block of the export that was begun last; an empty one if it has no lines."""
        self.records[-1].append(records)
        self.steps.append(steps)

    def take(self) -> tuple[list[pl.DataFrame], pl.DataFrame]:
        """All records in blocks of the same columns, and all steps; they are let go here, for they may be large."""
        per_export, steps = self.records, pl.concat(self.steps)
        self.records, self.steps = [], []
        blocks = [block for blocks in per_export for block in blocks]
        return (_align(blocks) if len(per_export) > 1 else blocks), steps

    def has(self, raw: str) -> bool:
        """Whether an export has a field."""
        return any(raw in export.layout.fields for export in self.exports)


def _align(tables: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Records of exports with different fields: each gets the fields of all in ``extra``."""
    names = list(dict.fromkeys(name for table in tables for name in table["extra"].struct.fields))

    def whole(table: pl.DataFrame) -> pl.Series:
        have = table["extra"].struct.fields
        # What one export has as categories another may have as text.
        parts = [
            (pl.col("extra").struct.field(name) if name in have else pl.lit(None)).cast(pl.String).alias(name)
            for name in names
        ]
        return table.select(pl.struct(parts).alias("extra")).to_series()

    return [table.with_columns(whole(table)) for table in tables]
