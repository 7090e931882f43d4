"""What is published about other GPU clusters, and a table that sets logs beside it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import polars as pl

from analysis.loaders.synthetic_published import PublishedLog, published_logs

__all__ = ["OUTCOMES", "compare_with_published", "describe", "published_gains", "published_rows"]

#: Columns of a row, all of GPU jobs unless they say otherwise.
COLUMNS: Final[Mapping[str, pl.DataType]] = {
    "trace": pl.String(),
    "is_published": pl.Boolean(),
    "num_gpus": pl.Float64(),
    "num_jobs": pl.Int64(),
    "num_gpu_jobs": pl.Int64(),
    **dict.fromkeys(
        (
            *("median_duration_s", "mean_duration_s", "max_duration_s"),
            *("median_queueing_delay_s", "mean_queueing_delay_s"),
            *("single_gpu_share", "median_gpus", "mean_gpus", "max_gpus"),
            *("completed_share", "cancelled_share", "failed_share"),
            *("completed_gpu_time_share", "cancelled_gpu_time_share", "failed_gpu_time_share"),
            "gpu_utilization_mean",
        ),
        pl.Float64(),
    ),
    "certainty": pl.String(),
    "citation": pl.String(),
}
#: Statuses that authors count together.
OUTCOMES: Final[Mapping[str, tuple[str, ...]]] = {
    "completed": ("completed",),
    "cancelled": ("cancelled",),
    "failed": ("failed", "timeout", "node_fail"),
}


#: Where the log says how fewer of its GPU jobs ended, shares of outcomes say nothing.
LEAST_KNOWN: Final = 0.8


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(files("analysis.report").joinpath("published.toml").read_text(encoding="utf-8"))


def _complete_row(log: PublishedLog) -> dict[str, Any]:
    same = ("num_gpus", "num_jobs", "num_gpu_jobs", "median_duration_s", "mean_duration_s", "max_duration_s")
    more = ("median_queueing_delay_s", "mean_queueing_delay_s", "mean_gpus", "max_gpus", "citation")
    row = {name: getattr(log, name) for name in (*same, *more)}
    for place, outcome in enumerate(OUTCOMES):
        row[f"{outcome}_share"] = log.status_shares[place]
        row[f"{outcome}_gpu_time_share"] = log.gpu_time_shares[place]
    # The median GPU job of every one of these logs asks for one GPU, as their summaries say.
    return {"trace": log.name.capitalize(), "certainty": "authors", "median_gpus": 1.0, **row}


def published_rows() -> pl.DataFrame:
    """What is published about other clusters, a row per log.

    Returns
    -------
    DataFrame
        trace (name), is_published, figures of GPU jobs (durations and waits [s], GPUs per job, shares 0-1; failed holds
        timeouts and failed nodes too), certainty (authors, computed, secondary), citation. Null = not published, or
        not seen by us.

    Examples
    --------
    >>> rows = published_rows()
    >>> rows.filter(pl.col("trace") == "Helios")["median_duration_s"].item()
    206.0
    """
    data = _data()
    rows = [_complete_row(log) for log in published_logs().values()]
    rows += [
        {"trace": row["name"], **{key: value for key, value in row.items() if key != "name"}} for row in data["log"]
    ]
    rows = [{**row, **data["more"].get(row["trace"], {}), "is_published": True} for row in rows]
    filled = [{name: row.get(name) for name in COLUMNS} for row in rows]
    return pl.DataFrame(filled, schema=dict(COLUMNS), strict=False)


def published_gains() -> pl.DataFrame:
    """What prediction-aware scheduling gained according to its authors.

    Returns
    -------
    DataFrame
        system, log, base (what it is compared with), times_shorter (mean completion time of the base over its own),
        citation.
    """
    return pl.DataFrame(_data()["gain"])


def describe(tables: Mapping[str, pl.DataFrame], *, name: str) -> dict[str, Any]:
    """Give a log's own row, with the columns of `published_rows`.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        Result tables of the log, as `analysis.characterize.characterize` gives them.
    name : str
        What the row is called.
    """
    summary = tables["summary"].row(0, named=True)
    row = {column: summary.get(column) for column in COLUMNS}
    use = tables.get("running_gpus_summary")
    row["num_gpus"] = use["total_gpus"][0] if use is not None and use.height else None
    demand = tables["gpu_demand"]
    if demand.height:
        small = pl.col("bucket").cast(pl.String).is_in(["<1", "1"])
        row["single_gpu_share"] = float(demand.filter(small)["job_share"].sum())
    status = tables["status"].filter(pl.col("kind").cast(pl.String) == "gpu")
    known = status.filter(pl.col("status").cast(pl.String) != "unknown")
    for outcome, names in OUTCOMES.items() if known["job_share"].sum() >= LEAST_KNOWN else ():
        part = status.filter(pl.col("status").cast(pl.String).is_in(names))
        row[f"{outcome}_share"] = float(part["job_share"].sum())
        has_time = status["gpu_time_share"].count() > 0
        row[f"{outcome}_gpu_time_share"] = float(part["gpu_time_share"].sum()) if has_time else None
    return {**row, "trace": name, "is_published": False, "certainty": "this log", "citation": ""}


def compare_with_published(tables: Mapping[str, Mapping[str, pl.DataFrame]]) -> pl.DataFrame:
    """Set logs beside what is published about others.

    Parameters
    ----------
    tables : mapping of str to mapping of str to DataFrame
        Result tables by log and by name.

    Returns
    -------
    DataFrame
        Columns of `published_rows`: the logs given first, then the published ones.
    """
    own = [describe(of_log, name=log) for log, of_log in tables.items()]
    return pl.concat([pl.DataFrame(own, schema=dict(COLUMNS), strict=False), published_rows()])
