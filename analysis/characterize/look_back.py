"""How well the simplest look back works: a user's last ended job, or the median of the last few, as the prediction.

Only what had ended strictly before a job's submission counts, as a scheduler would know it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import KIND, KINDS, conform, grouped_schema
from analysis.characterize.cubes import Rows
from analysis.characterize.prepare import WHO
from analysis.characterize.registry import characterization
from analysis.metrics import US_PER_S

__all__ = ["HISTORY", "history_predictions", "nearest_history", "time_orders"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Ended jobs that the median is taken of, at most.
LAST_K: Final = 15
#: More jobs that end at once are sorted otherwise.
MOST_TIES: Final = 64
LOG_2: Final = float(np.log(2))
#: In a log of twice as many jobs or more whole users are left out, by their hash, so that about as many jobs remain.
MOST_JOBS: Final = 3_500_000

#: Whose ended jobs are looked at: of the user (account, or virtual cluster, where the source names none), and of the
#: same user with the same size and time limit.
KEYS: Final = {"owner": WHO, "owner_request": pl.col("request_key")}
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
        "gpu_us": pl.col("gpu_us"),
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


def time_orders(submit: Ints, end: Ints, duration: Floats) -> tuple[Ints, Ints]:
    """Jobs in the order of their submissions, and of their ends: of those that end at once by submission and duration.

    Examples
    --------
    >>> orders = time_orders(np.array([0, 5, 3]), np.array([9, 8, 9]), np.array([9.0, 3.0, 6.0]))
    >>> [order.tolist() for order in orders]
    [[0, 2, 1], [1, 0, 2]]
    """
    from analysis.characterize.look_back_loop import settle_ties

    by_end = np.argsort(end)
    if not settle_ties(by_end, end, submit, duration, MOST_TIES):
        by_end = np.lexsort((duration, submit, end))
    return np.argsort(submit), by_end


def history_predictions(
    key: NDArray[np.integer[Any]],
    submit: Ints,
    end: Ints,
    duration: Floats,
    *,
    orders: tuple[Ints, Ints] | None = None,
) -> dict[str, Floats]:
    """Predict every duration from the jobs of the same key that had ended strictly before its submission.

    Parameters
    ----------
    key : array of int, a value per job
        From 0 on; -1 for a job that has no key and is not predicted.
    submit, end : array of int
        Times in one unit.
    duration : array of float
        Durations [s].
    orders : tuple of array, optional
        What `time_orders` gives, where it is known already.

    Returns
    -------
    dict of str to array of float
        By rule ("last", "mean_2": of the last two, "median_15": of the last 15 at most) the prediction [s]; nan where
        nothing had ended.

    Examples
    --------
    >>> key, submit, end = np.array([0, 0, 0]), np.array([0, 5, 9]), np.array([5, 8, 12])
    >>> found = history_predictions(key, submit, end, np.array([5.0, 3.0, 3.0]))
    >>> found["last"].tolist(), found["mean_2"].tolist()  # the first ends as the second is submitted
    ([nan, nan, 3.0], [nan, nan, 4.0])
    """
    if not len(key):
        return {rule: np.empty(0) for rule in RULES}
    # Numba takes half a second to import, and only this table needs it.
    from analysis.characterize.look_back_loop import predict

    found = predict(key.astype(np.int32), (submit, end), duration, orders or time_orders(submit, end, duration), LAST_K)
    return dict(zip(RULES, found, strict=True))


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
    outer, codes = _codes(history, by)
    parts = [
        pl.concat([outer, measures], how="horizontal")
        .with_columns(key=pl.lit(key), rule=pl.lit(rule))
        .filter(pl.col("num_jobs") > 0)
        for key, rule, measures in _scores(history, codes, outer.height)
    ]
    enums = (pl.col(name).cast(HISTORY_SCHEMA[name]) for name in ("key", "rule"))
    return conform(pl.concat(parts).with_columns(enums).sort([*by, "kind", "key", "rule"]), columns)


def _codes(history: pl.DataFrame, by: tuple[str, ...]) -> tuple[pl.DataFrame, pl.Series]:
    """Groups of the table by kind of job, and the number of each job's group."""
    if not by:
        return pl.DataFrame({"kind": pl.Series(KINDS, dtype=KIND)}), history["kind"].to_physical()
    keys = [*by, "kind"]
    outer = history.select(keys).unique().sort(keys)
    numbered = history.select(keys).join(
        outer.with_row_index("code"), on=keys, how="left", nulls_equal=True, maintain_order="left"
    )
    return outer, numbered["code"]


def _scores(history: pl.DataFrame, codes: pl.Series, num_codes: int) -> Iterator[tuple[str, str, pl.DataFrame]]:
    """Measures of each key and rule, a row per code."""
    from analysis.characterize.look_back_loop import numbered, score

    code = codes.cast(pl.Int32).to_numpy()
    every = np.bincount(code, minlength=num_codes)
    times = [history[name].to_numpy() for name in ("submit_us", "end_us", "duration_s")]
    orders = time_orders(*times)
    log_duration, has_limit = np.log1p(times[2]), history["time_limit_s"].null_count() < history.height
    limit = history["time_limit_s"].fill_null(np.inf).to_numpy() if has_limit else None
    milli_gpu_s = history.select((pl.col("gpu_us").fill_null(0) / 1000).round().cast(pl.Int64)).to_series().to_numpy()
    for key in KEYS:
        number = numbered(history[key].fill_null(0).to_numpy(), history[key].is_not_null().to_numpy())
        for rule, predicted in history_predictions(number, *times, orders=orders).items():
            cut = predicted if limit is None else np.minimum(predicted, limit, out=predicted)
            logs = np.log1p(cut, out=cut), log_duration
            sums = score(code, num_codes, logs, milli_gpu_s, LOG_2)
            yield key, rule, _measures(every, *sums.astype(np.float64))


def _measures(every: Ints, count: Floats, weight: Floats, close: Floats, heavy: Floats, total: Floats) -> pl.DataFrame:
    measures = {
        "num_jobs": count,
        "with_history_share": count / np.maximum(every, 1),
        "log_mae": _ratio(total / 1e9, count),
        "log_mae_gpu_time": _ratio(heavy, weight),
        "within_2x_share": _ratio(close, count),
    }
    return pl.DataFrame(measures)


def _ratio(part: Floats, whole: Floats) -> pl.Series:
    """Quotient, null where nothing is divided."""
    return pl.Series(np.where(whole > 0, part / np.maximum(whole, 1e-300), np.nan), nan_to_null=True)
