"""The edge: tables of other libraries in, polars inside."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import polars as pl
import polars.selectors as cs

from analysis.errors import UsageError

__all__ = ["is_frame", "to_polars"]


def is_frame(value: object) -> bool:
    """Whether something is a table that `to_polars` takes."""
    return isinstance(nw.from_native(value, pass_through=True), nw.DataFrame | nw.LazyFrame)


def to_polars(frame: Any) -> pl.DataFrame:
    """Turn a pandas, polars or Arrow table, eager or lazy, into a polars DataFrame.

    Parameters
    ----------
    frame : DataFrame, LazyFrame, pyarrow Table, …
        Anything that narwhals knows. A pandas index is dropped; pandas' NaN means missing and becomes null.

    Returns
    -------
    polars.DataFrame
        The same rows in the same order.

    Raises
    ------
    UsageError
        If it is no table.

    Examples
    --------
    >>> import pandas as pd
    >>> to_polars(pd.DataFrame({"num_gpus": [1.0, None]}))["num_gpus"].to_list()
    [1.0, None]
    """
    if isinstance(frame, pl.DataFrame):
        return frame
    known = nw.from_native(frame, pass_through=True)
    if isinstance(known, nw.LazyFrame):
        return known.collect(backend="polars").to_native()  # type: ignore[no-any-return]
    if not isinstance(known, nw.DataFrame):
        msg = f"found a {type(frame).__name__}; expected a pandas, polars or Arrow table."
        raise UsageError(msg)
    table = known.to_polars()
    return table.with_columns(cs.float().fill_nan(None)) if known.implementation.is_pandas_like() else table
