"""Leak-free history against a naive implementation that looks at every pair of jobs, and cases worked by hand."""

from __future__ import annotations

import math
import statistics
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import UnknownNameError
from predictors.history import FLIGHT_STATS, HISTORY_KEYS, HISTORY_STATS, ended_jobs, history_features, known_jobs
from predictors.history_flight import FLIGHT_STATS as KERNEL_FLIGHT_STATS
from predictors.history_kernel import STATS as KERNEL_STATS
from tests.replay_cases import hypothesis_settings

START = datetime(2024, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


job = st.fixed_dictionaries(
    {
        "submit": st.none() | st.integers(0, 30),
        "wait": st.integers(0, 5),
        "run": st.none() | st.integers(0, 15),
        "user": st.none() | st.sampled_from("ab"),
        "vc": st.none() | st.sampled_from("vw"),
        "num_gpus": st.none() | st.sampled_from([0.0, 1.0, 2.0]),
        "num_cpus": st.none() | st.sampled_from([1.0, 2.0]),
        "job_name": st.none() | st.sampled_from(["train1", "train2", "eval"]),
        "group": st.none() | st.sampled_from("gh"),
        "time_limit_s": st.none() | st.sampled_from([60.0, 90.0]),
        "status": st.none() | st.sampled_from(["completed", "failed", "cancelled", "node_fail", "timeout", "unknown"]),
        "censoring": st.sampled_from(["none"] * 5 + ["right", "left"]),
    }
)


def as_table(jobs: list[dict]) -> pl.DataFrame:
    names = ["user", "vc", "num_gpus", "num_cpus", "job_name", "group", "time_limit_s", "status", "censoring"]
    numbers = {"num_gpus", "num_cpus", "time_limit_s"}
    table = {
        name: pl.Series([j[name] for j in jobs], dtype=pl.Float64 if name in numbers else pl.String) for name in names
    }
    ended = [j["submit"] is not None and j["run"] is not None for j in jobs]
    ends = [at(j["submit"] + j["wait"] + j["run"]) if e else None for j, e in zip(jobs, ended, strict=True)]
    time = pl.Datetime("us", "UTC")
    return pl.DataFrame(
        {
            "job_id": [str(i) for i in range(len(jobs))],
            "submit_time": pl.Series([None if j["submit"] is None else at(j["submit"]) for j in jobs], dtype=time),
            "end_time": pl.Series(ends, dtype=time),
            "duration_s": pl.Series([j["run"] for j in jobs], dtype=pl.Float64),
            **table,
        }
    )


def naive_key(row: dict, key: str) -> tuple | None:
    gpus, cpus = row["num_gpus"], row["num_cpus"] or 0.0
    size = gpus if gpus else -cpus
    family = {"train1": "train", "train2": "train", "eval": "eval", None: None}[row["job_name"]]
    # Nobody knows after which names the name of a job came that has no submission.
    similar = None if row["submit_time"] is None else family
    derived = {"size": size, "job_family": family, "similar_name": similar}
    values = tuple(derived.get(c, row.get(c)) for c in HISTORY_KEYS[key])
    return None if None in values else values


def naive(rows: list[dict], key: str, *, failures: str) -> list[dict[str, float | None]]:
    """For every job look at every job: plain Python, no sorting tricks."""
    out = []
    for me in rows:
        mine = naive_key(me, key)
        past = [
            other
            for other in rows
            if mine is not None
            and me["submit_time"] is not None
            and naive_key(other, key) == mine
            and other["censoring"] == "none"
            and other["end_time"] is not None
            and other["end_time"] < me["submit_time"]
        ]
        past.sort(key=lambda r: (r["end_time"], r["submit_time"], int(r["job_id"])))
        told = [r["status"] for r in past if r["status"] not in {None, "unknown"}][-20:]
        kept = [r for r in past if failures == "keep" or r["status"] not in {"failed", "node_fail"}]
        runs = [r["duration_s"] for r in kept][-20:]
        empty: dict[str, float | None] = dict.fromkeys(HISTORY_STATS)
        found = (
            empty
            if not runs
            else {
                "last": runs[-1],
                "mean_2": statistics.mean(runs[-2:]),
                "mean_5": statistics.mean(runs[-5:]),
                "mean_20": statistics.mean(runs),
                "median_5": statistics.median(runs[-5:]),
                "median_20": statistics.median(runs),
                "spread_20": spread(runs),
                "ewma": math.expm1(moving_average([r["duration_s"] for r in kept])),
                "min_20": min(runs),
                "max_20": max(runs),
                "since_last_s": (me["submit_time"] - kept[-1]["end_time"]).total_seconds(),
            }
        )
        found = {**found, "count": None if mine is None else float(len(kept))}
        for rate, statuses in (("failure", {"failed", "node_fail"}), ("kill", {"cancelled", "timeout"})):
            found[f"{rate}_rate_20"] = sum(status in statuses for status in told) / len(told) if told else None
        out.append(found)
    return out


def spread(runs: list[float]) -> float:
    low, _, high = statistics.quantiles(runs, n=4, method="inclusive") if len(runs) > 1 else runs * 3
    return math.log1p(high) - math.log1p(low)


def moving_average(runs: list[float]) -> float:
    value = math.log1p(runs[0])
    for run in runs[1:]:
        value = 0.8 * value + 0.2 * math.log1p(run)
    return value


@pytest.mark.parametrize("failures", ["keep", "exclude"])
@hypothesis_settings(25)
@given(jobs=st.lists(job, min_size=1, max_size=40))
def test_history_equals_the_naive_pass(jobs, failures):
    table = as_table(jobs)
    found = history_features(table, past=known_jobs(table), failures=failures)
    alone = [key for key in HISTORY_KEYS if key != "user_similar"]
    of_ended = history_features(table, past=ended_jobs(table), failures=failures, keys=alone)
    assert of_ended.equals(found.select(of_ended.columns))
    rows = table.rows(named=True)
    for key in HISTORY_KEYS:
        expected = naive(rows, key, failures=failures)
        for stat in HISTORY_STATS:
            given_back = found[f"{key}__{stat}"].cast(pl.Float64).to_list()
            assert same(given_back, [e[stat] for e in expected]), (key, stat)


def same(found: list[float | None], expected: list[float | None]) -> bool:
    """Whether nulls stand at the same places and numbers agree."""
    return all(
        a is b is None or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12))
        for a, b in zip(found, expected, strict=True)
    )


