"""SenseTime's Helios clusters (SC 2021): Earth, Saturn, Uranus and Venus, one Slurm log each.

Source: https://github.com/S-Lab-System-Group/HeliosData (``data/<Cluster>/cluster_log.csv`` and
``cluster_gpu_number.csv``). Licence: CC-BY-4.0. Period: 2020-04-01 to 2020-09-28. Zone: not stated; China's
(Asia/Shanghai) is assumed, ``timezone`` overrides. A row of the log is a job; ``gpu_num`` 0 is a CPU job. A row of the
GPU numbers is a day, with the GPUs of every VC.

Assumptions:

* ``cluster`` is the name of the folder that holds the log, if it is one of the four; option ``cluster`` says another.
* TIMEOUT and NODE_FAIL keep their own status; the authors count them as failed in all their rates, and option
  ``fold_rare`` does so too. SUSPENDED (one job, which the authors drop) stays.
* ``duration`` and ``queue`` are recomputed from the time stamps; the published ones are in ``extra``, and a published
  duration that differs is flagged.
* Option ``clean_up`` prepares the log for simulation as the authors do (`analysis.loaders.helios_capacity`).
* The capacity table holds the changes of each VC's GPUs, from local midnight on. The nodes are those of the last day:
  a VC's GPUs as nodes of 8 and one node with the rest (the authors count ``GPUs // 8`` nodes). They carry their VC, so
  a replay treats VCs as partitions.

Columns left behind: ``total`` of the GPU numbers, the sum of the VCs (days on which it is not are counted in a note).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from analysis.loaders.cells import integer, number, read_cells, text, time
from analysis.loaders.delimited import Delimited, has_columns, read_delimited
from analysis.loaders.files import list_files, peek
from analysis.loaders.finish import finish_trace
from analysis.loaders.helios_capacity import CleanUp, read_capacity
from analysis.loaders.jobless import finish_without_jobs
from analysis.loaders.loading import assign_roles
from analysis.loaders.registry import loader
from analysis.trace import Trace, TraceMeta

__all__ = ["read_helios"]

META: Final = TraceMeta(
    name="helios",
    source="https://github.com/S-Lab-System-Group/HeliosData",
    licence="CC-BY-4.0",
    citation="Q. Hu et al., Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters, "
    "SC 2021, doi:10.1145/3458817.3476223",
    time_zone="Asia/Shanghai",
    time_zone_certainty="assumed",
    coverage="all jobs of one cluster",
)
CLUSTERS: Final = ("Earth", "Saturn", "Uranus", "Venus")
SECOND: Final = "%Y-%m-%d %H:%M:%S"
COLUMNS: Final = {
    "job_id": text("job_id"),
    "user": text("user"),
    "vc": text("vc"),
    "num_gpus": integer("gpu_num"),
    "num_cpus": number("cpu_num"),
    "num_nodes": integer("node_num"),
    "status_raw": text("state"),
    "submit_time": time("submit_time", SECOND),
    "start_time": time("start_time", SECOND),
    "end_time": time("end_time", SECOND),
    "published_duration_s": number("duration"),
}
EXTRA: Final = {"duration": number("duration"), "queue": number("queue")}
RAW: Final = tuple(cell.raw for cell in COLUMNS.values())
STATUSES: Final = {
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "NODE_FAIL": "node_fail",
    "SUSPENDED": "suspended",
}
RARE: Final = {"TIMEOUT": "failed", "NODE_FAIL": "failed"}


def _is_log(path: Path) -> bool:
    return has_columns(path, RAW)


def _is_gpu_number(path: Path) -> bool:
    return has_columns(path, ("date", "total"))


def _names_vcs(path: Path) -> bool:
    """Whether a file of GPU numbers names VCs as the authors do: "vc" and three letters or digits."""
    header = peek(path).partition("\n")[0]
    return _is_gpu_number(path) and bool(re.fullmatch(r"date(,vc\w{3})+,total\s*", header))


@loader(
    "helios",
    summary="SenseTime Helios (Earth, Saturn, Uranus, Venus): job log and GPUs per VC and day",
    files=f"cluster_log.csv ({', '.join(RAW)}, queue) and/or cluster_gpu_number.csv (date, VCs…, total)",
    sniff=lambda paths: float(any(_is_log(path) for path in paths)) or 0.9 * any(_names_vcs(path) for path in paths),
)
def read_helios(
    paths: Sequence[Path],
    *,
    timezone: str | None = None,
    name: str | None = None,
    fold_rare: bool = False,
    clean_up: bool = False,
    cluster: str | None = None,
) -> Trace:
    """Read one Helios cluster.

    Parameters
    ----------
    paths : sequence of Path
        The log, the GPU numbers, or both, in any order; or their folder.
    timezone : str, optional
        Zone of the naive times, instead of Asia/Shanghai.
    name : str, optional
        Name of the trace, by default the cluster's.
    fold_rare : bool, default False
        Count TIMEOUT and NODE_FAIL as failed, as the authors do.
    clean_up : bool, default False
        Prepare for simulation as the authors do: set aside the jobs of the test VC and of VCs without a whole node
        on their day (2020-09-10; Saturn 2020-09-01), count some VCs into another, nodes as of that day.
    cluster : str, optional
        The cluster's name, by default the folder's if it is one of the four.

    Returns
    -------
    Trace
        Jobs; with the GPU numbers also capacity and nodes. Of the GPU numbers alone, these only.
    """
    found = list_files(paths)
    main = "gpus" if any(map(_is_gpu_number, found)) and not any(map(_is_log, found)) else "log"
    files = assign_roles(paths, main=main, roles={"log": _is_log, "gpus": _is_gpu_number}, loader="helios")
    folder = files[main].resolve().parent.name
    cluster = cluster or (folder if folder in CLUSTERS else None)
    meta = replace(META, name=name or (cluster or META.name).lower())
    if timezone:
        meta = replace(meta, time_zone=timezone, time_zone_certainty="given")
    notes = [f"Times read in {meta.time_zone}."]
    raws: list[Delimited] = []
    tables: dict[str, pl.DataFrame] = {}
    todo = CleanUp.without_sizes(cluster)
    if "gpus" in files:
        raws.append(read_delimited(files["gpus"], required=("date",)))
        tables, more, todo = read_capacity(raws[0], meta.time_zone, cluster=cluster, clean=clean_up)
        notes += more
    notes += [todo.note()] if clean_up else []
    if main == "gpus":
        return finish_without_jobs(meta=meta, raws=raws, tables=tables, notes=notes)
    log = read_delimited(files["log"], required=RAW)
    cells = read_cells(log.frame, COLUMNS, extra=EXTRA).with_columns(cluster=pl.lit(cluster, dtype=pl.String))
    partial = todo.jobs(cells) if clean_up else cells
    statuses = STATUSES | (RARE if fold_rare else {})
    return finish_trace(partial, meta=meta, raws=[log, *raws], tables=tables, notes=notes, statuses=statuses)
