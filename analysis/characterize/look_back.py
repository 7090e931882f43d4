"""How well the simplest look back works: a user's last ended job, or the median of the last few, as the prediction.

Only what had ended strictly before a job's submission counts, as a scheduler would know it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import KIND, conform, grouped_schema
from analysis.characterize.cubes import Rows
from analysis.characterize.groupings import OWNER, hashed, job_size
from analysis.characterize.registry import characterization
from analysis.metrics import US_PER_S

__all__ = ["HISTORY", "ended_before", "history_predictions", "nearest_history"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Ended jobs that the median is taken of, at most.
LAST_K: Final = 15
LOG_2: Final = float(np.log(2))
#: In a log of twice as many jobs or more whole users are left out, by their hash, so that about as many jobs remain.
MOST_JOBS: Final = 3_500_000

#: Whose ended jobs are looked at: of the user (account, or virtual cluster, where the source names none), and of the
#: same user with the same size and time limit.
WHO: Final = pl.coalesce(OWNER, "vc")
KEYS: Final = {
    "owner": hashed(WHO),
    "owner_request": hashed(WHO, job_size(), may_be_null=(pl.col("time_limit_s"),)),
}
RULES: Final = ("last", "mean_2", "median_15")
_EVERY: Final = pl.max_horizontal(pl.col("log_num_jobs") // MOST_JOBS, 1)

HISTORY: Final = Rows(
    "history",
    columns={
        "kind": pl.col("kind"),
        **KEYS,
        "submit_us": pl.col("submit_us"),
        # Where the source does not say when a job ended: when it would have, had it started at once.
        "end_us": pl.coalesce("end_us", pl.col("submit_us") + (pl.col("duration_s") * US_PER_S).round().cast(pl.Int64)),
        "duration_s": pl.col("duration_s"),
        "gpu_s": pl.col("gpu_s"),
        "time_limit_s": pl.col("time_limit_s"),
    },
    where=pl.col("submit_us").is_not_null()
    & pl.col("duration_s").is_not_null()
    & (pl.col("censoring") == "none")
    & KEYS["owner"].is_not_null()
    & (KEYS["owner"] % _EVERY.cast(pl.UInt64) == 0),
)

HISTORY_SCHEMA: Final = {
    "kind": KIND,
    "key": pl.Enum(list(KEYS)),
    "rule": pl.Enum(RULES),
    "num_jobs": pl.Int64(),
    "with_history_share": pl.Float64(),
    "log_mae": pl.Float64(),
    "log_mae_gpu_time": pl.Float64(),
    "within_2x_share": pl.Float64(),
}


def ended_before(key: Ints, submit: Ints, end: Ints, *, ties: tuple[NDArray[Any], ...] = ()) -> tuple[Ints, Ints, Ints]:
    """Find the jobs of the same key that ended strictly before each submission.

    Parameters
    ----------
    key, submit, end : array of int, a value per job
        Key from 0 on; times in one unit.
    ties : tuple of array
        What orders jobs of one key that end at once, the last array first.

    Returns
    -------
    tuple of array of int
        ``order``: jobs sorted by (key, end); ``first`` and ``stop``: the jobs that ended before the submission of job
        i are ``order[first[i]:stop[i]]``.

    Examples
    --------
    >>> key, submit, end = np.array([0, 0, 0]), np.array([0, 5, 9]), np.array([5, 8, 12])
    >>> [part.tolist() for part in ended_before(key, submit, end)]  # the first ends as the second is submitted
    [[0, 1, 2], [0, 0, 0], [0, 0, 2]]
    """
    low = min(int(submit.min()), int(end.min()))
    length = max(int(submit.max()), int(end.max())) - low + 1
    submit, end = submit - low, end - low
    if (int(key.max()) + 1) * length >= 2**62:
        # Ranks instead of times: the same order in smaller numbers.
        both = np.unique(np.concatenate([submit, end]))
        submit, end, length = np.searchsorted(both, submit), np.searchsorted(both, end), len(both)
    place, wanted = key * length + end, key * length + submit
    order = np.argsort(place)
    ended = place[order]
    same = ended[1:] == ended[:-1]
    tied = np.append(same, False) | np.append(False, same)
    among = order[tied]
    order[tied] = among[np.lexsort((*(values[among] for values in ties), ended[tied]))]
    # Sorted look-ups stay in the cache.
    by_submit = np.argsort(wanted)
    stop = np.empty(len(key), np.int64)
    stop[by_submit] = np.searchsorted(ended, wanted[by_submit], side="left")
    sizes = np.bincount(key)
    return order, (np.cumsum(sizes) - sizes)[key], stop


def history_predictions(key: Ints, submit: Ints, end: Ints, duration: Floats) -> dict[str, Floats]:
    """Predict every duration from the jobs of the same key that had ended before.

    Parameters
    ----------
    key, submit, end : array of int, a value per job
        As in `ended_before`.
    duration : array of float
        Durations [s].

    Returns
    -------
    dict of str to array of float
        By rule ("last", "mean_2": of the last two, "median_15": of the last 15 at most) the prediction [s]; nan where
        nothing had ended.
    """
    if not len(key):
        return {rule: np.empty(0) for rule in RULES}
    order, first, stop = ended_before(key, submit, end, ties=(duration, submit))
    ended = pl.DataFrame({"key": key[order], "duration": duration[order]})
    medians = ended.select(pl.col("duration").rolling_median(LAST_K, min_samples=1).over("key")).to_series()
    ran = ended["duration"].to_numpy()
    num_before, last = stop - first, stop - 1
    # Nothing ended before: the look-up wraps around, and what it finds is not taken.
    pair = (ran[last] + ran[np.where(num_before > 1, last - 1, last)]) / 2
    found = {"last": ran[last], "mean_2": pair, "median_15": medians.to_numpy()[last]}
    return {rule: np.where(num_before > 0, values, np.nan) for rule, values in found.items()}


@characterization(
    "nearest_history",
    title="How well looking back predicts a duration",
    definition=(
        "Each job of known duration is predicted from the jobs that had ended strictly before its submission: of its "
        "user (account or virtual cluster where no user is named; key 'owner'), or of these with the same size and "
        "time limit ('owner_request'). Rules: the last one, the mean of the last two, the median of the last 15, "
        "each cut at the requested time limit. log_mae: mean absolute error of the natural logarithm of 1 s + "
        "duration (0.69 is a factor of two); with_history_share: share of the jobs that have such a job before them, "
        "the others are not scored. Where the log has no end times, a job counts as ended at its submission plus its "
        "duration, which is optimistic. Of logs with 7 million jobs and more every so many whole users."
    ),
    source=(
        "Mean of the last two: D. Tsafrir, Y. Etsion, D. G. Feitelson, IEEE TPDS 2007, doi:10.1109/TPDS.2007.70606; "
        "the other rules and the measures are ours"
    ),
    needs=("duration_s", "submit_time"),
    empty_means="The log names neither users, accounts nor virtual clusters.",
    inputs=(HISTORY,),
    heavy=True,
)
def nearest_history(history: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Errors of predictions from ended jobs of the same user or request.

    Parameters
    ----------
    history : DataFrame
        Collected from ``HISTORY``.
    by : tuple of str
        Columns of the grouping: whose errors are averaged; history is looked for among all jobs.

    Returns
    -------
    DataFrame, a row per kind of job, key and rule
        kind, key, rule, num_jobs (scored), with_history_share (0-1), log_mae, log_mae_gpu_time (weighted by GPU time;
        null without), within_2x_share (0-1).
    """
    columns = grouped_schema(by, HISTORY_SCHEMA)
    if not history.height:
        return pl.DataFrame(schema=columns)
    outer = history.select(*by, "kind").unique().sort(*by, "kind").with_row_index("code")
    codes = history.select(*by, "kind").join(outer, on=[*by, "kind"], how="left", nulls_equal=True)["code"].to_numpy()
    parts = [
        pl.concat([outer, measures], how="horizontal")
        .with_columns(key=pl.lit(key), rule=pl.lit(rule))
        .filter(pl.col("num_jobs") > 0)
        for key in KEYS
        for rule, measures in _scores(history, key, codes)
    ]
    enums = (pl.col(name).cast(HISTORY_SCHEMA[name]) for name in ("key", "rule"))
    return conform(pl.concat(parts).with_columns(enums).sort([*by, "kind", "key", "rule"]), columns)


