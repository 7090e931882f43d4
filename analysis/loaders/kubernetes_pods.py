"""Pods: when they ran, how they ended, and which of them are one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from analysis.loaders.kubernetes_about import About, describe
from analysis.loaders.kubernetes_objects import Item, conditions, counter, dig, objects, parse_time, text_of
from analysis.loaders.kubernetes_resources import Request, allowed_types, pod_request

__all__ = ["PodFacts", "Run", "attempt_runs", "peak", "read_pod"]

#: Controllers whose pods are one job; the pods of any other (a service, a set) are jobs of their own.
JOB_OWNERS: Final = (
    "Job",
    "PyTorchJob",
    "TFJob",
    "MPIJob",
    "XGBoostJob",
    "XDLJob",
    "PaddleJob",
    "JAXJob",
    "MXJob",
    "RayJob",
    "RayCluster",
    "TrainJob",
    "PodGroup",
)
PHASES: Final = {
    "Succeeded": "completed",
    "Failed": "failed",
    "Running": "running",
    "Pending": "pending",
    "Unknown": "unknown",
}
#: Why a pod failed, where that is not its own doing.
REASONS: Final = {
    "DeadlineExceeded": "timeout",
    "Evicted": "preempted",
    "EvictionByEvictionAPI": "preempted",
    "Preempting": "preempted",
    "Preempted": "preempted",
    "PreemptionByScheduler": "preempted",
    "TerminationByKubelet": "preempted",
    "DeletionByTaintManager": "node_fail",
    "DeletionByPodGC": "node_fail",
    "NodeLost": "node_fail",
    "NodeShutdown": "node_fail",
    "Shutdown": "node_fail",
    "Terminated": "node_fail",
}


@dataclass(frozen=True)
class Run:
    """One stretch of running.

    Attributes
    ----------
    start, end : datetime or None
        Null: not known, or not over.
    nodes : tuple of str
        Where.
    num_gpus : float
        How many GPUs it held.
    """

    start: datetime | None
    end: datetime | None
    nodes: tuple[str, ...]
    num_gpus: float


@dataclass(frozen=True)
class PodFacts:
    """What is known about one pod.

    Attributes
    ----------
    item : Item
        The object.
    submit, start, end : datetime or None
        Creation; when its node took it on; when its last container ended.
    phase, reason : str or None
        As the source writes them.
    node : str or None
        Where it runs.
    request : Request
        What it occupies.
    allowed : list of str or None
        GPU models that it accepts.
    about : About
        Whose it is.
    restarts : int
        The most restarts of any of its containers.
    before : Run or None
        The run before the last restart, if it restarted.
    """

    item: Item
    submit: datetime | None
    start: datetime | None
    end: datetime | None
    phase: str | None
    reason: str | None
    node: str | None
    request: Request
    allowed: list[str] | None
    about: About
    restarts: int
    before: Run | None

    @property
    def job_owner(self) -> tuple[str, str, str] | None:
        """Its controller, if the pods of that are one job."""
        owner = self.about.owner
        return owner if owner and owner[0] in JOB_OWNERS else None

    @property
    def status(self) -> str | None:
        """One of ``schema.STATUSES``; null if there is no phase."""
        if self.phase is None:
            return None
        status = PHASES.get(self.phase, "unknown")
        return REASONS.get(self.reason or "", status) if status == "failed" else status

    @property
    def run(self) -> Run:
        """When and where it ran."""
        return Run(self.start, self.end, (self.node,) if self.node else (), self.request.num_gpus)


def read_pod(item: Item) -> PodFacts:
    """Read one pod.

    Raises
    ------
    ObjectError
        If it cannot be read.
    """
    raw = item.raw
    spec = dig(raw, "spec") or {}
    status = dig(raw, "status") or {}
    containers = objects(status, "containerStatuses")
    phase = text_of(status, "phase")
    node = text_of(spec, "nodeName")
    request = pod_request(spec)
    start = _start(status, containers)
    return PodFacts(
        item=item,
        submit=parse_time(raw, "metadata", "creationTimestamp"),
        start=start if phase != "Pending" or node else None,
        end=_end(raw, containers) if phase in ("Succeeded", "Failed") else None,
        phase=phase,
        reason=_reason(raw, containers),
        node=node,
        request=request,
        allowed=allowed_types(spec),
        about=describe(item),
        restarts=max((counter(entry, "restartCount") or 0 for entry in containers), default=0),
        before=_before(containers, node, request.num_gpus),
    )


def _start(status: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> datetime | None:
    """When its node took it on: from then it holds its GPUs."""
    taken = parse_time(status, "startTime")
    if taken is not None:
        return taken
    bound = [entry for entry in conditions({"status": status}) if entry.get("type") == "PodScheduled"]
    if bound:
        return parse_time(bound[0], "lastTransitionTime")
    begun = [parse_time(entry, "state", how, "startedAt") for entry in containers for how in ("running", "terminated")]
    return min((time for time in begun if time is not None), default=None)


def _end(raw: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> datetime | None:
    ended = [parse_time(entry, "state", "terminated", "finishedAt") for entry in containers]
    known = [time for time in ended if time is not None]
    if known:
        return max(known)
    # A pod that was evicted has no containers left that could say it.
    told = [entry for entry in conditions(raw) if entry.get("type") == "DisruptionTarget"]
    if told:
        return parse_time(told[0], "lastTransitionTime")
    return parse_time(raw, "metadata", "deletionTimestamp")


def _reason(raw: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> str | None:
    own = text_of(raw, "status", "reason")
    if own:
        return own
    told = [text_of(entry, "reason") for entry in conditions(raw) if entry.get("type") == "DisruptionTarget"]
    ends = [text_of(entry, "state", "terminated", "reason") for entry in containers]
    return next((word for word in (*told, *ends) if word and word != "Completed"), None)


def _before(containers: Sequence[Mapping[str, Any]], node: str | None, num_gpus: float) -> Run | None:
    for entry in containers:
        last = dig(entry, "lastState", "terminated")
        if last:
            where = (node,) if node else ()
            return Run(parse_time(last, "startedAt"), parse_time(last, "finishedAt"), where, num_gpus)
    return None


def attempt_runs(runs: Sequence[Run]) -> list[Run]:
    """Put the runs of a job's pods together: those that overlap are one attempt of a gang, others are retries.

    Parameters
    ----------
    runs : sequence of Run
        Of pods that started.

    Returns
    -------
    list of Run
        In order of time; an attempt that is not over has no end. ``num_gpus`` is the most held at once.
    """
    started = sorted(
        (run for run in runs if run.start is not None), key=lambda run: (run.start, run.end is None, run.end, run.nodes)
    )
    groups: list[list[Run]] = []
    until: datetime | None = None
    for run in started:
        together = run.start is not None and groups and (until is None or run.start < until)
        if groups and (together or run.start == groups[-1][0].start):
            groups[-1].append(run)
            until = None if until is None or run.end is None else max(until, run.end)
        else:
            groups.append([run])
            until = run.end
    return [_together(group) for group in groups]


def _together(group: Sequence[Run]) -> Run:
    ends = [run.end for run in group]
    known = [end for end in ends if end is not None]
    nodes = tuple(sorted({node for run in group for node in run.nodes}))
    return Run(group[0].start, max(known) if len(known) == len(ends) else None, nodes, peak(group))


def peak(runs: Sequence[Run]) -> float:
    """The most GPUs that were held at once; runs that did not start count together."""
    waiting = sum(run.num_gpus for run in runs if run.start is None)
    steps = [(run.start, 1, run.num_gpus) for run in runs if run.start is not None]
    steps += [(run.end, 0, -run.num_gpus) for run in runs if run.start is not None and run.end is not None]
    held, most = 0.0, max((run.num_gpus for run in runs), default=0.0)
    for _, _, change in sorted(steps):
        held += change
        most = max(most, held)
    return max(most, waiting)
