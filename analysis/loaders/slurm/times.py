"""Times of an export: ISO without offset in the site's zone, epoch seconds, with offset, or not at all."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl

from analysis import schema
from analysis.errors import BadFileError
from analysis.loaders.zones import BEYOND, FIRST, ZoneNotes, to_utc

__all__ = ["TimeReader", "settle_autumn"]

MISSING: Final = ("", "Unknown", "None", "NONE", "N/A", "0", "-")
NAIVE_FORMATS: Final = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S%.f")
AWARE_FORMATS: Final = ("%Y-%m-%dT%H:%M:%S%#z", "%Y-%m-%d %H:%M:%S%#z", "%Y-%m-%dT%H:%M:%S%.f%#z")
RELATIVE: Final = re.compile(
    r"^(Ystday|Yesterday|Tomorr|Tomorrow|Today|Mon|Tue|Wed|Thu|Fri|Sat|Sun|\d{1,2} [A-Z][a-z]{2})\b|^\d\d:\d\d(:\d\d)?$"
)
#: Slurm's zero in whatever zone: a time before this did not happen.
AFTER_ZERO: Final = datetime(1970, 1, 2)  # noqa: DTZ001 - compared with naive times
#: A clock change in autumn makes an instant ambiguous by so much; ``<name>_shift`` holds it.
SHIFT: Final = "_shift"


@dataclass
class TimeReader:
    """Read time columns of one export, and remember what was chosen.

    Attributes
    ----------
    path : Path
        For messages.
    zone : str
        IANA name of the site's zone.
    time_format : str or None
        The strftime pattern that was in ``SLURM_TIME_FORMAT``, if it is another than the usual ones.
    notes : ZoneNotes
        How many times were ambiguous or do not exist.
    num_hashed : int
        Times that sacct printed as ``#####``: too long for its column, so not known.
    num_naive, num_instants : int
        Times without and with a zone.
    """

    path: Path
    zone: str
    time_format: str | None = None
    notes: ZoneNotes = field(default_factory=ZoneNotes)
    num_hashed: int = 0
    num_naive: int = 0
    num_instants: int = 0

    def read(self, text: pl.Series) -> tuple[pl.Series, pl.Series | None, pl.Series]:
        """Instants of a column.

        Parameters
        ----------
        text : Series of str

        Returns
        -------
        tuple of Series
            The instants (datetime[us, UTC]; of two possible ones the earlier); by how much the later one is later, or
            null if no time of the column is ambiguous; and whether there is text that is no time (bool).

        Raises
        ------
        BadFileError
            Of kind ``relative_times``, if the export was made with ``SLURM_TIME_FORMAT=relative``.
        """
        naive = self._usual(text)
        rest = (naive.is_null() & text.is_not_null()).arg_true()
        instants = pl.Series([None], dtype=schema.TIME).new_from_index(0, len(text))
        is_bad = pl.Series([False]).new_from_index(0, len(text))
        if len(rest):
            # Few rows, unless the export has another form throughout.
            other_naive, other_instants, other_bad = self._unusual(text.gather(rest))
            naive, instants = naive.scatter(rest, other_naive), instants.scatter(rest, other_instants)
            is_bad = is_bad.scatter(rest, other_bad)
        is_zero = (naive < AFTER_ZERO).fill_null(value=False)
        naive = naive.set(is_zero, None) if is_zero.any() else naive
        self.num_naive += len(naive) - naive.null_count()
        self.num_instants += len(instants) - instants.null_count()
        known, shift = self._in_zone(naive)
        whole = instants.zip_with(instants.is_not_null(), known) if len(rest) else known
        # A time of another century is a typing error, and no table could hold it.
        return whole, shift, is_bad | ((whole < FIRST) | (whole >= BEYOND)).fill_null(value=False)

    def _usual(self, text: pl.Series) -> pl.Series:
        form = NAIVE_FORMATS[0] if self.time_format is None else self.time_format
        if "%z" in form:
            return pl.Series([None], dtype=pl.Datetime("us")).new_from_index(0, len(text))
        return text.str.to_datetime(form, time_unit="us", strict=False)

    def _unusual(self, text: pl.Series) -> tuple[pl.Series, pl.Series, pl.Series]:
        """Naive times, instants, and whether it is no time, of texts that have not the usual form."""
        bare = text.str.strip_chars()
        is_missing = bare.is_in(list(MISSING))
        seconds = bare.cast(pl.Int64, strict=False).set(is_missing, None)
        # A number without end must stay one that can be told from a time.
        instants = to_utc(seconds.clip(int(FIRST.timestamp()) - 1, int(BEYOND.timestamp())), zone="UTC")
        open_ = ~is_missing & seconds.is_null()
        own = (self.time_format,) if self.time_format else ()
        has_zone = "%z" in "".join(own)
        naive = _parsed(bare, NAIVE_FORMATS if has_zone or not own else own, open_)
        open_ &= naive.is_null()
        if open_.any():
            aware = _parsed(bare, own if has_zone else AWARE_FORMATS, open_)
            instants = instants.zip_with(~open_, aware.dt.replace_time_zone("UTC"))
            hashed = bare.str.contains("^#+$") & open_
            self.num_hashed += int(hashed.sum())
            open_ &= instants.is_null() & ~hashed
            self._refuse_relative(bare.filter(open_))
        return naive, instants, open_

    def _refuse_relative(self, rest: pl.Series) -> None:
        sample = next((value for value in rest.head(20).to_list() if RELATIVE.match(value)), None)
        if sample is not None:
            raise BadFileError(
                self.path,
                kind="relative_times",
                found=f"the time {sample!r}, which depends on the day of the export",
                expected="times such as 2026-01-31T12:00:00, or seconds since 1970",
                fix="Export again with SLURM_TIME_FORMAT=%s (or with it unset).",
            )

    def _in_zone(self, naive: pl.Series) -> tuple[pl.Series, pl.Series | None]:
        before = self.notes.num_ambiguous
        early = to_utc(naive, zone=self.zone, notes=self.notes)
        if self.notes.num_ambiguous == before:
            return early, None
        late = naive.dt.replace_time_zone(self.zone, ambiguous="latest", non_existent="null")
        later_by = (late.dt.convert_time_zone("UTC") - early).dt.total_microseconds()
        return early, later_by.fill_null(0).cast(pl.Duration("us"))


def _parsed(bare: pl.Series, formats: tuple[str, ...], open_: pl.Series) -> pl.Series:
    """The first format that fits each open text, as naive datetimes (of texts with an offset: in UTC)."""
    found = pl.Series([None], dtype=pl.Datetime("us")).new_from_index(0, len(bare))
    for form in formats:
        rest = open_ & found.is_null()
        if not rest.any():
            break
        parsed = bare.str.to_datetime(form, time_unit="us", strict=False)
        if isinstance(parsed.dtype, pl.Datetime) and parsed.dtype.time_zone is not None:
            parsed = parsed.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        found = found.zip_with(~rest, parsed)
    return found


def settle_autumn(records: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Choose, of two possible instants, those between which the job's elapsed time fits.

    Parameters
    ----------
    records : DataFrame
        ``start_time``, ``end_time`` [UTC], ``run_s``, ``suspended_s`` and, where times were ambiguous,
        ``start_time_shift`` and ``end_time_shift`` (duration).

    Returns
    -------
    tuple of (DataFrame, int)
        Without the shifts, and how many times were settled.

    Notes
    -----
    Slurm measures Elapsed, it does not subtract local times; so end - start = Elapsed + Suspended tells which of
    the two hours was meant.
    """
    shifts = [name for name in records.columns if name.endswith(SHIFT)]
    if not shifts:
        return records, 0
    nothing = pl.duration(seconds=0)
    by_start = pl.col("start_time_shift") if "start_time_shift" in shifts else nothing
    by_end = pl.col("end_time_shift") if "end_time_shift" in shifts else nothing
    whole = pl.duration(microseconds=((pl.col("run_s") + pl.col("suspended_s").fill_null(0)) * 1e6).round())
    missing = whole - (pl.col("end_time") - pl.col("start_time"))
    end_is_late = ((missing == by_end) & (by_end > nothing)).fill_null(value=False)
    start_is_late = ((missing == -by_start) & (by_start > nothing)).fill_null(value=False)
    settled = records.with_columns(
        end_time=pl.when(end_is_late).then(pl.col("end_time") + by_end).otherwise("end_time"),
        start_time=pl.when(start_is_late).then(pl.col("start_time") + by_start).otherwise("start_time"),
    )
    num = int(records.select((end_is_late | start_is_late).sum()).item())
    return settled.drop(shifts), num
