"""The backtest's protocol, by hand on small logs and against published figures on Philly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone

from analysis.errors import UnknownNameError, UsageError
from analysis.loaders import load
from predictors import (
    DEFAULT_MODEL,
    DEFAULT_MODELS,
    PREDICTORS,
    SCORES,
    backtest,
    compare_splits,
    make_predictor,
    score_all,
    training_view,
)

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
    assert DEFAULT_MODELS[0] == DEFAULT_MODEL == "guarded"
    assert set(DEFAULT_MODELS) <= set(PREDICTORS) - {"boosted_lightgbm"}


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


def many_jobs(num_jobs: int = 600, *, days: int = 60, seed: int = 0) -> pl.DataFrame:
    """Jobs of ten users who repeat themselves, some in batches of one minute; all have ended but the last few."""
    rng = np.random.default_rng(seed)
    hour = np.sort(rng.integers(0, days * 24, num_jobs)).astype(float)
    hour[1::7] = hour[0::7][: len(hour[1::7])]
    user = rng.integers(0, 10, num_jobs)
    user[1::7] = user[0::7][: len(user[1::7])]
    length = np.ceil(np.exp(4 + user / 2 + rng.normal(0, 0.7, num_jobs)))
    start = [at(h + 0.5) for h in hour]
    return pl.DataFrame(
        {
            "job_id": [str(i) for i in range(num_jobs)],
            "user": [f"u{u}" for u in user],
            "vc": ["v"] * num_jobs,
            "submit_time": [at(h) for h in hour],
            "start_time": start,
            "end_time": [t + timedelta(seconds=float(d)) for t, d in zip(start, length, strict=True)],
            "num_gpus": np.where(user % 2, 1.0, 8.0),
            "duration_s": length,
            "status": np.where(rng.random(num_jobs) < 0.9, "completed", "failed"),
        }
    )


MANY = many_jobs()
NAMES = ["user_median", "global_median", "last_two"]
RESULT = backtest(MANY, models=NAMES)


@pytest.mark.parametrize("moment", ["submission", "start"])
@pytest.mark.parametrize("name", ["user_median", "boosted"])
def test_without_refits_it_is_what_predict_and_predict_quantiles_say(name, moment):
    model = make_predictor(name)
    if name == "boosted":
        model.set_params(num_trees=10)
    result = backtest(MANY, models={"m": model}, at=moment)
    test = MANY.filter(pl.col("submit_time") >= result.cutoff)
    fitted = clone(model).fit(training_view(MANY, cutoff=result.cutoff))
    found = result.predictions
    assert found["job_id"].to_list() == test["job_id"].to_list()
    said = fitted.predict_quantiles(test, [0.1, 0.5, 0.9], history=MANY, at=moment)
    assert np.array_equal(found["predicted_duration_s__m"], fitted.predict(test, history=MANY, at=moment))
    assert found["predicted_p10_s__m"].to_numpy() == pytest.approx(said[:, 0])
    assert found["predicted_p90_s__m"].to_numpy() == pytest.approx(said[:, 2])


@pytest.mark.parametrize(("refit", "days"), [("daily", 1), ("weekly", 7)])
def test_refits_learn_what_had_ended_by_then(refit, days):
    """The global median of each period is that of the durations known when it began."""
    result = backtest(MANY, models=["global_median"], refit=refit)
    span = MANY["submit_time"][-1] - result.cutoff
    assert result.scores["num_fits"][0] == span // timedelta(days=days) + 1
    completed = MANY.filter(pl.col("status") == "completed")
    for submit, said in result.predictions.select("submit_time", "predicted_duration_s__global_median").iter_rows():
        begin = result.cutoff + (submit - result.cutoff) // timedelta(days=days) * timedelta(days=days)
        assert said == completed.filter(pl.col("end_time") < begin)["duration_s"].median()


def test_scores_by_group_are_those_of_the_jobs_of_the_group():
    predictions = RESULT.predictions
    assert set(RESULT.by["grouping"]) == {"window", "size", "user_age", "status"}
    for row in RESULT.by.filter(pl.col("model") == "last_two").to_dicts():
        column = {"size": "size_class"}.get(row["grouping"], row["grouping"])
        part = predictions.filter(pl.col(column) == row["value"])
        assert row["num_test"] == part.height
        expected = score_all(part["predicted_duration_s__last_two"], part["duration_s"])
        assert row["log_mae"] == pytest.approx(expected["log_mae"])
        inside = part["duration_s"].is_between(part["predicted_p10_s__last_two"], part["predicted_p90_s__last_two"])
        assert row["coverage"] == pytest.approx(inside.mean())
    assert set(predictions["size_class"]) == {"GPUs 1", "GPUs 5-8"}
    weeks = predictions.group_by("window").agg(pl.col("submit_time").min(), last=pl.col("submit_time").max())
    assert all(str(first.date()) >= name and (last - first) < timedelta(days=7) for name, first, last in weeks.rows())


def test_the_age_of_a_user_is_the_number_of_jobs_that_had_ended():
    for job_id, age in RESULT.predictions.select("job_id", "user_age").sample(40, seed=1).iter_rows():
        job = MANY.filter(pl.col("job_id") == job_id).row(0, named=True)
        count = MANY.filter((pl.col("user") == job["user"]) & (pl.col("end_time") < job["submit_time"])).height
        bounds = {"0": (0, 0), "1-4": (1, 4), "5-19": (5, 19), "20-99": (20, 99), "100+": (100, 10**9)}[age]
        assert bounds[0] <= count <= bounds[1]


def test_a_batch_weighs_as_much_as_a_single_job():
    """Four jobs of one user, request and minute are one; the fifth, a minute later, is another."""
    jobs = ten_jobs().with_columns(
        submit_time=pl.Series([at(i) for i in range(5)] + [at(9) + timedelta(seconds=s) for s in (0, 5, 10, 59, 60)])
    )
    result = backtest(jobs, models=["global_median"], split=0.5)
    row = result.scores.row(0, named=True)
    assert (row["num_test"], row["num_batches"]) == (5, 2)
    errors = abs(np.log1p(30.0) - np.log1p([60.0, 70.0, 80.0, 90.0, 100.0]))
    assert row["log_mae"] == pytest.approx(errors.mean())
    assert row["log_mae_batch"] == pytest.approx((errors[:4].mean() + errors[4]) / 2)
    assert row["effective_owners"] == pytest.approx(1.0)


def test_differences_have_intervals_and_a_plain_verdict():
    table = RESULT.differences
    assert table.select("model", "other").rows() == [
        ("user_median", "last_two"),
        ("user_median", "global_median"),
        ("last_two", "global_median"),
    ]
    by_name = {row["model"]: row["log_mae"] for row in RESULT.scores.to_dicts()}
    for row in table.to_dicts():
        assert row["log_mae_difference"] == pytest.approx(by_name[row["model"]] - by_name[row["other"]])
        assert row["days_low"] < row["log_mae_difference"] < row["days_high"]
        assert row["users_low"] < row["log_mae_difference"] < row["users_high"]
    assert table.filter(pl.col("other") == "global_median")["verdict"].to_list() == ["better", "better"]
    twin = {"one": make_predictor("last_two"), "two": make_predictor("last_two")}
    assert backtest(MANY, models=twin).differences["verdict"].to_list() == ["no difference seen"]


def test_the_curve_is_the_share_of_jobs_below_each_quantile():
    curve = RESULT.curve.filter(pl.col("model") == "user_median")
    shares = dict(curve.select("level", "observed").rows())
    found = RESULT.predictions
    assert shares[0.1] == pytest.approx((found["duration_s"] <= found["predicted_p10_s__user_median"]).mean())
    assert shares[0.5] == pytest.approx((found["duration_s"] <= found["predicted_duration_s__user_median"]).mean())
    assert curve["observed"].is_sorted()
    assert abs(shares[0.9] - 0.9) < 0.07


def test_jobs_known_only_from_below_count_in_the_index_of_concordance():
    """Tested are a 10, b 90, a 10 and one that has run for 90 s so far: it outran all three, also the other 90."""
    jobs = ten_jobs().with_columns(
        user=pl.Series(["a", "b"] * 5),
        duration_s=pl.Series([10.0, 90.0] * 5),
        censoring=pl.Series(["none"] * 9 + ["right"]),
    )
    result = backtest(jobs, models=["last_two"])
    assert result.scores["num_test"][0] == 3
    # As b's it is predicted as 90 s: right against both of 10 s, a half against the one of 90 s.
    assert result.scores["c_index"][0] == pytest.approx((2 + 2 + 0.5) / 5)
    wrong = jobs.with_columns(user=pl.Series(["a", "b"] * 4 + ["a", "a"]))
    # As a's it is predicted as 10 s: a half against both of 10 s, wrong against the one of 90 s.
    assert backtest(wrong, models=["last_two"]).scores["c_index"][0] == pytest.approx((2 + 2 * 0.5) / 5)


def test_timings_are_apart_and_all_else_is_the_same_again():
    again = backtest(MANY.sample(fraction=1, shuffle=True, seed=2), models=NAMES)
    for name in ("scores", "predictions", "by", "differences", "curve"):
        assert getattr(again, name).equals(getattr(RESULT, name)), name
    assert RESULT.timings.columns == ["model", "fit_cpu_s", "predict_cpu_s", "predictions_per_cpu_s"]
    assert not any("cpu" in column for column in RESULT.scores.columns)


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ({"refit": "hourly"}, "no refit is named 'hourly' .known: daily, never, weekly"),
        ({"calibration": "magic"}, "no calibration is named 'magic'"),
        ({"splitt": 0.5}, "no option of a backtest is named 'splitt'.*'split'"),
        ({"by": ["colour"]}, "no grouping is named 'colour'"),
        ({"at": "noon"}, "no instant of asking is named 'noon'"),
    ],
)
def test_unknown_options_are_named(option, match):
    with pytest.raises(UnknownNameError, match=match):
        backtest(MANY, models=["global_median"], **option)


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
