"""Tables as downloads that lie in the page itself: no server, no script, the bytes of the CSV file."""

from __future__ import annotations

import base64
import gzip
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import polars as pl

__all__ = ["Download", "csv_download", "csv_text"]

#: A CSV above this size [bytes] is packed, so that a page with many tables stays small.
MOST_PLAIN: Final = 24_000
#: Above this size, packed, a table is left to `hindcast characterize`.
MOST_PACKED: Final = 250_000
#: Text that a spreadsheet would run as a formula: users choose names, and someone else opens the file.
FORMULA: Final = r"^(?:[=@\t\r]|[+-][^0-9.]|[+-].*[^0-9.eE+-])"
#: Written as they are: they mean nothing in an address or in HTML.
PLAIN_SIGNS: Final = ",.:;-_+/()*!@$~"


@dataclass(frozen=True)
class Download:
    """A file in the page: its name, its address (``data:``; empty = too large for a page), and its size in words."""

    file_name: str
    address: str
    size: str


def csv_text(table: pl.DataFrame) -> str:
    """CSV for people and their spreadsheets: a text that would be a formula there has an apostrophe before it.

    Parameters
    ----------
    table : DataFrame
        What is written, every row and column; programs read the Parquet file, where names are as they are.

    References
    ----------
    .. [1] OWASP, "CSV Injection", https://owasp.org/www-community/attacks/CSV_Injection

    Examples
    --------
    >>> csv_text(pl.DataFrame({"user": ["=cmd()", "-2", "-a", "ann"]})).split()
    ['user', "'=cmd()", '-2', "'-a", 'ann']
    """
    text = pl.col(pl.String)
    safe = pl.when(text.str.contains(FORMULA)).then(pl.lit("'") + text).otherwise(text)
    return table.with_columns(safe.name.keep()).write_csv()


def csv_download(name: str, table: pl.DataFrame) -> Download:
    """Make the download of a table as CSV, packed (.csv.gz) where it is large.

    Parameters
    ----------
    name : str
        Name of the file without ending.
    table : DataFrame
        What is written, every row and column.

    Examples
    --------
    >>> csv_download("t", pl.DataFrame({"a": [1]}))
    Download(file_name='t.csv', address='data:text/csv;charset=utf-8,a%0A1%0A', size='4 B')
    """
    text = csv_text(table)
    data = text.encode()
    if len(data) <= MOST_PLAIN:
        address = "data:text/csv;charset=utf-8," + quote(text, safe=PLAIN_SIGNS)
        return Download(f"{name}.csv", address, _size(len(data)))
    packed = gzip.compress(data, compresslevel=9, mtime=0)
    if len(packed) > MOST_PACKED:
        return Download(f"{name}.csv", "", _size(len(data)))
    address = "data:application/gzip;base64," + base64.b64encode(packed).decode()
    return Download(f"{name}.csv.gz", address, _size(len(packed)))


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1000:,.0f} kB" if num_bytes >= 1000 else f"{num_bytes} B"
