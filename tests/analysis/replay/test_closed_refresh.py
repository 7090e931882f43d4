"""Predictions that are made again for jobs that wait or run: exact, blind to the future, and worked out by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import replay as registry
from analysis.errors import HindcastError, UsageError
from analysis.replay import Cluster, RefreshingForecaster, ReplayResult, RollingPrediction, replay
from tests.closed_cases import ROLLING, Refreshed, Rolling, closed, peopled, predictions
from tests.reference_closed import closed_reference
from tests.replay_cases import hypothesis_settings, outcome, trouble
from tests.replay_checks import schedule_bytes


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python runs the engine's source: machine code is compared with it below, once for each loop."""
    monkeypatch.setenv("HINDCAST_ENGINE", "plain")


#: Every loop and trait, and orders that predictions change or do not.
POLICIES = ["sjf", "ljf_skip", "qssf_skip", "fifo", "easy", "conservative", "srtf", "srtf_skip", "las_skip"]
#: At every instant, at most of them, now and then [s].
EVERY_S = (1e-6, 0.7, 2.0, 7.5)


@pytest.mark.parametrize("policy", POLICIES)
@hypothesis_settings(3)
@given(
    seed=st.integers(0, 9_999),
    rolling=st.sampled_from(ROLLING[:3]),
    refresh_s=st.sampled_from(EVERY_S),
    interval_s=st.sampled_from([None, 2.0]),
    has_trouble=st.booleans(),
)
def test_both_engines_agree(policy: str, seed: int, rolling: Any, refresh_s: float, interval_s: Any, has_trouble: bool):  # noqa: FBT001
    """Start, end, nodes, preemptions, and the first and last prediction of every job, with and without node events."""
    case = peopled(seed, num_jobs=40)
    case = trouble(case, seed) if has_trouble else case
    result = closed(case, policy, {**rolling, "refresh_s": refresh_s}, checkpoint_interval_s=interval_s)
    told = closed_reference(case, policy=policy, refresh_s=refresh_s, interval_s=interval_s, **rolling)
    assert outcome(result) == told.outcome
    assert predictions(result) == told.first
    assert predictions(result, "predicted_last_s") == told.last


@pytest.mark.parametrize("policy", ["srtf", "srtf_skip"])
def test_both_engines_agree_where_preemption_costs(policy: str):
    """What a restart takes is no age; a run that may not be stopped yet is predicted again all the same."""
    options = {"checkpoint_overhead_s": 0.4, "restart_cost_s": 1.3, "min_run_s": 1.5}
    num_stops = 0
    for seed in range(6):
        case, rolling = peopled(seed, num_jobs=40), ROLLING[seed % 3]
        predictor = RollingPrediction(**rolling, refresh_s=1.0)
        chosen = registry.POLICIES[policy].using(**options)
        result = replay(case.jobs, cluster=case.cluster, policy=chosen, predicted=predictor)
        told = closed_reference(case, policy=policy, refresh_s=1.0, options=options, **rolling)
        assert outcome(result) == told.outcome
        assert predictions(result, "predicted_last_s") == told.last
        num_stops += sum(run.stops for run in told.outcome.runs.values())
    assert num_stops > 5


def test_it_matters():
    """Schedules differ from those with one prediction for each job, in every loop; the first predictions may, too."""
    for policy in ("sjf", "easy", "conservative", "srtf_skip"):
        cases = [peopled(seed, num_jobs=40) for seed in range(4)]
        again = [closed(case, policy, {**ROLLING[0], "refresh_s": 1.0}) for case in cases]
        once = [closed(case, policy, ROLLING[0]) for case in cases]
        assert any(schedule_bytes(one) != schedule_bytes(other) for one, other in zip(again, once, strict=True))
        assert any(predictions(one) != predictions(one, "predicted_last_s") for one in again)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_time_that_never_comes_changes_nothing(policy: str):
    case = peopled(3)
    once, never = (closed(case, policy, {**ROLLING[0], "refresh_s": every}) for every in (None, 1e9))
    assert schedule_bytes(never) == schedule_bytes(once)
    assert never.counts == once.counts
    assert predictions(never) == predictions(never, "predicted_last_s") == predictions(once)
    assert "predicted_last_s" not in once.jobs.columns


