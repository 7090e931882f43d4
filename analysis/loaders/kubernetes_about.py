"""What any Kubernetes object says about whose it is: names, namespace, queue, priority, deadline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from analysis.loaders.kubernetes_objects import Item, counter, label, objects, text_of

__all__ = ["About", "describe"]

QUEUE_LABELS: Final = (
    "kueue.x-k8s.io/queue-name",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/queue-name",
    "kai.scheduler/queue",
    "runai/queue",
)


@dataclass(frozen=True)
class About:
    """Whose an object is.

    Attributes
    ----------
    name, namespace, queue, priority_class : str or None
        Null: not said.
    owner : tuple of (kind, uid, name) or None
        Its controller.
    time_limit_s : float or None
        Active deadline [s].
    """

    name: str | None
    namespace: str | None
    queue: str | None
    priority_class: str | None
    owner: tuple[str, str, str] | None
    time_limit_s: float | None


def describe(item: Item) -> About:
    """Read what an object says about itself.

    Raises
    ------
    ObjectError
        If it cannot be read.
    """
    raw = item.raw
    deadlines = [
        counter(raw, "spec", "activeDeadlineSeconds"),
        counter(raw, "spec", "runPolicy", "activeDeadlineSeconds"),
    ]
    return About(
        name=text_of(raw, "metadata", "name"),
        namespace=text_of(raw, "metadata", "namespace"),
        queue=text_of(raw, "spec", "queue")
        or text_of(raw, "spec", "runPolicy", "schedulingPolicy", "queue")
        or label(raw, QUEUE_LABELS),
        priority_class=text_of(raw, "spec", "priorityClassName")
        or text_of(raw, "spec", "template", "spec", "priorityClassName"),
        owner=_owner(raw),
        time_limit_s=next((float(limit) for limit in deadlines if limit), None),
    )


def _owner(raw: Mapping[str, Any]) -> tuple[str, str, str] | None:
    owners = objects(raw, "metadata", "ownerReferences")
    chosen = next((owner for owner in owners if owner.get("controller") is True), owners[0] if owners else None)
    if chosen is None:
        return None
    kind, uid, name = (text_of(chosen, key) for key in ("kind", "uid", "name"))
    return (kind, uid or f"{kind}/{name}", name or "") if kind and (uid or name) else None
