"""Job objects: batch Jobs, Kubeflow and KubeDL training jobs, Volcano jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from analysis.loaders.kubernetes_about import About, describe
from analysis.loaders.kubernetes_objects import (
    BATCH_JOB,
    TRAINING_JOB,
    Item,
    conditions,
    counter,
    dig,
    objects,
    parse_time,
    text_of,
)
from analysis.loaders.kubernetes_resources import Request, allowed_types, pod_request

__all__ = ["ENDED", "JobFacts", "read_job"]

#: Condition of a batch Job -> status; without any it runs if pods are active.
BATCH: Final = {"Complete": "completed", "Failed": "failed", "Suspended": "suspended"}
#: The last condition of a training job that is true -> status.
TRAINING: Final = {
    "Created": "pending",
    "Queuing": "pending",
    "Running": "running",
    "Restarting": "running",
    "Suspended": "suspended",
    "Succeeded": "completed",
    "Failed": "failed",
    "Stopped": "cancelled",
}
#: Phase of a Volcano job -> status.
VOLCANO: Final = {
    "Pending": "pending",
    "Running": "running",
    "Restarting": "running",
    "Completing": "running",
    "Aborting": "running",
    "Terminating": "running",
    "Completed": "completed",
    "Failed": "failed",
    "Terminated": "failed",
    "Aborted": "cancelled",
}
ENDED: Final = ("completed", "failed", "cancelled", "timeout")
TIMEOUTS: Final = ("DeadlineExceeded", "JobDeadlineExceeded", "JobTimeout")


@dataclass(frozen=True)
class JobFacts:
    """What a job object says.

    Attributes
    ----------
    item : Item
        The object.
    submit, start, end : datetime or None
        Creation, start and end as the controller writes them.
    status, status_raw, reason : str or None
        One of ``schema.STATUSES``; the condition or phase; its reason.
    tasks : list of (int, Request)
        How many pods at once, and what each asks for.
    allowed : list of str or None
        GPU models that it accepts.
    about : About
        Whose it is.
    retries : int or None
        How often it was tried again, if the object says so.
    """

    item: Item
    submit: datetime | None
    start: datetime | None
    end: datetime | None
    status: str | None
    status_raw: str | None
    reason: str | None
    tasks: list[tuple[int, Request]]
    allowed: list[str] | None
    about: About
    retries: int | None


def read_job(item: Item) -> JobFacts:
    """Read a job object of any kind.

    Raises
    ------
    ObjectError
        If it cannot be read.
    """
    raw = item.raw
    spec = dig(raw, "spec") or {}
    readers = {BATCH_JOB: _batch, TRAINING_JOB: _training}
    status, status_raw, reason, start, end = readers.get(item.kind or "", _volcano)(raw)
    templates = list(_templates(item, spec))
    return JobFacts(
        item=item,
        submit=parse_time(raw, "metadata", "creationTimestamp"),
        start=start if status not in ("pending", "suspended") else None,
        end=end,
        status="timeout" if status == "failed" and reason in TIMEOUTS else status,
        status_raw=status_raw,
        reason=reason,
        tasks=[(count, pod_request(template)) for count, template in templates],
        allowed=next((found for _, template in templates if (found := allowed_types(template))), None),
        about=describe(item),
        retries=counter(raw, "status", "retryCount"),
    )


def _templates(item: Item, spec: Mapping[str, Any]) -> Sequence[tuple[int, Mapping[str, Any]]]:
    """How many pods run at once, and what they are, by role."""
    if item.kind == BATCH_JOB:
        parallel, wanted = counter(spec, "parallelism"), counter(spec, "completions")
        at_once = 1 if parallel is None else parallel
        return [(min(at_once, wanted or at_once), dig(spec, "template", "spec") or {})]
    if item.kind == TRAINING_JOB:
        roles = [dig(spec, key) or {} for key in spec if key.endswith("ReplicaSpecs")]
        parts = [dig(role, name) or {} for role in roles for name in role]
    else:
        parts = objects(spec, "tasks")
    found = []
    for part in parts:
        replicas = counter(part, "replicas")
        found.append((1 if replicas is None else replicas, dig(part, "template", "spec") or {}))
    return found


Outcome = tuple[str | None, str | None, str | None, datetime | None, datetime | None]


def _batch(raw: Mapping[str, Any]) -> Outcome:
    start, end = parse_time(raw, "status", "startTime"), parse_time(raw, "status", "completionTime")
    told = [entry for entry in conditions(raw) if str(entry.get("type")) in BATCH]
    if not told:
        is_active = bool(counter(raw, "status", "active"))
        return ("running" if is_active else "pending"), None, None, start if is_active else None, None
    last = told[-1]
    word = str(last["type"])
    if BATCH[word] in ENDED:
        end = end or parse_time(last, "lastTransitionTime")
    return BATCH[word], word, text_of(last, "reason"), start, end


def _training(raw: Mapping[str, Any]) -> Outcome:
    start, end = parse_time(raw, "status", "startTime"), parse_time(raw, "status", "completionTime")
    told = [entry for entry in conditions(raw) if isinstance(entry.get("type"), str)]
    if not told:
        return "pending", None, None, None, None
    # Controllers append conditions; an outcome is the last word whatever its place.
    final = [entry for entry in told if TRAINING.get(entry["type"]) in ENDED]
    last = (final or told)[-1]
    status = TRAINING.get(last["type"], "unknown")
    if status in ENDED:
        end = end or parse_time(last, "lastTransitionTime")
    return status, last["type"], text_of(last, "reason"), start, end


def _volcano(raw: Mapping[str, Any]) -> Outcome:
    phase = text_of(raw, "status", "state", "phase")
    status = VOLCANO.get(phase, "unknown") if phase else None
    reached = {
        entry["status"]: parse_time(entry, "lastTransitionTime")
        for entry in objects(raw, "status", "conditions")
        if isinstance(entry.get("status"), str)
    }
    end = None
    if phase and status in ENDED:
        end = reached.get(phase) or parse_time(raw, "status", "state", "lastTransitionTime")
    return status, phase, text_of(raw, "status", "state", "reason"), reached.get("Running"), end
