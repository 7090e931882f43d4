"""Files that hold one JSON array of records."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis.errors import BadFileError
from analysis.loaders.files import open_bytes, readable
from analysis.loaders.rows import reject_table

__all__ = ["Records", "make_records", "read_json", "read_records"]

#: More of a record that is set aside helps nobody.
MAX_TEXT: Final = 10_000
EXPECTED: Final = "one JSON array of records"


@dataclass(frozen=True)
class Records:
    """A JSON array that was read.

    Attributes
    ----------
    path : Path
        The file.
    records : sequence of (int, dict)
        Its objects with their number, 1 = first element.
    rows_in : int
        Elements of the array.
    rejects : DataFrame
        Elements that are no objects (``not_a_record``), as ``schema.REJECTS``.
    notes : tuple of str
        Sentences for the load report.
    """

    path: Path
    records: Sequence[tuple[int, dict[str, Any]]]
    rows_in: int
    rejects: pl.DataFrame
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file's name without its folders."""
        return self.path.name

    @property
    def size(self) -> int:
        """Size on disk [bytes]."""
        return self.path.stat().st_size

    def raw_text(self, lines: Collection[int]) -> dict[int, str]:
        """JSON of some records by their number."""
        return {number: _as_text(record) for number, record in self.records if number in lines}


def _as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:MAX_TEXT]


def read_records(path: Path, *, key: str) -> Records:
    """Read a file that is one JSON array of objects.

    Parameters
    ----------
    path : Path
        Plain or compressed, UTF-8 (undecodable bytes are replaced and noted).
    key : str
        A key that at least one of the objects must have (if there are any).

    Returns
    -------
    Records
        An empty array has no rows and is no error.

    Raises
    ------
    BadFileError
        Of kind ``truncated`` (not whole), ``not_json``, ``wrong_columns``, or what `check_file` says.
    """
    values, notes = read_json(path, expected=EXPECTED)
    if not isinstance(values, list):
        found, fix = f"JSON that is one {type(values).__name__}", "Is it the right file?"
        raise BadFileError(path, kind="wrong_columns", found=found, expected=EXPECTED, fix=fix)
    read = make_records(path, values, notes=notes)
    if read.records and not any(key in record for _, record in read.records):
        found = f"records with the keys {', '.join(sorted(read.records[0][1])[:12])}"
        fix = "Is it the right file?"
        raise BadFileError(path, kind="wrong_columns", found=found, expected=f"records with {key!r}", fix=fix)
    return read


def make_records(path: Path, values: Sequence[Any], *, notes: tuple[str, ...] = ()) -> Records:
    """Number the elements of an array; those that are no objects are set aside (``not_a_record``)."""
    records = [(number, value) for number, value in enumerate(values, start=1) if isinstance(value, dict)]
    odd = [(n, "not_a_record", _as_text(v)) for n, v in enumerate(values, start=1) if not isinstance(v, dict)]
    return Records(path, records, len(values), reject_table(path.name, odd), notes)


def read_json(path: Path, *, expected: str) -> tuple[Any, tuple[str, ...]]:
    """Read a file of one JSON value.

    Parameters
    ----------
    path : Path
        Plain or compressed, UTF-8 (undecodable bytes are replaced and noted).
    expected : str
        What it should hold, for the messages.

    Returns
    -------
    value : Any
    notes : tuple of str
        Sentences for the load report.

    Raises
    ------
    BadFileError
        Of kind ``truncated`` (not whole), ``not_json``, or what `check_file` says.
    """
    with readable(path), open_bytes(path) as stream:
        raw = stream.read()
    text = raw.decode("utf-8-sig", errors="replace")
    notes = (f"{path.name}: bytes that are not UTF-8 were replaced.",) if "\ufffd" in text else ()
    return _parse(path, text, expected), notes


def _parse(path: Path, text: str, expected: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        is_cut = error.pos >= len(text.rstrip()) - 1
        raise BadFileError(
            path,
            kind="truncated" if is_cut else "not_json",
            found=f"JSON that {'breaks off' if is_cut else 'is not well formed'} at line {error.lineno} ({error.msg})",
            expected=expected,
            fix="Download or export it again.",
        ) from error
    except (RecursionError, ValueError) as error:
        # A number of thousands of digits is a ValueError of its own.
        found = "JSON that is nested too deeply" if isinstance(error, RecursionError) else f"JSON with {error}"
        fix = "Is it the right file?"
        raise BadFileError(path, kind="not_json", found=found, expected=expected, fix=fix) from error
