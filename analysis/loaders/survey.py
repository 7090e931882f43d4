"""One fast look over a delimited file: does every line have the same number of fields, and is it all UTF-8.

A file that passes can be handed to polars as it is, and the row number tells the physical line; any other goes the
slow, exact road in `analysis.loaders.delimited`. The look works on blocks of bytes with numpy (about a second for
400 MB).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Survey", "blocks", "survey"]

BLOCK: Final = 4 * 1024 * 1024
NEWLINE: Final = 10
RETURN: Final = 13
QUOTE: Final = 34

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]


@dataclass
class Survey:
    """What the look found.

    Attributes
    ----------
    is_regular : bool
        Every line that is not blank has the expected fields, quotes are well formed and within a line, all is UTF-8.
        If false, the other attributes say nothing.
    num_lines : int
        Physical lines seen, blank ones included.
    blank_lines : list of int
        Which of them are blank, the first line being 0.
    """

    is_regular: bool = True
    num_lines: int = 0
    blank_lines: list[int] = field(default_factory=list)


def survey(stream: IO[bytes], *, separator: bytes, seps_per_line: int) -> Survey:
    """Look over a stream from its current place to its end.

    Parameters
    ----------
    stream : binary file
        Placed at the first line to look at.
    separator : bytes
        One byte.
    seps_per_line : int
        Separators outside quotes that each line must have.

    Returns
    -------
    Survey
        It stops at the first irregular block.
    """
    found = Survey()
    for block in blocks(stream):
        if not _look(block, found, separator=separator[0], per_line=seps_per_line):
            return Survey(is_regular=False)
    return found


def blocks(stream: IO[bytes], size: int = BLOCK) -> Iterator[bytes]:
    """Blocks of about ``size`` bytes that end with a line; the last line gets the newline that it may lack."""
    rest = b""
    while piece := stream.read(size):
        cut = piece.rfind(b"\n") + 1
        if not cut:
            rest += piece
            continue
        yield rest + piece[:cut]
        rest = piece[cut:]
    if rest:
        yield rest + b"\n"


def _look(block: bytes, found: Survey, *, separator: int, per_line: int) -> bool:
    data = np.frombuffer(block, dtype=np.uint8)
    if (data >= 0x80).any() and not _is_utf8(block):
        return False
    ends = np.flatnonzero(data == NEWLINE)
    seps = np.flatnonzero(data == separator)
    quotes = np.flatnonzero(data == QUOTE)
    if quotes.size:
        if not _quotes_are_proper(data, quotes, separator):
            return False
        # An odd number of quotes before a place means that it lies inside a quoted field.
        if (np.searchsorted(quotes, ends) % 2).any():
            return False
        seps = seps[np.searchsorted(quotes, seps) % 2 == 0]
    lengths = np.diff(ends, prepend=-1) - 1
    with_return = data[np.maximum(ends - 1, 0)] == RETURN
    is_blank = (lengths == 0) | ((lengths == 1) & with_return)
    found.blank_lines += (np.flatnonzero(is_blank) + found.num_lines).tolist()
    found.num_lines += len(ends)
    return _is_even(seps, ends, is_blank, per_line)


def _is_utf8(block: bytes) -> bool:
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _quotes_are_proper(data: Bytes, quotes: Positions, separator: int) -> bool:
    """Whether fields are quoted as a whole, inner quotes doubled: all readers agree on such lines."""
    if quotes.size % 2:
        return False
    opening, closing = quotes[::2], quotes[1::2]
    before = np.where(opening > 0, data[np.maximum(opening - 1, 0)], NEWLINE)
    after = data[np.minimum(closing + 1, data.size - 1)]
    opens_well = np.isin(before, [separator, NEWLINE, QUOTE])
    closes_well = np.isin(after, [separator, NEWLINE, RETURN, QUOTE])
    return bool(opens_well.all() and closes_well.all())


def _is_even(seps: Positions, ends: Positions, is_blank: NDArray[np.bool_], per_line: int) -> bool:
    """Whether each line that is not blank has exactly its separators: none may belong to a neighbour."""
    last = ends[~is_blank]
    if seps.size != last.size * per_line:
        return False
    if not per_line or not last.size:
        return True
    first = np.concatenate([[-1], last[:-1]])
    return bool((seps[per_line - 1 :: per_line] < last).all() and (seps[::per_line] > first).all())
