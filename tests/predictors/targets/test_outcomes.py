"""Probability of failure: labels and when they were known, nothing of the future, scores, calibration, odd input."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.metrics import log_loss as sklearn_log_loss

from analysis.errors import HindcastError, UnknownNameError, UsageError
from analysis.loaders import load
from predictors import training_view
from predictors.jobs_table import as_jobs
from predictors.targets import OUTCOMES, OutcomeProbability, OutcomeRate, backtest_outcome, outcomes_of
from predictors.targets.outcome_model import _pool
from predictors.targets.probability_scores import reliability, score_probabilities

DAY = datetime(2024, 3, 4, tzinfo=UTC)
MODELS = {"rate": OutcomeRate, "model": lambda **given: OutcomeProbability(num_trees=30, **given)}


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else DAY + timedelta(seconds=seconds)


def random_log(num: int, *, seed: int = 0) -> pl.DataFrame:
    """Jobs of users who fail more or less often; wide ones fail more, and those that fail mostly do so soon."""
    rng = np.random.default_rng(seed)
    submit = np.cumsum(rng.integers(0, 600, num))
    user, gpus = rng.integers(0, 6, num), rng.choice([1.0, 2.0, 8.0], num)
    fails = rng.random(num) < np.array([0.02, 0.05, 0.1, 0.3, 0.5, 0.8])[user] * np.where(gpus > 4, 1.0, 0.6)
    run = np.where(fails, rng.integers(1, 900, num), rng.integers(60, 20_000, num))
    wait = rng.integers(0, 3000, num)
    status = np.where(fails, "failed", np.where(rng.random(num) < 0.1, "cancelled", "completed"))
    return pl.DataFrame(
        {
            "job_id": [f"j{i:05}" for i in range(num)],
            "submit_time": [at(int(s)) for s in submit],
            "start_time": [at(int(s)) for s in submit + wait],
            "end_time": [at(int(s)) for s in submit + wait + run],
            "duration_s": run.astype(float),
            "num_gpus": gpus,
            "user": [f"u{u}" for u in user],
            "status": status,
        }
    )


def test_labels_and_when_they_became_known():
    log = pl.DataFrame(
        {
            "status": [
                "completed",
                "failed",
                "node_fail",
                "cancelled",
                "timeout",
                "failed",
                "unknown",
                "unknown",
                "running",
            ],
            "duration_s": [300.0, 300.0, 900.0, 100.0, 600.0, 601.0, 50.0, 5000.0, 700.0],
            "censoring": ["none"] * 8 + ["right"],
        }
    ).with_columns(submit_time=pl.lit(at(0)), start_time=pl.lit(at(10)))
    seconds = pl.duration(seconds=pl.col("duration_s"))
    log = log.with_columns(end_time=pl.when(pl.col("status") != "running").then(pl.col("start_time") + seconds))
    found = {name: outcomes_of(log, outcome=name) for name in OUTCOMES}
    assert found["failed"]["duration_s"].to_list() == [0, 1, 1, 0, 0, 1, None, None, None]
    assert found["killed"]["duration_s"].to_list() == [0, 0, 0, 1, 1, 0, None, None, None]
    # Within 600 s: who ran for longer did not end early, however the job ended, or runs on.
    assert found["ends_early"]["duration_s"].to_list() == [0, 1, 0, 1, 1, 0, None, 0, 0]
    assert found["failed"]["end_time"].to_list() == [
        *(at(10 + s) for s in (300, 300, 900, 100, 600, 601)),
        None,
        None,
        None,
    ]
    early = [at(10 + s) for s in (300, 300, 600, 100, 600, 600)]
    assert found["ends_early"]["end_time"].to_list() == [*early, None, at(610), at(610)]
    assert outcomes_of(log, outcome="ends_early", within_s=1000)["duration_s"].to_list() == [
        0,
        1,
        1,
        1,
        1,
        1,
        None,
        0,
        None,
    ]


def test_with_several_attempts_it_is_known_at_the_end():
    log = pl.DataFrame(
        {
            "submit_time": [at(0)],
            "start_time": [at(0)],
            "end_time": [at(9000)],
            "duration_s": [800.0],
            "num_attempts": [2],
        }
    )
    assert outcomes_of(log, outcome="ends_early").select("duration_s", "end_time").row(0) == (0.0, at(9000))


def test_a_job_that_runs_at_the_cutoff_is_not_one_that_did_not_fail():
    log = random_log(400)
    cutoff = log["submit_time"][250]
    view = training_view(log, cutoff=cutoff)
    running = (log["submit_time"] < cutoff) & (log["end_time"] >= cutoff)
    labels = outcomes_of(view)["duration_s"]
    assert running.sum() > 3
    assert labels.filter(running[: view.height]).null_count() == running.sum()
    known = log.filter(pl.col("end_time") < cutoff)
    assert OutcomeRate().fit(view).num_known_ == known.height
    assert OutcomeRate().fit(view).rate_ == pytest.approx(
        ((known["status"] == "failed").sum() + 1) / (known.height + 2)
    )


def test_the_users_rate_agrees_with_a_count():
    log = random_log(300, seed=1)
    model = OutcomeRate().fit(log)
    said = model.predict_probability(log)
    rows = log.to_dicts()
    for place in (0, 20, 150, 299):
        job = rows[place]
        mine = [r for r in rows if r["user"] == job["user"] and r["end_time"] < job["submit_time"]]
        last = sorted(mine, key=lambda r: (r["end_time"], r["submit_time"], r["job_id"]))[-20:]
        expected = (sum(r["status"] == "failed" for r in last) + 2 * model.rate_) / (len(last) + 2)
        assert said[place] == pytest.approx(expected)
    assert set(OutcomeRate(by_user=False).fit(log).predict_probability(log)) == {model.rate_}


@pytest.mark.parametrize("outcome", sorted(OUTCOMES))
@pytest.mark.parametrize("name", sorted(MODELS))
def test_nothing_of_the_future_shows(name, outcome):
    log = as_jobs(random_log(700, seed=2))
    cutoff = log["submit_time"][500]
    late = pl.col("end_time") >= cutoff
    moved = log.with_columns(
        status=pl.when(late).then(pl.lit("failed")).otherwise(pl.col("status").cast(pl.String)),
        end_time=pl.when(late).then(pl.col("end_time") + timedelta(days=3)).otherwise("end_time"),
        duration_s=pl.when(late).then(pl.col("duration_s") + 3 * 86400).otherwise("duration_s"),
    )
    # Labels of jobs that had not ended teach nothing.
    first, second = (MODELS[name](outcome=outcome).fit(training_view(each, cutoff=cutoff)) for each in (log, moved))
    asked = log[500:]
    np.testing.assert_array_equal(first.predict_probability(asked), second.predict_probability(asked))
    said = first.predict_probability(asked, history=log)
    assert len(set(said)) > 5
    for place in (0, 90, 199):
        # What ended at or after a submission does not show, nor what the job itself did.
        now = asked["submit_time"][place]
        seen = training_view(log, cutoff=now + timedelta(microseconds=1))
        one = asked[place]
        assert first.predict_probability(one, history=seen)[0] == said[place]
        bare = one.drop("start_time", "end_time", "duration_s", "status", "censoring")
        assert first.predict_probability(bare, history=log)[0] == said[place]


def test_same_log_same_probabilities_whatever_the_row_order():
    log = random_log(500, seed=3)
    model = MODELS["model"]()
    assert model.fit(log) is model
    said = model.predict_probability(log)
    again = clone(model).fit(log.sample(fraction=1, shuffle=True, seed=5))
    np.testing.assert_array_equal(again.predict_probability(log.reverse())[::-1], said)
    np.testing.assert_array_equal(clone(model).fit(log.to_pandas()).predict_probability(log.to_pandas()), said)
    assert ((said > 0) & (said < 1)).all()


def test_it_learns_who_fails_and_stays_calibrated():
    # The best that can be known are the probabilities with which the log was made.
    log = random_log(6000, seed=4)
    found = backtest_outcome(log)
    scores = {row["model"]: row for row in found.scores.to_dicts()}
    tested = found.predictions.join(log, on="job_id")
    rate = tested["user"].replace_strict({f"u{i}": p for i, p in enumerate([0.02, 0.05, 0.1, 0.3, 0.5, 0.8])})
    best = (rate * pl.select(pl.when(tested["num_gpus"] > 4).then(1.0).otherwise(0.6)).to_series()).to_numpy()
    least = score_probabilities(best, tested["outcome"])
    assert least["brier"] - 0.002 < scores["model"]["brier"] < least["brier"] + 0.01
    assert scores["model"]["brier"] < scores["user_rate"]["brier"] < scores["base_rate"]["brier"]
    assert scores["model"]["mean_predicted"] == pytest.approx(scores["model"]["rate"], abs=0.03)
    curve = found.curve.filter((pl.col("model") == "model") & (pl.col("num_jobs") > 150))
    assert (curve["mean_predicted"] - curve["observed"]).abs().max() < 0.08
    assert found.differences.filter(pl.col("other") == "base_rate")["verdict"].to_list() == ["better"] * 2


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(6)
    truth = rng.integers(0, 2, 500).astype(float)
    said = np.round(np.clip(0.3 * truth + rng.uniform(0, 0.7, 500), 0.01, 0.99), 2)
    found = score_probabilities(said, truth)
    assert found["brier"] == pytest.approx(brier_score_loss(truth, said))
    assert found["log_loss"] == pytest.approx(sklearn_log_loss(truth, said))
    assert found["auc"] == pytest.approx(roc_auc_score(truth, said))
    assert found["rate"] == truth.mean()
    assert score_probabilities([0.2], [1.0])["auc"] is None
    assert set(score_probabilities([], []).values()) == {None}
    assert score_probabilities([0.0, math.nan], [1.0, 1.0])["log_loss"] == pytest.approx(-math.log(1e-6))
    curve = reliability(said, truth)
    assert curve["num_jobs"].sum() == 500
    assert (curve["observed"] * curve["num_jobs"]).sum() == pytest.approx(truth.sum())


def test_the_pool_leans_on_who_was_right():
    rng = np.random.default_rng(7)
    truth = (rng.random(4000) < 0.3).astype(float)
    right, wrong = np.full(4000, 0.3), np.clip(1 - truth + rng.normal(0, 0.1, 4000), 0.01, 0.99)
    shares = _pool(np.column_stack([wrong, right]), truth, np.ones(4000))
    assert shares.sum() == pytest.approx(1)
    assert shares[1] > 0.99
    # Of two voices, one of which is right half of the time, the best share has a closed form: that of the draws.
    pick = rng.random(4000) < 0.5
    truth = np.where(pick, 1.0, rng.random(4000) < 0.2)
    shares = _pool(np.column_stack([np.full(4000, 1.0 - 1e-9), np.full(4000, 0.2)]), truth, np.ones(4000))
    assert shares[0] == pytest.approx((truth.mean() - 0.2) / 0.8, abs=0.01)


@pytest.mark.parametrize("calibration", ["platt", "isotonic", "none"])
def test_few_and_one_sided_labels_back_off_to_the_rate(calibration):
    log = random_log(150, seed=8)
    few = OutcomeProbability(calibration=calibration).fit(log)
    assert few.features_ == []
    np.testing.assert_array_equal(few.predict_probability(log), OutcomeRate().fit(log).predict_probability(log))
    good = random_log(500, seed=9).with_columns(status=pl.lit("completed"))
    said = OutcomeProbability(calibration=calibration).fit(good).predict_probability(good)
    assert ((said > 0) & (said < 0.01)).all()
    full = OutcomeProbability(calibration=calibration, num_trees=20).fit(random_log(800, seed=10))
    new = pl.DataFrame({"submit_time": [at(1e7), None], "user": ["nobody", None], "num_gpus": [None, 4.0]})
    assert np.isfinite(full.predict_probability(new)).all()
    assert full.predict_probability(new.head(0)).tolist() == []


def test_what_does_not_fit_is_one_sentence():
    log = random_log(30)
    with pytest.raises(UnknownNameError, match="no outcome is named 'crashed'"):
        OutcomeRate(outcome="crashed").fit(log)
    with pytest.raises(UsageError, match="within_s is 0"):
        OutcomeRate(outcome="ends_early", within_s=0).fit(log)
    with pytest.raises(UsageError, match="calibration is 'beta'"):
        OutcomeProbability(calibration="beta").fit(log)
    with pytest.raises(HindcastError, match=r"none of 30 training jobs has a known outcome \(failed\)"):
        OutcomeProbability().fit(log.drop("status"))
    with pytest.raises(UsageError, match="leaves none to learn from or to test"):
        backtest_outcome(log.drop("status"))


@pytest.mark.full_trace
def test_on_kth_it_is_better_than_the_users_rate(real_data):
    log = load("swf", [real_data("swf/KTH-SP2-1996-2.swf.gz")]).jobs
    found = backtest_outcome(log, outcome="ends_early", gpu_jobs_only=False)
    assert found.differences["verdict"].to_list() == ["better"] * 4
