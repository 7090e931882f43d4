"""What a model is told about a job: only what is known when it is submitted, by an allow-list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import polars as pl

from analysis import schema
from analysis.errors import UsageError
from predictors.history import (
    FLIGHT_KEYS,
    FLIGHT_STATS,
    HISTORY_KEYS,
    HISTORY_STATS,
    Failures,
    Instants,
    asking_times,
    past_features,
)
from predictors.jobs_table import as_jobs

__all__ = [
    "CATEGORY_COLUMNS",
    "DEFAULT_FEATURES",
    "FLIGHT_FEATURES",
    "NUMBER_FEATURES",
    "SUBMISSION_COLUMNS",
    "category_codes",
    "check_features",
    "feature_table",
    "features_with_values",
    "fit_categories",
    "needs_all_jobs",
]

#: Columns of the jobs table that exist when the job is submitted. Everything else is refused.
SUBMISSION_COLUMNS: Final = (
    "cluster",
    "user",
    "account",
    "vc",
    "job_name",
    "group",
    "workload",
    "submit_time",
    "num_gpus",
    "num_tasks",
    "num_nodes",
    "num_cpus",
    "mem_gib",
    "is_single_node",
    "time_limit_s",
)
#: Names that a model may know only as one of a bounded number of categories.
CATEGORY_COLUMNS: Final = ("cluster", "user", "account", "vc", "workload")
#: Numbers that a model may be told. Hour and weekday are those of the submission in the trace's time zone; how long a
#: job has waited and run (null before it runs) are those at the instant of asking: 0 and null at the submission.
NUMBER_FEATURES: Final = (
    "num_gpus",
    "num_tasks",
    "num_nodes",
    "num_cpus",
    "mem_gib",
    "is_single_node",
    "time_limit_s",
    "hour",
    "weekday",
    "waited_s",
    "elapsed_s",
)
#: Told to a model only on request: sources mostly write the nodes that a job got, not those it asked for, and the last
#: two say nothing at the submission.
_ON_REQUEST: Final = ("num_nodes", "waited_s", "elapsed_s")
_OFTEN: Final = ("mean_2", "mean_5", "mean_20", "median_20", "min_20", "max_20", "count", "since_last_s")
_HISTORY: Final = tuple(f"{key}__{stat}" for key in HISTORY_KEYS for stat in HISTORY_STATS)
_FLIGHT: Final = (*(f"{key}__{stat}" for key in FLIGHT_KEYS for stat in FLIGHT_STATS), "batch__position")
#: Given to a model unless it is told otherwise; those that never vary in the training log are dropped.
DEFAULT_FEATURES: Final = (
    *(name for name in NUMBER_FEATURES if name not in _ON_REQUEST),
    "cluster",
    "vc",
    *(
        f"{key}__{stat}"
        for key in ("user", "vc", "vc_size", "user_size", "user_limit", "user_size_limit", "user_family", "group")
        for stat in ("last", *_OFTEN, "failure_rate_20")
    ),
)
#: What was in flight, for models that ask for it: needs all jobs of the log, not only those that ended.
FLIGHT_FEATURES: Final = (
    *(
        f"user__{s}"
        for s in ("unfinished", "unfinished_gpus", "pending", "running", "elapsed_mean_s", "since_submit_s")
    ),
    *(f"all__{s}" for s in ("unfinished", "pending", "pending_gpus", "pending_gpu_s", "running_gpus")),
    "batch__position",
)
KNOWN_FEATURES: Final = frozenset((*NUMBER_FEATURES, *CATEGORY_COLUMNS, *_HISTORY, *_FLIGHT))
US_PER_S: Final = 1e6
#: A category needs this many known jobs; rarer and unseen ones are null, and back off to the rest.
MIN_CATEGORY_JOBS: Final = 20


def needs_all_jobs(names: Sequence[str]) -> bool:
    """Whether features need all jobs of a log (``known_jobs``): those in flight, and clusters of similar names.

    From ``ended_jobs`` they would come out as null or as nobody waiting, without a word.

    Examples
    --------
    >>> needs_all_jobs(["user__last", "hour"]), needs_all_jobs(["all__pending"]), needs_all_jobs(["user_similar__last"])
    (False, True, True)
    """
    return any(name in _FLIGHT or "similar_name" in HISTORY_KEYS.get(name.split("__")[0], ()) for name in names)


def check_features(names: Sequence[str]) -> tuple[str, ...]:
    """Let through names of features that are known at the submission; refuse all others, by name.

    Parameters
    ----------
    names : sequence of str
        Names of ``NUMBER_FEATURES``, ``CATEGORY_COLUMNS`` or ``<key>__<stat>`` of history or flight.

    Returns
    -------
    tuple of str
        The names.

    Raises
    ------
    UsageError
        If one is a column of the job's end, or is not on the list; all at once.

    Examples
    --------
    >>> check_features(["num_gpus", "user__median_20"])
    ('num_gpus', 'user__median_20')
    >>> check_features(["end_time", "group_dur"])
    Traceback (most recent call last):
    ...
    analysis.errors.UsageError: features: 2 of 2 names would leak or mean nothing at the submission: ...
    """
    reasons = [f"{name!r} {_reason(name)}" for name in names if name not in KNOWN_FEATURES]
    if reasons:
        msg = (
            f"features: {len(reasons)} of {len(names)} names would leak or mean nothing at the submission: "
            f"{'; '.join(reasons)}. Allowed are {', '.join((*NUMBER_FEATURES, *CATEGORY_COLUMNS))} and "
            f"<key>__<stat> with a key of {', '.join(HISTORY_KEYS)} and a stat of {', '.join(HISTORY_STATS)}, or in "
            f"flight a key of {', '.join(FLIGHT_KEYS)} and a stat of {', '.join(FLIGHT_STATS)}, and batch__position."
        )
        raise UsageError(msg)
    return tuple(names)


def _reason(name: str) -> str:
    if name in SUBMISSION_COLUMNS:
        return "is text or a time that no model can use as it stands"
    if name in schema.JOBS or name in schema.USAGE:
        return "is known only when the job has started or ended"
    return "is not on the list of what is known at the submission"


def check_time_zone(time_zone: str) -> str:
    """Return the name of a time zone that exists.

    Raises
    ------
    UsageError
        If it is not an IANA name.
    """
    try:
        ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError) as error:
        msg = f"time_zone: found {time_zone!r}; expected an IANA name such as 'UTC' or 'America/Los_Angeles'."
        raise UsageError(msg) from error
    return time_zone


def feature_table(
    jobs: Any,
    *,
    past: pl.DataFrame,
    names: Sequence[str],
    time_zone: str = "UTC",
    failures: Failures = "keep",
    at: Instants = "submission",
) -> pl.DataFrame:
    """Compute features of jobs as they stood at each submission, or at other instants.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table; only ``SUBMISSION_COLUMNS`` are read, the id, and of the start what is known at the instant.
    past : DataFrame
        The log, from ``known_jobs``.
    names : sequence of str
        Features, in the order wanted; categories are not among them (see ``category_codes``).
    time_zone : str, default "UTC"
        In which hour and weekday are meant.
    failures : {"keep", "exclude"}
        Whether jobs that broke count in the history.
    at : {"submission", "start"} or Series of datetime
        When each row asks: what became known at or after that instant does not show (see
        ``predictors.history.asking_times``).

    Returns
    -------
    DataFrame of float64, same length and order as ``jobs``
        A column per name; null where the value is not known.

    Raises
    ------
    UsageError
        If a name is refused (see ``check_features``), the time zone does not exist or ``at`` does not fit.
    """
    check_features(names)
    table = as_jobs(jobs)
    local = pl.col("submit_time").dt.convert_time_zone(check_time_zone(time_zone))
    numbers = {"hour": local.dt.hour(), "weekday": local.dt.weekday() - 1}  # Monday = 0
    plain = [numbers.get(n, pl.col(n)).cast(pl.Float64).alias(n) for n in names if n in NUMBER_FEATURES]
    told = _so_far(table, asking_times(table, at)) if {"waited_s", "elapsed_s"} & set(names) else table
    parts = [told.select(plain)]
    wanted = [name for name in names if "__" in name]
    if wanted:
        parts.append(past_features(table, past=past, names=wanted, failures=failures, at=at))
    whole = pl.concat([part for part in parts if part.width], how="horizontal") if names else pl.DataFrame()
    return whole.select(names)


def _so_far(table: pl.DataFrame, now: pl.Series) -> pl.DataFrame:
    """Add how long jobs have waited and run; a start at that very instant or later does not show."""
    came, start = pl.col("submit_time"), pl.max_horizontal("start_time", "submit_time")
    has_started = (pl.col("start_time") < now) & (came < now) & ~pl.col("flags").list.contains("times_assumed")
    until = pl.when(has_started).then(start).when(now >= came).then(now)
    us = table.select(
        waited_s=(until - came).dt.total_microseconds(),
        elapsed_s=pl.when(has_started).then(now - start).dt.total_microseconds(),
    )
    # numpy divides as Python does; polars multiplies by the inverse, which is another last bit.
    seconds = [pl.Series(c.name, c.cast(pl.Float64).fill_null(np.nan).to_numpy() / US_PER_S) for c in us]
    return table.with_columns(*[column.fill_nan(None) for column in seconds])


def features_with_values(features: pl.DataFrame) -> list[str]:
    """Names of columns that can tell jobs apart: at least two values (null counts as one), and not nearly all null.

    A column that one row in a thousand knows is left out: the learner looks for cuts in a sample of the rows.
    """
    least = features.height / 1000
    return [
        name
        for name in features.columns
        if features[name].n_unique() > 1 and features.height - features[name].null_count() >= least
    ]


def fit_categories(column: pl.Series, *, log_duration: pl.Series, most: int = 255) -> dict[str, float]:
    """Number categories by their median duration, so that one cut of a tree parts slow ones from fast ones.

    Parameters
    ----------
    column : Series of str
        The category of each training job; null = none.
    log_duration : Series of float64, same length
        log(1 + s) of the known duration.
    most : int, default 255
        At most so many categories, the most frequent ones (ties by name); 20 jobs at least each.

    Returns
    -------
    dict of str to float
        0, 1, 2 … by (median, name); categories left out are not in it.

    References
    ----------
    Ordering categories by their mean response finds the best binary split: W. D. Fisher, "On Grouping for Maximum
    Homogeneity", JASA 1958, doi:10.1080/01621459.1958.10501479; the median is our choice for the absolute loss.

    Examples
    --------
    >>> vc = pl.Series(["slow"] * 20 + ["fast"] * 20 + ["rare"])
    >>> fit_categories(vc, log_duration=pl.Series([9.0] * 20 + [2.0] * 20 + [1.0]))
    {'fast': 0.0, 'slow': 1.0}
    """
    ranked = (
        pl.DataFrame({"name": column, "y": log_duration})
        .drop_nulls()
        .group_by("name")
        .agg(jobs=pl.len(), middle=pl.col("y").median())
        .filter(pl.col("jobs") >= MIN_CATEGORY_JOBS)
        .sort(["jobs", "name"], descending=[True, False])
        .head(most)
        .sort("middle", "name")
    )
    return {name: float(place) for place, name in enumerate(ranked["name"].to_list())}


def category_codes(column: pl.Series, codes: Mapping[str, float]) -> pl.Series:
    """Numbers of categories; null where the category is null, rare or was never seen [float64]."""
    if not codes:
        return pl.Series(column.name, np.full(len(column), np.nan), nan_to_null=True)
    return column.replace_strict(dict(codes), default=None, return_dtype=pl.Float64)
