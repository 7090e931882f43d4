"""Workers of the Lingjun jobs: what each asked for and where it ran, summed per job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.cells import Cell, read_cells, text
from analysis.loaders.delimited import Delimited
from analysis.loaders.rows import LINE

__all__ = ["Workers", "read_workers"]

#: GiB of a memory quantity's unit; no unit means bytes.
UNITS: Final = {"Ki": 2.0**-20, "Mi": 2.0**-10, "Gi": 1.0, "Ti": 2.0**10, "K": 1e3 / 2**30, "M": 1e6 / 2**30}
UNITS_MORE: Final = {"G": 1e9 / 2**30, "T": 1e12 / 2**30, "": 2.0**-30}
OF_JOBS: Final = {
    "job_name": pl.String(),
    "num_gpus": pl.Float64(),
    "num_cpus": pl.Float64(),
    "mem_gib": pl.Float64(),
    "num_tasks": pl.Int64(),
    "num_nodes": pl.Int64(),
}


@dataclass(frozen=True)
class Workers:
    """Workers summed per job.

    Attributes
    ----------
    of_jobs : DataFrame, one row per job that has workers
        ``job_name``, ``num_gpus``, ``num_cpus``, ``mem_gib``, ``num_tasks``, ``num_nodes``.
    rejects : DataFrame
        Workers of no listed job, as ``schema.REJECTS``.
    gpus_per_host : int or None
        GPUs of the largest worker; null if none has GPUs.
    notes : list of str
        Sentences for the load report.
    """

    of_jobs: pl.DataFrame
    rejects: pl.DataFrame
    gpus_per_host: int | None = None
    notes: list[str] = field(default_factory=list)

    @classmethod
    def none(cls) -> Workers:
        """No worker file."""
        return cls(pl.DataFrame(schema=OF_JOBS), schema.empty_table("rejects"))


def _amount(key: str) -> pl.Expr:
    return pl.col("RES").str.json_path_match(f"$['{key}']").str.strip_chars()


def _plain(key: str) -> pl.Expr:
    """A number, or thousandths of one ("500m")."""
    amount = _amount(key)
    milli = amount.str.strip_suffix("m").cast(pl.Float64, strict=False) / 1000
    return pl.when(amount.str.ends_with("m")).then(milli).otherwise(amount.cast(pl.Float64, strict=False))


def _memory() -> pl.Expr:
    parts = _amount("memory").str.extract_groups(r"^([0-9.]+)\s*([A-Za-z]*)$")
    size = parts.struct.field("1").cast(pl.Float64, strict=False)
    unit = parts.struct.field("2").replace_strict(UNITS | UNITS_MORE, default=None, return_dtype=pl.Float64)
    return size * unit


def read_workers(raw: Delimited, job_names: pl.Series) -> Workers:
    """Sum the workers of each job.

    Parameters
    ----------
    raw : Delimited
        The worker file.
    job_names : Series of str
        Names of the listed jobs.

    Returns
    -------
    Workers
    """
    is_object = pl.col("RES").str.strip_chars().str.starts_with("{")
    cells = {
        "job_name": text("job_name"),
        "host": text("host_ip"),
        "gpus": Cell("RES", _plain("nvidia.com/gpu"), (~is_object).fill_null(value=False)),
        "cpus": Cell("RES", _plain("cpu")),
        "mem": Cell("RES", _memory()),
    }
    rows = read_cells(raw.frame, cells, left_behind=raw.columns).collect()
    listed = rows["job_name"].is_in(job_names.drop_nulls().unique().to_list()).fill_null(value=False)
    orphan = pl.when(~listed).then(pl.lit("no_such_job"))
    rows = rows.with_columns(reason=pl.coalesce("_problem", orphan))
    rejects = rows.drop_nulls("reason").select(
        file=pl.lit(raw.name), line=LINE, reason="reason", raw=pl.lit(None, dtype=pl.String)
    )
    rows = rows.filter(pl.col("reason").is_null())
    has_gpus = (pl.col("gpus") > 0).fill_null(value=False)
    of_jobs = rows.group_by("job_name").agg(
        # A worker that states no GPUs has none; one that states nothing at all makes the sum unknown.
        num_gpus=pl.when(pl.col("cpus").is_not_null().any() | pl.col("gpus").is_not_null().any()).then(
            pl.col("gpus").sum()
        ),
        num_cpus=pl.when(pl.col("cpus").is_not_null().any()).then(pl.col("cpus").sum()),
        mem_gib=pl.when(pl.col("mem").is_not_null().any()).then(pl.col("mem").sum()),
        num_tasks=pl.when(has_gpus.any()).then(has_gpus.sum()).otherwise(pl.len()).cast(pl.Int64),
        num_nodes=pl.when(pl.col("host").is_not_null().any())
        .then(pl.col("host").drop_nulls().n_unique())
        .cast(pl.Int64),
    )
    largest = rows["gpus"].max()
    per_host = int(largest) if isinstance(largest, float) and largest >= 1 else None
    without = len(set(job_names.drop_nulls()) - set(of_jobs["job_name"]))
    orphans = int((~listed).sum())
    notes = [f"{of_jobs.height} jobs have workers; {without} have none, {orphans} workers belong to no listed job."]
    return Workers(of_jobs.select(*OF_JOBS), rejects, per_host, notes)
