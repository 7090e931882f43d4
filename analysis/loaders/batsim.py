"""Workloads of the Batsim simulator (JSON).

Source: https://github.com/oar-team/batsim (``docs/input-workload.rst``, ``workloads/*.json``); LGPL-3.0 for its own
examples, else the licence of whoever made the file, so it is recorded as unknown. Period, zone: none; ``subtime`` is
seconds from the simulation's start (seconds since 1970 are told by their size). A row is an element of ``jobs``; a
profile that jobs share is no row.

Assumptions:

* A resource counts as a GPU, so that such a workload can be replayed; ``resources_as_gpus=False`` makes them CPUs.
* Durations come from profiles: a delay is its seconds; a sequence is its parts as often as ``repeat`` says. As in
  Batsim, the first part with a non-zero ``ret`` ends the sequence, and the job fails with it. Parallel tasks and trace
  replays last as long as a platform lets them: null, and counted.
* ``ret`` 0 is completed, any other failed. A job whose profile is longer than its ``walltime`` would be killed by
  Batsim; here a limit is only a limit, so it keeps its duration and is counted.
* ``nb_res`` makes that many nodes of one resource, since Batsim may combine any of them.
* ``extra_data`` may be the text of a JSON object; its user, vc, account, job_name, group, workload and gpu_type are
  taken as these columns.

Keys left behind: none; the profile's name and ``extra_data`` are in ``extra``, other keys of a job as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.errors import BadFileError
from analysis.loaders.batsim_profiles import Profiles
from analysis.loaders.files import peek
from analysis.loaders.finish import finish_trace
from analysis.loaders.loading import assign_roles
from analysis.loaders.origins import clock_of
from analysis.loaders.records import Records, make_records, read_json
from analysis.loaders.registry import loader
from analysis.loaders.rows import LINE
from analysis.trace import Trace, TraceMeta

__all__ = ["read_batsim"]

EXPECTED: Final = "a JSON object with nb_res, jobs and profiles (a Batsim workload)"
KEYS: Final = ("id", "subtime", "res", "profile", "walltime", "extra_data")
#: What ``extra_data`` may say about a job.
TAKEN: Final = ("user", "vc", "account", "job_name", "group", "workload", "gpu_type")
MOST_NODES: Final = 1_000_000
ROWS: Final = {
    LINE: pl.Int64(),
    "job_id": pl.String(),
    "submit_time": pl.Float64(),
    "resources": pl.Float64(),
    "time_limit_s": pl.Float64(),
    "duration_s": pl.Float64(),
    "status": pl.String(),
    **dict.fromkeys(TAKEN, pl.String()),
    "extra": pl.Struct({"profile": pl.String(), "extra_data": pl.String(), "other": pl.String()}),
    "_problem": pl.String(),
}


def _is_workload(path: Path) -> bool:
    start = peek(path).lstrip("\ufeff").lstrip()
    if not start.startswith("{"):
        return False
    return bool(re.search(r'"nb_res"\s*:', start)) or bool(re.search(r'"subtime"\s*:', start))


@loader(
    "batsim",
    summary="Batsim workloads (JSON: jobs and profiles)",
    files="one JSON object with nb_res, jobs, profiles",
    sniff=lambda paths: 0.95 * any(_is_workload(path) for path in paths),
)
def read_batsim(
    paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None, resources_as_gpus: bool = True
) -> Trace:
    """Read a Batsim workload.

    Parameters
    ----------
    paths : sequence of Path
        The file.
    timezone : str, optional
        Recorded only.
    name : str, optional
        Name of the trace, by default the file's.
    resources_as_gpus : bool, default True
        Whether a resource is a GPU; else it is a CPU and ``num_gpus`` is 0.

    Returns
    -------
    Trace
        Jobs and nodes. Starts and ends are not in the source.

    Raises
    ------
    BadFileError
        If it is no such object, or submissions count from different origins.
    """
    path = assign_roles(paths, main="workload", roles={"workload": _is_workload}, loader="batsim")["workload"]
    whole, records = _open(path)
    profiles = Profiles(whole["profiles"])
    jobs = pl.DataFrame([_row(line, job, profiles) for line, job in records.records], schema=ROWS, orient="row")
    meaning = {"num_gpus": "resources"} if resources_as_gpus else {"num_cpus": "resources"}
    partial = jobs.with_columns(**{"num_gpus": pl.lit(0.0)} | {key: pl.col(raw) for key, raw in meaning.items()})
    meta = TraceMeta(
        name=name or re.sub(r"(\.json)?(\.(gz|bz2|xz|zst))?$", "", path.name),
        source=str(whole.get("description") or "a Batsim workload"),
        time_zone=timezone or "UTC",
        time_zone_certainty="given" if timezone else "none",
        clock=clock_of(jobs["submit_time"], path=path),
    )
    notes = [f"Resources are {'GPUs' if resources_as_gpus else 'CPUs'} (resources_as_gpus={resources_as_gpus})."]
    return finish_trace(
        partial.drop("resources"),
        meta=meta,
        raws=[records],
        tables={"nodes": _nodes(whole.get("nb_res"), resources_as_gpus=resources_as_gpus)},
        notes=notes + _said(jobs),
    )


def _open(path: Path) -> tuple[dict[str, Any], Records]:
    whole, notes = read_json(path, expected=EXPECTED)
    found = f"JSON that is one {type(whole).__name__}"
    if isinstance(whole, dict):
        wrong = [key for key, kind in (("jobs", list), ("profiles", dict)) if not isinstance(whole.get(key), kind)]
        if not wrong:
            return whole, make_records(path, whole["jobs"], notes=notes)
        found = f"an object without {' and '.join(wrong)}"
    fix = "Is it the right file?"
    raise BadFileError(path, kind="wrong_columns", found=found, expected=EXPECTED, fix=fix)


def _number(value: Any) -> float | None:
    """A JSON number; null if it is none or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return float(value)


