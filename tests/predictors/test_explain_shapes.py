"""Shapes against laws that are known: what a rule does with the limit, what trees learned of size and hour."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.errors import UnknownNameError, UsageError
from predictors import PREDICTORS, make_predictor, shape_table
from tests.contracts.test_every_predictor import LOG, TEST, TRAIN, make

T0 = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    """Forty days; a job of 8 GPUs runs e times as long as one of 1, one at night twice as long as one by day."""
    rng = np.random.default_rng(0)
    hours = np.sort(rng.integers(0, 40 * 24, 1200))
    gpus = rng.choice([1.0, 8.0], 1200)
    night = (hours % 24) < 6
    log_s = 5 + (gpus == 8) + math.log(2) * night + rng.normal(0, 0.1, 1200)
    return pl.DataFrame(
        {
            "job_id": [str(i) for i in range(1200)],
            "user": [f"u{i % 5}" for i in range(1200)],
            "submit_time": [T0 + timedelta(hours=int(h)) for h in hours],
            "num_gpus": gpus,
            "duration_s": np.exp(log_s),
        }
    )


def curve(table: pl.DataFrame, name: str) -> dict[float, float]:
    return dict(table.filter(pl.col("input") == name).select("value", "effect").iter_rows())


def test_the_limit_as_a_prediction_has_the_shape_of_its_logarithm(log):
    limits = [60.0, 600.0, 6000.0, 60_000.0]
    jobs = log.with_columns(time_limit_s=pl.Series([limits[i % 4] for i in range(1200)]))
    model = make_predictor("requested_limit").fit(jobs)
    table = shape_table(model, jobs, inputs=["time_limit_s"])
    found = curve(table, "time_limit_s")
    rise = [math.log1p(limit) - math.log1p(60) for limit in limits]
    assert [found[limit] - found[60.0] for limit in limits] == pytest.approx(rise)
    assert table["num_jobs"].to_list() == [300] * 4
    assert table["method"].unique().to_list() == ["local effects"]
    assert (table["low"] <= table["effect"] + 1e-9).all()
    assert (table["high"] >= table["effect"] - 1e-9).all()


def test_trees_show_what_they_learned_of_size_and_hour(log):
    model = make_predictor("boosted", num_trees=60, features=["num_gpus", "hour"]).fit(log)
    table = shape_table(model, log)
    size = curve(table, "num_gpus")
    assert size[8.0] - size[1.0] == pytest.approx(1.0, abs=0.1)
    assert curve(table, "time_limit_s") == {}  # no job has one
    hour = curve(table, "hour")
    assert list(hour) == [float(h) for h in range(24)]
    assert hour[3.0] - hour[12.0] == pytest.approx(math.log(2), abs=0.1)
    assert hour[20.0] == pytest.approx(hour[12.0], abs=0.1)
    ends = table.filter((pl.col("input") == "hour") & (pl.col("value") == 12)).row(0, named=True)
    assert ends["high"] < 0


def test_the_clock_is_that_of_the_predictor(log):
    """Nights of UTC are evenings in New York: the same law, five hours earlier on its clocks."""
    model = make_predictor("boosted", num_trees=60, features=["hour", "num_gpus"], time_zone="America/New_York").fit(
        log
    )
    hour = curve(shape_table(model, log, inputs=["hour"]), "hour")
    assert hour[22.0] - hour[12.0] == pytest.approx(math.log(2), abs=0.1)
    assert hour[3.0] == pytest.approx(hour[12.0], abs=0.1)


def test_a_rule_without_a_clock_has_a_flat_hour(log):
    table = shape_table(make_predictor("user_median").fit(log), log, inputs=["hour"])
    assert set(table["effect"]) == {0.0}


def test_the_additive_model_shows_its_own_curve(log):
    pytest.importorskip("interpret")
    model = make_predictor("additive", num_trees=60).fit(log)
    table = shape_table(model, log)
    assert table["method"].unique().to_list() == ["curve"]
    size = table.filter(pl.col("input") == "num_gpus")
    own = model.curve("num_gpus")["adds"].to_list()[1:]
    assert size["effect"].to_list()[-1] - size["effect"].to_list()[0] == pytest.approx(own[-1] - own[0])
    assert size["num_jobs"].sum() == 1200
    assert size["num_jobs"].dot(size["effect"]) == pytest.approx(0, abs=1e-6)
    assert size["value"][0] == 1.0
    assert shape_table(model, log, inputs=["user__median_20"]).height > 2
    with pytest.raises(UnknownNameError, match="no feature of the model is named 'shoes'"):
        shape_table(model, log, inputs=["shoes"])


@pytest.mark.parametrize("name", sorted(PREDICTORS))
def test_every_predictor_has_shapes(name):
    model = make(name).fit(TRAIN)
    table = shape_table(model, TEST, history=LOG, most_jobs=100)
    assert table["effect"].is_finite().all()
    assert set(table["input"]) <= {"num_gpus", "hour", "time_limit_s"}
    assert table.height or name == "additive"
    shuffled = TEST.sample(fraction=1, shuffle=True, seed=1)
    assert shape_table(model, shuffled, history=LOG, most_jobs=100).equals(table)


def test_what_has_no_shape_is_one_sentence(log):
    model = make_predictor("user_median").fit(log)
    with pytest.raises(UnknownNameError, match="no input with a shape is named 'user'.*num_gpus"):
        shape_table(model, log, inputs=["user"])
    with pytest.raises(UsageError, match="none of 1,200 jobs has a fully known duration"):
        shape_table(model, log.drop("duration_s"))
    with pytest.raises(UsageError, match="most_jobs is 0"):
        shape_table(model, log, most_jobs=0)
