"""Exports of Slurm's sacct in all their forms: separators, headers, times, steps, arrays, parts, requeues."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from tests.laws.formats.accounting import clocks, expected_account, expected_runs, some_accounts, states
from tests.laws.formats.common import BEGIN_S, Expected, Format, Job, local

FIELDS = ("JobID", "User", "Account", "Partition", "Submit", "Eligible", "Start", "End", "Suspended", "State")
FIELDS += ("NNodes", "NCPUS", "ReqTRES", "AllocTRES", "NodeList", "ExitCode", "Restarts", "MaxRSS")
STEPS = ("batch", "extern", "0", "17")
ZONES = ("Asia/Shanghai", "America/New_York", "Asia/Kolkata")
LIMIT_S = 86_400.0


@st.composite
def cases(draw):
    """Jobs, and how the export was asked for."""
    kinds = st.sampled_from([[], ["a100"], ["1g.10gb"], ["a100", "h100"]])
    lengths = draw(st.sampled_from([("Elapsed",), ("ElapsedRaw",), ("Elapsed", "ElapsedRaw")]))
    limits = draw(st.sampled_from([("Timelimit",), ("TimelimitRaw",), ("TimelimitRaw", "Timelimit")]))
    return {
        "jobs": [job | draw(_own(job)) for job in draw(some_accounts(kinds=kinds))],
        "fields": draw(st.permutations([*FIELDS, "JobIDRaw", *lengths, *limits])),
        "mark": draw(st.sampled_from(["|", ";", "^", "\t", "||"])),
        "trailing": draw(st.booleans()),
        "header": draw(st.booleans()),
        "zone": draw(st.none() | st.sampled_from(ZONES)),
        "steps": draw(st.booleans()),
        "all_runs": draw(st.booleans()),
        "unit": draw(st.sampled_from(["G", "M"])),
        "knows_limits": draw(st.booleans()),
    }


@st.composite
def _own(draw, job):
    """What only sacct shows: an array's task or some that wait, parts, what the steps used, words for no limit."""
    shapes = ["plain", "plain", "task", "parts", *["waiting"] * (job["fate"] == "pending")]
    return {
        "shape": draw(st.sampled_from(shapes)),
        "tasks": sorted(draw(st.sets(st.integers(0, 30), min_size=1, max_size=4))),
        "throttle": draw(st.sampled_from(["", "%4"])),
        "steps": {step: draw(st.integers(0, 10**8)) for step in draw(st.sets(st.sampled_from(STEPS)))},
        "no_limit": draw(st.sampled_from(["UNLIMITED", "Partition_Limit"])),
        "partitions": draw(st.sampled_from(["", ",long"])),
        "turn": draw(st.integers(0, 6)),
        "total": draw(st.booleans()),
    }


