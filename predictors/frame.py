"""A prediction crosses to the rest of hindcast as a column."""

from __future__ import annotations

from typing import Any

import polars as pl

from analysis.frames import jobs_to_polars
from predictors.base import DurationPredictor

__all__ = ["predict_frame"]


def predict_frame(model: DurationPredictor, jobs: Any, *, history: Any = None) -> pl.DataFrame:
    """Add a column ``predicted_duration_s`` to jobs.

    Parameters
    ----------
    model : DurationPredictor
        Fitted.
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table; only what is known at the submission is read.
    history : DataFrame of polars or pandas, optional
        A log whose jobs count for a row if they ended strictly before its submission; by default the training log.

    Returns
    -------
    DataFrame of polars, same rows in the same order
        The columns given, and ``predicted_duration_s``, at least 1 and never null [s].

    Raises
    ------
    NotFittedError
        If the model was not fitted.
    SchemaError
        If a column cannot be read.

    Examples
    --------
    >>> from datetime import datetime
    >>> from predictors import make_predictor
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, 1)], "duration_s": [60.0], "user": ["a"]})
    >>> model = make_predictor("user_median").fit(log)
    >>> predict_frame(model, pl.DataFrame({"submit_time": [datetime(2024, 1, 2)], "user": ["a"]})).columns
    ['submit_time', 'user', 'predicted_duration_s']
    """
    table = jobs_to_polars(jobs)
    return table.with_columns(predicted_duration_s=pl.Series(model.predict(table, history=history), dtype=pl.Float64))
