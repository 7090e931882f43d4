"""From a loader's partial columns to a whole Trace: each row concluded, duplicates, order, load report."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Literal, TypeVar

import polars as pl

from analysis import schema
from analysis.loaders.duplicates import settle_duplicates
from analysis.loaders.finish_large import Blockwise, finish_to_file
from analysis.loaders.finish_rows import TIMES, RowRoad, count_flags, count_unknown, with_flags
from analysis.loaders.rows import LINE, RawRows, reject_table
from analysis.loaders.zones import ZoneNotes
from analysis.table_file import TableFile
from analysis.trace import LoadReport, Trace, TraceMeta

__all__ = ["Finished", "finish_jobs", "finish_trace", "with_text"]

Duplicates = Literal["set_aside", "by_submit"]
#: From so many raw rows on, a log that comes lazily is finished block by block.
MANY_ROWS: Final = 1_000_000


JobsT = TypeVar("JobsT", pl.DataFrame, TableFile, pl.DataFrame | TableFile)


@dataclass(frozen=True)
class Finished(Generic[JobsT]):
    """A jobs table and what became of the rows that it was made from.

    Attributes
    ----------
    jobs : DataFrame or TableFile
        As ``schema.JOBS``, sorted.
    rejects : DataFrame
        As ``schema.REJECTS``; ``raw`` is filled by `finish_trace`.
    unknown_statuses, flagged : dict of str to int
        Values outside the loader's table, and flags, with the number of their jobs.
    notes : list of str
        Choices that were made.
    num_rows, num_jobs : int
        Rows of the partial table; jobs.
    window : tuple of (first, last)
        First and last instant of any time in the jobs table; null if it has none.
    """

    jobs: JobsT
    rejects: pl.DataFrame
    unknown_statuses: dict[str, int] = field(default_factory=dict)
    flagged: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    num_rows: int = 0
    num_jobs: int = 0
    window: tuple[str | None, str | None] = (None, None)


def finish_jobs(
    partial: pl.DataFrame | pl.LazyFrame,
    *,
    time_zone: str = "UTC",
    statuses: Mapping[str, str] | None = None,
    duplicates: Duplicates = "set_aside",
    snapshot: pl.Expr | None = None,
    file: str = "",
) -> Finished[pl.DataFrame]:
    """Make the full jobs table from what a loader has.

    Parameters
    ----------
    partial : DataFrame or LazyFrame, one row per job
        Any columns of ``schema.JOBS``; the others become null. Times may be naive (read in ``time_zone``), aware, or
        numbers (seconds). ``duration_s`` is the loader's own: if it is there, it alone counts, nulls too.
        ``published_duration_s`` is the source's: it is compared with the time stamps
        (flags ``duration_mismatch``, ``duration_includes_queue``) and counts only where they give none.
        ``flag_<name>`` (bool) sets a flag. ``_line``, ``_file``, ``_problem`` tell where a row is from and why it
        cannot be used.
    time_zone : str, default "UTC"
        IANA name of the zone of naive times.
    statuses : mapping of str to str, optional
        ``status_raw`` -> ``status``; any other value becomes ``unknown``, flagged and counted. Null: the loader gives
        ``status`` itself.
    duplicates : {"set_aside", "by_submit"}
        What happens to rows with the id of another: set aside (deterministic, whatever the row order), or, for
        sources that use ids again, told apart as ``cluster/id/submit``.
    snapshot : Expr of datetime, optional
        When the log was taken, for right-censored jobs.
    file : str, optional
        Name of the file for ``rejects``.

    Returns
    -------
    Finished
    """
    table = partial.collect(engine="streaming") if isinstance(partial, pl.LazyFrame) else partial
    num_rows = table.height
    zone_notes = ZoneNotes()
    road = RowRoad(time_zone=time_zone, statuses=statuses, snapshot=snapshot, file=file)
    rows, rejects = road.finish(table, zone_notes)
    del table
    settled = settle_duplicates(rows, keep=duplicates, file=file)
    jobs = schema.sort_jobs(with_flags(settled.jobs))
    return Finished(
        jobs=jobs,
        rejects=pl.concat([rejects, settled.rejects]),
        unknown_statuses=count_unknown(jobs),
        flagged=count_flags(jobs),
        notes=zone_notes.sentences(time_zone) + settled.notes,
        num_rows=num_rows,
        num_jobs=jobs.height,
        window=_window([(jobs[name].min(), jobs[name].max()) for name in TIMES]),
    )


def _finish_blockwise(done: Blockwise, file: TableFile) -> Finished[TableFile]:
    return Finished(
        jobs=file,
        rejects=pl.concat([reject_table(done.road.file, []), *done.rejects]),
        unknown_statuses=dict(sorted(done.unknown_statuses.items())),
        flagged={name: done.flagged[name] for name in schema.FLAGS if done.flagged[name]},
        notes=done.zone_notes.sentences(done.road.time_zone),
        num_rows=done.num_rows,
        num_jobs=done.num_jobs,
        window=_window(done.times),
    )


def finish_trace(  # noqa: PLR0913 - each is a table or a count that a loader may have
    partial: pl.DataFrame | pl.LazyFrame,
    *,
    meta: TraceMeta,
    raws: Sequence[RawRows],
    tables: Mapping[str, pl.DataFrame] | None = None,
    rows_merged: int = 0,
    rows_beside: int = 0,
    job_files: int = 1,
    notes: Collection[str] = (),
    **options: Any,
) -> Trace:
    """Make the Trace with its load report.

    Parameters
    ----------
    partial : DataFrame or LazyFrame
        As for `finish_jobs`.
    meta : TraceMeta
        Without a load report; the window is filled from the jobs if it has none.
    raws : sequence of RawRows
        Every file that was read, the jobs' file first.
    tables : mapping of str to DataFrame, optional
        Tables beside the jobs. ``rejects``: rows that the loader itself set aside. Rows with a ``_line`` go with the
        raw row of that line, if it is set aside.
    rows_merged : int, default 0
        Raw rows of the jobs' files that the loader folded into the row of another (attempts, steps).
    rows_beside : int, default 0
        Raw rows of the jobs' files that went into another table (nodes in a list of pods).
    job_files : int, default 1
        How many of ``raws`` hold jobs, from the first; the partial table then says ``_file``.
    notes : collection of str, optional
        Assumptions, in sentences.
    **options
        Passed to `finish_jobs` (``statuses``, ``duplicates``, ``snapshot``). A lazy log of a million rows or more is
        finished block by block, and its jobs table stays in a temporary file until it is asked for.

    Returns
    -------
    Trace
    """
    main = raws[0]
    how = {"time_zone": meta.time_zone, "file": main.name, **options}
    done = _finish(partial, num_raw=sum(raw.rows_in for raw in raws[:job_files]), **how)
    beside = dict(tables or {})
    later = [with_text(table, raws) for table in (beside.pop("rejects", None), done.rejects) if table is not None]
    rejects = pl.concat([*(raw.rejects for raw in raws), *later]).sort("file", "line", "reason", nulls_last=True)
    report = _report(
        done, raws, rejects=rejects, rows_merged=rows_merged, rows_beside=rows_beside, job_files=job_files, notes=notes
    )
    window = meta.window if meta.window != (None, None) else done.window
    full = replace(meta, window=window, load_report=report)
    beside = {name: _of_kept_jobs(table, done.rejects) for name, table in beside.items()}
    return Trace(done.jobs, meta=full, tables={**beside, "rejects": rejects})


def _finish(partial: pl.DataFrame | pl.LazyFrame, *, num_raw: int, **options: Any) -> Finished[Any]:
    """Finish block by block if the log is long and its rows do not need each other, else as a whole."""
    if isinstance(partial, pl.LazyFrame) and num_raw >= MANY_ROWS and options.get("snapshot") is None:
        row_options = {key: value for key, value in options.items() if key != "duplicates"}
        done = finish_to_file(partial, RowRoad(**row_options))
        if done is not None:
            return _finish_blockwise(*done)
    return finish_jobs(partial, **options)


def _of_kept_jobs(table: pl.DataFrame, rejects: pl.DataFrame) -> pl.DataFrame:
    """Rows of a table beside the jobs, without those of raw rows that were set aside."""
    if LINE not in table.columns:
        return table
    return table.filter(~pl.col(LINE).is_in(rejects["line"].drop_nulls().to_list())).drop(LINE)


def with_text(rejects: pl.DataFrame, raws: Sequence[RawRows]) -> pl.DataFrame:
    """Fill the text of rows that were set aside after reading."""
    texts: dict[tuple[str, int], str] = {}
    missing = rejects.filter(pl.col("raw").is_null() & pl.col("line").is_not_null())
    for raw in raws:
        lines = missing.filter(pl.col("file") == raw.name)["line"].to_list()
        if lines:
            texts.update({(raw.name, line): text for line, text in raw.raw_text(set(lines)).items()})
    filled = [
        text if text is not None else texts.get((file, line))
        for file, line, text in rejects.select("file", "line", "raw").iter_rows()
    ]
    return rejects.with_columns(pl.Series("raw", filled, dtype=pl.String))


def _report(
    done: Finished[Any],
    raws: Sequence[RawRows],
    *,
    rejects: pl.DataFrame,
    rows_merged: int,
    rows_beside: int,
    job_files: int,
    notes: Collection[str],
) -> LoadReport:
    reasons = rejects.group_by("reason").len().sort("reason")
    # Counted from the tables, not as the difference: the report's own law then checks that nothing was lost.
    of_jobs = done.num_rows - done.rejects.height + rows_merged + rows_beside
    aside = rejects.filter(~pl.col("file").is_in([raw.name for raw in raws[:job_files]])).height
    beside = sum(raw.rows_in for raw in raws[job_files:]) - aside
    return LoadReport(
        rows_in=sum(raw.rows_in for raw in raws),
        rows_used=of_jobs + beside,
        rows_set_aside=rejects.height,
        rows_merged=rows_merged,
        num_jobs=done.num_jobs,
        rejected_by_reason={str(reason): int(count) for reason, count in reasons.iter_rows()},
        flagged=done.flagged,
        unknown_statuses=done.unknown_statuses,
        files=[{"name": raw.name, "size": raw.size, "rows": raw.rows_in} for raw in raws],
        notes=[*notes, *(note for raw in raws for note in raw.notes), *done.notes],
    )


def _window(spans: Sequence[tuple[Any, Any]]) -> tuple[str | None, str | None]:
    """First and last instant of some (first, last) pairs."""
    first = min((first for first, _ in spans if first is not None), default=None)
    last = max((last for _, last in spans if last is not None), default=None)
    return _iso(first), _iso(last)


def _iso(time: Any) -> str | None:
    return None if time is None else str(time.isoformat())
