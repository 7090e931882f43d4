"""A Kubernetes cluster's own record: ``kubectl get pods,jobs,nodes -A -o json``, training jobs and Volcano jobs too.

Source: the reader's cluster. Licence, coverage: the reader's; finished objects are deleted after a while, so such a
list holds what was not cleaned up. Period: whatever it holds. Zone: all times carry their offset; hours are UTC's
unless ``timezone`` says another.

A row is an object: Pod, Job (batch/v1), PyTorchJob, TFJob, MPIJob and their like (Kubeflow, KubeDL), Job of Volcano,
Node. Other kinds are set aside as ``unsupported_kind``; an object that cannot be read is set aside with what was
wrong and its number in the list. Several lists may be given; of an object that is in several the one with the highest
resource version counts.

Assumptions:

* A job is a job object, with the pods that it controls folded in; or the pods of one controller of such a kind whose
  object is not there; or a single pod (of a service, a set, or of nothing). UIDs are the ids.
* GPUs are ``nvidia.com/gpu``, MIG slices (one each, whatever their size), ``amd.com/gpu`` and their like, from requests
  or else limits, by the scheduler's rule for init containers; those of a job object are times its replicas (batch Jobs:
  parallelism). Without a job object they are the most that its pods held at once.
* A pod holds its GPUs from ``status.startTime`` (when its node took it on) until its last container ended, through
  all restarts of its containers. Pods of a job that overlap are one attempt; the duration is the attempts' sum.
* A job without pods has the times of its object. ``startTime`` of a batch Job is when its controller took it up, so its
  wait is short without its pods: counted in a note.
* ``vc`` is the queue that is named (Kueue, Volcano, KAI, run:ai), else the namespace; ``account`` is the namespace.
* Evicted and preempted pods are ``preempted``, lost nodes ``node_fail``, deadlines ``timeout``. Running jobs are
  right-censored: give ``snapshot`` (when the list was made) for their lower bound.
* A node has what is allocatable. Its model is its label nvidia.com/gpu.product, or one of the usual others.

Left behind: specs, volumes, images, environment: they say nothing about time or size, and much that is private.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.errors import BadFileError, UsageError
from analysis.loaders.files import check_file, list_files
from analysis.loaders.finish import finish_trace
from analysis.loaders.kubernetes_assemble import Gathered, assemble
from analysis.loaders.kubernetes_jobs import JobFacts, read_job
from analysis.loaders.kubernetes_objects import (
    EXPECTED,
    NODE,
    POD,
    Item,
    ObjectError,
    is_objects,
    items_of,
    parse_time,
    read_objects,
    text_of,
)
from analysis.loaders.kubernetes_pods import PodFacts, read_pod
from analysis.loaders.kubernetes_resources import gpu_type_of, node_row, nodes_table
from analysis.loaders.records import Records
from analysis.loaders.registry import loader
from analysis.trace import Trace, TraceMeta

__all__ = ["read_kubernetes", "read_kubernetes_nodes"]

META: Final = TraceMeta(
    name="kubernetes",
    source="the Kubernetes API (kubectl get -o json)",
    time_zone_certainty="declared",
    coverage="objects that were not deleted before the list was made",
)


@dataclass
class _Read:
    """What the files hold."""

    records: list[Records] = field(default_factory=list)
    pods: dict[str, PodFacts] = field(default_factory=dict)
    jobs: dict[str, JobFacts] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    types: dict[str, str | None] = field(default_factory=dict)
    aside: list[tuple[Item, str]] = field(default_factory=list)

    @property
    def rejects(self) -> pl.DataFrame:
        rows = [(item.file, item.line, reason, None) for item, reason in self.aside]
        return pl.DataFrame(rows, schema=schema.REJECTS, orient="row")


@loader(
    "kubernetes",
    summary="Kubernetes objects: pods, jobs, training jobs, Volcano jobs, nodes",
    files="the output of 'kubectl get pods,jobs,nodes -A -o json', in one file or several",
    sniff=lambda paths: 0.95 * any(is_objects(path) for path in paths),
)
def read_kubernetes(
    paths: Sequence[Path], *, timezone: str | None = None, name: str | None = None, snapshot: str | None = None
) -> Trace:
    """Read Kubernetes objects.

    Parameters
    ----------
    paths : sequence of Path
        One list or several, of any of the kinds.
    timezone : str, optional
        Zone in which hours and weekdays mean something.
    name : str, optional
        Name of the trace, by default "kubernetes".
    snapshot : str, optional
        When the list was made, as "2024-05-01T12:00:00Z": what still runs has run at least until then.

    Returns
    -------
    Trace
        Jobs, attempts and nodes.

    Raises
    ------
    BadFileError
        If a file is no such list.
    UsageError
        If ``snapshot`` is no instant.
    """
    taken = _snapshot(snapshot)
    read = _read(paths)
    gathered = assemble(read.pods, read.jobs, types=read.types)
    meta = TraceMeta(
        name=name or META.name,
        source=META.source,
        time_zone=timezone or META.time_zone,
        time_zone_certainty="given" if timezone else "declared",
        coverage=META.coverage,
    )
    tables = {
        "nodes": nodes_table(list(read.nodes.values())),
        "attempts": gathered.attempts,
        "rejects": read.rejects,
    }
    return finish_trace(
        gathered.jobs,
        meta=meta,
        raws=read.records,
        tables=tables,
        rows_merged=gathered.num_merged,
        rows_beside=len(read.nodes),
        job_files=len(read.records),
        snapshot=taken,
        notes=_notes(gathered),
    )


def read_kubernetes_nodes(path: Path | str) -> pl.DataFrame:
    """Read a cluster's nodes from ``kubectl get nodes -o json``.

    Parameters
    ----------
    path : path
        The list; objects of other kinds are passed over.

    Returns
    -------
    DataFrame, one row per node, as ``schema.NODES``
        What can be given to pods; sorted by name.

    Raises
    ------
    BadFileError
        If it is no such list, or no node in it can be read.
    """
    path = Path(path)
    read = _read([path])
    if not read.nodes:
        found, fix = "no node that can be read", "Save the output of 'kubectl get nodes -o json'."
        raise BadFileError(path, kind="wrong_columns", found=found, expected="Kubernetes nodes", fix=fix)
    return nodes_table(list(read.nodes.values()))


def _snapshot(given: str | None) -> pl.Expr | None:
    if given is None:
        return None
    try:
        taken = parse_time({"snapshot": given}, "snapshot")
    except ObjectError as error:
        msg = f"kubernetes: snapshot is {given!r}; expected an instant such as '2024-05-01T12:00:00Z'."
        raise UsageError(msg) from error
    return pl.lit(taken, dtype=schema.TIME)


def _read(paths: Sequence[Path]) -> _Read:
    files = list_files(paths)
    chosen = [path for path in files if path in paths or is_objects(path)]
    if not chosen:
        for path in files:
            check_file(path)
        fix = "Give the saved output by name."
        raise BadFileError(files[0], kind="wrong_columns", found="no such list", expected=EXPECTED, fix=fix)
    read = _Read()
    items: list[Item] = []
    for path in chosen:
        records, kind = read_objects(path)
        read.records.append(records)
        items += items_of(records, kind)
    for item in _newest(items, read):
        try:
            _take(item, read)
        except ObjectError as error:
            read.aside.append((item, str(error)))
    return read


def _newest(items: Sequence[Item], read: _Read) -> list[Item]:
    """Of an object that is listed several times, the newest; the others are set aside."""

    def version(item: Item) -> tuple[int, str]:
        found = item.raw.get("metadata", {}).get("resourceVersion")
        # Digits only, and not so many that a number of them is a burden.
        return (
            (int(found), "") if isinstance(found, str) and found.isdecimal() and len(found) < 30 else (0, str(item.raw))
        )

    best: dict[tuple[str | None, str], Item] = {}
    for item in items:
        try:
            key = (item.kind, item.uid)
        except ObjectError as error:
            read.aside.append((item, str(error)))
            continue
        other = best.get(key)
        if other is None or version(item) > version(other):
            best[key] = item
        if other is not None:
            read.aside.append((item if best[key] is other else other, "duplicate_id"))
    return list(best.values())


def _take(item: Item, read: _Read) -> None:
    if item.kind is None:
        reason = "unsupported_kind"
        raise ObjectError(reason)
    if item.kind == POD:
        read.pods[item.uid] = read_pod(item)
    elif item.kind == NODE:
        row = node_row(item)
        if row["node_id"] in read.nodes:
            reason = "duplicate_id"
            raise ObjectError(reason)
        read.nodes[row["node_id"]] = row
        read.types[text_of(item.raw, "metadata", "name") or item.uid] = gpu_type_of(item.raw)
    else:
        read.jobs[item.uid] = read_job(item)


def _notes(gathered: Gathered) -> list[str]:
    notes = []
    if gathered.num_without_pods:
        notes.append(
            f"{gathered.num_without_pods} jobs that ran have no pods in the list: their start is when their controller "
            "took them up, so their wait is too short."
        )
    if gathered.num_slices:
        notes.append(f"{gathered.num_slices} jobs ask for MIG slices; each counts as one GPU.")
    return notes
