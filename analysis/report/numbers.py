"""How the report writes numbers, and how it turns a result table into rows of text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from analysis.plots.distributions import bucket_label
from analysis.plots.style import duration_text

__all__ = ["TableView", "count_text", "number_text", "percent_text", "table_view"]

#: What stands where nothing is known.
UNKNOWN: Final = "-"
#: Columns whose name does not say how they are read.
HEADINGS: Final = {
    "num_jobs": "jobs",
    "job_share": "of jobs",
    "gpu_share": "of GPUs asked for",
    "gpu_time_share": "of GPU time",
    "cumulative_gpu_time_share": "of GPU time, summed up",
    "completed_share": "completed",
    "waited_share": "waited over 1 s",
    "num_gpus": "GPUs",
    "gpu_hours": "GPU-hours",
    "vc": "virtual cluster",
    "bucket": "GPUs per job",
    "weight": "weighted by",
    "p50_s": "median",
    "log_mae": "mean |log error|",
    "within_2x": "within a factor of 2",
    "mean_jct_s": "mean completion time",
    "base_mean_jct_s": "base: mean completion time",
    "mean_queueing_delay_s": "mean wait",
    "base_mean_queueing_delay_s": "base: mean wait",
    "captured_share": "share of the oracle's gain",
    "relative_gain": "gain",
    "num_right_censored": "still running at the end",
    "num_never_started": "never started",
    "offered_load": "load",
}
#: Values that are read as words.
WORDS: Final = {"gpu_time": "GPU time", "gpu": "GPU jobs", "cpu": "CPU jobs", "knows_nothing": "knows nothing"}
#: Shares that do not end in ``_share``.
SHARES: Final = {"relative_gain", "gpu_allocation", "peak_allocation", "within_2x"}


@dataclass(frozen=True)
class TableView:
    """A table as text.

    Attributes
    ----------
    head : list of (text, is_number)
        Headings, and whether the column is set flush right.
    rows : list of list of str
        Cells.
    """

    head: list[tuple[str, bool]]
    rows: list[list[str]]


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


def _cell(name: str, value: object) -> str:
    if isinstance(value, float):
        return _float_text(name, value)
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, int):
        return count_text(value)
    return bucket_label(str(value)) if name == "bucket" else WORDS.get(str(value), str(value))


def _float_text(name: str, value: float) -> str:
    if name.endswith("_share") or name in SHARES:
        return percent_text(value)
    return duration_text(value) if name.endswith("_s") else number_text(value)


def _heading(name: str) -> str:
    if name in HEADINGS:
        return HEADINGS[name]
    plain = name.removesuffix("_s").removesuffix("_share").removeprefix("num_").replace("_", " ")
    return (
        plain.replace("gpus", "GPUs")
        .replace("gpu ", "GPU ")
        .replace("jct", "completion time")
        .replace("vcs", "VCs")
        .replace("cpu", "CPU")
        .replace("mae", "mean |error|")
    )


def table_view(table: pl.DataFrame, *, columns: tuple[str, ...] | None = None) -> TableView:
    """Turn a result table into text: units into words, shares into percent, null into "-".

    Parameters
    ----------
    table : DataFrame
        Any result table; the suffix of a column's name says its unit.
    columns : tuple of str, optional
        Which columns, in this order; those that the table lacks are left out.
    """
    names = [name for name in columns or tuple(table.columns) if name in table.columns]
    head = [(_heading(name), table[name].dtype.is_numeric()) for name in names]
    rows = [[_cell(name, value) for name, value in zip(names, row, strict=True)] for row in table.select(names).rows()]
    return TableView(head, rows)


def transposed_view(table: pl.DataFrame, *, columns: tuple[str, ...] | None = None) -> TableView:
    """Turn a table of one row into two columns, a line per value; values that are not known are left out."""
    names = [name for name in columns or tuple(table.columns) if name in table.columns]
    row = table.row(0, named=True)
    return TableView(
        [("", False), ("value", True)], [[_heading(n), _cell(n, row[n])] for n in names if row[n] is not None]
    )
