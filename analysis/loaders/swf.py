"""Logs of the Parallel Workloads Archive in the Standard Workload Format (SWF 2.2).

Source: https://www.cs.huji.ac.il/labs/parallel/workload/ and any export in that format. Licence: on the page of the
log; the archive asks to acknowledge it and the log's donor (the header's ``Acknowledge`` becomes the citation).
Period: ``UnixStartTime`` of the header and the seconds of the rows. Zone: ``TimeZoneString`` of the header (declared);
``TimeZone``, deprecated and known to be wrong, is not used. Without ``UnixStartTime`` the clock is relative. A row is a
job; lines that begin with ``;`` are the header and blank lines are nothing, so neither are rows.

Assumptions:

* -1, and any other negative number, means missing. Processors are the allocated ones if there are any, else the
  requested ones.
* SWF knows no GPUs. Processors become ``num_cpus`` and ``num_gpus`` is 0, so a GPU replay leaves these jobs out. With
  ``processors_as_gpus=True`` a processor counts as a GPU (and ``num_cpus`` is unknown): the way to replay such a log.
* Status 1 is completed, 0 failed, 5 cancelled, -1 not known. 2, 3 and 4 mark pieces of a job that ran in several: they
  become attempts of the job's own line; where it has none, the job is put together from its pieces.
* A cancelled job that ran on no processor for no time never started; what it waited is in ``extra``. A run of 0 s on
  some processor is a run.
* The queue is the VC, by its name in the header if it has one, else the partition; the executable's number is the
  job's name, the nearest thing that SWF has; the group is the account.
* ``mem_gib`` is what was requested, kB (of 1024 bytes) per processor times the processors.
* ``MaxNodes`` and ``MaxProcs`` make the nodes, if the one divides the other.

Columns left behind: none; what has no place is in ``extra``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.errors import BadFileError
from analysis.loaders.cells import Cell, number, read_cells, text
from analysis.loaders.files import peek
from analysis.loaders.finish import finish_trace
from analysis.loaders.loading import assign_roles
from analysis.loaders.origins import SMALLEST_EPOCH_S, clock_of
from analysis.loaders.registry import loader
from analysis.loaders.rows import LINE
from analysis.loaders.swf_lines import FIELDS, NUMBERS, Header, is_number, read_lines
from analysis.loaders.swf_pieces import fold_pieces
from analysis.trace import Trace, TraceMeta

__all__ = ["read_swf"]

KB_TO_GIB: Final = 1 / 1024**2
STATUSES: Final = {"1": "completed", "0": "failed", "5": "cancelled"}
#: More nodes than any machine has: the header is wrong.
MOST_NODES: Final = 1_000_000


def _known(raw: str, *, is_text: bool) -> Cell:
    """A number that is not negative."""
    cell = number(raw) if is_text else Cell(raw, pl.col(raw))
    return Cell(raw, pl.when(cell.value.is_finite() & (cell.value >= 0)).then(cell.value), cell.is_unreadable)


def _cells(dtypes: Mapping[str, pl.DataType]) -> dict[str, Cell]:
    numbers = {raw: _known(raw, is_text=dtypes[raw] == pl.String()) for raw in NUMBERS}
    return numbers | {canonical: text(raw, missing=("", "-1")) for canonical, raw in NAMES.items()}


NAMES: Final = {
    "job_id": "job_number",
    "user": "user_id",
    "account": "group_id",
    "job_name": "executable",
    "queue": "queue",
    "partition": "partition",
    "preceding_job": "preceding_job",
}
EXTRA: Final = (
    "wait_time",
    "allocated_processors",
    "requested_processors",
    "cpu_time",
    "used_memory",
    "partition",
    "preceding_job",
    "think_time",
)


def _certainty(path: Path) -> float:
    lines = [line.strip() for line in peek(path).lstrip("\ufeff").splitlines()]
    rows = [line.split() for line in lines if line and not line.startswith(";")]
    has_header = any(re.match(r";\s*(UnixStartTime|MaxProcs|MaxNodes|MaxJobs|Version)\s*:", line) for line in lines)
    if not rows:
        return 0.8 if has_header else 0.0
    is_row = len(rows[0]) == len(FIELDS) and all(is_number(field) for field in rows[0])
    return (1.0 if has_header else 0.9) if is_row else 0.0


def _sniff(paths: Sequence[Path]) -> float:
    return max((_certainty(path) for path in paths), default=0.0)


@loader(
    "swf",
    summary="Parallel Workloads Archive logs in the Standard Workload Format 2.2",
    files="one .swf file: 18 numbers a line, header lines with ';'",
    sniff=_sniff,
)
def read_swf(
    paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None, processors_as_gpus: bool = False
) -> Trace:
    """Read a log in the Standard Workload Format.

    Parameters
    ----------
    paths : sequence of Path
        The file, plain or compressed.
    timezone : str, optional
        Zone in which hours and weekdays mean something, instead of the header's.
    name : str, optional
        Name of the trace, by default the file's.
    processors_as_gpus : bool, default False
        Take processors for GPUs, to replay a log of a machine without GPUs.

    Returns
    -------
    Trace
        Jobs; nodes if the header tells their size; attempts if jobs ran in pieces; usage if CPU time is known.

    Raises
    ------
    BadFileError
        If no line has 18 numbers, or times count from different origins.
    """
    path = assign_roles(paths, main="log", roles={"log": lambda p: _certainty(p) > 0}, loader="swf")["log"]
    raw, header = read_lines(path)
    if raw.rows_in and raw.rejects.height == raw.rows_in:
        found, fix = "no line of 18 fields", "Is it the right file?"
        raise BadFileError(path, kind="wrong_columns", found=found, expected="18 numbers a line (SWF)", fix=fix)
    cells = read_cells(raw.frame, _cells(raw.frame.collect_schema())).collect()
    start_s, clock, notes = _origin(cells["submit_time"], header, path)
    folded = fold_pieces(_status(cells))
    jobs = _jobs(folded.jobs, header, start_s=start_s, processors_as_gpus=processors_as_gpus)
    zone, certainty, said = _zone(header, timezone)
    meta = TraceMeta(
        name=name or re.sub(r"(\.swf)?(\.(gz|bz2|xz|zst))?$", "", path.name),
        source=header.first("Computer") or "https://www.cs.huji.ac.il/labs/parallel/workload/",
        licence="see the log's page in the Parallel Workloads Archive",
        citation="; ".join(header.all("Acknowledge")),
        time_zone=zone,
        time_zone_certainty=certainty,
        clock=clock,
    )
    attempts = folded.attempts(start_s=start_s, processors_as_gpus=processors_as_gpus)
    tables = {"nodes": _nodes(header, processors_as_gpus=processors_as_gpus), "attempts": attempts}
    meaning = "GPUs (processors_as_gpus)" if processors_as_gpus else "CPUs; processors_as_gpus=true takes them for GPUs"
    return finish_trace(
        jobs,
        meta=meta,
        raws=[raw],
        tables={**tables, "usage": _usage(jobs)},
        rows_merged=folded.num_merged,
        notes=[f"Processors are {meaning}.", *notes, *said],
        statuses=STATUSES,
    )


def _origin(submits: pl.Series, header: Header, path: Path) -> tuple[float, Any, list[str]]:
    """What is added to times, the clock, and what is to be said."""
    clock = clock_of(submits, path=path)
    stated = header.first("UnixStartTime")
    start_s = float(stated) if stated and is_number(stated) else 0.0
    if clock == "absolute":
        return 0.0, clock, ["Submit times count from 1970 already: UnixStartTime is not added."]
    if SMALLEST_EPOCH_S <= start_s < 1e11:
        return start_s, "absolute", []
    said = f"; it says {stated!r}" if stated else ""
    return 0.0, clock, [f"The header has no UnixStartTime{said}: times count from the log's start."]


def _zone(header: Header, given: str | None) -> tuple[str, Any, list[str]]:
    if given:
        return given, "given", []
    stated = header.zone()
    if stated:
        return stated, "declared", []
    said = header.first("TimeZoneString")
    return "UTC", "none", [f"The header names no known time zone{f' ({said!r})' if said else ''}: hours are UTC's."]


def _status(cells: pl.DataFrame) -> pl.DataFrame:
    # "1" and "1.0" are the same word.
    code = pl.col("status").cast(pl.Int64, strict=False)
    word = pl.when(code == pl.col("status")).then(code.cast(pl.String)).otherwise(pl.col("status").cast(pl.String))
    return cells.with_columns(status_raw=word).drop("status")


def _jobs(cells: pl.DataFrame, header: Header, *, start_s: float, processors_as_gpus: bool) -> pl.DataFrame:
    processors = pl.coalesce(pl.when(pl.col("allocated_processors") > 0).then("allocated_processors"), *_requested())
    idle = pl.col("allocated_processors").fill_null(0) == 0
    never = (pl.col("status_raw") == "5") & idle & (pl.col("run_time").fill_null(0) == 0)
    ran = ~never.fill_null(value=False)
    start = pl.when(ran).then(pl.col("submit_time") + pl.col("wait_time")) + start_s
    names = header.names("Queue")
    queue = pl.col("queue").replace(list(names), list(names.values())) if names else pl.col("queue")
    return cells.select(
        LINE,
        "_problem",
        "job_id",
        "user",
        "account",
        "job_name",
        "status_raw",
        pl.struct(EXTRA).alias("extra"),
        vc=pl.coalesce(queue, "partition"),
        submit_time=pl.col("submit_time") + start_s,
        start_time=start,
        end_time=pl.when("is_whole").then(start + pl.col("span_time")),
        duration_s=pl.when(ran).then("run_time"),
        num_cpus=pl.lit(None, dtype=pl.Float64) if processors_as_gpus else processors,
        num_gpus=processors if processors_as_gpus else pl.lit(0.0),
        mem_gib=pl.col("requested_memory") * pl.coalesce(*_requested(), processors) * KB_TO_GIB,
        time_limit_s="requested_time",
        num_attempts="num_pieces",
        censoring=pl.when(~ran).then(pl.lit("never_started")),
        cpu_utilization_mean=pl.when(pl.col("run_time") > 0).then(pl.col("cpu_time") / pl.col("run_time")),
    )


def _requested() -> list[pl.Expr]:
    return [pl.when(pl.col("requested_processors") > 0).then("requested_processors")]


def _usage(jobs: pl.DataFrame) -> pl.DataFrame:
    known = jobs.filter(pl.col("cpu_utilization_mean").is_not_null() & pl.col("_problem").is_null())
    columns = [
        (pl.col(name) if name in known.columns else pl.lit(None, dtype=dtype)).alias(name)
        for name, dtype in schema.USAGE.items()
        if name != "mem_gib_max"
    ]
    return known.select(LINE, *columns, mem_gib_max=pl.lit(None, dtype=pl.Float64))


def _nodes(header: Header, *, processors_as_gpus: bool) -> pl.DataFrame:
    nodes, processors = header.count("MaxNodes"), header.count("MaxProcs")
    if not nodes or not processors or processors % nodes or nodes > MOST_NODES:
        return schema.empty_table("nodes")
    each = processors // nodes
    width = len(str(nodes))
    return pl.DataFrame(
        {
            "node_id": [f"n{index:0{width}d}" for index in range(1, nodes + 1)],
            "num_gpus": [each if processors_as_gpus else 0] * nodes,
            "num_cpus": [None if processors_as_gpus else float(each)] * nodes,
        },
        schema_overrides={"num_cpus": pl.Float64},
    ).select(
        (pl.col(c) if c in ("node_id", "num_gpus", "num_cpus") else pl.lit(None)).cast(dtype).alias(c)
        for c, dtype in schema.NODES.items()
    )
