"""The allow-list, clock features, and categories."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from analysis import schema
from analysis.errors import UsageError
from predictors import make_predictor
from predictors.features import (
    DEFAULT_FEATURES,
    NUMBER_FEATURES,
    SUBMISSION_COLUMNS,
    category_codes,
    check_features,
    feature_table,
    features_with_values,
    fit_categories,
)
from predictors.history import ended_jobs

ROW = pl.DataFrame({"submit_time": [datetime(2024, 3, 10, 7, 30, tzinfo=UTC)], "num_gpus": [2.0]})
NOTHING = ended_jobs(ROW)


def test_d83_columns_known_only_at_the_end_are_refused_by_name():
    """Pitfall D83: all four leaks are listed, and nothing else is."""
    with pytest.raises(UsageError, match=r"4 of 5 names would leak") as error:
        check_features(["end_time", "status", "num_gpus", "gpu_util", "group_dur"])
    told = str(error.value).split("Allowed are")[0]
    for leak in ("'end_time' is known only", "'status' is known only", "'gpu_util' is not on", "'group_dur' is not on"):
        assert leak in told
    assert "'num_gpus'" not in told


@pytest.mark.parametrize("name", sorted((set(schema.JOBS) | set(schema.USAGE)) - set(SUBMISSION_COLUMNS)))
def test_every_column_of_the_schema_is_known_at_submission_or_refused(name):
    with pytest.raises(UsageError, match=name):
        check_features([name])


def test_a_model_refuses_leaks_before_it_learns():
    log = pl.DataFrame({"submit_time": ROW["submit_time"], "duration_s": [5.0]})
    with pytest.raises(UsageError, match="'duration_s' is known only"):
        make_predictor("boosted", features=["hour", "duration_s"]).fit(log)


def test_defaults_pass_their_own_list_and_leave_allocated_nodes_out():
    assert check_features(DEFAULT_FEATURES) == DEFAULT_FEATURES
    assert "num_nodes" not in DEFAULT_FEATURES
    assert check_features(["num_nodes"]) == ("num_nodes",)


@pytest.mark.parametrize(
    ("zone", "hour", "weekday"),
    [("UTC", 7, 6), ("America/Los_Angeles", 23, 5), ("Asia/Shanghai", 15, 6)],  # Sunday, 10 March 2024
)
def test_hour_and_weekday_are_those_of_the_trace(zone, hour, weekday):
    found = feature_table(ROW, past=NOTHING, names=["weekday", "hour"], time_zone=zone)
    assert found.row(0) == (weekday, hour)


def test_columns_come_in_the_order_asked_for():
    names = ["vc__last", "hour", "user__count", "num_gpus", "vc__count"]
    assert feature_table(ROW, past=NOTHING, names=names).columns == names
    assert feature_table(ROW, past=NOTHING, names=NUMBER_FEATURES).columns == list(NUMBER_FEATURES)


def test_a_time_zone_that_does_not_exist_is_one_sentence():
    with pytest.raises(UsageError, match="found 'Mars/Olympus'; expected an IANA name"):
        feature_table(ROW, past=NOTHING, names=["hour"], time_zone="Mars/Olympus")


def test_keys_that_are_null_throughout_are_dropped():
    table = pl.DataFrame({"a": [None, None], "b": [1.0, None], "c": [2.0, 2.0], "d": [1.0, 2.0]})
    assert features_with_values(table) == ["b", "d"]
    rare = pl.DataFrame({"rare": [1.0, *[None] * 2000], "less_rare": [1.0, 2.0, 3.0, *[None] * 1998]})
    assert features_with_values(rare) == ["less_rare"]


def test_categories_are_bounded_ordered_by_duration_and_back_off_to_null():
    names = ["slow"] * 30 + ["fast"] * 25 + ["middle"] * 20 + ["rare"] * 19
    logs = [9.0] * 30 + [1.0] * 25 + [5.0] * 20 + [7.0] * 19
    codes = fit_categories(pl.Series(names), log_duration=pl.Series(logs))
    assert codes == {"fast": 0.0, "middle": 1.0, "slow": 2.0}
    assert fit_categories(pl.Series(names), log_duration=pl.Series(logs), most=2) == {"fast": 0.0, "slow": 1.0}
    assert category_codes(pl.Series(["slow", "rare", "new", None]), codes).to_list() == [2.0, None, None, None]
    assert category_codes(pl.Series(["slow"]), {}).to_list() == [None]
