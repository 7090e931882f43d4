"""The one road for files of delimited text (CSV, TSV, '|'), plain or compressed.

A look over the bytes (`analysis.loaders.survey`) decides: a regular file is parsed by polars as it is, lazily and block
by block (`analysis.loaders.block_scan`); a file with anything odd is cleaned line by line first, exactly. Either way no
line is lost: it is in the frame or in ``rejects`` with its physical line number, reason and text.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Final

import polars as pl

from analysis.errors import BadFileError
from analysis.loaders.block_scan import BlockScan, open_source, skip_lines
from analysis.loaders.cleaning import Cleaned, clean
from analysis.loaders.files import BOMS_NOT_UTF8, open_bytes, payload, peek, readable
from analysis.loaders.rows import LINE, UNDECODABLE, reject_table
from analysis.loaders.survey import survey

__all__ = ["Delimited", "Layout", "has_columns", "read_delimited", "read_layout", "require_columns"]

SURPLUS: Final = "_surplus"
#: Names that the loaders use themselves: a raw column of such a name gets ``_2``.
RESERVED: Final = (LINE, UNDECODABLE, SURPLUS, "_problem", "_file")
SEPARATORS: Final = (",", "\t", ";", "|")


@dataclass(frozen=True)
class Delimited:
    """A delimited file that was opened.

    Attributes
    ----------
    path : Path
        The file.
    columns : tuple of str
        Column names, stripped; a second column of a name gets ``_2``.
    frame : LazyFrame
        All columns as text (an empty field is null), ``_line`` (int64): the physical line, 1 = first line of the
        file, and, if the file has bytes that are not UTF-8, ``_undecodable`` (bool).
    rows_in : int
        Physical lines below the header, blank ones included, a record over several lines counted once.
    rejects : DataFrame
        As ``schema.REJECTS``: lines that are blank or have the wrong number of fields.
    notes : tuple of str
        What else was noticed, in sentences.
    header_line : int
        Physical line of the header; 0 if there is none.
    """

    path: Path
    columns: tuple[str, ...]
    frame: pl.LazyFrame
    rows_in: int
    rejects: pl.DataFrame
    notes: tuple[str, ...] = ()
    header_line: int = 1
    spans: dict[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The file's name without its folders, as it stands in rejects and reports."""
        return self.path.name

    @property
    def size(self) -> int:
        """Size on disk [bytes]."""
        return self.path.stat().st_size

    def raw_text(self, lines: Collection[int]) -> dict[int, str]:
        """Text of some physical lines, for the rows that a later step sets aside."""
        wanted = {line + i: line for line in lines for i in range(self.spans.get(line, 1))}
        texts: dict[int, str] = {}
        if not wanted:
            return texts
        with readable(self.path), open_bytes(self.path) as stream:
            for number, raw in enumerate(stream, start=1):
                if number in wanted:
                    text = raw.decode("utf-8", errors="replace").removesuffix("\n").removesuffix("\r")
                    first = wanted[number]
                    texts[first] = f"{texts[first]}\n{text}" if first in texts else text
        return texts


@dataclass(frozen=True)
class Layout:
    """Where the header is, what it names, and how many fields a line has."""

    separator: str
    columns: tuple[str, ...]
    header_line: int
    has_trailing: bool

    @property
    def fields(self) -> tuple[str, ...]:
        """Column names, and one for the empty field after a trailing separator."""
        return (*self.columns, SURPLUS) if self.has_trailing else self.columns


def has_columns(path: Path, required: Collection[str]) -> bool:
    """Whether a file's header names all of some columns, under any usual separator; for ``sniff``. Never raises."""
    header = next((line for line in peek(path).splitlines() if line.strip()), "")
    return any(set(required) <= set(_split(header, separator)) for separator in SEPARATORS)


def read_delimited(
    path: Path,
    *,
    required: Collection[str] = (),
    separator: str | None = None,
    names: Sequence[str] | None = None,
    free_text: str | None = None,
) -> Delimited:
    """Open a file of delimited text, all columns as text.

    Parameters
    ----------
    path : Path
        Plain or compressed (gzip, zstd, bzip2, xz), UTF-8 with or without byte order mark, any line ends.
    required : collection of str
        Columns that must be there, in any order.
    separator : str, optional
        One character; if null the one of ``, TAB ; |`` that makes most sense of the header.
    names : sequence of str, optional
        The columns of a file without header.
    free_text : str, optional
        A column that may hold the separator unquoted: a line with too many fields gives the surplus to it.

    Returns
    -------
    Delimited
        A file of a header only has no rows and is no error.

    Raises
    ------
    BadFileError
        Of kind ``missing``, ``folder``, ``empty``, ``lfs_pointer``, ``html``, ``archive``, ``truncated``,
        ``encoding`` or ``wrong_columns``.
    """
    source = payload(path)
    with readable(path):
        with open_source(source) as stream:
            layout = read_layout(path, stream, separator=separator, names=names, required=required)
        require_columns(path, layout.columns, required)
        with open_source(source) as stream:
            skip_lines(stream, layout.header_line)
            look = survey(stream, separator=layout.separator.encode(), seps_per_line=len(layout.fields) - 1)
        if look.is_regular:
            return _regular(path, source, layout, num_lines=look.num_lines, blank=look.blank_lines)
        with open_source(source) as stream:
            skip_lines(stream, layout.header_line)
            return _irregular(
                path,
                layout,
                clean(
                    stream,
                    separator=layout.separator,
                    columns=layout.columns,
                    free_text=free_text,
                    first_line=layout.header_line + 1,
                ),
            )


