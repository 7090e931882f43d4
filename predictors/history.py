"""Leak-free history: what a user's, VC's or family's jobs that had ENDED before a submission say about it.

A job counts in the history of another only if its end lies strictly before the other's submission. Equal ends are
ordered by (end, submission, id), so the same log gives the same numbers whatever the order of its rows. The numbers
of a row depend on its own window of ended jobs only, so a batch and a single row give the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis import schema
from analysis.errors import UnknownNameError
from predictors.jobs_table import as_jobs, is_failure, is_known, microseconds
from predictors.training_view import known_end

__all__ = ["HISTORY_KEYS", "HISTORY_STATS", "PAST", "Failures", "ended_jobs", "history_features", "key_columns"]

Failures = Literal["exclude", "keep"]

#: Whose ended jobs are looked at; a key whose columns are null for a job gives it no history.
HISTORY_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "user": ("user",),
    "vc": ("vc",),
    "vc_size": ("vc", "size"),
    "user_size": ("user", "size"),
    "user_limit": ("user", "time_limit_s"),
    "user_size_limit": ("user", "size", "time_limit_s"),
    "user_family": ("user", "job_family"),
    "group": ("group",),
}
#: What is said of them; durations in seconds, over the last 20 at most.
HISTORY_STATS: Final = (
    "last",
    "mean_2",
    "mean_5",
    "mean_20",
    "median_20",
    "min_20",
    "max_20",
    "count",  # of all ended jobs
    "since_last_s",  # from the last end to this submission
    "failure_rate_20",
)
WINDOW: Final = 20
CHUNK: Final = 131_072  # rows at once: keeps the windows of a 3-million-job log out of memory
US_PER_S: Final = 1e6
_Part = tuple[slice, NDArray[np.float64]]
_KEY_TYPES: Final[Mapping[str, pl.DataType]] = {
    "user": pl.String(),
    "vc": pl.String(),
    "group": pl.String(),
    "job_family": pl.String(),
    "size": pl.Float64(),
    "time_limit_s": pl.Float64(),
}
#: Columns of a table of ended jobs.
PAST: Final[Mapping[str, pl.DataType]] = {
    "end_time": schema.TIME,
    "duration_s": pl.Float64(),
    "is_failure": pl.Boolean(),
    **_KEY_TYPES,
}


def key_columns() -> dict[str, pl.Expr]:
    """Columns that keys are made of, all known at the submission.

    ``size`` is the number of GPUs, for a CPU job the CPUs with a minus sign (so that the two never meet);
    ``job_family`` is the job's name without its numbers and hashes.
    """
    gpus, cpus = pl.col("num_gpus"), pl.col("num_cpus")
    family = pl.col("job_name").str.to_lowercase().str.replace_all(r"[0-9a-f]{8,}|[0-9]+", "#")
    derived = {"size": pl.when(gpus > 0).then(gpus).otherwise(-cpus.fill_null(0.0)), "job_family": family}
    return {name: derived.get(name, pl.col(name)) for name in _KEY_TYPES}


def ended_jobs(jobs: Any) -> pl.DataFrame:
    """Ended jobs of a log in the order in which they ended: all that history needs of it.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table; jobs without a known end and a fully known duration are left out.

    Returns
    -------
    DataFrame with the columns of ``PAST``
        Sorted by (end, submission, id).
    """
    table = as_jobs(jobs)
    order = schema.job_order(table["job_id"])
    return (
        table.with_columns(end_time=known_end(table)["end_time"], _number=order["number"], _text=order["text"])
        .filter(is_known() & pl.col("end_time").is_not_null())
        .sort("end_time", "submit_time", "_number", "_text", maintain_order=True)
        .select("end_time", "duration_s", is_failure(), **key_columns())
        .cast(dict(PAST))  # type: ignore[arg-type]
    )


def history_features(
    jobs: Any,
    *,
    past: pl.DataFrame,
    keys: Sequence[str] = tuple(HISTORY_KEYS),
    stats: Sequence[str] = HISTORY_STATS,
    failures: Failures = "keep",
) -> pl.DataFrame:
    """Describe, for each job, the jobs of the same key that ended strictly before its submission.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table; only what is known at the submission is read.
    past : DataFrame
        Ended jobs, from ``ended_jobs``. It may hold the jobs themselves and later ones: they do not count.
    keys, stats : sequence of str
        Names of ``HISTORY_KEYS`` and ``HISTORY_STATS``.
    failures : {"keep", "exclude"}
        Whether jobs that broke count in everything but ``failure_rate_20``, which always counts them.

    Returns
    -------
    DataFrame of float64, same length and order as ``jobs``
        A column ``<key>__<stat>`` each. Null where nothing of the key had ended (``count`` is 0), or a column of the
        key is null (``count`` is null too). Seconds, except ``count`` and ``failure_rate_20`` (0-1).

    Raises
    ------
    UnknownNameError
        If a key or a stat does not exist.

    Examples
    --------
    >>> from datetime import datetime
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, day) for day in (1, 2, 3)], "user": ["a", "a", "a"],
    ...                     "duration_s": [60.0, 20.0, 5.0]})
    >>> history_features(log, past=ended_jobs(log), keys=["user"], stats=["last", "mean_2", "count"]).rows()
    [(None, None, 0.0), (60.0, 60.0, 1.0), (20.0, 40.0, 2.0)]
    """
    for kind, given, known in (("history key", keys, list(HISTORY_KEYS)), ("history stat", stats, HISTORY_STATS)):
        for name in given:
            if name not in known:
                raise UnknownNameError(kind=kind, found=name, known=known)
    table = as_jobs(jobs).select("submit_time", **key_columns())
    streams = _Streams(table, past, failures=failures)
    columns: dict[str, pl.Series] = {}
    for key in keys:
        found = streams.describe(HISTORY_KEYS[key], stats)
        columns |= {f"{key}__{stat}": pl.Series(found[stat], nan_to_null=True) for stat in stats}
    return pl.DataFrame(columns)


class _Streams:
    """Rows that ask and ended jobs that answer, with times and keys as integers that both share."""

    def __init__(self, rows: pl.DataFrame, past: pl.DataFrame, *, failures: Failures) -> None:
        self.rows, self.past = rows, past
        self.submit, has_submit = microseconds(rows["submit_time"])
        self.end, _ = microseconds(past["end_time"])
        self.duration = past["duration_s"].to_numpy()
        instants = np.unique(self.end)
        self.num_ranks = len(instants) + 1
        self.end_rank = np.searchsorted(instants, self.end)
        # side="left": an end at the very instant of the submission does not count.
        self.submit_rank = np.where(has_submit, np.searchsorted(instants, self.submit, side="left"), 0)
        broke = past["is_failure"].fill_null(value=False).to_numpy()
        self.kept = np.ones(past.height, dtype=bool) if failures == "keep" else ~broke
        self.told = past["is_failure"].is_not_null().to_numpy()
        self.broke = broke.astype(np.float64)
        self._codes: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def describe(self, key: tuple[str, ...], stats: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        of_past, of_rows = self._key_codes(key)
        found: dict[str, NDArray[np.float64]] = {}
        if set(stats) - {"failure_rate_20"}:
            found |= self._durations(of_past, of_rows)
        if "failure_rate_20" in stats:
            order, first, stop = self._locate(of_past, of_rows, self.told)
            rates = np.full(self.rows.height, np.nan)
            for part, window in _windows(self.broke[order], first, stop):
                is_empty = np.isnan(window)
                count = WINDOW - np.count_nonzero(is_empty, axis=1)
                rates[part] = _mean(np.where(is_empty, 0.0, window), count, WINDOW)
            found["failure_rate_20"] = rates
        return found

    def _durations(self, of_past: NDArray[np.int64], of_rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        order, first, stop = self._locate(of_past, of_rows, self.kept)
        count = (stop - first).astype(np.float64)
        last = np.where(count > 0, stop - 1, 0)
        ends = self.end[order] if len(order) else np.zeros(1, dtype=np.int64)
        found = {
            "count": np.where(of_rows >= 0, count, np.nan),
            "since_last_s": np.where(count > 0, (self.submit - ends[last]) / US_PER_S, np.nan),
        }
        parts = [(part, window_stats(window)) for part, window in _windows(self.duration[order], first, stop)]
        for name in parts[0][1] if parts else ():
            found[name] = np.concatenate([values[name] for _, values in parts])
        empty = np.full(self.rows.height, np.nan)
        return {name: found.get(name, empty) for name in HISTORY_STATS if name != "failure_rate_20"}

    def _locate(
        self, of_past: NDArray[np.int64], of_rows: NDArray[np.int64], use: NDArray[np.bool_]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """Ended jobs grouped by key in order of their ends, and each row's slice of them."""
        used = np.flatnonzero(use & (of_past >= 0))
        order = used[np.argsort(of_past[used], kind="stable")]
        places = of_past[order] * self.num_ranks + self.end_rank[order]
        first = np.searchsorted(places, of_rows * self.num_ranks)
        stop = np.searchsorted(places, of_rows * self.num_ranks + self.submit_rank)
        stop = np.where(of_rows >= 0, stop, first)
        return order, first, stop

    def _key_codes(self, key: tuple[str, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        past, rows = self._column_codes(key[0])
        for name in key[1:]:
            more_past, more_rows = self._column_codes(name)
            width = 1 + max(more_past.max(initial=-1), more_rows.max(initial=-1))
            joined = np.concatenate([past, rows]) * width + np.concatenate([more_past, more_rows])
            is_null = np.concatenate([np.minimum(past, more_past), np.minimum(rows, more_rows)]) < 0
            # Dense again, so that keys of many columns never overflow.
            dense = np.unique(np.where(is_null, -1, joined), return_inverse=True)[1].astype(np.int64)
            dense = np.where(is_null, -1, dense)
            past, rows = dense[: len(past)], dense[len(past) :]
        return past, rows

    def _column_codes(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Integers that are equal where the values are; -1 for null."""
        if name not in self._codes:
            both = pl.concat([self.past[name], self.rows[name]])
            codes = both.cast(pl.Categorical).to_physical() if both.dtype == pl.String else both.rank("dense")
            whole = codes.cast(pl.Int64).fill_null(-1).to_numpy()
            self._codes[name] = (whole[: self.past.height], whole[self.past.height :])
        return self._codes[name]


def _windows(values: NDArray[np.float64], first: NDArray[np.intp], stop: NDArray[np.intp]) -> Iterator[_Part]:
    """Yield for a chunk of rows its slice, and the last values of each row, newest first, NaN beyond the first."""
    lags = np.arange(1, WINDOW + 1)
    padded = values if len(values) else np.zeros(1)
    for begin in range(0, len(first), CHUNK):
        part = slice(begin, begin + CHUNK)
        places = stop[part, None] - lags
        inside = places >= first[part, None]
        yield part, np.where(inside, padded[np.where(inside, places, 0)], np.nan)


def window_stats(window: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Describe windows of durations.

    Parameters
    ----------
    window : array of float64, shape (rows, 20)
        Durations of the last ended jobs, newest first; NaN where there were fewer. [s]

    Returns
    -------
    dict of str to array of float64, one value per row
        last, mean_2, mean_5, mean_20, median_20, min_20, max_20 [s]; NaN where the window is empty.
    """
    is_empty = np.isnan(window)
    count = WINDOW - np.count_nonzero(is_empty, axis=1)
    filled = np.where(is_empty, 0.0, window)
    ranked = np.sort(window, axis=1)  # NaN last
    row = np.arange(len(window))
    top = np.maximum(count - 1, 0)
    return {
        "last": window[:, 0],
        "mean_2": _mean(filled, count, 2),
        "mean_5": _mean(filled, count, 5),
        "mean_20": _mean(filled, count, WINDOW),
        "median_20": (ranked[row, top // 2] + ranked[row, np.minimum(count // 2, top)]) / 2,
        "min_20": ranked[:, 0],
        "max_20": ranked[row, top],
    }


def _mean(filled: NDArray[np.float64], count: NDArray[np.intp], size: int) -> NDArray[np.float64]:
    """Mean of the newest ``size`` values, or of as many as there are; NaN if there is none."""
    total = filled[:, :size].sum(axis=1)
    return np.where(count > 0, total / np.clip(count, 1, size), np.nan)
