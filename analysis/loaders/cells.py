"""The rename table of a loader: canonical column <- raw column, with what the text in it means.

A loader writes ``COLUMNS = {"job_id": text("id"), "submit_time": time("submitted", "%Y-%m-%d %H:%M:%S"), ...}`` and
calls `read_cells`. Text that is there but cannot be read is never turned into null silently: the row carries the
problem in ``_problem`` and is set aside, with its line and text, when the trace is finished.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.rows import LINE, UNDECODABLE

__all__ = ["PROBLEM", "Cell", "integer", "map_status", "number", "read_cells", "text", "time", "words"]

PROBLEM: Final = "_problem"
REST: Final = "extra:"
#: What sources write where they have no value.
MISSING: Final = ("", "None", "none", "NULL", "null", "NA", "N/A", "nan", "NaN", "NaT", "-")


@dataclass(frozen=True)
class Cell:
    """How one raw column becomes one canonical column.

    Attributes
    ----------
    raw : str
        Name in the file.
    value : Expr
        The typed value; null if missing or unreadable.
    is_unreadable : Expr or None
        True where there is text that is no such value; null if any text will do.
    nulls_tell : bool
        Whether the value is null wherever the text is unreadable; then columns without such nulls need no search.
    """

    raw: str
    value: pl.Expr
    is_unreadable: pl.Expr | None = None
    nulls_tell: bool = False


def _stripped(raw: str, missing: Collection[str]) -> pl.Expr:
    bare = pl.col(raw).str.strip_chars()
    return pl.when(~bare.is_in(list(missing))).then(bare)


def text(raw: str, *, missing: Collection[str] = ("",)) -> Cell:
    """Text without the blanks around it; null where it is one of ``missing``.

    Parameters
    ----------
    raw : str
        Name in the file.
    missing : collection of str, default only the empty text
        What the source writes for "no value".
    """
    return Cell(raw, _stripped(raw, missing))


def number(raw: str, *, factor: float = 1.0, missing: Collection[str] = MISSING, zero_is_missing: bool = False) -> Cell:
    """A number as float64, times ``factor`` (for units); null where missing or not finite.

    Parameters
    ----------
    raw : str
        Name in the file.
    factor : float, default 1
        What the raw number is multiplied by, e.g. 60 for minutes to seconds.
    missing : collection of str
        What the source writes for "no value".
    zero_is_missing : bool, default False
        Whether the source writes 0 for "did not happen".
    """
    bare = pl.col(raw).str.strip_chars()
    value = bare.cast(pl.Float64, strict=False)
    finite = pl.when(value.is_finite() & (value != 0 if zero_is_missing else pl.lit(value=True))).then(value)
    is_unreadable = (value.is_null() & bare.is_not_null() & ~bare.is_in(list(missing))).fill_null(value=False)
    # Times 1 would be exact too, but the plan is shorter without it.
    return Cell(raw, finite * factor if factor != 1 else finite, is_unreadable, nulls_tell=True)


def integer(raw: str, *, missing: Collection[str] = MISSING) -> Cell:
    """A whole number as int64; text like "3.0" is one, "3.5" is unreadable."""
    as_float = number(raw, missing=missing)
    is_broken = (as_float.value != as_float.value.floor()).fill_null(value=False)
    value = pl.when(~is_broken).then(as_float.value).cast(pl.Int64, strict=False)
    unreadable = as_float.is_unreadable
    return Cell(raw, value, is_broken if unreadable is None else unreadable | is_broken, nulls_tell=True)


def time(raw: str, *formats: str, missing: Collection[str] = (*MISSING, "0", "Unknown")) -> Cell:
    """An instant written in one of some formats; naive unless the format has ``%z``.

    Parameters
    ----------
    raw : str
        Name in the file.
    *formats : str
        As chrono's strftime; the first that fits counts. All with an offset (``%z``) or none.
    missing : collection of str
        What the source writes for "no value" or "did not happen".

    Returns
    -------
    Cell
        Of type datetime[us]; naive ones get their zone when the trace is finished.
    """
    bare = pl.col(raw).str.strip_chars()
    value = pl.coalesce(bare.str.to_datetime(form, time_unit="us", strict=False, cache=False) for form in formats)
    # 0001-01-01 and the like stand for something else than an instant.
    value = pl.when(value.dt.year().is_between(1900, 2199)).then(value)
    is_unreadable = (value.is_null() & bare.is_not_null() & ~bare.is_in(list(missing))).fill_null(value=False)
    return Cell(raw, value, is_unreadable, nulls_tell=True)


def words(raw: str, *, separator: str = "|") -> Cell:
    """A list of words without blanks, empties and repetitions, in order; null where there are none."""
    bare = pl.col(raw).str.split(separator).list.eval(pl.element().str.strip_chars())
    kept = bare.list.eval(pl.element().filter(pl.element() != "")).list.unique(maintain_order=True)
    return Cell(raw, pl.when(kept.list.len() > 0).then(kept))


def map_status(statuses: Mapping[str, str], *, raw: str = "status_raw") -> pl.Expr:
    """The status that a table gives to the source's words; a word outside it becomes ``unknown``, null stays null.

    Parameters
    ----------
    statuses : mapping of str to str
        The source's word -> one of ``schema.STATUSES``.
    raw : str, default "status_raw"
        The column with the source's words.

    Examples
    --------
    >>> words = pl.DataFrame({"status_raw": ["Pass", "Odd", None]})
    >>> words.select(map_status({"Pass": "completed"})).to_series().to_list()
    ['completed', 'unknown', None]
    """
    word = pl.col(raw)
    mapped = word.replace_strict(dict(statuses), default="unknown", return_dtype=pl.String)
    return pl.when(word.is_not_null()).then(mapped).cast(schema.STATUS).alias("status")


def read_cells(
    frame: pl.LazyFrame,
    columns: Mapping[str, Cell],
    *,
    extra: Mapping[str, Cell] | None = None,
    left_behind: Iterable[str] = (),
) -> pl.LazyFrame:
    """Apply a rename table to raw text.

    Parameters
    ----------
    frame : LazyFrame
        Raw columns as text, with ``_line``.
    columns : mapping of canonical name to Cell
        The rename table. A cell whose raw column the file does not have is left out.
    extra : mapping of raw name to Cell, optional
        How columns without a place are read; those not named here are kept as text.
    left_behind : iterable of str
        Raw columns to drop: what the table derives anyway.

    Returns
    -------
    LazyFrame
        The canonical columns that the file has, ``extra``, ``_line``, ``_problem`` (text; null if the row is fine).
    """
    have = frame.collect_schema().names()
    known = {name: cell for name, cell in columns.items() if cell.raw in have}
    taken = {cell.raw for cell in columns.values()} | set(left_behind) | {LINE, UNDECODABLE}
    rest = {raw: (extra or {}).get(raw) or text(raw) for raw in have if raw not in taken}
    for raw, cell in (extra or {}).items():
        if raw in have:
            rest[raw] = cell
    plan = _Plan([name for name in (LINE, UNDECODABLE) if name in have], known, rest)
    schema_out = plan.convert(frame.head(0).collect()).schema
    return frame.map_batches(plan.convert, schema=schema_out, streamable=True)


@dataclass(frozen=True)
class _Plan:
    """What `read_cells` does to each block of rows."""

    hidden: list[str]
    known: Mapping[str, Cell]
    rest: Mapping[str, Cell]

    def convert(self, block: pl.DataFrame) -> pl.DataFrame:
        values = block.select(
            *self.hidden,
            *(cell.value.alias(name) for name, cell in self.known.items()),
            *(cell.value.alias(f"{REST}{raw}") for raw, cell in self.rest.items()),
        )
        problem = self._problem(block, values)
        names = [f"{REST}{raw}" for raw in self.rest]
        if names:
            fields = [pl.col(name).alias(name.removeprefix(REST)) for name in names]
            values = values.drop(names).hstack(values.select(pl.struct(fields).alias("extra")))
        return values.with_columns(problem.alias(PROBLEM))

    def _problem(self, block: pl.DataFrame, values: pl.DataFrame) -> pl.Expr | pl.Series:
        """Name the first unreadable cell of a row."""
        cells = {**self.known, **{f"{REST}{raw}": cell for raw, cell in self.rest.items()}}
        checks = [
            pl.when(cell.is_unreadable).then(pl.lit(f"unreadable_{cell.raw}"))
            for name, cell in cells.items()
            if cell.is_unreadable is not None and not (cell.nulls_tell and _all_read(values[name], block[cell.raw]))
        ]
        if not checks:
            return pl.lit(None, dtype=pl.String)
        return block.select(pl.coalesce(checks)).to_series()


def _all_read(value: pl.Series, raw: pl.Series) -> bool:
    """Whether each text gave a value: then no search for unreadable ones is needed, which is most of the work."""
    return not (value.is_null() & raw.is_not_null()).any()
