"""Clusters to replay on: nodes with GPUs, their types and VCs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from analysis import schema
from analysis.errors import BadFileError, UsageError
from analysis.replay import speeds

if TYPE_CHECKING:
    from analysis.trace import Trace

__all__ = ["Cluster"]

#: Columns of ``Cluster.nodes``. ``idle_w`` and ``busy_w``: power of the node without and with all GPUs busy [W].
NODE_COLUMNS: Final[dict[str, pl.DataType]] = {
    "node_id": pl.String(),
    "gpu_type": pl.String(),
    "num_gpus": pl.Int64(),
    "num_cpus": pl.Float64(),
    "mem_gib": pl.Float64(),
    "vc": pl.String(),
    "idle_w": pl.Float64(),
    "busy_w": pl.Float64(),
}
_EXAMPLE: Final = 'a line "name = …", then tables [[nodes]] with count, gpu_type and num_gpus'
_TOP_KEYS: Final = ("name", "nodes", "speed", "links")
_NODE_KEYS: Final = ("count", *(key for key in NODE_COLUMNS if key != "node_id"))
_TEXT_KEYS: Final = ("gpu_type", "vc")
_WHOLE_KEYS: Final = ("count", "num_gpus")
#: More than any cluster on record (155,410 GPUs) by far; beyond it a slip of the pen would eat the machine's memory.
MOST_NODES: Final = 200_000
MOST_GPUS: Final = 2_000_000


@dataclass(frozen=True)
class Cluster:
    """Nodes on which jobs can run.

    Parameters
    ----------
    nodes : DataFrame, one row per node
        node_id (unique), num_gpus; and gpu_type, vc, num_cpus, mem_gib, idle_w, busy_w, where null or missing means
        not known. Nodes without a GPU take no part in a replay. Other columns are left out.
    name : str
        What to call it in reports.
    speed : mapping of str to float, optional
        Speed of a GPU type relative to a V100, instead of the shipped one. [ratio]
    notes : tuple of str
        What was assumed, in sentences.

    Raises
    ------
    UsageError
        If there is no GPU, an id occurs twice, or a number is negative; all problems at once.

    Examples
    --------
    >>> Cluster.uniform(num_nodes=52, num_gpus=8).num_gpus
    416
    """

    nodes: pl.DataFrame
    name: str = "cluster"
    speed: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems = [f"column {name!r} is missing" for name in ("node_id", "num_gpus") if name not in self.nodes.columns]
        if not problems:
            nodes = self.nodes.select(
                (pl.col(name).cast(dtype) if name in self.nodes.columns else pl.lit(None, dtype=dtype).alias(name))
                for name, dtype in NODE_COLUMNS.items()
            )
            object.__setattr__(self, "nodes", _in_order(nodes))
            problems = _node_problems(nodes, self.speed)
        if problems:
            msg = f"cluster {self.name!r}: {'; '.join(problems)}. A replay needs nodes with GPUs: give {_EXAMPLE}."
            raise UsageError(msg)

    @property
    def num_gpus(self) -> int:
        """GPUs of all nodes."""
        return int(self.nodes["num_gpus"].sum())

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
        if too_large := _size_problems([row]):
            msg = f"cluster {name!r}: {too_large[0]}. Check the numbers, nodes first: 52x8 is 52 nodes of 8 GPUs."
            raise UsageError(msg)
        return cls(_expand([row]), name=name)

    @classmethod
    def from_toml(cls, path: Path | str) -> Cluster:
        """Read a cluster file.

        Parameters
        ----------
        path : path
            TOML: ``name``; a table ``[[nodes]]`` per kind of node with ``count`` and ``num_gpus``, and optionally
            ``gpu_type``, ``vc``, ``num_cpus``, ``mem_gib``, ``idle_w``, ``busy_w``; optionally ``[speed]``, GPU type =
            speed relative to a V100; ``[[links]]`` is left to the planner.

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
        spec = _read_toml(path)
        problems = _spec_problems(spec)
        if not problems:
            nodes = _expand(spec["nodes"])
            ratios = {key: float(value) for key, value in spec.get("speed", {}).items()}
            problems = _node_problems(nodes, ratios)
        if problems:
            count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
            raise BadFileError(
                path,
                kind="bad_cluster",
                found=f"{count}: {'; '.join(problems)}",
                expected=_EXAMPLE,
                fix=f"Optional are {', '.join(_NODE_KEYS[3:])}, and a table [speed] with GPU type = ratio.",
            )
        return cls(nodes, name=str(spec.get("name", path.stem)), speed=ratios)

    @classmethod
    def from_trace(cls, trace: Trace) -> Cluster:
        """Take the trace's nodes, or else size a cluster from it and say so in ``notes``.

        In this order: the ``nodes`` table; the ``capacity`` table (per VC its largest number of GPUs, as 8-GPU nodes
        and one node for the rest); the peak of GPUs that the log shows running, rounded up to 8-GPU nodes; and, where
        the log has no start times, as many 8-GPU nodes as bring submitted work to a load of 0.9.

        Raises
        ------
        UsageError
            If the trace shows no GPU at all.
        """
        from analysis.replay.sizing import size_cluster  # noqa: PLC0415, RUF100 - it makes clusters

        return size_cluster(trace)


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
    problems += [f"speed of {key!r} is {value}, not above 0" for key, value in ratios.items() if not value > 0]
    return problems


