"""Raw rows of any kind: how many came in, which were set aside, and their text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import polars as pl

from analysis import schema

__all__ = ["RawRows", "reject_table"]


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


def reject_table(file: str, rows: Sequence[tuple[int, str, str]]) -> pl.DataFrame:
    """Make a rejects table of (line, reason, text)."""
    return pl.DataFrame(
        [(file, line, reason, text) for line, reason, text in rows], schema=schema.REJECTS, orient="row"
    )
