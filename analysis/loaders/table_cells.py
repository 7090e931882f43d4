"""Cells of the ``table`` loader: from any dtype to the canonical one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from analysis import schema
from analysis.errors import UsageError
from analysis.loaders.cells import MISSING, Cell, integer, number, text

__all__ = ["cell_for", "is_relative"]

NAIVE_FORMATS: Final = (
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%d",
    "%Y/%m/%d %H:%M:%S",
)
AWARE_FORMATS: Final = ("%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M:%S%.f%#z")
#: Seconds since 1970 are above this from 1973 on; no trace is as long.
SMALLEST_EPOCH_S: Final = 1e8
MILLISECONDS_FROM: Final = 1e11
MICROSECONDS_FROM: Final = 1e14
NO_TIME: Final = (*MISSING, "0", "Unknown", "unknown")


def is_relative(samples: Sequence[pl.Series]) -> bool:
    """Whether all times are numbers that are too small for seconds since 1970."""
    largest = [_numbers(sample).abs().max() for sample in samples if sample.drop_nulls().len()]
    if not largest or any(value is None for value in largest):
        return False
    return max(float(value) for value in largest if isinstance(value, int | float)) < SMALLEST_EPOCH_S


def _numbers(sample: pl.Series) -> pl.Series:
    """The numbers of a column; empty if most of it is anything else."""
    if sample.dtype.is_numeric():
        return sample.cast(pl.Float64).drop_nulls()
    if sample.dtype != pl.String():
        return pl.Series([], dtype=pl.Float64)
    bare = sample.str.strip_chars().drop_nulls()
    bare = bare.filter(~bare.is_in(list(MISSING)))
    as_number = bare.cast(pl.Float64, strict=False)
    # One bad cell does not make numbers text: its row is set aside.
    return as_number.drop_nulls() if 2 * as_number.null_count() < len(bare) else pl.Series([], dtype=pl.Float64)


def cell_for(
    raw: str,
    canonical: str,
    *,
    dtype: pl.DataType,
    factor: float,
    sample: pl.Series | None,
    time_format: str | None,
    relative: bool,
) -> Cell:
    """How one raw column becomes a canonical one.

    Parameters
    ----------
    raw, canonical : str
        The names.
    dtype : DataType
        Of the raw column.
    factor : float
        What a number is multiplied by.
    sample : Series or None
        The first raw values, for times.
    time_format : str or None
        Of times as text; null: ISO 8601.
    relative : bool
        Whether times are seconds from the trace's start.

    Raises
    ------
    UsageError
        If times are written in no known form.
    """
    target = schema.JOBS[canonical]
    if target == schema.TIME and sample is not None:
        return _time_cell(raw, dtype, sample=sample, time_format=time_format, relative=relative)
    if isinstance(target, pl.List):
        return _list_cell(raw, dtype)
    if target == pl.Boolean():
        return _flag_cell(raw, dtype)
    if target.is_numeric():
        if dtype != pl.String():
            value = pl.col(raw).cast(pl.Float64, strict=False)
            return Cell(raw, pl.when(value.is_finite()).then(value * factor))
        return integer(raw) if target.is_integer() and factor == 1 else number(raw, factor=factor)
    return text(raw) if dtype == pl.String() else Cell(raw, pl.col(raw).cast(pl.String))


def _list_cell(raw: str, dtype: pl.DataType) -> Cell:
    if isinstance(dtype, pl.List):
        return Cell(raw, pl.col(raw).cast(pl.List(pl.String())))
    split = pl.col(raw).cast(pl.String).str.replace_all(r"[|;]", ",").str.split(",")
    bare = split.list.eval(pl.element().str.strip_chars())
    return Cell(raw, bare.list.eval(pl.element().filter(pl.element() != "")).list.unique(maintain_order=True))


def _flag_cell(raw: str, dtype: pl.DataType) -> Cell:
    if dtype == pl.Boolean():
        return Cell(raw, pl.col(raw))
    bare = pl.col(raw).cast(pl.String).str.strip_chars().str.to_lowercase()
    words = {"true": True, "1": True, "yes": True, "1.0": True, "false": False, "0": False, "no": False, "0.0": False}
    value = bare.replace_strict(words, default=None, return_dtype=pl.Boolean)
    return Cell(raw, value, value.is_null() & bare.is_not_null() & ~bare.is_in([word.lower() for word in MISSING]))


def _time_cell(raw: str, dtype: pl.DataType, *, sample: pl.Series, time_format: str | None, relative: bool) -> Cell:
    if isinstance(dtype, pl.Datetime):
        # pandas and Slurm exports write "did not happen" as the epoch.
        return Cell(raw, pl.when(pl.col(raw).dt.timestamp("us") > 0).then(pl.col(raw)))
    if dtype == pl.Date():
        return Cell(raw, pl.col(raw).cast(pl.Datetime("us")))
    if dtype.is_numeric() or (time_format is None and _numbers(sample).len()):
        return _number_time(raw, dtype, sample=sample, relative=relative)
    bare = pl.col(raw).cast(pl.String).str.strip_chars()
    naive, aware = _formats(raw, sample, time_format)
    parsed = [bare.str.to_datetime(form, time_unit="us", strict=False) for form in (*naive, *aware)]
    if naive and aware:
        msg = (
            f"column {raw!r}: some times carry an offset from UTC and some do not; "
            "write them in one form, or give the form that counts as time_format."
        )
        raise UsageError(msg)
    value = pl.coalesce(parsed) if parsed else pl.lit(None, dtype=pl.Datetime("us"))
    unreadable = value.is_null() & bare.is_not_null() & ~bare.is_in(list(NO_TIME))
    return Cell(raw, value, unreadable.fill_null(value=False))


def _number_time(raw: str, dtype: pl.DataType, *, sample: pl.Series, relative: bool) -> Cell:
    largest = _numbers(sample).abs().max()
    size = float(largest) if isinstance(largest, int | float) else 0.0
    factor = 1.0
    if not relative:
        factor = 1e-6 if size >= MICROSECONDS_FROM else 1e-3 if size >= MILLISECONDS_FROM else 1.0
    cell = number(raw, factor=factor, missing=NO_TIME)
    if dtype != pl.String():
        value = pl.col(raw).cast(pl.Float64, strict=False) * factor
        cell = Cell(raw, pl.when(value.is_finite()).then(value))
    if relative:
        return cell
    return Cell(raw, pl.when(cell.value > 0).then(cell.value), cell.is_unreadable)


def _formats(raw: str, sample: pl.Series, time_format: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Naive and aware formats in which some of the first values are written."""
    if time_format is not None:
        return ((), (time_format,)) if "z" in time_format.replace("%%", "") else ((time_format,), ())
    bare = sample.cast(pl.String).str.strip_chars().drop_nulls()
    bare = bare.filter(~bare.is_in(list(NO_TIME)))
    if not bare.len():
        return NAIVE_FORMATS[:1], ()

    def fits(form: str) -> bool:
        return bool(bare.str.to_datetime(form, time_unit="us", strict=False).is_not_null().any())

    naive = tuple(form for form in NAIVE_FORMATS if fits(form))
    aware = tuple(form for form in AWARE_FORMATS if fits(form))
    if not naive and not aware:
        msg = (
            f"column {raw!r}: found times like {bare[0]!r}; expected ISO 8601 ('2024-05-01 13:00:00', with or without "
            "an offset) or numbers. Give the form as time_format, e.g. '%d.%m.%Y %H:%M'."
        )
        raise UsageError(msg)
    return naive, aware
