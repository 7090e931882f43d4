"""Workloads of the Chronus scheduler (SoCC 2021): jobs with deadlines, from a SenseTime cluster.

Source: https://github.com/S-Lab-System-Group/ChronusArtifact. Licence: not stated, so recorded as unknown. Period: not
dated; ``submit_time`` is minutes from the workload's start. Zone: none. A row is a job; each of the three mixes has
30,940.

Assumptions: ``submit_time`` and ``duration`` are minutes. ``user`` holds virtual clusters (``vc_…``): it becomes
``user`` and, where it begins with "vc", also ``vc``. ``model_name`` is ``workload``. States, starts and ends are not in
the source, so they are null.

Columns left behind: none; iterations, the deadlines (``expect_time_list``, ``expect_value_list``), ``interval``,
``best_effort`` and ``job_type`` are in ``extra``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from analysis.loaders.cells import integer, number, read_cells, text
from analysis.loaders.delimited import has_columns, read_delimited
from analysis.loaders.finish import finish_trace
from analysis.loaders.loading import assign_roles
from analysis.loaders.registry import loader
from analysis.trace import Trace, TraceMeta

__all__ = ["read_chronus"]

META: Final = TraceMeta(
    name="chronus",
    source="https://github.com/S-Lab-System-Group/ChronusArtifact",
    citation="W. Gao et al., Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs, SoCC 2021",
    clock="relative",
    coverage="a workload derived from a cluster's log, deadlines added",
)
SECONDS_PER_MINUTE: Final = 60.0
RAW: Final = ("job_id", "user", "num_gpu", "submit_time", "iterations", "model_name", "duration")
COLUMNS: Final = {
    "job_id": text("job_id"),
    "user": text("user"),
    "num_gpus": number("num_gpu"),
    "submit_time": number("submit_time", factor=SECONDS_PER_MINUTE),
    "workload": text("model_name"),
    "duration_s": number("duration", factor=SECONDS_PER_MINUTE),
}
EXTRA: Final = {
    "iterations": number("iterations"),
    "interval": number("interval"),
    "best_effort": integer("best_effort"),
}


def _is_workload(path: Path) -> bool:
    return has_columns(path, RAW)


@loader(
    "chronus",
    summary="Chronus workloads (minutes, deadlines, job types)",
    files=f"one CSV: {', '.join(RAW)}, interval, expect_time_list, expect_value_list, best_effort, job_type",
    sniff=lambda paths: float(any(_is_workload(path) for path in paths)),
)
def read_chronus(paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None) -> Trace:
    """Read a Chronus workload.

    Parameters
    ----------
    paths : sequence of Path
        The file.
    timezone : str, optional
        Recorded only: the times are relative.
    name : str, optional
        Name of the trace, by default "chronus".

    Returns
    -------
    Trace
        Jobs only.
    """
    path = assign_roles(paths, main="workload", roles={"workload": _is_workload}, loader="chronus")["workload"]
    raw = read_delimited(path, required=RAW)
    partial = read_cells(raw.frame, COLUMNS, extra=EXTRA)
    partial = partial.with_columns(vc=pl.when(pl.col("user").str.starts_with("vc")).then("user"))
    meta = replace(META, name=name or META.name)
    if timezone:
        meta = replace(meta, time_zone=timezone, time_zone_certainty="given")
    return finish_trace(partial, meta=meta, raws=[raw], notes=["Submission and duration are minutes in the source."])
