"""Permutation importance against logs in which only one thing matters, and against a loop in plain Python."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.errors import UnknownNameError, UsageError
from predictors import make_predictor, permutation_importance, training_view
from predictors.explain_inputs import relabelled

T0 = datetime(2024, 1, 1, tzinfo=UTC)
NUM_JOBS = 900


def make_log(what: str, *, seed: int = 0) -> pl.DataFrame:
    """Forty days of jobs whose duration depends on one column alone."""
    rng = np.random.default_rng(seed)
    columns = {
        "user": rng.integers(0, 8, NUM_JOBS),
        "vc": rng.integers(0, 4, NUM_JOBS),
        "num_gpus": rng.choice([1, 2, 4, 8], NUM_JOBS),
        "time_limit_s": rng.choice([1e6, 2e6, 4e6], NUM_JOBS),
        "hour": rng.integers(0, 24, NUM_JOBS),
    }
    level = columns[what].argsort().argsort() / NUM_JOBS if what == "time_limit_s" else columns[what] / 8
    submit = [T0 + timedelta(days=40 * i // NUM_JOBS, hours=int(h)) for i, h in enumerate(columns.pop("hour"))]
    start = np.argsort(np.array([t.timestamp() for t in submit]), kind="stable")
    duration = np.exp(4 + 3 * level + rng.normal(0, 0.1, NUM_JOBS))
    table = pl.DataFrame({**columns, "submit_time": submit, "duration_s": duration}).with_columns(
        pl.col("user").cast(pl.String), pl.col("vc").cast(pl.String), pl.col("num_gpus").cast(pl.Float64)
    )[start]
    end = pl.col("submit_time") + pl.duration(microseconds=pl.col("duration_s") * 1e6)
    return table.with_columns(start_time="submit_time", end_time=end, job_id=pl.int_range(NUM_JOBS).cast(pl.String))


def importance(what: str, *, model: str = "boosted", **params) -> dict[str, dict[str, float]]:
    log = make_log(what)
    cutoff = log["submit_time"][540]
    few = {"num_trees": 40} if model == "boosted" else {}
    fitted = make_predictor(model, **few, **params).fit(training_view(log, cutoff=cutoff))
    table = permutation_importance(fitted, log.filter(pl.col("submit_time") >= cutoff), history=log, num_repeats=3)
    return {row["block"]: row for row in table.to_dicts()}


@pytest.mark.parametrize(
    ("what", "blocks"),
    [
        ("user", {"user", "history by owner"}),
        ("vc", {"VC", "history by VC"}),
        ("num_gpus", {"GPUs"}),
        ("time_limit_s", {"limit"}),
        ("hour", {"hour"}),
    ],
)
def test_only_what_the_duration_depends_on_matters(what, blocks):
    found = importance(what)
    largest = next(iter(found.values()))
    assert largest["block"] in blocks
    assert largest["low"] > 0.1
    assert largest["low"] < largest["importance"] < largest["high"]
    for name, row in found.items():
        if row["importance"] is not None and name not in blocks | {"history by size", "history by limit"}:
            assert abs(row["importance"]) < 0.02, name
    assert found["job name"]["importance"] is None  # no job has one
    assert found["history by group"]["importance"] is None


def test_a_rule_that_never_looks_needs_exactly_nothing():
    found = importance("user", model="vc_median")
    told = {name: row["importance"] for name, row in found.items() if row["importance"] is not None}
    assert {name for name, value in told.items() if value != 0} <= {"VC", "history by VC"}
    assert told["user"] == told["hour"] == told["history by owner"] == 0.0


def test_the_committee_of_a_log_of_users_needs_the_user():
    found = importance("user", model="guarded")
    assert found["user"]["low"] > 0.3
    assert found["history by owner"]["low"] > 0.3
    assert abs(found["hour"]["importance"]) < 0.02


def test_numbers_are_those_of_a_plain_loop():
    """The user's column permuted with the same draws, every prediction asked for anew."""
    log = make_log("user")
    cutoff = log["submit_time"][540]
    test = log.filter(pl.col("submit_time") >= cutoff).head(50)
    model = make_predictor("user_median").fit(training_view(log, cutoff=cutoff))
    table = permutation_importance(model, test, history=log, num_repeats=2, random_state=5, blocks={"u": ["user"]})
    truth = test["duration_s"].to_list()

    def log_mae(jobs: pl.DataFrame) -> float:
        said = model.predict(jobs, history=log).tolist()
        return sum(abs(math.log1p(p) - math.log1p(t)) for p, t in zip(said, truth, strict=True)) / len(truth)

    rng = np.random.default_rng([5, ord("u")])
    gaps = []
    for _ in range(2):
        users = test["user"].to_list()
        mixed = [users[place] for place in rng.permutation(50)]
        gaps.append(log_mae(test.with_columns(user=pl.Series(mixed))) - log_mae(test))
    row = table.filter(pl.col("block") == "u").row(0, named=True)
    assert row["importance"] == pytest.approx(sum(gaps) / 2)
    assert row["sd"] == pytest.approx(abs(gaps[0] - gaps[1]) / math.sqrt(2))
    assert row["num_jobs"] == 50


