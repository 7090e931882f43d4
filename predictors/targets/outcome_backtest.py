"""How good predicted probabilities of outcomes are: split by time, with refits, against the rates of all and user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import clone

from analysis.errors import UsageError
from predictors.backtest_plan import make_plan, usable_jobs
from predictors.backtest_run import cutoffs_of
from predictors.differences import block_interval, cluster_interval, verdict
from predictors.jobs_table import as_jobs
from predictors.targets.outcome_model import OutcomeProbability, OutcomeRate
from predictors.targets.outcomes import outcomes_of
from predictors.targets.probability_scores import PROBABILITY_SCORES, reliability, score_probabilities
from predictors.training_view import training_view

__all__ = ["OutcomeBacktest", "backtest_outcome"]

Floats = NDArray[np.float64]
US_PER_DAY: Final = 86_400_000_000


@dataclass(frozen=True)
class OutcomeBacktest:
    """Scores and predictions of a backtest of probabilities.

    Attributes
    ----------
    scores : DataFrame, one row per model
        ``model`` ("base_rate", "user_rate", "model"), ``num_test``, ``rate`` (share of the tested jobs to which it
        happened), ``mean_predicted``, ``brier``, ``log_loss``, ``auc``.
    differences : DataFrame, a row per other model and score
        ``other``, ``score``, ``difference`` (model minus other; below 0 = the model is better), its 95 % intervals over
        days (moving blocks) and over users, and the ``verdict``: "better" or "worse" only if both agree.
    curve : DataFrame
        Calibration curve of each model: ``model``, ``bin``, ``num_jobs``, ``mean_predicted``, ``observed``.
    predictions : DataFrame, one row per tested job
        ``job_id``, ``submit_time``, ``outcome`` (0 or 1), and a column per model.
    notes : list of str
        What was left out, in sentences.
    """

    scores: pl.DataFrame
    differences: pl.DataFrame
    curve: pl.DataFrame
    predictions: pl.DataFrame
    notes: list[str]


def backtest_outcome(
    jobs: Any, *, outcome: str = "failed", within_s: float = 600.0, calibration: str = "platt", **options: Any
) -> OutcomeBacktest:
    """Split a log by time, learn from what was known then, and ask of every later job as of its submission.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table with statuses.
    outcome, within_s, calibration
        See ``OutcomeProbability``.
    **options
        ``split``, ``refit``, ``gpu_jobs_only``, ``random_state`` as of ``predictors.backtest``.

    Returns
    -------
    OutcomeBacktest
        Only jobs whose outcome is known in the log are scored.

    Raises
    ------
    UsageError
        If nothing can be tested.
    HindcastError
        If no training job has a known outcome.

    Examples
    --------
    >>> from datetime import datetime, timedelta
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, 1) + timedelta(hours=i) for i in range(40)],
    ...                     "user": ["a", "b"] * 20, "duration_s": [60.0] * 40, "num_gpus": [1] * 40,
    ...                     "status": ["failed", "completed"] * 20})
    >>> backtest_outcome(log).scores.select("model", "num_test", "auc").rows()
    [('base_rate', 16, 0.5), ('user_rate', 16, 1.0), ('model', 16, 1.0)]
    """
    plan = make_plan(**options)
    notes: list[str] = []
    log = usable_jobs(as_jobs(jobs), notes, gpu_jobs_only=plan.gpu_jobs_only)
    log = log.with_columns(outcome=outcomes_of(log, outcome=outcome, within_s=within_s)["duration_s"])
    cutoff = log["submit_time"][int(plan.split * log.height)]
    later = log.filter(pl.col("submit_time") >= cutoff)
    test = later.filter(pl.col("outcome").is_not_null())
    if not test.height or cutoff == log["submit_time"][0]:
        msg = f"backtest_outcome: the split of {plan.split} of {log.height} jobs leaves none to learn from or to test."
        raise UsageError(msg)
    if test.height < later.height:
        notes.append(f"{later.height - test.height} later jobs whose outcome is not known are not scored.")
    shared: dict[str, Any] = {"outcome": outcome, "within_s": within_s}
    model = OutcomeProbability(calibration=calibration, random_state=plan.random_state, **shared)
    models = {"base_rate": OutcomeRate(by_user=False, **shared), "user_rate": OutcomeRate(**shared), "model": model}
    starts = cutoffs_of(cutoff, test["submit_time"].max(), refit=plan.refit)  # type: ignore[arg-type]
    said = {name: _run(each, log.drop("outcome"), test, starts) for name, each in models.items()}
    truth = test["outcome"].to_numpy()
    scores = [{"model": name, "num_test": len(truth), **score_probabilities(p, truth)} for name, p in said.items()]
    curves = [reliability(p, truth).select(pl.lit(name).alias("model"), pl.all()) for name, p in said.items()]
    return OutcomeBacktest(
        scores=pl.DataFrame(scores),
        differences=_differences(test, said, truth, seed=plan.random_state),
        curve=pl.concat(curves),
        predictions=test.select("job_id", "submit_time", "outcome").with_columns(**said),
        notes=notes,
    )


def _run(model: OutcomeRate, log: pl.DataFrame, test: pl.DataFrame, starts: list[Any]) -> Floats:
    said = np.empty(test.height)
    when = test["submit_time"]
    for number, start in enumerate(starts):
        rows = when >= start
        if number + 1 < len(starts):
            rows &= when < starts[number + 1]
        fitted = clone(model).fit(training_view(log, cutoff=start))
        said[rows.to_numpy()] = fitted.predict_probability(test.filter(rows), history=log)
    return said


def _differences(test: pl.DataFrame, said: dict[str, Floats], truth: Floats, *, seed: int) -> pl.DataFrame:
    days = test["submit_time"].dt.epoch("us").to_numpy() // US_PER_DAY
    owner = pl.coalesce("user", "account", "vc", "job_id")
    users = test.select(owner.rank("dense") - 1).to_series().cast(pl.Int64).to_numpy()
    rows = []
    for other in ("base_rate", "user_rate"):
        for name, score in PROBABILITY_SCORES.items():
            gap = score(said["model"], truth) - score(said[other], truth)
            by_days = block_interval(gap, days=days, seed=seed)
            by_users = cluster_interval(gap, clusters=users, seed=seed)
            rows.append(
                {
                    "other": other,
                    "score": name,
                    "difference": float(gap.mean()),
                    "days_low": by_days.low,
                    "days_high": by_days.high,
                    "users_low": by_users.low,
                    "users_high": by_users.high,
                    "verdict": verdict(by_days, by_users),
                }
            )
    return pl.DataFrame(rows)
