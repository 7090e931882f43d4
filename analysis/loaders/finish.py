"""From a loader's partial columns to a whole Trace: dtypes, zones, statuses, times, duplicates, order, load report."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import polars as pl

from analysis import schema
from analysis.loaders.cells import PROBLEM, map_status
from analysis.loaders.delimited import LINE, UNDECODABLE
from analysis.loaders.duplicates import settle_duplicates
from analysis.loaders.rows import RawRows, reject_table
from analysis.loaders.timeline import Given, conclude
from analysis.loaders.zones import ZoneNotes, is_plausible, to_utc
from analysis.trace import LoadReport, Trace, TraceMeta

__all__ = ["Finished", "finish_jobs", "finish_trace"]

FILE: Final = "_file"
TIMES: Final = ("submit_time", "eligible_time", "start_time", "end_time")
HIDDEN: Final = (LINE, FILE, PROBLEM, UNDECODABLE)
#: Columns beside the schema that a loader may give; see `finish_jobs`.
HELPERS: Final = {"published_duration_s": pl.Float64()}
Duplicates = Literal["set_aside", "by_submit"]


@dataclass(frozen=True)
class Finished:
    """A jobs table and what became of the rows that it was made from.

    Attributes
    ----------
    jobs : DataFrame
        As ``schema.JOBS``, sorted.
    rejects : DataFrame
        As ``schema.REJECTS``; ``raw`` is filled by `finish_trace`.
    unknown_statuses : dict of str to int
        Values outside the loader's table, with their counts.
    notes : list of str
        Choices that were made.
    num_rows : int
        Rows of the partial table.
    """

    jobs: pl.DataFrame
    rejects: pl.DataFrame
    unknown_statuses: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    num_rows: int = 0


def finish_jobs(
    partial: pl.DataFrame | pl.LazyFrame,
    *,
    time_zone: str = "UTC",
    statuses: Mapping[str, str] | None = None,
    duplicates: Duplicates = "set_aside",
    snapshot: pl.Expr | None = None,
    file: str = "",
) -> Finished:
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
    table, rejects = _set_aside(table, file)
    zone_notes = ZoneNotes()
    table = table.with_columns(
        to_utc(table[name], zone=time_zone, notes=zone_notes) for name in TIMES if name in table.columns
    )
    jobs = _fill(table)
    if statuses is not None:
        jobs = jobs.with_columns(map_status(statuses))
    jobs = conclude(jobs.lazy(), given=Given(table.columns), snapshot=snapshot).collect()
    settled = settle_duplicates(jobs, keep=duplicates, file=file)
    unknown = _count_unknown(settled.jobs)
    return Finished(
        jobs=schema.sort_jobs(_with_flags(settled.jobs)),
        rejects=pl.concat([rejects, settled.rejects]),
        unknown_statuses=unknown,
        notes=zone_notes.sentences(time_zone) + settled.notes,
        num_rows=num_rows,
    )


def _set_aside(table: pl.DataFrame, file: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Take out the rows that no job can be made of: unreadable text, no id, a time in no century of ours."""
    if PROBLEM not in table.columns:
        table = table.with_columns(pl.lit(None, dtype=pl.String).alias(PROBLEM))
    no_id = pl.when(pl.col("job_id").cast(pl.String).fill_null("") == "").then(pl.lit("no_id"))
    times = [name for name in TIMES if name in table.columns and table[name].dtype != pl.Null()]
    wrong = [pl.when(~is_plausible(name, table[name].dtype)).then(pl.lit(f"implausible_{name}")) for name in times]
    problem = table.select(pl.coalesce(PROBLEM, no_id, *wrong).alias(PROBLEM))[PROBLEM]
    bad = problem.is_not_null()
    if not bad.any():
        return table, reject_table(file, [])
    aside = table.with_columns(problem).filter(bad)
    return table.filter(~bad), where_from(aside, file).with_columns(reason=aside[PROBLEM]).select(*schema.REJECTS)


def where_from(rows: pl.DataFrame, file: str) -> pl.DataFrame:
    """File and line of some rows, as a rejects table without reason."""
    name = pl.col(FILE) if FILE in rows.columns else pl.lit(file)
    line = pl.col(LINE).cast(pl.Int64) if LINE in rows.columns else pl.lit(None, dtype=pl.Int64)
    return rows.select(file=name, line=line, reason=pl.lit(""), raw=pl.lit(None, dtype=pl.String))


def _fill(table: pl.DataFrame) -> pl.DataFrame:
    """All columns of the schema in their dtypes, then the helpers; what can only be wrong becomes null."""
    wanted = {**schema.JOBS, **HELPERS}
    columns: list[pl.Expr] = []
    for name, dtype in wanted.items():
        if name in ("extra", "flags"):
            continue
        given = pl.col(name).cast(dtype) if name in table.columns else pl.lit(None, dtype=dtype)
        if name in table.columns and dtype == pl.String():
            given = pl.when(given != "").then(given)
        columns.append(given.alias(name))
    extra = pl.col("extra") if "extra" in table.columns else pl.lit(None, dtype=schema.NO_EXTRA).alias("extra")
    kept = [name for name in table.columns if name in HIDDEN or name.startswith("flag_")]
    return table.select(*kept, *columns, extra).with_columns(
        num_gpus=pl.when(pl.col("num_gpus") >= 0).then("num_gpus"),
        time_limit_s=pl.when(pl.col("time_limit_s") > 0).then("time_limit_s"),
    )


