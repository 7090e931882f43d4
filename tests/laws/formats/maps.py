"""Logs that ship as column maps: Graham, ThetaGPU, a slice of Helios, Philly's attempts as lumos cleaned them."""

from __future__ import annotations

from pathlib import Path

from tests.laws.formats.common import (
    SHANGHAI,
    Job,
    canonical,
    digits,
    local,
    of_jobs,
    one_line,
    rows_to,
    some_jobs,
    times,
)


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


THETA = ["", "job", "user", "project", "state", "gpu_num", "cpu_num", "node_num", "submit_time", "wait_time"]


def write_theta(folder: Path, jobs: list[Job]) -> Path:
    words = {"completed": "Pass", "failed": "Failed", "cancelled": "Killed"}
    rows = []
    for row, job in enumerate(jobs):
        size = [0, float(job["num_gpus"]), 0, float(job["num_gpus"])]
        submit = times(job)[0].timestamp()
        own = [f"{job['user']}.0", f"{job['vc']}.0", *size, submit, float(job["wait"]), float(job["run"])]
        hours = job["run"] * job["num_gpus"] / 3600
        rows.append([row, job["job_id"], *own, job["limit"] or "", hours, words[job["status"]]])
    return rows_to(folder / "theta.csv", [*THETA, "run_time", "wall_time", "node_hour", "new_status"], rows)


def read_theta(job: Job) -> Job:
    """User and project 0 are unknown ones; what is called project is the account."""
    user, account = (None if job[key] == "0" else f"{job[key]}.0" for key in ("user", "vc"))
    return canonical(job) | {"user": user, "vc": None, "account": account}


SLICE = ["job_id", "user", "jobname", "cpu_num", "node_num", "state", "submit_time", "start_time", "end_time"]
ASSIGNED = ["dataset", "model", "batchsize", "amp", "gpu_util", "gmem_util", "gmem"]


def write_slice(folder: Path, jobs: list[Job]) -> Path:
    """Starts are never there; where a job queued, the queue says when it started."""
    rows = []
    for job in jobs:
        submit, _, end = (local(time, SHANGHAI) for time in times(job))
        length = job["run"] if job["wait"] else job["run"] + job["wait"]
        own = [job["job_id"], job["user"], "NA", job["num_cpus"], 1, job["status"].upper(), submit, 0, end]
        assigned = ["ImageNet", "VGG", 32, 0, 45.4, 19.7, 2694.0]
        rows.append([*own, length, job["wait"], *assigned, job["num_gpus"], "configuration/sense.json"])
    return rows_to(folder / "slice.csv", [*SLICE, "duration", "queue", *ASSIGNED, "max_parallelism", "_f"], rows)


def read_slice(job: Job) -> Job:
    """Without a queue neither start nor running time can be told."""
    unknown = {"start_time": None, "duration_s": None, "queueing_delay_s": None}
    changes = {"vc": None, "time_limit_s": None, "job_name": None, "num_cpus": job["num_cpus"]}
    return canonical(job) | changes | ({} if job["wait"] else unknown)


def write_lumos(folder: Path, jobs: list[Job]) -> Path:
    rows = [
        [row, job["run"], job["wait"], int(times(job)[0].timestamp()), job["num_gpus"]] for row, job in enumerate(jobs)
    ]
    return rows_to(folder / "attempts.csv", ["", "run_time", "wait_time", "submit_time", "gpu_num"], rows)


def read_lumos(job: Job) -> Job:
    return canonical(job) | dict.fromkeys(("status", "user", "vc", "time_limit_s"))


known = some_jobs(never=False)
numbered = some_jobs(never=False, name=digits)
FORMATS = {
    "graham": of_jobs("graham", write_graham, known, read_graham),
    "thetagpu": of_jobs("thetagpu", write_theta, numbered, read_theta),
    "helios_slice": of_jobs("helios_slice", write_slice, some_jobs(never=False, name=one_line), read_slice),
    "philly_lumos": of_jobs("philly_lumos", write_lumos, known, read_lumos, ids_are_rows=True),
}
