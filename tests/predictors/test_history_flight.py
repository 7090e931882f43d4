"""In-flight features against plain Python that looks at every pair of jobs; nothing of the future shows anywhere."""

from __future__ import annotations

import math
import statistics
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import UnknownNameError, UsageError
from predictors.features import feature_table
from predictors.history import FLIGHT_KEYS, FLIGHT_STATS, flight_features, history_features, known_jobs
from predictors.history_keys import id_key
from tests.predictors.history_cases import TIME, as_log, at, logs
from tests.predictors.test_history_state import NAMES, asked
from tests.replay_cases import hypothesis_settings

EMPTY = at(-(10**9))


def size_of(job: dict) -> tuple[float, float]:
    gpus = job["num_gpus"] or 0.0
    return (gpus, 0.0) if gpus > 0 else (0.0, job["num_cpus"] or 0.0)


def naive_work(job: dict, jobs: list[dict]) -> int:
    """Predicted seconds of a job when it came: the median of the last 20 of the first group with ended jobs."""
    groups = (
        lambda j: None if None in (j["user"], j["time_limit_s"]) else (j["user"], size_of(j), j["time_limit_s"]),
        lambda j: j["user"],
        lambda j: j["vc"],
        lambda _: "all",
    )
    predicted = 0.0
    for group in groups:
        past = [
            other
            for other in jobs
            if group(job) is not None
            and group(other) == group(job)
            and other["end_time"] is not None
            and other["end_time"] < job["submit_time"]
        ]
        past.sort(key=lambda j: (j["end_time"], j["submit_time"] or EMPTY, id_key(j["job_id"])))
        if past:
            predicted = statistics.median([other["duration_s"] for other in past[-20:]])
            break
    return math.floor(min(predicted, job["time_limit_s"] or math.inf) + 0.5)


def naive(log: pl.DataFrame, instants: list[datetime | None], key: str) -> list[dict[str, float | None]]:
    """Look at every job for every row."""
    raw = {row["job_id"]: row for row in log.iter_rows(named=True)}
    jobs = [
        {**row, **{n: raw[row["job_id"]][n] for n in ("num_gpus", "num_cpus")}, "submit_time": row["submit_time"]}
        for row in known_jobs(log).iter_rows(named=True)
    ]
    for job in jobs:
        job["order"] = (job["submit_time"] or EMPTY, id_key(job["job_id"]))
    return [row_of(raw_row, now, jobs, key) for raw_row, now in zip(log.iter_rows(named=True), instants, strict=True)]


def row_of(me: dict, now: datetime | None, jobs: list[dict], key: str) -> dict[str, float | None]:
    found: dict[str, float | None] = dict.fromkeys(FLIGHT_STATS)
    column = FLIGHT_KEYS[key]
    value = me[column[0]] if column else "all"
    if now is None or value is None:
        return found
    own = (me["submit_time"], id_key(me["job_id"]))
    came = [
        job
        for job in jobs
        if job["submit_time"] is not None
        and job["job_id"] != me["job_id"]
        and (
            job["submit_time"] < now or (job["submit_time"] == now and (me["submit_time"] != now or job["order"] < own))
        )
    ]
    has_starts = any(
        j["start_time"] is not None and j["start_time"] < now for j in jobs if j["submit_time"] is not None
    )
    mine = [job for job in came if (job[column[0]] if column else "all") == value]
    here = [job for job in mine if job["leave_time"] is None or job["leave_time"] >= now]
    runs = [job for job in here if job["start_time"] is not None and job["start_time"] < now]
    waits = [job for job in here if job not in runs]
    found |= {"unfinished": len(here)}
    found |= {f"unfinished_{unit}": sum(size_of(j)[i] for j in here) for i, unit in enumerate(("gpus", "cpus"))}
    if mine:
        found["since_submit_s"] = (now - max(job["submit_time"] for job in mine)).total_seconds()
    if not has_starts:
        return found
    found |= {"pending": len(waits), "running": len(runs)}
    for i, unit in enumerate(("gpu", "cpu")):
        found |= {
            f"pending_{unit}s": sum(size_of(j)[i] for j in waits),
            f"running_{unit}s": sum(size_of(j)[i] for j in runs),
        }
        found[f"pending_{unit}_s"] = sum(size_of(j)[i] * naive_work(j, jobs) for j in waits)
    if runs:
        found["elapsed_mean_s"] = statistics.mean((now - job["start_time"]).total_seconds() for job in runs)
    return found


