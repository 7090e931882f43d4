"""The stream of events gives what the batch gives, to the last bit; saved states go on as if nothing had been."""

from __future__ import annotations

import math
from datetime import datetime

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import BadFileError, SchemaVersionError, UsageError
from analysis.loaders import load
from predictors.features import CATEGORY_COLUMNS, DEFAULT_FEATURES, FLIGHT_FEATURES, NUMBER_FEATURES, feature_table
from predictors.history import FLIGHT_KEYS, FLIGHT_STATS, HISTORY_KEYS, HISTORY_STATS, known_jobs
from predictors.history_feed import tell_log
from predictors.history_keys import id_key
from predictors.history_state import HistoryState
from tests.predictors.history_cases import TIME, as_log, at, logs
from tests.replay_cases import hypothesis_settings

NAMES = (
    *NUMBER_FEATURES,
    *(f"{key}__{stat}" for key in HISTORY_KEYS for stat in HISTORY_STATS),
    *(f"{key}__{stat}" for key in FLIGHT_KEYS for stat in FLIGHT_STATS),
    "batch__position",
)
ASK, TELL, ASK_LATER, BEGIN, END = range(5)


def events_of(log: pl.DataFrame, instants: list[datetime | None]) -> list[tuple]:
    """What happens, in the order of time; at one instant asks and submissions alternate in the order of jobs."""
    past = {row["job_id"]: row for row in known_jobs(log).iter_rows(named=True)}
    found = []
    for place, (row, now) in enumerate(zip(log.iter_rows(named=True), instants, strict=True)):
        known = past[row["job_id"]]
        came = row["submit_time"]
        order = id_key(row["job_id"])
        if came is not None:
            found.append((came, 0, order, TELL, place))
        if now is not None:
            is_own = now == came
            found.append((now, 0 if is_own else 1, order, ASK if is_own else ASK_LATER, place))
        if known["start_time"] is not None:
            found.append((known["start_time"], 2, order, BEGIN, place))
        if known["leave_time"] is not None and (came is not None or known["end_time"] is not None):
            found.append((known["leave_time"], 3, order, END, place))
    return sorted(found)


def stream(log: pl.DataFrame, instants: list[datetime | None], state: HistoryState, turn) -> np.ndarray:
    """Tell a log event by event and ask on the way; ``turn`` may put another state in the place of this one."""
    rows = log.rows(named=True)
    ended = {row["job_id"] for row in known_jobs(log).iter_rows(named=True) if row["end_time"] is not None}
    out = np.full((len(rows), len(state.names)), np.nan)
    for time, _, _, kind, place in events_of(log, instants):
        row, job_id = rows[place], rows[place]["job_id"]
        state = turn(state)
        if kind == TELL:
            state.submitted(row)
        elif kind == BEGIN:
            state.started(job_id, time)
        elif kind == END:
            duration = row["duration_s"] if job_id in ended else math.nan
            state.ended(row if row["submit_time"] is None else job_id, time, duration_s=duration, status=row["status"])
        else:
            is_known = kind == ASK_LATER and row["submit_time"] is not None and row["submit_time"] <= time
            out[place] = state.vector_of(job_id if is_known and place % 2 else row, time)
    for place, now in enumerate(instants):
        if now is None:
            out[place] = HistoryState(state.names).vector_of({**rows[place], "submit_time": None})
    return out


def same(found: np.ndarray, expected: np.ndarray) -> None:
    for i, name in enumerate(NAMES):
        assert np.array_equal(found[:, i], expected[:, i], equal_nan=True), (name, found[:, i], expected[:, i])


def asked(log: pl.DataFrame, delays: list[int]) -> list[datetime | None]:
    """A job is asked about at its submission, or some seconds later, but not after it left."""
    leave = {row["job_id"]: row["leave_time"] for row in known_jobs(log).iter_rows(named=True)}
    found = []
    for row, delay in zip(log.iter_rows(named=True), delays, strict=False):
        came = row["submit_time"]
        later = None if came is None else came + (at(delay) - at(0))
        end = leave[row["job_id"]]
        found.append(later if later is None or end is None else min(later, max(end, came)))
    return found


