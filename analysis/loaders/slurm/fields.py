"""Fields of an export as expressions, whether the export has them or not."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis.loaders.slurm.blocks import LINE
from analysis.loaders.slurm.grammar import over_distinct
from analysis.loaders.slurm.layout import IDS

__all__ = ["count_of", "field_of", "job_key", "null", "once", "said", "select"]

#: What sacct writes where it has nothing to say.
NOTHING: Final = ("", "None", "N/A", "(null)")


def field_of(frame: pl.DataFrame, *names: str) -> pl.Expr:
    """The first of some fields that the export has and that is not blank."""
    have = [pl.col(name) for name in names if name in frame.columns]
    return pl.coalesce(*have) if have else null(pl.String)


def select(frame: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    """Columns of a frame's own height, also where all of them are constants."""
    return frame.select(LINE, **columns).drop(LINE)


def null(dtype: type[pl.DataType] | pl.DataType) -> pl.Expr:
    """Nothing, of a type."""
    return pl.lit(None, dtype=dtype)


def said(text: pl.Expr) -> pl.Expr:
    """A text without blanks around it; null where it is one of the words for nothing."""
    bare = text.str.strip_chars()
    return pl.when(~bare.is_in(list(NOTHING))).then(bare)


def once(frame: pl.DataFrame, name: str, **columns: pl.Expr) -> pl.DataFrame:
    """Read a field of few different values, called "x" in the expressions, once per value."""
    return over_distinct(select(frame, x=field_of(frame, name))["x"], **columns)


def count_of(frame: pl.DataFrame, *names: str) -> pl.Expr:
    """The first of some numeric fields that is above 0."""
    values = [pl.col(name).cast(pl.Float64, strict=False) for name in names if name in frame.columns]
    return pl.coalesce(*(pl.when(value > 0).then(value) for value in values)) if values else null(pl.Float64)


def job_key(frame: pl.DataFrame) -> pl.Expr:
    """The id that a line shows: JobID (``77_2``, ``90+1``) where the export has it, else JobIDRaw."""
    return field_of(frame, *IDS)
