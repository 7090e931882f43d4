"""CPU time and memory from a Helios-sized CSV (3.4 million rows, 347 MB) to a Trace folder.

Run with ``pytest --benchmark-enable --benchmark-only``; ``HINDCAST_BENCH_JOBS=3400000`` makes the whole (the default
is a hundredth).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from analysis.loaders.synthetic import synthesize

JOBS = int(os.environ.get("HINDCAST_BENCH_JOBS", "34000"))
GIB = 2**30
WORDS = {"completed": "COMPLETED", "cancelled": "CANCELLED", "failed": "FAILED", "timeout": "TIMEOUT"}
LOAD = """
import resource, sys
from analysis.loaders import load
trace = load("helios", sys.argv[1])
trace.write(sys.argv[2])
report = trace.meta.load_report
used = resource.getrusage(resource.RUSAGE_SELF)
with open("/proc/self/status") as status:
    peak_kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(report.rows_in, report.rows_set_aside, report.num_jobs, used.ru_utime + used.ru_stime, peak_kib * 1024)
"""


def write_cluster_log(path: Path, num_jobs: int) -> None:
    """Write the jobs of the synthetic Helios-like cluster in the columns and order of a Helios log."""
    jobs = synthesize(like="saturn", num_jobs=num_jobs, seed=0, cpu_jobs=True).jobs.sort("submit_time", "job_id")
    stamps = {
        name: pl.coalesce(name, "submit_time").dt.convert_time_zone("Asia/Shanghai").dt.to_string("%Y-%m-%d %H:%M:%S")
        for name in ("submit_time", "start_time", "end_time")
    }
    table = jobs.with_row_index("row", offset=1_000_000).select(
        job_id="row",
        user="user",
        vc="vc",
        gpu_num=pl.col("num_gpus").cast(pl.Int64),
        cpu_num=pl.coalesce(pl.col("num_cpus"), 8 * pl.col("num_gpus")).cast(pl.Int64),
        node_num=pl.max_horizontal(pl.lit(1), (pl.col("num_gpus") / 8).ceil().cast(pl.Int64)),
        state=pl.col("status").cast(pl.String).replace_strict(WORDS, default="FAILED"),
        **stamps,
        duration=pl.col("duration_s").fill_null(0).floor().cast(pl.Int64),
        queue=pl.col("queueing_delay_s").fill_null(0).floor().cast(pl.Int64),
    )
    table.write_csv(path)


@pytest.mark.benchmark(group="helios")
def test_a_helios_log_becomes_a_trace_folder(tmp_path, benchmark):
    """Goal at 3.4 million rows: 12 CPU s and 0.8 GiB."""
    path = tmp_path / "Saturn" / "cluster_log.csv"
    path.parent.mkdir()
    write_cluster_log(path, JOBS)
    env = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}

    def run() -> list[float]:
        command = [sys.executable, "-c", LOAD, str(path), str(tmp_path / "T")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return [float(word) for word in done.stdout.split()]

    rows, aside, num_jobs, cpu_s, peak = benchmark.pedantic(run, rounds=1)
    size = path.stat().st_size
    benchmark.extra_info |= {"rows": rows, "csv_mb": size / 1e6, "cpu_s": cpu_s, "peak_gib": peak / GIB}
    assert (rows, aside, num_jobs) == (JOBS, 0, JOBS)
