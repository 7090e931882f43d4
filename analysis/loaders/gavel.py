"""Job traces of the Gavel simulator (OSDI 2020), in both of its layouts.

Source: https://github.com/stanford-futuredata/gavel (``*.trace``, ``simulation_throughputs.json``). Licence: MIT.
Period: not dated. Zone: none; times are seconds from the trace's start (seconds since 1970 are told by their size).
A row is a job. Tab-separated, without a header: ten fields (the present form) or seven (``msr/*.trace``, made of
Philly), in which arrival and number of GPUs have changed places; told by the number of fields.

Assumptions:

* There are no ids: the number of the line is the job's id. Lines may come in any order of arrival.
* A trace has no durations, only steps. With the throughputs (a file beside, or ``throughputs=PATH``) the duration is
  ``total_steps`` / steps per second of that class, alone and consolidated, on its number of GPUs of ``reference``; so
  ``gpu_type`` is that type. Without them, or for a class that was not measured, the duration stays null and is counted.
* A job that some type was measured to run at 0 steps per second may run on the others only (``allowed_gpu_types``).
* -1 as SLO means none. Users, states, starts and ends are not in the source.

Columns left behind: none; command, directory, steps, priority and SLO are in ``extra``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import polars as pl

from analysis.errors import BadFileError, UnknownNameError
from analysis.loaders.cells import Cell, integer, number, read_cells, text
from analysis.loaders.delimited import Delimited, read_delimited
from analysis.loaders.files import open_bytes, peek, readable
from analysis.loaders.finish import finish_trace
from analysis.loaders.gavel_throughput import is_throughputs, read_throughputs
from analysis.loaders.loading import assign_roles
from analysis.loaders.origins import clock_of
from analysis.loaders.registry import loader
from analysis.loaders.rows import LINE
from analysis.loaders.swf_lines import is_number
from analysis.trace import Trace, TraceMeta

__all__ = ["read_gavel"]

META: Final = TraceMeta(
    name="gavel",
    source="https://github.com/stanford-futuredata/gavel",
    licence="MIT",
    citation="D. Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads, "
    "OSDI 2020",
)
PRESENT: Final = (
    "job_type",
    "command",
    "working_directory",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "SLO",
    "arrival_time",
)
OLD: Final = (
    "job_type",
    "command",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "arrival_time",
    "scale_factor",
)
LAYOUTS: Final = {len(PRESENT): PRESENT, len(OLD): OLD}
NUMBERS: Final = ("total_steps", "scale_factor", "arrival_time")
COLUMNS: Final = {
    "workload": text("job_type"),
    "submit_time": number("arrival_time"),
    "num_gpus": integer("scale_factor"),
}
EXTRA: Final = {"total_steps": number("total_steps"), "priority_weight": number("priority_weight")}


def _layout(first: str) -> tuple[str, ...] | None:
    """The layout of a trace by its first line; null if it is none."""
    fields = first.rstrip("\r\n").split("\t")
    names = LAYOUTS.get(len(fields))
    if names is None:
        return None
    row = dict(zip(names, fields, strict=True))
    return names if all(is_number(row[name]) for name in NUMBERS) else None


def _is_trace(path: Path) -> bool:
    lines = [line for line in peek(path).lstrip("\ufeff").splitlines() if line.strip()]
    return any(_layout(line) for line in lines[:3])


@loader(
    "gavel",
    summary="Gavel simulator job traces (10 or 7 fields), with its throughputs for durations",
    files="one .trace (tab-separated, no header) and, for durations, simulation_throughputs.json",
    sniff=lambda paths: 0.95 * any(_is_trace(path) for path in paths),
)
def read_gavel(
    paths: Sequence[Path],
    *,
    timezone: str | None = None,
    name: str | None = None,
    throughputs: str | Path | None = None,
    reference: str = "V100",
) -> Trace:
    """Read a Gavel trace.

    Parameters
    ----------
    paths : sequence of Path
        The trace and, optionally, the throughputs, in any order.
    timezone : str, optional
        Recorded only.
    name : str, optional
        Name of the trace, by default the file's.
    throughputs : path, optional
        The throughputs, if they are not among ``paths``.
    reference : str, default "V100"
        The GPU type on which durations are stated.

    Returns
    -------
    Trace
        Jobs only.

    Raises
    ------
    BadFileError
        If the lines are of neither layout, or arrivals count from different origins.
    UnknownNameError
        If the throughputs do not know the reference type.
    """
    roles = {"throughputs": is_throughputs, "trace": _is_trace}
    files = assign_roles(paths, main="trace", roles=roles, loader="gavel")
    raw = _open(files["trace"])
    partial = read_cells(raw.frame, COLUMNS, extra=EXTRA | _slo(raw)).collect()
    partial = partial.with_columns(job_id=pl.col(LINE).cast(pl.String))
    clock = clock_of(partial["submit_time"], path=raw.path)
    notes = ["Ids are line numbers."]
    table = throughputs or files.get("throughputs")
    if table is None:
        notes.append("No throughputs were given, so durations are null: give simulation_throughputs.json too.")
    else:
        partial, said = _with_durations(partial, read_throughputs(table), reference=reference.upper())
        notes += said
    meta = TraceMeta(
        name=name or re.sub(r"(\.trace)?(\.(gz|bz2|xz|zst))?$", "", raw.path.name) or META.name,
        source=META.source,
        licence=META.licence,
        citation=META.citation,
        time_zone=timezone or META.time_zone,
        time_zone_certainty="given" if timezone else "none",
        clock=clock,
    )
    return finish_trace(partial, meta=meta, raws=[raw], notes=notes)


def _open(path: Path) -> Delimited:
    with readable(path), open_bytes(path) as stream:
        first = next((line for line in stream if line.strip()), b"").decode("utf-8-sig", errors="replace")
        num_fields = len(first.rstrip("\r\n").split("\t"))
        if num_fields not in LAYOUTS:
            # If the file is damaged, that is what is wrong with it.
            stream.read()
    if num_fields not in LAYOUTS:
        raise BadFileError(
            path,
            kind="wrong_columns",
            found=f"{num_fields} fields in the first line",
            expected=f"{len(PRESENT)} fields ({', '.join(PRESENT)}) or {len(OLD)} ({', '.join(OLD)}), tab-separated",
            fix="Is it a Gavel trace?",
        )
    return read_delimited(path, separator="\t", names=LAYOUTS[num_fields])


def _slo(raw: Delimited) -> dict[str, Cell]:
    if "SLO" not in raw.columns:
        return {}
    cell = number("SLO")
    return {"SLO": Cell("SLO", pl.when(cell.value >= 0).then(cell.value), cell.is_unreadable)}


def _with_durations(jobs: pl.DataFrame, throughputs: pl.DataFrame, *, reference: str) -> tuple[pl.DataFrame, list[str]]:
    """Durations on the reference type, and where a job may run; and what is to be said."""
    known = throughputs["gpu_type"].unique().to_list()
    if reference not in known:
        raise UnknownNameError(kind="GPU type of the throughputs", found=reference, known=known)
    alone = throughputs.filter(pl.col("colocated_with").is_null() & pl.col("is_consolidated"))
    can = pl.col("steps_per_s") > 0
    per_class = alone.group_by("job_class", "num_gpus").agg(
        _rate=pl.col("steps_per_s").filter((pl.col("gpu_type") == reference) & can).first(),
        _types=pl.col("gpu_type").filter(can).sort(),
        _not_all=(~can).any(),
    )
    joined = jobs.join(
        per_class,
        left_on=["workload", "num_gpus"],
        right_on=["job_class", "num_gpus"],
        how="left",
        maintain_order="left",
    )
    timed = joined.with_columns(
        duration_s=pl.col("extra").struct.field("total_steps") / pl.col("_rate"),
        allowed_gpu_types=pl.when("_not_all").then("_types"),
        gpu_type=pl.when(pl.col("_rate").is_not_null()).then(pl.lit(reference)),
    ).drop("_rate", "_types", "_not_all")
    notes = [f"Durations are steps / measured steps per second on {reference}, alone and consolidated."]
    missing = timed.filter(pl.col("duration_s").is_null())
    if missing.height:
        classes = (
            missing.select(pl.format("{} on {} GPUs", "workload", "num_gpus")).to_series().drop_nulls().unique().sort()
        )
        notes.append(f"{missing.height} jobs of classes that were not measured have none: {', '.join(classes[:5])}.")
    return timed, notes
