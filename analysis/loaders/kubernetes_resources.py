"""What a pod asks for, by the rules of the Kubernetes scheduler, and what a node has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.loaders.kubernetes_objects import Item, dig, label, objects, parse_quantity, parse_time

__all__ = ["Request", "allowed_types", "gpu_type_of", "node_row", "nodes_table", "pod_request"]

#: Resources that are GPUs, or slices of GPUs that count as one each.
GPU: Final = re.compile(
    r"nvidia\.com/(gpu(\.shared)?|mig-.+)|amd\.com/gpu(\..+)?|gpu\.intel\.com/(i915|xe)|habana\.ai/gaudi"
)
MIG: Final = re.compile(r"nvidia\.com/(mig-.+)")
#: Labels of nodes that name the GPU model, the best first.
TYPE_LABELS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.intel.com/product",
    "cloud.google.com/gke-accelerator",
    "aliyun.accelerator/nvidia_name",
    "accelerator",
)
BYTES_PER_GIB: Final = 1024.0**3
#: A node with more than this is no node.
MOST_GPUS: Final = 1e6


@dataclass(frozen=True)
class Request:
    """What one pod occupies.

    Attributes
    ----------
    num_gpus, num_cpus, mem_gib : float
        0 where it asks for none.
    gpu_resources : tuple of str
        Names of the GPU resources that it asks for, sorted.
    """

    num_gpus: float = 0.0
    num_cpus: float = 0.0
    mem_gib: float = 0.0
    gpu_resources: tuple[str, ...] = field(default=())

    @property
    def slice_type(self) -> str | None:
        """The MIG profile, where it asks for slices of one kind only."""
        profiles = [match[1] for name in self.gpu_resources if (match := MIG.fullmatch(name))]
        return profiles[0] if len(profiles) == 1 == len(self.gpu_resources) else None


def _asked(container: Mapping[str, Any]) -> dict[str, float]:
    """Requests of a container; a limit counts where there is no request."""
    limits = dig(container, "resources", "limits") or {}
    requests = dig(container, "resources", "requests") or {}
    return {name: parse_quantity(value, name=name) for name, value in {**limits, **requests}.items()}


def _sum(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = sorted({name for part in parts for name in part})
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}


def _most(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = sorted({name for part in parts for name in part})
    return {name: max(part.get(name, 0.0) for part in parts) for name in names}


def pod_request(spec: Mapping[str, Any]) -> Request:
    """Sum up what a pod asks for.

    Containers run together, so they add up; init containers run one after the other before them, so the largest of
    them counts if it is larger; those that keep running (restart policy "Always") add to all that comes after them.
    The pod's overhead comes on top.

    Parameters
    ----------
    spec : mapping
        ``spec`` of a pod or of a pod template.

    Returns
    -------
    Request

    Raises
    ------
    ObjectError
        If a quantity is none.
    """
    sidecars: list[Mapping[str, float]] = []
    steps: list[Mapping[str, float]] = []
    for container in objects(spec, "initContainers"):
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            sidecars.append(asked)
        steps.append(_sum([*sidecars] if container.get("restartPolicy") == "Always" else [*sidecars, asked]))
    together = _sum([*(_asked(container) for container in objects(spec, "containers")), *sidecars])
    overhead = {name: parse_quantity(value, name=name) for name, value in (dig(spec, "overhead") or {}).items()}
    total = _sum([_most([together, *steps]), overhead])
    gpus = {name: value for name, value in total.items() if GPU.fullmatch(name) and value > 0}
    return Request(
        num_gpus=sum(gpus.values()),
        num_cpus=total.get("cpu", 0.0),
        mem_gib=total.get("memory", 0.0) / BYTES_PER_GIB,
        gpu_resources=tuple(sorted(gpus)),
    )


def allowed_types(spec: Mapping[str, Any]) -> list[str] | None:
    """GPU models that a pod accepts, by its node selector or its required node affinity; null = any."""
    selector = dig(spec, "nodeSelector") or {}
    chosen = [str(selector[name]) for name in TYPE_LABELS if selector.get(name)]
    if chosen:
        return chosen[:1]
    affinity = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    found: list[str] = []
    for term in objects(spec, *affinity):
        own = [
            str(value)
            for rule in objects(term, "matchExpressions")
            if rule.get("key") in TYPE_LABELS and rule.get("operator") == "In"
            for value in dig(rule, "values", kind=list) or []
        ]
        if not own:
            # Terms are alternatives: one that says nothing of the model accepts any.
            return None
        found += own
    return list(dict.fromkeys(found)) or None


def gpu_type_of(node: Mapping[str, Any]) -> str | None:
    """The GPU model that a node's labels name."""
    return label(node, TYPE_LABELS)


def node_row(item: Item) -> dict[str, Any]:
    """Make one row of the nodes table: what the node can give to pods (allocatable, else its capacity).

    Raises
    ------
    ObjectError
        If it cannot be read.
    """
    raw = item.raw
    has = dig(raw, "status", "allocatable") or dig(raw, "status", "capacity") or {}
    amounts = {name: parse_quantity(value, name=name) for name, value in has.items()}
    gpus = sum(value for name, value in amounts.items() if GPU.fullmatch(name))
    name = raw.get("metadata", {}).get("name") if isinstance(raw.get("metadata"), dict) else None
    return {
        "node_id": name if isinstance(name, str) and name else item.uid,
        "gpu_type": gpu_type_of(raw) if gpus else None,
        "num_gpus": int(min(gpus, MOST_GPUS)),
        "num_cpus": amounts.get("cpu"),
        "mem_gib": amounts["memory"] / BYTES_PER_GIB if "memory" in amounts else None,
        "vc": None,
        "available_from": parse_time(raw, "metadata", "creationTimestamp"),
        "available_to": None,
    }


def nodes_table(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows of `node_row` as the nodes table, sorted by id."""
    table = pl.DataFrame(rows, schema=schema.NODES)
    keys = schema.job_order(table["node_id"]).with_row_index("row")
    return table[keys.sort("number", "text", nulls_last=True)["row"]]
