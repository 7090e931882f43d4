"""A replay that is stopped leaves what it had: by Ctrl-C, really sent, or at an instant that was asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from analysis.replay import POLICIES, ReplayInterrupted, ReplayResult, _drive, replay
from analysis.replay.allocation import allocation
from tests.conftest import ROOT
from tests.replay_cases import PREDICTED, START, Case, crowd

EVERY = sorted(POLICIES)


@pytest.fixture(autouse=True)
def signals_arrive():
    """Where the tests were started in the background, Ctrl-C is ignored, and by all that they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def stopped_after(case: Case, calls: int, monkeypatch: pytest.MonkeyPatch, **how) -> ReplayResult:
    """What a replay had when a signal came, so many turns of one instant after its start."""
    num = 0

    def progress(_done: int, _total: int) -> None:
        nonlocal num
        num += 1
        if num == calls:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(_drive, "FIRST_BUDGET", 1)
        patch.setattr(_drive, "MOST_FASTER", 1.0)
        with pytest.raises(ReplayInterrupted) as stop:
            replay(case.jobs, cluster=case.cluster, progress=progress, **how)
    return stop.value.result


def agrees_with_the_whole(part: ReplayResult, whole: ReplayResult) -> None:
    """All that happened by then is what happens by then in the whole replay; the rest is unfinished."""
    until = part.stopped_time
    assert whole.stopped_time is None
    early = [
        pl.when(pl.col(f"{name}_time") <= until).then(f"{name}_{unit}").alias(f"{name}_{unit}")
        for name in ("start", "end")
        for unit in ("time", "s")
    ]
    expected = whole.schedule.with_columns(early)
    columns = ["job_id", "start_time", "start_s", "end_time", "end_s"]
    assert part.schedule.select(columns).equals(expected.select(columns))
    state = part.schedule.select(
        state=pl.when(whole.schedule["state"] == "rejected")
        .then(pl.lit("rejected"))
        .when(pl.col("end_time").is_null())
        .then(pl.lit("unfinished"))
        .otherwise(pl.lit("finished"))
    )["state"]
    assert part.schedule["state"].cast(pl.String).equals(state)
    assert (
        part.schedule.filter(pl.col("start_time").is_null())["nodes"].null_count()
        == part.schedule["start_time"].null_count()
    )
    assert part.events().equals(whole.events().filter(pl.col("time") <= until))
    held = allocation(part)
    assert held.equals(allocation(whole).filter(pl.col("time") <= until))
    if "run_s" in part.jobs.columns and held.height:
        lasts = held.select("time", "num_gpus").with_columns(next=pl.col("time").shift(-1, fill_value=until))
        gpu_s = lasts.select((pl.col("num_gpus") * (pl.col("next") - pl.col("time")).dt.total_microseconds()).sum())
        assert (part.jobs["num_gpus"] * part.jobs["run_s"]).sum() * 1e6 == pytest.approx(gpu_s.item())


@pytest.mark.parametrize("policy", EVERY)
def test_ctrl_c_leaves_what_there_was(policy: str, monkeypatch: pytest.MonkeyPatch):
    for seed, calls in ((2, 1), (3, 12), (4, 25)):
        case = crowd(seed)
        how = {"policy": policy, "predicted": PREDICTED, "events": True}
        part = stopped_after(case, calls, monkeypatch, **how)
        assert (part.schedule["state"] == "unfinished").any()
        agrees_with_the_whole(part, replay(case.jobs, cluster=case.cluster, **how))


@pytest.mark.parametrize("policy", EVERY)
def test_until(policy: str):
    """An instant between events, one at an event, one before everything; one after everything stops nothing."""
    case = crowd(7)
    how = {"policy": policy, "predicted": PREDICTED, "events": True, "cluster": case.cluster}
    whole = replay(case.jobs, **how)
    for seconds in (-1, 0, 9.5, 20, 33):
        until = START + timedelta(seconds=seconds)
        part = replay(case.jobs, until=until, **how)
        assert part.stopped_time == until
        agrees_with_the_whole(part, whole)
    late = replay(case.jobs, until=START.replace(year=2030, tzinfo=None), **how)
    assert late.stopped_time is None
    assert late.schedule.equals(whole.schedule)
    assert late.events().equals(whole.events())


def test_metrics_of_a_part_are_those_of_its_finished_jobs():
    case = crowd(7)
    row = replay(case.jobs, cluster=case.cluster, until=START + timedelta(seconds=20)).metrics()
    assert row["num_unfinished"] > 0
    assert row["num_finished"] > 0


def test_progress_rises_to_all():
    case = crowd(3)
    told: list[tuple[int, int]] = []
    result = replay(case.jobs, cluster=case.cluster, progress=lambda done, total: told.append((done, total)))
    num = result.schedule.filter(pl.col("state") == "finished").height
    assert told[-1] == (num, num)
    assert told == sorted(told)


