"""A sacct export in blocks of lines, every field as text; no line is lost.

sacct quotes nothing: a job's name may hold the delimiter or a newline. Lines with the right number of delimiters
(nearly all) go to polars a block at a time; the others are put together again by `analysis.loaders.slurm.repair` or
set aside with their number, reason and text. Memory stays that of a block, whatever the file's size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.loaders.files import open_bytes, readable
from analysis.loaders.rows import reject_table
from analysis.loaders.slurm.layout import IDS, Layout
from analysis.loaders.slurm.repair import OddLine, Repairer

__all__ = ["LINE", "UNDECODABLE", "Export"]

LINE: Final = "_line"
UNDECODABLE: Final = "_undecodable"
BLOCK: Final = 16 * 1024 * 1024
#: A record that a newline broke is looked for over so many lines.
MAX_CARRIED: Final = 200
#: Stands for a delimiter of several characters inside a block; no sacct value has it.
UNIT: Final = b"\x1f"
NEWLINE: Final = 10

Mask = NDArray[np.bool_]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class _Lines:
    """A block's bytes, where its lines begin and end, which of them are regular, and the first one's number."""

    block: bytes
    starts: Places
    ends: Places
    is_good: Mask
    first_line: int


def _complete(is_good: Mask) -> int:
    """How many lines are done with: odd ones at the end may go on in the next block."""
    good = np.flatnonzero(is_good)
    last = int(good[-1]) + 1 if good.size else 0
    return last if len(is_good) - last <= MAX_CARRIED else len(is_good)


@dataclass
class Export:
    """One export as it is read.

    Attributes
    ----------
    path, layout : Path, Layout
        The file and how its lines are cut.
    block_bytes : int
        Size of a block.
    rows_in : int
        Records below the header so far: physical lines, one that a newline broke counted once.
    aside : list of (line, reason, text)
        Lines set aside while reading.
    num_repaired : int
        Records put together again.
    undecodable : set of int
        Lines of which bytes were replaced.
    """

    path: Path
    layout: Layout
    block_bytes: int = BLOCK
    rows_in: int = 0
    aside: list[tuple[int, str, str]] = field(default_factory=list)
    num_repaired: int = 0
    undecodable: set[int] = field(default_factory=set)
    has_trailing: bool | None = None

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
        """Lines set aside while reading, as ``schema.REJECTS``."""
        return reject_table(self.name, self.aside)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noticed while reading, in sentences."""
        said = []
        if self.num_repaired:
            said.append(
                f"{self.name}: in {self.num_repaired} rows a name holds the delimiter or a newline; it was put "
                "together again."
            )
        if self.undecodable:
            num = len(self.undecodable)
            said.append(f"{self.name}: {num} rows have bytes that are not UTF-8; they were replaced.")
        return tuple(said)

    @property
    def _separator(self) -> bytes:
        mark = self.layout.delimiter.encode()
        return mark if len(mark) == 1 else UNIT

    @property
    def _per_line(self) -> int:
        return len(self.layout.fields) - 1 + bool(self.has_trailing)

    def raw_text(self, lines: Collection[int]) -> dict[int, str]:
        """Text of some physical lines."""
        wanted, texts = set(lines), {}
        if not wanted:
            return {}
        with readable(self.path), open_bytes(self.path) as stream:
            for number, raw in enumerate(stream, start=1):
                if number in wanted:
                    texts[number] = raw.decode("utf-8", errors="replace").rstrip("\r\n")
        return texts

    def blocks(self) -> Iterator[pl.DataFrame]:
        """Frames of the good lines in the file's order: all fields as text, ``_line`` and ``_undecodable``."""
        with readable(self.path), open_bytes(self.path) as stream:
            for _ in range(self.layout.header_line):
                stream.readline()
            if not self.layout.header_line and stream.peek(3)[:3] == b"\xef\xbb\xbf":  # type: ignore[attr-defined]
                stream.read(3)
            line, carried = self.layout.header_line + 1, b""
            while piece := self._piece(stream, carried):
                is_last = not piece.endswith(b"\n")
                frame, carried, num = self._block(piece if not is_last else piece + b"\n", line, is_last=is_last)
                line += num
                yield frame
            if carried:
                frame, _, _ = self._block(carried, line, is_last=True)
                yield frame

    def _piece(self, stream: IO[bytes], carried: bytes) -> bytes:
        new = stream.read(self.block_bytes)
        if not new:
            return b""
        return b"".join((carried, new, stream.readline()))

    def _block(self, raw: bytes, first_line: int, *, is_last: bool) -> tuple[pl.DataFrame, bytes, int]:
        """The frame of a block, the bytes that belong to the next one, and the number of lines that are done."""
        block = self._cleaned(raw, first_line)
        starts, ends, is_good = self._look(block)
        keep = len(ends) if is_last else _complete(is_good)
        cut = int(ends[keep - 1]) + 1 if keep else 0
        lines = _Lines(block[:cut], starts[:keep], ends[:keep], is_good[:keep], first_line)
        frame = self._with_repaired(self._frame(lines), self._odd_lines(lines))
        self.rows_in += int(lines.is_good.sum())
        was_replaced = pl.col(LINE).is_in(list(self.undecodable)) if self.undecodable else pl.lit(value=False)
        return frame.with_columns(was_replaced.alias(UNDECODABLE)), block[cut:], keep

    def _look(self, block: bytes) -> tuple[Places, Places, Mask]:
        """Where each line begins and ends, and whether it has the right number of delimiters."""
        data = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(data == NEWLINE)
        starts = np.concatenate([[0], ends[:-1] + 1])
        seps = np.flatnonzero(data == self._separator[0])
        counts = np.diff(np.searchsorted(seps, np.concatenate([[0], ends])))
        if self.has_trailing is None:
            # Of the form -p are lines that end with a delimiter, and have one more of them.
            ends_so = data[np.maximum(ends - 1, 0)] == self._separator[0]
            whole = int((counts == len(self.layout.fields) - 1).sum())
            self.has_trailing = int(((counts == len(self.layout.fields)) & ends_so).sum()) > whole
        # A blank line of a single field is no record.
        is_good = (counts == self._per_line) & (ends > starts)
        if self.layout.fields[0] in IDS:
            # The end of a record that a newline broke may have the right number of delimiters, but no id.
            is_good &= (data[starts] >= ord("0")) & (data[starts] <= ord("9"))
        return starts, ends, is_good

    def _cleaned(self, raw: bytes, first_line: int) -> bytes:
        """One separator byte, plain line ends, valid UTF-8; lines of which bytes were replaced are remembered."""
        block = raw.replace(b"\r\n", b"\n") if b"\r" in raw else raw
        mark = self.layout.delimiter.encode()
        if len(mark) > 1:
            block = block.replace(mark, UNIT)
        try:
            if not block.isascii():
                block.decode("utf-8")
        except UnicodeDecodeError:
            return self._replaced(block, first_line)
        return block

    def _replaced(self, block: bytes, first_line: int) -> bytes:
        lines = block.split(b"\n")
        for place, line in enumerate(lines):
            text = line.decode("utf-8", errors="replace").encode()
            if text != line:
                lines[place] = text
                self.undecodable.add(first_line + place)
        return b"\n".join(lines)

    def _frame(self, lines: _Lines) -> pl.DataFrame:
        fields = dict.fromkeys(self.layout.fields, pl.String())
        if not lines.is_good.any():
            return pl.DataFrame(schema={LINE: pl.Int64(), **fields})
        text = lines.block
        if not lines.is_good.all():
            odd = np.flatnonzero(~lines.is_good)
            begins = np.concatenate([[0], lines.ends[odd] + 1]).tolist()
            stops = np.concatenate([lines.starts[odd], [len(text)]]).tolist()
            text = b"".join(text[begin:stop] for begin, stop in zip(begins, stops, strict=True))
        read = {**fields, "_trailing": pl.String()} if self.has_trailing else fields
        frame = pl.read_csv(text, has_header=False, schema=read, separator=self._separator.decode(), quote_char=None)
        numbers = pl.Series(LINE, np.flatnonzero(lines.is_good) + lines.first_line, dtype=pl.Int64)
        return frame.select(*fields).insert_column(0, numbers)

    def _odd_lines(self, lines: _Lines) -> list[OddLine]:
        mark = self._separator.decode()
        odd = []
        for place in np.flatnonzero(~lines.is_good).tolist():
            text = lines.block[lines.starts[place] : lines.ends[place]].decode("utf-8", errors="replace")
            odd.append(OddLine(lines.first_line + place, text.split(mark)))
        return odd

    def _with_repaired(self, frame: pl.DataFrame, odd: list[OddLine]) -> pl.DataFrame:
        if not odd:
            return frame
        done = Repairer(self.layout, has_trailing=bool(self.has_trailing)).repair(odd)
        self.aside += done.aside
        self.num_repaired += len(done.rows)
        self.rows_in += len(done.rows) + len(done.aside)
        if not done.rows:
            return frame
        more = pl.DataFrame(done.rows, schema=frame.schema, orient="row")
        text = pl.col(pl.String)
        more = more.with_columns(pl.when(text != "").then(text).name.keep())
        return pl.concat([frame, more]).sort(LINE)