# --- by hand ---------------------------------------------------------------------------------------------------------

#: job: submission, user, GPUs, duration [s]
Rows = dict[str, tuple[float, str, int, float]]


def starts(rows: Rows, *, num_gpus: int, policy: str, **rolling: Any) -> tuple[dict[str, float], ReplayResult]:
    begin = pl.datetime(2024, 1, 1, time_zone="UTC", time_unit="us")
    at, user, gpus, seconds = zip(*rows.values(), strict=True)
    jobs = pl.select(
        job_id=pl.Series(list(rows)),
        submit_time=begin + pl.duration(milliseconds=pl.Series(at) * 1000),
        user=pl.Series(user),
        num_gpus=pl.Series(gpus, dtype=pl.Float64),
        duration_s=pl.Series(seconds, dtype=pl.Float64),
    )
    predicted = RollingPrediction(groups=(("user",),), **rolling)
    result = replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=num_gpus), policy=policy, predicted=predicted)
    return dict(zip(result.schedule["job_id"], result.schedule["start_s"], strict=True)), result


def test_a_waiting_job_overtakes_when_another_is_predicted_again():
    """One GPU. b and c are predicted 4 s each. At 10 s a has ended, so bob's b is thought to take 10 s, as a did."""
    rows: Rows = {"a": (0, "bob", 1, 10), "b": (1, "bob", 1, 3), "c": (2, "ann", 1, 5)}
    how: dict[str, Any] = {"num_gpus": 1, "policy": "sjf", "default_s": 4.0}
    assert starts(rows, **how)[0] == {"a": 0, "b": 10, "c": 13}
    again, result = starts(rows, refresh_s=5.0, **how)
    assert again == {"a": 0, "c": 10, "b": 15}
    assert result.jobs["predicted_s"].to_list() == [4, 4, 4]
    assert result.jobs["predicted_last_s"].to_list() == [4, 10, 4]
    assert result.metrics()["predictor"] == "rolling_median_20(user) every 5 s"
    # At 10 s it is not time yet; at 13 s nobody waits but c.
    assert starts(rows, refresh_s=11.0, **how)[0] == {"a": 0, "b": 10, "c": 13}


BACKFILL: Rows = {
    "h": (0, "ann", 1, 4),
    "i": (0, "ann", 1, 30),
    "r": (30, "ann", 2, 30),
    "w": (31, "bob", 4, 5),
    "f": (40, "cat", 2, 6),
}


def test_a_run_that_is_predicted_to_last_longer_lets_another_job_start_before_the_head():
    """Four GPUs, EASY. Ann's jobs took 4 and 30 s, so r is predicted 17 s: w is to start at 47.

    f (15 s, as predicted) would then still run. At 40 s r has run for 10 s: it is one of those that take 30.
    """
    how: dict[str, Any] = {"num_gpus": 4, "statistic": "mean", "last": 2, "default_s": 15.0}
    once, again = (starts(BACKFILL, policy="easy", refresh_s=every, **how) for every in (None, 5.0))
    assert once[0] == {"h": 0, "i": 0, "r": 30, "w": 60, "f": 65}
    assert again[0] == {"h": 0, "i": 0, "r": 30, "w": 60, "f": 40}
    assert again[1].jobs["predicted_last_s"].to_list() == [15, 15, 30, 15, 15]
    assert again[1].jobs["predicted_s"].to_list() == once[1].jobs["predicted_s"].to_list() == [15, 15, 17, 15, 15]
    # Conservative: without it w is promised 47 and f 62, until r outlives its prediction at 47 and is given 60 s more.
    once, again = (starts(BACKFILL, policy="conservative", refresh_s=every, **how) for every in (None, 5.0))
    assert once[0] == {"h": 0, "i": 0, "r": 30, "w": 60, "f": 47}
    assert again[0] == {"h": 0, "i": 0, "r": 30, "w": 60, "f": 40}


