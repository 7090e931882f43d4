"""A prediction crosses to the rest of hindcast as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import polars as pl

from analysis.frames import jobs_to_polars
from predictors.base import DurationPredictor

__all__ = ["QUANTILES", "predict_frame", "quantile_column"]

#: Quantiles that cross as columns: a bad, a middling and a good day for whoever waits.
QUANTILES: Final = (0.1, 0.5, 0.9)


def quantile_column(quantile: float) -> str:
    """Name of the column that holds a predicted quantile.

    Examples
    --------
    >>> [quantile_column(q) for q in (0.1, 0.5, 0.995)]
    ['predicted_p10_s', 'predicted_p50_s', 'predicted_p99_5_s']
    """
    return f"predicted_p{100 * quantile:.6g}_s".replace(".", "_")


def predict_frame(
    model: DurationPredictor,
    jobs: Any,
    *,
    history: Any = None,
    at: str = "submission",
    quantiles: Sequence[float] = QUANTILES,
) -> pl.DataFrame:
    """Add a column ``predicted_duration_s``, and one for each quantile, to jobs.

    Parameters
    ----------
    model : DurationPredictor
        Fitted.
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table; only what is known at the submission is read, and the column of ``at``.
    history : DataFrame of polars or pandas, optional
        A log whose jobs count for a row if they ended strictly before it is asked about; by default the training log.
    at : str, default "submission"
        Instant of asking: "submission", "start", or a column of datetimes of ``jobs``.
    quantiles : sequence of float, default (0.1, 0.5, 0.9)
        Each between 0 and 1; () = only ``predicted_duration_s``, which is quicker.

    Returns
    -------
    DataFrame of polars, same rows in the same order
        The columns given; ``predicted_duration_s``, at least 1 and never null; and ``predicted_p10_s``,
        ``predicted_p50_s`` (equal to it), ``predicted_p90_s``, not crossing, never null. [s]

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
    ['submit_time', 'user', 'predicted_duration_s', 'predicted_p10_s', 'predicted_p50_s', 'predicted_p90_s']
    """
    table = jobs_to_polars(jobs)
    if not len(quantiles):
        return table.with_columns(_column("predicted_duration_s", model.predict(table, history=history, at=at)))
    found = model.predict_quantiles(table, [0.5, *quantiles], history=history, at=at)
    names = ["predicted_duration_s", *(quantile_column(quantile) for quantile in quantiles)]
    return table.with_columns(_column(name, found[:, place]) for place, name in enumerate(names))


def _column(name: str, values: Any) -> pl.Series:
    return pl.Series(name, values, dtype=pl.Float64)
