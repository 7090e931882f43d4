"""Trace: the tables of one job log with what is known about them, and its folder of Parquet files."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

from analysis import schema
from analysis.errors import BadFileError, HindcastError, SchemaVersionError, UnknownNameError, UsageError
from analysis.frames import jobs_to_polars
from analysis.table_file import TableFile

__all__ = ["LoadReport", "Trace", "TraceMeta", "write_folder"]

META_FILE: Final = "trace.json"
FORMAT_NAME: Final = "hindcast-trace"
Clock = Literal["absolute", "clock_only", "relative"]


@dataclass(frozen=True)
class LoadReport:
    """What became of every raw row: ``rows_in == rows_used + rows_set_aside``, always.

    Attributes
    ----------
    rows_in, rows_used, rows_set_aside : int
        Raw rows (lines or records below the header) of all files, those that went into at least one row of a table,
        and those kept in ``rejects`` with their reason.
    rows_merged : int
        Rows that were folded into a job that another row had begun (attempts, steps).
    rows_expanded : int
        Jobs made beyond one per row (arrays).
    num_jobs : int
        Rows of the jobs table.
    rejected_by_reason, flagged, unknown_statuses : dict of str to int
        Rows set aside by reason; jobs by flag; status values outside the documented set, with their counts.
    files : list of dict
        ``name``, ``size`` [bytes], ``rows`` of each file read.
    notes : list of str
        Assumptions that were made, in sentences.
    """

    rows_in: int = 0
    rows_used: int = 0
    rows_set_aside: int = 0
    rows_merged: int = 0
    rows_expanded: int = 0
    num_jobs: int = 0
    rejected_by_reason: dict[str, int] = field(default_factory=dict)
    flagged: dict[str, int] = field(default_factory=dict)
    unknown_statuses: dict[str, int] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.rows_in != self.rows_used + self.rows_set_aside:
            msg = (
                f"load report does not add up: {self.rows_in} rows in, {self.rows_used} used, "
                f"{self.rows_set_aside} set aside; every raw row must be one or the other. This is a fault of the "
                "loader: please report it with the file's first lines."
            )
            raise HindcastError(msg)


@dataclass(frozen=True)
class TraceMeta:
    """What is known about a log beside its tables.

    Attributes
    ----------
    name, source, licence, citation : str
        Short name; where it comes from; its licence ("unknown" if none is stated); what to cite.
    time_zone : str
        IANA name of the zone in which the source's naive times were read, and in which hours and weekdays mean
        something.
    time_zone_certainty : {"declared", "assumed", "given", "none"}
        Whether the source says so, we assume so, the user said so, or times carry no zone at all.
    clock : {"absolute", "clock_only", "relative"}
        "clock_only": hour and weekday mean something, the date does not. "relative": neither does.
    window : tuple of str or None
        First and last instant that the log covers, ISO 8601, or null if not known.
    coverage : str or None
        What part of the cluster's jobs the log holds, in words; null = not stated.
    load_report : LoadReport
        What became of every raw row.
    """

    name: str
    source: str = ""
    licence: str = "unknown"
    citation: str = ""
    time_zone: str = "UTC"
    time_zone_certainty: Literal["declared", "assumed", "given", "none"] = "none"
    clock: Clock = "absolute"
    window: tuple[str | None, str | None] = (None, None)
    coverage: str | None = None
    load_report: LoadReport = field(default_factory=LoadReport)


class Trace:
    """One job log: the jobs table, the tables beside it, and the metadata.

    Parameters
    ----------
    jobs : table of polars, pandas or Arrow, or TableFile, one row per job
        As ``analysis.schema.JOBS`` says; checked. Of a `TableFile` only the columns are: who wrote it checked the rows.
    meta : TraceMeta
        What is known beside the tables.
    tables : mapping of str to DataFrame or TableFile, optional
        Any of nodes, capacity, attempts, usage, usage_series, rejects; a table that is not given is empty. A
        `TableFile` stays on disk until its rows are asked for.

    Raises
    ------
    SchemaError
        If a table breaks its schema; all violations at once.
    BadFileError
        If the Parquet file of a table is not readable or has other columns.
    """

    def __init__(
        self,
        jobs: Any,
        *,
        meta: TraceMeta,
        tables: Mapping[str, pl.DataFrame | TableFile] | None = None,
    ) -> None:
        if isinstance(jobs, TableFile):
            jobs.check("jobs")
        else:
            jobs = jobs_to_polars(jobs)
            schema.validate_jobs(jobs)
        self.meta = meta
        self._tables: dict[str, pl.DataFrame | TableFile] = {"jobs": jobs}
        self._collected: dict[str, pl.DataFrame] = {}
        for name, table in (tables or {}).items():
            if name not in schema.TABLES or name == "jobs":
                raise UnknownNameError(kind="table beside the jobs", found=name, known=set(schema.TABLES) - {"jobs"})
            if isinstance(table, TableFile):
                table.check(name)
            else:
                schema.validate_table(name, table)
            self._tables[name] = table

    def table(self, name: str) -> pl.DataFrame:
        """One table by name; a table that the source does not give is empty.

        Raises
        ------
        UnknownNameError
            If there is no such table.
        """
        if name not in schema.TABLES:
            raise UnknownNameError(kind="table of a trace", found=name, known=schema.TABLES)
        table = self._tables.get(name)
        if isinstance(table, pl.DataFrame):
            return table
        if name not in self._collected:
            self._collected[name] = table.scan().collect() if table else schema.empty_table(name)
        return self._collected[name]

    def scan(self, name: str = "jobs") -> pl.LazyFrame:
        """One table as a lazy frame; of a table that lies on disk only what a query needs is read."""
        if name not in schema.TABLES:
            raise UnknownNameError(kind="table of a trace", found=name, known=schema.TABLES)
        table = self._tables.get(name)
        if isinstance(table, TableFile):
            return table.scan()
        return schema.empty_table(name).lazy() if table is None else table.lazy()

    @property
    def jobs(self) -> pl.DataFrame:
        """The jobs table, one row per job, sorted by (submit_time, job_id)."""
        return self.table("jobs")

    @property
    def nodes(self) -> pl.DataFrame:
        """The nodes table; empty if the source has none."""
        return self.table("nodes")

    @property
    def capacity(self) -> pl.DataFrame:
        """GPUs of each VC over time; empty if the source has none."""
        return self.table("capacity")

    @property
    def attempts(self) -> pl.DataFrame:
        """Scheduling attempts; empty if the source has none."""
        return self.table("attempts")

    @property
    def usage(self) -> pl.DataFrame:
        """Measured use per job; empty if the source has none."""
        return self.table("usage")

    @property
    def rejects(self) -> pl.DataFrame:
        """Raw rows set aside: file, line, reason, text."""
        return self.table("rejects")

    def replace_jobs(self, jobs: Any) -> Trace:
        """Make the same trace with another jobs table (a filter, added predictions are not part of it)."""
        return Trace(jobs, meta=self.meta, tables=self._beside())

    def with_meta(self, **changes: Any) -> Trace:
        """Make the same trace with some metadata replaced."""
        other = copy(self)
        other.meta = replace(self.meta, **changes)
        return other

    def with_tables(self, **tables: pl.DataFrame | TableFile) -> Trace:
        """Make the same trace with some of the tables beside the jobs added or replaced."""
        jobs = self._tables["jobs"]
        unread = jobs if isinstance(jobs, TableFile) else self.jobs
        return Trace(unread, meta=self.meta, tables={**self._beside(), **tables})

    def _beside(self) -> dict[str, pl.DataFrame | TableFile]:
        """The tables beside the jobs, those on disk unread."""
        return {name: table for name, table in self._tables.items() if name != "jobs"}

    def write(self, folder: Path | str) -> Path:
        """Write the trace as a folder of Parquet files; a Trace that is there already is replaced as a whole.

        Parameters
        ----------
        folder : path
            Written beside itself under a temporary name, then renamed: it is never half there.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        UsageError
            If something else than a Trace is there.
        """
        header = {"format": FORMAT_NAME, "schema_version": schema.SCHEMA_VERSION, **asdict(self.meta)}

        def fill(target: Path) -> None:
            for name, table in self._tables.items():
                path = target / f"{name}.parquet"
                if isinstance(table, TableFile):
                    table.copy(path)
                elif name == "jobs" or table.height:
                    table.write_parquet(path)
            (target / META_FILE).write_text(json.dumps(header, indent=1, sort_keys=True) + "\n", encoding="utf-8")

        return write_folder(Path(folder), fill, marker=META_FILE)

    @classmethod
    def read(cls, folder: Path | str) -> Trace:
        """Open a Trace folder; tables are read when they are first asked for.

        Raises
        ------
        BadFileError
            If the folder is missing, not a Trace, damaged, or was written by a newer hindcast.
        """
        folder = Path(folder)
        trace = cls.__new__(cls)
        trace.meta = _read_meta(folder)
        files = {name: TableFile(folder / f"{name}.parquet") for name in schema.TABLES}
        trace._tables = {name: file for name, file in files.items() if file.path.exists()}
        trace._collected = {}
        for name in trace._tables:
            files[name].check(name)
        return trace


def _read_meta(folder: Path) -> TraceMeta:
    path = folder / META_FILE
    fix = "Make one with 'hindcast load SOURCE PATH -o TRACE' or 'hindcast synth -o TRACE'."
    if not folder.exists():
        raise BadFileError(folder, kind="missing", found="nothing there", expected="a Trace folder", fix=fix)
    if not folder.is_dir() or not path.exists() or not (folder / "jobs.parquet").exists():
        found = "a folder without trace.json and jobs.parquet" if folder.is_dir() else "a file"
        raise BadFileError(folder, kind="not_a_trace", found=found, expected="a Trace folder", fix=fix)
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
        version = int(header.pop("schema_version"))
        if header.pop("format") != FORMAT_NAME:
            raise KeyError(FORMAT_NAME)
        if version > schema.SCHEMA_VERSION:
            raise SchemaVersionError(path, found=version, supported=schema.SCHEMA_VERSION)
        report = LoadReport(**header.pop("load_report"))
        return TraceMeta(**{**header, "window": tuple(header["window"]), "load_report": report})
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, HindcastError):
            raise
        raise BadFileError(
            path,
            kind="damaged",
            found=f"text that is not a Trace's metadata ({type(error).__name__}: {error})",
            expected=f"JSON with format {FORMAT_NAME!r} and schema_version",
            fix="Load the raw files again with 'hindcast load'.",
        ) from error


def write_folder(folder: Path, fill: Callable[[Path], None], *, marker: str) -> Path:
    """Fill a folder under a temporary name and rename it into place, so that it is never half there.

    Parameters
    ----------
    folder : Path
        Where it shall be. A folder that holds ``marker`` (or nothing) is replaced; any other is refused.
    fill : callable of Path
        Writes the files into the folder that it is given.
    marker : str
        File name that tells a folder of this kind.

    Returns
    -------
    Path
        ``folder``.

    Raises
    ------
    UsageError
        If something else is there, or the place cannot be written.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / marker).exists()):
        msg = f"{folder}: found something that hindcast did not write; choose another place or remove it first."
        raise UsageError(msg)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        msg = f"{folder}: cannot be written ({error.strerror}); choose a place that you may write to."
        raise UsageError(msg) from error
    try:
        fill(staging)
        staging.chmod(0o755)
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
            folder.rename(old / "old")
            staging.rename(folder)
            shutil.rmtree(old)
        else:
            staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return folder