@hypothesis_settings(15)
@given(jobs=logs, delays=st.lists(st.sampled_from([0, 0, 0, 1, 3, 20]), min_size=25, max_size=25))
def test_flight_equals_the_naive_pass(jobs, delays):
    log = as_log(jobs, prefix="x")
    instants = asked(log, delays)
    found = flight_features(log, past=known_jobs(log), at=pl.Series(instants, dtype=TIME))
    for key in FLIGHT_KEYS:
        expected = naive(log, instants, key)
        for stat in FLIGHT_STATS:
            given_back = found[f"{key}__{stat}"].to_list()
            wanted = [row[stat] for row in expected]
            assert [x is None for x in given_back] == [x is None for x in wanted], (key, stat, given_back, wanted)
            # Starts count in milliseconds.
            assert [x or 0 for x in given_back] == pytest.approx([x or 0 for x in wanted], abs=2e-3), (key, stat)


def test_position_in_a_batch():
    #         before  the same second ......  next s  other limit  other user  next minute
    came = [(0, "a", 60), (5, "a", 60), (5, "a", 60), (6, "a", 60), (6, "a", 90), (7, "b", 60), (10, "a", 60)]
    log = pl.DataFrame(
        {
            "submit_time": [at(second) for second, _, _ in came],  # 23:59:50 + …
            "user": [user for _, user, _ in came],
            "time_limit_s": [limit for *_, limit in came],
            "num_gpus": [1.0] * 7,
        }
    )
    found = flight_features(log, past=known_jobs(log), keys=[])["batch__position"]
    assert found.to_list() == [0, 1, 2, 3, 0, 0, 0]
    later = flight_features(log, past=known_jobs(log), keys=[], at=pl.Series([at(3600)] * 7))["batch__position"]
    assert later.to_list() == found.to_list()


def test_what_waits_and_runs_by_hand():
    #            0      1      2      3      4      5 h
    #  a 8 GPUs  [======run=====......]
    #  b 4 GPUs         wwww[==run=====]         (limit 1 h; nobody had ended: its work counts as 0 s)
    #  c 2 CPUs                    wwwww         (a had ended? no: its end at 3 h is not before 3 h)
    hour = timedelta(hours=1)
    log = pl.DataFrame(
        {
            "job_id": ["a", "b", "c"],
            "submit_time": [at(0), at(0) + hour, at(0) + 3 * hour],
            "start_time": [at(0), at(0) + 2 * hour, None],
            "end_time": [at(0) + 3 * hour, at(0) + 4 * hour, None],
            "duration_s": [3 * 3600.0, 7200.0, None],
            "num_gpus": [8.0, 4.0, 0.0],
            "num_cpus": [1.0, 1.0, 2.0],
            "time_limit_s": [None, 3600.0, None],
            "user": ["u", "u", "v"],
        }
    )
    rows = pl.DataFrame(
        {"job_id": ["new"] * 3, "submit_time": [at(0) + h * hour for h in (1.5, 3, 3.5)], "user": ["u"] * 3}
    )
    stats = ["pending_gpus", "running_gpus", "pending_cpus", "elapsed_mean_s", "since_submit_s"]
    found = flight_features(rows, past=known_jobs(log), keys=["user", "all"], stats=stats)
    assert found.select(pl.selectors.starts_with("user")).rows() == [
        (4, 8, 0, 5400, 1800),
        (0, 12, 0, 7200, 7200),  # at 3 h the end of a does not show yet
        (0, 4, 0, 5400, 9000),
    ]
    assert found.select(pl.selectors.starts_with("all")).rows() == [
        (4, 8, 0, 5400, 1800),
        (0, 12, 2, 7200, 0),  # c, submitted at the same instant, has the lower id
        (0, 4, 2, 5400, 1800),
    ]


