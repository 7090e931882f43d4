"""The boosted model: what it learns from, what it refuses, and its optional learner."""

from __future__ import annotations

import builtins
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.errors import HindcastError
from predictors import make_predictor

START = datetime(2024, 1, 1, tzinfo=UTC)


def log(duration: np.ndarray, **columns: object) -> pl.DataFrame:
    times = [START + timedelta(days=i) for i in range(len(duration))]
    return pl.DataFrame({"submit_time": times, "duration_s": duration.astype(float), **columns})


def test_it_learns_a_law_that_no_rule_knows():
    # Duration depends on GPUs and CPUs together; users repeat nothing.
    rng = np.random.default_rng(0)
    gpus, cpus = rng.choice([1.0, 2.0, 4.0, 8.0], 1500), rng.choice([4.0, 64.0], 1500)
    # Some noise: where durations are exactly equal, the gradient of the absolute loss cannot tell right from short.
    truth = 100 * gpus * np.where(cpus > 8, 10, 1) * np.exp(rng.normal(0, 0.1, 1500))
    jobs = log(truth, num_gpus=gpus, num_cpus=cpus)
    model = make_predictor("boosted").fit(jobs[:1000])
    error = np.abs(np.log1p(model.predict(jobs[1000:])) - np.log1p(jobs["duration_s"][1000:].to_numpy()))
    baseline = make_predictor("global_median").fit(jobs[:1000]).predict(jobs[1000:])
    assert error.mean() < 0.12  # the noise alone is 0.08
    assert np.abs(np.log1p(baseline) - np.log1p(jobs["duration_s"][1000:].to_numpy())).mean() > 1


def test_predictions_stop_at_the_requested_limit():
    jobs = log(np.full(50, 1000.0), num_gpus=np.tile([1.0, 2.0], 25))
    rows = jobs.tail(2).with_columns(time_limit_s=pl.Series([60.0, None]))
    assert make_predictor("boosted").fit(jobs).predict(rows).tolist() == pytest.approx([60.0, 1000.0])


def test_a_lower_bound_above_the_past_teaches_and_one_below_does_not():
    # 60 ended jobs of 100 s; 60 jobs of another size still run, for 10,000 s or for 10 s.
    ended = log(np.full(60, 100.0), num_gpus=np.full(60, 1.0), censoring=["none"] * 60)
    size_two = ended.tail(1).with_columns(num_gpus=2.0, submit_time=pl.lit(START + timedelta(days=90)))
    said = {}
    for bound in (10.0, 10_000.0):
        running = log(np.full(60, bound), num_gpus=np.full(60, 2.0), censoring=["right"] * 60)
        model = make_predictor("boosted").fit(pl.concat([ended, running]))
        assert (model.num_known_, model.num_censored_) == (60, 60)
        said[bound] = float(model.predict(size_two)[0])
    assert said == {10.0: pytest.approx(100.0), 10_000.0: pytest.approx(10_000.0, rel=0.01)}


@pytest.mark.parametrize("feature", ["batch__position", "user__unfinished"])
def test_it_learns_from_jobs_in_flight(feature: str):
    # Each day five jobs at once, each three times as long as the one before it: nothing else tells them apart.
    place = np.tile(np.arange(5), 200)
    times = [START + timedelta(days=i // 5) for i in range(1000)]
    jobs = pl.DataFrame(
        {
            "job_id": [f"{i:04}" for i in range(1000)],
            "user": ["a"] * 1000,
            "submit_time": times,
            "start_time": times,
            "num_gpus": [1.0] * 1000,
            "duration_s": 100.0 * 3.0**place,
        }
    ).with_columns(end_time=pl.col("start_time") + pl.duration(seconds="duration_s"))
    model = make_predictor("boosted", features=[feature]).fit(jobs[:800])
    assert model.features_ == [feature]
    told = model.predict(jobs[800:], history=jobs)
    assert told == pytest.approx(jobs["duration_s"][800:].to_numpy(), rel=0.01)


def test_the_seed_and_nothing_else_decides():
    rng = np.random.default_rng(1)
    jobs = log(np.exp(rng.normal(5, 1, 400)), num_gpus=rng.choice([1.0, 2.0, 4.0], 400), vc=rng.choice(["a", "b"], 400))
    one, two = (make_predictor("boosted", random_state=3).fit(jobs).predict(jobs) for _ in range(2))
    assert np.array_equal(one, two)


def test_features_that_never_vary_are_dropped_and_those_of_categories_kept():
    rng = np.random.default_rng(2)
    jobs = log(np.exp(rng.normal(5, 1, 100)), num_gpus=np.full(100, 1.0), vc=np.tile(["a", "b"], 50))
    model = make_predictor("boosted").fit(jobs)
    assert "vc" in model.features_
    assert "vc__median_20" in model.features_
    assert not [name for name in model.features_ if name.startswith("user") or name == "num_gpus"]
    assert set(model.categories_) == {"vc"}
    only = make_predictor("boosted", features=["hour", "weekday"]).fit(jobs)
    assert only.features_ == ["weekday"]


def test_without_lightgbm_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    jobs = log(np.array([10.0, 20.0, 30.0]), num_gpus=[1.0, 2.0, 3.0])
    with pytest.raises(HindcastError, match=r"pip install 'gpu-hindcast\[lightgbm\]'"):
        make_predictor("boosted_lightgbm").fit(jobs)


def test_without_the_openmp_library_one_sentence_says_what_to_install(monkeypatch):
    true_import = builtins.__import__

    def no_library(name, *args, **kwargs):
        if name == "lightgbm":
            msg = "libgomp.so.1: cannot open shared object file"
            raise OSError(msg)
        return true_import(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "lightgbm", raising=False)
    monkeypatch.setattr(builtins, "__import__", no_library)
    jobs = log(np.array([10.0, 20.0, 30.0]), num_gpus=[1.0, 2.0, 3.0])
    with pytest.raises(HindcastError, match=r"libgomp\.so\.1.*apt install libgomp1"):
        make_predictor("boosted_lightgbm").fit(jobs)