@hypothesis_settings(12)
@given(jobs=st.lists(job, min_size=2, max_size=25), seed=st.integers(0, 99))
def test_row_order_does_not_matter(jobs, seed):
    table = as_table(jobs)
    order = np.random.default_rng(seed).permutation(table.height)
    found = history_features(table, past=known_jobs(table))
    assert known_jobs(table[order]).equals(known_jobs(table))
    assert ended_jobs(table[order]).equals(ended_jobs(table))
    assert history_features(table[order], past=known_jobs(table[order])).equals(found[order])
    one = int(order[0])
    assert history_features(table[one : one + 1], past=known_jobs(table)).equals(found[one : one + 1])


def test_a_window_longer_than_twenty_jobs():
    # Jobs of 1, 2 … 50 s end one a minute; a last one comes an hour later.
    log = pl.DataFrame(
        {
            "submit_time": [at(60 * i) for i in range(50)] + [at(7200)],
            "duration_s": [float(i + 1) for i in range(50)] + [7.0],
            "vc": ["v"] * 51,
        }
    )
    last = history_features(log, past=ended_jobs(log), keys=["vc"])[50].row(0, named=True)
    assert last["vc__last"] == 50
    assert last["vc__mean_2"] == 49.5
    assert last["vc__mean_5"] == 48
    assert last["vc__mean_20"] == last["vc__median_20"] == 40.5  # 31 … 50
    assert (last["vc__min_20"], last["vc__max_20"], last["vc__count"]) == (31, 50, 50)
    assert last["vc__since_last_s"] == 7200 - (60 * 49 + 50)
    assert last["vc__failure_rate_20"] is None