def test_columns_of_a_block_are_permuted_together():
    """Size is told twice; mixed up apart the other one still tells it, together they do not."""
    log = make_log("num_gpus").with_columns(num_cpus=pl.col("num_gpus") * 4)
    cutoff = log["submit_time"][540]
    names = ["num_gpus", "num_cpus"]
    fitted = make_predictor("boosted", num_trees=40, features=names).fit(training_view(log, cutoff=cutoff))
    blocks = {"both": names, "one": ["num_gpus"], "other": ["num_cpus"]}
    table = permutation_importance(fitted, log.filter(pl.col("submit_time") >= cutoff), history=log, blocks=blocks)
    found = dict(table.select("block", "importance").iter_rows())
    assert found["both"] > 0.5
    assert min(found["one"], found["other"]) < 0.05  # the trees took one of the two


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_the_hour_is_read_in_the_zone_of_the_predictor(zone):
    assert importance("hour", time_zone=zone)["hour"]["low"] > 0.5


def test_labels_that_had_not_ended_change_only_the_score_that_they_are_compared_with():
    """History of an asked job is what had ended: other labels of later jobs, other than its own, change nothing."""
    log = make_log("user")
    cutoff = log["submit_time"][540]
    test = log.filter(pl.col("submit_time") >= cutoff).head(40)
    model = make_predictor("user_median").fit(training_view(log, cutoff=cutoff))
    later = log["submit_time"][700]
    assert test["submit_time"].max() < later
    changed = log.with_columns(
        duration_s=pl.when(pl.col("submit_time") >= later).then(1.0).otherwise("duration_s"),
        end_time=pl.when(pl.col("submit_time") >= later).then("submit_time").otherwise("end_time"),
    )
    first = permutation_importance(model, test, history=log, num_repeats=2)
    assert permutation_importance(model, test, history=changed, num_repeats=2).equals(first)


def test_the_same_seed_gives_the_same_table_whatever_the_order():
    log = make_log("user")
    model = make_predictor("user_median").fit(log)
    first = permutation_importance(model, log, history=log, num_repeats=2, most_jobs=200)
    shuffled = log.sample(fraction=1, shuffle=True, seed=1)
    assert permutation_importance(model, shuffled, history=shuffled, num_repeats=2, most_jobs=200).equals(first)
    assert first["num_jobs"].unique().to_list() == [200]
    other = permutation_importance(model, log, history=log, num_repeats=2, most_jobs=200, random_state=1)
    assert not other.equals(first)
    assert permutation_importance(model, log, num_repeats=1)["sd"].null_count() == first.height


def test_no_value_keeps_its_place_and_columns_in_one_bracket_move_alike():
    past = pl.DataFrame({"user": ["a", "b", None, "c", "a"], "owner": ["a", "b", "v", "c", "a"], "n": [1, 2, 3, 4, 5]})
    for seed in range(20):
        moved = relabelled(past, (("owner", "user"),), rng=np.random.default_rng(seed))
        assert (moved["owner"] != past["owner"]).all()
        assert sorted(set(moved["owner"])) == ["a", "b", "c", "v"]
        assert moved["user"].to_list() == [None if i == 2 else o for i, o in enumerate(moved["owner"])]
        assert moved["n"].to_list() == past["n"].to_list()


def test_what_cannot_be_measured_is_one_sentence():
    log = make_log("user")
    model = make_predictor("user_median").fit(log)
    with pytest.raises(UnknownNameError, match="no column to permute is named 'end_time'.*known at the submission"):
        permutation_importance(model, log, blocks={"end": ["end_time"]})
    with pytest.raises(UsageError, match="none of 900 jobs has a fully known duration"):
        permutation_importance(model, log.drop("duration_s"))
    with pytest.raises(UsageError, match="num_repeats is 0, most_jobs is -1; expected 1 or more"):
        permutation_importance(model, log, num_repeats=0, most_jobs=-1)
