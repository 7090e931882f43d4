"""CPU time and memory of the characterization; run with ``pytest --benchmark-enable --benchmark-only``.

The default is a hundredth; ``HINDCAST_BENCH_JOBS=3370000`` makes the whole (as many jobs as Helios), and
``HINDCAST_BENCH_COPIES=10`` ten copies of it one after the other in time (34 million jobs, a minute or two).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from analysis.loaders.synthetic import synthesize

JOBS = int(os.environ.get("HINDCAST_BENCH_JOBS", "33700"))
COPIES = int(os.environ.get("HINDCAST_BENCH_COPIES", "2"))
THREADS = os.environ.get("HINDCAST_BENCH_THREADS", "1")
GIB = 2**30
#: The first jobs warm it up: what is imported when a table first asks for it is not counted.
CHARACTERIZE = """
import sys, time
from analysis.characterize import CHARACTERIZATIONS, characterize
from analysis.trace import Trace
trace, which, by = Trace.read(sys.argv[1]), sys.argv[2], tuple(sys.argv[3:])
names = [name for name, item in CHARACTERIZATIONS.items() if which == "all" or not item.heavy]
characterize(trace.scan().head(1000).collect(), names, by=by)
begin = time.process_time()
tables = characterize(trace, names, by=by)
cpu_s = time.process_time() - begin
with open("/proc/self/status") as status:
    peak_kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(len(names), tables["summary"]["num_jobs"].sum(), cpu_s, peak_kib * 1024)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthesize(like="saturn", num_jobs=JOBS, cpu_jobs=True).write(tmp_path_factory.mktemp("speed") / "T")


@pytest.fixture(scope="module")
def copies(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of the log, each after the other in time, in a Parquet file of its own."""
    target = tmp_path_factory.mktemp("copies") / "T"
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("jobs.parquet"))
    (target / "jobs.parquet").mkdir()
    jobs = pl.scan_parquet(folder / "jobs.parquet")
    first, last = jobs.select(a=pl.col("submit_time").min(), b=pl.col("submit_time").max()).collect().row(0)
    for number in range(COPIES):
        shift = number * (last - first + timedelta(days=1))
        times = (pl.col(f"{name}_time") + shift for name in ("submit", "eligible", "start", "end"))
        ids = pl.lit(f"{number}-") + pl.col("job_id")
        jobs.with_columns(*times, job_id=ids).sink_parquet(target / "jobs.parquet" / f"part.{number}.parquet")
    return target


def characterized(benchmark, folder: Path, *words: str, num_jobs: int) -> None:
    command = [sys.executable, "-c", CHARACTERIZE, str(folder), *words]
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "POLARS_MAX_THREADS": THREADS, "OMP_NUM_THREADS": "1", "PYTHONPATH": root}

    def run() -> list[float]:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return [float(word) for word in done.stdout.split()]

    num_tables, counted, cpu_s, peak = benchmark.pedantic(run, rounds=1)
    benchmark.extra_info |= {"tables": num_tables, "jobs": counted, "cpu_s": cpu_s, "peak_gib": peak / GIB}
    assert counted == num_jobs


@pytest.mark.full_trace
def test_all_tables_but_the_heavy_ones(benchmark, folder):
    """Goal: 8 CPU seconds and 1.2 GiB for 3.37 million jobs."""
    characterized(benchmark, folder, "light", num_jobs=JOBS)


@pytest.mark.full_trace
def test_all_tables(benchmark, folder):
    """Goal: 60 seconds."""
    characterized(benchmark, folder, "all", num_jobs=JOBS)


@pytest.mark.full_trace
def test_all_tables_but_the_heavy_ones_by_vc(benchmark, folder):
    characterized(benchmark, folder, "light", "vc", num_jobs=JOBS)


@pytest.mark.full_trace
def test_copies_of_a_log_are_counted_part_by_part(benchmark, copies):
    """Goal: 3 GiB for 34 million jobs."""
    characterized(benchmark, copies, "light", num_jobs=JOBS * COPIES)
