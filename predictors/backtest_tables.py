"""Tables of a backtest: the leaderboard, scores by window, size, age and status, differences, the calibration curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.errors import UnknownNameError
from predictors.backtest_run import CURVE_LEVELS, ModelRun
from predictors.concordance import concordance
from predictors.differences import block_interval, cluster_interval, verdict
from predictors.scores import abs_log_error, score_all, score_interval
from predictors.training_view import known_end

__all__ = ["GROUPINGS", "calibration_curve", "describe_rows", "difference_table", "leaderboard", "scores_by"]

#: What scores are shown by, and the column of each in the table of predictions.
GROUPINGS: Final[Mapping[str, str]] = {
    "window": "window",
    "size": "size_class",
    "user_age": "user_age",
    "status": "status",
}
US_PER_DAY: Final = 86_400_000_000
#: A week with fewer jobs than this, or than this share of all, says nothing of the worst week.
WEEK_JOBS: Final = (50, 0.005)
#: Ends of the intervals, places in ``CURVE_LEVELS``.
LOW, HIGH = CURVE_LEVELS.index(0.1), CURVE_LEVELS.index(0.9)


def describe_rows(rows: pl.DataFrame, log: pl.DataFrame) -> pl.DataFrame:
    """Say of each tested job what scores are grouped and weighted by.

    Parameters
    ----------
    rows, log : DataFrame
        Tested jobs and all jobs, as ``as_jobs`` gives them.

    Returns
    -------
    DataFrame, same rows
        ``owner`` (user, else account, else VC), ``batch`` (number: jobs of one owner, request and minute), ``window``
        (first day of the week since the first tested job), ``size_class``, ``user_age`` (ended jobs of the owner at
        the submission, in classes), ``status``.
    """
    begin = rows["submit_time"].min()
    week = (pl.col("submit_time") - pl.lit(begin)).dt.total_days() // 7
    owner = pl.coalesce("user", "account", "vc")
    same = [pl.coalesce(owner, "job_id"), pl.col("submit_time").dt.truncate("1m")]
    request = ["num_gpus", "num_cpus", "time_limit_s"]
    found = rows.select(
        "job_id",
        "submit_time",
        "duration_s",
        owner=owner,
        batch=pl.struct(*same, *request).rank("dense"),
        window=(pl.lit(begin) + week * pl.duration(days=7)).dt.strftime("%Y-%m-%d"),
        size_class=_size_class(),
        status=pl.col("status").cast(pl.String).fill_null("unknown"),
    )
    return found.with_columns(user_age=_age_class(_ended_before(rows, log, owner)))


def _size_class() -> pl.Expr:
    gpus, cpus = pl.col("num_gpus"), pl.col("num_cpus")
    of_gpus = [(gpus < 1, "GPUs 0-1"), (gpus <= 1, "GPUs 1"), (gpus <= 4, "GPUs 2-4"), (gpus <= 8, "GPUs 5-8")]
    of_cpus = [(cpus <= 1, "CPUs 1"), (cpus <= 8, "CPUs 2-8"), (cpus <= 64, "CPUs 9-64"), (cpus > 64, "CPUs 65+")]
    chosen = pl.lit("unknown")
    for condition, name in reversed(of_cpus):
        chosen = pl.when(condition).then(pl.lit(name)).otherwise(chosen)
    some = pl.lit("GPUs 9+")
    for condition, name in reversed(of_gpus):
        some = pl.when(condition).then(pl.lit(name)).otherwise(some)
    return pl.when(gpus > 0).then(some).otherwise(chosen)


def _ended_before(rows: pl.DataFrame, log: pl.DataFrame, owner: pl.Expr) -> NDArray[np.int64]:
    """How many jobs of the same owner had ended before each submission."""
    past = log.select(owner=owner, time=known_end(log)["end_time"].dt.epoch("us")).drop_nulls()
    asking = rows.select(owner=owner, time=pl.col("submit_time").dt.epoch("us"))
    codes = pl.concat([past["owner"], asking["owner"]]).rank("dense").cast(pl.Int64).fill_null(0).to_numpy()
    of_past, of_rows = codes[: past.height], codes[past.height :]
    order = np.lexsort((past["time"].to_numpy(), of_past))
    # One number for (owner, instant), so that one search finds both.
    instants = np.unique(past["time"].to_numpy())
    width = len(instants) + 1
    places = of_past[order] * width + np.searchsorted(instants, past["time"].to_numpy()[order])
    first = np.searchsorted(places, of_rows * width)
    stop = np.searchsorted(places, of_rows * width + np.searchsorted(instants, asking["time"].to_numpy()))
    return np.asarray(stop - first, dtype=np.int64)


def _age_class(counts: NDArray[np.int64]) -> pl.Series:
    names = np.array(["0", "1-4", "5-19", "20-99", "100+"])
    return pl.Series(names[np.searchsorted([1, 5, 20, 100], counts, side="right")])


def _weights(rows: pl.DataFrame) -> NDArray[np.float64]:
    """Weight of each job such that each batch weighs 1."""
    return np.asarray(1 / rows.select(pl.len().over("batch")).to_series().to_numpy().astype(np.float64))


def _scores(rows: pl.DataFrame, run: ModelRun, places: NDArray[np.intp]) -> dict[str, Any]:
    """All scores of some of the tested jobs, job-weighted, and the main ones batch-weighted."""
    truth = rows["duration_s"].to_numpy()[places]
    guess, low, high = run.predicted_s[places], run.curve_s[places, LOW], run.curve_s[places, HIGH]
    weights = _weights(rows[places])
    ends = score_interval(low, high, truth)
    batch = score_interval(low, high, truth, weights=weights)
    return {
        **score_all(guess, truth),
        **ends,
        "log_mae_batch": score_all(guess, truth, weights=weights)["log_mae"],
        "coverage_batch": batch["coverage"],
    }


def leaderboard(
    rows: pl.DataFrame, runs: Mapping[str, ModelRun], *, censored: Mapping[str, tuple[Any, Any]], seed: int
) -> pl.DataFrame:
    """Scores of every model over all tested jobs; see ``BacktestResult.scores``."""
    found = []
    truth = rows["duration_s"].to_numpy()
    everything = np.arange(rows.height)
    is_completed = np.flatnonzero((rows["status"] == "completed").to_numpy())
    days = (rows["submit_time"].dt.epoch("us") // US_PER_DAY).to_numpy()
    for name, run in runs.items():
        interval = block_interval(abs_log_error(run.predicted_s, truth), days=days, seed=seed)
        counts = {"num_train": run.num_train, "num_censored": run.num_censored, "num_excluded": run.num_excluded}
        completed = score_all(run.predicted_s[is_completed], truth[is_completed])
        found.append(
            {
                "model": name,
                **counts,
                "num_test": rows.height,
                "num_batches": rows["batch"].n_unique(),
                "effective_owners": _effective(rows["owner"]),
                "num_fits": run.num_fits,
                **_scores(rows, run, everything),
                "log_mae_low": interval.low,
                "log_mae_high": interval.high,
                "worst_week_coverage": _worst_week(rows, run),
                "c_index": _concordance(run, truth, censored[name]),
                "log_mae_completed": completed["log_mae"],
                "num_test_completed": len(is_completed),
            }
        )
    floats = ("log_mae_completed", "log_mae_low", "log_mae_high", "worst_week_coverage", "c_index")
    return pl.DataFrame(found, infer_schema_length=None, schema_overrides=dict.fromkeys(floats, pl.Float64))


def _concordance(run: ModelRun, truth: NDArray[np.float64], censored: tuple[Any, Any]) -> float | None:
    predicted, bounds = censored
    cut = np.concatenate([np.zeros(len(truth), dtype=bool), np.ones(len(bounds), dtype=bool)])
    return concordance(np.concatenate([run.predicted_s, predicted]), np.concatenate([truth, bounds]), cut)


def _effective(owners: pl.Series) -> float | None:
    """Effective number of owners: 1 over the sum of their squared shares of the jobs (inverse Herfindahl)."""
    counts = owners.drop_nulls().value_counts()["count"].to_numpy().astype(np.float64)
    return float(counts.sum() ** 2 / (counts**2).sum()) if len(counts) else None


def _worst_week(rows: pl.DataFrame, run: ModelRun) -> float | None:
    covered = (run.curve_s[:, LOW] <= rows["duration_s"].to_numpy()) & (
        rows["duration_s"].to_numpy() <= run.curve_s[:, HIGH]
    )
    weeks = rows.select("window", covered=pl.Series(covered)).group_by("window").agg(pl.len(), pl.col("covered").mean())
    full = weeks.filter(pl.col("len") >= max(WEEK_JOBS[0], WEEK_JOBS[1] * rows.height))
    return full["covered"].min() if full.height else None  # type: ignore[return-value]


def scores_by(rows: pl.DataFrame, runs: Mapping[str, ModelRun], *, by: Sequence[str]) -> pl.DataFrame:
    """Scores of every model within each value of each grouping.

    Raises
    ------
    UnknownNameError
        If a grouping does not exist.
    """
    found = []
    for grouping in by:
        if grouping not in GROUPINGS:
            raise UnknownNameError(kind="grouping", found=grouping, known=GROUPINGS)
        column = rows[GROUPINGS[grouping]]
        for value in column.unique().sort():
            places = (column == value).arg_true().to_numpy().astype(np.intp)
            share = {"grouping": grouping, "value": value, "num_test": len(places)}
            share["num_batches"] = rows["batch"][places].n_unique()
            found += [{**share, "model": name, **_scores(rows, run, places)} for name, run in runs.items()]
    return pl.DataFrame(found, infer_schema_length=None)


def difference_table(rows: pl.DataFrame, runs: Mapping[str, ModelRun], *, seed: int) -> pl.DataFrame:
    """Paired differences of log-MAE between all models, with intervals and a verdict; see ``BacktestResult``."""
    truth = rows["duration_s"].to_numpy()
    losses = {name: abs_log_error(run.predicted_s, truth) for name, run in runs.items()}
    ranked = sorted(losses, key=lambda name: (float(losses[name].mean()), name))
    days = (rows["submit_time"].dt.epoch("us") // US_PER_DAY).to_numpy()
    owners = rows["owner"].rank("dense").cast(pl.Int64).fill_null(0).to_numpy()
    weights = _weights(rows)
    found = []
    for place, name in enumerate(ranked):
        for other in ranked[place + 1 :]:
            gap = losses[name] - losses[other]
            by_day = block_interval(gap, days=days, seed=seed)
            by_user = cluster_interval(gap, clusters=owners, seed=seed)
            found.append(
                {
                    "model": name,
                    "other": other,
                    "log_mae_difference": float(gap.mean()),
                    "days_low": by_day.low,
                    "days_high": by_day.high,
                    "users_low": by_user.low,
                    "users_high": by_user.high,
                    "batch_difference": float(np.average(gap, weights=weights)),
                    "verdict": verdict(by_day, by_user),
                }
            )
    names = {"model": pl.String, "other": pl.String, "verdict": pl.String}
    floats = ["log_mae_difference", "days_low", "days_high", "users_low", "users_high", "batch_difference"]
    order = ["model", "other", *floats, "verdict"]
    types = {name: names.get(name, pl.Float64) for name in order}
    return pl.DataFrame(found, schema=types)


def calibration_curve(rows: pl.DataFrame, runs: Mapping[str, ModelRun]) -> pl.DataFrame:
    """Share of the jobs that ran no longer than each predicted quantile: level and share agree if it is calibrated."""
    truth, weights = rows["duration_s"].to_numpy(), _weights(rows)
    found = []
    for name, run in runs.items():
        for place, level in enumerate(CURVE_LEVELS):
            below = truth <= run.curve_s[:, place]
            share, batch = float(below.mean()), float(np.average(below, weights=weights))
            found.append({"model": name, "level": level, "observed": share, "observed_batch": batch})
    return pl.DataFrame(found)
