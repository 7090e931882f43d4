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


ADDED = ["predicted_duration_s", "predicted_p10_s", "predicted_p50_s", "predicted_p90_s"]


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_rows_and_columns_stay_and_predictions_are_added(kind):
    model = make_predictor("user_median").fit(LOG)
    rows = LOG.with_columns(pl.col("submit_time").dt.offset_by("1d")).drop("duration_s").reverse()
    given = rows if kind == "polars" else rows.to_pandas()
    found = predict_frame(model, given)
    assert found.columns == ["submit_time", "user", "comment", *ADDED]
    assert found["comment"].to_list() == ["z", "y", "x"]
    assert found["predicted_duration_s"].to_list() == [20.0, 20.0, 20.0]
    assert found["predicted_p50_s"].to_list() == pytest.approx([20.0, 20.0, 20.0])
    assert (found["predicted_p10_s"] < found["predicted_p50_s"]).all()
    assert (found["predicted_p50_s"] < found["predicted_p90_s"]).all()
    assert predict_frame(model, given, history=LOG.head(1))["predicted_duration_s"].to_list() == [10.0, 20.0, 10.0]


def test_without_quantiles_one_column_is_added_and_it_is_the_same():
    model = make_predictor("user_median").fit(LOG)
    quick = predict_frame(model, LOG, quantiles=())
    assert quick.columns == [*LOG.columns, "predicted_duration_s"]
    assert quick.equals(predict_frame(model, LOG).select(quick.columns))
    assert predict_frame(model, LOG, quantiles=[0.995]).columns[-1] == "predicted_p99_5_s"


def test_an_old_prediction_is_replaced():
    model = make_predictor("global_median").fit(LOG)
    assert predict_frame(model, predict_frame(model, LOG)).columns == [*LOG.columns, *ADDED]


def test_asked_again_at_the_start_what_ended_while_it_waited_is_known():
    log = LOG.with_columns(user=pl.lit("a"), end_time=pl.col("submit_time") + pl.duration(seconds=pl.col("duration_s")))
    model = make_predictor("last_two").fit(log.head(1))
    job = (
        log.tail(1)
        .with_columns(submit_time=pl.lit(START), start_time=pl.lit(START + timedelta(hours=9)))
        .drop("end_time")
    )
    # At its submission nothing had ended: the training median.
    assert predict_frame(model, job, history=log)["predicted_duration_s"].to_list() == [10.0]
    assert predict_frame(model, job, history=log, at="start")["predicted_duration_s"].to_list() == [25.0]
    later = job.with_columns(now=pl.lit(START + timedelta(hours=1, minutes=1)))
    assert predict_frame(model, later, history=log, at="now")["predicted_duration_s"].to_list() == [15.0]