def _row(line: int, job: Mapping[str, Any], profiles: Profiles) -> tuple[Any, ...]:
    """One job as a row of ``ROWS``."""
    submit, resources, limit = (_number(job.get(key)) for key in ("subtime", "res", "walltime"))
    profile = job.get("profile")
    length = profiles.length(profile) if isinstance(profile, str) else None
    wrong = [key for key, value in (("subtime", submit), ("res", resources)) if value is None]
    wrong += ["walltime"] if limit is None and job.get("walltime") is not None else []
    wrong += [] if length else ["profile"]
    raw_id = job.get("id")
    is_id = isinstance(raw_id, str | int) and not isinstance(raw_id, bool)
    data = job.get("extra_data")
    said = _said_by(data)
    others = {key: value for key, value in job.items() if key not in KEYS}
    extra = {
        "profile": profile if isinstance(profile, str) else None,
        "extra_data": data if isinstance(data, str) else json.dumps(data) if data is not None else None,
        "other": json.dumps(others) if others else None,
    }
    return (
        line,
        str(raw_id) if is_id else None,
        submit,
        resources,
        limit,
        length.duration_s if length else None,
        None if not length or length.fails is None else "failed" if length.fails else "completed",
        *(said.get(key) for key in TAKEN),
        extra,
        f"unreadable_{wrong[0]}" if wrong else None,
    )


def _said_by(data: Any) -> dict[str, str]:
    """The columns that ``extra_data`` gives, if it is a JSON object or the text of one."""
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError):
            return {}
    if not isinstance(data, dict):
        return {}
    return {key: str(data[key]) for key in TAKEN if isinstance(data.get(key), str | int)}


def _said(jobs: pl.DataFrame) -> list[str]:
    usable = jobs.filter(pl.col("_problem").is_null())
    notes = []
    unknown = usable["duration_s"].null_count()
    if unknown:
        notes.append(f"{unknown} jobs run as long as a platform lets them (parallel tasks, replays): duration null.")
    longer = usable.filter(pl.col("duration_s") > pl.col("time_limit_s")).height
    if longer:
        notes.append(f"{longer} jobs run longer than their walltime; Batsim would kill them, here they keep it.")
    return notes


def _nodes(nb_res: Any, *, resources_as_gpus: bool) -> pl.DataFrame:
    count = _number(nb_res)
    if count is None or not 0 < count <= MOST_NODES or count != int(count):
        return schema.empty_table("nodes")
    ids = [f"r{index:0{len(str(int(count) - 1))}d}" for index in range(int(count))]
    known = {"num_gpus": int(resources_as_gpus), "num_cpus": None if resources_as_gpus else 1.0}
    return pl.DataFrame({"node_id": ids}).select(
        (pl.col(name) if name == "node_id" else pl.lit(known.get(name))).cast(dtype).alias(name)
        for name, dtype in schema.NODES.items()
    )