@hypothesis_settings(20)
@given(jobs=logs, delays=st.lists(st.sampled_from([0, 0, 0, 1, 3, 20]), min_size=25, max_size=25), prefix=st.booleans())
def test_the_stream_gives_what_the_batch_gives(jobs, delays, prefix):
    log = as_log(jobs, prefix="x" if prefix else "")
    instants = asked(log, delays)
    for failures in ("keep", "exclude"):
        now = pl.Series(instants, dtype=TIME)
        batch = feature_table(log, past=known_jobs(log), names=NAMES, failures=failures, at=now, time_zone="Asia/Tokyo")
        state = HistoryState(NAMES, failures=failures, time_zone="Asia/Tokyo")
        found = stream(log, instants, state, lambda state: state)
        same(found, batch.to_numpy())


@hypothesis_settings(4)
@given(jobs=logs)
def test_a_saved_state_goes_on_as_if_nothing_had_been(jobs, tmp_path_factory):
    log = as_log(jobs, prefix="x")
    instants = asked(log, [0, 2, 5] * 9)
    folder = tmp_path_factory.mktemp("state")

    def turn(state):
        again = HistoryState.restore(state.save(folder / "one.npz"))
        again.save(folder / "two.npz")
        assert (folder / "one.npz").read_bytes() == (folder / "two.npz").read_bytes()
        return again

    same(stream(log, instants, HistoryState(NAMES), turn), stream(log, instants, HistoryState(NAMES), lambda s: s))


def small() -> HistoryState:
    state = HistoryState(NAMES)
    for i in range(30):
        state.submitted({"job_id": str(i), "submit_time": at(i), "user": "a", "num_gpus": 1.0})
        state.started(str(i), at(i + 1))
        if i < 25:
            state.ended(str(i), at(i + 2.5), status="completed")
    state.vector_of("29", at(50))
    return state


def test_events_show_only_after_their_instants():
    state = HistoryState(["user__count", "user__pending", "user__running", "waited_s", "elapsed_s"])
    job = {"job_id": "1", "submit_time": at(0), "user": "a"}
    ask = {**job, "job_id": "2"}
    state.submitted(job)
    state.started("1", at(10))  # told ahead
    state.ended("1", at(20), status="failed")
    assert list(state.features_of(ask, at(0)).values()) == [0, None, None, 0, None]
    assert list(state.features_of(ask, at(10)).values()) == [0, None, None, 10, None]
    assert list(state.features_of(ask, at(10.5)).values()) == [0, 0, 1, 10.5, None]
    assert list(state.features_of("1", at(15)).values()) == [0, 0, 0, 10, 5]
    assert list(state.features_of(ask, at(20)).values()) == [0, 0, 1, 20, None]
    assert list(state.features_of(ask, at(20.5)).values()) == [1, 0, 0, 20.5, None]
    with pytest.raises(UsageError, match="already taken in; ask in the order of time"):
        state.features_of(ask, at(20))
    with pytest.raises(UsageError, match="no job '1' is in flight"):
        state.features_of("1")


def test_a_future_dated_event_harms_nobody():
    state = HistoryState(["all__unfinished", "all__count"])
    state.submitted({"job_id": "9", "submit_time": datetime(2999, 1, 1), "user": "a"})
    state.ended({"job_id": "8"}, datetime(2998, 1, 1), duration_s=5)
    assert list(state.features_of({"job_id": "1", "submit_time": at(5)}).values()) == [0, 0]
    late = {"job_id": "2", "submit_time": at(0)}
    state.submitted(late)  # news from before the last instant counts from now on
    assert list(state.features_of({"job_id": "1", "submit_time": at(5)}).values()) == [1, 0]


@pytest.mark.parametrize(
    ("act", "match"),
    [
        (lambda s: s.submitted({"job_id": "7"}), "job '7' has no submit_time"),
        (lambda s: s.submitted({"submit_time": at(0), "num_gpus": "many"}), "job_id is missing; num_gpus is 'many'"),
        (lambda s: s.submitted({"job_id": "1", "submit_time": "today"}), "submit_time is 'today', not a datetime"),
        (lambda s: s.submitted({"job_id": "29", "submit_time": at(99)}), "'29' was submitted already"),
        (lambda s: s.started("400", at(99)), r"started: no job '400' is in flight \(others: 5\)"),
        (lambda s: s.ended("29", at(99), status="fine"), "found the status 'fine'; expected one of completed"),
        (lambda s: s.ended("29", 99.0), "ended: found the time 99.0 for job '29'; expected a datetime"),
        (lambda _: HistoryState(["end_time"]), "'end_time' is known only"),
        (lambda _: HistoryState(["user"]), r"the categories \['user'\]"),
        (lambda _: HistoryState([], time_zone="Mars"), "found 'Mars'"),
    ],
)
def test_what_cannot_be_is_one_sentence(act, match):
    with pytest.raises(UsageError, match=match):
        act(small())


