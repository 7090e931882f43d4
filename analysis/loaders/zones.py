"""Naive local times to UTC instants, the clock changes included: deterministic, and counted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import polars as pl

from analysis import schema
from analysis.errors import UsageError

__all__ = ["ZoneNotes", "check_zone", "is_plausible", "to_utc"]

#: Longer than any clock change, shorter than the time between two.
GAP: Final = timedelta(hours=3)
DAY: Final = timedelta(days=1)


#: No log reaches beyond: what does is a number or text that was misread (0001-01-01, 9999-12-31).
FIRST: Final = datetime(1900, 1, 1, tzinfo=UTC)
BEYOND: Final = datetime(2200, 1, 1, tzinfo=UTC)


@dataclass
class ZoneNotes:
    """How many times could not be converted without a choice.

    Attributes
    ----------
    num_ambiguous : int
        Times that the clock showed twice (autumn); the earlier instant is taken.
    num_nonexistent : int
        Times that the clock never showed (spring); they are read with the offset before the change.
    """

    num_ambiguous: int = 0
    num_nonexistent: int = 0

    def sentences(self, zone: str) -> list[str]:
        """Say it for the load report; nothing if there was no choice to make."""
        said = []
        if self.num_ambiguous:
            said.append(f"Times that occur twice in {zone} (clock change): {self.num_ambiguous}; the earlier is taken.")
        if self.num_nonexistent:
            count = self.num_nonexistent
            said.append(f"Times that do not exist in {zone} (clock change): {count}; the old offset is used.")
        return said


def check_zone(name: str) -> str:
    """Check the name of a time zone.

    Raises
    ------
    UsageError
        If no such zone is known.
    """
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        # A folder name of the zone database ("Europe") raises OSError; an absolute path ValueError.
        msg = (
            f"timezone: found {name!r}, which is no time zone; expected an IANA name such as 'Europe/Oslo', "
            "'America/Los_Angeles', 'UTC', or 'Etc/GMT+8' for the fixed offset -08:00."
        )
        raise UsageError(msg) from error
    return name


def is_plausible(name: str, dtype: pl.DataType) -> pl.Expr:
    """Whether a time lies between 1900 and 2200; null where it is null.

    Parameters
    ----------
    name : str
        Column of datetimes, dates or numbers (seconds).
    dtype : DataType
        Of the column.
    """
    if dtype.is_numeric():
        return pl.col(name).is_between(FIRST.timestamp(), BEYOND.timestamp())
    zone = getattr(dtype, "time_zone", None)
    first, beyond = (limit if zone else limit.replace(tzinfo=None) for limit in (FIRST, BEYOND))
    return pl.col(name).is_between(pl.lit(first), pl.lit(beyond), closed="left")


def to_utc(times: pl.Series, *, zone: str, notes: ZoneNotes | None = None) -> pl.Series:
    """Instants of any form as ``datetime[us, UTC]``.

    Parameters
    ----------
    times : Series
        Naive datetimes (read in ``zone``), aware datetimes, dates, or numbers (seconds since 1970 or since the start
        of a relative clock; null = missing).
    zone : str
        IANA name.
    notes : ZoneNotes, optional
        Its counts grow by the choices made.

    Returns
    -------
    Series of datetime[us, UTC], same length and order

    Examples
    --------
    >>> from datetime import datetime
    >>> autumn = pl.Series([datetime(2025, 10, 26, 1, 30), datetime(2025, 10, 26, 3, 30)])
    >>> to_utc(autumn, zone="Europe/Oslo").diff()[1]
    datetime.timedelta(seconds=10800)
    """
    if times.dtype.is_numeric():
        return (times.cast(pl.Float64) * 1e6).round().cast(pl.Int64, strict=False).cast(schema.TIME)
    times = times.cast(pl.Datetime("us", getattr(times.dtype, "time_zone", None)))
    if isinstance(times.dtype, pl.Datetime) and times.dtype.time_zone is not None:
        return times.dt.convert_time_zone("UTC")
    in_reach = times.to_frame("t").select(pl.col("t").filter(is_plausible("t", times.dtype))).to_series()
    first, last = in_reach.min(), in_reach.max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return times.dt.replace_time_zone("UTC")
    offset = _steady_offset(zone, first.date().isoformat(), last.date().isoformat())
    if offset is not None:
        return (times - offset).dt.replace_time_zone("UTC")
    return _with_changes(times, zone, notes or ZoneNotes())


@lru_cache(maxsize=64)
def _steady_offset(zone: str, first: str, last: str) -> timedelta | None:
    """The offset from UTC if it is one and the same from two days before to two days after, else null."""
    info = ZoneInfo(zone)
    day = max(datetime.fromisoformat(first).replace(tzinfo=UTC), datetime(1900, 1, 3, tzinfo=UTC)) - 2 * DAY
    end = min(datetime.fromisoformat(last).replace(tzinfo=UTC), datetime(2199, 12, 29, tzinfo=UTC)) + 2 * DAY
    offset = day.astimezone(info).utcoffset()
    while day <= end:
        day += DAY
        if day.astimezone(info).utcoffset() != offset:
            return None
    return offset


def _with_changes(times: pl.Series, zone: str, notes: ZoneNotes) -> pl.Series:
    def convert(naive: pl.Series, ambiguous: str) -> pl.Series:
        aware = naive.dt.replace_time_zone(zone, ambiguous=ambiguous, non_existent="null")  # type: ignore[arg-type]
        return aware.dt.convert_time_zone("UTC")

    utc = convert(times, "earliest")
    notes.num_ambiguous += int((utc != convert(times, "latest")).sum())
    is_gap = utc.is_null() & times.is_not_null()
    notes.num_nonexistent += int(is_gap.sum())
    return utc.zip_with(~is_gap, convert(times - GAP, "earliest") + GAP)
