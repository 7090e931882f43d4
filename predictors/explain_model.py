"""What the best model of a backtest needs, and how it answers to a request; fitted as at the backtest's cutoff."""

from __future__ import annotations

from typing import Any

import polars as pl

from analysis.errors import UnknownNameError
from predictors.backtest import BacktestResult
from predictors.backtest_plan import Models, named_models, usable_jobs
from predictors.explain_importance import permutation_importance
from predictors.explain_shapes import shape_table
from predictors.jobs_table import as_jobs
from predictors.training_view import training_view

__all__ = ["explain_backtest"]


def explain_backtest(
    jobs: Any, result: BacktestResult, *, models: Models | None = None, model: str | None = None, **options: Any
) -> dict[str, pl.DataFrame]:
    """Importance and shapes of a model of a backtest, on the jobs that it was tested on.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        The log of the backtest.
    result : BacktestResult
        What came out.
    models : sequence of str or predictors, or mapping of name to predictor, optional
        As given to the backtest; by default its models by their registered names.
    model : str, optional
        Which of them; by default the one with the least log-MAE.
    **options
        ``most_jobs`` of ``permutation_importance`` and ``shape_table``.

    Returns
    -------
    dict of str to DataFrame
        "importance" and "shapes", each with a column ``model`` in front. The model is fitted to what was known at the
        cutoff; with refits the backtest's later predictions came from later fits.

    Raises
    ------
    UnknownNameError
        If the backtest had no such model.

    Examples
    --------
    >>> from datetime import datetime
    >>> from predictors import backtest
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, day) for day in range(1, 31)], "num_gpus": [1.0] * 30,
    ...                     "user": ["ann", "bob", "bob"] * 10, "duration_s": [9.0, 9999.0, 9999.0] * 10})
    >>> tables = explain_backtest(log, backtest(log, models=["user_median", "global_median"]))
    >>> tables["importance"].filter(pl.col("importance") > 1)["block"].to_list()
    ['history by owner', 'user']
    """
    plan = result.plan
    ranked = result.scores.sort("log_mae", "model", nulls_last=True)["model"].to_list()
    chosen = ranked[0] if model is None else model
    if chosen not in ranked:
        raise UnknownNameError(kind="model of the backtest", found=chosen, known=ranked)
    named = named_models(
        [chosen] if models is None else models, time_zone=plan.time_zone, random_state=plan.random_state
    )
    log = usable_jobs(as_jobs(jobs), [], gpu_jobs_only=plan.gpu_jobs_only)
    fitted = named[chosen].fit(training_view(log, cutoff=result.cutoff))
    tested = log.filter(pl.col("submit_time") >= result.cutoff)
    shared = {"history": log, "at": plan.at, "random_state": plan.random_state, **options}
    tables = {
        "importance": permutation_importance(fitted, tested, **shared),
        "shapes": shape_table(fitted, tested, **shared),
    }
    return {name: table.select(pl.lit(chosen).alias("model"), pl.all()) for name, table in tables.items()}