def ranges(numbers: list[int], width: int = 0) -> str:
    """1, 2, 3, 7 -> 1-3,7."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    ends = [[f"{number:0{width}d}" for number in dict.fromkeys((span[0], span[-1]))] for span in spans]
    return ",".join("-".join(end) for end in ends)


def hostlist(nodes: list[int]) -> str:
    return f"gpu{nodes[0]:02d}" if len(nodes) == 1 else f"gpu[{ranges(nodes, 2)}]"


def elapsed(second: int) -> str:
    days, rest = divmod(second, 86_400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def tres(job: Job, unit: str) -> str:
    mem = job["mem_gib"] if unit == "G" else job["mem_gib"] * 1024
    items = [f"billing={job['cpus']}", f"cpu={job['cpus']}", f"mem={mem}{unit}", f"node={len(job['nodes'])}"]
    *firsts, last = job["types"] or [None]
    items += [f"gres/gpu:{kind}=1" for kind in firsts]
    items += [f"gres/gpu:{last}={job['gpus'] - len(firsts)}"] if last else []
    # Versions differ in whether typed GPUs have a total beside them.
    items += [f"gres/gpu={job['gpus']}"] if job["gpus"] and (not last or job["total"]) else []
    return ",".join(items[job["turn"] :] + items[: job["turn"]])


def shown_ids(job: Job) -> list[str]:
    """What JobID shows, one per line of a run."""
    shapes = {"task": f"{job['number']}_4", "waiting": f"{job['number']}_[{ranges(job['tasks'])}{job['throttle']}]"}
    if job["shape"] == "parts":
        return [f"{job['number']}+{part}" for part in (0, 1)]
    return [shapes.get(job["shape"], str(job["number"]))]


def lines_of(case: dict[str, Any], job: Job) -> list[Job]:
    """The lines of a job: each run, or the last with a count, each with its steps."""
    runs = list(zip(job["runs"], states(job), strict=True))
    lines = []
    for run, state in runs if case["all_runs"] else runs[-1:]:
        for part, shown in enumerate(shown_ids(job)):
            line = allocation(case, job, run, state) | {"JobID": shown, "JobIDRaw": str(job["number"] * 10 + part)}
            lines.append(line)
            if case["steps"] and job["has_run"]:
                gone = {"User": "", "Partition": "", "Timelimit": "", "TimelimitRaw": "", "ReqTRES": ""}
                for step, rss in job["steps"].items():
                    ids = {name: f"{line[name]}.{step}" for name in ("JobID", "JobIDRaw")}
                    lines.append(line | gone | ids | {"MaxRSS": f"{rss}K"})
    return lines


def allocation(case: dict[str, Any], job: Job, run: dict[str, int], state: str) -> Job:
    times = clocks(job, run, origin=BEGIN_S)
    # A job that ended before it ran has another word for its start than one that may still run.
    words = {"submit_time": "", "start_time": "None" if job["fate"] == "never" else "Unknown", "end_time": "Unknown"}
    submit, start, end = (clock(case, times[name], words[name]) for name in words)
    length = run["span"] - run["pause"] if job["has_run"] else 0
    limit = job["limit"]
    return {
        "User": job["user"],
        "Account": job["account"],
        "Partition": job["partition"] + (job["partitions"] if job["fate"] == "pending" else ""),
        "Submit": submit,
        "Eligible": submit,
        "Start": start,
        "End": end,
        "Elapsed": elapsed(length),
        "ElapsedRaw": str(length),
        "Suspended": elapsed(run["pause"] if job["has_run"] else 0),
        "State": f"CANCELLED by {job['number']}" if state == "CANCELLED" else state,
        "Timelimit": job["no_limit"] if limit is None else elapsed(limit * 60),
        "TimelimitRaw": job["no_limit"] if limit is None else str(limit),
        "NNodes": str(len(job["nodes"])),
        "NCPUS": str(job["cpus"]),
        "ReqTRES": tres(job, case["unit"]),
        "AllocTRES": tres(job, case["unit"]) if job["has_run"] else "",
        "NodeList": hostlist(job["nodes"]) if job["has_run"] else "None assigned",
        "ExitCode": "0:0" if state == "COMPLETED" else "1:0",
        "Restarts": str(job["runs"].index(run)),
    }


def clock(case: dict[str, Any], time: Any, word: str) -> str:
    """Without a zone the export was made with SLURM_TIME_FORMAT=%s."""
    if time is None:
        return word
    return (
        str(int(time.timestamp())) if case["zone"] is None else local(time, ZoneInfo(case["zone"]), "%Y-%m-%dT%H:%M:%S")
    )


def all_lines(case: dict[str, Any]) -> list[Job]:
    return [line for job in case["jobs"] for line in lines_of(case, job)]


def write(folder: Path, case: dict[str, Any]) -> Path:
    rows = [[line.get(name, "") for name in case["fields"]] for line in all_lines(case)]
    end = case["mark"] if case["trailing"] else ""
    texts = [case["mark"].join(row) + end + "\n" for row in ([case["fields"]] if case["header"] else []) + rows]
    (folder / "sacct.txt").write_text("".join(texts), encoding="utf-8")
    return folder / "sacct.txt"


def options(case: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {} if case["zone"] is None else {"timezone": case["zone"]}
    if not case["header"]:
        given |= {"fields": ",".join(case["fields"]), "delimiter": case["mark"]}
    if case["knows_limits"]:
        given["partition_limits"] = {job["partition"]: LIMIT_S for job in case["jobs"]}
    return given


def expect(case: dict[str, Any]) -> Expected:
    jobs, attempts, usage = [], [], []
    # A cluster of which no line speaks of GPUs does not record them.
    records_gpus = any(job["gpus"] for job in case["jobs"])
    for job in case["jobs"]:
        seen = job if case["all_runs"] else job | {"runs": job["runs"][-1:]}
        for wanted in expected_jobs(case, seen, num_runs=len(job["runs"])):
            wanted |= {} if records_gpus else {"num_gpus": None}
            jobs.append(wanted)
            nodes = {"nodes": [f"gpu{node:02d}" for node in job["nodes"]] * len(shown_ids(job))}
            own = {"job_id": wanted["job_id"], "gpus": wanted["num_gpus"]}
            attempts += [row | own | nodes for row in expected_runs(seen, origin=BEGIN_S)]
            if case["steps"] and job["has_run"] and any(job["steps"].values()):
                most = max(job["steps"].values()) / 2**20
                usage.append({"job_id": wanted["job_id"], "mem_gib_max": most})
    return Expected(jobs, len(all_lines(case)), {"attempts": attempts, "usage": usage})


def expected_jobs(case: dict[str, Any], job: Job, *, num_runs: int) -> list[Job]:
    """A job, or the tasks of an array that wait."""
    wanted = expected_account(job, origin=BEGIN_S) | {"account": job["account"]}
    wanted["allowed_gpu_types"] = sorted(job["types"], key=tres(job, "G").index) or None
    wanted["num_attempts"] = num_runs if job["has_run"] else 0
    if job["limit"] is None and job["no_limit"] == "Partition_Limit" and case["knows_limits"]:
        wanted["time_limit_s"] = LIMIT_S
    if job["shape"] == "parts":
        wanted |= {name: wanted[name] * 2 for name in ("num_gpus", "num_cpus", "num_nodes", "mem_gib")}
    if job["shape"] == "task":
        wanted["job_id"] = f"{job['number']}_4"
    if job["shape"] != "waiting":
        return [wanted]
    return [wanted | {"job_id": f"{job['number']}_{task}"} for task in job["tasks"]]


def is_written(case: dict[str, Any]) -> bool:
    """An export without header and jobs is an empty file."""
    return case["header"] or bool(case["jobs"])


FORMATS = {"slurm": Format("slurm", cases().filter(is_written), write, expect, options)}