def test_outside_the_main_thread_it_works_all_the_same():
    case = crowd(3)
    found: list[ReplayResult] = []
    worker = threading.Thread(target=lambda: found.append(replay(case.jobs, cluster=case.cluster, events=True)))
    worker.start()
    worker.join()
    assert found[0].schedule.equals(replay(case.jobs, cluster=case.cluster).schedule)


def test_a_handler_of_the_callers_own_is_asked():
    """Whoever takes SIGINT for something else is not interrupted."""
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        case = crowd(3)
        result = replay(case.jobs, cluster=case.cluster, progress=lambda *_: signal.raise_signal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard
    assert result.stopped_time is None


SCRIPT = """
import sys
from pathlib import Path
import polars as pl
from analysis.replay import Cluster, ReplayInterrupted, replay

jobs = pl.select(pl.int_range(40_000).alias("i")).select(
    job_id=pl.col("i").cast(pl.String),
    submit_time=pl.datetime(2024, 1, 1) + pl.duration(seconds=pl.col("i")),
    num_gpus=pl.lit(1.0), duration_s=pl.lit(5_000.0),
)
folder = Path(sys.argv[1])

def progress(done, total):
    (folder / "begun").touch()

try:
    # 40,000 jobs take turns of 2 s on 64 GPUs for years: it would not end in our time.
    replay(jobs, cluster=Cluster.uniform(num_nodes=8, num_gpus=8), policy="time_slicing",
           events=folder / "events.parquet", progress=progress)
except KeyboardInterrupt as stop:
    assert isinstance(stop, ReplayInterrupted)
    stop.result.schedule.write_parquet(folder / "schedule.parquet")
    print(stop)
    sys.exit(7)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")
def test_a_signal_from_outside(tmp_path: Path):
    """A real SIGINT, to a process in the middle of its compiled loop."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for_any(tmp_path, "begun", process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 7, err
    assert "replay under 'time_slicing' stopped at 20" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "events.parquet", "schedule.parquet"]
    schedule = pl.read_parquet(tmp_path / "schedule.parquet")
    events = pl.scan_parquet(tmp_path / "events.parquet")
    assert schedule.height == 40_000
    assert (schedule["state"] == "unfinished").any()
    started = events.filter(pl.col("event") == "started").select(pl.col("job_id").n_unique()).collect().item()
    assert started == schedule["start_time"].is_not_null().sum()


def wait_for_any(folder: Path, pattern: str, process: subprocess.Popen[str], *, least_bytes: int = 0) -> None:
    """Wait until a file is there; compiling may come first."""
    for _ in range(1_200):
        if any(path.stat().st_size >= least_bytes for path in folder.glob(pattern)):
            return
        try:
            process.wait(timeout=0.25)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"ended too early: {process.communicate()[1]}")
    pytest.fail("it did not begin in five minutes")


@pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")
def test_ctrl_c_at_the_command_line(tmp_path: Path):
    """What there is is written, whole files only; the exit code is 130, and what was not done is named."""
    jobs = pl.select(pl.int_range(40_000).alias("i")).select(
        job_id=pl.col("i").cast(pl.String),
        submit_time=pl.lit(START) + pl.duration(seconds=pl.col("i")),
        num_gpus=pl.lit(1.0),
        duration_s=pl.lit(5_000.0),
    )
    jobs.write_csv(tmp_path / "jobs.csv")
    columns = ",".join(f"{name}={name}" for name in jobs.columns)
    hindcast = [sys.executable, "-c", "import sys; from analysis.cli import main; sys.exit(main())"]
    load = [*hindcast, "load", "table", "jobs.csv", "--map", columns, "--timezone", "UTC", "-o", "T"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(load, cwd=tmp_path, env=env, check=True, capture_output=True)
    command = [*hindcast, "replay", "T", "--policy", "fifo,time_slicing,sjf", "--cluster", "8x8", "--events"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--no-figures", "-o", "R"], cwd=tmp_path, env=env, **pipes) as process:
        # The first events of the second replay have been written: its loop is at work.
        wait_for_any(tmp_path, ".R.events.*/.time_slicing.parquet.tmp", process, least_bytes=1_000)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Stopped in time_slicing, at 20" in out
    assert "Not replayed: sjf." in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["R", "T", "jobs.csv"]
    schedules = {path.stem: pl.read_parquet(path) for path in (tmp_path / "R" / "schedules").iterdir()}
    assert sorted(schedules) == ["fifo", "time_slicing"]
    assert (schedules["fifo"]["state"] == "finished").all()
    assert (schedules["time_slicing"]["state"] == "unfinished").any()
    ended = pl.scan_parquet(tmp_path / "R" / "events" / "time_slicing.parquet").filter(pl.col("event") == "ended")
    assert ended.collect().height == schedules["time_slicing"]["end_time"].is_not_null().sum()
