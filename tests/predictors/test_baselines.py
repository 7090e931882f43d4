"""Each rule on a log that can be worked out by eye."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from analysis.errors import UnknownNameError, UsageError
from predictors import PREDICTORS, DurationPredictor, make_predictor, predictor

START = datetime(2024, 1, 1, tzinfo=UTC)


def log(rows: list[tuple]) -> pl.DataFrame:
    """Jobs of (user, vc, GPUs, submitted at hour, duration in s)."""
    table = pl.DataFrame(rows, schema=["user", "vc", "num_gpus", "hour", "duration_s"], orient="row", strict=False)
    hours = pl.duration(minutes=(pl.col("hour") * 60).cast(pl.Int64))
    return table.with_columns(submit_time=pl.lit(START) + hours, duration_s=pl.col("duration_s").cast(pl.Float64))


TRAIN = log(
    [
        ("ann", "big", 1.0, 0, 100),
        ("ann", "big", 8.0, 1, 300),
        ("ann", "big", 1.0, 2, 500),
        ("bob", "big", 1.0, 3, 60),
        ("eve", "small", 1.0, 4, 7),
    ]
)


def say(name: str, user: str | None, vc: str | None, gpus: float | None, *, hour: float = 9) -> float:
    row = log([(user, vc, gpus, hour, None)])
    return float(make_predictor(name).fit(TRAIN).predict(row)[0])


@pytest.mark.parametrize(
    ("name", "user", "vc", "gpus", "expected"),
    [
        ("global_median", "ann", "big", 1.0, 100),  # of 7, 60, 100, 300, 500
        ("user_median", "ann", "small", 1.0, 300),
        ("user_median", "new", "big", 1.0, 200),  # no such user: the VC's 60, 100, 300, 500
        ("user_median", None, "nowhere", 1.0, 100),  # neither: the training median
        ("vc_median", "eve", "big", 1.0, 200),
        ("vc_median", "eve", None, 1.0, 100),
        ("vc_gpus_median", "eve", "big", 1.0, 100),  # 60, 100, 500
        ("vc_gpus_median", "eve", "big", 8.0, 300),
        ("vc_gpus_median", "eve", "big", 4.0, 200),  # no such size: the VC
        ("last_two", "ann", "small", 1.0, 400),  # mean of 300 and 500
        ("last_two", "eve", "small", 1.0, 7),  # there was only one
        ("last_two", "new", "big", 1.0, 280),  # the VC's last two ended: 500 and 60
    ],
)
def test_by_hand(name, user, vc, gpus, expected):
    assert say(name, user, vc, gpus) == expected


def test_the_past_is_what_had_ended_by_the_submission():
    # At 2:05 ann's third job, of 500 s from 2:00, still runs.
    assert say("user_median", "ann", "big", 1.0, hour=2 + 5 / 60) == 200  # 100 and 300
    assert say("user_median", "ann", "big", 1.0, hour=2 + 10 / 60) == 300
    assert say("user_median", "ann", "big", 1.0, hour=0) == 100  # nothing had ended: the training median


def test_requested_limit_and_its_fallback():
    rows = pl.DataFrame({"submit_time": [START] * 3, "time_limit_s": [3600.0, None, 0.2]})
    assert make_predictor("requested_limit").fit(TRAIN).predict(rows).tolist() == [3600.0, 100.0, 1.0]


def test_rules_of_the_past_stop_at_the_requested_limit():
    rows = log([("ann", "big", 1.0, 9, None)] * 2).with_columns(time_limit_s=pl.Series([60.0, None]))
    assert make_predictor("last_two").fit(TRAIN).predict(rows).tolist() == [60.0, 400.0]
    assert make_predictor("global_median").fit(TRAIN).predict(rows).tolist() == [100.0, 100.0]


def test_the_log_goes_on_through_history():
    rows = log([("ann", "big", 1.0, 99, None)])
    model = make_predictor("last_two").fit(TRAIN)
    later = pl.concat([TRAIN, log([("ann", "big", 1.0, 50, 900.0)])], how="vertical_relaxed")
    assert model.predict(rows)[0] == 400
    assert model.predict(rows, history=later)[0] == 700


def test_a_log_of_running_jobs_falls_back_to_the_median_of_lower_bounds():
    running = TRAIN.with_columns(censoring=pl.lit("right"))
    model = make_predictor("user_median").fit(running)
    assert model.predict(TRAIN).tolist() == [100.0] * 5
    assert (model.num_known_, model.num_censored_) == (0, 5)


def test_unknown_names_and_parameters_list_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"no predictor is named 'boosted_tree' .*Did you mean 'boosted'"):
        make_predictor("boosted_tree")
    with pytest.raises(UnknownNameError, match=r"parameter of predictor 'last_two' .*'depth' .known: failures"):
        make_predictor("last_two", depth=3)
    with pytest.raises(UsageError, match="failures is 'maybe'; expected 'exclude' or 'keep'"):
        make_predictor("last_two", failures="maybe").fit(TRAIN)


def test_a_registered_class_is_found_and_a_name_cannot_be_taken_twice():
    class Mine(DurationPredictor):
        pass

    with pytest.raises(ValueError, match="the name 'last_two' is taken by LastTwo"):
        predictor("last_two")(Mine)
    with pytest.raises(ValueError, match="lower-case letters"):
        predictor("Last Two")(Mine)
    assert "Last Two" not in PREDICTORS
