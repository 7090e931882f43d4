"""Clusters to replay on: nodes with GPUs, their types and VCs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import polars as pl

from analysis import schema
from analysis.errors import BadFileError, UsageError
from analysis.replay import speeds
from analysis.replay.cluster_file import (
    EXAMPLE,
    NODE_COLUMNS,
    NODE_KEYS,
    expand,
    outages_in,
    read_toml,
    size_problems,
    spec_problems,
)
from analysis.replay.outages import away_s, every_outage, failures, no_outages, outage_problems, outage_table

if TYPE_CHECKING:
    from analysis.trace import Trace

__all__ = ["NODE_COLUMNS", "Cluster"]


@dataclass(frozen=True)
class Cluster:
    """Nodes on which jobs can run.

    Parameters
    ----------
    nodes : DataFrame, one row per node
        node_id (unique), num_gpus; and gpu_type, vc, rack, pod, num_cpus, mem_gib, idle_w, busy_w, where null or
        missing means not known; and available_from, available_to, the instants from which and before which the node is
        there, where null or missing means that it was, or stays, there. Nodes without a GPU take no part in a replay.
        Other columns are left out.
    name : str
        What to call it in reports.
    speed : mapping of str to float, optional
        Speed of a GPU type relative to a V100, instead of the shipped one. [ratio]
    notes : tuple of str
        What was assumed, in sentences.
    outages : DataFrame, one row per outage, optional
        node_id, down, up (instants; null = does not come back) and kind: "failure" (the default) and "absence", the
        node leaves, kill what runs there; under a "drain" it may end. From down until before up nobody starts there.
        They may overlap. Naive times are UTC.

    Raises
    ------
    UsageError
        If there is no GPU, an id occurs twice, a number is negative, or an outage is of no node or ends before it
        begins; all problems at once.

    Examples
    --------
    >>> Cluster.uniform(num_nodes=52, num_gpus=8).num_gpus
    416
    """

    nodes: pl.DataFrame
    name: str = "cluster"
    speed: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    outages: pl.DataFrame = field(default_factory=no_outages)

    def __post_init__(self) -> None:
        problems = [f"column {name!r} is missing" for name in ("node_id", "num_gpus") if name not in self.nodes.columns]
        if not problems:
            nodes = self.nodes.select(
                (pl.col(name).cast(dtype) if name in self.nodes.columns else pl.lit(None, dtype=dtype).alias(name))
                for name, dtype in NODE_COLUMNS.items()
            )
            object.__setattr__(self, "nodes", _in_order(nodes))
            object.__setattr__(self, "outages", outage_table(self.outages))
            problems = _node_problems(nodes, self.speed) + outage_problems(self.outages, self.nodes["node_id"])
        if problems:
            msg = f"cluster {self.name!r}: {'; '.join(problems)}. A replay needs nodes with GPUs: give {EXAMPLE}."
            raise UsageError(msg)

    @property
    def num_gpus(self) -> int:
        """GPUs of all nodes, whether they are always there or not."""
        return int(self.nodes["num_gpus"].sum())

    @cached_property
    def is_steady(self) -> bool:
        """Whether all nodes with GPUs are always there."""
        return not every_outage(self).height

    def gpu_s(self, start: datetime, end: datetime) -> float:
        """GPU time that is there between two instants, without failures and absences but with drained nodes [GPU-s]."""
        total = self.num_gpus * (end - start).total_seconds()
        if self.is_steady:
            return total
        away = away_s(self, start, end)
        return total - float((away["away_s"] * away["num_gpus"]).sum())

    @cached_property
    def vcs(self) -> list[str]:
        """VCs that have nodes with GPUs, sorted; empty if the cluster is not divided."""
        owned = self.nodes.filter(pl.col("num_gpus") > 0)["vc"].drop_nulls()
        return sorted(owned.unique().to_list())

    @cached_property
    def gpu_types(self) -> list[str]:
        """GPU types of the nodes that state one, in the order of each type's lowest node."""
        return list(self.nodes.filter(pl.col("num_gpus") > 0)["gpu_type"].drop_nulls().unique(maintain_order=True))

    def speed_of(self, gpu_type: str | None) -> float | None:
        """Speed of a GPU type relative to a V100 [ratio]; null if it is not known."""
        return speeds.speed_of(gpu_type, self.speed)

    @classmethod
    def uniform(cls, *, num_nodes: int, num_gpus: int, gpu_type: str | None = None, name: str | None = None) -> Cluster:
        """Equal nodes without VCs.

        Parameters
        ----------
        num_nodes : int
            Nodes.
        num_gpus : int
            GPUs of each.
        gpu_type : str, optional
            Their type; None: hardware not described, every job runs as long as in the log.
        name : str, optional
            By default "<num_nodes> x <num_gpus>".

        Raises
        ------
        UsageError
            If that makes no GPU, or more than 200,000 nodes or 2,000,000 GPUs.
        """
        row = {"count": num_nodes, "num_gpus": num_gpus, "gpu_type": gpu_type}
        name = name or f"{num_nodes} x {num_gpus}"
        if too_large := size_problems([row]):
            msg = f"cluster {name!r}: {too_large[0]}. Check the numbers, nodes first: 52x8 is 52 nodes of 8 GPUs."
            raise UsageError(msg)
        return cls(expand([row]), name=name)

    def with_failures(self, *, mtbf_s: float, mttr_s: float, seed: int, since: datetime, until: datetime) -> Cluster:
        """Let every node with GPUs fail and be repaired at random, beside the outages that it has.

        Times from repair to failure and from failure to repair are exponential. Each node has a stream of random
        numbers of its own, from the seed and its id: a further node changes nothing for the others.

        Parameters
        ----------
        mtbf_s, mttr_s : float
            Mean time to failure after ``since`` or a repair, and mean time to repair, of a node. [s]
        seed : int
            0 or more.
        since, until : datetime
            All nodes are up at the first; none fails at or after the second. Naive times are UTC. Jobs that run long
            after the last submission fail there too only if ``until`` is late enough.

        Returns
        -------
        Cluster

        Raises
        ------
        UsageError
            If a number is not possible, or that makes more than 10,000,000 failures.

        Examples
        --------
        >>> from datetime import datetime
        >>> month = {"since": datetime(2024, 1, 1), "until": datetime(2024, 2, 1)}
        >>> cluster = Cluster.uniform(num_nodes=10, num_gpus=8)
        >>> cluster.with_failures(mtbf_s=10 * 86_400, mttr_s=3_600, seed=0, **month).outages.height
        30
        """
        names = self.nodes.filter(pl.col("num_gpus") > 0)["node_id"].to_list()
        drawn = failures(names, mtbf_s=mtbf_s, mttr_s=mttr_s, seed=seed, since=since, until=until)
        return replace(self, outages=pl.concat([self.outages, drawn]))

    def without_outages(self) -> Cluster:
        """Give the same cluster with all nodes there always."""
        return replace(self, nodes=self.nodes.drop("available_from", "available_to"), outages=no_outages())

    @classmethod
    def from_toml(cls, path: Path | str) -> Cluster:
        """Read a cluster file.

        Parameters
        ----------
        path : path
            TOML: ``name``; a table ``[[nodes]]`` per kind of node with ``count`` and ``num_gpus``, and optionally
            ``gpu_type``, ``vc``, ``num_cpus``, ``mem_gib``, ``idle_w``, ``busy_w``, ``available_from``,
            ``available_to``; optionally a table ``[[outages]]`` per outage with ``node_id`` (n0, n1 … with as many
            digits as the last one needs), ``down``, and optionally ``up`` and ``kind``; optionally ``[speed]``, GPU
            type = speed relative to a V100; ``[[links]]`` is left to the planner. Instants are date-times or ISO text.

        Returns
        -------
        Cluster
            Nodes are numbered in the order of the file.

        Raises
        ------
        BadFileError
            If the file is missing, is not TOML, or asks for something that is not understood; all problems at once.
        """
        path = Path(path)
        spec = read_toml(path)
        problems = spec_problems(spec)
        if not problems:
            nodes = expand(spec["nodes"])
            ratios = {key: float(value) for key, value in spec.get("speed", {}).items()}
            outages = outages_in(spec)
            problems = _node_problems(nodes, ratios) + outage_problems(outages, nodes["node_id"])
        if problems:
            count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
            raise BadFileError(
                path,
                kind="bad_cluster",
                found=f"{count}: {'; '.join(problems)}",
                expected=EXAMPLE,
                fix=f"Optional are {', '.join(NODE_KEYS[3:])}, and tables [[outages]] and [speed] (GPU type = ratio).",
            )
        return cls(nodes, name=str(spec.get("name", path.stem)), speed=ratios, outages=outages)

    @classmethod
    def from_trace(cls, trace: Trace, *, quotas: Literal["largest", "over_time"] = "largest") -> Cluster:
        """Take the trace's nodes, or else size a cluster from it and say so in ``notes``.

        In this order: the ``nodes`` table; the ``capacity`` table (per VC its largest number of GPUs, as 8-GPU nodes
        and one node for the rest); the peak of GPUs that the log shows running, rounded up to 8-GPU nodes; and, where
        the log has no start times, as many 8-GPU nodes as bring submitted work to a load of 0.9.

        Parameters
        ----------
        trace : Trace
            What ran, and on what.
        quotas : {"largest", "over_time"}
            Of a cluster from the ``capacity`` table: whether a VC keeps its largest quota throughout, or its last nodes
            are drained (``outages``) while its quota is smaller.

        Raises
        ------
        UsageError
            If the trace shows no GPU at all, or ``quotas`` is neither of both.
        """
        from analysis.replay.sizing import size_cluster  # noqa: PLC0415, RUF100 - it makes clusters

        return size_cluster(trace, quotas=quotas)


