"""The seven headerless tables of PAI 2020: their columns, which file is which, and how one is opened.

A table's columns are those of its ``.header`` side file (``pai_job_table.header`` beside ``pai_job_table.csv``), if it
lies there; else those that the README lists. A file that does have a header line is read by it. Which table a file is,
its columns' names or its first row say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from analysis.errors import BadFileError
from analysis.loaders.batches import Batches
from analysis.loaders.delimited import Delimited, read_delimited
from analysis.loaders.files import peek
from analysis.loaders.many_files import bare_name

__all__ = ["TABLES", "header_names", "is_header_file", "open_batches", "open_table", "role_of"]

TABLES: Final = {
    "job": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "task": (
        *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
        *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
    ),
    "instance": (
        *("job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time", "end_time"),
        "machine",
    ),
    "sensor": (
        *("job_name", "task_name", "worker_name", "inst_id", "machine", "gpu_name", "cpu_usage", "gpu_wrk_util"),
        *("avg_mem", "max_mem", "avg_gpu_wrk_mem", "max_gpu_wrk_mem", "read", "write", "read_count", "write_count"),
    ),
    "group_tag": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
    "machine_spec": ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"),
    "machine_metric": (
        *("worker_name", "machine", "start_time", "end_time", "machine_cpu_iowait", "machine_cpu_kernel"),
        *("machine_cpu_usr", "machine_gpu", "machine_load_1", "machine_net_receive", "machine_num_worker"),
        "machine_cpu",
    ),
}
STATUSES: Final = ("Terminated", "Failed", "Running", "Waiting")
NUMBER: Final = re.compile(r"^-?[0-9.]+(e[+-]?[0-9]+)?$", re.IGNORECASE)
#: Table -> places of its status, and of numbers.
MARKS: Final[dict[str, tuple[int | None, tuple[int, ...]]]] = {
    "job": (3, (4, 5)),
    "task": (3, (2, 4, 5, 6, 7, 8)),
    "instance": (5, (6, 7)),
    "sensor": (None, (6, 7, 8, 9, 10, 11, 12, 13, 14, 15)),
    "machine_spec": (None, (2, 3, 4)),
    "machine_metric": (None, (2, 3, 4, 5, 6, 7, 8, 9, 10, 11)),
    "group_tag": (None, ()),
}


def is_header_file(path: Path) -> bool:
    """Whether a file is the side file with a table's column names."""
    return path.suffix == ".header"


def header_names(path: Path) -> tuple[str, ...] | None:
    """Column names from the side file, if it lies beside the table.

    Raises
    ------
    BadFileError
        If the side file holds no names.
    """
    side = path.with_name(f"{bare_name(path)}.header")
    if not side.exists():
        return None
    names = tuple(name.strip() for name in peek(side).split("\n", 1)[0].split(","))
    if not all(names):
        found, fix = f"the names {', '.join(names)!r}", "Download it again, or remove it to use the documented columns."
        raise BadFileError(side, kind="wrong_columns", found=found, expected="a line of column names", fix=fix)
    return names


def role_of(path: Path) -> str | None:
    """Which of the tables a file is; null if none. Never raises."""
    if is_header_file(path):
        return None
    first = [field.strip() for field in next(iter(peek(path).splitlines()), "").split(",")]
    side = path.with_name(f"{bare_name(path)}.header")
    names = [name.strip() for name in peek(side).split("\n", 1)[0].split(",")] if side.exists() else first
    for table, columns in TABLES.items():
        if set(columns) <= set(names):
            return table
    by_row = next((table for table in MARKS if _is_row(first, table)), None)
    said = next((table for table in TABLES if bare_name(path).startswith(f"pai_{table}")), None)
    return by_row if said is None or by_row is None else said


def _is_row(fields: Sequence[str], table: str) -> bool:
    status, numbers = MARKS[table]
    if len(fields) != len(TABLES[table]) or not any(fields):
        return False
    if status is not None and fields[status] not in STATUSES:
        return False
    if not all(not fields[place] or NUMBER.match(fields[place]) for place in numbers):
        return False
    # Tags have no place of their own: they are told by the hash of the user and a word that is no number.
    return table != "group_tag" or (bool(fields[0] and fields[1]) and not any(map(NUMBER.match, fields[2:])))


def _layout(path: Path, table: str) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The names to give to the columns (null: the file has a header line), and those that must be there."""
    first = {field.strip() for field in next(iter(peek(path).splitlines()), "").split(",")}
    if set(TABLES[table]) <= first:
        return None, TABLES[table]
    return header_names(path) or TABLES[table], TABLES[table]


def open_table(path: Path, table: str) -> Delimited:
    """Open a table that memory holds.

    Raises
    ------
    BadFileError
        As ``delimited.read_delimited``.
    """
    names, required = _layout(path, table)
    return read_delimited(path, names=names, required=required)


def open_batches(path: Path, table: str) -> Batches:
    """Open a table that is read block by block.

    Raises
    ------
    BadFileError
        As ``batches.Batches``.
    """
    names, required = _layout(path, table)
    return Batches(path, names=names, required=required)
