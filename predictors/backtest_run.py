"""One model through a backtest: fitted at each cutoff to what was known, asked about the jobs up to the next."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import clone

from analysis import schema
from predictors.asking import INSTANTS, asked_at, instants
from predictors.backtest_plan import REFITS, Plan
from predictors.base import DurationPredictor
from predictors.feedback import score_predictions, told_stream
from predictors.predictive import Predictive
from predictors.training_view import known_end, training_view

__all__ = ["CURVE_LEVELS", "ModelRun", "cutoffs_of", "run_model"]

Numbers = NDArray[np.float64]
#: Levels of the calibration curve.
CURVE_LEVELS: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class ModelRun:
    """What one model said in a backtest.

    Attributes
    ----------
    predicted_s : array of float, shape (rows,)
        Medians. [s]
    curve_s : array of float, shape (rows, len(CURVE_LEVELS))
        Quantiles. [s]
    num_train, num_censored, num_excluded : int
        Jobs that taught at the first cutoff, known only from below, and left out as failures.
    num_fits : int
    fit_cpu_s, predict_cpu_s : float
        CPU time of this process, of all fits and of all predictions: not the same on every run. [s]
    """

    predicted_s: Numbers
    curve_s: Numbers
    num_train: int
    num_censored: int
    num_excluded: int
    num_fits: int
    fit_cpu_s: float
    predict_cpu_s: float


def cutoffs_of(cutoff: datetime, last: datetime, *, refit: str) -> list[datetime]:
    """Instants at which models are fitted, the cutoff first, none later than the last job asked about."""
    step = REFITS[refit]
    found = [cutoff]
    while step is not None and found[-1] + step <= last:
        found.append(found[-1] + step)
    return found


def run_model(
    model: DurationPredictor, log: pl.DataFrame, rows: pl.DataFrame, *, cutoff: datetime, plan: Plan
) -> ModelRun:
    """Fit a model at the cutoff, and again as the plan says; ask it about every later job.

    Parameters
    ----------
    model : DurationPredictor
        Not fitted.
    log : DataFrame
        All jobs, as ``as_jobs`` gives them, sorted.
    rows : DataFrame
        Those of them that are asked about, all submitted at the cutoff or later.
    cutoff : datetime
        First fit.
    plan : Plan
        How the backtest is done.

    Returns
    -------
    ModelRun
        In the order of ``rows``. Without refits the same as ``predict`` and ``predict_quantiles`` with the log as
        history; with them, each row is asked of the model that was the latest then, and intervals go by the errors of
        what was said then.
    """
    asked = asked_at(rows, plan.at)
    when = instants(asked)
    past = model._past_of(log)
    raw = np.empty((rows.height, len(model.levels)))
    first, fit_s, predict_s = model, 0.0, 0.0
    starts = cutoffs_of(cutoff, when.max(), refit=plan.refit)  # type: ignore[arg-type]
    for number, start in enumerate(starts):
        view = schema.sort_jobs(training_view(log, cutoff=start))
        begin = time.process_time()
        if number:
            model = clone(first)
            model._learn_log(view)
        else:
            model.fit(view)
        fit_s += time.process_time() - begin
        within = when >= start
        if number + 1 < len(starts):
            within &= when < starts[number + 1]
        places = within.arg_true().to_numpy()
        begin = time.process_time()
        raw[places] = model._raw(asked[places], past)
        predict_s += time.process_time() - begin
    begin = time.process_time()
    found = _distribution(first, log, asked, raw, past=past, plan=plan)
    curve = found.quantiles(CURVE_LEVELS)
    predict_s += time.process_time() - begin
    median = raw[:, first.levels.index(0.5)]
    counts = (first.num_known_, first.num_censored_, first.num_excluded_)
    return ModelRun(median, curve, *counts, len(starts), fit_s, predict_s)


def _distribution(
    model: DurationPredictor, log: pl.DataFrame, asked: pl.DataFrame, raw: Numbers, *, past: pl.DataFrame, plan: Plan
) -> Predictive:
    """Calibrate what was said of the rows by how jobs ended, of the training log and since."""
    kind = plan.at if plan.at in INSTANTS else "submission"
    ends = known_end(log)["end_time"].fill_null(log["submit_time"].max())
    # Jobs that ran at the cutoff: nobody was asked about them, but how they end is told.
    came_before = log["submit_time"] < asked["submit_time"].min()
    waiting = log.filter((ends > model.trained_until_) & came_before) if model.trained_until_ else log.head(0)
    later = score_predictions(model, waiting, past=past, at=kind).joined(told_stream(asked, raw))
    stream = model.scores_[kind].joined(later.sorted())
    return model._calibrated(asked, raw, stream, method=plan.calibration)
