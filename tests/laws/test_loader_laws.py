"""What is written in a source's format is read back unchanged, whatever the jobs.

Hypothesis invents jobs; a writer of this file (not the package's) puts them down as the source would; the loader must
give the same jobs: times to the microsecond, sizes, owners, outcomes, and what is missing.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.loaders import load

SHANGHAI = ZoneInfo("Asia/Shanghai")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BEGIN_S = 1_600_000_000
Job = dict[str, Any]

#: Names with everything that a delimited file finds hard, but no blanks around them.
names = (
    st.text(alphabet="abzAZ09_-./ ,;|\"'é漢\t\n", min_size=1, max_size=8)
    .map(str.strip)
    .filter(lambda text: text not in ("", "-", "'", '"'))
)
#: Where ids are row numbers: physical lines, so a name over two lines would count twice.
one_line = names.filter(lambda text: "\n" not in text)
plain = st.text(alphabet="abcXYZ019_", min_size=1, max_size=6).filter(lambda text: not text.startswith("vc"))
seconds = st.integers(0, 10_000_000)
numerals = st.integers(1, 10**9).map(str)


@st.composite
def some_jobs(draw, *, name=names, ids=numerals, never=True):
    """Valid jobs: submission, then maybe a start, a run, an end."""
    size = draw(st.integers(0, 8))
    numbers = draw(st.lists(ids, min_size=size, max_size=size, unique=True))
    jobs = []
    for job_id in numbers:
        ran = not never or draw(st.booleans())
        status = draw(st.sampled_from(["completed", "failed", "cancelled"] if ran else ["cancelled"]))
        jobs.append(
            {
                "job_id": job_id,
                "user": draw(name),
                "vc": draw(name),
                "submit": draw(seconds),
                "wait": draw(st.integers(0, 100_000)) if ran else None,
                "run": draw(st.integers(0, 1_000_000)) if ran else None,
                "num_gpus": draw(st.integers(0, 64)),
                "num_cpus": draw(st.integers(1, 512)),
                "limit": draw(st.none() | st.integers(1, 10**7)),
                "status": status,
            }
        )
    return jobs


def times(job: Job, *, origin: int = BEGIN_S) -> tuple[datetime, datetime | None, datetime | None]:
    submit = EPOCH + timedelta(seconds=origin + job["submit"])
    start = None if job["wait"] is None else submit + timedelta(seconds=job["wait"])
    return submit, start, None if start is None else start + timedelta(seconds=job["run"])


def rows_to(path: Path, columns: list[str], rows: list[list[Any]], *, separator: str = ",") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=separator, lineterminator="\n")
        writer.writerows([columns, *rows] if columns else rows)
    return path


def canonical(job: Job, *, origin: int = BEGIN_S) -> Job:
    """What must come out, for the columns that every format has or leaves null."""
    submit, start, end = times(job, origin=origin)
    return {
        "job_id": job["job_id"],
        "submit_time": submit,
        "start_time": start,
        "end_time": end,
        "duration_s": job["run"],
        "queueing_delay_s": job["wait"],
        "status": job["status"],
        "num_gpus": job["num_gpus"],
        "user": job["user"],
        "vc": job["vc"],
        "time_limit_s": job["limit"],
    }


def without_times(job: Job, **changes: Any) -> Job:
    """What must come out of a source that has neither starts nor ends, owners, outcomes, limits."""
    gone = dict.fromkeys(("start_time", "end_time", "queueing_delay_s", "status", "user", "vc", "time_limit_s"))
    return canonical(job, origin=0) | gone | changes


def write_swf(folder: Path, jobs: list[Job]) -> Path:
    code = {"completed": 1, "failed": 0, "cancelled": 5}
    lines = ["; Version: 2.2", f"; UnixStartTime: {BEGIN_S}", "; TimeZoneString: UTC"]
    for job in jobs:
        ran = job["run"] is not None
        numbers = [job["job_id"], job["submit"], job["wait"] if ran else -1, job["run"] if ran else -1]
        numbers += [job["num_gpus"] + 1 if ran else -1, -1, -1, job["num_gpus"] + 1, job["limit"] or -1, -1]
        numbers += [code[job["status"]], job["user"], -1, -1, job["vc"], -1, -1, -1]
        lines.append(" ".join(map(str, numbers)))
    path = folder / "log.swf"
    path.write_text("\n".join(lines) + "\n")
    return path


def read_swf(job: Job) -> Job:
    return canonical(job) | {"num_gpus": job["num_gpus"] + 1}


def write_helios(folder: Path, jobs: list[Job]) -> Path:
    def clock(time: datetime | None) -> str:
        return "" if time is None else time.astimezone(SHANGHAI).strftime("%Y-%m-%d %H:%M:%S")

    columns = [
        "job_id",
        "user",
        "vc",
        "gpu_num",
        "cpu_num",
        "node_num",
        "state",
        "submit_time",
        "start_time",
        "end_time",
    ]
    rows = []
    for job in jobs:
        own = [job[key] for key in ("job_id", "user", "vc", "num_gpus", "num_cpus")]
        rows.append([*own, 1, job["status"].upper(), *map(clock, times(job)), job["run"], job["wait"]])
    return rows_to(folder / "cluster_log.csv", [*columns, "duration", "queue"], rows)


def write_sia(folder: Path, jobs: list[Job]) -> Path:
    zone = ZoneInfo("Etc/GMT+8")
    rows = []
    for job in jobs:
        submit = times(job)[0].astimezone(zone)
        gpu_time = float(job["run"] * job["num_gpus"])
        rows.append([f"{submit:%Y-%m-%d %H:%M:%S}", float(job["run"]), job["num_gpus"], gpu_time, job["vc"]])
    return rows_to(folder / "philly_jobs.csv", ["timestamp", "duration", "num_gpus", "gpu_time", "cluster"], rows)


def read_sia(job: Job) -> Job:
    return without_times(job, vc=job["vc"], submit_time=times(job)[0])


TABLE = (
    "job_id",
    "user",
    "vc",
    "submit_time",
    "start_time",
    "end_time",
    "num_gpus",
    "num_cpus",
    "time_limit_s",
    "status",
)


def table_rows(jobs: list[Job]) -> list[list[Any]]:
    owner, size = ("job_id", "user", "vc"), ("num_gpus", "num_cpus", "limit", "status")
    return [[*(job[key] for key in owner), *times(job), *(job[key] for key in size)] for job in jobs]


def write_csv(folder: Path, jobs: list[Job]) -> Path:
    rows = [[cell.isoformat() if isinstance(cell, datetime) else cell for cell in row] for row in table_rows(jobs)]
    return rows_to(folder / "jobs.csv", list(TABLE), rows)


def write_parquet(folder: Path, jobs: list[Job]) -> Path:
    kinds = [
        pl.String,
        pl.String,
        pl.String,
        *[pl.Datetime("us", "UTC")] * 3,
        pl.Float64,
        pl.Float64,
        pl.Float64,
        pl.String,
    ]
    frame = pl.DataFrame(table_rows(jobs), schema=dict(zip(TABLE, kinds, strict=True)), orient="row")
    frame.write_parquet(folder / "jobs.parquet")
    return folder / "jobs.parquet"


def write_openb(folder: Path, jobs: list[Job]) -> Path:
    columns = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase"]
    phase = {"completed": "Succeeded", "failed": "Failed", "cancelled": "Pending"}
    rows = []
    for job in jobs:
        ran = job["run"] is not None
        start = job["submit"] + job["wait"] if ran else ""
        end = start + job["run"] if ran else job["submit"] + 5
        word = phase[job["status"]] if ran != (job["status"] == "cancelled") else "Succeeded"
        size = [job["num_cpus"] * 1000, 1024, int(job["num_gpus"] > 0) * 2, job["num_gpus"] * 500]
        rows.append([f"pod-{job['job_id']}", *size, "", "LS", word, job["submit"], end, start])
    return rows_to(folder / "pods.csv", [*columns, "creation_time", "deletion_time", "scheduled_time"], rows)


def read_openb(job: Job) -> Job:
    status = {"completed": "completed", "failed": "failed", "cancelled": "completed"}
    return canonical(job, origin=0) | {
        "job_id": f"pod-{job['job_id']}",
        "status": status[job["status"]] if job["run"] is not None else "pending",
        "user": None,
        "vc": None,
        "time_limit_s": None,
    }


RATE = 4.0


def write_gavel(folder: Path, jobs: list[Job], *, old: bool = False) -> list[Path]:
    rows, rates = [], {}
    for job in jobs:
        steps, size = job["run"] * int(RATE), job["num_gpus"]
        rates[f"('{job['user']}', {size})"] = {"null": RATE}
        if old:
            rows.append([job["user"], "run %s", "--steps", 1, steps, float(job["submit"]), size])
        else:
            rows.append([job["user"], "run", "here", "--steps", 1, steps, size, 1, "-1.000000", float(job["submit"])])
    path = folder / "a.trace"
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    table = folder / "rates.json"
    table.write_text(json.dumps({"v100": rates | {"('never', 1)": {"null": 1.0}}}))
    return [path, table]


def write_gavel_old(folder: Path, jobs: list[Job]) -> list[Path]:
    return write_gavel(folder, jobs, old=True)


def write_batsim(folder: Path, jobs: list[Job]) -> Path:
    listed, profiles = [], {}
    for job in jobs:
        fails = job["status"] != "completed"
        profile = f"delay-{job['run']}-{fails}"
        profiles[profile] = {"type": "DelayProfile", "delay": job["run"], "ret": int(fails)}
        extra = json.dumps({"user": job["user"], "vc": job["vc"]})
        one = {
            "id": job["job_id"],
            "subtime": job["submit"],
            "res": job["num_gpus"],
            "profile": profile,
            "extra_data": extra,
        }
        listed.append(one | ({"walltime": job["limit"]} if job["limit"] else {}))
    path = folder / "w.json"
    path.write_text(json.dumps({"nb_res": 4, "jobs": listed, "profiles": profiles}))
    return path


def read_batsim(job: Job) -> Job:
    status = "completed" if job["status"] == "completed" else "failed"
    return without_times(job, user=job["user"], vc=job["vc"], time_limit_s=job["limit"], status=status)


def write_pollux(folder: Path, jobs: list[Job]) -> Path:
    rows = [[job["job_id"], job["submit"], job["user"], job["num_gpus"], 32] for job in jobs]
    return rows_to(folder / "w.csv", ["name", "time", "application", "num_replicas", "batch_size"], rows)


def write_chronus(folder: Path, jobs: list[Job]) -> Path:
    columns = [
        "job_id",
        "user",
        "num_gpu",
        "submit_time",
        "iterations",
        "model_name",
        "duration",
        "interval",
        "job_type",
    ]
    rows = [
        [job["job_id"], job["user"], job["num_gpus"], job["submit"], 1, "bert", job["run"], 60, "best"] for job in jobs
    ]
    return rows_to(folder / "c.csv", columns, rows)


def read_chronus(job: Job) -> Job:
    minutes = job | {"submit": job["submit"] * 60}
    return without_times(minutes, user=job["user"], duration_s=job["run"] * 60)


def write_kubernetes(folder: Path, jobs: list[Job]) -> Path:
    phase = {"completed": "Succeeded", "failed": "Failed", "cancelled": "Failed"}
    items = []
    for job in jobs:
        submit, start, end = (None if time is None else time.strftime("%Y-%m-%dT%H:%M:%SZ") for time in times(job))
        ended = {"restartCount": 0, "state": {"terminated": {"startedAt": start, "finishedAt": end}}}
        status = (
            {"phase": phase[job["status"]], "startTime": start, "containerStatuses": [ended]}
            if start
            else {"phase": "Pending"}
        )
        asked = {"limits": {"nvidia.com/gpu": str(job["num_gpus"])}, "requests": {"cpu": f"{job['num_cpus']}000m"}}
        meta = {"uid": job["job_id"], "name": job["user"], "namespace": job["vc"], "creationTimestamp": submit}
        spec = {
            "containers": [{"resources": asked}],
            "activeDeadlineSeconds": job["limit"],
            "nodeName": "n" if start else None,
        }
        items.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status})
    path = folder / "pods.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}))
    return path


def read_kubernetes(job: Job) -> Job:
    status = {"completed": "completed", "failed": "failed", "cancelled": "failed"}
    return canonical(job) | {"user": None, "status": status[job["status"]] if job["run"] is not None else "pending"}


def write_graham(folder: Path, jobs: list[Job]) -> Path:
    columns = [
        "cluster_id",
        "job_unique_id",
        "account_id",
        "partition_id",
        "req_cpus",
        "req_gpus",
        "alloc_nodes",
        "state",
    ]
    columns += [
        "submit_time",
        "eligible_time",
        "start_time",
        "end_time",
        "elapsed_sec",
        "time_limit_sec",
        "req_mem_total",
    ]
    rows = []
    for job in jobs:
        submit, start, end = (f"{time:%Y-%m-%d %H:%M:%S}" for time in times(job))
        own = [3, job["job_id"], job["user"], job["vc"], job["num_cpus"], job["num_gpus"], 1, job["status"].upper()]
        rows.append([*own, submit, submit, start, end, job["run"], job["limit"], 1024])
    return rows_to(folder / "jobs.csv", columns, rows)


def read_graham(job: Job) -> Job:
    return canonical(job) | {"user": None}


@dataclass(frozen=True)
class Format:
    """How a source writes jobs, and what must come back."""

    loader: str
    write: Callable[[Path, list[Job]], Path | list[Path]]
    jobs: st.SearchStrategy[list[Job]]
    expected: Callable[[Job], Job] = canonical
    options: tuple[tuple[str, Any], ...] = ()
    ids_are_rows: bool = False


texts = st.text(alphabet="abz019", min_size=1, max_size=5)
digits = st.integers(0, 999).map(str)
known = some_jobs(never=False)
by_text = some_jobs(never=False, ids=names)
classes = some_jobs(never=False, name=plain)
FORMATS = {
    "swf": Format("swf", write_swf, some_jobs(name=digits), read_swf, options=(("processors_as_gpus", True),)),
    "helios": Format("helios", write_helios, some_jobs(), lambda job: canonical(job) | {"time_limit_s": None}),
    "sia_philly": Format("sia_philly", write_sia, some_jobs(never=False, name=one_line), read_sia, ids_are_rows=True),
    "table CSV": Format("table", write_csv, some_jobs()),
    "table Parquet": Format("table", write_parquet, some_jobs()),
    "openb": Format("openb", write_openb, some_jobs(), read_openb),
    "gavel": Format("gavel", write_gavel, classes, without_times, ids_are_rows=True),
    "gavel, old": Format("gavel", write_gavel_old, classes, without_times, ids_are_rows=True),
    "batsim": Format("batsim", write_batsim, by_text, read_batsim),
    "pollux": Format("pollux", write_pollux, by_text, lambda job: without_times(job, duration_s=None)),
    "chronus": Format("chronus", write_chronus, some_jobs(name=plain, never=False, ids=names), read_chronus),
    "kubernetes": Format("kubernetes", write_kubernetes, some_jobs(ids=texts), read_kubernetes),
    "graham": Format("graham", write_graham, known, read_graham),
}


@pytest.mark.parametrize("name", sorted(FORMATS))
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_what_is_written_is_read_back(tmp_path_factory, name, data):
    form = FORMATS[name]
    jobs = data.draw(form.jobs)
    if name.startswith("gavel") and not jobs:
        # A headerless file of no lines is an empty file.
        return
    folder = tmp_path_factory.mktemp("law")
    trace = load(form.loader, form.write(folder, jobs), **dict(form.options))
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_set_aside) == (len(jobs), 0), trace.rejects.to_dicts()
    assert report.unknown_statuses == {}
    if form.ids_are_rows:
        jobs = [job | {"job_id": str(row)} for row, job in enumerate(jobs, start=1)]
    expected = {job["job_id"]: job for job in map(form.expected, jobs)}
    found = {job["job_id"]: job for job in trace.jobs.to_dicts()}
    assert set(found) == set(expected)
    for job_id, job in expected.items():
        assert {column: found[job_id][column] for column in job} == job
