"""MIT Supercloud: the Slurm database's job table (``slurm-log.csv``, HPCA'22 ``scheduler_data.csv``) and GPU series.

Source: ``s3://mit-supercloud-dataset`` (anonymous), https://dcc.mit.edu. Licence: not stated in the sources read.
Period: 2021 (the HPCA'22 subset has relative times). Zone: times are epoch seconds, so instants; the site's zone, in
which hours and weekdays mean something, is assumed to be America/New_York.

A row is a record of Slurm's database, with its own numbers:

* ``state``: the low byte is the state (3 completed, 5 failed …), higher bits are flags; 1024 is the flag "requeued"
  on base 0: a run that another record of the job follows.
* ``tres_alloc``, ``tres_req``: ``id=count`` lists; 1 processors, 2 memory in MB, 4 nodes; from 1001 on the site's own:
  1001 is gpu:tesla, 1002 gpu:volta. GPUs are their sum; a row without any text leaves them unknown (null).
* ``timelimit``: minutes; 4294967295 is no limit, 4294967294 not set. ``mem_req``: MB; bit 63 means per processor. In
  files that hold it as a rounded float the bit has swallowed the number: then it is not known.
* ``time_start`` 0 with an end: cancelled in the queue. In the relative layout negative times are missing, 0 is a time.
* Rows of one ``id_job`` and one user are the runs of one job. Ids that two users have (in files that hold hashed ids
  as rounded floats) are two jobs, ``id/submission``.

``gpu/**/<job>-*.csv`` (100 ms samples) become ``usage_series`` and, per job, ``usage``; ``labelled_jobids.csv`` gives
``workload``. Columns left behind: ``*_dt``, ``service_time``, ``interarrival_time``, ``*_norm``, ``timelimit_clean``
(derived).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import polars as pl

from analysis.errors import UsageError
from analysis.loaders.cells import MISSING, Cell, number, read_cells, text
from analysis.loaders.delimited import Delimited, has_columns, read_delimited
from analysis.loaders.files import check_file, list_files
from analysis.loaders.finish import finish_trace
from analysis.loaders.jobless import finish_without_jobs
from analysis.loaders.mit_supercloud_gpus import FoundGpus, is_gpu_series, read_gpu_series
from analysis.loaders.mit_supercloud_tres import with_resources, with_states
from analysis.loaders.registry import loader
from analysis.loaders.rows import UNDECODABLE
from analysis.loaders.slurm.assemble import Assembled, assemble
from analysis.loaders.slurm.conclude import name_jobs
from analysis.loaders.slurm.results import attempts_table
from analysis.loaders.zones import BEYOND
from analysis.trace import Trace, TraceMeta

__all__ = ["read_mit_supercloud"]

META: Final = TraceMeta(
    name="mit_supercloud",
    source="https://dcc.mit.edu (s3://mit-supercloud-dataset)",
    licence="unknown",
    citation="S. Samsi et al., The MIT Supercloud Dataset, HPEC 2021, doi:10.1109/HPEC49654.2021.9622850",
    time_zone="America/New_York",
    time_zone_certainty="assumed",
)
RAW: Final = ("id_job", "id_user", "state", "time_submit", "time_start", "time_end", "timelimit", "tres_req")
NULLS: Final = (*MISSING, "\\N")
DERIVED: Final = (
    *("time_submit_dt", "time_eligible_dt", "time_start_dt", "time_end_dt", "service_time", "interarrival_time"),
    *("service_time_norm", "interarrival_time_norm", "timelimit_clean"),
)
#: Epoch seconds are above this, relative ones below.
YEAR_1980: Final = 315_532_800
NO_VAL: Final = 4_294_967_294


#: Slurm's "not set" and "infinite", where ids are meant.
NO_ID: Final = ("4294967294", "4294967295", "-1", "-2")


def _id(raw: str) -> Cell:
    """An id as text; one that went through a float loses its ".0"."""
    bare = pl.col(raw).str.strip_chars().str.strip_suffix(".0")
    return Cell(raw, pl.when(~bare.is_in([*NULLS, *NO_ID])).then(bare))


def _seconds(raw: str) -> Cell:
    """Seconds of this or the next centuries; what is later is unreadable."""
    cell = number(raw, missing=NULLS)
    is_beyond = (cell.value >= BEYOND.timestamp()).fill_null(value=False)
    unreadable = is_beyond if cell.is_unreadable is None else cell.is_unreadable | is_beyond
    return Cell(raw, pl.when(~is_beyond).then(cell.value), unreadable)


COLUMNS: Final = {
    "key": _id("id_job"),
    "user": _id("id_user"),
    "vc": text("partition", missing=("", "\\N")),
    "state": text("state", missing=NULLS),
    "submit_s": _seconds("time_submit"),
    "eligible_s": _seconds("time_eligible"),
    "start_s": _seconds("time_start"),
    "end_s": _seconds("time_end"),
    "suspended_s": number("time_suspended", missing=NULLS),
    "limit": number("timelimit", missing=NULLS),
    "hosts": text("nodelist", missing=("", "[]", "\\N", "None assigned")),
    "nodes_alloc": number("nodes_alloc", missing=NULLS),
    "cpus_req": number("cpus_req", missing=NULLS),
    "mem_req": text("mem_req", missing=NULLS),
    "tres_alloc": text("tres_alloc", missing=("", "\\N")),
    "tres_req": text("tres_req", missing=("", "\\N")),
    "gres_alloc": text("gres_alloc", missing=("", "\\N")),
    "gres_req": text("gres_req", missing=("", "\\N")),
}
KEPT: Final = {
    **{name: _id(name) for name in ("id_array_job", "id_array_task", "kill_requid")},
    **{name: text(name, missing=("", "\\N")) for name in ("constraints", "gres_used", "job_type")},
}


@dataclass
class _Files:
    """The files by what they are."""

    logs: list[Path] = field(default_factory=list)
    labels: list[Path] = field(default_factory=list)
    gpus: list[Path] = field(default_factory=list)

    @classmethod
    def sort(cls, paths: Sequence[Path]) -> _Files:
        """Tell them apart by their headers; of folders the other files are left alone."""
        files = cls()
        for path in list_files(paths):
            if has_columns(path, RAW):
                files.logs.append(path)
            elif has_columns(path, ("id_job", "model")):
                files.labels.append(path)
            elif is_gpu_series(path):
                files.gpus.append(path)
            elif path in set(paths):
                # Reading it as the log says what is wrong with it.
                files.logs.append(path)
        if not files.logs and not files.gpus:
            check_file(Path(paths[0]))
            files.logs = list(paths)
        for kind, found in (("job tables", files.logs), ("lists of labels", files.labels)):
            if len(found) > 1:
                names = ", ".join(map(str, found[:6]))
                msg = f"load mit_supercloud: found several {kind} ({names}); give one of them by name."
                raise UsageError(msg)
        return files


@loader(
    "mit_supercloud",
    summary="MIT Supercloud: the Slurm job table, GPU series, labels",
    files=f"slurm-log.csv or scheduler_data.csv: {', '.join(RAW)}; gpu/**/<job>-*.csv, labelled_jobids.csv beside it",
    sniff=lambda paths: max(
        (1.0 if has_columns(path, RAW) else 0.8 if is_gpu_series(path) else 0.0 for path in paths), default=0.0
    ),
)
def read_mit_supercloud(paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None) -> Trace:
    """Read the MIT Supercloud's job table, with what lies beside it.

    Parameters
    ----------
    paths : sequence of Path
        The files, or a folder with them.
    timezone : str, optional
        Zone in which hours mean something, instead of America/New_York; the times are instants already.
    name : str, optional
        Name of the trace, by default "mit_supercloud".

    Returns
    -------
    Trace
        Jobs, attempts, usage and usage_series (on disk) of the GPU files.
    """
    files = _Files.sort(paths)
    meta = replace(META, name=name or META.name)
    if timezone:
        meta = replace(meta, time_zone=timezone, time_zone_certainty="given")
    gpus = read_gpu_series(files.gpus)
    series = {"usage_series": gpus.table} if gpus.table else {}
    if not files.logs:
        trace = finish_without_jobs(
            meta=replace(meta, window=gpus.window), raws=gpus.raws, tables={"usage": gpus.usage}
        )
        return trace.with_tables(**series)
    raw = read_delimited(files.logs[0], required=RAW)
    labels = [read_delimited(path, required=("id_job", "model")) for path in files.labels]
    trace = _read_log(raw, labels, gpus, meta=meta)
    return trace.with_tables(**series) if series else trace


def _read_log(raw: Delimited, labels: list[Delimited], gpus: FoundGpus, *, meta: TraceMeta) -> Trace:
    cells = read_cells(raw.frame, COLUMNS, extra=KEPT, left_behind=DERIVED).collect()
    records, is_relative = _records(cells)
    done = assemble([records], _no_steps())
    job_ids = name_jobs(done.jobs)
    jobs = _partial(done.jobs.with_columns(job_ids.alias("job_id")))
    if labels:
        jobs = _with_labels(jobs, done.jobs["key"], labels[0])
    rejects = done.rejects.with_columns(file=pl.lit(raw.name))
    attempts = attempts_table(done.runs.with_columns(hosts=_host_lists(done.runs["hosts"])), job_ids)
    return finish_trace(
        jobs,
        meta=replace(meta, clock="relative", time_zone_certainty="none") if is_relative else meta,
        raws=[raw, *labels, *gpus.raws],
        tables={"attempts": attempts, "usage": gpus.usage, "rejects": rejects},
        rows_merged=done.rows_merged,
        notes=_notes(done, gpus, is_relative=is_relative),
    )


def _records(cells: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Records as `slurm.assemble` takes them, and whether the times are relative."""
    last = cells["submit_s"].max()
    is_relative = isinstance(last, float) and last < YEAR_1980
    limit = pl.col("limit")
    lowest = 0.0 if is_relative else 1.0
    times = {
        f"{name}_time": pl.when(pl.col(f"{name}_s") >= lowest)
        .then(pl.col(f"{name}_s") * 1e6)
        .cast(pl.Datetime("us", "UTC"))
        for name in ("submit", "eligible", "start", "end")
    }
    table = with_resources(with_states(_with_absent(cells))).with_columns(
        **times,
        time_limit_s=pl.when(limit.is_between(1, NO_VAL - 1)).then(limit * 60),
        _file=pl.lit(0, dtype=pl.UInt16),
        cluster=pl.lit(None, dtype=pl.String),
    )
    return _with_runs(table), is_relative


