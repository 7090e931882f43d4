"""A Slurm cluster's nodes, from ``scontrol show nodes`` or from ``sinfo``.

``scontrol show nodes -o`` (one line per node; the form over several lines is read too) says most: GPUs with their
types, processors, memory, partitions. ``sinfo`` is read in any form with a header that names the nodes: best ``sinfo
-N -o "%N|%P|%c|%m|%G|%t"``. A node in several partitions is one node. ``vc`` is the node's partition where each node
has one only; partitions that share nodes are no division of the cluster, so then it is null throughout. A node with
several types of GPU becomes one node per type, ``name/type``, with its share of the processors and the memory: a node
of a Trace has one type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from analysis import schema
from analysis.errors import BadFileError
from analysis.loaders.files import open_bytes, peek, readable
from analysis.loaders.slurm.grammar import MIB_PER_GIB, duration_s, gres_gpus, tres_gpus
from analysis.loaders.slurm.hostlist import HostlistError, expand_hostlist

__all__ = [
    "count_records",
    "is_partitions",
    "is_scontrol_nodes",
    "is_sinfo",
    "read_nodes",
    "read_partition_limits",
    "read_scontrol_nodes",
    "read_sinfo",
]

KEY: Final = re.compile(r"(?:^|\s)([A-Z][A-Za-z_:/]*)=")
TYPED_GRES: Final = re.compile(r"(?:^|,)(?:gres[:/])?gpu:([^:,]+):(\d+)")
TYPED_TRES: Final = re.compile(r"(?:^|,)gres/gpu:([^=,]+)=(\d+)")
#: States in which a node has no place in the cluster: never seen, or made for a cloud that is not up.
ABSENT: Final = ("FUTURE",)
#: sinfo's headers, by the field that they are; the same column has several names.
SINFO_NAMES: Final = {
    "NODELIST": "nodes",
    "HOSTNAMES": "nodes",
    "NODEHOST": "nodes",
    "PARTITION": "partition",
    "CPUS": "cpus",
    "MEMORY": "memory",
    "GRES": "gres",
    "STATE": "state",
    "STATECOMPACT": "state",
    "STATELONG": "state",
}


def is_scontrol_nodes(path: Path) -> bool:
    """Whether a file is the output of ``scontrol show nodes``, with or without ``-o``. Never raises."""
    return peek(path).lstrip().startswith("NodeName=")


def is_sinfo(path: Path) -> bool:
    """Whether a file is the output of ``sinfo`` with a header. Never raises."""
    header = next((line for line in peek(path).splitlines() if line.strip()), "")
    names = [SINFO_NAMES.get(word) for word in re.split(r"[|,;\s]+", header.strip())]
    return "nodes" in names and len(names) - names.count(None) >= 2


def is_partitions(path: Path) -> bool:
    """Whether a file is the output of ``scontrol show partition``. Never raises."""
    return peek(path).lstrip().startswith("PartitionName=")


def count_records(path: Path) -> int:
    """How many nodes or partitions a file tells of: its records, or its lines below the header."""
    if is_sinfo(path):
        return max(sum(bool(line.strip()) for line in _lines(path)) - 1, 0)
    return len(list(_scontrol_records(path, "PartitionName" if is_partitions(path) else "NodeName")))


def read_nodes(path: Path | str) -> pl.DataFrame:
    """Read nodes from either form; see `read_scontrol_nodes` and `read_sinfo`."""
    path = Path(path)
    return read_sinfo(path) if is_sinfo(path) else read_scontrol_nodes(path)


def read_scontrol_nodes(path: Path | str) -> pl.DataFrame:
    """Read ``scontrol show nodes -o``.

    Parameters
    ----------
    path : path
        The saved output.

    Returns
    -------
    DataFrame, one row per node, as ``schema.NODES``
        Sorted by name. ``num_gpus`` is 0 for a node without GPUs. ``gpu_type`` is null where Slurm does not know it.
        Nodes in state FUTURE are left out. ``mem_gib`` is what Slurm may hand out.

    Raises
    ------
    BadFileError
        If it is not such output, or names a node twice with different hardware.
    """
    path = Path(path)
    records = list(_scontrol_records(path, first_key="NodeName"))
    rows = []
    for record in records:
        state = record.get("State", "").upper()
        if not any(word in state for word in ABSENT):
            partitions = [name for name in record.get("Partitions", "").split(",") if name]
            found = _rows(record["NodeName"], partitions, cpus=record.get("CPUTot"), memory=record.get("RealMemory"))
            rows += [row | {"gres": record.get("Gres"), "tres": record.get("CfgTRES")} for row in found]
    return _nodes_table(path, rows)


def read_partition_limits(path: Path | str) -> dict[str, float]:
    """Read the limits of partitions from ``scontrol show partition -o``.

    Returns
    -------
    dict of str to float
        Partition -> MaxTime [s]; one without limit is left out.
    """
    found = {
        record["PartitionName"]: record.get("MaxTime") for record in _scontrol_records(Path(path), "PartitionName")
    }
    frame = pl.DataFrame({"name": list(found), "text": list(found.values())}, schema={"name": str, "text": str})
    limits = frame.select("name", limit=duration_s(pl.col("text"))).drop_nulls()
    return {str(name): float(limit) for name, limit in limits.iter_rows()}


def read_sinfo(path: Path | str) -> pl.DataFrame:
    """Read the output of ``sinfo`` with a header, in columns or with a delimiter.

    Parameters
    ----------
    path : path
        The saved output, e.g. of ``sinfo -N -o "%N|%P|%c|%m|%G|%t"`` or ``sinfo -o "%N %P %G"``. Without the column
        GRES the GPUs are not known and count as 0.

    Returns
    -------
    DataFrame, one row per node, as ``schema.NODES``
        A node that stands in several rows (one per partition) is counted once.

    Raises
    ------
    BadFileError
        If the header names no nodes, or a node twice with different hardware.
    """
    path = Path(path)
    lines = [line for line in _lines(path) if line.strip()]
    columns, split = _sinfo_layout(path, lines)
    rows: list[dict[str, object]] = []
    for line in lines[1:]:
        cells = dict(zip(columns, split(line), strict=False))
        partition = cells.get("partition", "").rstrip("*")
        partitions = [partition] if partition else []
        new = _rows(cells.get("nodes", ""), partitions, cpus=cells.get("cpus"), memory=cells.get("memory"))
        rows += [{**row, "gres": cells.get("gres")} for row in new]
    return _nodes_table(path, rows)


def _sinfo_layout(path: Path, lines: Sequence[str]) -> tuple[list[str], Callable[[str], list[str]]]:
    header = lines[0] if lines else ""
    found = re.search(r"[A-Z]\s*([|,;\t])\s*[A-Z]", header)
    delimiter = found[1] if found else None

    def split(line: str) -> list[str]:
        return [cell.strip() for cell in line.split(delimiter)]

    columns = [SINFO_NAMES.get(word, word) for word in split(header)]
    if "nodes" not in columns:
        raise BadFileError(
            path,
            kind="wrong_columns",
            found=f"the header {header.strip()[:80]!r}",
            expected="a header with NODELIST, as sinfo writes it",
            fix="Save 'sinfo -N -o \"%N|%P|%c|%m|%G|%t\"', or 'scontrol show nodes -o', and give that file.",
        )
    return columns, split


def _lines(path: Path) -> list[str]:
    with readable(path), open_bytes(path) as stream:
        return stream.read().decode("utf-8-sig", errors="replace").splitlines()


def _scontrol_records(path: Path, first_key: str) -> Iterable[dict[str, str]]:
    """Key and value pairs of each record; a record begins with its first key, on one line or on several."""
    text = "\n".join(_lines(path)).strip()
    if not text.startswith(f"{first_key}="):
        raise BadFileError(
            path,
            kind="wrong_columns",
            found=f"text that begins with {text[:40]!r}",
            expected=f"records that begin with {first_key}=",
            fix="Save the output of 'scontrol show nodes -o' and give that file.",
        )
    for record in re.split(rf"\n\s*\n|\n(?={first_key}=)", text):
        marks = list(KEY.finditer(record))
        ends = [*(mark.start() for mark in marks[1:]), len(record)]
        values = {mark[1]: record[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=False)}
        if first_key in values:
            yield values


def _rows(hosts: str, partitions: list[str], *, cpus: str | None, memory: str | None) -> list[dict[str, object]]:
    try:
        names = expand_hostlist(hosts)
    except HostlistError:
        names = []
    common = {"partitions": partitions, "cpus": _number(cpus), "memory": _number(memory), "gres": None, "tres": None}
    return [{"node_id": name, **common} for name in names]


def _number(text: str | None) -> float | None:
    """The first number of a text: sinfo adds a plus to the least of a group."""
    found = re.match(r"\s*(\d+(?:\.\d+)?)", text or "")
    return float(found[1]) if found else None


#: More GPUs than any node has: a count beyond it is a broken file.
MOST_GPUS: Final = 10_000
RAW: Final = {
    "node_id": pl.String(),
    "partitions": pl.List(pl.String()),
    "cpus": pl.Float64(),
    "memory": pl.Float64(),
    "gres": pl.String(),
    "tres": pl.String(),
}


def _nodes_table(path: Path, rows: Sequence[dict[str, object]]) -> pl.DataFrame:
    frame = pl.DataFrame(list(rows), schema=RAW, orient="row")
    gres = pl.struct(gres_gpus(pl.col("gres"))).alias("by_gres")
    tres = pl.struct(tres_gpus(pl.col("tres"))).alias("by_tres")
    read = frame.with_columns(gres, tres).with_columns(
        num_gpus=pl.coalesce(pl.col("by_gres").struct["gpus"], pl.col("by_tres").struct["gpus"], 0.0),
        gpu_type=pl.coalesce(pl.col("by_gres").struct["gpu_type"], pl.col("by_tres").struct["gpu_type"]),
    )
    _refuse_absurd_counts(path, read)
    read = read.with_columns(pl.col("num_gpus").cast(pl.Int64))
    once = read.group_by("node_id").agg(
        pl.col("num_gpus", "gpu_type", "cpus", "memory", "gres", "tres").first(),
        kinds=pl.struct("num_gpus", "gpu_type").n_unique(),
        partitions=pl.col("partitions").list.explode(keep_nulls=False, empty_as_null=False).unique(),
    )
    is_division = once["partitions"].list.len().max() == 1
    torn = once.filter(pl.col("kinds") > 1)["node_id"].sort().head(3).to_list()
    if torn:
        raise BadFileError(
            path,
            kind="conflict",
            found=f"different hardware for one and the same node ({', '.join(torn)})",
            expected="one set of GPUs per node",
            fix="Save 'scontrol show nodes -o' and give that file.",
        )
    none = pl.lit(None)
    once = _split_by_type(once)
    table = once.select(
        "node_id",
        "gpu_type",
        "num_gpus",
        num_cpus=pl.col("cpus"),
        mem_gib=pl.col("memory") / MIB_PER_GIB,
        vc=pl.col("partitions").list.first() if is_division else none.cast(pl.String),
        available_from=none.cast(schema.TIME),
        available_to=none.cast(schema.TIME),
    )
    order = schema.job_order(table["node_id"]).with_row_index("row").sort("number", "text")["row"]
    return table[order]


def _split_by_type(nodes: pl.DataFrame) -> pl.DataFrame:
    """A node of several types as one node per type."""
    is_mixed = pl.col("gpu_type") == "mixed"
    if not nodes.select(is_mixed.any()).item():
        return nodes
    parts = []
    for node in nodes.filter(is_mixed).iter_rows(named=True):
        for kind, num in _count_types(node["gres"], node["tres"]).items():
            share = num / node["num_gpus"]
            parts.append(
                {
                    **node,
                    "node_id": f"{node['node_id']}/{kind}",
                    "gpu_type": kind,
                    "num_gpus": num,
                    "cpus": None if node["cpus"] is None else node["cpus"] * share,
                    "memory": None if node["memory"] is None else node["memory"] * share,
                }
            )
    return pl.concat([nodes.filter(is_mixed.not_().fill_null(value=True)), pl.DataFrame(parts, schema=nodes.schema)])


def _refuse_absurd_counts(path: Path, nodes: pl.DataFrame) -> None:
    absurd = nodes.filter(pl.col("num_gpus") > MOST_GPUS)
    if absurd.height:
        name, num_gpus = absurd.select("node_id", "num_gpus").row(0)
        raise BadFileError(
            path,
            kind="bad_value",
            found=f"{num_gpus:g} GPUs on node {name}",
            expected=f"at most {MOST_GPUS:,}",
            fix="Export it again.",
        )


def _count_types(gres: str | None, tres: str | None) -> dict[str, int]:
    """GPUs by type of a node that has several types, from whichever text names them."""
    by_gres: list[tuple[str, str]] = TYPED_GRES.findall(re.sub(r"\([^)]*\)", "", gres or ""))
    by_tres: list[tuple[str, str]] = TYPED_TRES.findall(tres or "")
    counts: dict[str, int] = {}
    for kind, num in by_gres or by_tres:
        counts[kind] = counts.get(kind, 0) + int(num)
    return counts
