"""Tables with a header: Helios, the Sia artifact's Philly, any table, openb, Pollux, Chronus."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from tests.laws.formats.common import (
    SHANGHAI,
    Job,
    canonical,
    local,
    names,
    of_jobs,
    one_line,
    plain,
    rows_to,
    some_jobs,
    times,
    without_times,
)


def write_helios(folder: Path, jobs: list[Job]) -> Path:
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
        rows.append(
            [*own, 1, job["status"].upper(), *(local(time, SHANGHAI) for time in times(job)), job["run"], job["wait"]]
        )
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


by_text = some_jobs(never=False, ids=names)
FORMATS = {
    "helios": of_jobs("helios", write_helios, some_jobs(), lambda job: canonical(job) | {"time_limit_s": None}),
    "sia_philly": of_jobs("sia_philly", write_sia, some_jobs(never=False, name=one_line), read_sia, ids_are_rows=True),
    "table CSV": of_jobs("table", write_csv, some_jobs()),
    "table Parquet": of_jobs("table", write_parquet, some_jobs()),
    "openb": of_jobs("openb", write_openb, some_jobs(), read_openb),
    "pollux": of_jobs("pollux", write_pollux, by_text, lambda job: without_times(job, duration_s=None)),
    "chronus": of_jobs("chronus", write_chronus, some_jobs(name=plain, never=False, ids=names), read_chronus),
}
