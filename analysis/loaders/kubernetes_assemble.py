"""Jobs of Kubernetes put together from job objects and pods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.loaders.kubernetes_about import About
from analysis.loaders.kubernetes_jobs import ENDED, JobFacts
from analysis.loaders.kubernetes_objects import Item
from analysis.loaders.kubernetes_pods import PodFacts, Run, attempt_runs, peak
from analysis.loaders.rows import LINE

__all__ = ["Gathered", "assemble"]

EXTRA: Final = {
    "reason": pl.String(),
    "gpu_resource": pl.String(),
    "priority_class": pl.String(),
    "owner": pl.String(),
}
#: Ways to end that need no start.
GAVE_UP: Final = ("failed", "cancelled", "timeout", "preempted", "node_fail")
ROWS: Final = {
    LINE: pl.Int64(),
    "_file": pl.String(),
    **{
        name: dtype
        for name, dtype in schema.JOBS.items()
        if name not in ("extra", "flags", "queueing_delay_s", "cluster", "user", "eligible_time")
    },
    "extra": pl.Struct(EXTRA),
}


@dataclass(frozen=True)
class Gathered:
    """Jobs and what else they are made of.

    Attributes
    ----------
    jobs, attempts : DataFrame
        For `finish_trace`; as ``schema.ATTEMPTS``.
    num_merged : int
        Pods that were folded into the row of another object.
    num_without_pods : int
        Jobs that ran and whose pods are not there.
    num_slices : int
        Jobs that ask for MIG slices.
    """

    jobs: pl.DataFrame
    attempts: pl.DataFrame
    num_merged: int
    num_without_pods: int
    num_slices: int


def assemble(
    pods: Mapping[str, PodFacts], jobs: Mapping[str, JobFacts], *, types: Mapping[str, str | None]
) -> Gathered:
    """Put jobs together.

    Parameters
    ----------
    pods, jobs : mapping of UID to facts
        What was read.
    types : mapping of node name to GPU model
        From the nodes, if they are there.

    Returns
    -------
    Gathered
    """
    of_owner: dict[str, list[PodFacts]] = defaultdict(list)
    for pod in pods.values():
        owner = pod.job_owner
        of_owner[owner[1] if owner else pod.item.uid].append(pod)
    rows, attempts = [], []
    without_pods = 0
    for uid, job in jobs.items():
        own = _in_order(of_owner.pop(uid, []))
        runs = attempt_runs([pod.run for pod in own])
        rows.append(_never_ran(job.status, _of_job(uid, job, runs, types)))
        attempts += [(uid, number, run) for number, run in enumerate(runs, start=1)]
        without_pods += not runs and job.start is not None
    for uid, own in of_owner.items():
        own = _in_order(own)
        runs = _with_restarts(own[0]) if len(own) == 1 else attempt_runs([pod.run for pod in own])
        row = _of_pods(uid, own, attempt_runs([pod.run for pod in own]), len(runs), types)
        rows.append(_never_ran(row["status"], row))
        attempts += [(uid, number, run) for number, run in enumerate(runs, start=1)]
    table = pl.DataFrame(rows, schema=ROWS)
    slices = table.select(pl.col("extra").struct.field("gpu_resource").str.contains("/mig-").sum()).item()
    return Gathered(
        jobs=table,
        attempts=_attempts(attempts),
        num_merged=len(pods) - len(of_owner),
        num_without_pods=without_pods,
        num_slices=int(slices or 0),
    )


def _in_order(pods: Sequence[PodFacts]) -> list[PodFacts]:
    return sorted(pods, key=lambda pod: (pod.submit is None, str(pod.submit), pod.item.uid))


def _attempts(found: Sequence[tuple[str, int, Run]]) -> pl.DataFrame:
    rows = [(uid, number, run.start, run.end, list(run.nodes) or None, run.num_gpus) for uid, number, run in found]
    return pl.DataFrame(rows, schema=schema.ATTEMPTS, orient="row").sort("job_id", "attempt")


def _with_restarts(pod: PodFacts) -> list[Run]:
    """The runs of a pod whose containers were restarted; of all but the last two nothing is known."""
    if pod.start is None:
        return []
    if not pod.restarts:
        return [pod.run]
    unknown = [Run(None, None, pod.run.nodes, pod.request.num_gpus)] * (pod.restarts - 1)
    before = pod.before or Run(pod.start if pod.restarts == 1 else None, None, pod.run.nodes, pod.request.num_gpus)
    return [*unknown[:MOST_RESTARTS], before, Run(before.end, pod.end, pod.run.nodes, pod.request.num_gpus)]


#: More restarts than this are counted, not listed: a pod that crashes for a month has thousands.
MOST_RESTARTS: Final = 1000


def _common(uid: str, item: Item, about: About) -> dict[str, Any]:
    return {
        LINE: item.line,
        "_file": item.file,
        "job_id": uid,
        "job_name": about.name,
        "account": about.namespace,
        "vc": about.queue or about.namespace,
        "time_limit_s": about.time_limit_s,
    }


def _types(runs: Sequence[Run], types: Mapping[str, str | None], slice_type: str | None) -> str | None:
    """The one GPU model that a job ran on; null if there were several or it is not known."""
    found = {types.get(node) for run in runs for node in run.nodes}
    return found.pop() or slice_type if len(found) == 1 else slice_type if not found else None


def _running_time(runs: Sequence[Run]) -> float | None:
    """Sum of the attempts [s]; null if one of them is not over."""
    if not runs or any(run.end is None or run.start is None for run in runs):
        return None
    return sum((run.end - run.start).total_seconds() for run in runs if run.end and run.start)


def _of_job(uid: str, job: JobFacts, runs: Sequence[Run], types: Mapping[str, str | None]) -> dict[str, Any]:
    """Row of a job object; its pods tell better than itself when it ran."""
    asked = [request for count, request in job.tasks for _ in range(min(count, 1))]
    resources = sorted({name for request in asked for name in request.gpu_resources})
    ended = job.status in ENDED
    ends = [run.end for run in runs if run.end is not None]
    start = runs[0].start if runs else job.start
    end = (job.end or max(ends, default=None)) if ended else None
    duration = _running_time(runs) if ended else None
    if duration is None and ended and start is not None and end is not None:
        duration = (end - start).total_seconds()
    has_gpus = any(request.num_gpus for request in asked)
    slice_type = asked[0].slice_type if len(asked) == 1 else None
    nodes = set(runs[-1].nodes) if runs else set()
    owner = job.about.owner
    return _common(uid, job.item, job.about) | {
        "group": owner[2] if owner and owner[0] == "CronJob" else None,
        "workload": _kind(job.item),
        "submit_time": job.submit,
        "start_time": start,
        "end_time": end,
        "num_gpus": sum(count * request.num_gpus for count, request in job.tasks),
        "num_cpus": sum(count * request.num_cpus for count, request in job.tasks),
        "mem_gib": sum(count * request.mem_gib for count, request in job.tasks),
        "gpu_type": _types(runs, types, slice_type) if has_gpus else None,
        "allowed_gpu_types": job.allowed,
        "num_tasks": sum(count for count, _ in job.tasks),
        "num_nodes": len(nodes) or None,
        "is_single_node": None,
        "status": job.status,
        "status_raw": job.status_raw,
        "duration_s": duration,
        "num_attempts": len(runs) or (None if job.retries is None else job.retries + 1),
        "extra": _extra(job.reason, resources, job.about),
    }


def _of_pods(
    uid: str, pods: Sequence[PodFacts], runs: Sequence[Run], num_attempts: int, types: Mapping[str, str | None]
) -> dict[str, Any]:
    """Row of pods without a job object: of one pod, or of all that one controller made."""
    first, last = pods[0], pods[-1]
    is_single = len(pods) == 1
    going = [pod for pod in pods if pod.status in ("running", "pending", "unknown", None)]
    deciding = going[-1] if going else max(pods, key=lambda pod: (pod.end is not None, str(pod.end), pod.item.uid))
    status = "running" if going and runs and deciding.status == "pending" else deciding.status
    ended = not going
    ends = [run.end for run in runs if run.end is not None]
    resources = sorted({name for pod in pods for name in pod.request.gpu_resources})
    num_gpus = peak([pod.run for pod in pods])
    at_once = _at_once(pods)
    slices = {pod.request.slice_type for pod in pods}
    has_types = _types(runs, types, slices.pop() if len(slices) == 1 else None)
    submits = [pod.submit for pod in pods if pod.submit is not None]
    restarts = first.restarts + 1 if is_single and runs else num_attempts
    owner = first.about.owner
    return _common(uid, first.item, first.about) | {
        "job_name": owner[2] if not is_single and owner else first.about.name,
        "group": None,
        "workload": owner[0] if owner else "Pod",
        "submit_time": min(submits, default=None),
        "start_time": runs[0].start if runs else None,
        "end_time": max(ends, default=None) if ended and len(ends) == len(runs) else None,
        "num_gpus": num_gpus,
        "num_cpus": last.request.num_cpus * at_once,
        "mem_gib": last.request.mem_gib * at_once,
        "gpu_type": has_types if num_gpus else None,
        "allowed_gpu_types": first.allowed,
        "num_tasks": at_once,
        "num_nodes": len(runs[-1].nodes) or None if runs else None,
        "is_single_node": True if is_single else None,
        "status": status,
        "status_raw": deciding.phase,
        "duration_s": _running_time(runs) if ended else None,
        "num_attempts": restarts or None,
        "extra": _extra(deciding.reason, resources, first.about),
    }


def _at_once(pods: Sequence[PodFacts]) -> int:
    """How many pods there were at once."""
    return int(peak([Run(pod.start, pod.end, (), 1.0) for pod in pods]))


def _kind(item: Item) -> str:
    return str(item.raw.get("kind", "Job"))


def _extra(reason: str | None, resources: Iterable[str], about: About) -> dict[str, Any]:
    return {
        "reason": reason,
        "gpu_resource": ",".join(resources) or None,
        "priority_class": about.priority_class,
        "owner": f"{about.owner[0]}/{about.owner[2]}" if about.owner else None,
    }


def _never_ran(status: str | None, row: dict[str, Any]) -> dict[str, Any]:
    """Kubernetes writes down every start: what ended without one never ran, and its end is none of a run."""
    if row["start_time"] is not None or status not in GAVE_UP:
        return row
    return row | {"end_time": None, "duration_s": None, "censoring": "never_started"}
