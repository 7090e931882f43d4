"""What knowing the group tells, against laws with known answers; look-back errors against brute force and the study."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.characterize import duration_predictability, nearest_history
from analysis.characterize.groupings import JOB_GROUPS
from analysis.characterize.look_back import history_predictions, time_orders
from analysis.characterize.prepare import prepare, whole_jobs
from tests.jobs import make_jobs

T0 = datetime(2024, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def grouped(level: np.ndarray, spread: float, *, size: int, seed: int) -> pl.DataFrame:
    """Log-normal durations around the level of each user, ``size`` jobs each."""
    rng = np.random.default_rng(seed)
    log = rng.normal(np.repeat(level, size), spread)
    users = np.repeat(np.arange(len(level)), size).astype(str)
    return pl.DataFrame({"duration_s": np.expm1(log), "user": users, "num_gpus": np.full(len(log), 2.0)})


def row_of(table: pl.DataFrame, **chosen: object) -> dict[str, object]:
    return table.filter(**chosen).row(0, named=True)


def test_the_share_of_variance_is_that_of_the_law():
    # Levels of variance 4, spread within of variance 1: a share of 0.8; least error of a normal: sqrt(2 / pi).
    levels = np.random.default_rng(1).normal(12, 2, 4000)
    table = duration_predictability(grouped(levels, 1.0, size=8, seed=2))
    row = row_of(table, grouping="user")
    assert row["between_share"] == pytest.approx(0.8, abs=0.01)
    assert row["sd_log_within"] == pytest.approx(1.0, rel=0.02)
    assert row["sd_log"] == pytest.approx(math.sqrt(5), rel=0.03)
    assert (row["num_groups"], row["num_jobs"], row["job_share"]) == (4000, 32_000, 1)
    # Of 8 jobs one is the median itself: some below the law's.
    assert 0.85 * math.sqrt(2 / math.pi) < row["hindsight_log_mae"] < math.sqrt(2 / math.pi)
    none = row_of(table, grouping="none")
    assert none["hindsight_log_mae"] == pytest.approx(math.sqrt(2 / math.pi) * math.sqrt(5), rel=0.02)
    assert (none["between_share"], none["sd_log_within"]) == (0, none["sd_log"])


def test_groups_drawn_at_random_tell_nothing():
    # Unadjusted, groups of 5 would seem to explain a fifth of the variance.
    row = row_of(duration_predictability(grouped(np.full(2000, 8.0), 2.0, size=5, seed=3)), grouping="user")
    assert row["between_share"] == pytest.approx(0, abs=0.03)


def test_entropy_of_known_distributions():
    # Eight doublings alike: 3 bits. Each user stays in two of them: 1 bit.
    values = np.repeat([2.0 ** (k + 1) for k in range(8)], 500)  # the middle of no bin, in doubling k + 1
    users = np.repeat([0, 0, 1, 1, 2, 2, 3, 3], 500).astype(str)
    jobs = pl.DataFrame({"duration_s": values, "user": users, "num_gpus": 1.0})
    row = row_of(duration_predictability(jobs), grouping="user")
    assert row["entropy_bits"] == pytest.approx(3, abs=0.002)
    assert row["entropy_within_bits"] == pytest.approx(1, abs=0.002)
    assert row["hindsight_within_2x_share"] == pytest.approx(1, abs=1e-12)


def test_the_correction_takes_out_most_of_the_bias_of_small_groups():
    # Eight doublings alike, groups of 40 that mean nothing: plainly counted 7 / (80 ln 2) = 0.126 low.
    rng = np.random.default_rng(4)
    jobs = pl.DataFrame({"duration_s": 2.0 ** (1 + rng.integers(0, 8, 40_000)), "num_gpus": 1.0})
    jobs = jobs.with_columns(group=(pl.int_range(pl.len()) // 40).cast(pl.String))
    row = row_of(duration_predictability(jobs), grouping="group")
    assert row["entropy_within_bits"] == pytest.approx(3, abs=0.02)


def test_groups_of_fewer_than_5_jobs_say_nothing():
    jobs = make_jobs([{"duration_s": 10.0 + n, "user": f"u{n // 4}", "num_gpus": 1.0} for n in range(40)])
    assert duration_predictability(jobs)["grouping"].to_list() == ["none"]


def test_equal_durations_have_no_share_of_variance():
    row = row_of(
        duration_predictability(make_jobs([{"duration_s": 60.0, "vc": "a", "num_gpus": 1.0}] * 6)), grouping="vc"
    )
    assert (row["between_share"], row["sd_log"], row["entropy_bits"]) == (None, 0, 0)


def test_keys_do_not_depend_on_what_lies_beside_them():
    jobs = make_jobs([{"duration_s": 10.0, "user": f"u{n % 3}", "vc": "a", "num_gpus": 1.0} for n in range(9)])
    prepared = prepare(whole_jobs(jobs.lazy()), num_jobs=9)
    for name, key, num_groups in (("user", "packed", 3), ("vc", "vc_key", 1)):
        cube = JOB_GROUPS[name]
        whole = cube.query(prepared).collect()
        parts = [cube.query(prepared.slice(place, 4)).collect() for place in (0, 4, 8)]
        assert cube.merge(parts).equals(cube.merge([whole]))
        assert whole[key].n_unique() == num_groups


def test_pitfall_a35_an_error_of_a_zero_length_job_is_finite():
    rows = [
        {"duration_s": 0.0, "user": "u", "num_gpus": 1.0, "submit_time": at(n * 100), "end_time": at(n * 100)}
        for n in range(4)
    ]
    rows.append({"duration_s": 1.0, "user": "u", "num_gpus": 1.0, "submit_time": at(900), "end_time": at(901)})
    row = row_of(nearest_history(make_jobs(rows)), key="owner", rule="last")
    assert row["num_jobs"] == 4
    assert row["log_mae"] == pytest.approx(math.log(2) / 4)


def looked_back(jobs: list[tuple[int, int, int, float]], place: int) -> list[float]:
    """Durations that a scheduler knew of a key at a submission, oldest end first: written for its own sake."""
    key, submit, _, _ = jobs[place]
    known = [(end, start, ran) for who, start, end, ran in jobs if who == key and end < submit]
    return [ran for _, _, ran in sorted(known)]


def test_look_back_predictions_are_those_of_brute_force():
    rng = np.random.default_rng(5)
    size = 400
    key, submit = rng.integers(0, 4, size), rng.integers(0, 500, size)
    duration = rng.integers(0, 60, size).astype(float)
    end = submit + rng.integers(0, 20, size) + duration.astype(int)
    jobs = list(zip(key.tolist(), submit.tolist(), end.tolist(), duration.tolist(), strict=True))
    found = history_predictions(key, submit, end, duration)
    for place in range(size):
        known = looked_back(jobs, place)
        if not known:
            assert all(np.isnan(found[rule][place]) for rule in found)
            continue
        assert found["last"][place] == known[-1]
        assert found["mean_2"][place] == np.mean(known[-2:])
        assert found["median_15"][place] == np.median(known[-15:])


@pytest.mark.parametrize("num_ends", [3, 80])
def test_jobs_that_end_at_once_are_in_the_order_of_submission_and_duration(num_ends):
    # Of three ends each is shared by more jobs than are sorted in place.
    rng = np.random.default_rng(7)
    end, submit = rng.integers(0, num_ends, 400), rng.integers(0, 5, 400)
    duration = rng.integers(0, 9, 400).astype(float)
    by_submit, by_end = time_orders(submit, end, duration)
    rows = list(zip(end[by_end].tolist(), submit[by_end].tolist(), duration[by_end].tolist(), strict=True))
    assert rows == sorted(rows)
    assert (np.diff(submit[by_submit]) >= 0).all()
    assert sorted(by_end.tolist()) == sorted(by_submit.tolist()) == list(range(400))


def test_look_back_does_not_know_what_has_not_ended():
    # The second is submitted while the first runs; the third at the very instant that the second ends.
    key = np.zeros(3, dtype=np.int64)
    found = history_predictions(key, np.array([0, 50, 80]), np.array([100, 80, 90]), np.array([100.0, 30.0, 10.0]))
    assert np.isnan(found["last"]).all()


def test_look_back_of_many_keys_and_one_job_without_a_key():
    # The second of the last key knows the first, and the job without a key knows nothing and is known to nobody.
    key = np.array([0, 3_000_000, -1, 3_000_000])
    submit, end = np.array([0, 10, 30, 4_000_000_000_000]), np.array([5, 20, 40, 5_000_000_000_000])
    found = history_predictions(key, submit, end, np.array([5.0, 10.0, 1.0, 7.0]))
    assert np.array_equal(found["last"], [np.nan, np.nan, np.nan, 10.0], equal_nan=True)


def test_moving_what_ends_later_changes_no_prediction():
    """The leak test: durations of jobs that had not ended are not seen."""
    rng = np.random.default_rng(6)
    key, submit = rng.integers(0, 5, 300), np.sort(rng.integers(0, 1000, 300))
    duration = rng.integers(1, 300, 300).astype(float)
    end = submit + duration.astype(int)
    middle = int(submit[150])
    later = end >= middle
    moved = np.where(later, duration + 1000, duration)
    before, after = (history_predictions(key, submit, end, values) for values in (duration, moved))
    for rule, values in before.items():
        early = submit <= middle
        assert np.array_equal(values[early], after[rule][early], equal_nan=True)


def test_hand_worked_look_back_table():
    rows = [
        {"user": "u", "num_gpus": 1.0, "duration_s": 99.0, "submit_time": at(0), "end_time": at(99)},
        {"user": "u", "num_gpus": 3.0, "duration_s": 99.0, "submit_time": at(200), "end_time": at(299)},
        {"user": "v", "num_gpus": 1.0, "duration_s": 9.0, "submit_time": at(300), "end_time": at(309)},
        {"user": "u", "num_gpus": 1.0, "duration_s": 399.0, "submit_time": at(400), "end_time": at(799)},
    ]
    table = nearest_history(make_jobs(rows))
    own = row_of(table, key="owner", rule="last")
    assert (own["num_jobs"], own["with_history_share"]) == (2, 0.5)
    assert own["log_mae"] == pytest.approx(math.log(4) / 2)
    assert own["log_mae_gpu_time"] == pytest.approx(math.log(4) * 399 / (297 + 399))
    assert own["within_2x_share"] == 0.5
    request = row_of(table, key="owner_request", rule="median_15")
    assert (request["num_jobs"], request["log_mae"]) == (1, pytest.approx(math.log(4)))
    by_user = nearest_history(make_jobs(rows), by="user")
    assert by_user["user"].unique().to_list() == ["u"]


def test_jobs_of_unknown_size_have_no_request_and_no_history_of_one():
    rows = [
        {"user": "u", "num_gpus": gpus, "duration_s": 9.0, "submit_time": at(s), "end_time": at(s + 9)}
        for s, gpus in ((0, None), (100, None), (200, 1.0), (300, 1.0))
    ]
    table = nearest_history(make_jobs(rows)).filter(rule="last").select("kind", "key", "num_jobs", "with_history_share")
    assert table.rows() == [("gpu", "owner", 2, 1.0), ("gpu", "owner_request", 1, 0.5), ("unknown", "owner", 1, 0.5)]
    assert nearest_history(make_jobs(rows[:2])).height == 3


def test_pitfalls_a3_b47_a_job_of_several_attempts_is_known_after_its_last_end():
    # Ran 10-20 and 60-75: at 50 only a part of it is over, and its duration is not known.
    rows = [
        {
            "user": "u",
            "num_gpus": 1.0,
            "duration_s": 25.0,
            "submit_time": at(0),
            "start_time": at(10),
            "end_time": at(75),
            "num_attempts": 2,
        },
        {"user": "u", "num_gpus": 1.0, "duration_s": 5.0, "submit_time": at(50), "end_time": at(90)},
        {"user": "u", "num_gpus": 1.0, "duration_s": 5.0, "submit_time": at(76), "end_time": at(99)},
    ]
    row = row_of(nearest_history(make_jobs(rows)), key="owner", rule="last")
    assert (row["num_jobs"], row["log_mae"]) == (1, pytest.approx(math.log(26 / 6)))


def test_pitfall_b40_a_running_job_is_neither_history_nor_scored():
    rows = [
        {"user": "u", "num_gpus": 1.0, "duration_s": 9.0, "submit_time": at(0), "censoring": "right"},
        {"user": "u", "num_gpus": 1.0, "duration_s": 9.0, "submit_time": at(100), "end_time": at(109)},
        {"user": "u", "num_gpus": 1.0, "duration_s": 9.0, "submit_time": at(200), "censoring": "right"},
    ]
    assert nearest_history(make_jobs(rows)).height == 0


def test_a_prediction_is_cut_at_the_requested_limit():
    rows = [
        {
            "user": "u",
            "num_gpus": 1.0,
            "duration_s": ran,
            "time_limit_s": limit,
            "submit_time": at(s),
            "end_time": at(s),
        }
        for s, ran, limit in ((0, 999.0, None), (10, 99.0, 199.0), (20, 99.0, None))
    ]
    row = row_of(nearest_history(make_jobs(rows)), key="owner", rule="last")
    assert row["log_mae"] == pytest.approx(math.log(200 / 100) / 2)


def test_history_is_looked_for_among_all_jobs_also_by_vc():
    rows = [
        {"user": "u", "vc": vc, "num_gpus": 1.0, "duration_s": 9.0, "submit_time": at(s), "end_time": at(s + 9)}
        for vc, s in (("a", 0), ("b", 100))
    ]
    table = nearest_history(make_jobs(rows), by="vc")
    assert table.filter(key="owner", rule="last").rows() == [("b", "gpu", "owner", "last", 1, 1.0, 0.0, 0.0, 1.0)]


STUDY = [
    # ../shared/predictor_limits.md, section 3: log-MAE on jobs submitted after the 60 % job.
    ("kth", "owner", "mean_2", 1.244),  # user last-2 mean
    ("kth", "owner", "median_15", 1.272),  # user rolling median
    ("philly", "owner", "mean_2", 1.511),  # the VC stands for the user
    ("philly", "owner", "median_15", 1.179),
    ("philly", "owner_request", "median_15", 1.092),  # key rolling median: no limit in this log
]


@pytest.mark.full_trace
@pytest.mark.parametrize(("log", "key", "rule", "published"), STUDY)
def test_look_back_errors_are_those_of_the_study(real_data, log, key, rule, published):
    from analysis.loaders import load

    files = {"kth": ("swf", "swf/KTH-SP2-1996-2.swf.gz"), "philly": ("sia_philly", "philly/philly_jobs.csv.gz")}
    loader, name = files[log]
    jobs = load(loader, [real_data(name)]).jobs.filter(pl.col("duration_s").is_not_null())
    who = {"kth": ["user"], "philly": ["vc"]}[log] + (["num_gpus"] if key == "owner_request" else [])
    codes = jobs.select(pl.struct(who).rank("dense")).to_series().cast(pl.Int64).to_numpy() - 1
    submit = jobs["submit_time"].dt.timestamp("us").to_numpy()
    duration = jobs["duration_s"].to_numpy()
    proxy = submit + (duration * 1e6).astype(np.int64)
    end = jobs["end_time"].dt.timestamp("us").fill_null(-1).to_numpy()
    end = np.where(end < 0, proxy, end)
    cut = np.sort(submit)[int(0.6 * len(submit))]
    known = (submit < cut) & (end < cut)
    predicted = history_predictions(codes, submit, end, duration)[rule]
    predicted = np.where(np.isnan(predicted), np.median(duration[known]), predicted)
    # The study cuts predictions at the requested limit where there is one.
    predicted = np.fmin(predicted, jobs["time_limit_s"].cast(pl.Float64).fill_null(np.nan).to_numpy())
    error = np.abs(np.log1p(predicted) - np.log1p(duration))[submit >= cut]
    assert error.mean() == pytest.approx(published, abs=0.01)


@pytest.mark.full_trace
def test_look_back_agrees_with_the_history_of_the_predictors(real_data):
    # Written apart from each other: analysis knows no predictor.
    from analysis.loaders import load
    from predictors.history import ended_jobs, history_features

    jobs = load("swf", [real_data("swf/KTH-SP2-1996-2.swf.gz")]).jobs
    theirs = history_features(jobs, past=ended_jobs(jobs), keys=["user"], stats=["last", "mean_2"])
    codes = jobs["user"].rank("dense").cast(pl.Int64).to_numpy() - 1
    times = (jobs[name].dt.timestamp("us").to_numpy() for name in ("submit_time", "end_time"))
    ours = history_predictions(codes, *times, jobs["duration_s"].to_numpy())
    for rule in ("last", "mean_2"):
        expected = theirs[f"user__{rule}"].fill_null(np.nan).to_numpy()
        assert np.array_equal(np.isnan(ours[rule]), np.isnan(expected))
        same = np.isclose(ours[rule], expected, rtol=1e-12, equal_nan=True)
        # Jobs of one user, submitted and ended at once, stand in another order.
        assert same.mean() > 0.999
