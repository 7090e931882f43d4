"""QSSF's estimator: its rolling estimate worked out by hand, and its merge."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.errors import UsageError
from predictors import make_predictor

START = datetime(2024, 1, 1, tzinfo=UTC)


def table(rows: list[tuple]) -> pl.DataFrame:
    """Jobs of (hour, user, vc, name, GPUs, duration)."""
    names = ["hour", "user", "vc", "job_name", "num_gpus", "duration_s"]
    jobs = pl.DataFrame(rows, schema=names, orient="row")
    times = [START + timedelta(hours=hour) for hour in jobs["hour"]]
    return jobs.with_columns(submit_time=pl.Series(times)).drop("hour")


LOG = table(
    [
        (0, "ann", "v", "train_resnet_1", 1.0, 99.0),
        (1, "ann", "v", "train_resnet_2", 1.0, 399.0),
        (2, "ann", "v", "convert data", 8.0, 50.0),
        (3, "bob", "v", "x", 4.0, 1000.0),
        (4, "bob", "w", "x", 4.0, 3000.0),
    ]
)
ASKED = table(
    [
        (10, "ann", "v", "train_resnet_3", 1.0, None),  # a similar name: the moving average of its logarithms
        (10, "ann", "v", "something else", 8.0, None),  # no such name: the user's jobs of that size
        (10, "eve", "v", "train_resnet_3", 4.0, None),  # a new user: the VC's jobs of that size
        (10, "eve", "u", "train_resnet_3", 4.0, None),  # a new VC as well: all
    ]
).with_columns(pl.col("duration_s").cast(pl.Float64))


def test_the_rolling_estimate_alone():
    model = make_predictor("qssf", weight=1.0).fit(LOG)
    newest = np.expm1(0.8 * np.log(100) + 0.2 * np.log(400))
    everybody = (99 + 399 + 50 + 1000 + 3000) / 5
    assert model.predict(ASKED).tolist() == pytest.approx([newest, 50.0, 1000.0, everybody])


def test_it_is_merged_with_the_trees_in_seconds():
    rolling, trees = (make_predictor("qssf", weight=w).fit(LOG).predict(ASKED) for w in (1.0, 0.0))
    assert make_predictor("qssf", weight=0.25).fit(LOG).predict(ASKED) == pytest.approx(0.25 * rolling + 0.75 * trees)


def test_a_weight_beyond_one_is_refused():
    with pytest.raises(UsageError, match="weight is 1.5; expected a number from 0 to 1"):
        make_predictor("qssf", weight=1.5).fit(LOG)
