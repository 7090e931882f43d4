"""Alibaba's PAI 2020: headerless tables of jobs, tasks, instances, tags, machines, at the three levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.laws.formats.common import Expected, Format, Job, at, hashes, rows_to

STATUSES = {"Terminated": "completed", "Failed": "failed", "Running": "running", "Waiting": "pending"}
#: A task without a type has no GPUs.
TYPES = st.sampled_from(["", "T4", "P100", "V100M32", "MISC"])
TAGS = st.tuples(st.sampled_from(["", "T4", "V100M32"]), hashes, st.sampled_from(["", "bert"]))
MACHINES = st.integers(1, 6).map("m{:02d}".format)
#: Relative seconds; 0 means that it did not happen.
moments = st.integers(1, 5_000_000)


@st.composite
def cases(draw, *levels):
    """Jobs with tasks with workers, each of which may have begun again; tags and machines."""
    numbers = draw(st.lists(st.integers(1, 999), min_size=1, max_size=4, unique=True))
    jobs = [draw(_job(number)) for number in numbers]
    machine = st.tuples(st.sampled_from(["T4", "CPU", "V100M32"]), st.integers(1, 96), st.integers(0, 8))
    return {
        "jobs": jobs,
        "level": draw(st.sampled_from(levels)),
        "machines": draw(st.dictionaries(MACHINES, machine)),
    }


@st.composite
def _job(draw, number):
    submit = draw(moments)
    is_over = draw(st.booleans())
    kinds = draw(st.lists(st.sampled_from(["worker", "ps", "evaluator", "tensorflow"]), unique=True, max_size=3))
    tasks = [draw(_task(f"w{number:03d}{kind}", submit, is_over=is_over)) | {"task": kind} for kind in kinds]
    last = max((task["end"] or 0 for task in tasks), default=submit)
    word = draw(st.sampled_from(["Terminated", "Failed"] if is_over else ["Running"])) if tasks else "Waiting"
    return {
        "name": f"j{number:04d}",
        "inst": f"i{number:04d}",
        "user": draw(hashes),
        "status": word,
        "submit": submit,
        "end": last if tasks and is_over else None,
        "tasks": tasks,
        "tag": draw(st.none() | TAGS),
    }


@st.composite
def _task(draw, name, submit, *, is_over):
    kind, number = draw(TYPES), draw(st.integers(1, 8))
    begins = submit + draw(st.integers(0, 5000))
    workers = []
    for worker in range(draw(st.integers(0, 2))):
        runs, begin = [], begins
        for _ in range(draw(st.integers(1, 2))):
            end = begin + draw(st.integers(0, 50_000))
            runs.append({"start": begin, "end": end, "machine": draw(MACHINES)})
            begin = end + draw(st.integers(1, 100))
        if not is_over:
            runs[-1]["end"] = None
        workers.append({"name": f"{name}{worker}", "runs": runs})
    return {
        "number": number,
        "start": begins,
        "end": begins + draw(st.integers(0, 200_000)) if is_over else None,
        "cpu": draw(st.integers(1, 96)) * 100,
        "mem": draw(st.integers(1, 400)) / 4,
        # A quarter of a GPU, so that sums are exact.
        "gpu": draw(st.integers(1, 32)) * 25 if kind else None,
        "type": kind,
        "workers": workers,
        "done": draw(st.sampled_from(["Terminated", "Failed"])) if is_over else "Running",
    }


def cell(value: float | None) -> str:
    return "" if value is None else str(float(value))


def write(folder: Path, case: dict[str, Any]) -> Path:
    jobs, tasks, workers, tags = [], [], [], []
    for job in case["jobs"]:
        jobs.append([job["name"], job["inst"], job["user"], job["status"], cell(job["submit"]), cell(job["end"])])
        if job["tag"]:
            spec, group, workload = job["tag"]
            tags.append([job["inst"], job["user"], spec, group, workload])
        for task in job["tasks"]:
            head = [job["name"], task["task"]]
            spans = [cell(task["number"]), task["done"], cell(task["start"]), cell(task["end"])]
            plans = [cell(task["cpu"]), cell(task["mem"]), cell(task["gpu"]), task["type"]]
            tasks.append([*head, *spans, *plans])
            for worker in task["workers"]:
                for turn, run in enumerate(worker["runs"]):
                    word = word_of(task, worker, turn)
                    clocks = [cell(run["start"]), cell(run["end"]), run["machine"]]
                    workers.append([*head, f"n{len(workers)}", worker["name"], job["inst"], word, *clocks])
    machines = [[name, kind, cpus, cpus * 4, gpus] for name, (kind, cpus, gpus) in case["machines"].items()]
    tables = {"job_table": jobs, "task_table": tasks, "instance_table": workers, "group_tag_table": tags}
    for name, rows in (tables | {"machine_spec": machines}).items():
        # A table without rows and header would be an empty file.
        if rows:
            rows_to(folder / f"pai_{name}.csv", [], rows)
    return folder


def word_of(task: Job, worker: Job, turn: int) -> str:
    """A worker that began again had failed."""
    return task["done"] if turn == len(worker["runs"]) - 1 else "Failed"


def expect(case: dict[str, Any]) -> Expected:
    make = {"job": expect_job, "task": expect_tasks, "instance": expect_workers}[case["level"]]
    jobs = [row for job in case["jobs"] for row in make(job)]
    nodes = [
        {"node_id": name, "gpu_type": kind.replace("CPU", "") or None, "num_cpus": cpus, "num_gpus": gpus}
        for name, (kind, cpus, gpus) in case["machines"].items()
    ]
    tasks = [task for job in case["jobs"] for task in job["tasks"]]
    runs = [run for task in tasks for worker in task["workers"] for run in worker["runs"]]
    tags = [job for job in case["jobs"] if job["tag"]]
    tables = {"nodes": nodes}
    if case["level"] == "instance":
        tables["attempts"] = [row for task in tasks for worker in task["workers"] for row in expect_runs(worker)]
    rows = len(case["jobs"]) + len(tasks) + len(runs) + len(tags) + len(nodes)
    return Expected(jobs, rows, tables)


def expect_runs(worker: Job) -> list[Job]:
    return [
        {"job_id": worker["name"], "attempt": number, "nodes": [run["machine"]]} | span(run["start"], run["end"])
        for number, run in enumerate(worker["runs"], start=1)
    ]


def span(start: int | None, end: int | None) -> Job:
    return {
        "start_time": None if start is None else at(start, origin=0),
        "end_time": None if end is None else at(end, origin=0),
    }


def shared(job: Job) -> Job:
    """What rows of all levels have of their job."""
    spec, group, workload = job["tag"] or ("", "", "")
    owner = {"user": job["user"], "submit_time": at(job["submit"], origin=0), "group": group or None}
    return owner | {"workload": workload or None, "allowed_gpu_types": [spec] if spec else None}


def machines_of(workers: list[Job]) -> int | None:
    return len({run["machine"] for worker in workers for run in worker["runs"]}) or None


def expect_job(job: Job) -> list[Job]:
    tasks = job["tasks"]
    start = min((task["start"] for task in tasks), default=None)
    types = {task["type"] for task in tasks} - {""}
    with_gpus = sum(task["number"] for task in tasks if task["gpu"])
    own = {
        "job_id": job["name"],
        "status": STATUSES[job["status"]],
        "num_gpus": sum(task["number"] * (task["gpu"] or 0) / 100 for task in tasks) if tasks else None,
        "num_cpus": sum(task["number"] * task["cpu"] / 100 for task in tasks) if tasks else None,
        "mem_gib": sum(task["number"] * task["mem"] for task in tasks) if tasks else None,
        "num_tasks": (with_gpus or sum(task["number"] for task in tasks)) if tasks else None,
        "num_nodes": machines_of([worker for task in tasks for worker in task["workers"]]),
        "gpu_type": next(iter(types)) if len(types) == 1 else None,
        "duration_s": None if job["end"] is None else job["end"] - start,
        "queueing_delay_s": None if start is None else start - job["submit"],
        "censoring": "never_started" if not tasks else "none" if job["end"] else "right",
    }
    return [shared(job) | span(start, job["end"]) | own]


def expect_tasks(job: Job) -> list[Job]:
    rows = []
    for task in job["tasks"]:
        own = {
            "job_id": f"{job['name']}/{task['task']}",
            "status": STATUSES[task["done"]],
            "num_gpus": task["number"] * (task["gpu"] or 0) / 100,
            "num_cpus": task["number"] * task["cpu"] / 100,
            "mem_gib": task["number"] * task["mem"],
            "num_tasks": task["number"],
            "num_nodes": machines_of(task["workers"]),
            "gpu_type": task["type"] or None,
            "duration_s": None if task["end"] is None else task["end"] - task["start"],
        }
        rows.append(shared(job) | span(task["start"], task["end"]) | own)
    return rows


def expect_workers(job: Job) -> list[Job]:
    rows = []
    for task in job["tasks"]:
        for worker in task["workers"]:
            runs = worker["runs"]
            last = runs[-1]["end"]
            own = {
                "job_id": worker["name"],
                "status": STATUSES[task["done"]],
                "num_gpus": (task["gpu"] or 0) / 100,
                "num_cpus": task["cpu"] / 100,
                "mem_gib": task["mem"],
                "num_tasks": 1,
                "num_attempts": len(runs),
                "num_nodes": machines_of([worker]),
                "gpu_type": task["type"] or None,
                "duration_s": None if last is None else sum(run["end"] - run["start"] for run in runs),
            }
            rows.append(shared(job) | span(runs[0]["start"], last) | own)
    return rows


def has_level(case: dict[str, Any]) -> bool:
    """The table of the level that is asked for is no empty file."""
    tasks = [task for job in case["jobs"] for task in job["tasks"]]
    there = {"job": True, "task": tasks, "instance": [task for task in tasks if task["workers"]]}
    # Without the table of tasks what a job had is not known, and the law is about what is.
    return bool(tasks and there[case["level"]])


FORMATS = {
    name: Format("pai", cases(*levels).filter(has_level), write, expect, lambda case: {"level": case["level"]})
    for name, levels in {"pai": ("job", "task"), "pai instances": ("instance",)}.items()
}
