"""Microsoft Philly: the job log with its attempts, the machine list, the utilisation files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from tests.laws.formats.common import Expected, Format, Job, at, local, names, seconds, waits

PACIFIC = ZoneInfo("America/Los_Angeles")
STATUSES = {"Pass": "completed", "Killed": "cancelled", "Failed": "failed"}
#: All that the log writes where it has no value.
NOTHING = (None, "", "None")
GPUS = st.sets(st.integers(0, 7), min_size=1).map(sorted)
MACHINES = st.integers(1, 6).map("m{}".format)


@st.composite
def cases(draw):
    jobs = []
    for number in draw(st.lists(st.integers(1, 10**5), max_size=6, unique=True)):
        submit, attempts = draw(seconds), []
        end = submit
        for _ in range(draw(st.integers(0, 3))):
            start = end + draw(waits)
            end = start + draw(st.integers(0, 10**6))
            attempts.append({"start": start, "end": end, "detail": draw(st.dictionaries(MACHINES, GPUS, min_size=1))})
        own = {"vc": draw(names), "user": draw(names), "status": draw(st.sampled_from(list(STATUSES)))}
        live = {"runs": bool(attempts) and draw(st.booleans()), "nothing": draw(st.sampled_from(NOTHING))}
        times = {"id": f"application_1506638472019_{number:05d}", "submit": submit, "attempts": attempts}
        jobs.append(times | own | live)
    return {"jobs": jobs, "listed": draw(st.dictionaries(MACHINES, st.sampled_from([2, 8])))}


def spans(job: Job) -> list[tuple[Any, Any]]:
    """Start and end of each attempt; the last of a job that runs has no end."""
    found = [(at(attempt["start"]), at(attempt["end"])) for attempt in job["attempts"]]
    return [*found[:-1], (found[-1][0], None)] if job["runs"] else found


def write(folder: Path, case: dict[str, Any]) -> list[Path]:
    records = []
    for job in case["jobs"]:
        attempts = []
        for attempt, span in zip(job["attempts"], spans(job), strict=True):
            detail = [{"ip": ip, "gpus": [f"gpu{gpu}" for gpu in gpus]} for ip, gpus in attempt["detail"].items()]
            clocks = [local(time, PACIFIC, missing=job["nothing"]) for time in span]
            attempts.append({"start_time": clocks[0], "end_time": clocks[1], "detail": detail})
        own = {"status": job["status"], "vc": job["vc"], "jobid": job["id"], "attempts": attempts}
        records.append(own | {"submitted_time": local(at(job["submit"]), PACIFIC), "user": job["user"]})
    log, machines = folder / "cluster_job_log", folder / "cluster_machine_list"
    log.write_text(json.dumps(records, indent=1), encoding="utf-8")
    sizes = [f"{machine}, {size}, {size * 3 if size > 2 else 12}GB\n" for machine, size in case["listed"].items()]
    machines.write_text("machineId, number of GPUs, single GPU mem\n" + "".join(sizes), encoding="utf-8")
    return [log, machines]


def expect(case: dict[str, Any]) -> Expected:
    listed = case["listed"]
    jobs, attempts, most = [], [], dict(listed)
    for job in case["jobs"]:
        jobs.append(expect_job(job, listed))
        for number, (attempt, (start, end)) in enumerate(zip(job["attempts"], spans(job), strict=True), start=1):
            detail = attempt["detail"]
            own = {"job_id": job["id"], "attempt": number, "start_time": start, "end_time": end}
            attempts.append(own | {"nodes": list(detail), "gpus": sum(map(len, detail.values()))})
            for machine, gpus in detail.items():
                most[machine] = max(most.get(machine, 0), gpus[-1] + 1)
    nodes = [{"node_id": node, "num_gpus": size, "gpu_type": type_of(listed.get(node))} for node, size in most.items()]
    return Expected(jobs, len(jobs) + len(listed), {"attempts": attempts, "nodes": nodes})


def type_of(size: int | None) -> str | None:
    return None if size is None else "24GB" if size == 8 else "12GB"


def expect_job(job: Job, listed: dict[str, int]) -> Job:
    attempts = job["attempts"]
    first = attempts[0]["detail"] if attempts else {}
    types = {type_of(listed.get(machine)) for machine in first}
    lengths = [attempt["end"] - attempt["start"] for attempt in attempts]
    submit = at(job["submit"])
    start = spans(job)[0][0] if attempts else None
    too_many = any(
        gpus[-1] >= listed.get(machine, 8) for attempt in attempts for machine, gpus in attempt["detail"].items()
    )
    return {
        "job_id": job["id"],
        "user": job["user"],
        "vc": job["vc"],
        "status": STATUSES[job["status"]],
        "submit_time": submit,
        "start_time": start,
        "end_time": spans(job)[-1][1] if attempts else None,
        "duration_s": sum(lengths) if attempts and not job["runs"] else None,
        "queueing_delay_s": None if start is None else (start - submit).total_seconds(),
        "num_gpus": sum(map(len, first.values())) if attempts else None,
        "num_nodes": len(first) or None,
        "num_attempts": len(attempts),
        "gpu_type": next(iter(types)) if len(types) == 1 else None,
        "censoring": "never_started" if not attempts else "right" if job["runs"] else "none",
        "flags": ["over_capacity"] * too_many + ["unknown_gpus"] * (not attempts),
    }


@st.composite
def usage_cases(draw):
    """Minutes of machines: what GPUs, processors and memory did; ``None`` is written as NA."""
    percent = st.none() | st.integers(0, 400).map(lambda quarter: quarter / 4)
    row = st.tuples(st.integers(0, 150_000), MACHINES)
    return {
        "gpu": draw(st.lists(st.tuples(row, st.lists(percent, min_size=8, max_size=8)), max_size=4)),
        "cpu": draw(st.lists(st.tuples(row, percent), min_size=1, max_size=6)),
        "mem": draw(st.lists(st.tuples(row, st.sampled_from([0, 2**28]), st.integers(0, 2**28)), max_size=6)),
    }


def minute(number: int) -> Any:
    return at(number * 60, origin=1_506_000_000)


def write_usage(folder: Path, case: dict[str, Any]) -> list[Path]:
    def begin(row: tuple[int, str]) -> str:
        return minute(row[0]).astimezone(PACIFIC).strftime("%Y-%m-%d %H:%M:%S %Z,") + row[1]

    def cell(value: float | None) -> str:
        return "NA" if value is None else str(value)

    heads = {
        "gpu": "time,machineId," + ",".join(f"gpu{gpu}_util" for gpu in range(8)),
        "cpu": "time,machine_id,cpu_util",
        "mem": "time,machine_id,mem_total,mem_free",
    }
    lines = {
        # The rows, not the header, end with a comma.
        "gpu": [f"{begin(row)},{','.join(map(cell, values))}," for row, values in case["gpu"]],
        "cpu": [f"{begin(row)},{cell(value)}" for row, value in case["cpu"]],
        "mem": [f"{begin(row)},{total},{min(free, total)}" for row, total, free in case["mem"]],
    }
    paths = {name: folder / f"cluster_{name}_util" for name in heads}
    for name, path in paths.items():
        path.write_text("\n".join([heads[name], *lines[name]]) + "\n", encoding="utf-8")
    return list(paths.values())


def expect_usage(case: dict[str, Any]) -> Expected:
    def share(value: float | None) -> float | None:
        return None if value is None else value / 100

    def one(row: tuple[int, str], metric: str, value: float | None, gpu: str = "") -> Job:
        return {"entity": row[1] + gpu, "time": minute(row[0]), "metric": metric, "value": value}

    series = [
        one(row, "gpu_utilization", share(value), f"/gpu{gpu}")
        for row, values in case["gpu"]
        for gpu, value in enumerate(values)
    ]
    series += [one(row, "cpu_utilization", share(value)) for row, value in case["cpu"]]
    for row, total, free in case["mem"]:
        series.append(one(row, "mem_utilization", 1 - min(free, total) / total if total else None))
        series.append(one(row, "mem_total_gib", total / 2**20))
    return Expected([], sum(map(len, case.values())), {"usage_series": series})


FORMATS = {
    "philly": Format("philly", cases(), write, expect),
    "philly utilisation": Format("philly", usage_cases(), write_usage, expect_usage),
}
