"""How much a random split flatters: the same models scored with a split by time and with one at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from predictors.backtest import backtest
from predictors.backtest_plan import Models, named_models, usable_jobs
from predictors.jobs_table import as_jobs, is_known
from predictors.scores import score_all

__all__ = ["compare_splits"]


def compare_splits(
    jobs: Any,
    *,
    models: Models,
    split: float = 0.6,
    time_zone: str = "UTC",
    random_state: int = 0,
    gpu_jobs_only: bool = True,
) -> pl.DataFrame:
    """Score models with an honest split by time and with a random one, side by side.

    In the random split a model learns from jobs of the whole period, also such that ended after the jobs that it is
    asked about: its score is not attainable, and is here only to be compared. Which of the two is better on a log is
    measured, never assumed.

    Parameters
    ----------
    jobs, models, split, time_zone, random_state, gpu_jobs_only
        As in ``backtest``; the random split puts the same share of the known jobs into training.

    Returns
    -------
    DataFrame, two rows per model
        ``model``, ``split`` ("time" or "random"), ``num_test``, and the scores of ``predictors.scores.SCORES``.

    Raises
    ------
    UsageError
        As ``backtest``.
    """
    given: dict[str, Any] = {"time_zone": time_zone, "random_state": random_state}
    timed = backtest(jobs, models=models, by=(), split=split, gpu_jobs_only=gpu_jobs_only, **given)
    log = usable_jobs(as_jobs(jobs), [], gpu_jobs_only=gpu_jobs_only)
    known = log.filter(is_known())
    shuffled = np.random.default_rng(random_state).permutation(known.height)
    cut = int(split * known.height)
    train, test = (known[np.sort(part)] for part in (shuffled[:cut], shuffled[cut:]))
    truth = test["duration_s"].to_numpy()
    rows = []
    for place, (name, model) in enumerate(named_models(models, **given).items()):
        scores = timed.scores.row(place, named=True)
        predicted = model.fit(train).predict(test, history=log)
        found = score_all(predicted, truth)
        rows.append({"model": name, "split": "time", "num_test": scores["num_test"], **{k: scores[k] for k in found}})
        rows.append({"model": name, "split": "random", "num_test": test.height, **found})
    return pl.DataFrame(rows, infer_schema_length=None)