def _with_absent(cells: pl.DataFrame) -> pl.DataFrame:
    """All columns, those that this layout lacks as null."""
    absent = [name for name in COLUMNS if name not in cells.columns]
    texts = ("hosts", "mem_req", "tres_alloc", "tres_req", "gres_alloc", "gres_req", "vc")
    table = cells.with_columns(
        pl.lit(None, dtype=pl.String if name in texts else pl.Float64).alias(name) for name in absent
    )
    return table if UNDECODABLE in table.columns else table.with_columns(pl.lit(value=False).alias(UNDECODABLE))


def _with_runs(table: pl.DataFrame) -> pl.DataFrame:
    no_start = pl.col("start_time").is_null()
    span = (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / 1e6
    is_live = pl.col("status").is_in(["running", "suspended"]).fill_null(value=False)
    never = no_start & ~is_live
    return table.with_columns(
        run_s=span - pl.col("suspended_s").fill_null(0),
        never=never,
        ran=~never,
        restarts=pl.lit(None, dtype=pl.Float64),
        end_time=pl.when(~is_live).then("end_time"),
    ).drop("state", "submit_s", "eligible_s", "start_s", "end_s", "limit")


def _no_steps() -> pl.DataFrame:
    floats = dict.fromkeys(("max_rss_mib", "gpu_util", "gpu_mem_mib"), pl.Float64())
    return pl.DataFrame(schema={"key": pl.String(), "cluster": pl.String(), **floats, "num_steps": pl.Int64()})


def _partial(jobs: pl.DataFrame) -> pl.DataFrame:
    never = pl.col("never")
    return jobs.with_columns(
        duration_s=pl.when(~never).then("run_s"),
        censoring=pl.when(never).then(pl.lit("never_started")),
        gpu_type=pl.when(~never).then("gpu_type"),
    ).drop("key", "run_s", "suspended_s", "restarts", "never", "ran", "hosts", "_file")


def _host_lists(hosts: pl.Series) -> pl.Series:
    """Python's list literals (``['r1-n1', 'r2-n1']``) as host lists."""
    return hosts.str.replace_all(r"[\[\]' ]", "").alias("hosts")


def _with_labels(jobs: pl.DataFrame, keys: pl.Series, labels: Delimited) -> pl.DataFrame:
    cells = read_cells(labels.frame, {"key": _id("id_job"), "workload": text("model")}).collect()
    known = cells.select("key", "workload").drop_nulls().unique("key", keep="first", maintain_order=True)
    model = keys.alias("key").to_frame().join(known, on="key", how="left", maintain_order="left")["workload"]
    return jobs.with_columns(model)


def _notes(done: Assembled, gpus: FoundGpus, *, is_relative: bool) -> list[str]:
    shared = done.jobs["key"].n_unique()
    notes = [f"{done.jobs.height} jobs of {shared} distinct ids, {done.runs.height} runs."]
    if shared < done.jobs.height:
        notes.append("Ids that two users have are two jobs, named id/submission.")
    if is_relative:
        notes.append("Times are relative seconds: hours and dates mean nothing.")
    known = set(done.jobs["key"])
    strays = gpus.usage.filter(~pl.col("job_id").is_in(list(known))).height
    if strays:
        notes.append(f"{strays} measured jobs are not in the job table.")
    return [*notes, *done.notes]
