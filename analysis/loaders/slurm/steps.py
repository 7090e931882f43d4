"""The lines of steps (``88.batch``, ``88.0``): whose they are, and what they measured."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis.loaders.slurm import grammar
from analysis.loaders.slurm.fields import field_of, job_key, null, select

__all__ = ["HET", "gather_steps", "is_step", "read_steps", "step_owner"]

#: A heterogeneous job's component.
HET: Final = r"^(\d+)\+(\d+)$"


def is_step(frame: pl.DataFrame) -> pl.Series:
    """Which lines are of steps (``88.batch``); the dots of a cut list of array tasks are none."""
    key = job_key(frame)
    dotted = key.str.contains(".", literal=True) & ~key.str.contains("[", literal=True)
    return select(frame, x=dotted.fill_null(value=False))["x"]


def step_owner(frame: pl.DataFrame) -> dict[str, pl.Expr]:
    """Whose steps lines are: the job's cluster and key, without the component of a heterogeneous job."""
    key = job_key(frame)
    job = key.str.head(key.str.find(".", literal=True))
    return {
        "cluster": field_of(frame, "Cluster").cast(pl.Categorical),
        "key": pl.when(job.str.contains("+", literal=True)).then(job.str.extract(HET, 1)).otherwise(job),
    }


def read_steps(frame: pl.DataFrame) -> pl.DataFrame:
    """What the steps of each job measured.

    Parameters
    ----------
    frame : DataFrame
        Lines whose id has a dot.

    Returns
    -------
    DataFrame, one row per job
        ``cluster``, ``key`` (of the job), ``num_steps``, and the largest ``max_rss_mib``, ``gpu_util`` (percent,
        over all GPUs), ``gpu_mem_mib`` of its steps; null where not measured.
    """
    rss = null(pl.Float64)
    if "MaxRSS" in frame.columns:
        # Without a suffix sacct means bytes here.
        suffix = pl.col("MaxRSS").str.tail(1)
        is_digit = suffix.str.contains(r"\d")
        number = (
            pl.when(is_digit).then("MaxRSS").otherwise(pl.col("MaxRSS").str.head(-1)).cast(pl.Float64, strict=False)
        )
        rss = number * suffix.replace_strict(grammar.SCALES, default=1.0, return_dtype=pl.Float64) / grammar.SCALES["M"]
        # No process takes no memory: 0 is a step that ended before the first sample.
        rss = pl.when(number != 0).then(rss)
    measured = select(
        frame,
        **step_owner(frame),
        max_rss_mib=rss,
        gpu_util=_amounts(frame, "gres/gpuutil", "TRESUsageInTot", "TRESUsageInAve"),
        # gpumem is counted in bytes.
        gpu_mem_mib=_amounts(frame, "gres/gpumem", "TRESUsageInMax", "TRESUsageInTot") / grammar.SCALES["M"],
    )
    return gather_steps(measured.with_columns(num_steps=pl.lit(1, dtype=pl.Int64)))


def gather_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """One row per job of rows per step, or per job and block."""
    most = [pl.col("max_rss_mib", "gpu_util", "gpu_mem_mib").max(), pl.col("num_steps").sum()]
    if not steps["cluster"].count():
        return steps.group_by("key").agg(pl.col("cluster").first(), *most)
    return steps.group_by("cluster", "key").agg(most).select("key", "cluster", pl.exclude("key", "cluster"))


def _amounts(frame: pl.DataFrame, what: str, *names: str) -> pl.Expr:
    amounts = [grammar.tres_amount(pl.col(name), what) for name in names if name in frame.columns]
    return pl.coalesce(*amounts) if amounts else null(pl.Float64)
