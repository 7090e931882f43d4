"""Job arrays and heterogeneous jobs: ``77_[3-10%2]`` to its tasks, ``90+0`` and ``90+1`` to one job."""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from analysis.loaders.slurm.blocks import LINE
from analysis.loaders.slurm.steps import HET

__all__ = ["array_tasks", "expand_arrays", "merge_het"]

BRACKET: Final = re.compile(r"^(\d+)_\[([^\]]*)\]$")
ITEM: Final = re.compile(r"^(\d+)(?:-(\d+)(?::(\d+))?)?$")
#: Slurm's own greatest MaxArraySize.
MAX_TASKS: Final = 4_000_001


def array_tasks(text: str) -> tuple[list[str], bool]:
    """Expand the id of tasks that wait together.

    Parameters
    ----------
    text : str
        E.g. ``77_[3-10%2]``; the throttle ``%2`` says nothing about the tasks.

    Returns
    -------
    tuple of (list of str, bool)
        The ids of the tasks (the text itself if it is no such id), and whether all of them are known: Slurm cuts
        long lists with ``...``.

    Examples
    --------
    >>> array_tasks("77_[1,4-6%2]")
    (['77_1', '77_4', '77_5', '77_6'], True)
    """
    found = BRACKET.match(text)
    if not found:
        return [text], True
    tasks: list[str] = []
    complete = True
    for item in found[2].split("%")[0].split(","):
        part = ITEM.match(item.strip())
        if not part:
            complete = False
            continue
        span = range(int(part[1]), int(part[2] or part[1]) + 1, max(int(part[3] or 1), 1))
        if len(tasks) + len(span) > MAX_TASKS:
            return [text], False
        tasks += [f"{found[1]}_{number}" for number in span]
    return tasks or [text], complete and bool(tasks)


def expand_arrays(records: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Give each waiting task of an array its own record.

    Returns
    -------
    tuple of (DataFrame, list of str)
        The records, and sentences about ids that are cut.
    """
    is_bracket = pl.col("key").str.contains("_[", literal=True)
    waiting = records.filter(is_bracket)
    if not waiting.height:
        return records, []
    expanded = [array_tasks(key) for key in waiting["key"].to_list()]
    cut = sum(not complete for _, complete in expanded)
    tasks = waiting.with_columns(key=pl.Series([ids for ids, _ in expanded])).explode("key")
    notes = [f"{cut} lists of array tasks are cut short ('...'): the tasks left out are not known."] if cut else []
    return pl.concat([records.filter(~is_bracket), tasks]), notes


def merge_het(records: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Make one record of the components of a heterogeneous job: they start and end together.

    Returns
    -------
    tuple of (DataFrame, int)
        The records, and how many lines went into that of another. GPUs, processors, nodes and memory are summed, the
        job runs as long as its longest component, and its state is the first that is not "completed".
    """
    is_part = pl.col("key").str.contains(HET)
    parts = records.filter(is_part)
    if not parts.height:
        return records, 0
    keys = parts["key"]
    parts = parts.with_columns(
        base=keys.str.extract(HET, 1), component=keys.str.extract(HET, 2).cast(pl.Int64, strict=False)
    ).sort("component", "submit_time", "start_time", LINE, nulls_last=True)
    # A component's second line is the second run of the whole job.
    parts = parts.with_columns(turn=pl.int_range(pl.len()).over("cluster", "base", "component"))
    merged = parts.group_by("cluster", "base", "turn", maintain_order=True).agg(_together(parts.columns))
    merged = merged.with_columns(key="base").select(pl.col(name).cast(dtype) for name, dtype in records.schema.items())
    return pl.concat([records.filter(~is_part), merged]), parts.height - merged.height


def _together(columns: list[str]) -> list[pl.Expr]:
    """One value of each column for all components."""
    is_bad = pl.col("status") != "completed"
    types = pl.col("gpu_type").cast(pl.String).drop_nulls().unique(maintain_order=True)
    # The types that one part or another may use.
    allowed = (
        pl.col("allowed")
        .drop_nulls()
        .cast(pl.String)
        .str.split(",")
        .list.explode(keep_nulls=False, empty_as_null=False)
    )
    allowed = allowed.unique(maintain_order=True).str.join(",")
    special = {
        **{name: _sum(name) for name in ("num_gpus", "num_cpus", "num_nodes", "mem_gib")},
        "submit_time": pl.col("submit_time").min(),
        "start_time": pl.col("start_time").min(),
        "end_time": pl.when(pl.col("end_time").null_count() == 0).then(pl.col("end_time").max()),
        "run_s": pl.col("run_s").max(),
        "suspended_s": pl.col("suspended_s").max(),
        "status": pl.coalesce(pl.col("status").filter(is_bad).first(), pl.col("status").first()),
        "status_raw": pl.coalesce(pl.col("status_raw").filter(is_bad).first(), pl.col("status_raw").first()),
        "gpu_type": pl.when(types.len() > 1).then(pl.lit("mixed")).otherwise(types.first()),
        "allowed": pl.when(allowed != "").then(allowed),
        "hosts": pl.col("hosts").cast(pl.String).str.join(","),
        "never": pl.col("never").all(),
        "ran": pl.col("ran").any(),
        "_undecodable": pl.col("_undecodable").any(),
    }
    own = ("cluster", "base", "turn")
    return [special.get(name, pl.col(name).first()).alias(name) for name in columns if name not in own]


def _sum(name: str) -> pl.Expr:
    """The sum; not known if one part is not known."""
    return pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum())
