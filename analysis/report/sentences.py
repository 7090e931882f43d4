"""What sentences of the findings are made with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from analysis.report.numbers import count_text

__all__ = ["Tables", "capital", "plural", "row_of", "table_of", "words"]

#: Result tables of one log by name.
Tables = Mapping[str, pl.DataFrame]


def table_of(tables: Tables, name: str) -> pl.DataFrame:
    """A result table; one without rows and columns where it was not made."""
    return tables.get(name, pl.DataFrame())


def row_of(table: pl.DataFrame, **where: str) -> dict[str, Any] | None:
    """First row in which these columns read so; null if there is none."""
    for name, value in where.items():
        if name not in table.columns:
            return None
        table = table.filter(pl.col(name).cast(pl.String) == value)
    return table.row(0, named=True) if table.height else None


def words(name: str) -> str:
    """Name of a thing as words."""
    return name.replace("_", " ")


def plural(count: int, word: str, many: str | None = None) -> str:
    """Write a count with its word, of which ``many`` is the plural where that is not the word with an s.

    Examples
    --------
    >>> plural(1, "job"), plural(2000, "job"), plural(2, "job of one size", "jobs of one size")
    ('1 job', '2,000 jobs', '2 jobs of one size')
    """
    return f"{count_text(count)} {word if count == 1 else many or f'{word}s'}"


def capital(text: str) -> str:
    """Begin a sentence with a capital."""
    return f"{text[:1].upper()}{text[1:]}"