def test_a_log_without_starts_counts_unfinished_jobs_only():
    log = pl.DataFrame({"submit_time": [at(0), at(5), at(100)], "duration_s": [10.0, 10.0, 1.0], "num_gpus": [2.0] * 3})
    found = flight_features(log, past=known_jobs(log), keys=["all"], stats=["unfinished", "unfinished_gpus", "pending"])
    assert found.select("all__unfinished", "all__unfinished_gpus", "all__pending").rows() == [
        (0, 0, None),
        (1, 2, None),
        (0, 0, None),
    ]


@hypothesis_settings(12)
@given(
    jobs=logs,
    later=logs,
    cut=st.integers(0, 30),
    delays=st.lists(st.sampled_from([0, 0, 3]), min_size=25, max_size=25),
    factor=st.sampled_from([0.01, 50.0]),
)
def test_nothing_of_the_future_shows(jobs, later, cut, delays, factor):
    log = as_log(jobs)
    now = at(cut)
    instants = [t if t is None or t < now else now for t in asked(log, delays)]
    when = pl.Series(instants, dtype=TIME)
    rows = log.filter(pl.col("submit_time") <= now)
    when = when.filter(log["submit_time"] <= now)
    expected = feature_table(rows, past=known_jobs(log), names=NAMES, at=when)

    # Other ends, statuses and starts for whatever ended or started at the instant or after it.
    open_ = (pl.col("end_time") >= now) | pl.col("end_time").is_null()
    waiting = (pl.col("start_time") >= now) | pl.col("start_time").is_null()
    end = pl.when(pl.col("duration_s").is_null()).then(pl.lit(now) + pl.duration(seconds=5))
    changed = log.with_columns(
        end_time=pl.when(open_).then(end.otherwise(pl.lit(now) + pl.duration(days=3))).otherwise("end_time"),
        duration_s=pl.when(open_).then(pl.col("duration_s").fill_null(7) * factor).otherwise("duration_s"),
        status=pl.when(open_).then(pl.lit("failed")).otherwise("status"),
        censoring=pl.when(open_).then(pl.lit("none")).otherwise("censoring"),
        start_time=pl.when(waiting).then(pl.lit(now) + pl.duration(hours=1)).otherwise("start_time"),
    )
    assert feature_table(rows, past=known_jobs(changed), names=NAMES, at=when).equals(expected)

    # Jobs that come at the instant (behind the others) or after it.
    future = as_log(later).with_columns(
        job_id="y" + pl.col("job_id"),
        submit_time=pl.when(pl.col("submit_time") <= now).then(pl.lit(now)).otherwise("submit_time"),
    )
    future = future.filter(
        pl.col("submit_time").is_not_null() & ((pl.col("end_time") >= now) | pl.col("end_time").is_null())
    )
    at_own = rows.with_columns(_now=when).filter((pl.col("_now") < now) | (pl.col("_now") == pl.col("submit_time")))
    longer = feature_table(
        at_own.drop("_now"), past=known_jobs(pl.concat([log, future])), names=NAMES, at=at_own["_now"].cast(TIME)
    )
    kept = expected.filter((when < now) | (when == rows["submit_time"]))
    assert longer.equals(kept)


@hypothesis_settings(10)
@given(jobs=logs, seed=st.integers(0, 99))
def test_row_order_and_company_do_not_matter(jobs, seed):
    log = as_log(jobs, prefix="x")
    expected = feature_table(log, past=known_jobs(log), names=NAMES)
    order = np.random.default_rng(seed).permutation(log.height)
    assert feature_table(log[order], past=known_jobs(log[order]), names=NAMES).equals(expected[order])
    one = int(order[0])
    assert feature_table(log[one : one + 1], past=known_jobs(log), names=NAMES).equals(expected[one : one + 1])


