"""What every registered predictor must do; a new one is tested as soon as it is registered."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from analysis.errors import HindcastError
from predictors import PREDICTORS, load_model, make_predictor, save_model, training_view

START = datetime(2024, 3, 1, tzinfo=UTC)
OUTCOMES = (
    "start_time",
    "end_time",
    "duration_s",
    "queueing_delay_s",
    "status",
    "status_raw",
    "num_attempts",
    "gpu_type",
    "censoring",
    "flags",
    "extra",
)


def make_log(*, num_jobs: int = 400, seed: int = 0) -> pl.DataFrame:
    """A month of jobs of users who repeat themselves, some broken, with waits; many ends and submissions are equal."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.integers(0, 30 * 24, num_jobs)) * 3600
    user = rng.integers(0, 12, num_jobs)
    family = rng.integers(0, 3, num_jobs)
    wait = rng.exponential(1.0, num_jobs).astype(int) * 1800
    broke = rng.random(num_jobs) < 0.2
    law = np.exp(4 + user / 3 + family + rng.normal(0, 0.5, num_jobs)) * np.where(broke, 0.1, 1)
    law = np.where(rng.random(num_jobs) < 0.08, law * 200, law)  # some run for days: they are censored at the cutoff
    duration = np.ceil(law / 300) * 300
    times = [START + timedelta(seconds=int(s)) for s in submit]
    starts = [t + timedelta(seconds=int(w)) for t, w in zip(times, wait, strict=True)]
    ends = [t + timedelta(seconds=float(d)) for t, d in zip(starts, duration, strict=True)]
    columns = {
        "job_id": [str(i) for i in range(num_jobs)],
        "user": [f"user{u}" for u in user],
        "vc": [f"vc{u % 4}" for u in user],
        "job_name": [f"train{f}x-{i:09d}" for i, f in enumerate(family)],
        "submit_time": times,
        "start_time": starts,
        "end_time": ends,
        "num_gpus": rng.choice([1.0, 2.0, 8.0], num_jobs),
        "num_cpus": rng.choice([4.0, 8.0], num_jobs),
        "time_limit_s": np.where(rng.random(num_jobs) < 0.7, 86_400.0, np.nan),
        "status": np.where(broke, "failed", "completed"),
        "duration_s": duration,
    }
    table = pl.DataFrame(columns, strict=False).with_columns(pl.col("time_limit_s").fill_nan(None))
    return table


LOG = make_log()
CUTOFF = LOG["submit_time"][240]
TRAIN = training_view(LOG, cutoff=CUTOFF)
TEST = LOG.filter(pl.col("submit_time") >= CUTOFF)
assert TRAIN["censoring"].n_unique() == 3  # ended, running and waiting jobs


def make(name: str):
    """A predictor with few trees: the contract is about behaviour, not accuracy."""
    needed = {"boosted_lightgbm": "lightgbm", "additive": "interpret"}
    if name in needed:
        pytest.importorskip(needed[name])
    model = make_predictor(name)
    few = {"num_trees": 15}
    return model.set_params(**{k: v for k, v in few.items() if k in model.get_params()})


@pytest.fixture(scope="module", params=sorted(PREDICTORS))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def fitted(name):
    return make(name).fit(TRAIN)


def test_clone_and_parameters(name):
    model = make(name)
    before = dict(model.get_params())
    assert clone(model).get_params() == before
    assert model.fit(TRAIN) is model
    assert model.get_params() == before
    with pytest.raises(NotFittedError):
        clone(model).predict(TEST)


def test_one_positive_finite_number_per_row_in_row_order(fitted):
    predicted = fitted.predict(TEST, history=LOG)
    assert predicted.dtype == np.float64
    assert predicted.shape == (TEST.height,)
    assert np.isfinite(predicted).all()
    assert (predicted > 0).all()
    order = np.random.default_rng(1).permutation(TEST.height)
    assert np.array_equal(fitted.predict(TEST[order], history=LOG), predicted[order])
    assert np.array_equal(fitted.predict(TEST[17:18], history=LOG), predicted[17:18])
    assert fitted.predict(TEST.head(0)).shape == (0,)


