"""The backtest's protocol, by hand on small logs and against published figures on Philly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis.errors import UnknownNameError, UsageError
from analysis.loaders import load
from predictors import DEFAULT_MODELS, PREDICTORS, SCORES, backtest, compare_splits, make_predictor

START = datetime(2024, 1, 1, tzinfo=UTC)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def ten_jobs() -> pl.DataFrame:
    """Jobs of 10, 20 … 100 s, one an hour."""
    return pl.DataFrame(
        {
            "job_id": [str(i) for i in range(10)],
            "submit_time": [at(i) for i in range(10)],
            "duration_s": [10.0 * (i + 1) for i in range(10)],
            "num_gpus": [1.0] * 10,
            "vc": ["v"] * 10,
        }
    )


def test_the_cutoff_is_the_submission_of_the_job_at_the_split():
    result = backtest(ten_jobs(), models=["global_median", "vc_median", "last_two"])
    assert result.cutoff == at(6)
    assert result.predictions["job_id"].to_list() == ["6", "7", "8", "9"]
    assert result.predictions["duration_s"].to_list() == [70.0, 80.0, 90.0, 100.0]
    # Learned from 10 … 60; the history goes on in the test part.
    assert result.predictions["predicted_duration_s__global_median"].to_list() == [35.0] * 4
    assert result.predictions["predicted_duration_s__vc_median"].to_list() == [35.0, 40.0, 45.0, 50.0]
    assert result.predictions["predicted_duration_s__last_two"].to_list() == [55.0, 65.0, 75.0, 85.0]
    row = result.scores.row(2, named=True)
    assert (row["model"], row["num_train"], row["num_test"], row["mae_s"]) == ("last_two", 6, 4, 15.0)
    assert result.end_is_proxy
    assert "The log has no end times" in result.notes[0]


def test_a_tie_at_the_cutoff_goes_to_the_test_part_as_a_whole():
    jobs = ten_jobs().with_columns(submit_time=pl.Series([at(min(i, 5)) for i in range(10)]))
    assert backtest(jobs, models=["global_median"]).scores.row(0, named=True)["num_test"] == 5


def test_jobs_still_running_at_the_cutoff_are_censored_and_unknown_ones_not_scored():
    jobs = ten_jobs().with_columns(duration_s=pl.Series([10.0, 20.0, 9e4, 40.0, 50.0, 60.0, 70.0, None, 90.0, 100.0]))
    result = backtest(jobs, models=["global_median"])
    row = result.scores.row(0, named=True)
    assert (row["num_train"], row["num_censored"], row["num_test"]) == (5, 1, 3)
    assert any("1 later jobs without a fully known duration" in note for note in result.notes)


def test_cpu_jobs_are_left_out_and_counted_unless_wanted():
    jobs = ten_jobs().with_columns(num_gpus=pl.Series([0.0, None, *[1.0] * 8]))
    result = backtest(jobs, models=["global_median"])
    assert any("2 jobs without GPUs" in note for note in result.notes)
    assert result.scores["num_train"][0] == 4
    assert backtest(jobs, models=["global_median"], gpu_jobs_only=False).scores["num_train"][0] == 6
    with pytest.raises(UsageError, match="none of 10 rows can be used.*gpu_jobs_only=False"):
        backtest(ten_jobs().with_columns(num_gpus=0.0), models=["global_median"])


def test_completed_jobs_are_scored_apart_and_statuses_change_nothing_else():
    status = ["completed"] * 8 + ["failed", "completed"]
    result = backtest(ten_jobs().with_columns(status=pl.Series(status)), models=["global_median"])
    row = result.scores.row(0, named=True)
    assert (row["num_test"], row["num_test_completed"]) == (4, 3)
    assert row["log_mae_completed"] != row["log_mae"]


def test_same_result_whatever_the_row_order():
    one = backtest(ten_jobs(), models=["boosted", "vc_median"])
    two = backtest(ten_jobs().sample(fraction=1, shuffle=True, seed=1), models=["boosted", "vc_median"])
    assert one.scores.equals(two.scores)
    assert one.predictions.equals(two.predictions)


def test_models_given_as_objects_are_cloned_and_named():
    model = make_predictor("vc_median", failures="keep")
    result = backtest(ten_jobs(), models={"kept": model, "left_out": make_predictor("vc_median")})
    assert result.scores["model"].to_list() == ["kept", "left_out"]
    assert not hasattr(model, "past_")
    with pytest.raises(UsageError, match="vc_median is given twice"):
        backtest(ten_jobs(), models=["vc_median", model])


def test_zone_seed_and_progress_reach_the_models():
    told: list[str] = []
    with pytest.raises(UsageError, match="'Nowhere/Land'"):
        backtest(ten_jobs(), models=["vc_median", "boosted"], time_zone="Nowhere/Land", progress=told.append)
    assert told == ["vc_median", "boosted"]


@pytest.mark.parametrize("split", [0, 1, -0.1, 7])
def test_a_split_outside_of_0_and_1_is_refused(split):
    with pytest.raises(UsageError, match="expected a share between 0 and 1"):
        backtest(ten_jobs(), models=["vc_median"], split=split)


@pytest.mark.parametrize("models", [[], "vc_median", {}])
def test_no_models_are_refused(models):
    with pytest.raises(UsageError, match="expected a list of names or predictors"):
        backtest(ten_jobs(), models=models)


def test_an_unknown_model_is_named():
    with pytest.raises(UnknownNameError, match="'oracle'"):
        backtest(ten_jobs(), models=["oracle"])


def test_nothing_to_test_is_one_sentence():
    jobs = ten_jobs().with_columns(duration_s=pl.when(pl.col("submit_time") < at(6)).then("duration_s"))
    with pytest.raises(UsageError, match="none of the 4 jobs from .* has a known duration"):
        backtest(jobs, models=["vc_median"])


def test_defaults_are_registered_and_need_no_extra():
    assert set(DEFAULT_MODELS) == set(PREDICTORS) - {"boosted_lightgbm"}


def test_d94_the_default_split_is_by_time_and_both_errors_are_reported():
    """Pitfall D94: of 10 jobs at 0.8, 0-7 teach and 8 and 9 are tested; both splits' errors stand side by side."""
    result = backtest(ten_jobs(), models=["global_median"], split=0.8)
    assert result.predictions["job_id"].to_list() == ["8", "9"]
    both = compare_splits(ten_jobs(), models=["global_median", "vc_median"], split=0.8)
    assert both.select("model", "split", "num_test").rows() == [
        ("global_median", "time", 2),
        ("global_median", "random", 2),
        ("vc_median", "time", 2),
        ("vc_median", "random", 2),
    ]
    assert both["log_mae"][0] == result.scores["log_mae"][0]
    assert both.equals(compare_splits(ten_jobs().reverse(), models=["global_median", "vc_median"], split=0.8))
    assert set(SCORES) < set(both.columns)