def test_a_run_that_outlives_its_prediction_is_preempted_once_it_is_known_to_be_long():
    """One GPU, srtf. Ann's jobs took 10, 10 and 100 s, so r is predicted 10 s, and w (20 s) waits.

    At 135 s r has run for 15 s, so it takes 100: 85 are left, and w and v go first.
    """
    rows: Rows = {
        "h": (0, "ann", 1, 10),
        "i": (0, "ann", 1, 10),
        "j": (0, "ann", 1, 100),
        "r": (120, "ann", 1, 100),
        "w": (125, "bob", 1, 8),
        "v": (135, "bob", 1, 8),
    }
    how: dict[str, Any] = {"num_gpus": 1, "policy": "srtf", "default_s": 20.0}
    once, again = (starts(rows, refresh_s=every, **how) for every in (None, 10.0))
    assert once[0] == {"h": 0, "i": 10, "j": 20, "r": 120, "w": 220, "v": 228}
    assert again[0] == {"h": 0, "i": 10, "j": 20, "r": 120, "w": 135, "v": 143}
    assert again[1].schedule.filter(pl.col("job_id") == "r")["end_s"].item() == 236


def test_who_is_older_than_all_who_have_ended_keeps_its_prediction():
    """Two GPUs. Ann's only job took 4 s; r has run for 6 s at 10, and nothing is known of such jobs."""
    rows: Rows = {"h": (0, "ann", 1, 4), "r": (4, "ann", 1, 30), "n": (10, "bob", 1, 1)}
    _, result = starts(rows, num_gpus=2, policy="easy", default_s=3.0, refresh_s=1.0)
    assert result.jobs["predicted_last_s"].to_list() == [3, 4, 3]


# --- from outside ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_forecaster_says_what_the_loop_says(policy: str):
    for seed in range(3):
        case, rolling = peopled(seed, num_jobs=40), ROLLING[seed]
        case = trouble(case, seed) if seed == 2 else case
        inside = closed(case, policy, {**rolling, "refresh_s": 2.0}, events=True)
        forecaster = Refreshed(case, rolling, 2.0)
        assert isinstance(forecaster, RefreshingForecaster)
        outside = closed(case, policy, forecaster, events=True)
        assert schedule_bytes(outside) == schedule_bytes(inside)
        assert outside.jobs.equals(inside.jobs)
        assert outside.events().equals(inside.events())
        instants = [now for now, *_ in forecaster.asked]
        assert all(later - earlier >= 2 for earlier, later in itertools.pairwise(instants))
        assert len(instants) > 3
        check_ages(forecaster, inside)


