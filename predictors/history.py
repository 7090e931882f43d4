"""Leak-free history: what jobs that had ENDED before an instant say about a job, and who waited and ran then.

A job counts in the history of another only if its end lies strictly before the instant of asking (by default the
other's submission). Equal ends are ordered by (end, submission, id), so the same log gives the same numbers whatever
the order of its rows. The numbers of a row depend on what came before its instant only, so a batch, a single row and
the stream of events (``predictors.history_state``) give the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import polars as pl

from analysis import schema
from analysis.errors import UnknownNameError, UsageError
from predictors.history_keys import FLIGHT_KEYS, HISTORY_KEYS, PAST, ended_jobs, key_columns, known_jobs
from predictors.jobs_table import as_jobs
from predictors.training_view import known_end

__all__ = [
    "FLIGHT_KEYS",
    "FLIGHT_STATS",
    "HISTORY_KEYS",
    "HISTORY_STATS",
    "PAST",
    "Failures",
    "Instants",
    "asking_times",
    "ended_jobs",
    "flight_features",
    "history_features",
    "key_columns",
    "known_jobs",
]

Failures = Literal["exclude", "keep"]
#: When each row asks: at its submission, at its start, or a Series of datetimes, one per row.
Instants = Literal["submission", "start"] | pl.Series

#: What is said of ended jobs; durations in seconds, over the last 20 at most.
HISTORY_STATS: Final = (
    "last",
    "mean_2",
    "mean_5",
    "mean_20",
    "median_5",
    "median_20",
    "spread_20",  # log(1 + s) of the third quartile less that of the first
    "min_20",
    "max_20",
    "ewma",  # of log(1 + s), the newest with a weight of 0.2, told in seconds
    "count",  # of all ended jobs
    "since_last_s",  # from the last end to the instant of asking
    "failure_rate_20",  # share that failed or lost its node, of those whose outcome is known
    "kill_rate_20",  # share that was cancelled or cut off at its limit
)
#: What is said of jobs in flight, the job itself left out; GPU jobs count in GPUs, CPU jobs in CPUs.
FLIGHT_STATS: Final = (
    "unfinished",  # jobs that wait or run
    "unfinished_gpus",
    "unfinished_cpus",
    "pending",  # jobs that wait; these and the following are null until the log has told a first start
    "pending_gpus",
    "pending_cpus",
    "pending_gpu_s",  # work of jobs that wait, as predicted when each came
    "pending_cpu_s",
    "running",
    "running_gpus",
    "running_cpus",
    "elapsed_mean_s",  # of the jobs that run
    "since_submit_s",  # from the last submission of another job to the instant of asking
)


def asking_times(jobs: pl.DataFrame, at: Instants = "submission") -> pl.Series:
    """Instants at which rows ask [datetime, UTC].

    Parameters
    ----------
    jobs : DataFrame, one row per job
        From ``as_jobs``.
    at : {"submission", "start"} or Series of datetime
        A start before the submission counts as the submission, one after the end as the end. A Series without a zone
        is read as UTC.

    Returns
    -------
    Series of datetime, same length
        Null where the time is not known.

    Raises
    ------
    UsageError
        If it is another word, another length or no datetimes.
    """
    if isinstance(at, pl.Series):
        return _given_times(at, jobs.height)
    if at == "submission":
        return jobs["submit_time"]
    if at != "start":
        msg = f"at: found {at!r}; expected 'submission', 'start' or a Series of datetimes, one per row."
        raise UsageError(msg)
    end = known_end(jobs)["end_time"]
    start = pl.max_horizontal("start_time", "submit_time")
    cut = jobs.with_columns(_end=end).select(
        pl.when(pl.col("start_time").is_not_null()).then(pl.min_horizontal(start, "_end"))
    )
    return cut.to_series()


def _given_times(at: pl.Series, height: int) -> pl.Series:
    if len(at) != height or not isinstance(at.dtype, pl.Datetime):
        msg = f"at: found {len(at)} values of dtype {at.dtype}; expected {height} datetimes, one per row."
        raise UsageError(msg)
    zoned = at.dt.replace_time_zone("UTC") if at.dtype.time_zone is None else at
    return zoned.dt.convert_time_zone("UTC").cast(schema.TIME)


def history_features(
    jobs: Any,
    *,
    past: pl.DataFrame,
    keys: Sequence[str] = tuple(HISTORY_KEYS),
    stats: Sequence[str] = HISTORY_STATS,
    failures: Failures = "keep",
    at: Instants = "submission",
) -> pl.DataFrame:
    """Describe, for each job, the jobs of the same key that ended strictly before the instant of asking.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table; only what is known at the submission is read (and ``start_time`` for ``at="start"``).
    past : DataFrame
        From ``known_jobs`` (or ``ended_jobs``, without clusters of similar names). It may hold the jobs themselves and
        later ones: what lies after an instant does not count.
    keys, stats : sequence of str
        Names of ``HISTORY_KEYS`` and ``HISTORY_STATS``.
    failures : {"keep", "exclude"}
        Whether jobs that broke count in everything but the rates, which always count them.
    at : {"submission", "start"} or Series of datetime
        The instants; see ``asking_times``.

    Returns
    -------
    DataFrame of float64, same length and order as ``jobs``
        A column ``<key>__<stat>`` each. Null where nothing of the key had ended (``count`` is 0), or a column of the
        key is null (``count`` is null too). Seconds, except ``count``, the rates (0-1) and ``spread_20``.

    Raises
    ------
    UnknownNameError
        If a key or a stat does not exist.
    UsageError
        If ``at`` does not fit.

    Examples
    --------
    >>> from datetime import datetime
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, day) for day in (1, 2, 3)], "user": ["a", "a", "a"],
    ...                     "duration_s": [60.0, 20.0, 5.0]})
    >>> history_features(log, past=known_jobs(log), keys=["user"], stats=["last", "mean_2", "count"]).rows()
    [(None, None, 0.0), (60.0, 60.0, 1.0), (20.0, 40.0, 2.0)]
    """
    check_known("history key", keys, HISTORY_KEYS)
    check_known("history stat", stats, HISTORY_STATS)
    wanted = [f"{key}__{stat}" for key in keys for stat in stats]
    return past_features(as_jobs(jobs), past=past, names=wanted, failures=failures, at=at)


def flight_features(
    jobs: Any,
    *,
    past: pl.DataFrame,
    keys: Sequence[str] = tuple(FLIGHT_KEYS),
    stats: Sequence[str] = FLIGHT_STATS,
    failures: Failures = "keep",
    at: Instants = "submission",
) -> pl.DataFrame:
    """Say, for each job, which other jobs of the same key waited and ran at the instant of asking.

    Of submissions at the very instant those count that come before the job in the order (submission, id); starts and
    ends count strictly before. When a running job will end does not show. Where the log has no starts, waiting and
    running jobs cannot be told apart: only ``unfinished`` ones are counted.

    Parameters
    ----------
    jobs, failures, at
        See ``history_features``.
    past : DataFrame
        From ``known_jobs``, of all jobs of the log.
    keys, stats : sequence of str
        Names of ``FLIGHT_KEYS`` and ``FLIGHT_STATS``.

    Returns
    -------
    DataFrame of float64, same length and order as ``jobs``
        A column ``<key>__<stat>`` each, and ``batch__position``: how many jobs of the same user with the same size and
        limit came before it in the same minute. Null where the key is null or nothing can be said.

    Raises
    ------
    UnknownNameError
        If a key or a stat does not exist.
    UsageError
        If ``at`` does not fit.

    Examples
    --------
    >>> from datetime import datetime
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, 1, hour) for hour in (1, 2)], "user": ["a", "a"],
    ...                     "start_time": [datetime(2024, 1, 1, 1, 30), None], "end_time": [None, None],
    ...                     "num_gpus": [8, 1]})
    >>> flight_features(log, past=known_jobs(log), keys=["user"], stats=["pending", "running_gpus"]).rows()
    [(None, None, 0.0), (0.0, 8.0, 0.0)]
    """
    check_known("in-flight key", keys, FLIGHT_KEYS)
    check_known("in-flight stat", stats, FLIGHT_STATS)
    wanted = [*(f"{key}__{stat}" for key in keys for stat in stats), "batch__position"]
    return past_features(as_jobs(jobs), past=past, names=wanted, failures=failures, at=at)


def past_features(
    jobs: pl.DataFrame, *, past: pl.DataFrame, names: Sequence[str], failures: Failures = "keep", at: Instants
) -> pl.DataFrame:
    """Features ``<key>__<stat>`` of history and flight, in the order asked for; keys are coded once for all."""
    # numba takes half a second to import: only who computes pays.
    from predictors.history_batch import Batch

    batch = Batch(jobs, past, now=asking_times(jobs, at), failures_count=failures == "keep")
    columns: dict[str, pl.Series] = {}
    for key in dict.fromkeys(name.split("__")[0] for name in names):
        stats = [name.split("__")[1] for name in names if name.startswith(f"{key}__")]
        if key == "batch":
            columns["batch__position"] = batch.batch_position()
            continue
        told = [stat for stat in stats if stat in HISTORY_STATS]
        flying = [stat for stat in stats if stat in FLIGHT_STATS]
        found = batch.history(key, told) if told else {}
        found |= batch.in_flight(key, flying) if flying else {}
        columns |= {f"{key}__{stat}": values for stat, values in found.items()}
    return pl.DataFrame({name: columns[name] for name in names})


def check_known(kind: str, given: Sequence[str], known: Mapping[str, Any] | Sequence[str]) -> None:
    """Refuse a name that is not known, by listing those that are."""
    for name in given:
        if name not in known:
            raise UnknownNameError(kind=kind, found=name, known=list(known))
