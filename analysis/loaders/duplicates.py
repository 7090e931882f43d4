"""Rows that bear the same job id: one answer whatever the order of the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from analysis import schema
from analysis.loaders.rows import LINE, reject_table

__all__ = ["Settled", "settle_duplicates"]


@dataclass(frozen=True)
class Settled:
    """Jobs with unique ids, and the rows that had to go."""

    jobs: pl.DataFrame
    rejects: pl.DataFrame
    notes: list[str] = field(default_factory=list)


def settle_duplicates(jobs: pl.DataFrame, *, keep: Literal["set_aside", "by_submit"], file: str) -> Settled:
    """Make the ids unique.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of ``schema.JOBS`` but ``flags``, and maybe ``_line``.
    keep : {"set_aside", "by_submit"}
        "by_submit": rows of one id and several submissions are several jobs, named ``cluster/id/submit``. In any
        case, of rows that are then still alike the first by (submit, start, end, all other columns) is kept, the
        others are set aside: ``duplicate_row`` if all is the same, else ``duplicate_id``.
    file : str
        For ``rejects``.

    Returns
    -------
    Settled
    """
    if schema.are_unique(jobs["job_id"]):
        return Settled(jobs, reject_table(file, []))
    notes = []
    if keep == "by_submit":
        jobs, num = _tell_apart(jobs)
        notes = [f"{num} jobs share an id with another submission; theirs are cluster/id/submit."] if num else []
    again = jobs.filter(pl.col("job_id").is_duplicated())
    if not again.height:
        return Settled(jobs, reject_table(file, []), notes)
    content = _content(again)
    order = pl.DataFrame({"id": again["job_id"], **{n: again[n] for n in ("submit_time", "start_time", "end_time")}})
    ranked = again.with_columns(_content=content)[
        order.with_columns(content=content).with_row_index("row").sort(pl.exclude("row"), nulls_last=True)["row"]
    ]
    is_first = ranked["job_id"].is_first_distinct()
    same = ranked.select(pl.col("_content") == pl.col("_content").first().over("job_id")).to_series()
    aside = ranked.with_columns(reason=pl.when(same).then(pl.lit("duplicate_row")).otherwise(pl.lit("duplicate_id")))
    aside = aside.filter(~is_first)
    line = aside[LINE].cast(pl.Int64) if LINE in aside.columns else pl.Series([None] * aside.height, dtype=pl.Int64)
    rejects = pl.DataFrame(
        {
            "file": aside["_file"] if "_file" in aside.columns else [file] * aside.height,
            "line": line,
            "reason": aside["reason"],
            "raw": pl.Series([None] * aside.height, dtype=pl.String),
        },
        schema=schema.REJECTS,
    )
    kept = pl.concat([jobs.filter(~pl.col("job_id").is_duplicated()), ranked.filter(is_first).drop("_content")])
    ids = aside["job_id"].unique().sort().head(3).to_list()
    notes.append(f"{aside.height} rows repeat a job id and were set aside (first ids {', '.join(ids)}).")
    return Settled(kept, rejects, notes)


def _content(rows: pl.DataFrame) -> pl.Series:
    """All of a row as text, without where it came from."""
    columns = [name for name in rows.columns if not name.startswith("_")]
    return rows.select(pl.struct(columns).struct.json_encode().alias("_content")).to_series()


def _tell_apart(jobs: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    several = (pl.col("job_id").count().over("job_id") > 1) & (pl.col("submit_time").n_unique().over("job_id") > 1)
    stamp = pl.col("submit_time").dt.to_string("%Y-%m-%dT%H:%M:%S%.fZ")
    name = pl.concat_str(pl.col("cluster"), pl.col("job_id"), stamp, separator="/", ignore_nulls=True)
    num = int(jobs.select(several.sum()).item())
    return jobs.with_columns(job_id=pl.when(several).then(name).otherwise("job_id")), num