@pytest.mark.parametrize("column", [*OUTCOMES, "all"])
def test_what_is_known_only_later_is_not_read(fitted, column):
    names = [c for c in (OUTCOMES if column == "all" else (column,)) if c in TEST.columns]
    assert np.array_equal(fitted.predict(TEST.drop(names), history=LOG), fitted.predict(TEST, history=LOG))
    nulls = TEST.with_columns(pl.lit(None, dtype=TEST.schema[c]).alias(c) for c in names)
    assert np.array_equal(fitted.predict(nulls, history=LOG), fitted.predict(TEST, history=LOG))


def change_later(log: pl.DataFrame, *, at: datetime, factor: float = 37) -> pl.DataFrame:
    """Other labels for all jobs that had not ended at an instant."""
    later = pl.col("end_time") >= at
    return log.with_columns(
        duration_s=pl.when(later).then(pl.col("duration_s") * factor + 5).otherwise("duration_s"),
        status=pl.when(later).then(pl.lit("failed")).otherwise("status"),
        end_time=pl.when(later).then(pl.lit(at) + pl.duration(days=3)).otherwise("end_time"),
    )


@pytest.mark.parametrize("row", [0, 40, 159])
def test_labels_of_jobs_not_yet_ended_change_nothing(fitted, row):
    job = TEST[row : row + 1]
    at = job["submit_time"][0]
    expected = fitted.predict(job, history=LOG)
    assert np.array_equal(fitted.predict(job, history=change_later(LOG, at=at)), expected)
    # As if the log had been cut off there: the future neither added nor taken away matters.
    assert np.array_equal(fitted.predict(job, history=LOG.filter(pl.col("end_time") < at)), expected)
    future = LOG.with_columns(
        job_id="future" + pl.col("job_id"), submit_time=pl.lit(at), start_time=pl.lit(at), end_time=pl.lit(at)
    )
    assert np.array_equal(fitted.predict(job, history=pl.concat([LOG, future])), expected)


@pytest.mark.parametrize("factor", [37, 0.0001])
def test_labels_after_the_cutoff_do_not_teach(name, factor):
    changed = training_view(change_later(LOG, at=CUTOFF, factor=factor), cutoff=CUTOFF)
    expected = make(name).fit(TRAIN).predict(TEST, history=LOG)
    assert np.array_equal(make(name).fit(changed).predict(TEST, history=LOG), expected)


def test_a_job_is_not_in_its_own_past_even_if_its_clock_runs_backwards(fitted):
    log = LOG.with_columns(end_time=pl.col("submit_time") - pl.duration(hours=1))
    job = log[200:201]
    others = log.with_columns(
        duration_s=pl.when(pl.col("job_id") == job["job_id"][0]).then(9e6).otherwise("duration_s")
    )
    assert np.array_equal(fitted.predict(job, history=others), fitted.predict(job, history=log))


def test_row_order_and_repetition_change_nothing(name, fitted, tmp_path):
    shuffled = TRAIN.sample(fraction=1, shuffle=True, seed=3)
    again = make(name).fit(shuffled)
    log = LOG.sample(fraction=1, shuffle=True, seed=4)
    assert np.array_equal(again.predict(TEST, history=log), fitted.predict(TEST, history=LOG))
    one, two = (save_model(model, tmp_path / folder) for model, folder in ((again, "one"), (fitted, "two")))
    assert digests(one) == digests(two)


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_no_global_seed_is_touched(name):
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - it is the global state that must stay
    make(name).fit(TRAIN).predict(TEST)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_saved_and_loaded_it_predicts_the_same(fitted, tmp_path):
    loaded = load_model(save_model(fitted, tmp_path / "model"))
    assert type(loaded) is type(fitted)
    assert loaded.get_params() == fitted.get_params()
    assert np.array_equal(loaded.predict(TEST), fitted.predict(TEST))
    assert np.array_equal(loaded.predict(TEST, history=LOG), fitted.predict(TEST, history=LOG))
    for attribute in ("num_known_", "num_censored_", "num_excluded_", "fallback_s_", "window_"):
        assert getattr(loaded, attribute) == getattr(fitted, attribute)


def test_without_history_the_training_log_is_the_history(fitted):
    assert np.array_equal(fitted.predict(TEST), fitted.predict(TEST, history=TRAIN))


def test_pandas_is_polars(name, fitted):
    expected = fitted.predict(TEST, history=LOG)
    assert np.array_equal(fitted.predict(TEST.to_pandas(), history=LOG.to_pandas()), expected)
    plain = TRAIN.select([*LOG.columns, "censoring"])
    assert np.array_equal(make(name).fit(plain.to_pandas()).predict(TEST, history=LOG), expected)


