"""Backtest: learn from what was known at a cutoff, predict what came later, score it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import polars as pl

from predictors.backtest_plan import Models, Plan, make_plan, named_models, split_log, usable_jobs
from predictors.backtest_run import ModelRun, run_model
from predictors.backtest_tables import (
    GROUPINGS,
    HIGH,
    LOW,
    calibration_curve,
    describe_rows,
    difference_table,
    leaderboard,
    scores_by,
)
from predictors.jobs_table import as_jobs
from predictors.training_view import known_end

__all__ = ["BacktestResult", "Models", "Progress", "backtest", "prediction_column"]

#: Called once for each model, with its name, before it is fitted.
Progress = Callable[[str], None]


@dataclass(frozen=True)
class BacktestResult:
    """Scores and predictions of a backtest.

    Attributes
    ----------
    scores : DataFrame, one row per model in the order asked for
        ``model``, ``num_train`` (known durations seen at the first fit), ``num_censored``, ``num_excluded`` (failures
        that did not teach), ``num_test``, ``num_batches`` (jobs of one owner, request and minute are one),
        ``effective_owners`` (inverse Herfindahl), ``num_fits``; the scores of ``predictors.scores.SCORES`` and, of the
        interval from p10 to p90, ``INTERVAL_SCORES``; ``log_mae_batch``, ``coverage_batch`` (each batch weighs 1);
        ``log_mae_low``, ``log_mae_high`` (95 %, moving blocks of days); ``worst_week_coverage`` (weeks with enough
        jobs); ``c_index`` (later jobs known only from below count as censored); ``log_mae_completed`` with
        ``num_test_completed`` over those that completed (null where statuses are not known).
    predictions : DataFrame, one row per test job
        ``job_id``, ``submit_time``, ``duration_s`` (true), ``owner``, ``batch``, ``window``, ``size_class``,
        ``status``, ``user_age``, and ``predicted_duration_s__<model>``, ``predicted_p10_s__<model>``,
        ``predicted_p90_s__<model>`` each [s]; joins to the jobs by ``job_id``.
    by : DataFrame
        The scores within each ``value`` of each ``grouping`` ("window": weeks, "size", "user_age", "status").
    differences : DataFrame, one row per pair of models
        ``log_mae_difference`` (``model`` minus ``other``; below 0 = ``model`` is better), its 95 % intervals over days
        and over users, ``batch_difference``, and the ``verdict``: "better" or "worse" only if both intervals agree.
        They hold given these fits: another seed may differ.
    curve : DataFrame
        ``model``, ``level``, ``observed``: share of the jobs that ran no longer than the predicted quantile.
    timings : DataFrame, one row per model
        ``fit_cpu_s``, ``predict_cpu_s``, ``predictions_per_cpu_s``: not the same on every run, so not in ``scores``.
    cutoff : datetime
        The split, in UTC.
    end_is_proxy : bool
        Whether ends had to be taken as submission + duration, as if no job had waited: history is then fresher than
        it was, and scores are optimistic.
    notes : list of str
        What was left out or assumed, in sentences.
    plan : Plan
        How it was done.
    """

    scores: pl.DataFrame
    predictions: pl.DataFrame
    by: pl.DataFrame
    differences: pl.DataFrame
    curve: pl.DataFrame
    timings: pl.DataFrame
    cutoff: datetime
    end_is_proxy: bool
    notes: list[str]
    plan: Plan


def prediction_column(model: str, *, kind: str = "duration") -> str:
    """Name of the column that holds a model's predictions.

    Examples
    --------
    >>> prediction_column("boosted"), prediction_column("boosted", kind="p90")
    ('predicted_duration_s__boosted', 'predicted_p90_s__boosted')
    """
    return f"predicted_{kind}_s__{model}"


def backtest(
    jobs: Any, *, models: Models, by: Sequence[str] = tuple(GROUPINGS), progress: Progress | None = None, **options: Any
) -> BacktestResult:
    """Split a log by time, train on what was known then, and predict every later job as of its submission.

    The cutoff is the submission time of the job at ``split`` of the jobs in submission order. A model learns from
    jobs that were submitted and had ended before it (those running then are censored); with ``refit`` it learns again
    every day or week of the test part. Each later job is predicted once, by the model that is the latest when it is
    asked about, with the history of all jobs that ended strictly before that instant: so the history goes on in the
    test part, and so do the errors that intervals are calibrated with.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table. Rows without a submission time are left out and counted.
    models : sequence of str or predictors, or mapping of name to predictor
        Registered names, or predictors that were not fitted (they are not changed).
    by : sequence of str, default all
        Groupings of the scores: "window", "size", "user_age", "status".
    progress : callable of str, optional
        Called once for each model, with its name, before it is fitted.
    **options
        ``split``, ``refit``, ``at``, ``gpu_jobs_only``, ``time_zone``, ``random_state``, ``calibration``: see
        ``predictors.backtest_plan.Plan``.

    Returns
    -------
    BacktestResult
        The same for the same input, whatever the row order (but ``timings``).

    Raises
    ------
    UsageError
        If the split is not between 0 and 1, no job is left, nothing is to be tested, or no model is given.
    UnknownNameError
        If a model, a grouping or an option does not exist.

    Examples
    --------
    >>> from datetime import datetime, timedelta
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, 1) + timedelta(hours=i) for i in range(10)],
    ...                     "duration_s": [60.0] * 10, "num_gpus": [1] * 10})
    >>> result = backtest(log, models=["global_median"], refit="daily")
    >>> result.scores.select("model", "num_test", "log_mae").rows()
    [('global_median', 4, 0.0)]
    """
    plan = make_plan(**options)
    named = named_models(models, time_zone=plan.time_zone, random_state=plan.random_state)
    notes: list[str] = []
    log = usable_jobs(as_jobs(jobs), notes, gpu_jobs_only=plan.gpu_jobs_only)
    cutoff, test, censored = split_log(log, plan.split, notes)
    is_proxy = bool(known_end(log)["end_is_proxy"].any())
    if is_proxy:
        notes.append("The log has no end times: a job's end is taken as its submission plus its duration (optimistic).")
    asked = pl.concat([test, censored])
    runs: dict[str, ModelRun] = {}
    for name, model in named.items():
        if progress:
            progress(name)
        runs[name] = run_model(model, log, asked, cutoff=cutoff, plan=plan)
    tested = {name: _part(run, slice(None, test.height)) for name, run in runs.items()}
    bounds = censored["duration_s"].to_numpy()
    beyond = {name: (run.predicted_s[test.height :], bounds) for name, run in runs.items()}
    rows = describe_rows(test, log)
    return BacktestResult(
        scores=leaderboard(rows, tested, censored=beyond, seed=plan.random_state),
        predictions=rows.with_columns(_columns(tested)),
        by=scores_by(rows, tested, by=by),
        differences=difference_table(rows, tested, seed=plan.random_state),
        curve=calibration_curve(rows, tested),
        timings=_timings(runs),
        cutoff=cutoff,
        end_is_proxy=is_proxy,
        notes=notes,
        plan=plan,
    )


def _part(run: ModelRun, places: slice) -> ModelRun:
    return replace(run, predicted_s=run.predicted_s[places], curve_s=run.curve_s[places])


_KINDS: Final = {"p10": LOW, "p90": HIGH}


def _columns(runs: Mapping[str, ModelRun]) -> list[pl.Series]:
    found = []
    for name, run in runs.items():
        found.append(pl.Series(prediction_column(name), run.predicted_s))
        found += [pl.Series(prediction_column(name, kind=kind), run.curve_s[:, at]) for kind, at in _KINDS.items()]
    return found


def _timings(runs: Mapping[str, ModelRun]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "model": name,
                "fit_cpu_s": run.fit_cpu_s,
                "predict_cpu_s": run.predict_cpu_s,
                "predictions_per_cpu_s": len(run.predicted_s) / max(run.predict_cpu_s, 1e-9),
            }
            for name, run in runs.items()
        ]
    )
