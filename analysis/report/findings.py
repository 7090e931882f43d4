"""The findings at the top of a report: each a sentence with its number, made from the result tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import polars as pl

from analysis.plots.style import duration_text
from analysis.report.compared import published_finding
from analysis.report.deeper_findings import DEEPER
from analysis.report.numbers import number_text, percent_text
from analysis.report.sentences import Tables, capital, plural, row_of

__all__ = ["find"]

#: Of a log that holds less than this share of its cluster, occupancy says nothing about the cluster.
LEAST_COVERAGE: Final = 0.2
#: Above this share of jobs whose end is not known, a sentence about completions says so.
MUCH_UNKNOWN: Final = 0.02
NOT_ENDED: Final = ("unknown", "running", "pending", "suspended")
#: Of fewer jobs than this, nobody is "one in a hundred".
MANY: Final = 100
#: With fewer jobs than this in an hour of the week, which is the busiest is chance.
JOBS_AN_HOUR: Final = 5
HOURS_A_WEEK: Final = 168
#: Of so few, the three largest say nothing.
MOST_NAMED: Final = 5
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def size(tables: Tables) -> str | None:
    """How many jobs, of which kind, over how long, from whom."""
    row = tables["summary"].row(0, named=True)
    if not row["num_jobs"]:
        return "The log holds no jobs: there is nothing to say about the workload."
    text = f"The log holds {plural(row['num_jobs'], 'job')}"
    if row["first_submit"] is not None:
        days = (row["last_submit"] - row["first_submit"]).total_seconds() / 86_400
        if days >= 1:
            text += f", submitted over {days:,.0f} days ({number_text(row['jobs_per_day'])} a day)"
    if row["num_users"]:
        text += f", from {plural(row['num_users'], 'user')}"
    parts = [
        plural(row[name], *word)
        for name, word in (
            ("num_gpu_jobs", ("GPU job",)),
            ("num_cpu_jobs", ("CPU job",)),
            ("num_unknown_gpus", ("job of unknown size", "jobs of unknown size")),
        )
        if row[name]
    ]
    has_kinds = len(parts) > 1 or row["num_jobs"] == 1
    kinds = f": {', '.join(parts)}." if has_kinds else f", all of them {parts[0].split(' ', 1)[1]}."
    used = f" They used {number_text(row['gpu_hours'])} GPU-hours." if row["gpu_hours"] else ""
    return f"{text}{kinds}{used}"


def durations(tables: Tables) -> str | None:
    """Median against mean and tail."""
    for bucket, words in (("all", "GPU jobs"), ("0", "CPU jobs")):
        row = row_of(tables["duration_quantiles"], bucket=bucket, weight="jobs")
        if row:
            text = _spread_of_durations(row, words)
            if row["num_right_censored"]:
                text += f" {plural(row['num_right_censored'], 'job')} still ran when the log ends (a lower bound)."
            return text
    return None


def _spread_of_durations(row: dict[str, Any], words: str) -> str:
    if row["min_s"] == row["max_s"]:
        return f"{_of_all(row['num_jobs'], words)} {duration_text(row['max_s'])}."
    text = f"Half of the {words} run at most {duration_text(row['p50_s'])}; the mean is {duration_text(row['mean_s'])}"
    if row["num_jobs"] < MANY:
        return f"{text}, and the longest runs {duration_text(row['max_s'])}."
    return f"{text}, and one in a hundred runs longer than {duration_text(row['p99_s'])}."


def _of_all(count: int, words: str) -> str:
    return f"The only {words.removesuffix('s')} runs" if count == 1 else f"All {words} run"


def gpu_time(tables: Tables) -> str | None:
    """Which jobs use the GPU time."""
    table = tables["duration_cdf"].with_columns(pl.col("bucket", "weight").cast(pl.String))
    table = table.filter(pl.col("bucket") == "all")
    both = table.filter(weight="jobs").join(table.filter(weight="gpu_time"), on="duration_s", suffix="_time")
    # Where the curve of the GPU time comes closest to its half: both shares are exact there.
    inside = both.filter((pl.col("share_time") > 0) & (pl.col("share_time") < 1))
    if not inside.height:
        return None
    row = inside.sort((pl.col("share_time") - 0.5).abs(), "duration_s").row(0, named=True)
    return (
        f"The {percent_text(1 - row['share'])} of the GPU jobs that run longer than {duration_text(row['duration_s'])} "
        f"use {percent_text(1 - row['share_time'])} of the GPU time."
    )


def demand(tables: Tables) -> str | None:
    """Small jobs against large ones."""
    table = tables["gpu_demand"].with_columns(pl.col("bucket").cast(pl.String))
    if not table.height:
        return None
    small = table.filter(pl.col("bucket").is_in(["<1", "1"])).sum()
    large = table.filter(pl.col("bucket").is_in(["5-8", ">8"])).sum()
    if table["gpu_time_share"].null_count():
        return f"{percent_text(small['job_share'][0])} of the GPU jobs ask for one GPU or less."
    return (
        f"{percent_text(small['job_share'][0])} of the GPU jobs ask for one GPU or less and use "
        f"{percent_text(small['gpu_time_share'][0])} of the GPU time; jobs of more than 4 GPUs are "
        f"{percent_text(large['job_share'][0])} of the jobs and use {percent_text(large['gpu_time_share'][0])}."
    )


def outcomes(tables: Tables) -> str | None:
    """Completed against not."""
    table = tables["status"]
    if not table.height:
        return None
    kind = str(table["kind"][0])
    rows = table.filter(pl.col("kind").cast(pl.String) == kind)
    is_ended = ~pl.col("status").cast(pl.String).is_in(NOT_ENDED)
    ended = rows.filter(is_ended)
    known = float(ended["job_share"].sum())
    if not ended.height or not known:
        return None
    done = row_of(ended, status="completed") or {"job_share": 0.0, "gpu_time_share": 0.0, "gpu_hours": 0.0}
    words = {"gpu": "GPU jobs", "cpu": "CPU jobs", "unknown": "jobs"}[kind]
    if rows["status"].cast(pl.String).to_list() == ["completed"]:
        return f"All {words} completed."
    text = f"{percent_text(done['job_share'] / known)} of the {words} completed"
    if 1 - known > MUCH_UNKNOWN:
        text = (
            f"Of {percent_text(known)} of the {words} the log says how they ended: "
            f"{percent_text(done['job_share'] / known)} of these completed"
        )
    hours = float(ended["gpu_hours"].sum())
    if not hours:
        return f"{text}."
    wasted = hours - float(done["gpu_hours"] or 0.0)
    if not wasted:
        return f"{text}."
    return f"{text}; the others used {percent_text(wasted / hours)} of their GPU time, {number_text(wasted)} GPU-hours."


def arrivals(tables: Tables) -> str | None:
    """Busiest hour of the week."""
    table = tables["arrivals_by_hour"]
    if table.height < HOURS_A_WEEK or table["num_jobs"].sum() < JOBS_AN_HOUR * HOURS_A_WEEK:
        return None
    top = table.sort(["jobs_per_hour", "weekday", "hour"], descending=[True, False, False]).row(0, named=True)
    mean = float(table["num_jobs"].sum()) / float(table["num_hours"].sum())
    return (
        f"The busiest hour of the week is {WEEKDAYS[top['weekday'] - 1]} {top['hour']:02d}:00 (local time) with "
        f"{number_text(top['jobs_per_hour'])} jobs, {top['jobs_per_hour'] / mean:.1f} times the average hour."
    )


def waits(tables: Tables) -> str | None:
    """How long GPU jobs wait."""
    row = row_of(tables["queueing_delay"], bucket="all")
    if not row or not row["num_jobs"]:
        return None
    if not row["waited_share"]:
        return f"No GPU job waited longer than 1 s ({plural(row['num_jobs'], 'job')} started)."
    last = (
        f"the longest was {duration_text(row['max_s'])}"
        if row["num_jobs"] < MANY
        else f"one in twenty waited longer than {duration_text(row['p95_s'])}"
    )
    return (
        f"{percent_text(row['waited_share'])} of the GPU jobs waited longer than 1 s; the mean wait is "
        f"{duration_text(row['mean_s'])}, and {last}."
    )


def use(tables: Tables) -> str | None:
    """Mean and peak of the GPUs in use."""
    table = tables["running_gpus_summary"]
    if not table.height:
        return None
    row = table.row(0, named=True)
    text = f"On average {number_text(row['mean_gpus'])} GPUs were in use, at the peak {number_text(row['peak_gpus'])}"
    if row["total_gpus"] is None:
        return f"{text}; the log does not say how many there are."
    text += (
        f", of {number_text(row['total_gpus'])} ({percent_text(row['gpu_allocation'])} and "
        f"{percent_text(row['peak_allocation'])})."
    )
    if row["peak_allocation"] < LEAST_COVERAGE:
        text += " So little says that the log holds a part of the cluster's jobs, not that the cluster is idle."
    if row["peak_allocation"] > 1:
        text += " More than there are: the log or its list of nodes is not complete."
    return text


def tenants(tables: Tables) -> str | None:
    """How concentrated the use is."""
    texts = []
    for name, column, words in (("top_users", "user", "users"), ("top_vcs", "vc", "virtual clusters")):
        table = tables[name].filter(pl.col(column).is_not_null())
        if table.height > MOST_NAMED and table["gpu_time_share"].count():
            share = float(table["gpu_time_share"].head(3).sum())
            texts.append(f"the three largest {words} used {percent_text(share)} of the GPU time")
    text = "; ".join(texts)
    return f"{capital(text)}." if text else None


#: In the order in which they matter; a page has room for ten.
FINDERS: Final[tuple[Callable[[Tables], str | None], ...]] = (
    *(size, durations, demand, outcomes, waits, use),
    *(DEEPER["idle"], tenants, published_finding, DEEPER["foresight"], gpu_time),
    *(DEEPER["tail"], DEEPER["drift"], DEEPER["bursts"], DEEPER["fragments"], arrivals),
)


def find(tables: Tables, *, most: int = 10) -> list[str]:
    """Findings about the workload, those that the tables allow.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        All result tables, as `analysis.characterize.characterize` gives them.
    most : int, default 10
        How many; those that matter more come first.
    """
    if not tables["summary"]["num_jobs"][0]:
        return [str(size(tables))]
    return [text for finder in FINDERS if (text := finder(tables))][:most]
