"""Tables as downloads that lie in the page itself: no server, no script, the bytes of the CSV file."""

from __future__ import annotations

import base64
import gzip
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import polars as pl

__all__ = ["Download", "csv_download"]

#: A CSV above this size [bytes] is packed, so that a page with many tables stays small.
MOST_PLAIN: Final = 24_000
#: Above this size, packed, a table is left to `hindcast characterize`.
MOST_PACKED: Final = 250_000
#: Written as they are: they mean nothing in an address or in HTML.
PLAIN_SIGNS: Final = ",.:;-_+/()*!@$~"


@dataclass(frozen=True)
class Download:
    """A file in the page: its name, its address (``data:``; empty = too large for a page), and its size in words."""

    file_name: str
    address: str
    size: str


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
    text = table.write_csv()
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
