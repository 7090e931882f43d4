"""Jobs as Slurm's accounting knows them: runs that are requeued, jobs that never ran, wait, or still run."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.laws.formats.common import Job, at, plain, seconds, waits

#: State of a run that is followed by another.
REQUEUED = ("REQUEUED", "PREEMPTED", "NODE_FAIL")
#: State of a finished job -> status.
ENDED = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "NODE_FAIL": "node_fail",
    "OUT_OF_MEMORY": "failed",
    "BOOT_FAIL": "failed",
    "PREEMPTED": "preempted",
}
STATUSES = ENDED | {"RUNNING": "running", "PENDING": "pending"}


@st.composite
def some_accounts(draw, *, kinds):
    """Jobs with their runs; ``kinds`` are the types of GPUs that a job may have beside each other."""
    return [draw(_account(number, kinds)) for number in draw(st.lists(st.integers(1, 10**6), max_size=6, unique=True))]


@st.composite
def _account(draw, number, kinds):
    fate = draw(st.sampled_from(["ended", "ended", "running", "never", "pending"]))
    state = {"running": "RUNNING", "never": "CANCELLED", "pending": "PENDING"}.get(fate)
    types = draw(kinds)
    has_run = fate in ("ended", "running")
    runs = [draw(_run(draw(seconds)))]
    for _ in range(draw(st.integers(0, 2)) if has_run else 0):
        runs.append(draw(_run(end_of(runs[-1]) + draw(st.integers(1, 1000)))))
    return {
        "number": number,
        "user": draw(plain),
        "account": draw(plain),
        "partition": draw(plain),
        "limit": draw(st.none() | st.integers(1, 20_000)),
        "cpus": draw(st.integers(1, 256)),
        "gpus": draw(st.integers(len(types), 16)) if types else draw(st.just(0) | st.integers(0, 16)),
        "types": types,
        "nodes": sorted(draw(st.sets(st.integers(1, 12), min_size=1, max_size=5))),
        "mem_gib": draw(st.integers(1, 2000)),
        "fate": fate,
        "has_run": has_run,
        "state": state or draw(st.sampled_from(list(ENDED))),
        "requeued": draw(st.sampled_from(REQUEUED)),
        "runs": runs,
    }


@st.composite
def _run(draw, submit):
    length = draw(st.integers(1, 400_000))
    pause = draw(st.just(0) | st.integers(0, length))
    return {"submit": submit, "wait": draw(waits), "span": length, "pause": pause}


def end_of(run: dict[str, int]) -> int:
    return run["submit"] + run["wait"] + run["span"]


def states(job: Job) -> list[str]:
    """State of each run."""
    return [job["requeued"]] * (len(job["runs"]) - 1) + [job["state"]]


def clocks(job: Job, run: dict[str, int], *, origin: int) -> dict[str, Any]:
    """Times of a run: a waiting job has a submission only, one that never ran was cancelled at some time."""
    is_last = run is job["runs"][-1]
    has_end = job["fate"] in ("ended", "never") or not is_last
    return {
        "submit_time": at(run["submit"], origin=origin),
        "start_time": at(run["submit"] + run["wait"], origin=origin) if job["has_run"] else None,
        "end_time": at(end_of(run), origin=origin) if has_end else None,
    }


def expected_account(job: Job, *, origin: int) -> Job:
    """What both sources of Slurm's accounting must give of a job."""
    first, last = (clocks(job, run, origin=origin) for run in (job["runs"][0], job["runs"][-1]))
    ran = [run["span"] - run["pause"] for run in job["runs"]]
    censoring = {"ended": "none", "running": "right", "never": "never_started", "pending": "never_started"}
    return {
        "job_id": str(job["number"]),
        "user": job["user"],
        "vc": job["partition"],
        "submit_time": first["submit_time"],
        "start_time": first["start_time"],
        "end_time": last["end_time"],
        "duration_s": sum(ran) if job["has_run"] else None,
        "queueing_delay_s": job["runs"][0]["wait"] if job["has_run"] else None,
        "status": STATUSES[job["state"]],
        "time_limit_s": None if job["limit"] is None else job["limit"] * 60,
        "num_gpus": job["gpus"],
        "gpu_type": type_of(job) if job["has_run"] else None,
        "num_cpus": job["cpus"],
        "num_nodes": len(job["nodes"]),
        "mem_gib": job["mem_gib"],
        "num_attempts": len(job["runs"]) if job["has_run"] else 0,
        "censoring": censoring[job["fate"]],
    }


def type_of(job: Job) -> str | None:
    return "mixed" if len(job["types"]) > 1 else job["types"][0] if job["types"] else None


def expected_runs(job: Job, *, origin: int) -> list[Job]:
    """Rows of the attempts table, without nodes and GPUs."""
    if not job["has_run"]:
        return []
    names = ("start_time", "end_time")
    spans = [clocks(job, run, origin=origin) for run in job["runs"]]
    return [
        {"job_id": str(job["number"]), "attempt": number} | {name: span[name] for name in names}
        for number, span in enumerate(spans, start=1)
    ]
