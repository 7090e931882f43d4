"""The findings at the top of a report: each a sentence with its number, made from the result tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from analysis.plots.style import duration_text
from analysis.report.compared import published_finding
from analysis.report.numbers import count_text, number_text, percent_text

__all__ = ["find", "gain_findings", "score_findings"]

Tables = Mapping[str, pl.DataFrame]
#: Of a log that holds less than this share of its cluster, occupancy says nothing about the cluster.
LEAST_COVERAGE: Final = 0.2
#: Above this share of unknown statuses, a sentence about completions says so.
MUCH_UNKNOWN: Final = 0.02
#: How a sentence begins that is about a cluster of the comparison.
PLACES: Final = {
    "own": "On its own cluster",
    "given": "On the cluster given",
    "sized": "On a cluster sized from the log",
    "mixed": "On a mixed cluster of the same size",
}
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _row(table: pl.DataFrame, **where: str) -> dict[str, Any] | None:
    for name, value in where.items():
        table = table.filter(pl.col(name).cast(pl.String) == value)
    return table.row(0, named=True) if table.height else None


def _words(name: str) -> str:
    return name.replace("_", " ")


def _plural(count: int, word: str) -> str:
    return f"{count_text(count)} {word}{'' if count == 1 else 's'}"


def size(tables: Tables) -> str | None:
    """How many jobs, of which kind, over how long, from whom."""
    row = tables["summary"].row(0, named=True)
    if not row["num_jobs"]:
        return "The log holds no jobs: there is nothing to say about the workload."
    text = f"The log holds {_plural(row['num_jobs'], 'job')}"
    if row["first_submit"] is not None:
        days = (row["last_submit"] - row["first_submit"]).total_seconds() / 86_400
        if days >= 1:
            text += f", submitted over {days:,.0f} days ({number_text(row['jobs_per_day'])} a day)"
    if row["num_users"]:
        text += f", from {_plural(row['num_users'], 'user')}"
    parts = [
        _plural(row[name], word)
        for name, word in (
            ("num_gpu_jobs", "GPU job"),
            ("num_cpu_jobs", "CPU job"),
            ("num_unknown_gpus", "job of unknown size"),
        )
        if row[name]
    ]
    kinds = f": {', '.join(parts)}." if len(parts) > 1 else f", all of them {parts[0].split(' ', 1)[1]}."
    used = f" They used {number_text(row['gpu_hours'])} GPU-hours." if row["gpu_hours"] else ""
    return f"{text}{kinds}{used}"


def durations(tables: Tables) -> str | None:
    """Median against mean and tail."""
    for bucket, words in (("all", "GPU jobs"), ("0", "CPU jobs")):
        row = _row(tables["duration_quantiles"], bucket=bucket, weight="jobs")
        if row:
            text = (
                f"Half of the {words} run at most {duration_text(row['p50_s'])}; the mean is "
                f"{duration_text(row['mean_s'])}, and one in a hundred runs longer than {duration_text(row['p99_s'])}."
            )
            if row["num_right_censored"]:
                text += f" {_plural(row['num_right_censored'], 'job')} still ran when the log ends (a lower bound)."
            return text
    return None


def gpu_time(tables: Tables) -> str | None:
    """Which jobs use the GPU time."""
    row = _row(tables["duration_quantiles"], bucket="all", weight="gpu_time")
    jobs = tables["duration_cdf"].filter(
        (pl.col("bucket").cast(pl.String) == "all") & (pl.col("weight").cast(pl.String) == "jobs")
    )
    if not row or not jobs.height:
        return None
    at = int(np.searchsorted(jobs["duration_s"].to_numpy(), row["p50_s"]))
    longer = 1 - float(jobs["share"][min(at, jobs.height - 1)])
    return (
        f"Half of the GPU time belongs to jobs of {duration_text(row['p50_s'])} or more, which are about "
        f"{percent_text(max(longer, 0.0))} of the GPU jobs."
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
    done = _row(table, kind=kind, status="completed")
    words = {"gpu": "GPU jobs", "cpu": "CPU jobs", "unknown": "jobs"}[kind]
    share = done["job_share"] if done else 0.0
    text = f"{percent_text(share)} of the {words} completed"
    unknown = _row(table, kind=kind, status="unknown")
    if unknown and unknown["job_share"] > MUCH_UNKNOWN:
        text += f" ({percent_text(unknown['job_share'])} ended in a way that the log does not say)"
    used = (done["gpu_time_share"] if done else 0.0) if table["gpu_time_share"].count() else None
    return f"{text}." if used is None else f"{text}; the others used {percent_text(1 - used)} of the GPU time."


def arrivals(tables: Tables) -> str | None:
    """Busiest hour of the week."""
    table = tables["arrivals_by_hour"]
    if table.height < 168:
        return None
    top = table.sort(["jobs_per_hour", "weekday", "hour"], descending=[True, False, False]).row(0, named=True)
    mean = float(table["num_jobs"].sum()) / float(table["num_hours"].sum())
    return (
        f"The busiest hour of the week is {WEEKDAYS[top['weekday'] - 1]} {top['hour']:02d}:00 (local time) with "
        f"{number_text(top['jobs_per_hour'])} jobs, {top['jobs_per_hour'] / mean:.1f} times the average hour."
    )


def waits(tables: Tables) -> str | None:
    """How long GPU jobs wait."""
    row = _row(tables["queueing_delay"], bucket="all")
    if not row:
        return None
    return (
        f"{percent_text(row['waited_share'])} of the GPU jobs waited longer than 1 s; the mean wait is "
        f"{duration_text(row['mean_s'])}, and one in twenty waited longer than {duration_text(row['p95_s'])}."
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
        if table.height > 3 and table["gpu_time_share"].count():
            share = float(table["gpu_time_share"].head(3).sum())
            texts.append(f"the three largest {words} used {percent_text(share)} of the GPU time")
    text = "; ".join(texts)
    return f"{text[0].upper()}{text[1:]}." if text else None


FINDERS: Final[tuple[Callable[[Tables], str | None], ...]] = (
    *(size, durations, gpu_time, demand, outcomes),
    *(waits, use, tenants, published_finding, arrivals),
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


def score_findings(scores: pl.DataFrame | None) -> list[str]:
    """How well durations can be predicted, from the scores of a backtest."""
    if scores is None or "log_mae" not in scores.columns:
        return []
    known = scores.filter(pl.col("log_mae").is_not_null()).sort("log_mae", "model")
    if not known.height:
        return []
    best = known.row(0, named=True)
    text = (
        f"The best predictor tried, {_words(best['model'])}, is off by a factor of {np.exp(best['log_mae']):.1f} in "
        "the geometric mean on jobs that it had not seen"
    )
    if best.get("within_2x") is not None:
        text += f", and within a factor of 2 for {percent_text(best['within_2x'])} of them"
    blind = _row(known, model="global_median")
    if blind and blind["model"] != best["model"]:
        text += f"; one guess for all jobs, the global median, is off by a factor of {np.exp(blind['log_mae']):.1f}"
    return [f"{text}."]


def gain_findings(gains: pl.DataFrame | None) -> list[str]:
    """What predictions gain: a sentence per cluster on the largest like-for-like pair with skipping, else any."""
    if gains is None or not gains.height:
        return []
    found = []
    for (cluster,), part in gains.partition_by("cluster", as_dict=True, maintain_order=True).items():
        fair = part.filter(pl.col("like_for_like") & pl.col("mean_jct_s").is_not_null())
        pair = next((name for name in ("fifo_skip -> sjf_skip", "fifo -> sjf") if (fair["pair"] == name).any()), None)
        chosen = fair.filter(pl.col("pair") == pair) if pair else fair.head(0)
        text = _gain_sentence(chosen)
        if text:
            found.append(f"{PLACES.get(str(cluster), f'On {cluster}')}, {text}")
    return found


def _gain_sentence(pair: pl.DataFrame) -> str | None:
    best = pair.filter(pl.col("role") == "predicted").sort("mean_jct_s", "predictor").head(1).to_dicts()
    oracle = _row(pair, role="oracle")
    if not oracle:
        return None
    load = f" (load {oracle['offered_load']:.2f})" if oracle["offered_load"] is not None else ""
    if oracle["captured_share"] is None:
        return f"{oracle['policy']} gains nothing over {oracle['base']}{load}: {oracle['reason']}."
    head = (
        f"{oracle['policy']} with true durations brings the mean completion time from "
        f"{duration_text(oracle['base_mean_jct_s'])} under {oracle['base']} to "
        f"{duration_text(oracle['mean_jct_s'])}{load}"
    )
    if not best:
        return f"{head}."
    row = best[0]
    text = (
        f"{head}; with the predictions of {_words(row['predictor'])}, the best of those tried on these "
        f"jobs, to {duration_text(row['mean_jct_s'])}, "
        f"which is {percent_text(row['captured_share'])} of that gain"
    )
    blind = _row(pair, role="knows_nothing")
    if blind and blind["captured_share"] is not None:
        text += f" (knowing nothing: {percent_text(blind['captured_share'])})"
    if row["gain_low_s"] is not None:
        sure = row["gain_low_s"] > 0
        text += (
            f"; 95 % interval of the gain {duration_text(row['gain_low_s'])} to {duration_text(row['gain_high_s'])}"
            f"{'' if sure else ', so no difference is shown'}"
        )
    return f"{text}."
