"""MIT Supercloud: records of Slurm's database with its numbers, in both layouts, and GPU series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.laws.formats.accounting import clocks, expected_account, expected_runs, some_accounts, states
from tests.laws.formats.common import BEGIN_S, EPOCH, Expected, Format, Job, at, rows_to

#: slurm.h: base states and the flag of a requeue.
CODES = {
    "PENDING": 0,
    "RUNNING": 1,
    "COMPLETED": 3,
    "CANCELLED": 4,
    "FAILED": 5,
    "TIMEOUT": 6,
    "NODE_FAIL": 7,
    "PREEMPTED": 8,
    "BOOT_FAIL": 9,
    "DEADLINE": 10,
    "OUT_OF_MEMORY": 11,
    "REQUEUED": 1 << 10,
}
COMPLETING = 1 << 15
INFINITE, NO_VAL, PER_CPU = 2**32 - 1, 2**32 - 2, 1 << 63
GPU_IDS = {"tesla": 1001, "volta": 1002}
LOG = ["id_job", "id_array_job", "id_array_task", "id_user", "kill_requid", "nodes_alloc", "nodelist", "cpus_req"]
LOG += ["derived_ec", "exit_code", "gres_used", "array_max_tasks", "array_task_pending", "constraints", "flags"]
LOG += ["mem_req", "partition", "priority", "state", "timelimit", "time_submit", "time_eligible", "time_start"]
LOG += ["time_end", "time_suspended", "track_steps", "tres_alloc", "tres_req", "job_type"]


@st.composite
def cases(draw):
    kinds = st.sampled_from([["volta"], ["tesla"], ["tesla", "volta"]])
    jobs = []
    for job in draw(some_accounts(kinds=kinds)):
        has_gpus = job["gpus"] >= len(job["types"]) and draw(st.booleans())
        own = {"user": str(draw(st.integers(1, 10**6))), "flag": draw(st.sampled_from([0, COMPLETING]))}
        own |= {"per_cpu": draw(st.booleans()), "in_tres": draw(st.booleans())}
        # Memory in whole MB per processor.
        own |= {"mem_gib": job["cpus"] * draw(st.integers(1, 64)) / 4}
        jobs.append(job | own | ({} if has_gpus else {"gpus": 0, "types": []}))
    return {"jobs": jobs, "relative": draw(st.booleans())}


def origin_of(case: dict[str, Any]) -> int:
    """Relative times begin with the first submission, at 0."""
    first = min((job["runs"][0]["submit"] for job in case["jobs"]), default=0)
    return -first if case["relative"] else BEGIN_S


def write(folder: Path, case: dict[str, Any]) -> Path:
    missing = -1 if case["relative"] else 0
    rows = []
    for job in case["jobs"]:
        for run, state in zip(job["runs"], states(job), strict=True):
            spans = clocks(job, run, origin=origin_of(case))
            shown = [missing if time is None else int((time - EPOCH).total_seconds()) for time in spans.values()]
            flag = job["flag"] if state in ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT") else 0
            rows.append(record(job, CODES[state] | flag, shown, run["pause"]))
    columns = LOG
    if case["relative"]:
        # The HPCA'22 layout: id_job last, and two columns of GRES before gres_used.
        place = LOG.index("gres_used")
        columns = [*LOG[1:place], "gres_req", "gres_alloc", *LOG[place:], "id_job"]
    name = "scheduler_data.csv" if case["relative"] else "slurm-log.csv"
    return rows_to(folder / name, columns, [[row.get(column, "") for column in columns] for row in rows])


def record(job: Job, state: int, shown: list[int], pause: int) -> Job:
    submit, start, end = shown
    mem_mb = int(job["mem_gib"] * 1024)
    amounts = {1: job["cpus"]} | ({2: mem_mb} if job["in_tres"] else {}) | {4: len(job["nodes"]), 5: job["cpus"]}
    tres = ",".join(f"{key}={value}" for key, value in (amounts | split(job)).items())
    hosts = "[" + ", ".join(f"'r1-n{node}'" for node in job["nodes"]) + "]" if job["has_run"] else "[]"
    return {
        "id_job": job["number"],
        "id_array_job": 0,
        "id_array_task": NO_VAL,
        "id_user": job["user"],
        "kill_requid": -1,
        "nodes_alloc": len(job["nodes"]) if job["has_run"] else 0,
        "nodelist": hosts,
        "cpus_req": job["cpus"],
        "mem_req": PER_CPU + mem_mb // job["cpus"] if job["per_cpu"] else mem_mb,
        "partition": job["partition"],
        "state": state,
        "timelimit": INFINITE if job["limit"] is None else job["limit"],
        "time_submit": submit,
        "time_eligible": submit,
        "time_start": start,
        "time_end": end,
        "time_suspended": pause,
        "tres_alloc": tres if job["has_run"] else "",
        "tres_req": tres,
        "job_type": "OTHER",
    }


def split(job: Job) -> dict[int, int]:
    """GPUs by id: the first type has one, the last the rest."""
    *firsts, last = job["types"] or [None]
    return {} if last is None else {GPU_IDS[kind]: 1 for kind in firsts} | {GPU_IDS[last]: job["gpus"] - len(firsts)}


def expect(case: dict[str, Any]) -> Expected:
    origin = origin_of(case)
    jobs, attempts = [], []
    for job in case["jobs"]:
        wanted = expected_account(job, origin=origin)
        if job["fate"] == "running":
            # The record of a running job has no elapsed time: only its former runs are known.
            done = [run["span"] - run["pause"] for run in job["runs"][:-1]]
            wanted["duration_s"] = sum(done) if done else None
        jobs.append(wanted)
        nodes = {"nodes": [f"r1-n{node}" for node in job["nodes"]], "gpus": job["gpus"]}
        attempts += [row | nodes for row in expected_runs(job, origin=origin)]
    return Expected(jobs, sum(len(job["runs"]) for job in case["jobs"]), {"attempts": attempts})


SERIES = ["timestamp", "gpu_index", "utilization_gpu_pct", "utilization_memory_pct", "memory_free_MiB"]
SERIES += ["memory_used_MiB", "temperature_gpu", "temperature_memory", "power_draw_W", "pcie_link_width_current"]


@st.composite
def series_cases(draw):
    """Samples of some jobs: job, tenth of a second, GPU, percent, percent, MiB free, MiB used, degrees, watts."""
    percent = st.integers(0, 1000).map(lambda tenth: tenth / 10)
    mib, whole = st.integers(0, 32_510), st.integers(0, 300)
    sample = st.tuples(st.integers(0, 10**6), st.integers(0, 1), percent, percent, mib, mib, whole, whole, whole)
    numbers = st.integers(1, 10**6)
    return draw(st.dictionaries(numbers, st.lists(sample, min_size=1, max_size=6), min_size=1, max_size=3))


def write_series(folder: Path, case: dict[int, list[Any]]) -> Path:
    for number, samples in case.items():
        rows = [[f"{BEGIN_S + tenth / 10:.2f}", *rest, 16] for tenth, *rest in samples]
        rows_to(folder / f"{number}-r1-n1.csv", SERIES, rows)
    return folder


def expect_series(case: dict[int, list[Any]]) -> Expected:
    names = ["gpu_utilization", "gpu_mem_copy_utilization", "gpu_mem_free_gib", "gpu_mem_used_gib"]
    names += ["gpu_temperature_c", "gpu_mem_temperature_c", "gpu_power_w", "gpu_pcie_lanes"]
    series, usage = [], []
    for number, samples in case.items():
        for tenth, gpu, *values in samples:
            of_sample = {"entity": f"{number}-r1-n1/{gpu}", "time": at(tenth / 10)}
            scales = [100, 100, 1024, 1024, 1, 1, 1, 1]
            for metric, value, scale in zip(names, [*values, 16], scales, strict=True):
                series.append(of_sample | {"metric": metric, "value": value / scale})
        busy = sorted(sample[2] for sample in samples)
        # The lowest utilisation that half of the samples do not exceed.
        middle = busy[-(-len(busy) // 2) - 1]
        most = max(sample[5] for sample in samples)
        usage.append(
            {"job_id": str(number), "gpu_utilization_p50": round(middle * 10) / 1000, "gpu_mem_gib_max": most / 1024}
        )
    tables = {"usage_series": series, "usage": usage}
    return Expected([], sum(map(len, case.values())), tables)


FORMATS = {
    "mit_supercloud": Format("mit_supercloud", cases(), write, expect),
    "mit_supercloud GPU series": Format("mit_supercloud", series_cases(), write_series, expect_series),
}