def test_memory_of_a_key_is_bounded():
    state = HistoryState(["user__median_20", "user__pending_gpu_s", "batch__position"])
    for i in range(1000):
        job = {"job_id": str(i), "submit_time": at(i), "user": "a", "num_gpus": 1.0, "time_limit_s": 60}
        state.vector_of(job)
        state.submitted(job)
        state.started(str(i), at(i))
        state.ended(str(i), at(i + 0.5))
    state.advance(2**60)
    assert (len(state.flying), len(state.events), len(state.awaited)) == (0, 0, 0)
    assert len(state.history.numbers) == 3  # user_size_limit, user, all; the VC is null
    assert len(state.history.arrays.ring) == 64 * 20
    assert not state.flights.rows[:3, :9].any()  # nothing is left over in the sums


def test_many_keys_grow_the_room_and_keep_what_was_there():
    state = HistoryState(["user__last", "user__count"])
    for i in range(500):
        state.ended({"job_id": str(i), "user": str(i)}, at(i), duration_s=i)
    for i in (0, 63, 64, 65, 127, 128, 499):
        assert list(state.features_of({"job_id": "x", "user": str(i)}, at(1000)).values()) == [i, 1]


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9, 0.999])
def test_a_damaged_file_is_refused(tmp_path, where):
    path = small().save(tmp_path / "state.npz")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * where)])
    with pytest.raises(BadFileError, match=r"state\.npz: found .*; expected a state that HistoryState\.save wrote"):
        HistoryState.restore(path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ranked", lambda a: a + 1),
        ("ring", lambda a: a * np.nan),
        ("num_ended", lambda a: a - 100),
        ("num_ended", lambda a: a[1:]),
        ("flights", lambda a: a.astype(np.int32)),
        ("flying_history", lambda a: a + 1000),
        ("flying_flight", lambda a: a - 7),
        ("header", lambda a: a[:-9]),
        ("header", lambda a: np.frombuffer(a.tobytes().replace(b"user__last", b"user__lust"), dtype=np.uint8)),
        ("header", lambda a: np.frombuffer(a.tobytes().replace(b"hindcast", b"windcast"), dtype=np.uint8)),
    ],
)
def test_a_forged_file_is_refused(tmp_path, name, change):
    path = small().save(tmp_path / "state.npz")
    with np.load(path) as file:
        arrays = dict(file)
    arrays[name] = change(arrays[name])
    np.savez(path, **arrays)
    with pytest.raises(BadFileError, match="expected a state that HistoryState.save wrote"):
        HistoryState.restore(path)


def test_a_missing_file_and_a_newer_one_are_refused(tmp_path):
    with pytest.raises(BadFileError, match="no such file"):
        HistoryState.restore(tmp_path / "none.npz")
    path = small().save(tmp_path / "state.npz")
    with np.load(path) as file:
        arrays = dict(file)
    newer = arrays["header"].tobytes().replace(b'"version": 1', b'"version": 2')
    np.savez(path, **{**arrays, "header": np.frombuffer(newer, dtype=np.uint8)})
    with pytest.raises(SchemaVersionError):
        HistoryState.restore(path)


@hypothesis_settings(10)
@given(jobs=logs, cut=st.integers(0, 20))
def test_a_log_told_at_once_gives_what_the_batch_gives(jobs, cut):
    log, now = as_log(jobs), at(cut)
    told = log.filter(pl.col("submit_time").is_null() | (pl.col("submit_time") < now))
    rows = log.filter(pl.col("submit_time") == now).head(1).with_columns(job_id=pl.lit("new"))
    batch = feature_table(rows, past=known_jobs(told), names=NAMES)
    state = HistoryState(NAMES)
    tell_log(state, log, until=now)
    found = [state.vector_of(row) for row in rows.iter_rows(named=True)]
    same(np.array(found).reshape(-1, len(NAMES)), batch.to_numpy())


@pytest.mark.full_trace
def test_the_stream_of_a_real_log_gives_what_the_batch_gives(real_data):
    log = load("swf", [real_data("swf/KTH-SP2-1996-2.swf.gz")]).jobs.head(8000)
    names = [name for name in (*DEFAULT_FEATURES, *FLIGHT_FEATURES) if name not in CATEGORY_COLUMNS]
    instants = log["submit_time"].to_list()
    found = stream(log, instants, HistoryState(names), lambda state: state)
    expected = feature_table(log, past=known_jobs(log), names=names).to_numpy()
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.isfinite(found).mean() > 0.4
