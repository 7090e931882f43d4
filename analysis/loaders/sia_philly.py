"""Microsoft Philly jobs as the Sia artifact holds them: one line per job, no ids, no starts, no ends.

Source: https://github.com/siasosp23/artifacts (file ``philly_jobs.csv.gz``), made from
https://github.com/msr-fiddle/philly-traces. Licence: Philly data CC-BY-4.0. Period: submissions from 2017-09-04 to
2017-12-22 (naive local times). A row is a job; there are 82,247, and the file's last line is blank (set aside).

Zone: not stated. The fixed offset -08:00 ("Etc/GMT+8") is assumed, and not America/Los_Angeles: only naive times that
are equally spaced throughout reproduce the published replay figures (strict FIFO on 52 x 8 GPUs waits 493.61 h in the
mean; with the clock change of 2017-11-05 it would be 493.29 h). ``timezone`` overrides it.

Assumptions: the number of a row in the file (the first data row is 1) is the job's id, since there is no other; so
this trace depends on the order of the file's rows. ``duration`` is running time. Start and end are not in the source
and stay null with the flag ``times_assumed``; so are queueing delay, status and user. ``cluster`` is Philly's virtual
cluster, so it becomes ``vc``. No job is censored: each states its duration.

Columns left behind: ``gpu_time``, which is ``duration * num_gpus``; rows where it is not bear ``duration_mismatch``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from analysis.loaders.cells import integer, number, read_cells, text, time
from analysis.loaders.delimited import has_columns, read_delimited
from analysis.loaders.finish import finish_trace
from analysis.loaders.loading import assign_roles
from analysis.loaders.registry import loader
from analysis.loaders.rows import LINE
from analysis.trace import Trace, TraceMeta

__all__ = ["read_sia_philly"]

META: Final = TraceMeta(
    name="philly",
    source="https://github.com/siasosp23/artifacts",
    licence="CC-BY-4.0",
    citation="M. Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, ATC 2019",
    time_zone="Etc/GMT+8",
    time_zone_certainty="assumed",
    coverage="82,247 of Philly's 117,325 jobs; which were left out is not stated",
)
RAW: Final = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
COLUMNS: Final = {
    "submit_time": time("timestamp", "%Y-%m-%d %H:%M:%S"),
    "duration_s": number("duration"),
    "num_gpus": integer("num_gpus"),
    "vc": text("cluster"),
    "gpu_time": number("gpu_time"),
}
#: GPU-seconds; the file rounds to a tenth.
TOLERANCE_GPU_S: Final = 1.0


def _is_log(path: Path) -> bool:
    return has_columns(path, RAW)


@loader(
    "sia_philly",
    summary="Microsoft Philly, one line per job, as in the Sia artifact (no ids, no starts)",
    files=f"philly_jobs.csv.gz: {', '.join(RAW)}",
    sniff=lambda paths: max((float(_is_log(path)) for path in paths), default=0.0),
)
def read_sia_philly(paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None) -> Trace:
    """Read the Sia artifact's Philly jobs.

    Parameters
    ----------
    paths : sequence of Path
        The file, or a folder with it.
    timezone : str, optional
        Zone of the naive times, instead of the fixed offset -08:00.
    name : str, optional
        Name of the trace, by default "philly".

    Returns
    -------
    Trace
        Jobs only. Start, end, status, user and queueing delay are null.
    """
    log = assign_roles(paths, main="log", roles={"log": _is_log}, loader="sia_philly")["log"]
    raw = read_delimited(log, required=RAW)
    gpu_time_differs = (pl.col("gpu_time") - pl.col("duration_s") * pl.col("num_gpus")).abs() > TOLERANCE_GPU_S
    partial = read_cells(raw.frame, COLUMNS).with_columns(
        job_id=(pl.col(LINE) - raw.header_line).cast(pl.String), flag_duration_mismatch=gpu_time_differs
    )
    meta = replace(META, name=name or META.name)
    if timezone:
        meta = replace(meta, time_zone=timezone, time_zone_certainty="given")
    notes = [
        "Ids are row numbers of the file; start and end are not in the source.",
        f"Times read in {meta.time_zone}.",
    ]
    return finish_trace(partial.drop("gpu_time"), meta=meta, raws=[raw], notes=notes)