def _scores(history: pl.DataFrame, key: str, codes: Ints) -> Iterator[tuple[str, pl.DataFrame]]:
    """Measures of each rule, a row per code."""
    known = history[key].is_not_null()
    asked = history.filter(known)
    numbers = asked.select(pl.col(key).unique()).with_row_index("number")
    owner = asked.join(numbers, on=key, how="left", maintain_order="left")["number"].cast(pl.Int64).to_numpy()
    found = history_predictions(owner, *(asked[name].to_numpy() for name in ("submit_us", "end_us", "duration_s")))
    gpu_s, limit = history["gpu_s"].fill_null(0.0).to_numpy(), history["time_limit_s"].fill_null(np.inf).to_numpy()
    log_duration = np.log1p(history["duration_s"].to_numpy())
    every, predicted = np.bincount(codes), np.full(history.height, np.nan)
    for rule, values in found.items():
        predicted[known.to_numpy()] = values
        error = np.abs(np.log1p(np.minimum(predicted, limit)) - log_duration)
        scored = ~np.isnan(error)
        error[~scored] = 0.0
        # Whole thousandths and billionths: their sums do not depend on the order of the rows.
        count, weight, close, heavy, total = (
            np.bincount(codes, weights=part, minlength=len(every)).astype(np.float64)
            for part in (
                *(scored, np.rint(scored * gpu_s * 1e3), scored & (error <= LOG_2)),
                *(np.rint(error * gpu_s * 1e3), np.rint(error * 1e9)),
            )
        )
        measures = {
            "num_jobs": count,
            "with_history_share": count / every,
            "log_mae": _ratio(total / 1e9, count),
            "log_mae_gpu_time": _ratio(heavy, weight),
            "within_2x_share": _ratio(close, count),
        }
        yield rule, pl.DataFrame(measures)


def _ratio(part: Floats, whole: Floats) -> pl.Series:
    """Quotient, null where nothing is divided."""
    return pl.Series(np.where(whole > 0, part / np.maximum(whole, 1e-300), np.nan), nan_to_null=True)
