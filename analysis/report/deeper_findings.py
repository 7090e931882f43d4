"""Findings that need more than counts: busy GPUs, what the past tells, tails, drift, bursts, fragments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import polars as pl

from analysis.plots.style import duration_text
from analysis.report.numbers import number_text, percent_text
from analysis.report.sentences import Tables, plural, row_of, table_of

__all__ = ["DEEPER"]

#: Above this the stability index says that it is another workload, by convention.
OTHER_WORKLOAD: Final = 0.25
#: A tail further from a power law than this (KS distance) and than chance explains (5 % level) is not called one.
POWER_LAW: Final = 0.05
KS_CHANCE: Final = 1.36
#: A variance of the hourly counts below this part of a Poisson process's is that of a timetable.
EVEN: Final = 0.5
GROUPS: Final = {
    "vc": "its virtual cluster",
    "vc_size": "its virtual cluster and size",
    "user": "its user",
    "user_request": "its user, size and time limit",
    "user_name": "its user and name",
    "group": "its recurrence group",
}


def idle(tables: Tables) -> str | None:
    """How busy the GPUs are that jobs hold."""
    row = row_of(table_of(tables, "idle_gpu_hours"), bucket="all")
    if not row or row["gpu_utilization"] is None:
        return None
    return (
        f"The GPUs that jobs held were busy {percent_text(row['gpu_utilization'])} of the time, so that "
        f"{number_text(row['idle_gpu_hours'])} GPU-hours were held idle (measured for {percent_text(row['coverage'])} "
        f"of the GPU jobs); {percent_text(row['low_use_job_share'])} of the jobs hardly used theirs."
    )


def foresight(tables: Tables) -> str | None:
    """What can be known of a duration beforehand."""
    table = table_of(tables, "duration_predictability")
    if not table.height:
        return None
    kind = str(table["kind"][0])
    rows = table.filter((pl.col("kind").cast(pl.String) == kind) & (pl.col("grouping").cast(pl.String) != "none"))
    known = rows.filter(pl.col("between_share").is_not_null() & (pl.col("job_share") >= 0.5))
    if not known.height:
        return None
    best = known.sort("between_share", descending=True).row(0, named=True)
    grouping = GROUPS.get(str(best["grouping"]), str(best["grouping"]))
    if not tables["summary"]["num_users"][0]:
        # The account stands for the user where the log names none.
        grouping = grouping.replace("user", "account")
    # Adjusted for the number of groups, nothing explained may come out below 0.
    text = f"Knowing of a job only {grouping} explains {percent_text(max(best['between_share'], 0.0))}"
    text += " of the variance of log durations"
    past = table_of(tables, "nearest_history")
    past = past.filter((pl.col("kind").cast(pl.String) == kind) & pl.col("within_2x_share").is_not_null())
    if past.height:
        row = past.sort("within_2x_share", descending=True).row(0, named=True)
        text += (
            f"; the simplest prediction, from jobs of the same owner that had ended, is within a factor of 2 for "
            f"{percent_text(row['within_2x_share'])} of the jobs"
        )
    return f"{text}."


def tail(tables: Tables) -> str | None:
    """Whether few long jobs decide."""
    row = row_of(table_of(tables, "duration_tail_index"), bucket="all")
    if not row or row["tail_index"] is None:
        return None
    index = row["tail_index"]
    if row["ks"] > max(POWER_LAW, KS_CHANCE / math.sqrt(row["num_tail_jobs"])):
        return None
    text = f"Above {duration_text(row['threshold_s'])} durations fall off like a power law (exponent {index:.2f})"
    if index <= 1:
        return f"{text}: the longer the log, the larger their mean; a few jobs decide everything."
    return f"{text}: a few jobs decide means, which settle slowly." if index < 2 else f"{text}."


def drift(tables: Tables) -> str | None:
    """Whether last week tells about this week."""
    table = table_of(tables, "weekly_drift")
    if not table.height:
        return None
    text = pl.String
    weeks = table.filter(
        (pl.col("against").cast(text) == "week_before")
        & (pl.col("weight").cast(text) == "jobs")
        & (pl.col("quantity").cast(text) == "duration")
        & pl.col("psi").is_not_null()
    )
    if weeks.height < 2:
        return None
    other = weeks.filter(pl.col("psi") > OTHER_WORKLOAD).height
    return (
        f"In {other} of {plural(weeks.height, 'week')} durations were so unlike those of the week before that it "
        f"counts as another workload (stability index above {OTHER_WORKLOAD})."
    )


def bursts(tables: Tables) -> str | None:
    """How far arrivals are from independent ones."""
    table = table_of(tables, "burstiness")
    row = table.row(0, named=True) if table.height else None
    if not row or row["idc_1h"] is None:
        return None
    times = f"varies {number_text(row['idc_1h'])} times as much as if they came independently."
    if row["idc_1h"] > 2:
        return f"Arrivals come in bursts: the number of jobs an hour {times}"
    if row["idc_1h"] < EVEN:
        return f"Jobs arrive more evenly than by chance: their number an hour {times}"
    return f"Arrivals are nearly independent: the number of jobs an hour {times}"


def fragments(tables: Tables) -> str | None:
    """How much of what is free cannot be used."""
    table = table_of(tables, "fragmentation")
    known = table["unusable_by_8_gpus_share"].drop_nulls() if table.height else pl.Series(dtype=pl.Float64)
    if not len(known):
        return None
    return (
        f"On average {percent_text(float(np.mean(known.to_numpy())))} of the free GPUs could not be used by a job of 8 "
        "GPUs on one node."
    )


#: Finders by name.
DEEPER: Final[Mapping[str, Callable[[Tables], str | None]]] = {
    finder.__name__: finder for finder in (idle, foresight, tail, drift, bursts, fragments)
}
