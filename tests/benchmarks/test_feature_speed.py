"""How fast features are, batch and stream; run with ``pytest --benchmark-enable --benchmark-only``.

The default is small; ``HINDCAST_BENCH_JOBS=3370000`` makes as many jobs as Helios.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from analysis.loaders import load
from analysis.loaders.synthetic import synthesize
from predictors.features import CATEGORY_COLUMNS, DEFAULT_FEATURES, FLIGHT_FEATURES, feature_table
from predictors.history import known_jobs
from predictors.history_state import HistoryState

JOBS = int(os.environ.get("HINDCAST_BENCH_JOBS", "10000"))
GIB = 2**30
HISTORY = [name for name in DEFAULT_FEATURES if name not in CATEGORY_COLUMNS]
#: In a process of its own, so that the peak is that of this work; the first jobs load the compiled code.
FEATURES = """
import sys, time
import polars as pl
from predictors.features import CATEGORY_COLUMNS, DEFAULT_FEATURES, FLIGHT_FEATURES, feature_table
from predictors.history import known_jobs
from predictors.jobs_table import as_jobs
def peak():
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
names = [name for name in DEFAULT_FEATURES if name not in CATEGORY_COLUMNS]
names += FLIGHT_FEATURES if sys.argv[2] == "flight" else ()
jobs = pl.read_parquet(sys.argv[1])
first = jobs.head(500)
feature_table(first, past=known_jobs(first), names=names)
read = peak()
begin = time.process_time()
jobs = as_jobs(jobs)
features = feature_table(jobs, past=known_jobs(jobs), names=names)
cpu_s = time.process_time() - begin
print(*features.shape, cpu_s, read, peak())
"""


@pytest.fixture(scope="module")
def jobs_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return (
        synthesize(like="saturn", num_jobs=JOBS, cpu_jobs=True).write(tmp_path_factory.mktemp("speed") / "T")
        / "jobs.parquet"
    )


@pytest.mark.full_trace
@pytest.mark.parametrize("kind", ["history", "flight"])
def test_features_of_a_whole_log(benchmark, jobs_file, kind):
    """Goal: 20 CPU seconds for 3.37 million jobs."""
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": root}
    command = [sys.executable, "-c", FEATURES, str(jobs_file), kind]

    def run() -> list[float]:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return [float(word) for word in done.stdout.split()]

    num_jobs, num_features, cpu_s, read, peak = benchmark.pedantic(run, rounds=1)
    benchmark.extra_info |= {"cpu_s": cpu_s, "read_gib": read / GIB, "peak_gib": peak / GIB}
    assert num_jobs == JOBS
    assert num_features == len(HISTORY) + len(FLIGHT_FEATURES) * (kind == "flight")


@pytest.mark.full_trace
@pytest.mark.benchmark(timer=time.process_time)
def test_features_of_ricc(benchmark, real_data):
    jobs = load("swf", [real_data("swf/RICC-2010-2.swf.gz")]).jobs
    names = [*HISTORY, *FLIGHT_FEATURES]
    found = benchmark.pedantic(
        lambda: feature_table(jobs, past=known_jobs(jobs), names=names), rounds=2, warmup_rounds=1
    )
    assert found.shape == (447_794, len(names))


@pytest.mark.full_trace
@pytest.mark.benchmark(timer=time.process_time)
def test_the_stream_takes_in_a_log_and_is_asked(benchmark, real_data):
    """Three events and one question for each job."""
    jobs = load("swf", [real_data("swf/KTH-SP2-1996-2.swf.gz")]).jobs.head(2000)
    rows = [{"job_id": "new", "user": "u", "submit_time": time_} for time_ in jobs["submit_time"].to_list()]

    def run() -> HistoryState:
        state = HistoryState([*HISTORY, *FLIGHT_FEATURES])
        for row, job in zip(rows, jobs.iter_rows(named=True), strict=True):
            state.vector_of(row)
            state.submitted(job)
            state.started(job["job_id"], job["start_time"])
            state.ended(job["job_id"], job["end_time"], status=job["status"])
        return state

    assert benchmark.pedantic(run, rounds=2, warmup_rounds=1).num_told == 6000
