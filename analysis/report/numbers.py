"""How the report writes numbers, and how it turns a result table into rows of text that can be sorted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

import polars as pl

from analysis.metrics import S_PER_H
from analysis.plots.distributions import bucket_label
from analysis.plots.style import duration_text
from analysis.report.words import SHARES, WEEKDAYS, WORDED, WORDS, heading, meaning

__all__ = ["Cell", "Column", "TableView", "count_text", "number_text", "percent_text", "table_view", "transposed_view"]

#: What stands where nothing is known.
UNKNOWN: Final = "-"


@dataclass(frozen=True)
class Column:
    """Heading of a column, what it means (empty = the heading says it), and whether it is set flush right."""

    text: str
    meaning: str = ""
    is_number: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell: its text; what it is sorted by where that is not the text (empty = not known); what its words mean."""

    text: str
    key: str | None = None
    meaning: str = ""


@dataclass(frozen=True)
class TableView:
    """A table as text.

    Attributes
    ----------
    head : list of Column
        Headings.
    rows : list of list of Cell
        Cells.
    num_rows : int
        Rows of the whole table; those beyond the shown ones are in its CSV only.
    is_sortable : bool
        Whether its rows can be compared.
    num_own : int
        How many of the first rows are marked as the reader's own.
    """

    head: list[Column]
    rows: list[list[Cell]]
    num_rows: int
    is_sortable: bool = True
    num_own: int = 0


def count_text(value: int) -> str:
    """Write a whole number with commas."""
    return f"{value:,}"


def number_text(value: float) -> str:
    """Write a number with three digits or, above 1,000, without a fraction.

    Examples
    --------
    >>> [number_text(x) for x in (0.0123456, 12.345, 98765.4)]
    ['0.0123', '12.3', '98,765']
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def percent_text(share: float) -> str:
    """Write a share in percent.

    Examples
    --------
    >>> [percent_text(x) for x in (0.0, 0.0004, 0.0456, 0.5, 0.99999, 1.0, -0.02, -0.0004)]
    ['0 %', '<0.1 %', '4.6 %', '50 %', '>99.9 %', '100 %', '-2 %', '0 %']
    """
    percent = share * 100
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    text = f"{percent:.1f}" if abs(percent) < 99.95 else f"{percent:.0f}"
    return f"{'0' if text == '-0.0' else text.removesuffix('.0')} %"


def _float_text(name: str, value: float) -> str:
    if name.endswith("_share") or name in SHARES:
        return percent_text(value)
    if name.endswith("_gpu_s"):
        return number_text(value / S_PER_H)
    return duration_text(value) if name.endswith("_s") else number_text(value)


def _text(name: str, value: object) -> str:
    if isinstance(value, float):
        return _float_text(name, value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, int):
        return WEEKDAYS[value - 1] if name == "weekday" else count_text(value)
    return bucket_label(str(value)) if name in {"bucket", "gpu_bucket"} else str(value)


def _cell(name: str, value: object, *, order: dict[str, int]) -> Cell:
    """Text of a value and its key: numbers by their value, categories by their order, null after everything else."""
    if value is None:
        return Cell(UNKNOWN, "")
    text = _text(name, value)
    if order or name in WORDED:
        text = WORDS.get(text, text).replace("_", " ")
    if isinstance(value, bool | datetime | date | timedelta):
        return Cell(text)
    if isinstance(value, int | float):
        return Cell(text, None if text == f"{value:g}" else f"{value:.9g}")
    return Cell(text, str(order[str(value)]) if str(value) in order else None)


def _cells(name: str, column: pl.Series) -> list[Cell]:
    order = _order(column)
    return [_cell(name, value, order=order) for value in column]


def _order(column: pl.Series) -> dict[str, int]:
    """Place of each category of an ordered column."""
    dtype = column.dtype
    return {text: place for place, text in enumerate(dtype.categories)} if isinstance(dtype, pl.Enum) else {}


def table_view(
    table: pl.DataFrame, *, columns: tuple[str, ...] | None = None, max_rows: int | None = None
) -> TableView:
    """Turn a result table into text: units into words, shares into percent, null into "-".

    Parameters
    ----------
    table : DataFrame
        Any result table; the suffix of a column's name says its unit.
    columns : tuple of str, optional
        Which columns, in this order; those that the table lacks are left out.
    max_rows : int, optional
        How many rows are shown; by default all.
    """
    names = [name for name in columns or tuple(table.columns) if name in table.columns]
    head = [
        Column(heading(name), meaning(name), name != "weekday" and table[name].dtype.is_numeric()) for name in names
    ]
    orders = [_order(table[name]) for name in names]
    shown = table.select(names).head(table.height if max_rows is None else max_rows)
    rows = [
        [_cell(name, value, order=order) for name, value, order in zip(names, row, orders, strict=True)]
        for row in shown.iter_rows()
    ]
    return TableView(head, rows, table.height)


def transposed_view(table: pl.DataFrame, *, columns: Iterable[str] | None = None, key: str = "trace") -> TableView:
    """Turn a table of a row per log into one of a column per log, a line per value.

    Parameters
    ----------
    table : DataFrame
        Result table with a row per log.
    columns : iterable of str, optional
        Which values; a value that no log knows is left out.
    key : str, default "trace"
        Column with the logs' names; they are headings where there is more than one row.
    """
    names = [name for name in columns or table.columns if name in table.columns and name != key]
    named = table.height > 1 and key in table.columns
    heads = [str(name) for name in table[key]] if named else ["value"] * table.height
    rows = [
        [Cell(heading(name), meaning=meaning(name)), *_cells(name, table[name])]
        for name in names
        if table[name].null_count() < table.height
    ]
    return TableView(
        [Column(""), *(Column(text, "", is_number=True) for text in heads)], rows, len(rows), is_sortable=False
    )
