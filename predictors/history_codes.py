"""Values of keys as whole numbers, the same for the log and for the rows that ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pandas as pd
import polars as pl
from numpy.typing import NDArray

from predictors.history_kernel import combine

__all__ = ["Codes", "size_of"]

Ints = NDArray[np.int64]
#: Numbers need not be dense as long as they take no more room than this many per row.
SPARSE: Final = 4
LARGEST: Final = 2**62


class Codes:
    """Numbers that are equal where the values of a key are; -1 where one of them is null.

    Parameters
    ----------
    past : DataFrame
        With the columns of keys.
    rows : callable of str to Series
        A column of the rows; asked for once, when it is needed.
    num_rows : int
    is_log : bool
        Whether the rows are those of the log: then they are numbered once.
    """

    def __init__(self, past: pl.DataFrame, rows: Callable[[str], pl.Series], *, num_rows: int, is_log: bool) -> None:
        self.past, self.rows, self.is_log = past, rows, is_log
        self.num_rows = 0 if is_log else num_rows
        self._columns: dict[str, Ints] = {}

    def of_key(self, key: tuple[str, ...], nulls: tuple[str, ...] = ()) -> tuple[Ints, Ints]:
        """Numbers of the log's jobs and of the rows; a null in one of the columns ``nulls`` is a value like others."""
        whole = np.zeros(self.past.height + self.num_rows, dtype=np.int64)
        width = 1
        for name in key:
            more = self._column(name) + 1 if name in nulls else self._column(name)
            step = size_of(more)
            if width * step > LARGEST:
                whole = _dense(whole)
                width = size_of(whole)
            combine(whole, more, step)
            width *= step
        whole = whole if width <= SPARSE * len(whole) + 1024 else _dense(whole)
        return (whole, whole) if self.is_log else (whole[: self.past.height], whole[self.past.height :])

    def _column(self, name: str) -> Ints:
        if name not in self._columns:
            values = self.past[name] if self.is_log else pl.concat([self.past[name], self.rows(name)])
            self._columns[name] = _value_codes(values)
        return self._columns[name]


def size_of(*codes: Ints) -> int:
    """How many numbers from 0 on there may be."""
    return 1 + max(int(each.max(initial=-1)) for each in codes)


def _dense(codes: Ints) -> Ints:
    dense = pd.factorize(codes)[0].astype(np.int64)
    return np.where(codes < 0, -1, dense)


def _value_codes(values: pl.Series) -> Ints:
    if values.dtype == pl.String:
        codes = values.cast(pl.Categorical(pl.Categories.random())).to_physical()
        return codes.cast(pl.Int64).fill_null(-1).to_numpy()
    return pd.factorize(values.fill_null(np.nan).to_numpy())[0].astype(np.int64)
