"""What finishing does to each row of a jobs table on its own: dtypes, zones, statuses, times, flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.cells import PROBLEM, map_status
from analysis.loaders.rows import LINE, UNDECODABLE, reject_table
from analysis.loaders.timeline import Given, conclude
from analysis.loaders.zones import ZoneNotes, is_plausible, to_utc

__all__ = ["TIMES", "RowRoad", "count_flags", "count_unknown", "with_flags"]

FILE: Final = "_file"
TIMES: Final = ("submit_time", "eligible_time", "start_time", "end_time")
HIDDEN: Final = (LINE, FILE, PROBLEM, UNDECODABLE)
#: Columns beside the schema that a loader may give; see `finish.finish_jobs`.
HELPERS: Final = {"published_duration_s": pl.Float64()}


@dataclass(frozen=True)
class RowRoad:
    """How a loader's partial rows become jobs; the parameters are those of `finish.finish_jobs`.

    Attributes
    ----------
    time_zone : str
        Zone of naive times.
    statuses : mapping of str to str, or None
        ``status_raw`` -> ``status``; null: the loader gives ``status``.
    snapshot : Expr of datetime, or None
        When the log was taken.
    file : str
        Name of the file for ``rejects``.
    """

    time_zone: str = "UTC"
    statuses: Mapping[str, str] | None = None
    snapshot: pl.Expr | None = None
    file: str = ""

    def finish(self, table: pl.DataFrame, zone_notes: ZoneNotes) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Conclude each row on its own.

        Returns
        -------
        tuple of (DataFrame, DataFrame)
            Jobs with all columns of the schema but ``flags``, the ``flag_<name>`` columns and the hidden ones; and
            the rows set aside, as ``schema.REJECTS``.
        """
        table, rejects = _set_aside(table, self.file)
        table = table.with_columns(
            to_utc(table[name], zone=self.time_zone, notes=zone_notes) for name in TIMES if name in table.columns
        )
        jobs = _fill(table)
        if self.statuses is not None:
            jobs = jobs.with_columns(map_status(self.statuses))
        return conclude(jobs.lazy(), given=Given(table.columns), snapshot=self.snapshot).collect(), rejects


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
    return table.filter(~bad), _where_from(aside, file).with_columns(reason=aside[PROBLEM]).select(*schema.REJECTS)


def _where_from(rows: pl.DataFrame, file: str) -> pl.DataFrame:
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


def with_flags(jobs: pl.DataFrame) -> pl.DataFrame:
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


def count_unknown(jobs: pl.DataFrame) -> dict[str, int]:
    """Raw statuses that no table knows, with the number of their jobs."""
    found = jobs.select("status", "status_raw").filter(pl.col("status") == "unknown")
    counts = found.group_by("status_raw").len().sort("status_raw")
    return {str(raw): int(count) for raw, count in counts.iter_rows()}


def count_flags(jobs: pl.DataFrame) -> dict[str, int]:
    """Flags of a jobs table, with the number of their jobs."""
    counts = jobs.select(pl.col("flags").explode().drop_nulls()).to_series().value_counts().sort("flags")
    return {str(flag): int(count) for flag, count in counts.iter_rows()}
