"""The tables beside the jobs: attempts, usage, and the lines that were set aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.slurm.assemble import Assembled
from analysis.loaders.slurm.blocks import LINE, Export
from analysis.loaders.slurm.grammar import MIB_PER_GIB
from analysis.loaders.slurm.hostlist import expand_column
from analysis.loaders.slurm.steps import is_step, step_owner

__all__ = ["attempts_table", "rejects_table", "usage_table"]

PERCENT: Final = 100.0


def attempts_table(runs: pl.DataFrame, job_ids: pl.Series) -> pl.DataFrame:
    """Every run with its nodes, as ``schema.ATTEMPTS``, by job id and number.

    Parameters
    ----------
    runs : DataFrame
        As ``assemble.Assembled.runs``.
    job_ids : Series of str
        Ids of the jobs, in the order that ``owner`` counts.
    """
    ids = job_ids.gather(runs["owner"])
    order = _order(ids, runs["attempt"])
    runs, ids = runs[order], ids[order]
    return runs.select(
        ids.alias("job_id"), "attempt", "start_time", "end_time", expand_column(runs["hosts"]), gpus="num_gpus"
    )


def _order(ids: pl.Series, rank: pl.Series) -> pl.Series:
    keys = schema.job_order(ids).with_columns(rank.alias("rank")).with_row_index("row")
    return keys.sort("number", "text", "rank")["row"]


def usage_table(measured: pl.DataFrame, job_ids: pl.Series, *, num_gpus: pl.Series) -> pl.DataFrame:
    """What steps measured of their jobs, as ``schema.USAGE``; a job without any measurement has no row.

    Parameters
    ----------
    measured : DataFrame
        As ``assemble.Assembled.measured``.
    job_ids, num_gpus : Series
        Ids and GPUs of the jobs, in the order that ``owner`` counts.

    Notes
    -----
    Slurm's ``gpuutil`` is the sum over a job's GPUs in percent; here it is the mean over them, 0-1.
    """
    gpus = num_gpus.gather(measured["owner"])
    share = pl.col("gpu_util") / PERCENT / pl.col("gpus")
    none = pl.lit(None, dtype=pl.Float64)
    usage = measured.with_columns(gpus.alias("gpus"), job_ids.gather(measured["owner"]).alias("job_id")).select(
        "job_id",
        gpu_utilization_mean=pl.when(pl.col("gpus") > 0).then(share),
        gpu_utilization_p50=none,
        gpu_utilization_p95=none,
        gpu_mem_gib_max=pl.when(pl.col("gpus") > 0).then(pl.col("gpu_mem_mib") / MIB_PER_GIB),
        cpu_utilization_mean=none,
        mem_gib_max=pl.col("max_rss_mib") / MIB_PER_GIB,
    )
    usage = usage.filter(pl.any_horizontal(pl.col(pl.Float64).is_not_null()))
    return usage[_order(usage["job_id"], pl.Series([0]).new_from_index(0, usage.height))]


def rejects_table(exports: Sequence[Export], done: Assembled) -> pl.DataFrame:
    """Lines that were set aside while reading and after it, with their text, as ``schema.REJECTS``."""
    orphans = _orphans(exports, done.orphans) if done.orphans.height else done.rejects.clear()
    later = pl.concat([done.rejects, orphans])
    tables = [export.rejects for export in exports]
    for number, export in enumerate(exports):
        mine = later.filter(pl.col("file") == number)
        texts = export.raw_text(mine["line"].to_list())
        raw = pl.Series("raw", [texts.get(line) for line in mine["line"].to_list()], dtype=pl.String)
        tables.append(mine.with_columns(raw, file=pl.lit(export.name)))
    return pl.concat(tables).sort("file", "line", "reason", nulls_last=True)


def _orphans(exports: Sequence[Export], owners: pl.DataFrame) -> pl.DataFrame:
    """The lines of steps whose job is not there: the exports are read a second time for them."""
    found = []
    for number, export in enumerate(exports):
        for frame in Export(export.path, export.layout, block_bytes=export.block_bytes).blocks():
            steps = frame.filter(is_step(frame))
            named = steps.select(LINE, **step_owner(steps))
            found.append(
                named.join(owners, on=["cluster", "key"], how="semi", nulls_equal=True).select(
                    file=pl.lit(number, dtype=pl.UInt16),
                    line=LINE,
                    reason=pl.lit("step_without_job"),
                    raw=pl.lit(None, dtype=pl.String),
                )
            )
    return pl.concat(found)