def test_an_end_at_the_very_instant_of_the_submission_does_not_count():
    log = pl.DataFrame({"submit_time": [at(0), at(10), at(10.000001)], "duration_s": [10.0, 1.0, 1.0], "vc": ["v"] * 3})
    counts = history_features(log, past=ended_jobs(log), keys=["vc"], stats=["count"])
    assert counts["vc__count"].to_list() == [0, 0, 1]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]])
def test_equal_ends_are_ordered_by_submission_then_by_id_as_a_number(order):
    log = pl.DataFrame(
        {
            "job_id": ["10", "9", "2", "7"],
            "submit_time": [at(0), at(0), at(1), at(50)],
            "end_time": [at(10), at(10), at(10), at(60)],
            "duration_s": [1.0, 2.0, 4.0, 8.0],
            "vc": ["v"] * 4,
        }
    )[order]
    past = ended_jobs(log)
    assert past["duration_s"].to_list() == [2.0, 1.0, 4.0, 8.0]  # 9 before 10, both before the later submission
    last = history_features(log, past=past, keys=["vc"], stats=["last", "mean_2"])[order.index(3)]
    assert last.row(0) == (4.0, 2.5)


def test_a_cpu_job_and_a_gpu_job_of_the_same_number_have_different_sizes():
    log = pl.DataFrame(
        {
            "submit_time": [at(0), at(100), at(200)],
            "duration_s": [5.0, 6.0, 7.0],
            "vc": ["v"] * 3,
            "num_gpus": [4.0, 0.0, 4.0],
            "num_cpus": [1.0, 4.0, 8.0],
        }
    )
    last = history_features(log, past=ended_jobs(log), keys=["vc_size"], stats=["last"])
    assert last["vc_size__last"].to_list() == [None, None, 5.0]


def test_the_compiled_core_writes_statistics_where_their_names_stand():
    assert KERNEL_STATS == HISTORY_STATS
    assert KERNEL_FLIGHT_STATS == FLIGHT_STATS


def test_no_history_at_all_is_null_and_counts_zero():
    rows = pl.DataFrame({"submit_time": [at(5)], "user": ["a"]})
    nothing = ended_jobs(pl.DataFrame({"submit_time": [at(0)], "user": ["a"]}))
    found = history_features(rows, past=nothing, keys=["user"]).row(0, named=True)
    assert found.pop("user__count") == 0
    assert set(found.values()) == {None}


@pytest.mark.parametrize(("keys", "stats"), [(["colour"], ["last"]), (["user"], ["p99"])])
def test_unknown_names_list_the_known_ones(keys, stats):
    rows = pl.DataFrame({"submit_time": [at(5)]})
    with pytest.raises(UnknownNameError, match="known: .*(user_size|median_20)"):
        history_features(rows, past=ended_jobs(rows), keys=keys, stats=stats)


def test_means_do_not_drift_after_a_huge_value():
    # A running sum would keep the rounding of 1e16 for ever.
    runs = [1e16, *[0.1] * 25, 3.0]
    log = pl.DataFrame({"submit_time": [at(0)] * len(runs), "duration_s": runs, "vc": ["v"] * len(runs)})
    log = log.with_columns(end_time=pl.Series([at(i + 1) for i in range(len(runs))]))
    me = pl.DataFrame({"submit_time": [at(26.5)], "vc": ["v"]})
    mean = history_features(me, past=ended_jobs(log), keys=["vc"], stats=["mean_20"])["vc__mean_20"][0]
    assert math.isclose(mean, 0.1, rel_tol=1e-12)