@hypothesis_settings(8)
@given(jobs=logs)
def test_a_job_that_the_log_does_not_hold_is_told_the_same(jobs):
    log = as_log(jobs)
    expected = feature_table(log, past=known_jobs(log), names=NAMES)
    for place in range(min(log.height, 4)):
        others = log.filter(pl.col("job_id") != str(place))
        alone = feature_table(log[place : place + 1], past=known_jobs(others), names=NAMES)
        assert alone.equals(expected[place : place + 1]) or log["submit_time"][place] is None


def test_at_the_start_more_is_known_than_at_the_submission():
    log = pl.DataFrame(
        {
            "submit_time": [at(0), at(1)],
            "start_time": [at(0), at(100)],
            "end_time": [at(50), at(200)],
            "duration_s": [50.0, 100.0],
            "user": ["a", "a"],
        }
    )
    past = known_jobs(log)
    assert history_features(log, past=past, keys=["user"], stats=["last"], at="start").rows() == [(None,), (50.0,)]
    assert history_features(log, past=past, keys=["user"], stats=["last"]).rows() == [(None,), (None,)]
    waited = feature_table(log, past=past, names=["waited_s", "elapsed_s"], at=pl.Series([at(30), at(60)]))
    assert waited.rows() == [(0.0, 30.0), (59.0, None)]


@pytest.mark.parametrize("at_what", ["end", 5, pl.Series([1, 2]), pl.Series([at(0)])])
def test_instants_that_do_not_fit_are_one_sentence(at_what):
    log = as_log([]).clear(2)
    rows = pl.DataFrame({"submit_time": [at(0), at(1)]})
    with pytest.raises(UsageError, match=r"at: found .*; expected .*one per row"):
        history_features(rows, past=known_jobs(log.head(0)), at=at_what)


def test_unknown_in_flight_names_list_the_known_ones():
    rows = pl.DataFrame({"submit_time": [at(0)]})
    with pytest.raises(UnknownNameError, match="known: .*pending"):
        flight_features(rows, past=known_jobs(rows), stats=["waiting"])
    with pytest.raises(UnknownNameError, match="known: .*user"):
        flight_features(rows, past=known_jobs(rows), keys=["group"])


HARD = {
    "no_rows": pl.DataFrame({"submit_time": []}, schema={"submit_time": TIME}),
    "one_job": pl.DataFrame({"submit_time": [at(0)]}),
    "no_times": pl.DataFrame({"submit_time": pl.Series([None, None], dtype=TIME), "user": ["a", None]}),
    "future": pl.DataFrame(
        {"submit_time": [at(0), datetime(9999, 1, 1)], "duration_s": [5.0, 5.0], "user": ["a", "a"]}
    ),
    "same_ids": pl.DataFrame({"job_id": ["1", "1"], "submit_time": [at(0), at(1)], "duration_s": [1.0, 1.0]}),
    "no_users_infinite_sizes": pl.DataFrame({"submit_time": [at(0)] * 2, "num_gpus": [math.inf, math.nan]}),
    "huge": pl.DataFrame({"submit_time": [at(0), at(9)], "num_gpus": [1e300, 2.0], "duration_s": [1e12, 1e300]}).head(
        1
    ),
}


@pytest.mark.parametrize("case", sorted(HARD))
def test_hard_logs_have_features(case):
    log = HARD[case]
    found = feature_table(log, past=known_jobs(log), names=NAMES)
    assert found.shape == (log.height, len(NAMES))
    assert feature_table(log, past=known_jobs(log.head(0)), names=NAMES).shape == found.shape
    for place in range(log.height):
        counted = found["all__unfinished"][place]
        assert (counted is None) == (log["submit_time"][place] is None)
