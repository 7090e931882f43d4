"""Delimited text of any length in bounded memory: one block of lines at a time.

The road of `analysis.loaders.delimited` for files that no memory holds (Philly's utilisation: 45 million lines): the
same separators, headers, reasons and line numbers, but each block is looked over on its own. In a block with odd lines
only these go line by line; the others are parsed at once.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis import schema
from analysis.loaders.cleaning import Cleaned, clean
from analysis.loaders.delimited import SURPLUS, read_layout, require_columns
from analysis.loaders.files import open_bytes, readable
from analysis.loaders.rows import LINE, reject_table
from analysis.loaders.survey import blocks

__all__ = ["Batches"]

BLOCK_BYTES: Final = 16 * 1024 * 1024
#: Enough for the header and the first line of a file with thousands of columns.
LOOK_BYTES: Final = 4 * 1024 * 1024
NEWLINE: Final = 10
RETURN: Final = 13
QUOTE: Final = b'"'


class Batches:
    """A delimited file, read block by block; it tells the load report what it saw (see ``rows.RawRows``).

    Parameters
    ----------
    path : Path
        Plain, compressed or in a tar archive.
    required : collection of str
        Columns that must be there, in any order.
    names : sequence of str, optional
        The columns of a file without header.
    missing : collection of str, optional
        What the source writes for "no value": null in the frames.
    block_bytes : int, default 16 MiB
        How much text is looked at at once.

    Attributes
    ----------
    columns : tuple of str
        Column names.
    rows_in : int
        Physical lines below the header that were seen so far.
    num_undecodable : int
        Rows of which bytes were replaced.

    Raises
    ------
    BadFileError
        As ``delimited.read_delimited`` does.
    """

    def __init__(
        self,
        path: Path,
        *,
        required: Collection[str] = (),
        names: Sequence[str] | None = None,
        missing: Collection[str] = (),
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.path = path
        self._missing = list(missing)
        self._block_bytes = block_bytes
        with readable(path), open_bytes(path) as stream:
            self._layout = read_layout(path, io.BytesIO(stream.read(LOOK_BYTES)), names=names, required=required)
        require_columns(path, self._layout.columns, required)
        self.columns = self._layout.columns
        self.header_line = self._layout.header_line
        self.rows_in = 0
        self.num_undecodable = 0
        self._rejects: list[pl.DataFrame] = []
        self._block = b""
        self._ends: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._first_line = 1

    @property
    def name(self) -> str:
        """The file's name without its folders."""
        return self.path.name

    @property
    def size(self) -> int:
        """Size on disk [bytes]."""
        return self.path.stat().st_size

    @property
    def rejects(self) -> pl.DataFrame:
        """Rows set aside so far, with their text, as ``schema.REJECTS``."""
        return pl.concat([schema.empty_table("rejects"), *self._rejects])

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noticed so far, in sentences."""
        if not self.num_undecodable:
            return ()
        return (f"{self.name}: {self.num_undecodable} rows have bytes that are not UTF-8; they were replaced.",)

    def raw_text(self, lines: Collection[int]) -> dict[int, str]:
        """Text of some physical lines, for rows that a later step sets aside."""
        wanted, texts = set(lines), {}
        if wanted:
            with readable(self.path), open_bytes(self.path) as stream:
                for number, raw in enumerate(stream, start=1):
                    if number in wanted:
                        text = raw.decode("utf-8", errors="replace")
                        texts[number] = text.removesuffix("\n").removesuffix("\r")
        return texts

    def __iter__(self) -> Iterator[pl.DataFrame]:
        """Frames of text columns (an empty field is null) and ``_line``, in the file's order."""
        self.rows_in, self.num_undecodable, self._rejects = 0, 0, []
        self._first_line = self.header_line + 1
        with readable(self.path), open_bytes(self.path) as stream:
            for _ in range(self.header_line):
                stream.readline()
            for number, block in enumerate(blocks(stream, self._block_bytes)):
                is_start = not number and not self.header_line
                self._block = block.removeprefix(b"\xef\xbb\xbf") if is_start else block
                data = np.frombuffer(self._block, dtype=np.uint8)
                self._ends = np.flatnonzero(data == NEWLINE)
                frame = self._parse(data)
                self.rows_in += len(self._ends)
                if frame.height:
                    yield frame
                self._first_line += len(self._ends)

    def set_aside(self, rows: pl.DataFrame) -> None:
        """Put rows of the current batch among the rejects.

        Parameters
        ----------
        rows : DataFrame
            ``_line`` and ``reason``.
        """
        texts = [self._text(line - self._first_line) for line in rows[LINE]]
        self._add_rejects(list(zip(rows[LINE].to_list(), rows["reason"].to_list(), texts, strict=True)))

    def _add_rejects(self, rows: list[tuple[int, str, str]]) -> None:
        if rows:
            self._rejects.append(reject_table(self.name, rows))

    def _text(self, index: int) -> str:
        return self._slice(index).decode("utf-8", errors="replace").removesuffix("\n").removesuffix("\r")

    def _slice(self, index: int) -> bytes:
        start = int(self._ends[index - 1]) + 1 if index else 0
        return self._block[start : int(self._ends[index]) + 1]

    def _parse(self, data: NDArray[np.uint8]) -> pl.DataFrame:
        if QUOTE in self._block or not _is_utf8(self._block, data):
            cleaned = self._clean(self._block)
            # A record over several lines is one row, as in `delimited`.
            self.rows_in -= sum(span - 1 for span in cleaned.spans.values())
            return self._take(cleaned, np.arange(len(self._ends)))
        good = self._good_lines(data)
        if good.all():
            return self._frame(self._block, np.arange(len(self._ends)))
        bad = np.flatnonzero(~good)
        odd = self._take(self._clean(b"".join(self._slice(int(i)) for i in bad)), bad)
        return pl.concat([self._frame(self._without(bad), np.flatnonzero(good)), odd]).sort(LINE)

    def _good_lines(self, data: NDArray[np.uint8]) -> NDArray[np.bool_]:
        ends = self._ends
        separators = np.flatnonzero(data == ord(self._layout.separator))
        counts = np.diff(np.searchsorted(separators, ends), prepend=0)
        lengths = np.diff(ends, prepend=-1) - 1
        is_blank = (lengths == 0) | ((lengths == 1) & (data[np.maximum(ends - 1, 0)] == RETURN))
        good: NDArray[np.bool_] = (counts == len(self._layout.fields) - 1) & ~is_blank
        return good

    def _without(self, bad: NDArray[np.int64]) -> bytes:
        pieces, start = [], 0
        for index in bad:
            pieces.append(self._block[start : int(self._ends[index - 1]) + 1 if index else 0])
            start = int(self._ends[index]) + 1
        return b"".join([*pieces, self._block[start:]])

    def _clean(self, text: bytes) -> Cleaned:
        separator, columns = self._layout.separator, self.columns
        return clean(io.BytesIO(text), separator=separator, columns=columns, free_text=None, first_line=1)

    def _take(self, cleaned: Cleaned, index: NDArray[np.int64]) -> pl.DataFrame:
        """Rows of cleaned text whose n-th line is the block's ``index[n - 1]``-th; its rejects are kept."""
        first = self._first_line
        self._add_rejects([(first + int(index[n - 1]), reason, text) for n, reason, text in cleaned.rejects])
        self.num_undecodable += len(cleaned.undecodable)
        lines = index[np.asarray(cleaned.lines, dtype=np.int64) - 1]
        return self._frame(cleaned.text, lines, fields=self.columns)

    def _frame(self, text: bytes, index: NDArray[np.int64], *, fields: Sequence[str] | None = None) -> pl.DataFrame:
        fields = fields or self._layout.fields
        wanted = [pl.Series(LINE, index + self._first_line, dtype=pl.Int64)]
        if not text:
            return pl.DataFrame(schema={LINE: pl.Int64(), **dict.fromkeys(self.columns, pl.String())})
        frame = pl.read_csv(
            text,
            has_header=False,
            schema=dict.fromkeys(fields, pl.String()),
            separator=self._layout.separator,
            quote_char='"' if QUOTE in text else None,
            null_values=self._missing,
        )
        return frame.drop(SURPLUS, strict=False).insert_column(0, wanted[0])


def _is_utf8(block: bytes, data: NDArray[np.uint8]) -> bool:
    if not (data >= 0x80).any():
        return True
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