def _in_order(nodes: pl.DataFrame) -> pl.DataFrame:
    keys = schema.job_order(nodes["node_id"].fill_null("")).with_row_index("row")
    return nodes[keys.sort(["number", "text"], maintain_order=True)["row"]]


def _node_problems(nodes: pl.DataFrame, ratios: Mapping[str, float]) -> list[str]:
    problems = []
    if nodes["num_gpus"].null_count() or nodes["node_id"].null_count():
        problems.append("node_id or num_gpus is null")
    twice = nodes.filter(pl.col("node_id").is_duplicated())["node_id"].unique().sort().head(3).to_list()
    if twice:
        problems.append(f"node ids occur more than once (first {', '.join(map(repr, twice))})")
    for name in ("num_gpus", "num_cpus", "mem_gib", "idle_w", "busy_w"):
        below = int((nodes[name] < 0).sum())
        if below:
            problems.append(f"{name} is negative on {below} nodes")
    if not problems and not (nodes["num_gpus"].sum() or 0):
        problems.append(f"{nodes.height} nodes and no GPU")
    before = int((nodes["available_to"] < nodes["available_from"]).sum())
    if before:
        problems.append(f"available_to is before available_from on {before} nodes")
    problems += [f"speed of {key!r} is {value}, not above 0" for key, value in ratios.items() if not value > 0]
    return problems