def _split(line: str, separator: str) -> list[str]:
    try:
        fields = next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        fields = line.split(separator)
    return [name.strip() for name in fields]


def read_layout(
    path: Path,
    stream: IO[bytes],
    *,
    separator: str | None = None,
    names: Sequence[str] | None = None,
    required: Collection[str] = (),
) -> Layout:
    """Find out from a file's first lines how it is laid out; arguments as for `read_delimited`."""
    start = stream.read(4)
    if start.startswith(BOMS_NOT_UTF8) or b"\x00" in start:
        found = "text in UTF-16 or UTF-32, or no text at all"
        raise BadFileError(path, kind="encoding", found=found, expected="UTF-8", fix="Convert it, e.g. with 'iconv'.")
    stream.seek(0)
    if names is not None:
        first = stream.readline().decode("utf-8-sig", errors="replace")
        sep = separator or ","
        return Layout(sep, tuple(names), 0, len(_split(first.rstrip("\r\n"), sep)) == len(names) + 1)
    header, line = "", 0
    while not header.strip() and (raw := stream.readline()):
        header, line = raw.decode("utf-8-sig", errors="replace").rstrip("\r\n"), line + 1
    if not header.strip():
        found = "a file with blank lines only"
        raise BadFileError(path, kind="empty", found=found, expected="a header", fix="Download or export it again.")
    if "\0" in header:
        found = f"a NUL byte in the header (line {line})"
        raise BadFileError(path, kind="not_text", found=found, expected="text", fix="Download or export it again.")
    sep = separator or _best_separator(header, required)
    columns = _split(header, sep)
    second = stream.readline().decode("utf-8", errors="replace").rstrip("\r\n")
    fields = _split(second, sep)
    # A row index that pandas wrote has no name; it is a column all the same, even as the last one.
    while columns and not columns[-1] and not (len(fields) == len(columns) and fields[-1]):
        columns.pop()
    has_trailing = len(fields) == len(columns) + 1 and not fields[-1]
    return Layout(sep, _unique(columns), line, has_trailing)


def _best_separator(header: str, required: Collection[str]) -> str:
    def merit(separator: str) -> tuple[int, int]:
        fields = _split(header, separator)
        return len(set(required) & set(fields)), len(fields)

    # max keeps the first of equals: the comma.
    return max(SEPARATORS, key=merit)


def _unique(columns: Sequence[str]) -> tuple[str, ...]:
    seen = dict.fromkeys(RESERVED, 1)
    unique = []
    for number, column in enumerate(columns, start=1):
        name = column or f"column_{number}"
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return tuple(unique)


def require_columns(path: Path, columns: Sequence[str], required: Collection[str]) -> None:
    """Refuse a file that lacks columns; the message lists those found and those that come close.

    Raises
    ------
    BadFileError
        Of kind ``wrong_columns``.
    """
    missing = [name for name in required if name not in columns]
    if not missing:
        return
    guesses = {name: get_close_matches(name, columns, n=1) for name in missing}
    close = ", ".join(f"{found[0]!r} for {name!r}" for name, found in guesses.items() if found)
    hint = f"Close: {close}. " if close else ""
    raise BadFileError(
        path,
        kind="wrong_columns",
        found=f"the columns {', '.join(columns)} (missing: {', '.join(missing)})",
        expected=f"at least {', '.join(required)}",
        fix=f"{hint}Is it the right file? A log of another layout loads through 'table' with a column map.",
    )


def _regular(path: Path, source: Path | bytes, layout: Layout, *, num_lines: int, blank: list[int]) -> Delimited:
    lines = [layout.header_line + 1 + number for number in blank]
    scan = BlockScan(source, layout.fields, layout.separator, layout.header_line, lines)
    frame = scan.frame() if len(blank) < num_lines else _nothing(layout.columns)
    return Delimited(
        path=path,
        columns=layout.columns,
        frame=frame.drop(SURPLUS) if layout.has_trailing and len(blank) < num_lines else frame,
        rows_in=num_lines,
        rejects=reject_table(path.name, [(line, "blank_line", "") for line in lines]),
        header_line=layout.header_line,
    )


def _nothing(columns: Sequence[str]) -> pl.LazyFrame:
    return pl.LazyFrame(schema={LINE: pl.Int64(), **dict.fromkeys(columns, pl.String())})


def _irregular(path: Path, layout: Layout, cleaned: Cleaned) -> Delimited:
    frame = _nothing(layout.columns)
    if cleaned.lines:
        lines = pl.Series(LINE, cleaned.lines, dtype=pl.Int64)
        table = pl.read_csv(
            cleaned.text,
            has_header=False,
            schema=dict.fromkeys(layout.columns, pl.String()),
            separator=layout.separator,
        ).insert_column(0, lines)
        if cleaned.undecodable:
            table = table.with_columns(lines.is_in(list(cleaned.undecodable)).alias(UNDECODABLE))
        frame = table.lazy()
    notes = []
    if cleaned.undecodable:
        notes.append(f"{path.name}: {len(cleaned.undecodable)} rows have bytes that are not UTF-8; they were replaced.")
    if cleaned.num_repaired:
        notes.append(
            f"{path.name}: in {cleaned.num_repaired} rows a name holds the separator; it was put together again."
        )
    return Delimited(
        path=path,
        columns=layout.columns,
        frame=frame,
        rows_in=len(cleaned.lines) + len(cleaned.rejects),
        rejects=reject_table(path.name, cleaned.rejects),
        notes=tuple(notes),
        header_line=layout.header_line,
        spans=cleaned.spans,
    )
