"""AcmeTrace: the job logs of Seren and Kalos, and the wide utilisation files."""

from __future__ import annotations

from datetime import UTC
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
    local,
    names,
    rows_to,
    some_jobs,
    times,
)

SEREN = ["job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state", "submit_time", "start_time", "end_time"]
KALOS = ["job_id", "user", "node_num", "gpu_num", "cpu_num", "mem_per_pod_GB", "shared_mem_per_pod", "type", "state"]
KALOS += ["submit_time", "start_time", "end_time", "fail_time", "stop_time"]
WORDS = {
    "completed": ["COMPLETED"],
    "failed": ["FAILED", "TIMEOUT", "NODE_FAIL"],
    "cancelled": ["CANCELLED", "PREEMPTED"],
}


@st.composite
def cases(draw):
    """Jobs of one cluster, with the class that it gives them and the rarer words for outcomes."""
    jobs = draw(some_jobs(name=names))
    kind = st.sampled_from(["Pretrain", "SFT", "MLLM", "Eval", "Debug", "Other", ""])
    for job in jobs:
        ran = job["run"] is not None
        words = WORDS[job["status"]] if ran else ["CANCELLED"]
        job |= {"type": draw(kind), "state": draw(st.sampled_from(words)), "cancel": draw(st.integers(0, 10**5))}
    return {"jobs": jobs, "kalos": draw(st.booleans())}


def published(case: dict[str, Any], job: Job) -> int:
    """Kalos counts the wait too."""
    if job["run"] is None:
        return job["cancel"]
    return job["run"] + (job["wait"] if case["kalos"] else 0)


def instants(job: Job) -> tuple[Any, Any, Any]:
    """A job that never ran was cancelled at some time."""
    submit, start, end = times(job)
    return submit, start, at(job["submit"] + job["cancel"]) if end is None else end


def write(folder: Path, case: dict[str, Any]) -> Path:
    rows = []
    for job in case["jobs"]:
        if case["kalos"]:
            clocks = [f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}+00:00" if time else "" for time in instants(job)]
        else:
            clocks = [f"{local(time, SHANGHAI)}+08:00" if time else "" for time in instants(job)]
        own = [job["job_id"], job["user"], 1, job["num_gpus"], job["num_cpus"]]
        length, wait = published(case, job), "" if job["wait"] is None else float(job["wait"])
        if case["kalos"]:
            own += [1000, 100.0]
            failed, stopped = job["state"] == "FAILED", job["state"] == "CANCELLED"
            clocks += [clocks[-1] if failed else "", clocks[-1] if stopped else ""]
        rows.append([*own, job["type"], job["state"], *clocks, length, wait, length * float(job["num_gpus"])])
    columns = [*(KALOS if case["kalos"] else SEREN), "duration", "queue", "gpu_time"]
    return rows_to(folder / "trace.csv", columns, rows)


def expect(case: dict[str, Any]) -> Expected:
    rare = {"TIMEOUT": "timeout", "NODE_FAIL": "node_fail", "PREEMPTED": "preempted"}
    jobs = []
    for job in case["jobs"]:
        submit, start, end = instants(job)
        # Within a second the published duration is the same.
        has_wait = case["kalos"] and job["run"] is not None and job["wait"] > 1
        jobs.append(
            {
                "job_id": job["job_id"],
                "cluster": "kalos" if case["kalos"] else "seren",
                "user": job["user"],
                "workload": job["type"] or None,
                "status": rare.get(job["state"], job["status"]),
                "status_raw": job["state"],
                "submit_time": submit,
                "start_time": start,
                "end_time": end,
                "duration_s": job["run"],
                "queueing_delay_s": job["wait"],
                "num_gpus": job["num_gpus"],
                "num_cpus": job["num_cpus"],
                "censoring": "never_started" if start is None else "none",
                "flags": ["duration_mismatch", "duration_includes_queue"] if has_wait else [],
            }
        )
    return Expected(jobs, len(jobs))


#: Metric of a file -> ours, what a value is divided by, values that it may have.
METRICS = {
    "GPU_UTIL": ("gpu_utilization", 100, st.integers(0, 100)),
    "NODE_CPU_UTILIZATION": ("cpu_utilization", 100, st.integers(0, 955).map(lambda quarter: quarter / 4)),
    "FB_USED": ("gpu_mem_used_gib", 1024, st.integers(0, 81_920)),
    "POWER_USAGE": ("gpu_power_w", 1, st.integers(0, 4000).map(lambda tenth: tenth / 10)),
    "PIPE_TENSOR_ACTIVE": ("gpu_tensor_active", 1, st.integers(0, 1000).map(lambda part: part / 1000)),
}


@st.composite
def usage_cases(draw):
    """Some metrics, each of some GPUs at some times, in one file or two; an empty cell was not measured."""
    columns = st.lists(st.integers(0, 7).map("172.31.0.1-{}".format), min_size=1, max_size=3, unique=True)
    files = {}
    for metric in draw(st.lists(st.sampled_from(list(METRICS)), min_size=1, max_size=2, unique=True)):
        entities = draw(columns)
        values = st.lists(st.none() | METRICS[metric][2], min_size=len(entities), max_size=len(entities))
        rows = draw(st.dictionaries(st.integers(0, 10**6), values, min_size=1, max_size=5))
        files[metric] = {"entities": entities, "rows": dict(sorted(rows.items())), "cut": draw(st.integers(0, 5))}
    return files


def write_usage(folder: Path, case: dict[str, Any]) -> Path:
    for metric, file in case.items():
        rows = [
            [f"{local(at(step * 15), SHANGHAI)}+08:00", *("" if value is None else value for value in values)]
            for step, values in file["rows"].items()
        ]
        head = ["Time", *file["entities"]]
        parts = {f"{metric}-2023-07-01.csv": rows[: file["cut"]], f"{metric}-2023-07-02.csv": rows[file["cut"] :]}
        for name, part in parts.items() if file["cut"] else [(f"{metric}.csv", rows)]:
            rows_to(folder / name, head, part)
    return folder


def expect_usage(case: dict[str, Any]) -> Expected:
    series = []
    for metric, file in case.items():
        name, divisor, _ = METRICS[metric]
        for step, values in file["rows"].items():
            for entity, value in zip(file["entities"], values, strict=True):
                one = {"entity": entity, "time": at(step * 15, origin=BEGIN_S), "metric": name}
                series.append(one | {"value": None if value is None else value / divisor})
    return Expected([], sum(len(file["rows"]) for file in case.values()), {"usage_series": series})


FORMATS = {
    "acme": Format("acme", cases(), write, expect),
    "acme utilisation": Format("acme", usage_cases(), write_usage, expect_usage),
}
