"""From all that was read of a Slurm cluster to its Trace, with the report of what became of every line."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.loaders.finish import Finished, finish_jobs
from analysis.loaders.slurm.assemble import JOB, Assembled, assemble
from analysis.loaders.slurm.blocks import Export
from analysis.loaders.slurm.nodes import count_records, read_nodes
from analysis.loaders.slurm.records import TIMES, Reading
from analysis.trace import LoadReport, Trace, TraceMeta

__all__ = ["Source", "conclude_trace"]

COVERAGE: Final = (
    "jobs in the states and the window that sacct was asked for; jobs that ended before it, were submitted after it, "
    "or were never eligible to start (held) are missing"
)


@dataclass
class Source:
    """What was read so far.

    Attributes
    ----------
    name, zone : str, str or None
        Of the trace; the zone that the user gave.
    nodes, partitions : list of Path
        Files with the cluster's nodes and partitions.
    window : pair of datetime or None
        What the user said that the export covers.
    snapshot : datetime or None
        When the user said that the export was made.
    exports, readings : list
        The exports, and what was noticed in each.
    """

    name: str
    zone: str | None
    nodes: list[Path]
    partitions: list[Path]
    window: tuple[datetime | None, datetime | None] = (None, None)
    snapshot: datetime | None = None
    exports: list[Export] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    records: list[list[pl.DataFrame]] = field(default_factory=list)
    steps: list[pl.DataFrame] = field(default_factory=list)

    def start(self, export: Export, reading: Reading) -> None:
        """Begin an export."""
        self.exports.append(export)
        self.readings.append(reading)
        self.records.append([])

    def add(self, *, records: pl.DataFrame, steps: pl.DataFrame) -> None:
        """Take a block of the export that was begun last; an empty one if it has no lines."""
        self.records[-1].append(records)
        self.steps.append(steps)

    def take(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """All records and steps; they are let go here, for they may be large."""
        tables = [pl.concat(blocks) for blocks in self.records]
        steps = pl.concat(self.steps)
        self.records, self.steps = [], []
        return (_align(tables) if len(tables) > 1 else tables[0]), steps

    def has(self, raw: str) -> bool:
        """Whether an export has a field."""
        return any(raw in export.layout.fields for export in self.exports)


def _align(tables: list[pl.DataFrame]) -> pl.DataFrame:
    """Records of exports with different fields: each gets the fields of all in ``extra``."""
    dtypes: dict[str, pl.DataType] = {}
    for table in tables:
        dtypes |= dict(table["extra"].struct.schema)

    def whole(table: pl.DataFrame) -> pl.Series:
        have = table["extra"].struct.schema
        parts = [
            pl.col("extra").struct.field(name) if name in have else pl.lit(None, dtype=dtype).alias(name)
            for name, dtype in dtypes.items()
        ]
        return table.select(pl.struct(parts).alias("extra")).to_series()

    return pl.concat([table.with_columns(whole(table)) for table in tables])


def conclude_trace(source: Source) -> Trace:
    """Make the Trace.

    Raises
    ------
    HindcastError
        If the report does not add up: a line was lost, which is a fault of the loader.
    """
    nodes = _read_all_nodes(source.nodes)
    if not source.exports:
        meta = _meta(source, schema.empty_table("jobs"))
        report = LoadReport(**_node_rows(source), notes=["No export of sacct was given: nodes only."])
        return Trace(schema.empty_table("jobs"), meta=_replace(meta, report), tables={"nodes": nodes})
    done = assemble(*source.take())
    notes = _notes(source, done)
    partial = _partial(source, done)
    done.jobs = done.jobs.clear()
    snapshot = _snapshot(source, partial, notes)
    ids = partial.select(*JOB, "job_id")
    finished = finish_jobs(partial.drop("key").lazy(), snapshot=snapshot, file=source.exports[0].name)
    del partial
    rejects = _texts(
        pl.concat([*(export.rejects for export in source.exports), done.rejects, finished.rejects]), source
    )
    report = _report(source, done, finished, rejects=rejects, notes=notes)
    tables = {
        "nodes": nodes,
        "attempts": _named(done.attempts, ids, "attempts"),
        "usage": _named(done.usage, ids, "usage"),
        "rejects": rejects,
    }
    return Trace(finished.jobs, meta=_replace(_meta(source, finished.jobs), report), tables=tables)


def _replace(meta: dict[str, Any], report: LoadReport) -> TraceMeta:
    return TraceMeta(**meta, load_report=report)


def _partial(source: Source, done: Assembled) -> pl.DataFrame:
    """Columns for ``finish_jobs``; a time that no export has is left out, so that nothing is read into it."""
    absent = [name for raw, name in TIMES.items() if not source.has(raw)]
    never = pl.col("never")
    jobs = done.jobs.with_columns(_job_ids(done.jobs).alias("job_id"))
    if not any(reading.names_gpus for reading in source.readings):
        jobs = jobs.with_columns(num_gpus=pl.lit(None, dtype=pl.Float64))
    start = source.window[0]
    return jobs.with_columns(
        censoring=pl.when(never).then(pl.lit("never_started")).cast(schema.CENSORING),
        duration_s=pl.when(~never).then("run_s"),
        start_time=pl.when(~never).then("start_time"),
        gpu_type=pl.when(~never).then("gpu_type"),
        flag_carry_in=(pl.col("start_time") < start) if start else pl.lit(value=False),
    ).drop("run_s", "suspended_s", "restarts", "hosts", "never", "ran", *absent)


def _job_ids(jobs: pl.DataFrame) -> pl.Series:
    """The id that sacct shows; with the cluster before it if there are several, and, where users share it, more."""
    several = jobs["cluster"].n_unique() > 1
    name = pl.concat_str("cluster", "key", separator="/", ignore_nulls=True) if several else pl.col("key")
    table = jobs.select(*JOB, "submit_time", name=name)
    for more in (pl.col("submit_time").dt.to_string("%Y-%m-%dT%H:%M:%SZ"), pl.col("user")):
        is_shared = pl.col("name").is_duplicated()
        if not table.select(is_shared.any()).item():
            break
        longer = pl.concat_str("name", more, separator="/", ignore_nulls=True)
        table = table.with_columns(name=pl.when(is_shared).then(longer).otherwise("name"))
    return table["name"]


def _snapshot(source: Source, jobs: pl.DataFrame, notes: list[str]) -> pl.Expr | None:
    """When the export was made: as the user said, else the latest time in it, which cannot be later."""
    if source.snapshot is not None:
        return pl.lit(source.snapshot).cast(schema.TIME)
    is_live = pl.col("status").is_in(["running", "suspended"]) & pl.col("duration_s").is_null()
    num = int(jobs.select(is_live.sum()).item())
    times = [name for name in ("submit_time", "start_time", "end_time") if name in jobs.columns]
    if not num or not times:
        return None
    last = jobs.select(pl.max_horizontal(pl.col(times).max())).item()
    notes.append(f"{num} jobs run without Elapsed: they ran at least until the latest time of the log ({last}).")
    return pl.lit(last).cast(schema.TIME)


def _notes(source: Source, done: Assembled) -> list[str]:
    times = [reading.times for reading in source.readings]
    said = list(done.notes)
    if any(reader.num_naive for reader in times):
        zone = source.zone or "UTC"
        hint = "" if source.zone else "; that is an assumption: give the site's zone with timezone"
        said.append(f"Times without offset were read in {zone}{hint}.")
        for reading in source.readings:
            reading.times.notes.num_ambiguous -= reading.num_settled
            said += reading.times.notes.sentences(zone)
    settled = sum(reading.num_settled for reading in source.readings)
    if settled:
        said.append(f"{settled} times that the clock showed twice were settled by Elapsed.")
    hashed = sum(reader.num_hashed for reader in times)
    if hashed:
        said.append(f"{hashed} times are '#####' (too long for sacct's column): they are not known.")
    if not any(reading.names_gpus for reading in source.readings):
        said.append("No line speaks of GPUs: this cluster does not record them, so num_gpus is unknown for all jobs.")
    if not source.has("JobID"):
        said.append("JobID was not exported: tasks of an array and parts of a heterogeneous job are jobs of their own.")
    return said


def _meta(source: Source, jobs: pl.DataFrame) -> dict[str, Any]:
    is_naive = any(reading.times.num_naive for reading in source.readings)
    certainty = "given" if source.zone else "assumed" if is_naive else "declared"
    names = [name for name in schema.JOBS if name.endswith("_time")]
    known = [jobs[name] for name in names if jobs[name].null_count() < jobs.height]
    first = source.window[0] or min((times.min() for times in known), default=None)  # type: ignore[type-var]
    last = source.window[1] or max((times.max() for times in known), default=None)  # type: ignore[type-var]
    return {
        "name": source.name,
        "source": "sacct",
        "licence": "the site's own",
        "time_zone": source.zone or "UTC",
        "time_zone_certainty": certainty,
        "window": tuple(None if time is None else time.isoformat() for time in (first, last)),  # type: ignore[union-attr]
        "coverage": COVERAGE if source.exports else None,
    }


def _node_rows(source: Source) -> dict[str, Any]:
    files = [(path, count_records(path)) for path in (*source.nodes, *source.partitions)]
    rows = sum(num for _, num in files)
    listed = [{"name": path.name, "size": path.stat().st_size, "rows": num} for path, num in files]
    return {"rows_in": rows, "rows_used": rows, "files": listed}


def _read_all_nodes(paths: list[Path]) -> pl.DataFrame:
    tables = [read_nodes(path) for path in paths]
    return pl.concat([schema.empty_table("nodes"), *tables]).unique("node_id", keep="first", maintain_order=True)


def _report(
    source: Source, done: Assembled, finished: Finished, *, rejects: pl.DataFrame, notes: list[str]
) -> LoadReport:
    beside = _node_rows(source)
    reasons = rejects.group_by("reason").len().sort("reason")
    flags = finished.jobs.select(pl.col("flags").explode().drop_nulls()).to_series().value_counts().sort("flags")
    files = [{"name": export.name, "size": export.size, "rows": export.rows_in} for export in source.exports]
    return LoadReport(
        rows_in=sum(export.rows_in for export in source.exports) + beside["rows_in"],
        # Counted from the tables, not as the difference, so that a lost line is seen.
        rows_used=finished.jobs.height - done.rows_expanded + done.rows_merged + beside["rows_used"],
        rows_set_aside=rejects.height,
        rows_merged=done.rows_merged,
        rows_expanded=done.rows_expanded,
        num_jobs=finished.jobs.height,
        rejected_by_reason={str(reason): int(count) for reason, count in reasons.iter_rows()},
        flagged={str(flag): int(count) for flag, count in flags.iter_rows()},
        unknown_statuses=finished.unknown_statuses,
        files=[*files, *beside["files"]],
        notes=[*notes, *(note for export in source.exports for note in export.notes), *finished.notes],
    )


def _texts(rejects: pl.DataFrame, source: Source) -> pl.DataFrame:
    """Rejects in order, with the text of lines that were set aside after reading."""
    for export in source.exports:
        blank = (pl.col("file") == export.name) & pl.col("raw").is_null()
        texts = export.raw_text(rejects.filter(blank)["line"].drop_nulls().to_list())
        if texts:
            found = pl.col("line").replace_strict(texts, default=None, return_dtype=pl.String)
            rejects = rejects.with_columns(raw=pl.when(blank).then(found).otherwise("raw"))
    return rejects.sort("file", "line", "reason", nulls_last=True)


def _named(table: pl.DataFrame, ids: pl.DataFrame, name: str) -> pl.DataFrame:
    """A table beside the jobs with job ids, in the schema's columns and order of the ids."""
    named = table.join(ids, on=JOB, how="inner", nulls_equal=True, maintain_order="left")
    keys = schema.job_order(named["job_id"])
    rank = named["attempt"] if "attempt" in named.columns else pl.Series([0] * named.height)
    order = keys.with_columns(rank.alias("rank")).with_row_index("row").sort("number", "text", "rank")["row"]
    return named.select(pl.col(column).cast(dtype) for column, dtype in schema.TABLES[name].items())[order]
