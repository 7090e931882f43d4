"""Workloads of Pollux, AdaptDL and Sia: which application is submitted when, at which size.

Source: https://github.com/petuum/adaptdl (Pollux, OSDI 2021) and https://github.com/siasosp23/artifacts (Sia, SOSP
2023); 160 jobs a file. Licence: Apache-2.0 (AdaptDL); the artifact states none, so it is recorded as unknown. Period:
not dated; ``time`` is seconds from the workload's start. Zone: none. A row is a job.

Assumptions: ``num_replicas`` are GPUs, one each (as both simulators have it), and the gang's tasks. There are no
durations: what an application still has to do depends on goodput tables that are not in the file. So ``duration_s`` is
null (a column ``duration``, if a variant has one, is taken as seconds) and a replay rejects the jobs as
``unknown_duration``. The application is ``workload``; users, states, starts and ends are not in the source.

Columns left behind: none; the batch size is in ``extra``.
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
from analysis.loaders.origins import clock_of
from analysis.loaders.registry import loader
from analysis.trace import Trace, TraceMeta

__all__ = ["read_pollux"]

META: Final = TraceMeta(
    name="pollux",
    source="https://github.com/siasosp23/artifacts and https://github.com/petuum/adaptdl",
    citation="A. Qiao et al., Pollux, OSDI 2021; S. Jayaram Subramanya et al., Sia, SOSP 2023",
    coverage="a sampled workload, not a cluster's log",
)
RAW: Final = ("name", "time", "application", "num_replicas", "batch_size")
COLUMNS: Final = {
    "job_id": text("name"),
    "submit_time": number("time"),
    "workload": text("application"),
    "num_gpus": integer("num_replicas"),
    "duration_s": number("duration"),
}
EXTRA: Final = {"batch_size": integer("batch_size")}


def _is_workload(path: Path) -> bool:
    return has_columns(path, RAW)


@loader(
    "pollux",
    summary="Pollux, AdaptDL and Sia workloads (applications and sizes, no durations)",
    files=f"one CSV: {', '.join(RAW)}",
    sniff=lambda paths: float(any(_is_workload(path) for path in paths)),
)
def read_pollux(paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None) -> Trace:
    """Read a workload of Pollux, AdaptDL or Sia.

    Parameters
    ----------
    paths : sequence of Path
        The file.
    timezone : str, optional
        Recorded only: the times are relative.
    name : str, optional
        Name of the trace, by default "pollux".

    Returns
    -------
    Trace
        Jobs only, without durations.
    """
    path = assign_roles(paths, main="workload", roles={"workload": _is_workload}, loader="pollux")["workload"]
    raw = read_delimited(path, required=RAW)
    partial = read_cells(raw.frame, COLUMNS, extra=EXTRA).collect().with_columns(num_tasks="num_gpus")
    meta = replace(META, name=name or META.name, clock=clock_of(partial["submit_time"], path=path))
    if timezone:
        meta = replace(meta, time_zone=timezone, time_zone_certainty="given")
    notes = ["A replica is a GPU."]
    if "duration_s" not in partial.columns:
        notes.append("The source has no durations: this workload can be characterized, not replayed.")
        partial = partial.with_columns(duration_s=pl.lit(None, dtype=pl.Float64))
    return finish_trace(partial, meta=meta, raws=[raw], notes=notes)