@pytest.mark.full_trace
def test_philly_gives_the_published_counts_and_errors(real_data):
    """Counts are exact; baselines were measured elsewhere by other code; the boosted model has a goal."""
    trace = load("sia_philly", real_data("philly/philly_jobs.csv.gz"))
    models = ["global_median", "vc_median", "vc_gpus_median", "last_two", "boosted"]
    result = backtest(trace.jobs, models=models, time_zone=trace.meta.time_zone)
    scores = {row["model"]: row for row in result.scores.to_dicts()}
    assert {(row["num_train"], row["num_test"]) for row in scores.values()} == {(49_119, 32_901)}
    assert result.end_is_proxy
    assert scores["global_median"]["log_mae"] == pytest.approx(2.125, abs=0.001)
    assert scores["global_median"]["log_rmse"] == pytest.approx(2.50, abs=0.01)
    assert scores["global_median"]["mae_s"] == pytest.approx(14_049, abs=1)
    assert scores["vc_median"]["log_mae"] == pytest.approx(1.178, abs=0.01)
    assert scores["vc_gpus_median"]["log_mae"] == pytest.approx(1.098, abs=0.01)
    assert scores["last_two"]["log_mae"] == pytest.approx(1.511, abs=0.001)
    assert scores["vc_gpus_median"]["within_2x"] == pytest.approx(0.61, abs=0.01)
    assert scores["vc_gpus_median"]["spearman"] == pytest.approx(0.70, abs=0.01)
    assert scores["boosted"]["log_mae"] <= 1.10
    assert scores["boosted"]["spearman"] >= 0.72


@pytest.mark.full_trace
def test_kth_gives_the_published_counts_and_errors(real_data):
    """Another log, with users and limits, and without GPUs; there all ended jobs taught, however they ended."""
    trace = load("swf", real_data("swf/KTH-SP2-1996-2.swf.gz"))
    names = ["global_median", "requested_limit", "last_two", "boosted"]
    models = {name: make_predictor(name, failures="keep") for name in names}
    result = backtest(trace.jobs, models=models, gpu_jobs_only=False)
    scores = {row["model"]: row for row in result.scores.to_dicts()}
    assert {(row["num_train"], row["num_test"]) for row in scores.values()} == {(17_072, 11_396)}
    assert not result.end_is_proxy
    assert scores["global_median"]["log_mae"] == pytest.approx(2.574, abs=0.001)
    assert scores["requested_limit"]["log_mae"] == pytest.approx(1.498, abs=0.001)
    assert scores["last_two"]["log_mae"] == pytest.approx(1.244, abs=0.001)
    assert scores["boosted"]["log_mae"] <= 1.05
