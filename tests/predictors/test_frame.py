"""Predictions as a column, from polars and pandas."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from predictors import make_predictor, predict_frame

START = datetime(2024, 1, 1, tzinfo=UTC)
LOG = pl.DataFrame(
    {
        "submit_time": [START + timedelta(hours=i) for i in range(3)],
        "duration_s": [10.0, 20.0, 30.0],
        "user": ["a", "b", "a"],
        "comment": ["x", "y", "z"],
    }
)


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_rows_and_columns_stay_and_one_column_is_added(kind):
    model = make_predictor("user_median").fit(LOG)
    rows = LOG.with_columns(pl.col("submit_time").dt.offset_by("1d")).drop("duration_s").reverse()
    given = rows if kind == "polars" else rows.to_pandas()
    found = predict_frame(model, given)
    assert found.columns == ["submit_time", "user", "comment", "predicted_duration_s"]
    assert found["comment"].to_list() == ["z", "y", "x"]
    assert found["predicted_duration_s"].to_list() == [20.0, 20.0, 20.0]
    assert predict_frame(model, given, history=LOG.head(1))["predicted_duration_s"].to_list() == [10.0, 20.0, 10.0]


def test_an_old_prediction_is_replaced():
    model = make_predictor("global_median").fit(LOG)
    assert predict_frame(model, predict_frame(model, LOG)).columns == [*LOG.columns, "predicted_duration_s"]
