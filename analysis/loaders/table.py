"""Any table of jobs with a column map: CSV, TSV, Parquet, or a pandas, polars or Arrow table in memory.

Source, licence, period, coverage: the user's. A row is a job. Zone: "UTC" is assumed for naive times and said in the
load report; give ``timezone``.

Assumptions:

* Without a map, columns that bear canonical names are these columns; with one, exactly what it names. All other
  columns go to ``extra`` under their raw names; nothing is left behind.
* Without a job id, the number of the row is the id.
* A stated duration is compared with start and end and counts only where these do not give one.
* Times are text (``time_format``, or ISO 8601 in its usual forms), dates, or numbers: seconds, milli- or
  microseconds since 1970, told by their size, or, with ``clock="relative"``, seconds from the trace's start. In
  absolute times, 0 and negative numbers mean that it did not happen.
* Status words are those of the map, ours, or Slurm's, whatever their case; all others are ``unknown``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import polars as pl

from analysis import schema
from analysis.errors import BadFileError, UsageError
from analysis.frames import to_polars
from analysis.loaders.cells import Cell, read_cells
from analysis.loaders.column_map import ColumnMap, pairs, parse_map, status_of, unit_factor
from analysis.loaders.delimited import RESERVED, Delimited, has_columns, read_delimited
from analysis.loaders.files import check_file, list_files
from analysis.loaders.finish import finish_trace
from analysis.loaders.registry import loader
from analysis.loaders.rows import LINE, FrameRows
from analysis.loaders.table_cells import cell_for, is_relative
from analysis.metrics import US_PER_S
from analysis.trace import Clock, Trace, TraceMeta

__all__ = ["read_table"]

PARQUET: Final = b"PAR1"
#: A table with these canonical names is taken for one that needs no map.
TELLING: Final = (("num_gpus", "submit_time", "duration_s"), ("num_gpus", "submit_time", "end_time"))
Raw = Delimited | FrameRows


def _sniff(paths: Sequence[Path]) -> float:
    return 0.6 if len(paths) == 1 and any(_has(paths[0], names) for names in TELLING) else 0.0


def _has(path: Path, names: Collection[str]) -> bool:
    if _is_parquet(path):
        try:
            return set(names) <= set(pl.read_parquet_schema(path))
        except (pl.exceptions.PolarsError, OSError):
            return False
    return has_columns(path, names)


def _is_parquet(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == PARQUET
    except OSError:
        return False


@loader(
    "table",
    summary="any table of jobs (CSV, TSV, Parquet, pandas, polars, Arrow) with a column map",
    files="one CSV, TSV or Parquet file; --map job_id=id,submit_time=submit,duration_s=duration,num_gpus=gpus,…",
    sniff=_sniff,
    takes_frames=True,
)
def read_table(  # noqa: PLR0913 - each is one thing that a user's own log may need to have said
    paths: Sequence[Path] | Any,
    *,
    timezone: str | None = None,
    name: str | None = None,
    columns: str | Path | Mapping[str, str] | None = None,
    status: str | Mapping[str, str] | None = None,
    units: str | Mapping[str, str | float] | None = None,
    time_format: str | None = None,
    clock: str | None = None,
    separator: str | None = None,
) -> Trace:
    """Read any table of jobs.

    Parameters
    ----------
    paths : sequence of one Path, or a table
        The file, or a pandas, polars or Arrow table.
    timezone : str, optional
        IANA name of the zone of naive times; default "UTC", as an assumption.
    name : str, optional
        Name of the trace, by default the file's.
    columns : str, Path or mapping, optional
        Canonical <- raw: ``"job_id=id,submit_time=submit"``, a mapping, a TOML file that may hold all of these options,
        or the name of a map that ships with hindcast, such as "graham". Null: columns with canonical names.
    status : str or mapping, optional
        The source's words <- ``"OK=completed,KO=failed"``.
    units : str or mapping, optional
        Unit of a raw number, by canonical column: ``"duration_s=min,mem_gib=MiB"``, or a factor.
    time_format : str, optional
        Of times as text, as strftime.
    clock : {"absolute", "clock_only", "relative"}, optional
        What times mean; "relative": seconds from the trace's start.
    separator : str, optional
        Of a delimited file; by default told from its header.

    Returns
    -------
    Trace
        Jobs only.

    Raises
    ------
    UsageError
        If the map does not fit the table; all faults at once.
    BadFileError
        If the file cannot be read.

    Examples
    --------
    >>> import pandas as pd
    >>> mine = pd.DataFrame({"id": ["b", "a"], "at": [60, 0], "minutes": [2, 1]})
    >>> columns = {"job_id": "id", "submit_time": "at", "duration_s": "minutes"}
    >>> trace = read_table(mine, columns=columns, units={"duration_s": "min"}, clock="relative")
    >>> trace.jobs.select("job_id", "duration_s").rows()
    [('a', 60.0), ('b', 120.0)]
    """
    given = _override(parse_map(columns), status=status, units=units, timezone=timezone, time_format=time_format)
    given = replace(given, clock=clock or given.clock, separator=separator or given.separator)
    raw = _open(paths, given.separator)
    mapped = given.resolve(raw.columns, where=raw.name)
    source = _Source(raw, given, mapped)
    partial = source.read().collect(engine="streaming")
    meta = TraceMeta(
        name=name or given.name or Path(raw.name).name.split(".")[0],
        source=given.source or raw.name,
        licence=given.licence or "unknown",
        citation=given.citation or "",
        time_zone=given.timezone or "UTC",
        time_zone_certainty=_certainty(given, is_relative=source.is_relative),
        clock=source.clock,
        coverage=given.coverage,
    )
    words = partial["status_raw"].drop_nulls().unique().to_list() if "status_raw" in partial.columns else []
    statuses = {word: status_of(word, given.status) for word in words}
    return finish_trace(partial, meta=meta, raws=[raw], notes=source.notes(), statuses=statuses)


def _certainty(given: ColumnMap, *, is_relative: bool) -> Any:
    if given.timezone:
        return given.zone_certainty or "given"
    return "none" if is_relative else "assumed"


def _override(
    given: ColumnMap,
    *,
    status: str | Mapping[str, str] | None,
    units: str | Mapping[str, str | float] | None,
    timezone: str | None,
    time_format: str | None,
) -> ColumnMap:
    """The map with what was given beside it: that counts."""
    words = pairs(status, what="status") if isinstance(status, str) else dict(status or {})
    named = pairs(units, what="units") if isinstance(units, str) else dict(units or {})
    factors = {column: unit_factor(unit) for column, unit in named.items()}
    return replace(
        given,
        status={**given.status, **words},
        units={**given.units, **factors},
        timezone=timezone or given.timezone,
        zone_certainty=None if timezone else given.zone_certainty,
        time_format=time_format or given.time_format,
    )


def _open(paths: Any, separator: str | None) -> Raw:
    if not isinstance(paths, Sequence) or not all(isinstance(path, Path) for path in paths):
        return FrameRows("table", _without_reserved(to_polars(paths)))
    files = list_files(paths)
    if len(files) != 1:
        msg = f"load table: found {len(files)} files; expected one (a folder may hold only that one)."
        raise UsageError(msg)
    path = files[0]
    check_file(path)
    if not _is_parquet(path):
        return read_delimited(path, separator=separator)
    try:
        table = _without_reserved(pl.read_parquet(path, glob=False))
        return FrameRows(path.name, table, size=path.stat().st_size)
    except (pl.exceptions.PolarsError, OSError) as error:
        found = f"a damaged Parquet file ({str(error).splitlines()[0][:100]})"
        fix = "Write or download it again."
        raise BadFileError(path, kind="truncated", found=found, expected="a whole one", fix=fix) from error


def _without_reserved(table: pl.DataFrame) -> pl.DataFrame:
    return table.rename({name: f"{name}_2" for name in RESERVED}, strict=False)


def _without_missing(frame: pl.LazyFrame, missing: Mapping[str, Collection[str]]) -> pl.LazyFrame:
    """Null where a column holds one of the words that mean "no value" there."""
    have = frame.collect_schema().names()
    text = {raw: pl.col(raw).cast(pl.String).str.strip_chars() for raw in missing if raw in have}
    return frame.with_columns(pl.when(~text[raw].is_in(list(missing[raw]))).then(raw).alias(raw) for raw in text)


def _starts_after_wait(partial: pl.LazyFrame) -> pl.LazyFrame:
    """Start and end from the wait and the running time, where the source gives these instead."""
    dtypes = partial.collect_schema()
    lengths = {
        name: pl.duration(microseconds=(pl.col(name) * US_PER_S).round())
        if dtypes["submit_time"].is_temporal()
        else pl.col(name)
        for name in ("queueing_delay_s", "published_duration_s")
        if name in dtypes.names()
    }
    for target, base, length in (
        ("start_time", "submit_time", "queueing_delay_s"),
        ("end_time", "start_time", "published_duration_s"),
    ):
        if length in lengths:
            found = pl.col(base) + lengths[length]
            partial = partial.with_columns(
                (pl.coalesce(target, found) if target in dtypes.names() else found).alias(target)
            )
    return partial


@dataclass
class _Source:
    """The raw table with its map, on the way to canonical columns."""

    raw: Raw
    given: ColumnMap
    mapped: Mapping[str, str]
    is_relative: bool = False

    @property
    def clock(self) -> Clock:
        return cast("Clock", self.given.clock or ("relative" if self.is_relative else "absolute"))

    def read(self) -> pl.LazyFrame:
        frame = _without_missing(self.raw.frame, self.given.missing)
        dtypes = frame.collect_schema()
        times = {c: raw for c, raw in self.mapped.items() if schema.JOBS[c] == schema.TIME}
        # Formats are told from the first rows; a row that is written differently is set aside, not guessed at.
        sample = frame.select(list(dict.fromkeys(times.values()))).head(1000).collect() if times else pl.DataFrame()
        self.is_relative = self.given.clock == "relative" or (
            self.given.clock is None and is_relative([sample[raw] for raw in times.values()])
        )
        cells: dict[str, Cell] = {}
        for canonical, raw in self.mapped.items():
            target = {"status": "status_raw", "duration_s": "published_duration_s"}.get(canonical, canonical)
            cells[target] = cell_for(
                raw,
                canonical,
                dtype=dtypes[raw],
                factor=self.given.units.get(canonical, 1.0),
                sample=sample[raw] if canonical in times else None,
                time_format=self.given.time_format,
                relative=self.is_relative,
            )
        rest = {raw: Cell(raw, pl.col(raw)) for raw, dtype in dtypes.items() if dtype != pl.String()}
        taken = set(self.mapped.values())
        extra = {raw: cell for raw, cell in rest.items() if raw not in taken and raw != LINE}
        partial = read_cells(frame, cells, extra=extra)
        if "job_id" not in self.mapped:
            first = self.raw.header_line
            partial = partial.with_columns(job_id=(pl.col(LINE) - first).cast(pl.String))
        return _starts_after_wait(partial) if self.given.starts_after_wait else partial

    def notes(self) -> list[str]:
        notes = list(self.given.notes)
        if "job_id" not in self.mapped:
            notes.append("No job id is mapped: the number of a row is its id.")
        if self.is_relative and self.given.clock is None:
            notes.append("Times are small numbers: taken as seconds from the trace's start (clock 'relative').")
        if not self.is_relative and self.given.timezone is None:
            notes.append("No time zone is given: naive times are read as UTC, so hours and weekdays may be wrong.")
        return notes
