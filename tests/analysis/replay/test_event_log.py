"""The event log: agrees with the schedule, conserves GPUs at every event, and is written in bounded memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.errors import SchemaError, UsageError
from analysis.replay import POLICIES, Cluster, ReplayResult, _drive, _tape, replay
from analysis.replay.allocation import allocation
from analysis.replay.event_log import EVENT_LOG
from tests.jobs import make_jobs
from tests.replay_cases import PREDICTED, START, crowd
from tests.replay_checks import schedule_bytes

EVERY = sorted(POLICIES)


def replayed(seed: int, policy: str, **how) -> ReplayResult:
    case = crowd(seed)
    return replay(case.jobs, cluster=case.cluster, policy=policy, predicted=PREDICTED, events=True, **how)


class Walk:
    """What an event log says, event by event."""

    def __init__(self, result: ReplayResult) -> None:
        self.waiting, self.running, self.seen = set(), {}, set()
        self.starts, self.ends, self.held, self.stops = {}, {}, defaultdict(int), Counter()
        self.in_use = 0
        for row in result.events().iter_rows(named=True):
            getattr(self, row["event"])(row["job_id"], row)
            assert self.in_use <= result.cluster.num_gpus * 1000
            assert (row["nodes"] is None) == (row["event"] in {"submitted", "rejected"})

    def submitted(self, job, _row):
        assert job not in self.seen
        self.seen.add(job)
        self.waiting.add(job)

    def rejected(self, job, _row):
        self.waiting.remove(job)

    def started(self, job, row):
        self.waiting.remove(job)
        self.running[job] = (row["time"], row["nodes"])
        self.starts.setdefault(job, row["time"])
        self.in_use += round(row["num_gpus"] * 1000)

    def ended(self, job, row):
        self.leave(job, row)
        self.ends[job] = row["time"]

    def preempted(self, job, row):
        self.leave(job, row)
        self.waiting.add(job)
        self.stops[job] += 1

    def leave(self, job, row):
        since, nodes = self.running.pop(job)
        assert row["nodes"] == nodes
        self.held[job] += (row["time"] - since) // timedelta(microseconds=1)
        self.in_use -= round(row["num_gpus"] * 1000)


def check(result: ReplayResult) -> None:
    """The log is whole, and agrees with the schedule."""
    events, schedule = result.events(), result.schedule
    assert dict(events.schema) == EVENT_LOG
    assert events["time"].is_sorted()
    told = Walk(result)
    assert not told.running
    assert not told.waiting
    assert told.seen == set(schedule["job_id"])
    assert told.starts == dict(schedule.drop_nulls("start_time").select("job_id", "start_time").iter_rows())
    assert told.ends == dict(schedule.drop_nulls("end_time").select("job_id", "end_time").iter_rows())
    assert {j: n for j, n in schedule.select("job_id", "num_preemptions").iter_rows() if n} == dict(told.stops)
    assert set(schedule.filter(pl.col("state") == "rejected")["job_id"]) == told.seen - told.starts.keys()
    if "run_s" in result.jobs.columns:
        run_s = dict(zip(schedule["job_id"], result.jobs["run_s"], strict=True))
        assert {job: round(run_s[job] * 1e6) for job in told.held} == dict(told.held)


@pytest.mark.parametrize("policy", EVERY)
def test_it_tells_the_schedule_and_conserves_gpus(policy: str):
    for seed in range(6):
        check(replayed(seed, policy))


@pytest.mark.parametrize("policy", ["fifo", "easy", "conservative", "srtf_skip", "time_slicing"])
def test_it_is_the_same_however_short_the_tape_and_the_turns(policy: str, monkeypatch: pytest.MonkeyPatch):
    """The loop stops after every instant, or every event, and goes on as if it had not."""
    for seed in range(3):
        whole = replayed(seed, policy)
        with monkeypatch.context() as patch:
            patch.setattr(_tape, "LENGTH", 1)
            patch.setattr(_drive, "FIRST_BUDGET", 1)
            patch.setattr(_drive, "MOST_FASTER", 1.0)
            piecewise = replayed(seed, policy)
        assert piecewise.events().equals(whole.events())
        assert schedule_bytes(piecewise) == schedule_bytes(whole)
        assert piecewise.counts == whole.counts


def test_nodes_are_told_where_gpus_are_shared():
    """Under a scored placement devices are told apart, and tasks may share one."""
    for policy in ("fifo_skip", "las_skip"):
        check(replayed(3, policy, placement="best_fit"))


def test_the_order_at_one_instant():
    """Ends, submissions, starts; rejected at once; and what has no length ends before the next start of its instant."""
    jobs = make_jobs(
        [
            {"job_id": "a", "submit_time": START, "num_gpus": 2, "duration_s": 5},
            {"job_id": "b", "submit_time": START + timedelta(seconds=5), "num_gpus": 2, "duration_s": 0},
            {"job_id": "c", "submit_time": START + timedelta(seconds=5), "num_gpus": 9, "duration_s": 1},
            {"job_id": "d", "submit_time": START + timedelta(seconds=5), "num_gpus": 1, "duration_s": 1},
        ]
    )
    result = replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=2), events=True)
    told = result.events().select("time_s", "event", "job_id").rows()
    assert told == [
        (0.0, "submitted", "a"),
        (0.0, "started", "a"),
        (5.0, "submitted", "c"),
        (5.0, "rejected", "c"),
        (5.0, "ended", "a"),
        (5.0, "submitted", "b"),
        (5.0, "submitted", "d"),
        (5.0, "started", "b"),
        (5.0, "ended", "b"),
        (5.0, "started", "d"),
        (6.0, "ended", "d"),
    ]


def test_a_preempted_job_is_told_each_time():
    """srtf on one GPU: b stops a, which starts again."""
    rows = [("a", 0, 10), ("b", 2, 3)]
    jobs = make_jobs(
        [
            {"job_id": i, "submit_time": START + timedelta(seconds=at), "num_gpus": 1, "duration_s": length}
            for i, at, length in rows
        ]
    )
    result = replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=1), policy="srtf", events=True)
    told = [row for row in result.events().select("time_s", "event", "job_id").rows() if row[1] != "submitted"]
    assert told == [
        (0.0, "started", "a"),
        (2.0, "preempted", "a"),
        (2.0, "started", "b"),
        (5.0, "ended", "b"),
        (5.0, "started", "a"),
        (13.0, "ended", "a"),
    ]
    assert allocation(result).select("time_s", "num_gpus", "num_running", "num_waiting").rows() == [
        (0.0, 1.0, 1, 0),
        (2.0, 1.0, 1, 1),
        (5.0, 1.0, 1, 0),
        (13.0, 0.0, 0, 0),
    ]


# --- files -----------------------------------------------------------------------------------------------------------


def many_jobs(num_jobs: int) -> pl.DataFrame:
    seconds = pl.int_range(num_jobs, eager=True)
    return pl.DataFrame(
        {
            "job_id": seconds.cast(pl.String),
            "submit_time": pl.select(pl.lit(START) + pl.duration(seconds=pl.lit(seconds))).to_series(),
            "num_gpus": (seconds * 7 % 4 + 1).cast(pl.Float64),
            "duration_s": (seconds * 31 % 17).cast(pl.Float64),
        }
    )


def test_a_file_is_written_row_group_by_row_group_in_memory_that_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_tape, "LENGTH", 1_000)
    cluster = Cluster.uniform(num_nodes=4, num_gpus=8)
    peaks = []
    for num_jobs in (3_000, 30_000):
        jobs = many_jobs(num_jobs)
        pool = pa.system_memory_pool()
        before = pa.default_memory_pool()
        pa.set_memory_pool(pool)
        try:
            start = pool.bytes_allocated()
            highest = 0

            def look(_done: int, _total: int, start: int = start) -> None:
                nonlocal highest
                highest = max(highest, pa.default_memory_pool().bytes_allocated() - start)

            monkeypatch.setattr(_drive, "MOST_FASTER", 1.0)
            result = replay(jobs, cluster=cluster, events=tmp_path / f"{num_jobs}.parquet", progress=look)
        finally:
            pa.set_memory_pool(before)
        peaks.append(highest)
        file = pq.ParquetFile(result.event_log)
        assert file.metadata.num_rows == 3 * num_jobs
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        assert max(groups) < 1_200
        assert len(groups) > 2.4 * num_jobs / 1_000
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["3000.parquet", "30000.parquet"]
    # Ten times the jobs: ids and footers grow (some 100 bytes a job), rows do not (30,000 of them take megabytes).
    assert peaks[1] < peaks[0] + 120 * 27_000


def test_a_replay_that_fails_leaves_no_file(tmp_path: Path):
    def give_up(_done: int, _total: int) -> None:
        msg = "enough"
        raise RuntimeError(msg)

    case = crowd(1)
    with pytest.raises(RuntimeError, match="enough"):
        replay(case.jobs, cluster=case.cluster, events=tmp_path / "events.parquet", progress=give_up)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path):
    case = crowd(1)
    with pytest.raises(UsageError, match=r"nowhere/events\.parquet: cannot be written"):
        replay(case.jobs, cluster=case.cluster, events=tmp_path / "nowhere" / "events.parquet")


def test_a_file_holds_what_memory_holds(tmp_path: Path):
    case = crowd(2)
    told = replay(case.jobs, cluster=case.cluster, policy="srtf", events=str(tmp_path / "e.parquet"))
    assert told.events().equals(replay(case.jobs, cluster=case.cluster, policy="srtf", events=True).events())


def test_without_a_log_there_is_nothing_to_read():
    case = crowd(1)
    with pytest.raises(UsageError, match="events=True"):
        replay(case.jobs, cluster=case.cluster).events()


# --- the series ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "easy", "conservative", "sjf_skip"])
def test_allocation_is_the_same_from_the_schedule_and_from_the_log(policy: str):
    for seed in range(6):
        result = replayed(seed, policy)
        bare = replay(crowd(seed).jobs, cluster=result.cluster, policy=policy, predicted=PREDICTED)
        assert allocation(result).equals(allocation(bare))
        assert allocation(result.events().lazy()).equals(allocation(bare))


def test_allocation_sums_to_the_gpu_time():
    for seed in range(6):
        result = replayed(seed, "las_skip")
        series = allocation(result)
        assert series.tail(1).select("num_gpus", "num_running", "num_waiting").row(0) == (0.0, 0, 0)
        span = (series["time_s"].shift(-1) - series["time_s"]).fill_null(0)
        done = result.job_metrics()
        assert (series["num_gpus"] * span).sum() == pytest.approx((done["num_gpus"] * done["run_s"]).sum())
        assert series["num_waiting"].max() == result.counts["max_queue_length"]


def test_allocation_needs_the_log_where_jobs_were_stopped():
    case = crowd(1)
    result = replay(case.jobs, cluster=case.cluster, policy="las_skip")
    assert result.schedule["num_preemptions"].sum()
    with pytest.raises(UsageError, match="events=True"):
        allocation(result)
    with pytest.raises(SchemaError, match="'event' is missing"):
        allocation(pl.DataFrame({"time": [datetime(2024, 1, 1, tzinfo=UTC)], "time_s": [0.0], "num_gpus": [1.0]}))
