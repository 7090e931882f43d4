"""The additive model: its curves are what interpret itself would say, and what the durations are made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.errors import UnknownNameError
from predictors import load_model, make_predictor, save_model
from predictors.boosted import _matrix

glassbox = pytest.importorskip("interpret.glassbox")
FEATURES = ["num_gpus", "mem_gib", "vc"]


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    """log(1 + s) = 4 + log2(GPUs) + (2 where the memory is not told) + noise."""
    rng = np.random.default_rng(0)
    num_jobs = 2000
    gpus = rng.choice([1.0, 2.0, 4.0, 8.0], num_jobs)
    has_memory = rng.random(num_jobs) < 0.7
    log_s = 4 + np.log2(gpus) + 2 * ~has_memory + rng.normal(0, 0.3, num_jobs)
    return pl.DataFrame(
        {
            "submit_time": [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=int(i)) for i in range(num_jobs)],
            "num_gpus": gpus,
            "mem_gib": np.where(has_memory, rng.uniform(1, 64, num_jobs), np.nan),
            "vc": rng.choice(["a", "b"], num_jobs),
            "duration_s": np.expm1(log_s),
        }
    )


@pytest.fixture(scope="module")
def model(log):
    return make_predictor("additive", features=FEATURES).fit(log)


def test_curves_are_the_law(model):
    gpus = model.curve("num_gpus").drop_nulls("adds").filter(pl.col("from").is_not_null() | pl.col("to").is_not_null())
    assert np.diff(gpus["adds"]) == pytest.approx([1, 1, 1], abs=0.1)
    memory = model.curve("mem_gib")
    assert memory.row(0)[:2] == (None, None)
    assert memory["adds"][0] - memory["adds"][1:].mean() == pytest.approx(2, abs=0.15)
    assert model.curve("vc")["adds"][1:].abs().max() < 0.1


def test_a_prediction_is_the_sum_that_interpret_makes(model, log):
    table = _matrix(model._table(log, model.past_))
    judge = glassbox.ExplainableBoostingRegressor(
        interactions=0,
        outer_bags=1,
        validation_size=0,
        max_rounds=300,
        max_bins=256,
        learning_rate=0.05,
        greedy_ratio=0,
        smoothing_rounds=0,
        feature_types=["continuous"] * 3,
        n_jobs=1,
        random_state=0,
    )
    with pytest.warns(UserWarning, match="Missing values"):
        judge.fit(table, np.log1p(log["duration_s"].to_numpy()))
    assert np.log1p(model.predict(log)) == pytest.approx(judge.predict(table), abs=5e-5)  # heights are rounded


def test_it_is_stored_in_the_manifest_alone(model, log, tmp_path):
    folder = save_model(model, tmp_path / "model")
    assert {file.name for file in folder.iterdir()} == {"manifest.json", "history.parquet", "scores.parquet"}
    assert np.array_equal(load_model(folder).predict(log), model.predict(log))


def test_an_unknown_curve_lists_the_known(model):
    with pytest.raises(UnknownNameError, match="num_gpus"):
        model.curve("colour")
