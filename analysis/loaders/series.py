"""The long usage_series table, written to a Parquet file while it is made: it never lies in memory as a whole."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from analysis.table_file import TableFile

__all__ = ["SeriesWriter", "encode"]

WORDS: Final = pa.dictionary(pa.int32(), pa.string())
ARROW: Final = pa.schema(
    [("entity", WORDS), ("time", pa.timestamp("us", tz="UTC")), ("metric", WORDS), ("value", pa.float64())]
)
Codes = NDArray[np.integer[Any]]


def encode(names: pl.Series) -> tuple[list[str], Codes]:
    """The distinct names of a column, sorted, and for each row the place of its own among them."""
    distinct = names.unique().sort()
    return distinct.to_list(), names.cast(pl.Enum(distinct)).to_physical().to_numpy()


class SeriesWriter:
    """Writes usage_series into a temporary Parquet file; use it in a ``with`` block.

    The file goes when the block ends with an error, and otherwise when nobody holds the `TableFile` any more (a Trace
    that was written has its own copy). It lies where Python puts temporary files (``TMPDIR`` says another place).

    Attributes
    ----------
    num_rows : int
        Rows written so far.
    first, last : datetime or None
        Earliest and latest time so far.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="hindcast-series-"))
        self._path = self._folder / "usage_series.parquet"
        self._writer: Any = pq.ParquetWriter(
            self._path,
            ARROW,
            compression="zstd",
            use_dictionary=["entity", "metric", "value"],
            column_encoding={"time": "DELTA_BINARY_PACKED"},
            store_schema=False,
        )
        self.num_rows = 0
        self.first: Any = None
        self.last: Any = None

    def __enter__(self) -> Self:
        """Start."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file; remove it if something went wrong."""
        self._writer.close()
        if kind is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, *, entities: Sequence[str], codes: Codes, time: pl.Series, metric: str, value: pl.Series) -> None:
        """Write rows of one metric.

        Parameters
        ----------
        entities : sequence of str
            Names of nodes, GPUs, containers.
        codes : array of int
            Of each row the place of its entity among them.
        time : Series of datetime[us, UTC], same length
            No nulls.
        metric : str
            What was measured, with its unit.
        value : Series of float64, same length
            Null where the measurement is missing.
        """
        if not len(time):
            return
        columns = [
            pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(entities, pa.string())),
            time.to_arrow(),
            pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(time), dtype=np.int32)), pa.array([metric])),
            value.cast(pl.Float64).to_arrow(),
        ]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=ARROW))
        self.num_rows += len(time)
        span = [time.min(), time.max()]
        self.first = span[0] if self.first is None else min(self.first, span[0])
        self.last = span[1] if self.last is None else max(self.last, span[1])

    @property
    def window(self) -> tuple[str | None, str | None]:
        """First and last time, ISO 8601; null if there is no row."""
        return (None, None) if self.first is None else (self.first.isoformat(), self.last.isoformat())

    def table(self) -> TableFile:
        """The written table; call it once, after the ``with`` block."""
        return TableFile(self._path, is_temporary=True)
