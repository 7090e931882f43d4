"""Cluster files: TOML that describes nodes, and tables of equal nodes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from analysis.errors import BadFileError
from analysis.replay.outages import KINDS, TIME, no_outages, outage_table

__all__ = [
    "EXAMPLE",
    "NODE_COLUMNS",
    "NODE_KEYS",
    "expand",
    "outages_in",
    "read_toml",
    "size_problems",
    "spec_problems",
]

#: Columns of ``Cluster.nodes``. ``rack`` and ``pod``: what shares a switch, and a group of such; ``idle_w`` and
#: ``busy_w``: power of the node without and with all GPUs busy [W]; ``available_from`` and ``available_to``: when the
#: node comes and leaves, null = it was, or stays, there.
NODE_COLUMNS: Final[dict[str, pl.DataType]] = {
    "node_id": pl.String(),
    "gpu_type": pl.String(),
    "num_gpus": pl.Int64(),
    "num_cpus": pl.Float64(),
    "mem_gib": pl.Float64(),
    "vc": pl.String(),
    "rack": pl.String(),
    "pod": pl.String(),
    "idle_w": pl.Float64(),
    "busy_w": pl.Float64(),
    "available_from": TIME,
    "available_to": TIME,
}
EXAMPLE: Final = 'a line "name = …", then tables [[nodes]] with count, gpu_type and num_gpus'
_TOP_KEYS: Final = ("name", "nodes", "outages", "speed", "links")
NODE_KEYS: Final = ("count", *(key for key in NODE_COLUMNS if key != "node_id"))
_TEXT_KEYS: Final = ("gpu_type", "vc", "rack", "pod")
_WHOLE_KEYS: Final = ("count", "num_gpus")
_TIME_KEYS: Final = ("available_from", "available_to")
_AN_INSTANT: Final = "an instant such as 2024-03-01T12:00:00Z"
_OUTAGE_KEYS: Final = ("node_id", "down", "up", "kind")
#: More than any cluster on record (155,410 GPUs) by far; beyond it a slip of the pen would eat the machine's memory.
MOST_NODES: Final = 200_000
MOST_GPUS: Final = 2_000_000


def expand(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Table of nodes, numbered in the order of the rows, of which each stands for ``count`` nodes."""
    total = sum(row["count"] for row in rows)
    width = len(str(max(total - 1, 0)))
    nodes: list[dict[str, Any]] = []
    for row in rows:
        common = {key: row.get(key) for key in NODE_COLUMNS if key != "node_id"}
        common |= {key: _instant(row.get(key)) for key in _TIME_KEYS}
        nodes += [{"node_id": f"n{len(nodes) + i:0{width}d}"} | common for i in range(row["count"])]
    return pl.DataFrame(nodes, schema=NODE_COLUMNS, orient="row", strict=False)


def outages_in(spec: Mapping[str, Any]) -> pl.DataFrame:
    """Outages of a cluster file that has no problems."""
    rows = [dict.fromkeys(_OUTAGE_KEYS) | row for row in spec.get("outages", [])]
    if not rows:
        return no_outages()
    times = {key: pl.Series([_instant(row[key]) for row in rows], dtype=TIME) for key in ("down", "up")}
    named = {key: pl.Series([row[key] for row in rows], dtype=pl.String) for key in ("node_id", "kind")}
    return outage_table(pl.DataFrame(named | times))


def _instant(value: object) -> datetime | None:
    """Instant of a TOML date-time or of ISO text; without an offset it is UTC. None if there is none."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def size_problems(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the size of a cluster, in words."""
    num_nodes = sum(row["count"] for row in rows)
    num_gpus = sum(row["count"] * row["num_gpus"] for row in rows)
    if num_nodes <= MOST_NODES and num_gpus <= MOST_GPUS:
        return []
    return [
        f"found {num_nodes:,} nodes with {num_gpus:,} GPUs; expected at most {MOST_NODES:,} nodes and "
        f"{MOST_GPUS:,} GPUs"
    ]


def read_toml(path: Path) -> dict[str, Any]:
    """Content of a TOML file.

    Raises
    ------
    BadFileError
        If the file is missing or is not TOML.
    """
    fix = f"Write {EXAMPLE}; or give NODESxGPUS such as 52x8; or leave it out to take the trace's own."
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        kind = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
        found = "nothing there" if kind == "missing" else str(error.strerror)
        raise BadFileError(path, kind=kind, found=found, expected="a cluster file (TOML)", fix=fix) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        found = f"text that is not TOML ({error})"
        raise BadFileError(path, kind="not_toml", found=found, expected=EXAMPLE, fix=fix) from error


def spec_problems(spec: Mapping[str, Any]) -> list[str]:
    """Everything in a cluster file that is not understood, in words."""
    problems = [f"unknown key {key!r} (known: {', '.join(_TOP_KEYS)})" for key in spec if key not in _TOP_KEYS]
    rows = spec.get("nodes", [])
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        problems.append("no [[nodes]]")
        rows = []
    for place, row in enumerate(rows, start=1):
        problems += [f"[[nodes]] {place}: {text}" for text in _row_problems(row)]
    outages = spec.get("outages", [])
    if not isinstance(outages, list) or not all(isinstance(row, dict) for row in outages):
        problems.append("outages is not a list of tables [[outages]]")
        outages = []
    for place, row in enumerate(outages, start=1):
        problems += [f"[[outages]] {place}: {text}" for text in _outage_problems(row)]
    problems += [] if problems else size_problems(rows)
    speed = spec.get("speed", {})
    if not isinstance(speed, dict) or not all(_is_number(value) for value in speed.values()):
        problems.append("[speed] is not a table of GPU type = number")
    return problems


def _row_problems(row: Mapping[str, Any]) -> list[str]:
    problems = [f"unknown key {key!r} (known: {', '.join(NODE_KEYS)})" for key in row if key not in NODE_KEYS]
    for key in _WHOLE_KEYS:
        value = row.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            problems.append(f"{key} is {value!r}, not a whole number of 0 or more")
    for key in set(NODE_KEYS) - set(_WHOLE_KEYS) - set(_TEXT_KEYS) - set(_TIME_KEYS):
        if key in row and (not _is_number(row[key]) or row[key] < 0):
            problems.append(f"{key} is {row[key]!r}, not a number of 0 or more")
    problems += [f"{key} is {row[key]!r}, not text" for key in _TEXT_KEYS if not isinstance(row.get(key, ""), str)]
    problems += [
        f"{key} is {row[key]!r}, not {_AN_INSTANT}" for key in _TIME_KEYS if key in row and not _instant(row[key])
    ]
    return sorted(problems)


def _outage_problems(row: Mapping[str, Any]) -> list[str]:
    problems = [f"unknown key {key!r} (known: {', '.join(_OUTAGE_KEYS)})" for key in row if key not in _OUTAGE_KEYS]
    if not isinstance(row.get("node_id"), str):
        problems.append(f"node_id is {row.get('node_id')!r}, not text")
    problems += [
        f"{key} is {row.get(key)!r}, not {_AN_INSTANT}"
        for key in ("down", "up")
        if (key in row or key == "down") and not _instant(row.get(key))
    ]
    if row.get("kind", KINDS[0]) not in KINDS:
        problems.append(f"kind is {row['kind']!r}, not one of {', '.join(KINDS)}")
    return problems


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
