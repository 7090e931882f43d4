"""The default predictor: honest stages, a guard that yields to a better rule, owners of any kind, either learner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.errors import BadFileError, UsageError
from predictors import load_model, make_predictor, save_model, training_view
from predictors.experience_file import read_experience, write_experience
from predictors.guarded import LEAST_JOBS, Guarded, _surely_worse

START = datetime(2024, 3, 1, tzinfo=UTC)
NUM_JOBS = 900


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    """Sixty days of ten users; each has a level, and a job of eight GPUs runs e times as long."""
    rng = np.random.default_rng(0)
    submit = np.sort(rng.integers(0, 60 * 24 * 60, NUM_JOBS))
    user, gpus = rng.integers(0, 10, NUM_JOBS), rng.choice([1.0, 8.0], NUM_JOBS)
    duration = np.ceil(np.exp(5 + user / 3 + (gpus == 8) + rng.normal(0, 0.6, NUM_JOBS)))
    times = [START + timedelta(minutes=int(m)) for m in submit]
    return pl.DataFrame(
        {
            "job_id": [str(i) for i in range(NUM_JOBS)],
            "user": [f"u{u}" for u in user],
            "submit_time": times,
            "start_time": times,
            "end_time": [t + timedelta(seconds=float(d)) for t, d in zip(times, duration, strict=True)],
            "num_gpus": gpus,
            "time_limit_s": 86_400.0,
            "status": "completed",
            "duration_s": duration,
        }
    )


@pytest.fixture(scope="module")
def cutoff(log):
    return log["submit_time"][600]


@pytest.fixture(scope="module")
def model(log, cutoff):
    return make_predictor("guarded", learner="auto").fit(training_view(log, cutoff=cutoff))


def log_mae(predicted: np.ndarray, jobs: pl.DataFrame) -> float:
    return float(np.abs(np.log1p(predicted) - np.log1p(jobs["duration_s"].to_numpy())).mean())


def test_it_comes_near_the_law_and_beats_the_user_median(model, log, cutoff):
    test = log.filter(pl.col("submit_time") >= cutoff)
    mine = log_mae(model.predict(test, history=log), test)
    theirs = make_predictor("user_median").fit(training_view(log, cutoff=cutoff)).predict(test, history=log)
    assert model.choice_ == {"submission": "committee", "start": "committee"}
    assert mine < log_mae(theirs, test)
    assert mine < 1.25 * 0.6 * np.sqrt(2 / np.pi)  # the law's own error


def test_stages_are_in_order_and_know_only_what_had_ended(model):
    stages = model.stages_["submission"]
    assert len(stages) == 4
    ends = np.sort(model.past_["end_time"].dt.epoch("us").to_numpy())
    assert [stage.from_us for stage in stages] == [
        *(ends[int(share * len(ends)) - 1] for share in (0.4, 0.6, 0.8)),
        ends[-1] + 1,
    ]
    assert model.stages_["start"] == []  # nobody waited: a start tells no more than the submission


def test_labels_after_a_stage_do_not_reach_its_rows(model, log, cutoff):
    """Rows of the training log are answered by earlier stages: what came later changes nothing."""
    place = 450
    at = log["submit_time"][place]
    row = log[place : place + 1]
    changed = log.with_columns(
        duration_s=pl.when(pl.col("end_time") >= at).then(pl.col("duration_s") * 50).otherwise("duration_s")
    )
    again = make_predictor("guarded", learner="auto").fit(training_view(changed, cutoff=cutoff))
    early = [stage.from_us for stage in model.stages_["submission"] if stage.from_us <= int(at.timestamp() * 1e6)]
    assert early == [stage.from_us for stage in again.stages_["submission"]][: len(early)]
    assert early
    assert np.array_equal(again.predict(row, history=changed), model.predict(row, history=log))


def test_warm_start_keeps_the_stages_and_adds_one(log, cutoff):
    model = make_predictor("guarded", learner="auto", warm_start=True).fit(training_view(log, cutoff=cutoff))
    before = list(model.stages_["submission"])
    model.fit(training_view(log, cutoff=log["submit_time"][800]))
    after = model.stages_["submission"]
    assert len(after) == len(before) + 1
    assert all(new is old for new, old in zip(after, before, strict=False))
    last = after[-1].from_us
    model.fit(training_view(log, cutoff=log["submit_time"][800]))  # nothing new has ended
    assert [stage.from_us for stage in model.stages_["submission"]][-1] == last
    assert len(model.stages_["submission"]) == len(after)


def test_too_short_a_log_has_rules_alone(log):
    short = log.head(LEAST_JOBS - 1)
    model = make_predictor("guarded").fit(short)
    assert model.stages_ == {"submission": [], "start": []}
    assert np.isfinite(model.predict(log.tail(5), history=short)).all()


@pytest.mark.parametrize("owner", ["account", "vc"])
def test_the_owner_is_the_user_or_the_account_or_the_vc(log, cutoff, owner):
    other = log.rename({"user": owner})
    test = other.filter(pl.col("submit_time") >= cutoff)
    found = make_predictor("guarded", learner="auto").fit(training_view(other, cutoff=cutoff))
    assert log_mae(found.predict(test, history=other), test) < 0.62


def test_the_guard_names_a_rule_that_was_surely_better(log, cutoff, monkeypatch):
    """With a committee that is off by a factor of 20 the best rule takes over, in every output."""
    honest = Guarded._mixed
    monkeypatch.setattr(Guarded, "_mixed", lambda self, *args: honest(self, *args) + 3)
    model = make_predictor("guarded", learner="auto").fit(training_view(log, cutoff=cutoff))
    assert model.choice_["submission"] == "request_median"
    test = log.filter(pl.col("submit_time") >= cutoff)
    assert log_mae(model.predict(test, history=log), test) < 0.75


def test_surely_worse_needs_days_and_a_clear_difference():
    rng = np.random.default_rng(0)
    day = np.repeat(np.arange(30), 20)
    noise = rng.normal(0, 1, 600)
    assert _surely_worse(noise + 0.3, day, random_state=0)
    assert not _surely_worse(noise, day, random_state=0)
    assert not _surely_worse(noise - 0.3, day, random_state=0)
    assert not _surely_worse(np.ones(60), np.repeat(np.arange(3), 20), random_state=0)  # three days tell nothing
    # One day alone, however bad, is no proof.
    assert not _surely_worse(np.where(day == 4, 50.0, 0.0), day, random_state=0)


@pytest.mark.parametrize("learner", ["lightgbm", pytest.param("trees", marks=pytest.mark.full_trace)])
def test_either_learner_is_stored_without_pickle(log, cutoff, learner, tmp_path):
    if learner == "lightgbm":
        pytest.importorskip("lightgbm")
    model = make_predictor("guarded", learner=learner).fit(training_view(log, cutoff=cutoff))
    folder = save_model(model, tmp_path / "model")
    ending = {"lightgbm": ".txt", "trees": ".skops"}[learner]
    assert {file.suffix for file in folder.iterdir()} == {".json", ".parquet", ending}
    assert np.array_equal(
        load_model(folder).predict(log.tail(50), history=log), model.predict(log.tail(50), history=log)
    )


def test_an_unknown_learner_is_refused():
    log = pl.DataFrame({"submit_time": [START], "duration_s": [60.0]})
    with pytest.raises(UsageError, match="learner: found 'forest'; expected 'auto', 'lightgbm', 'trees'"):
        make_predictor("guarded", learner="forest").fit(log)


def test_going_on_from_stored_losses_is_starting_anew(log, cutoff, model, monkeypatch, tmp_path):
    """Later rows, rows inside the training log, the log grown or alone: to the last bit, also of a loaded model."""
    later, inside = log.filter(pl.col("submit_time") >= cutoff), log[400:500]
    cases = [(later, log), (later, None), (inside, log), (inside, None), (pl.concat([inside, later]), log)]
    loaded = load_model(save_model(model, tmp_path / "model"))
    found = [[each.predict(rows, history=history) for rows, history in cases] for each in (model, loaded)]
    monkeypatch.setattr(Guarded, "_num_fitted", lambda *_: 0)
    anew = [loaded.predict(rows, history=history) for rows, history in cases]
    for mine in found:
        assert all(np.array_equal(one, two) for one, two in zip(mine, anew, strict=True))


def test_a_loaded_model_asks_nothing_again_of_the_training_log(log, model, monkeypatch, tmp_path):
    loaded = load_model(save_model(model, tmp_path / "model"))
    asked = []
    honest = Guarded._view
    monkeypatch.setattr(Guarded, "_view", lambda *args, **more: asked.append(honest(*args, **more)) or asked[-1])
    loaded.predict(log.tail(1))
    assert [view.rows.height for view in asked] == [1, 0]  # the job itself, and nothing that ended since
    other = log.filter(pl.col("user") != "u3")  # another past: its losses are its own
    loaded.predict(log.tail(1), history=other)
    assert asked[-1].rows.height == other.height


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda table: table.with_columns(weight=-pl.col("weight") - 1), "damaged"),
        (lambda table: table.with_columns(total_0=pl.lit(float("nan"))), "damaged"),
        (lambda table: table.with_columns(run=pl.lit(None, dtype=pl.Float64)), "damaged"),
        (lambda table: table.drop("last"), "wrong_columns"),
        (lambda table: table[1:], "damaged"),
    ],
)
def test_losses_that_cannot_be_are_refused(model, tmp_path, change, kind):
    file = tmp_path / "experience.parquet"
    write_experience(model.experience_["submission"], file)
    change(pl.read_parquet(file)).write_parquet(file)
    with pytest.raises(BadFileError) as caught:
        read_experience(file, num_experts=10)
    assert caught.value.kind == kind
    file.write_bytes(b"no Parquet")
    with pytest.raises(BadFileError, match="not readable as Parquet"):
        read_experience(file, num_experts=10)
