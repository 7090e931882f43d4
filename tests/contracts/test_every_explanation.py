"""What holds for explanations of every registered predictor."""

from __future__ import annotations

import json

import polars as pl
import pytest

from predictors import PREDICTORS, explain_job, permutation_importance
from predictors.explain_inputs import HISTORY_BLOCKS, INPUT_BLOCKS
from tests.contracts.test_every_predictor import HARD_LOGS, LOG, TEST, TRAIN, change_later, make

PLACES = (40, 159)


@pytest.fixture(scope="module", params=sorted(PREDICTORS))
def fitted(request):
    return make(request.param).fit(TRAIN)


@pytest.mark.parametrize(("at", "place"), [("submission", 40), ("start", 159)])
def test_it_explains_the_prediction_that_is_made(fitted, at, place):
    job = TEST[place : place + 1]
    why = explain_job(fitted, TEST, job["job_id"][0], history=LOG, at=at, most=1)
    expected = fitted.predict_quantiles(job, [0.1, 0.5, 0.9], history=LOG, at=at)[0]
    assert [why.low_s, why.predicted_s, why.high_s] == expected.tolist()
    assert json.loads(json.dumps(why.to_dict(), allow_nan=False))["model"] == fitted.name
    assert str(why).startswith(f"Job {job['job_id'][0]}, user ")
    weights = [voice.weight for voice in why.voices if voice.weight is not None]
    assert not weights or sum(weights) == pytest.approx(1)


def test_what_would_be_predicted_without_something_is_what_is_predicted_without_it(fitted):
    job = TEST.filter(pl.col("time_limit_s").is_not_null())[40:41]
    why = explain_job(fitted, TEST, job["job_id"][0], history=LOG)
    told = {one.what: one.predicted_s for one in why.counterfactuals}
    others = LOG.filter(pl.col("user") != job["user"][0])
    assert told["without the history of its owner"] == pytest.approx(fitted.predict(job, history=others)[0])
    assert told["without any history"] == pytest.approx(fitted.predict(job, history=LOG.clear())[0])
    for what, names in {
        "without the job's name": ["job_name"],
        "without its limit": ["time_limit_s"],
        "without its VC": ["vc"],
        "without its user's name": ["user"],
    }.items():
        blank = job.with_columns(pl.lit(None, job.schema[name]).alias(name) for name in names)
        assert told[what] == pytest.approx(fitted.predict(blank, history=LOG)[0]), what
    for past in why.like_jobs:
        less = LOG.filter(pl.col("job_id") != past.job_id)
        assert past.without_it_s == pytest.approx(fitted.predict(job, history=less)[0])
    for one in why.counterfactuals:
        assert one.factor == pytest.approx(why.predicted_s / one.predicted_s)


def test_the_jobs_shown_had_ended_before_and_are_in_the_log(fitted):
    for place in PLACES:
        job = TEST.row(place, named=True)
        why = explain_job(fitted, TEST, job["job_id"], history=LOG)
        for past in why.like_jobs:
            (row,) = LOG.filter(pl.col("job_id") == past.job_id).iter_rows(named=True)
            assert row["end_time"] < job["submit_time"]
            assert row["duration_s"] == past.duration_s
            assert row["status"] != "failed"
            assert past.ended_ago_s == (job["submit_time"] - row["end_time"]).total_seconds()


def test_nothing_that_had_not_ended_is_in_it(fitted):
    for place in PLACES[:1]:
        job = TEST[place : place + 1]
        expected = explain_job(fitted, job, job["job_id"][0], history=LOG)
        changed = change_later(LOG, at=job["submit_time"][0])
        assert explain_job(fitted, job, job["job_id"][0], history=changed) == expected
        shuffled = LOG.sample(fraction=1, shuffle=True, seed=4)
        assert explain_job(fitted, TEST.reverse(), job["job_id"][0], history=shuffled) == expected


@pytest.mark.parametrize("case", ["all_censored", "only_times_and_durations"])
def test_hard_logs_are_explained(fitted, case):
    model = make(fitted.name).fit(HARD_LOGS[case])
    for rows in (TEST, TEST.select("submit_time")):
        job_id = TEST["job_id"][3] if "job_id" in rows.columns else "4"
        why = explain_job(model, rows, job_id, most=0)
        assert why.predicted_s == model.predict(rows)[3]
        assert str(why)
    nowhere = TEST.head(1).with_columns(submit_time=pl.lit(None, TEST.schema["submit_time"]))
    why = explain_job(model, nowhere, TEST["job_id"][0])
    assert (why.asked_time, why.like_jobs) == (None, [])
    assert "at an unknown time" in str(why)


def test_importance_is_measured_for_every_predictor(fitted):
    window = TEST.head(30)
    table = permutation_importance(fitted, window, history=LOG, num_repeats=1)
    told = table.filter(pl.col("importance").is_not_null())
    assert told.height >= 9
    assert told["importance"].is_finite().all()
    assert set(table["block"]) == {*INPUT_BLOCKS, "hour", *HISTORY_BLOCKS}
    # What had not ended when the last of these jobs came does not show.
    changed = change_later(LOG.filter(~pl.col("job_id").is_in(window["job_id"])), at=window["submit_time"].max())
    kept = pl.concat([changed, LOG.filter(pl.col("job_id").is_in(window["job_id"]))])
    assert permutation_importance(fitted, window, history=kept, num_repeats=1).equals(table)
