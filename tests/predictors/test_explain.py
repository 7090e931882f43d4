"""Why a job is predicted as it is: against hand-worked cases, and against what is predicted without something."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

from analysis.errors import UsageError
from predictors import explain_job, make_predictor, training_view
from predictors.explain_voices import expert_weights
from predictors.mixing import Losses
from tests.contracts.test_every_predictor import LOG, TEST, TRAIN

T0 = datetime(2024, 1, 1, tzinfo=UTC)


def small_log() -> pl.DataFrame:
    """Ann's jobs of one kind and of another, one that broke, one that ends too late, and Bob's."""
    #        id  user  name     gpus limit  start h, duration s, status
    rows = [
        ("1", "ann", "train-1", 8.0, 7200.0, 0, 600.0, "completed"),
        ("2", "ann", "train-2", 8.0, 7200.0, 1, 1200.0, "completed"),
        ("3", "ann", "eval", 1.0, None, 2, 30.0, "completed"),
        ("4", "ann", "train-3", 8.0, 7200.0, 3, 5.0, "failed"),
        ("5", "bob", "train-4", 8.0, 7200.0, 4, 9000.0, "completed"),
        ("6", "ann", "train-5", 8.0, 7200.0, 5, 7200.0, "timeout"),
        ("7", "ann", "train-6", 8.0, 7200.0, 9, 36_000.0, "completed"),
        ("8", "ann", "train-7", 8.0, 7200.0, 10, 77.0, "completed"),
    ]
    names = ["job_id", "user", "job_name", "num_gpus", "time_limit_s", "hour", "duration_s", "status"]
    table = pl.DataFrame(rows, schema=names, orient="row")
    begin = pl.lit(T0) + pl.duration(hours="hour")
    end = begin + pl.duration(seconds="duration_s")
    return table.with_columns(submit_time=begin, start_time=begin, end_time=end, vc=pl.lit("v")).drop("hour")


def test_the_like_jobs_are_those_that_the_history_really_has():
    log = small_log()
    model = make_predictor("boosted").fit(log.head(6))
    why = explain_job(model, log, "8", history=log)
    assert why.shares == "same owner, name, size and limit"
    # Job 4 broke and does not teach; job 7 still ran; job 8 is the job itself; 3 and 5 are of other kinds.
    assert [job.job_id for job in why.like_jobs] == ["6", "2", "1"]
    assert [job.duration_s for job in why.like_jobs] == [7200.0, 1200.0, 600.0]
    assert [job.ended_ago_s for job in why.like_jobs] == [3 * 3600, 9 * 3600 - 1200, 10 * 3600 - 600]
    assert [job.outcome for job in why.like_jobs] == ["killed", "ended", "ended"]
    levels = {one.shares: (one.num_jobs, one.median_s, one.last_s) for one in why.likenesses}
    assert levels["same owner, name, size and limit"] == (3, 1200.0, 7200.0)
    assert levels["same owner"] == (4, 900.0, 7200.0)
    assert "same group" not in levels  # it has none
    assert levels["all jobs"] == (5, 1200.0, 7200.0)
    kept = explain_job(make_predictor("boosted", failures="keep").fit(log.head(6)), log, "8", history=log)
    assert [job.job_id for job in kept.like_jobs] == ["6", "4", "2", "1"]
    assert kept.like_jobs[1].outcome == "broke"
    assert [job.job_id for job in explain_job(model, log, "8", history=log, most=1).like_jobs] == ["6"]


def test_a_rule_shows_its_keys_and_what_each_says():
    log = small_log()
    why = explain_job(make_predictor("last_two").fit(log.head(6)), log, "8", history=log)
    # Ann's last two are jobs 6 and 3; the VC's are 6 and 5, above the limit.
    assert why.combined == "the first that says anything"
    said = [(voice.name, voice.says_s, voice.weight) for voice in why.voices]
    assert said == [("user__mean_2", 3615.0, 1.0), ("vc__mean_2", 7200.0, 0.0), ("training_median", 1200.0, 0.0)]
    assert why.predicted_s == 3615.0
    assert why.shares == "same user"
    assert {job.job_id: job.without_it_s for job in why.like_jobs} == {
        "6": 615.0,
        "3": 4200.0,
        "2": 3615.0,
        "1": 3615.0,
    }
    told = {one.what: one.predicted_s for one in why.counterfactuals}
    assert told["without the history of its owner"] == 7200.0  # Bob's job alone, cut at the limit
    assert told["without any history"] == 1200.0
    assert told["without its limit"] == 3615.0
    effects = [max(one.factor, 1 / one.factor) for one in why.counterfactuals]
    assert effects == sorted(effects, reverse=True)


@pytest.mark.parametrize("name", ["global_median", "requested_limit"])
def test_a_rule_that_looks_at_no_past_job_shows_none(name):
    log = small_log()
    why = explain_job(make_predictor(name).fit(log.head(6)), log, "8", history=log)
    assert (why.shares, why.like_jobs, why.likenesses) == (None, [], [])
    assert why.voices[0].weight == 1.0
    assert why.voices[0].says_s == why.predicted_s
    assert "It looks at no single past job." in str(why)


def weighted_median(values: list[float], weights: list[float]) -> float:
    """Least value at which half of the weight is reached, in plain Python."""
    reached = 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        reached += weight
        if reached >= 0.5 * sum(weights) - 1e-12:
            return value
    raise AssertionError


@pytest.mark.parametrize("at", ["submission", "start"])
def test_the_committee_is_the_weighted_median_of_its_experts(at):
    model = make_predictor("guarded").fit(TRAIN)
    for place in range(0, TEST.height, 40):
        why = explain_job(model, TEST, TEST["job_id"][place], history=LOG, at=at, most=0)
        assert why.combined == "weighted median"
        assert sum(voice.weight for voice in why.voices) == pytest.approx(1)
        assert [voice.weight for voice in why.voices] == sorted((v.weight for v in why.voices), reverse=True)
        said = [(voice.says_s, voice.weight) for voice in why.voices if voice.says_s is not None]
        assert len(said) >= 4
        assert weighted_median(*(list(part) for part in zip(*said, strict=True))) == pytest.approx(why.predicted_s)


def test_a_guard_that_chose_a_rule_says_so():
    model = make_predictor("guarded").fit(TRAIN)
    model.choice_ = dict.fromkeys(model.choice_, "user_median")
    why = explain_job(model, TEST, TEST["job_id"][0], history=LOG)
    ((name, says, weight),) = [(voice.name, voice.says_s, voice.weight) for voice in why.voices]
    assert (name, weight) == ("user_median", 1.0)
    assert says == pytest.approx(why.predicted_s)


def test_weights_of_experts_by_hand():
    """Two experts and one level above: losses 1 and 2, then 0 and 3 of the same batch, then one that ends too late."""
    said = np.array([[1.0, 2.0], [0.0, 3.0], [9.0, 0.0], [np.nan, 1.0]])
    losses = Losses(said, np.zeros(4), np.array([1, 2, 9, 3]), np.zeros((1, 4), dtype=np.int64), np.array([5, 5, 6, 6]))
    news = 2**-0.5
    faded = 0.999**news
    mean = (np.array([1.0, 2.0]) * faded + np.array([0.0, 3.0]) * news) / (faded + news + 1.0)
    assert expert_weights(losses, np.array([0]), at_us=9) == pytest.approx(np.exp(-1.5 * (mean - mean.min())))
    assert expert_weights(losses, np.array([-1]), at_us=9).tolist() == [1.0, 1.0]


def test_terms_of_the_additive_model_add_up_to_its_prediction():
    pytest.importorskip("interpret")
    model = make_predictor("additive", num_trees=15).fit(TRAIN)
    for job_id in TEST["job_id"][:20]:
        why = explain_job(model, TEST, job_id, history=LOG, most=0)
        total = np.expm1(sum(voice.adds for voice in why.voices))
        assert min(total, why.job["time_limit_s"] or np.inf) == pytest.approx(why.predicted_s)
    assert "It is the product of" in str(why)


def test_qssf_is_the_weighted_mean_of_its_two_parts():
    model = make_predictor("qssf", num_trees=15, weight=0.3).fit(TRAIN)
    why = explain_job(model, TEST, TEST["job_id"][5], history=LOG)
    rolling, trees = why.voices
    assert (rolling.weight, trees.weight) == (0.3, 0.7)
    mean = 0.3 * rolling.says_s + 0.7 * trees.says_s
    assert min(mean, why.job["time_limit_s"] or np.inf) == pytest.approx(why.predicted_s)


def test_the_owner_is_the_account_where_there_is_no_user():
    log = small_log().rename({"user": "account"})
    why = explain_job(make_predictor("guarded").fit(log.head(6)), log, "8", history=log)
    assert [job.job_id for job in why.like_jobs] == ["6", "2", "1"]
    others = make_predictor("guarded").fit(log.head(6))
    expected = others.predict(log.tail(1), history=log.filter(pl.col("account") != "ann"))
    told = {one.what: one.predicted_s for one in why.counterfactuals}
    assert told["without the history of its owner"] == expected[0]


def test_words_and_json_say_the_same():
    log = small_log()
    why = explain_job(make_predictor("last_two").fit(log.head(6)), log, "8", history=log)
    text = str(why)
    assert text.startswith("Job 8, user ann, VC v, name train-7, 8 GPUs, limit 2 h\n")
    assert "last_two, asked on 2024-01-01 10:00:00 UTC: 1 h; with 80 % probability between" in text
    assert "  6    2 h     3 h before" in text
    assert "without any history               20 min" in text
    found = json.loads(json.dumps(why.to_dict(), allow_nan=False))
    assert found["job"]["submit_time"] == "2024-01-01T10:00:00+00:00"
    assert found["asked_time"] == "2024-01-01T10:00:00+00:00"
    assert found["like_jobs"][0]["without_it_s"] == 615.0


def test_without_a_history_it_is_that_of_the_training_log():
    log = small_log()
    model = make_predictor("user_median").fit(training_view(log, cutoff=T0 + timedelta(hours=8)))
    job = log.tail(1)
    assert explain_job(model, job, "8") == explain_job(model, job, "8", history=log.head(6))


def test_what_cannot_be_explained_is_one_sentence():
    log = small_log()
    model = make_predictor("user_median").fit(log)
    with pytest.raises(UsageError, match=r"explain: no job of 8 with the id 'x'; .* \(ids there are 1, 2, 3, …\)\."):
        explain_job(model, log, "x")
    with pytest.raises(UsageError, match="explain: 2 jobs of 16 with the id '3'; expected exactly one"):
        explain_job(model, pl.concat([log, log]), "3")
    with pytest.raises(UsageError, match="the table has no rows"):
        explain_job(model, log.head(0), "3")
    with pytest.raises(UsageError, match="most is -1"):
        explain_job(model, log, "3", most=-1)
    with pytest.raises(NotFittedError):
        explain_job(make_predictor("user_median"), log, "3")
