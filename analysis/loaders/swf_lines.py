"""Lines of a file in the Standard Workload Format: the header and the rows of 18 fields."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from analysis.errors import UsageError
from analysis.loaders.delimited import Delimited
from analysis.loaders.files import open_bytes, readable
from analysis.loaders.rows import LINE, reject_table
from analysis.loaders.zones import check_zone

__all__ = ["FIELDS", "NUMBERS", "Header", "is_number", "read_lines"]

FIELDS: Final = (
    "job_number",
    "submit_time",
    "wait_time",
    "run_time",
    "allocated_processors",
    "cpu_time",
    "used_memory",
    "requested_processors",
    "requested_time",
    "requested_memory",
    "status",
    "user_id",
    "group_id",
    "executable",
    "queue",
    "partition",
    "preceding_job",
    "think_time",
)
#: The fields that are numbers; the others are names that look like numbers.
NUMBERS: Final = (*FIELDS[1:11], "think_time")
NUMBER: Final = re.compile(r"[-+]?(\d{1,300}\.?\d*|\.\d+)([eE][-+]?\d{1,3})?")


def is_number(text: str | None) -> bool:
    """Whether a text is one decimal number."""
    return text is not None and NUMBER.fullmatch(text.strip()) is not None


@dataclass(frozen=True)
class Header:
    """The lines ``; Key: value`` of a log.

    Attributes
    ----------
    entries : tuple of (str, str)
        In the order of the file; a key may come several times.
    """

    entries: tuple[tuple[str, str], ...]

    def all(self, key: str) -> list[str]:
        """Every value of a key that says something."""
        return [value for found, value in self.entries if found == key and value]

    def first(self, key: str) -> str | None:
        """The first value of a key; null if there is none."""
        return next(iter(self.all(key)), None)

    def count(self, key: str) -> int | None:
        """A value that is a whole number above 0; null if it is none."""
        value = self.first(key) or ""
        return int(value) or None if re.fullmatch(r"\d{1,9}", value) else None

    def names(self, key: str) -> dict[str, str]:
        """Names of numbered things: ``Queue: 1 gpu`` is {"1": "gpu"}; a number without a name is left out."""
        split = [value.split(maxsplit=1) for value in self.all(key)]
        return {parts[0]: parts[1] for parts in split if len(parts) > 1}

    def zone(self) -> str | None:
        """The zone that the header names, if it is one."""
        stated = self.first("TimeZoneString")
        try:
            return check_zone(stated) if stated else None
        except UsageError:
            return None


def read_lines(path: Path) -> tuple[Delimited, Header]:
    """Read a log's rows as text, and its header.

    Parameters
    ----------
    path : Path
        Plain or compressed. Bytes that are not UTF-8 are replaced.

    Returns
    -------
    raw : Delimited
        Its columns are `FIELDS`; ``rows_in`` counts lines that are neither header nor blank. Lines that have not 18
        fields are set aside.
    header : Header

    Raises
    ------
    BadFileError
        If the file cannot be read.
    """
    with readable(path), open_bytes(path) as stream:
        text = stream.read().removeprefix(b"\xef\xbb\xbf")
    rows: list[bytes] = []
    lines: list[int] = []
    odd: list[tuple[int, str, str]] = []
    entries: list[tuple[str, str]] = []
    for number, line in enumerate(text.split(b"\n"), start=1):
        fields = line.split()
        if not fields:
            continue
        if fields[0][:1] == b";":
            key, _, value = b" ".join(fields).decode("utf-8", errors="replace").lstrip("; ").partition(":")
            entries.append((key.strip(), value.strip()))
        elif len(fields) == len(FIELDS):
            rows.append(b" ".join(fields))
            lines.append(number)
        else:
            reason = "too_few_fields" if len(fields) < len(FIELDS) else "too_many_fields"
            odd.append((number, reason, line.decode("utf-8", errors="replace").removesuffix("\r")))
    raw = Delimited(
        path=path,
        columns=FIELDS,
        frame=_frame(b"\n".join(rows), lines).lazy(),
        rows_in=len(rows) + len(odd),
        rejects=reject_table(path.name, odd),
        header_line=0,
    )
    return raw, Header(tuple(entries))


def _frame(rows: bytes, lines: Sequence[int]) -> pl.DataFrame:
    """Numbers as float64 if all of them are numbers, which is three times as fast; else as text."""
    schema: dict[str, pl.DataType] = {name: pl.Float64() if name in NUMBERS else pl.String() for name in FIELDS}
    if not lines:
        return pl.DataFrame(schema={LINE: pl.Int64(), **schema})
    try:
        table = _parse(rows, schema)
    except pl.exceptions.ComputeError:
        table = _parse(rows, dict.fromkeys(FIELDS, pl.String()))
    return table.insert_column(0, pl.Series(LINE, lines, dtype=pl.Int64))


def _parse(rows: bytes, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    return pl.read_csv(
        io.BytesIO(rows), has_header=False, schema=schema, separator=" ", quote_char=None, encoding="utf8-lossy"
    )