def _count_unknown(jobs: pl.DataFrame) -> dict[str, int]:
    found = jobs.filter(pl.col("status") == "unknown").group_by("status_raw").len().sort("status_raw")
    return {str(raw): int(count) for raw, count in found.iter_rows()}


def _with_flags(jobs: pl.DataFrame) -> pl.DataFrame:
    """The list of flags from its boolean columns, in the order of ``schema.FLAGS``; then the schema's columns only."""
    more = {
        "unknown_status": pl.col("status") == "unknown",
        "unknown_gpus": pl.col("num_gpus").is_null(),
        "undecodable_text": pl.col(UNDECODABLE) if UNDECODABLE in jobs.columns else pl.lit(value=False),
    }
    jobs = jobs.with_columns(**{f"flag_{name}": flag.fill_null(value=False) for name, flag in more.items()})
    # Most flags are rare: only those that occur are put into lists.
    seen = [name for name in schema.FLAGS if f"flag_{name}" in jobs.columns and jobs[f"flag_{name}"].any()]
    flags = pl.lit(pl.Series([[]], dtype=schema.FLAG_LIST)).first()
    if seen:
        words = [pl.when(f"flag_{name}").then(pl.lit(name, dtype=schema.FLAG_LIST.inner)) for name in seen]
        flags = pl.concat_list(words).list.drop_nulls()
    return jobs.with_columns(flags.cast(schema.FLAG_LIST).alias("flags")).select(*schema.JOBS)


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
        Passed to `finish_jobs` (``statuses``, ``duplicates``, ``snapshot``).

    Returns
    -------
    Trace
    """
    main = raws[0]
    done = finish_jobs(partial, time_zone=meta.time_zone, file=main.name, **options)
    beside = dict(tables or {})
    later = [_with_text(table, raws) for table in (beside.pop("rejects", None), done.rejects) if table is not None]
    rejects = pl.concat([*(raw.rejects for raw in raws), *later]).sort("file", "line", "reason", nulls_last=True)
    report = _report(
        done, raws, rejects=rejects, rows_merged=rows_merged, rows_beside=rows_beside, job_files=job_files, notes=notes
    )
    window = meta.window if meta.window != (None, None) else _window(done.jobs)
    full = replace(meta, window=window, load_report=report)
    beside = {name: _of_kept_jobs(table, done.rejects) for name, table in beside.items()}
    return Trace(done.jobs, meta=full, tables={**beside, "rejects": rejects})


def _of_kept_jobs(table: pl.DataFrame, rejects: pl.DataFrame) -> pl.DataFrame:
    """Rows of a table beside the jobs, without those of raw rows that were set aside."""
    if LINE not in table.columns:
        return table
    return table.filter(~pl.col(LINE).is_in(rejects["line"].drop_nulls().to_list())).drop(LINE)


def _with_text(rejects: pl.DataFrame, raws: Sequence[RawRows]) -> pl.DataFrame:
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
    done: Finished,
    raws: Sequence[RawRows],
    *,
    rejects: pl.DataFrame,
    rows_merged: int,
    rows_beside: int,
    job_files: int,
    notes: Collection[str],
) -> LoadReport:
    reasons = rejects.group_by("reason").len().sort("reason")
    flags = done.jobs.select(pl.col("flags").explode().drop_nulls()).to_series().value_counts().sort("flags")
    # Counted from the tables, not as the difference: the report's own law then checks that nothing was lost.
    of_jobs = done.num_rows - done.rejects.height + rows_merged + rows_beside
    aside = rejects.filter(~pl.col("file").is_in([raw.name for raw in raws[:job_files]])).height
    beside = sum(raw.rows_in for raw in raws[job_files:]) - aside
    return LoadReport(
        rows_in=sum(raw.rows_in for raw in raws),
        rows_used=of_jobs + beside,
        rows_set_aside=rejects.height,
        rows_merged=rows_merged,
        num_jobs=done.jobs.height,
        rejected_by_reason={str(reason): int(count) for reason, count in reasons.iter_rows()},
        flagged={str(flag): int(count) for flag, count in flags.iter_rows()},
        unknown_statuses=done.unknown_statuses,
        files=[{"name": raw.name, "size": raw.size, "rows": raw.rows_in} for raw in raws],
        notes=[*notes, *(note for raw in raws for note in raw.notes), *done.notes],
    )


def _window(jobs: pl.DataFrame) -> tuple[str | None, str | None]:
    """First and last instant of any time in the table."""
    firsts = [jobs[name].min() for name in TIMES]
    lasts = [jobs[name].max() for name in TIMES]
    first = min((t for t in firsts if t is not None), default=None)
    last = max((t for t in lasts if t is not None), default=None)
    return _iso(first), _iso(last)


def _iso(time: Any) -> str | None:
    return None if time is None else str(time.isoformat())
