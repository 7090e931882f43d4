"""Philly's machine list against what the job log shows: the list contradicts the log."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.beside import finish_table, sort_nodes
from analysis.loaders.cells import Cell, integer, number, read_cells, text
from analysis.loaders.delimited import Delimited, has_columns, read_delimited
from analysis.loaders.rows import LINE

__all__ = ["MachineList", "Machines", "is_machine_list", "read_machines"]

RAW: Final = ("machineId", "number of GPUs", "single GPU mem")
GB: Final = r"^\s*([0-9.]+)\s*GB\s*$"


def is_machine_list(path: Path) -> bool:
    """Whether a file's header is that of the machine list."""
    return has_columns(path, RAW)


@dataclass(frozen=True)
class Machines:
    """Machines as list and log together say.

    Attributes
    ----------
    nodes : DataFrame
        As ``schema.NODES``.
    of_jobs : DataFrame
        ``_line``, ``gpu_type`` (of the first attempt's machines, null if they differ), ``flag_over_capacity``.
    notes : list of str
        Sentences for the load report.
    """

    nodes: pl.DataFrame
    of_jobs: pl.DataFrame
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class MachineList:
    """The list as it is written.

    Attributes
    ----------
    nodes : DataFrame
        As ``schema.NODES``; empty if there is no list.
    rejects : DataFrame
        Rows set aside.
    raw : Delimited or None
        The file.
    """

    nodes: pl.DataFrame
    rejects: pl.DataFrame
    raw: Delimited | None = None

    def settle(self, attempts: pl.DataFrame) -> Machines:
        """Compare the list with the machines that the attempts used.

        Parameters
        ----------
        attempts : DataFrame, one row per attempt
            ``_line``, ``attempt``, ``nodes`` and ``highest`` (per node, the GPUs it must have at least).

        Returns
        -------
        Machines
            A machine has the larger of the listed and the observed number of GPUs.
        """
        used = attempts.select(LINE, "attempt", "nodes", "highest").explode("nodes", "highest").drop_nulls("nodes")
        used = used.rename({"nodes": "node_id"})
        seen = used.group_by("node_id").agg(observed=pl.col("highest").max())
        both = self.nodes.join(seen, on="node_id", how="full", coalesce=True)
        over = both.filter(pl.col("observed") > pl.col("num_gpus"))["node_id"]
        unlisted = both.filter(pl.col("num_gpus").is_null()).height
        nodes = both.with_columns(num_gpus=pl.max_horizontal("num_gpus", "observed")).select(*schema.NODES)
        listed = self.nodes.select("node_id", "gpu_type", listed="num_gpus")
        of_jobs = (
            used.join(listed, on="node_id", how="left")
            .with_columns(
                first_type=pl.when(pl.col("attempt") == 1).then("gpu_type"),
                over=(pl.col("highest") > pl.col("listed")).fill_null(value=False),
                untyped=(pl.col("attempt") == 1) & pl.col("gpu_type").is_null(),
            )
            .group_by(LINE)
            .agg(
                gpu_type=pl.when((pl.col("first_type").drop_nulls().n_unique() == 1) & ~pl.col("untyped").any()).then(
                    pl.col("first_type").drop_nulls().first()
                ),
                flag_over_capacity=pl.col("over").any(),
            )
        )
        return Machines(sort_nodes(nodes), of_jobs, self._notes(len(over), unlisted))

    def _notes(self, num_over: int, num_unlisted: int) -> list[str]:
        if self.raw is None:
            return ["No machine list: machines and their GPUs are those that the job log shows."]
        notes = []
        if num_over:
            notes.append(f"{num_over} machines run jobs on more GPUs than they are listed with; the larger counts.")
        if num_unlisted:
            notes.append(f"{num_unlisted} machines of the job log are not in the machine list; theirs are as observed.")
        return notes


def read_machines(path: Path | None) -> MachineList:
    """Read the machine list, if there is one.

    Raises
    ------
    BadFileError
        If the file cannot be read or lacks a column.
    """
    if path is None:
        return MachineList(schema.empty_table("nodes"), schema.empty_table("rejects"))
    raw = read_delimited(path, required=RAW)
    bare = pl.col("single GPU mem").str.extract(GB, 1)
    memory = number("single GPU mem")
    as_label = pl.format("{}GB", bare.str.strip_suffix(".0"))
    unreadable = bare.is_null() & pl.col("single GPU mem").is_not_null() & memory.value.is_null()
    cells = {
        "node_id": text("machineId"),
        "num_gpus": integer("number of GPUs"),
        "gpu_type": Cell("single GPU mem", as_label, unreadable),
    }
    nodes, rejects = finish_table("nodes", read_cells(raw.frame, cells), file=raw.name, keys=("node_id",))
    return MachineList(nodes, rejects, raw)