def test_unseen_users_vcs_and_sizes_are_predicted(fitted):
    strangers = TEST.with_columns(user=pl.lit("stranger"), vc=pl.lit("elsewhere"), num_gpus=pl.lit(4096.0))
    predicted = fitted.predict(strangers, history=LOG)
    assert np.isfinite(predicted).all()
    assert (predicted > 0).all()


def test_future_dated_rows_are_predicted(fitted):
    later = TEST.with_columns(pl.col("submit_time").dt.offset_by("40y"))
    assert (fitted.predict(later, history=LOG) > 0).all()


CENSORED = TRAIN.with_columns(censoring=pl.lit("right"), status=pl.lit("running"), end_time=None)
HARD_LOGS = {
    "one_job": TRAIN.head(1),
    "two_jobs": TRAIN.head(2),
    "constant_duration": TRAIN.with_columns(duration_s=pl.lit(60.0)),
    "zero_durations": TRAIN.with_columns(duration_s=pl.lit(0.0)),
    "all_censored": CENSORED,
    "some_censored": pl.concat([TRAIN.head(100), CENSORED.tail(100).cast(dict(TRAIN.schema))], how="vertical_relaxed"),
    "all_failed": TRAIN.with_columns(status=pl.lit("failed")),
    "no_users": TRAIN.drop("user"),
    "users_null": TRAIN.with_columns(user=pl.lit(None, dtype=pl.String)),
    "only_times_and_durations": TRAIN.select("submit_time", "duration_s"),
    "no_submission_known": TRAIN.with_columns(submit_time=pl.lit(None, dtype=TRAIN.schema["submit_time"])),
    "nulls_and_infinities": TRAIN.with_columns(num_gpus=pl.lit(None, dtype=pl.Float64), num_cpus=pl.lit(np.inf)),
}


@pytest.mark.parametrize("case", sorted(HARD_LOGS))
def test_hard_logs_are_learned_from(name, case):
    model = make(name).fit(HARD_LOGS[case])
    for rows in (
        TEST,
        TEST.select("submit_time"),
        TEST.with_columns(submit_time=pl.lit(None, dtype=pl.Datetime("us"))),
    ):
        predicted = model.predict(rows)
        assert predicted.shape == (rows.height,)
        assert np.isfinite(predicted).all()
        assert (predicted >= 1).all()


@pytest.mark.parametrize("case", ["no_rows", "no_durations"])
def test_nothing_to_learn_from_is_one_sentence(name, case):
    log = TRAIN.head(0) if case == "no_rows" else TRAIN.with_columns(duration_s=pl.lit(None, dtype=pl.Float64))
    with pytest.raises(HindcastError, match=rf"{name}: none of \d+ training jobs has a duration"):
        make(name).fit(log)


def test_censored_jobs_never_teach_that_jobs_are_short(name):
    running = CENSORED.with_columns(duration_s=pl.lit(1.0)).cast(dict(TRAIN.schema))
    with_running = pl.concat([TRAIN, running.with_columns(job_id="r" + pl.col("job_id"))])
    expected = make(name).fit(TRAIN).predict(TEST, history=LOG)
    assert np.array_equal(make(name).fit(with_running).predict(TEST, history=LOG), expected)


LEVELS = [0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98]
TIMES_S = [0.0, 1.0, 60.0, 3600.0, 86_400.0, 1e7, 1e9]


def outputs(model, jobs, **more) -> list[np.ndarray]:
    """Everything that a predictor says of jobs."""
    return [
        model.predict(jobs, **more),
        model.predict_quantiles(jobs, LEVELS, **more),
        model.predict_survival(jobs, TIMES_S, **more),
        model.predict_remaining(jobs, 3600.0, **more),
        model.predict_remaining(jobs, 7e5, quantiles=LEVELS, **more),
    ]


