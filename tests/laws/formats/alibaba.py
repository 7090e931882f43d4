"""Alibaba's DLRM instances, spot-GPU jobs and nodes, Lingjun jobs with workers and hosts."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.laws.formats.common import (
    BEGIN_S,
    SHANGHAI,
    Expected,
    Format,
    Job,
    at,
    digits,
    hashes,
    local,
    numerals,
    rows_to,
    runs,
    seconds,
    waits,
)

DLRM_TIMES = {"submit_time": "created", "start_time": "scheduled", "end_time": "deleted"}
SPOT_JOB = ("id", "org", "model", "cpus", "gpus", "workers", "submit", "run", "kind")


@st.composite
def instances(draw):
    """Services, created before the trace or in it, deleted in it or after it."""
    drawn = []
    for number in draw(st.lists(numerals, max_size=8, unique=True)):
        created = draw(st.none() | seconds)
        scheduled = None if created is None else draw(waits.map(created.__add__))
        deleted = draw(st.none() | runs.map((scheduled or 0).__add__))
        size = {"cpus": draw(st.integers(1, 128)), "gpus": draw(st.sampled_from([0, 1])), "limit": draw(digits)}
        app, memory = draw(hashes), draw(st.integers(1, 4000)) / 4
        drawn.append(
            {"id": number, "created": created, "scheduled": scheduled, "deleted": deleted, "app": app, "mem": memory}
            | size
            | {"per_node": draw(st.sampled_from([-1, 6]))}
        )
    return drawn


def write_dlrm(folder: Path, case: list[Job]) -> Path:
    columns = ["instance_sn", "role", "app_name", "cpu_request", "cpu_limit", "gpu_request", "gpu_limit"]
    columns += ["rdma_request", "rdma_limit", "memory_request", "memory_limit", "disk_request", "disk_limit"]
    columns += ["max_instance_per_node", "creation_time", "scheduled_time", "deletion_time"]
    rows = []
    for one in case:
        clocks = ["" if one[key] is None else float(one[key]) for key in ("created", "scheduled", "deleted")]
        size = [one["cpus"], one["cpus"], one["gpus"], one["gpus"], 20, 20, one["mem"], one["mem"], 600.0, 750.0]
        rows.append([one["id"], "HN" if one["gpus"] else "CN", one["app"], *size, one["per_node"], *clocks])
    return rows_to(folder / "disaggregated_DLRM_trace.csv", columns, rows)


def expect_dlrm(case: list[Job]) -> Expected:
    """What has not begun in the trace began before it, what has not ended runs until its last time."""
    clocks = [one[key] for one in case for key in DLRM_TIMES.values() if one[key] is not None]
    jobs = []
    for one in case:
        begun, ended = one["scheduled"] is not None, one["deleted"] is not None
        censoring = {(True, True): "none", (True, False): "right", (False, True): "left", (False, False): "both"}
        # With no time in the whole file its window is not known.
        until = one["deleted"] if ended else max(clocks, default=None)
        jobs.append(
            {key: None if one[raw] is None else at(one[raw], origin=0) for key, raw in DLRM_TIMES.items()}
            | {
                "job_id": one["id"],
                "group": one["app"],
                "workload": "HN" if one["gpus"] else "CN",
                "num_gpus": one["gpus"],
                "num_cpus": one["cpus"],
                "mem_gib": one["mem"],
                "censoring": censoring[begun, ended],
                "duration_s": None if until is None else until - (one["scheduled"] or 0),
                "status": None if ended else "running",
                "flags": [] if begun else ["start_missing", "carry_in"],
            }
        )
    return Expected(jobs, len(case))


@st.composite
def spot_cases(draw):
    models = st.sampled_from(["A10", "A100-SXM4-80GB", "GPU-series-1", "H800"])
    nodes = [
        {"node_id": node, "gpu_type": draw(models), "num_gpus": draw(st.integers(0, 8)), "num_cpus": draw(runs)}
        for node in draw(st.lists(numerals, max_size=5, unique=True))
    ]
    jobs = [
        {
            "id": number,
            "org": draw(digits),
            "model": draw(models),
            "cpus": draw(st.integers(1, 128)),
            "gpus": draw(st.integers(0, 32)) / 4,
            "workers": draw(st.integers(1, 16)),
            "submit": draw(st.just(0) | seconds),
            "run": draw(st.just(15_897_599) | runs),
            "kind": draw(st.sampled_from(["HP", "Spot"])),
        }
        for number in draw(st.lists(numerals, max_size=8, unique=True))
    ]
    return {"nodes": nodes, "jobs": jobs, "alone": draw(st.sampled_from(["", "nodes", "jobs"]))}


def write_spot(folder: Path, case: dict[str, Any]) -> list[Path]:
    nodes = [[node["gpu_type"], node["num_gpus"], node["num_cpus"], node["node_id"]] for node in case["nodes"]]
    jobs = [[job[key] for key in SPOT_JOB] for job in case["jobs"]]
    head = ["job_name", "organization", "gpu_model", "cpu_request", "gpu_request", "worker_num", "submit_time"]
    paths = {
        "nodes": rows_to(folder / "node_info_df.csv", ["gpu_model", "gpu_capacity_num", "cpu_num", "node_name"], nodes),
        "jobs": rows_to(folder / "job_info_df.csv", [*head, "duration", "job_type"], jobs),
    }
    return [path for name, path in paths.items() if case["alone"] in ("", name)]


def expect_spot(case: dict[str, Any]) -> Expected:
    window = max((job["submit"] + job["run"] for job in case["jobs"]), default=0)
    jobs = []
    for job in case["jobs"]:
        whole = job["submit"] == 0 and job["run"] == window > 0
        jobs.append(
            {
                "job_id": job["id"],
                "account": job["org"],
                "gpu_type": job["model"],
                "num_gpus": job["gpus"] * job["workers"],
                "num_cpus": job["cpus"] * job["workers"],
                "num_tasks": job["workers"],
                "submit_time": at(job["submit"], origin=0),
                "start_time": None,
                "end_time": None,
                "duration_s": job["run"],
                "queueing_delay_s": None,
                "workload": job["kind"],
                "censoring": "right" if whole else "none",
                "flags": ["times_assumed"] + ["carry_in"] * (job["submit"] == 0),
            }
        )
    alone = case["alone"]
    nodes = [] if alone == "jobs" else case["nodes"]
    return Expected(jobs := [] if alone == "nodes" else jobs, len(jobs) + len(nodes), {"nodes": nodes})


@st.composite
def lingjun_cases(draw):
    """Jobs with minutes as times, their workers, and the hosts."""
    hosts = draw(st.lists(hashes, min_size=1, max_size=5, unique=True))
    jobs = []
    for number in draw(st.lists(numerals, max_size=6, unique=True)):
        ran = draw(st.booleans())
        status = draw(st.sampled_from(["Succeeded", "Failed", "Stopped", "Running"] if ran else ["Failed", "Queuing"]))
        worker = {"gpus": st.integers(0, 8), "cpus": st.integers(1, 96)}
        worker["host"] = st.sampled_from(hosts if ran else [""])
        jobs.append(
            {
                "id": number,
                "name": f"dlc{number}",
                "status": status,
                "user": draw(hashes),
                "ws": draw(hashes),
                "kind": draw(st.sampled_from(["PyTorchJob", "TFJob"])),
                "submit": draw(st.integers(0, 100_000)),
                "stated": draw(st.booleans()),
                "wait": draw(st.integers(0, 5000)) if ran else None,
                "run": draw(st.integers(0, 20_000)) if ran and status != "Running" else None,
                "limit": draw(st.none() | st.integers(1, 10_000)),
                "workers": draw(st.lists(st.fixed_dictionaries(worker), max_size=3)),
            }
        )
    return {"hosts": hosts, "jobs": jobs}


def lingjun_times(job: Job) -> list[Any]:
    submit = at(job["submit"] * 60, origin=BEGIN_S // 60 * 60)
    start = None if job["wait"] is None else submit + timedelta(minutes=job["wait"])
    return [submit, start, None if job["run"] is None else start + timedelta(minutes=job["run"])]


def write_lingjun(folder: Path, case: dict[str, Any]) -> Path:
    def clock(time: Any) -> str:
        shown = local(time, SHANGHAI, "%Y/%m/%d %H:%M")
        date, _, hour = shown.partition(" ")
        return "/".join(part.lstrip("0") for part in date.split("/")) + " " + hour if shown else ""

    head = ["id", "job_name", "kind", "status", "user_id", "workspace_id", "job_max_running_time_minutes"]
    head += ["is_deleted", "gmt_created", "gmt_job_submitted", "gmt_job_running", "gmt_job_stopped", "gmt_job_finished"]
    rows, workers = [], []
    for job in case["jobs"]:
        submit, start, end = map(clock, lingjun_times(job))
        own = [job[key] for key in ("id", "name", "kind", "status", "user", "ws")] + [job["limit"] or "", 0]
        ends = [end, ""] if job["status"] == "Stopped" else ["", end]
        rows.append([*own, submit, submit if job["stated"] else "", start, *ends])
        for index, worker in enumerate(job["workers"]):
            asked = {"cpu": str(worker["cpus"]), "memory": f"{worker['cpus'] * 8}Gi", "koordinator.sh/rdma": "100"}
            gpus = {"nvidia.com/gpu": str(worker["gpus"])} if worker["gpus"] else {}
            place = [f"{job['name']}-worker-{index}", "worker", worker["host"], submit, start, end]
            workers.append([len(workers), job["name"], *place, json.dumps(asked | gpus)])
    rows_to(folder / "job.csv", head, rows)
    columns = ["id", "job_name", "worker_name", "replica_type", "host_ip", "gmt_created", "gmt_pod_running"]
    rows_to(folder / "worker.csv", [*columns, "gmt_pod_finished", "RES"], workers)
    rows_to(folder / "topo.csv", ["ip", "DSW", "PSW", "ASW"], [[host, "G1", "P1", "S2"] for host in case["hosts"]])
    return folder


def expect_lingjun(case: dict[str, Any]) -> Expected:
    words = {"Succeeded": "completed", "Failed": "failed", "Stopped": "cancelled", "Running": "running"}
    jobs = []
    for job in case["jobs"]:
        submit, start, end = lingjun_times(job)
        workers = job["workers"]
        sums = {key: sum(worker[key] for worker in workers) if workers else None for key in ("gpus", "cpus")}
        on = {worker["host"] for worker in workers} - {""}
        jobs.append(
            {
                "job_id": job["id"],
                "job_name": job["name"],
                "user": job["user"],
                "vc": job["ws"],
                "workload": job["kind"],
                "status": words.get(job["status"], "pending"),
                "submit_time": submit,
                "start_time": start,
                "end_time": end,
                "duration_s": None if job["run"] is None else job["run"] * 60,
                "queueing_delay_s": None if job["wait"] is None else job["wait"] * 60,
                "time_limit_s": None if job["limit"] is None else job["limit"] * 60,
                "num_gpus": sums["gpus"],
                "num_cpus": sums["cpus"],
                "mem_gib": None if sums["cpus"] is None else sums["cpus"] * 8,
                "num_tasks": (sum(worker["gpus"] > 0 for worker in workers) or len(workers)) if workers else None,
                "num_nodes": len(on) or None,
                "censoring": "never_started" if start is None else "right" if end is None else "none",
            }
        )
    all_workers = [worker for job in case["jobs"] for worker in job["workers"]]
    most = max((worker["gpus"] for worker in all_workers), default=0)
    nodes = [{"node_id": host, "num_gpus": most} for host in case["hosts"]]
    return Expected(jobs, len(jobs) + len(all_workers) + len(nodes), {"nodes": nodes})


def has_gpus(case: dict[str, Any]) -> bool:
    """Without any worker with GPUs the hosts' are not known, and they are set aside."""
    return any(worker["gpus"] for job in case["jobs"] for worker in job["workers"])


FORMATS = {
    "dlrm": Format("dlrm", instances(), write_dlrm, expect_dlrm),
    "spot_gpu": Format("spot_gpu", spot_cases(), write_spot, expect_spot),
    "lingjun": Format("lingjun", lingjun_cases().filter(has_gpus), write_lingjun, expect_lingjun),
}
