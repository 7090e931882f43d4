"""Raw rows of any kind: how many came in, which were set aside, and their text."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import polars as pl

from analysis import schema

__all__ = ["LINE", "UNDECODABLE", "RawRows", "reject_table"]

#: Column with the physical line that a row is from.
LINE: Final = "_line"
#: Column (bool) that tells rows with bytes that are not UTF-8.
UNDECODABLE: Final = "_undecodable"


class RawRows(Protocol):
    """What a raw file (or an in-memory table) tells the load report; `Delimited` is one."""

    @property
    def name(self) -> str:
        """The file's name without its folders."""

    @property
    def size(self) -> int:
        """Size on disk [bytes]; 0 if it is in memory."""

    @property
    def rows_in(self) -> int:
        """Raw rows found."""

    @property
    def rejects(self) -> pl.DataFrame:
        """Rows set aside while reading, as ``schema.REJECTS``."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noticed while reading, in sentences."""

    def raw_text(self, lines: Collection[int]) -> dict[int, str]:
        """Text of some rows by line number."""


@dataclass(frozen=True)
class FrameRows:
    """A table in memory, or one that was read as a whole (Parquet); its "line" is the row's number, from 1.

    Attributes
    ----------
    name : str
        What it is called in rejects and reports.
    table : DataFrame
        Any columns.
    size : int
        Size on disk [bytes]; 0 if it was never there.
    """

    name: str
    table: pl.DataFrame
    size: int = 0
    notes: tuple[str, ...] = ()
    header_line: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names."""
        return tuple(self.table.columns)

    @property
    def frame(self) -> pl.LazyFrame:
        """The rows with their number in ``_line``."""
        return self.table.with_row_index("_line", offset=1).with_columns(pl.col("_line").cast(pl.Int64)).lazy()

    @property
    def rows_in(self) -> int:
        """Number of rows."""
        return self.table.height

    @property
    def rejects(self) -> pl.DataFrame:
        """None: every row could be read."""
        return schema.empty_table("rejects")

    def raw_text(self, lines: Collection[int]) -> dict[int, str]:
        """Some rows as JSON."""
        return {line: json.dumps(self.table.row(line - 1, named=True), default=str) for line in lines}


def reject_table(file: str, rows: Sequence[tuple[int, str, str]]) -> pl.DataFrame:
    """Make a rejects table of (line, reason, text)."""
    return pl.DataFrame(
        [(file, line, reason, text) for line, reason, text in rows], schema=schema.REJECTS, orient="row"
    )
