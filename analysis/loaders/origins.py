"""Whether plain numbers of seconds count from the trace's start or from 1970; a file must not mix both."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from analysis.errors import BadFileError
from analysis.trace import Clock

__all__ = ["clock_of"]

#: Seconds since 1970 are above this from 1989 on; no trace is as long (one of the SWF logs is 1.1e8 s).
SMALLEST_EPOCH_S: Final = 6e8


def clock_of(seconds: pl.Series, *, path: Path) -> Clock:
    """Tell what submission times count from.

    Parameters
    ----------
    seconds : Series of float
        Submission times [s]; null where missing.
    path : Path
        For the message.

    Returns
    -------
    {"relative", "absolute"}
        "absolute": seconds since 1970-01-01T00:00:00Z.

    Raises
    ------
    BadFileError
        Of kind ``mixed_clocks``, if some count from here and some from there: the gap between them would be decades.

    Examples
    --------
    >>> clock_of(pl.Series([50.0, 10.0]), path=Path("a.trace"))
    'relative'
    """
    known = seconds.drop_nulls()
    large = known.filter(known >= SMALLEST_EPOCH_S)
    if not large.len():
        return "relative"
    if large.len() < known.len():
        raise BadFileError(
            path,
            kind="mixed_clocks",
            found=f"{large.len()} times that count from 1970 (such as {large[0]:.15g}) and {known.len() - large.len()} "
            f"small ones (such as {known.filter(known < SMALLEST_EPOCH_S)[0]:.15g})",
            expected="all of one kind",
            fix="Were two files put together? Give all times from the same origin.",
        )
    return "absolute"
