"""Files that are no tables with a header: SWF, Gavel, Batsim, Kubernetes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.laws.formats.common import (
    BEGIN_S,
    Job,
    canonical,
    digits,
    names,
    of_jobs,
    plain,
    some_jobs,
    texts,
    times,
    without_times,
)


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


#: A headerless file of no lines is an empty file.
classes = some_jobs(never=False, name=plain).filter(bool)
FORMATS = {
    "swf": of_jobs("swf", write_swf, some_jobs(name=digits), read_swf, processors_as_gpus=True),
    "gavel": of_jobs("gavel", write_gavel, classes, without_times, ids_are_rows=True),
    "gavel, old": of_jobs("gavel", write_gavel_old, classes, without_times, ids_are_rows=True),
    "batsim": of_jobs("batsim", write_batsim, some_jobs(never=False, ids=names), read_batsim),
    "kubernetes": of_jobs("kubernetes", write_kubernetes, some_jobs(ids=texts), read_kubernetes),
}