def same(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return all(np.array_equal(one, two) for one, two in zip(left, right, strict=True))


def check_outputs(model, jobs, **more) -> None:
    """What must hold of the outputs on any log."""
    median, quantiles, survival, left, lefts = outputs(model, jobs, **more)
    assert quantiles.shape == (jobs.height, len(LEVELS))
    assert survival.shape == (jobs.height, len(TIMES_S))
    assert left.shape == (jobs.height,)
    assert lefts.shape == quantiles.shape
    assert all(np.isfinite(each).all() and (each >= 0).all() for each in (median, quantiles, survival, left, lefts))
    assert np.array_equal(quantiles[:, LEVELS.index(0.5)], median)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    assert (np.diff(lefts, axis=1) >= 0).all()
    assert (np.diff(survival, axis=1) <= 0).all()
    assert (survival <= 1).all()


@pytest.mark.parametrize("at", ["submission", "start", "now"])
def test_quantiles_do_not_cross_and_all_methods_fit_together(fitted, at):
    now = TEST.with_columns(now=pl.col("start_time") + pl.duration(minutes=7))
    check_outputs(fitted, now, history=LOG, at=at)
    assert [each.shape[0] for each in outputs(fitted, now.head(0))] == [0] * 5


@pytest.mark.parametrize("elapsed", [0.0, 600.0, 40_000.0])
def test_what_remains_is_consistent_with_the_survival_curve(fitted, elapsed):
    left = fitted.predict_remaining(TEST, elapsed, quantiles=LEVELS, history=LOG)
    alive = fitted.predict_survival(TEST, [elapsed], history=LOG)
    ends = elapsed + left
    # Where quantiles are equal (at the median, at the limit) survival jumps: just before it is above, after below.
    before = fitted.predict_survival(TEST, np.maximum(ends * (1 - 1e-6) - 1e-3, 0), history=LOG)
    after = fitted.predict_survival(TEST, ends * (1 + 1e-6) + 1e-3, history=LOG)
    expected = (1 - np.array(LEVELS)) * alive
    told = (alive > 0) & (left > 0)
    assert told.mean() > 0.5
    assert (after[told] <= expected[told] + 1e-3).all()
    assert (before[told] >= expected[told] - 1e-3).all()


def test_what_remains_may_be_asked_with_one_elapsed_time_per_job(fitted):
    elapsed = np.linspace(0, 1e5, TEST.height)
    found = fitted.predict_remaining(TEST, elapsed, history=LOG)
    assert found[7] == fitted.predict_remaining(TEST[7:8], elapsed[7], history=LOG)[0]
    with pytest.raises(HindcastError, match=r"elapsed_s: found shape \(2,\) for 161 jobs"):
        fitted.predict_remaining(TEST, [1.0, 2.0])


def test_a_job_that_outlived_everything_still_has_something_left(fitted):
    free = TEST.with_columns(time_limit_s=pl.lit(None, dtype=pl.Float64))
    left = fitted.predict_remaining(free, 1e12, history=LOG)
    assert ((left > 0.05e12) & (left <= 1.01e12)).all()
    # A limit that was outrun does not bind.
    assert (fitted.predict_remaining(TEST.with_columns(time_limit_s=pl.lit(60.0)), 3600.0, history=LOG) > 0).all()


def test_no_quantile_is_above_the_limit_unless_the_median_is(fitted):
    limited = TEST.with_columns(time_limit_s=pl.lit(900.0))
    quantiles = fitted.predict_quantiles(limited, LEVELS, history=LOG)
    assert (quantiles <= np.maximum(900.0, fitted.predict(limited, history=LOG))[:, None] + 1e-6).all()


@pytest.mark.parametrize(("row", "at"), [(0, "submission"), (40, "start"), (159, "submission")])
def test_no_output_changes_with_what_had_not_ended(fitted, row, at):
    job = TEST[row : row + 1]
    instant = job["submit_time" if at == "submission" else "start_time"][0]
    expected = outputs(fitted, job, history=LOG, at=at)
    assert same(outputs(fitted, job, history=change_later(LOG, at=instant), at=at), expected)
    assert same(outputs(fitted, job, history=training_view(LOG, cutoff=instant), at=at), expected)
    future = LOG.with_columns(
        job_id="future" + pl.col("job_id"),
        submit_time=pl.lit(instant),
        start_time=pl.lit(instant),
        end_time=pl.lit(instant),
    )
    assert same(outputs(fitted, job, history=pl.concat([LOG, future]), at=at), expected)
    assert same([each[row : row + 1] for each in outputs(fitted, TEST, history=LOG, at=at)], expected)
    logs = [LOG, change_later(LOG, at=instant), training_view(LOG, cutoff=instant)]
    options = {"at": at, "calibration": "owner_running"}
    wider = [fitted.predict_distribution(job, history=log, **options).quantiles(LEVELS) for log in logs]
    assert np.array_equal(wider[0], wider[1])
    assert np.array_equal(wider[0], wider[2])


def test_outputs_do_not_depend_on_row_order_or_on_what_is_known_later(name, fitted):
    expected = outputs(fitted, TEST, history=LOG)
    order = np.random.default_rng(1).permutation(TEST.height)
    shuffled = LOG.sample(fraction=1, shuffle=True, seed=4)
    again = make(name).fit(TRAIN.sample(fraction=1, shuffle=True, seed=3))
    assert same(outputs(again, TEST[order], history=shuffled), [each[order] for each in expected])
    assert same(outputs(fitted, TEST.drop([c for c in OUTCOMES if c in TEST.columns]), history=LOG), expected)


def test_saved_and_loaded_all_outputs_are_the_same(fitted, tmp_path):
    loaded = load_model(save_model(fitted, tmp_path / "model"))
    assert same(outputs(loaded, TEST, history=LOG), outputs(fitted, TEST, history=LOG))
    assert same(outputs(loaded, TEST, at="start"), outputs(fitted, TEST, at="start"))


@pytest.mark.parametrize("case", sorted(HARD_LOGS))
def test_hard_logs_give_sound_outputs(name, case):
    model = make(name).fit(HARD_LOGS[case])
    check_outputs(model, TEST, history=HARD_LOGS[case])
    check_outputs(model, TEST.select("submit_time"), at="start")
    odd = [pl.col("submit_time").dt.offset_by("40y"), pl.lit(None, dtype=TEST.schema["submit_time"])]
    check_outputs(model, pl.concat([TEST.head(3).with_columns(submit_time=time) for time in odd]))


def test_an_unknown_instant_of_asking_is_named(fitted):
    with pytest.raises(HindcastError, match="no instant of asking is named 'noon'"):
        fitted.predict(TEST, at="noon")
    with pytest.raises(HindcastError, match="at: the column 'user' has dtype String; expected datetimes"):
        fitted.predict(TEST, at="user")


def test_d90_a_limit_that_is_none_does_not_bind(fitted):
    """Pitfall D90: a hint of 10 s binds the quantiles; none and 0 are the same: none; text is refused in a sentence."""
    job = TEST.head(1)
    given = {hint: job.with_columns(time_limit_s=pl.lit(hint, dtype=pl.Float64)) for hint in (10.0, None, 0.0, -5.0)}
    said = {hint: fitted.predict_quantiles(row, [0.1, 0.5, 0.9], history=LOG)[0] for hint, row in given.items()}
    assert (said[10.0] <= max(10.0, fitted.predict(given[10.0], history=LOG)[0])).all()
    assert np.array_equal(said[0.0], said[None])
    assert np.array_equal(said[-5.0], said[None])
    with pytest.raises(HindcastError, match="time_limit_s.*cannot be read as Float64"):
        fitted.predict(job.with_columns(time_limit_s=pl.lit("abc")))


def test_d91_an_unseen_user_with_a_limit_of_an_hour(fitted):
    """Pitfall D91: p50 <= p90 <= 3600, the same each time; a field that nobody knows changes nothing."""
    request = {"submit_time": [START + timedelta(days=40)], "user": ["u9"], "num_gpus": [2.0], "time_limit_s": [3600.0]}
    job = pl.DataFrame(request)
    _, middle, high = fitted.predict_quantiles(job, [0.1, 0.5, 0.9])[0]
    assert 1 <= middle <= high <= 3600
    assert same(outputs(fitted, job), outputs(fitted, job.with_columns(shoe_size=pl.lit(43))))


def test_d93_failures_do_not_teach_the_predictor_to_be_short(name):
    """Pitfall D93: completed 100 and 100, failed 2: the default learns 100, with one failure left out and counted."""
    log = pl.DataFrame(
        {
            "submit_time": [START + timedelta(hours=i) for i in range(3)],
            "user": ["a"] * 3,
            "vc": ["v"] * 3,
            "num_gpus": [1.0] * 3,
            "status": ["completed", "completed", "failed"],
            "duration_s": [100.0, 100.0, 2.0],
        }
    )
    next_job = log.tail(1).with_columns(pl.col("submit_time").dt.offset_by("1d"))
    model = make(name).fit(log)
    assert model.predict(next_job).tolist() == pytest.approx([100.0])
    assert (model.num_known_, model.num_excluded_) == (2, 1)
    kept = make(name).set_params(failures="keep").fit(log)
    assert (kept.num_known_, kept.num_excluded_) == (3, 0)
