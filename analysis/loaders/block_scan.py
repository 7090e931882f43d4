"""A regular delimited file as a lazy frame that reads one block of lines at a time.

polars' own scan maps the whole file into memory, where it counts as the process's own; here only a block is held, and
compressed data is scanned in the same way.
"""

from __future__ import annotations

import io
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np
import polars as pl
from polars.io.plugins import register_io_source

from analysis.loaders.rows import LINE
from analysis.loaders.survey import blocks

__all__ = ["BlockScan", "open_source", "skip_lines"]

BLOCK_BYTES: Final = 8 * 1024 * 1024
QUOTE: Final = b'"'


def open_source(source: Path | bytes) -> IO[bytes]:
    """Open a file by its path, or bytes that are in memory, at their start."""
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def skip_lines(stream: IO[bytes], lines: int) -> None:
    """Go past the header's lines; without any, past a byte order mark."""
    for _ in range(lines):
        stream.readline()
    if not lines and stream.read(3) != b"\xef\xbb\xbf":
        stream.seek(0)


@dataclass(frozen=True)
class BlockScan:
    """Text in which every line that is not blank has the same fields, as `analysis.loaders.survey` found.

    Attributes
    ----------
    source : Path or bytes
        The file, or its bytes if it is compressed.
    fields : tuple of str
        Names of the fields of a line.
    separator : str
        Between two fields.
    header_line : int
        Physical lines before the first row.
    blank_lines : sequence of int
        Physical lines that hold nothing (1 = first line of the file), in order.
    """

    source: Path | bytes
    fields: Sequence[str]
    separator: str
    header_line: int
    blank_lines: Sequence[int] = ()

    def frame(self) -> pl.LazyFrame:
        """All fields as text (an empty field is null) and ``_line``, the physical line."""
        schema = {LINE: pl.Int64(), **dict.fromkeys(self.fields, pl.String())}
        return register_io_source(self._read, schema=schema, is_pure=True)

    def _read(
        self,
        with_columns: list[str] | None,
        predicate: pl.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[pl.DataFrame]:
        del batch_size
        wanted = with_columns if with_columns is not None else [LINE, *self.fields]
        left = n_rows
        for block, first in self._blocks():
            if left is not None and left <= 0:
                return
            rows = self._parse(block, first, wanted)
            rows = rows if left is None else rows.head(left)
            left = None if left is None else left - rows.height
            yield rows if predicate is None else rows.filter(predicate)

    def _blocks(self) -> Iterator[tuple[bytes, int]]:
        """Blocks of whole lines, each with the physical line that it begins with."""
        line = self.header_line + 1
        with open_source(self.source) as stream:
            skip_lines(stream, self.header_line)
            for block in blocks(stream, BLOCK_BYTES):
                yield block, line
                line += block.count(b"\n")

    def _parse(self, block: bytes, first: int, wanted: list[str]) -> pl.DataFrame:
        lines = np.arange(first, first + block.count(b"\n"))
        end = first + len(lines)
        blank = self.blank_lines[bisect_left(self.blank_lines, first) : bisect_left(self.blank_lines, end)]
        if blank:
            lines = np.setdiff1d(lines, blank)
            pieces = block.split(b"\n")
            block = b"".join(pieces[line - first] + b"\n" for line in lines.tolist())
        if not block:
            return pl.DataFrame(schema={name: pl.Int64() if name == LINE else pl.String() for name in wanted})
        table = pl.read_csv(
            block,
            has_header=False,
            schema=dict.fromkeys(self.fields, pl.String()),
            columns=[place for place, name in enumerate(self.fields) if name in wanted] or [0],
            separator=self.separator,
            quote_char='"' if QUOTE in block else None,
        )
        return table.with_columns(pl.Series(LINE, lines, dtype=pl.Int64)).select(wanted)