def _expand(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    total = sum(row["count"] for row in rows)
    width = len(str(max(total - 1, 0)))
    nodes: list[dict[str, Any]] = []
    for row in rows:
        common = {key: row.get(key) for key in NODE_COLUMNS if key != "node_id"}
        nodes += [{"node_id": f"n{len(nodes) + i:0{width}d}"} | common for i in range(row["count"])]
    return pl.DataFrame(nodes, schema=NODE_COLUMNS, orient="row", strict=False)


def _size_problems(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    num_nodes = sum(row["count"] for row in rows)
    num_gpus = sum(row["count"] * row["num_gpus"] for row in rows)
    if num_nodes <= MOST_NODES and num_gpus <= MOST_GPUS:
        return []
    return [
        f"found {num_nodes:,} nodes with {num_gpus:,} GPUs; expected at most {MOST_NODES:,} nodes and "
        f"{MOST_GPUS:,} GPUs"
    ]


def _read_toml(path: Path) -> dict[str, Any]:
    fix = f"Write {_EXAMPLE}; or give NODESxGPUS such as 52x8; or leave it out to take the trace's own."
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        kind = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
        found = "nothing there" if kind == "missing" else str(error.strerror)
        raise BadFileError(path, kind=kind, found=found, expected="a cluster file (TOML)", fix=fix) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        found = f"text that is not TOML ({error})"
        raise BadFileError(path, kind="not_toml", found=found, expected=_EXAMPLE, fix=fix) from error


def _spec_problems(spec: Mapping[str, Any]) -> list[str]:
    problems = [f"unknown key {key!r} (known: {', '.join(_TOP_KEYS)})" for key in spec if key not in _TOP_KEYS]
    rows = spec.get("nodes", [])
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        problems.append("no [[nodes]]")
        rows = []
    for place, row in enumerate(rows, start=1):
        problems += [f"[[nodes]] {place}: {text}" for text in _row_problems(row)]
    problems += [] if problems else _size_problems(rows)
    speed = spec.get("speed", {})
    if not isinstance(speed, dict) or not all(_is_number(value) for value in speed.values()):
        problems.append("[speed] is not a table of GPU type = number")
    return problems


def _row_problems(row: Mapping[str, Any]) -> list[str]:
    problems = [f"unknown key {key!r} (known: {', '.join(_NODE_KEYS)})" for key in row if key not in _NODE_KEYS]
    for key in _WHOLE_KEYS:
        value = row.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            problems.append(f"{key} is {value!r}, not a whole number of 0 or more")
    for key in set(_NODE_KEYS) - set(_WHOLE_KEYS) - set(_TEXT_KEYS):
        if key in row and (not _is_number(row[key]) or row[key] < 0):
            problems.append(f"{key} is {row[key]!r}, not a number of 0 or more")
    problems += [f"{key} is {row[key]!r}, not text" for key in _TEXT_KEYS if not isinstance(row.get(key, ""), str)]
    return sorted(problems)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
