"""From all that was read of a Slurm cluster to its Trace, with the report of what became of every line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.loaders.finish import Finished, finish_jobs
from analysis.loaders.slurm.assemble import JOB, Assembled, assemble
from analysis.loaders.slurm.gathered import Source
from analysis.loaders.slurm.grammar import over_distinct
from analysis.loaders.slurm.nodes import count_records, read_nodes
from analysis.loaders.slurm.records import TIMES
from analysis.loaders.slurm.results import attempts_table, rejects_table, usage_table
from analysis.trace import LoadReport, Trace, TraceMeta

__all__ = ["conclude_trace", "name_jobs"]

COVERAGE: Final = (
    "jobs in the states and the window that sacct was asked for; jobs that ended before it, were submitted after it, "
    "or were never eligible to start (held) are missing"
)


#: Columns of records that end here.
GATHERED: Final = (
    *("key", "allowed", "run_s", "suspended_s", "restarts", "hosts", "never", "ran"),
    *("_problem", "_file", "_line"),
)


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
    job_ids = name_jobs(done.jobs)
    if not _records_gpus(source):
        done.jobs, done.runs = (
            table.with_columns(num_gpus=pl.lit(None, dtype=pl.Float64)) for table in (done.jobs, done.runs)
        )
    tables = {
        "nodes": nodes,
        "attempts": attempts_table(done.runs, job_ids),
        "usage": usage_table(done.measured, job_ids, num_gpus=done.jobs["num_gpus"]),
        "rejects": rejects_table(source.exports, done),
    }
    # Of all that was gathered only the jobs are needed from here on, and it is large.
    done.runs, done.measured = done.runs.clear(), done.measured.clear()
    done.jobs = done.jobs.with_columns(job_ids.alias("job_id"))
    partial = _partial(source, done)
    snapshot = _snapshot(source, partial, notes)
    finished = finish_jobs(partial, snapshot=snapshot, file=source.exports[0].name)
    del partial
    tables["rejects"] = pl.concat([tables["rejects"], finished.rejects])
    report = _report(source, done, finished, rejects=tables["rejects"], notes=notes)
    return Trace(finished.jobs, meta=_replace(_meta(source, finished.jobs), report), tables=tables)


def _replace(meta: dict[str, Any], report: LoadReport) -> TraceMeta:
    return TraceMeta(**meta, load_report=report)


def _records_gpus(source: Source) -> bool:
    """Whether any line speaks of GPUs; else the cluster does not record them, and nothing is known of any job's."""
    return any(reading.names_gpus for reading in source.readings)


def _partial(source: Source, done: Assembled) -> pl.DataFrame:
    """Columns for ``finish_jobs``; a time that no export has is left out, so that nothing is read into it."""
    jobs, done.jobs = done.jobs, done.jobs.clear()
    absent = [name for raw, name in TIMES.items() if not source.has(raw)]
    never = pl.col("never")
    # Sorted while it is small: the finished table then need not be copied.
    jobs = schema.sort_jobs(jobs)
    start = source.window[0]
    types = over_distinct(jobs["allowed"], x=pl.col("allowed").cast(pl.String).str.split(","))["x"]
    extra = [pl.col("extra").struct.field(name).cast(pl.String) for name in jobs["extra"].struct.fields]
    steps = [pl.col("num_steps")] if "num_steps" in jobs.columns else []
    return jobs.with_columns(
        types.alias("allowed_gpu_types"),
        extra=pl.struct(*extra, *steps),
        censoring=pl.when(never).then(pl.lit("never_started")).cast(schema.CENSORING),
        duration_s=pl.when(~never).then("run_s"),
        start_time=pl.when(~never).then("start_time"),
        gpu_type=pl.when(~never).then("gpu_type"),
        flag_carry_in=(pl.col("start_time") < start) if start else pl.lit(value=False),
    ).drop(*GATHERED, *absent, "num_steps", strict=False)


def name_jobs(jobs: pl.DataFrame) -> pl.Series:
    """The id that sacct shows; with the cluster before it if there are several, and, where users share it, more."""
    several = jobs["cluster"].drop_nulls().n_unique() > 1
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
    if not _records_gpus(source):
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
    source: Source, done: Assembled, finished: Finished[pl.DataFrame], *, rejects: pl.DataFrame, notes: list[str]
) -> LoadReport:
    beside = _node_rows(source)
    reasons = rejects.group_by("reason").len().sort("reason")
    files = [{"name": export.name, "size": export.size, "rows": export.rows_in} for export in source.exports]
    return LoadReport(
        rows_in=sum(export.rows_in for export in source.exports) + beside["rows_in"],
        # Counted from the tables, not as the difference, so that a lost line is seen.
        rows_used=finished.num_jobs - done.rows_expanded + done.rows_merged + beside["rows_used"],
        rows_set_aside=rejects.height,
        rows_merged=done.rows_merged,
        rows_expanded=done.rows_expanded,
        num_jobs=finished.num_jobs,
        rejected_by_reason={str(reason): int(count) for reason, count in reasons.iter_rows()},
        flagged=finished.flagged,
        unknown_statuses=finished.unknown_statuses,
        files=[*files, *beside["files"]],
        notes=[*notes, *(note for export in source.exports for note in export.notes), *finished.notes],
    )
