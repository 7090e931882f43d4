"""A table that lies in a Parquet file because it is too large for memory."""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path

import polars as pl

from analysis import schema
from analysis.errors import BadFileError

__all__ = ["TableFile"]


class TableFile:
    """A table that lies in a Parquet file because it is too large for memory.

    Parameters
    ----------
    path : Path
        The file, or a folder of Parquet files in the order of their names, as Dask and Spark write them; the columns
        are those of the table's schema.
    is_temporary : bool, default False
        Whether the folder that holds the file goes as soon as nobody holds this object.

    Attributes
    ----------
    path : Path
        The file, or the folder of files.
    """

    def __init__(self, path: Path, *, is_temporary: bool = False) -> None:
        self.path = path
        if is_temporary:
            weakref.finalize(self, shutil.rmtree, path.parent, ignore_errors=True)

    def scan(self) -> pl.LazyFrame:
        """The table as a lazy frame; only what a query needs is read."""
        return pl.scan_parquet(self.path)

    def copy(self, path: Path) -> None:
        """Copy the file, or the folder of files."""
        if self.path.is_dir():
            shutil.copytree(self.path, path)
        else:
            shutil.copyfile(self.path, path)

    def check(self, name: str) -> None:
        """Check the file's footer and columns without reading its rows.

        Parameters
        ----------
        name : str
            Name of the table whose columns are expected.

        Raises
        ------
        BadFileError
            Of kind ``damaged`` or ``wrong_columns``.
        """
        path = self.path
        try:
            # Of a folder the first file's columns; a later one that differs is named when it is read.
            found = self.scan().collect_schema()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise BadFileError(
                path,
                kind="damaged",
                found=f"a file that is not readable as Parquet ({str(error).splitlines()[0][:120]})",
                expected=f"the {name} table of a Trace",
                fix="Load the raw files again with 'hindcast load'.",
            ) from error
        expected = schema.TABLES[name]
        wrong = [c for c in expected if c not in found] + [c for c in found if c not in expected]
        if wrong:
            raise BadFileError(
                path,
                kind="wrong_columns",
                found=f"columns missing or unknown: {', '.join(wrong)}",
                expected=f"the columns {', '.join(expected)}",
                fix="Load the raw files again with 'hindcast load'.",
            )
        typed = {c: dtype for c, dtype in expected.items() if c != "extra" and found[c] != dtype}
        if typed:
            raise BadFileError(
                path,
                kind="wrong_columns",
                found=", ".join(f"{column} is {found[column]}" for column in typed),
                expected=", ".join(f"{column} is {dtype}" for column, dtype in typed.items()),
                fix="Load the raw files again with 'hindcast load'.",
            )