def check_ages(forecaster: Refreshed, result: ReplayResult) -> None:
    """Who is asked for is there and rises; who waits and was never stopped has no age, who runs may have one."""
    ids = result.schedule.filter(pl.col("state") != "rejected")["job_id"].to_list()
    stopped = set(result.events().filter(pl.col("event").is_in(["preempted", "killed"]))["job_id"])
    assert any(age > 0 for _, _, ages, _ in forecaster.asked for age in ages)
    for _, rows, ages, runs in forecaster.asked:
        assert rows == sorted(set(rows))
        assert all(run or age == 0 or ids[j] in stopped for j, age, run in zip(rows, ages, runs, strict=True))


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_known_of_the_future(policy: str):
    """Whatever jobs take that have not ended by an instant: all that happens and is asked until then is the same."""
    for seed in range(2):
        case, rolling = peopled(seed, num_jobs=40), ROLLING[seed % 3]
        result = closed(case, policy, {**rolling, "refresh_s": 1.5}, events=True)
        done = result.schedule.drop_nulls("end_time").sort("end_time")
        until = done["end_time"][done.height // 2]
        late = done.filter(pl.col("end_time") > until)["job_id"].to_list()
        longer = pl.when(pl.col("job_id").is_in(late)).then(pl.col("duration_s") * 3 + 100).otherwise("duration_s")
        other = case._replace(jobs=case.jobs.with_columns(longer))
        changed = closed(other, policy, {**rolling, "refresh_s": 1.5}, events=True)
        seen = [one.events().filter(pl.col("time") <= until) for one in (result, changed)]
        assert seen[0].equals(seen[1])
        assert seen[0].height > 40
        asked = []
        for one in (case, other):
            forecaster = Refreshed(one, rolling, 1.5)
            closed(one, policy, forecaster)
            until_s = (until - result.jobs["submit_time"].min()).total_seconds()
            asked.append([call for call in forecaster.asked if call[0] <= until_s])
        assert asked[0] == asked[1]
        assert len(asked[0]) > 2


@pytest.mark.parametrize("policy", ["sjf", "easy", "conservative", "srtf"])
def test_the_order_of_the_rows_does_not_matter(policy: str):
    case = trouble(peopled(8), 8)
    rolling = {**ROLLING[0], "refresh_s": 1.0}
    shuffled = case._replace(jobs=case.jobs.sample(fraction=1.0, shuffle=True, seed=5))
    one, other = closed(case, policy, rolling), closed(shuffled, policy, rolling)
    assert schedule_bytes(one) == schedule_bytes(other)
    assert predictions(one, "predicted_last_s") == predictions(other, "predicted_last_s")


# --- machine code ----------------------------------------------------------------------------------------------------


def check_machine_code(policy: str, monkeypatch: pytest.MonkeyPatch, *, has_trouble: bool) -> None:
    """It does what the same source does when Python runs it: from inside, and asked from outside."""
    for seed in range(6):
        case, rolling = peopled(seed), ROLLING[seed % 3]
        case = trouble(case, seed) if has_trouble else case
        every, found = EVERY_S[seed % 4], []
        for way in ("plain", "compiled"):
            monkeypatch.setenv("HINDCAST_ENGINE", way)
            found.append(closed(case, policy, {**rolling, "refresh_s": every}, checkpoint_interval_s=2.0))
        found.append(closed(case, policy, Refreshed(case, rolling, every), checkpoint_interval_s=2.0))
        assert len({schedule_bytes(one) for one in found}) == 1
        assert found[0].jobs.equals(found[1].jobs)
        assert found[0].jobs.equals(found[2].jobs)


@pytest.mark.parametrize("policy", ["sjf_skip", "easy", "conservative", "srtf_skip"])
def test_machine_code_does_the_same(policy: str, monkeypatch: pytest.MonkeyPatch):
    check_machine_code(policy, monkeypatch, has_trouble=False)


@pytest.mark.full_trace
@pytest.mark.parametrize("policy", ["sjf_skip", "easy", "conservative", "srtf_skip"])
def test_machine_code_does_the_same_where_nodes_fail(policy: str, monkeypatch: pytest.MonkeyPatch):
    """Machine code of its own for each loop: minutes of compiling."""
    check_machine_code(policy, monkeypatch, has_trouble=True)


# --- what makes no sense ---------------------------------------------------------------------------------------------


def test_what_makes_no_sense_is_refused():
    case = peopled(1)
    for wrong in (0, -1.0, float("inf"), "1h", True):
        with pytest.raises(UsageError, match=r"refresh_s is .* expected seconds, at least 0\.000001, or None"):
            RollingPrediction(refresh_s=wrong)
    once = Rolling(case, ROLLING[0])
    once.refresh_s = 0.0
    with pytest.raises(
        UsageError, match=r"'rolling from outside' .*refresh_s is 0\.0.*no method repredict\(rows, age_s"
    ):
        closed(case, "sjf", once)
    once.refresh_s = None
    closed(case, "sjf", once)

    class Bad(Refreshed):
        def repredict(self, rows: np.ndarray, *_: Any) -> list[float]:
            return [1.0] * (len(rows) + 1)

    with pytest.raises(HindcastError, match=r"repredict of 'rolling from outside' gave \(\d+,\) values for \d+ jobs"):
        closed(case, "sjf", Bad(case, ROLLING[0], 1.0))
