"""Backtest: learn from what was known at a cutoff, predict what came later, score it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl
from numpy.typing import NDArray
from sklearn.base import clone

from analysis import schema
from analysis.errors import UsageError
from predictors.base import DurationPredictor, make_predictor
from predictors.jobs_table import as_jobs, is_known
from predictors.scores import score_all
from predictors.training_view import known_end, training_view

__all__ = ["BacktestResult", "Progress", "backtest", "prediction_column"]

Models = Sequence[str | DurationPredictor] | Mapping[str, DurationPredictor]
#: Called once for each model, with its name, before it is fitted.
Progress = Callable[[str], None]


@dataclass(frozen=True)
class BacktestResult:
    """Scores and predictions of a backtest.

    Attributes
    ----------
    scores : DataFrame, one row per model in the order asked for
        ``model``, ``num_train`` (known durations seen), ``num_censored``, ``num_excluded`` (failures that did not
        teach), ``num_test``, the scores of ``predictors.scores.SCORES`` over all test jobs, and
        ``log_mae_completed`` with ``num_test_completed`` over those that completed (null where statuses are not
        known).
    predictions : DataFrame, one row per test job
        ``job_id``, ``submit_time``, ``duration_s`` (true) and ``predicted_duration_s__<model>`` each [s]; joins to
        the jobs by ``job_id``.
    cutoff : datetime
        The split, in UTC.
    end_is_proxy : bool
        Whether ends had to be taken as submission + duration, as if no job had waited: history is then fresher than
        it was, and scores are optimistic.
    notes : list of str
        What was left out or assumed, in sentences.
    """

    scores: pl.DataFrame
    predictions: pl.DataFrame
    cutoff: datetime
    end_is_proxy: bool
    notes: list[str]


def prediction_column(model: str) -> str:
    """Name of the column that holds a model's predictions.

    Examples
    --------
    >>> prediction_column("boosted")
    'predicted_duration_s__boosted'
    """
    return f"predicted_duration_s__{model}"


def backtest(
    jobs: Any,
    *,
    models: Models,
    split: float = 0.6,
    time_zone: str = "UTC",
    random_state: int = 0,
    gpu_jobs_only: bool = True,
    progress: Progress | None = None,
) -> BacktestResult:
    """Split a log by time, train on what was known then, and predict every later job as of its submission.

    The cutoff is the submission time of the job at ``split`` of the jobs in submission order. A model learns from
    jobs that were submitted and had ended before it (those running then are censored). Each later job is predicted
    once, with the history of all jobs that ended strictly before its own submission, so the history goes on in the
    test part while the model does not.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table. Rows without a submission time are left out and counted.
    models : sequence of str or predictors, or mapping of name to predictor
        Registered names, or predictors that were not fitted (they are not changed).
    split : float, default 0.6
        Between 0 and 1.
    time_zone : str, default "UTC"
        Where hours and weekdays mean something; given to models made by name.
    random_state : int, default 0
        Seed, given to models made by name.
    gpu_jobs_only : bool, default True
        Leave out jobs without GPUs.
    progress : callable of str, optional
        Called once for each model, with its name, before it is fitted.

    Returns
    -------
    BacktestResult
        The same for the same input, whatever the row order.

    Raises
    ------
    UsageError
        If the split is not between 0 and 1, no job is left, nothing is to be tested, or no model is given.
    UnknownNameError
        If a model does not exist.
    """
    named = named_models(models, time_zone=time_zone, random_state=random_state)
    notes: list[str] = []
    log = usable_jobs(as_jobs(jobs), notes, gpu_jobs_only=gpu_jobs_only)
    cutoff, test = _split(log, split, notes)
    view = training_view(log, cutoff=cutoff)
    is_proxy = bool(known_end(log)["end_is_proxy"].any())
    if is_proxy:
        notes.append("The log has no end times: a job's end is taken as its submission plus its duration (optimistic).")
    truth = test["duration_s"].to_numpy()
    rows: list[dict[str, Any]] = []
    columns: dict[str, NDArray[Any]] = {}
    for name, model in named.items():
        if progress:
            progress(name)
        predicted = model.fit(view).predict(test, history=log)
        columns[prediction_column(name)] = predicted
        rows.append(
            {"model": name, **_counts(model, test), **score_all(predicted, truth), **_completed(test, predicted)}
        )
    predictions = test.select("job_id", "submit_time", "duration_s").with_columns(
        *[pl.Series(name, values) for name, values in columns.items()]
    )
    scores = pl.DataFrame(rows, infer_schema_length=None, schema_overrides={"log_mae_completed": pl.Float64})
    return BacktestResult(scores=scores, predictions=predictions, cutoff=cutoff, end_is_proxy=is_proxy, notes=notes)


def named_models(models: Models, *, time_zone: str, random_state: int) -> dict[str, DurationPredictor]:
    """Make unfitted predictors of what was asked for; predictors that were given are cloned."""
    if isinstance(models, str) or not models:
        msg = f"backtest: models is {models!r}; expected a list of names or predictors, at least one."
        raise UsageError(msg)
    pairs = list(models.items()) if isinstance(models, Mapping) else [(_name(model), model) for model in models]
    twice = sorted({name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1})
    if twice:
        msg = f"backtest: {', '.join(twice)} is given twice; give a mapping of names to predictors."
        raise UsageError(msg)
    shared = {"time_zone": time_zone, "random_state": random_state}
    return {name: _ready(model, shared) for name, model in pairs}


def _name(model: str | DurationPredictor) -> str:
    return model if isinstance(model, str) else model.name


def _ready(model: str | DurationPredictor, shared: dict[str, Any]) -> DurationPredictor:

    if not isinstance(model, str):
        return clone(model)  # type: ignore[no-any-return]
    made = make_predictor(model)
    known = made.get_params()
    return made.set_params(**{name: value for name, value in shared.items() if name in known})  # type: ignore[no-any-return]


def usable_jobs(log: pl.DataFrame, notes: list[str], *, gpu_jobs_only: bool) -> pl.DataFrame:
    """Sort the jobs that a backtest can use; say in ``notes`` how many were left out and why."""
    kept = log.filter(pl.col("submit_time").is_not_null())
    if kept.height < log.height:
        notes.append(f"{log.height - kept.height} jobs without a submission time were left out.")
    if gpu_jobs_only:
        with_gpus = kept.filter(pl.col("num_gpus") > 0)
        if with_gpus.height < kept.height:
            notes.append(
                f"{kept.height - with_gpus.height} jobs without GPUs (or with an unknown number) were left out."
            )
        kept = with_gpus
    if not kept.height:
        what = "GPU jobs" if gpu_jobs_only else "jobs"
        msg = (
            f"backtest: none of {log.height} rows can be used; expected {what} with a submission time. "
            "For a log of CPU jobs set gpu_jobs_only=False (on the command line: --cpu-jobs)."
        )
        raise UsageError(msg)
    return schema.sort_jobs(kept)


def _split(log: pl.DataFrame, split: float, notes: list[str]) -> tuple[datetime, pl.DataFrame]:
    if not 0 < split < 1:
        msg = f"backtest: split is {split}; expected a share between 0 and 1, such as 0.6."
        raise UsageError(msg)
    cutoff = log["submit_time"][int(split * log.height)]
    if log["submit_time"][0] == cutoff:
        msg = (
            f"backtest: none of {log.height} jobs was submitted before {cutoff}, where the split of {split} lies, so "
            "there is nothing to learn from; a backtest needs jobs before and after it."
        )
        raise UsageError(msg)
    later = log.filter(pl.col("submit_time") >= cutoff)
    test = later.filter(is_known())
    if not test.height:
        msg = (
            f"backtest: none of the {later.height} jobs from {cutoff} on has a known duration; choose a smaller split."
        )
        raise UsageError(msg)
    if later.height > test.height:
        notes.append(f"{later.height - test.height} later jobs without a fully known duration are not scored.")
    return cutoff, test


def _counts(model: DurationPredictor, test: pl.DataFrame) -> dict[str, int]:
    return {
        "num_train": model.num_known_,
        "num_censored": model.num_censored_,
        "num_excluded": model.num_excluded_,
        "num_test": test.height,
    }


def _completed(test: pl.DataFrame, predicted: NDArray[Any]) -> dict[str, Any]:
    is_completed = test["status"].eq("completed").fill_null(value=False).to_numpy()
    scores = score_all(predicted[is_completed], test["duration_s"].to_numpy()[is_completed])
    return {"log_mae_completed": scores["log_mae"], "num_test_completed": int(is_completed.sum())}
