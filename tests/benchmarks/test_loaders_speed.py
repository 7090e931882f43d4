"""CPU time and memory of the streamed loaders; run with ``pytest --benchmark-enable --benchmark-only``.

The default is a hundredth of Philly; ``HINDCAST_BENCH_LINES=45000000`` makes the whole (3 GB of text, minutes).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

LINES = int(os.environ.get("HINDCAST_BENCH_LINES", "450000"))
MACHINES = 552
START = datetime(2017, 10, 3)
GIB = 2**30
LOAD = """
import resource, sys
from analysis.loaders import load
from analysis.metrics import US_PER_S
trace = load("philly", sys.argv[1])
trace.write(sys.argv[2])
report = trace.meta.load_report
used = resource.getrusage(resource.RUSAGE_SELF)
try:
    # ru_maxrss of a started process begins with what its parent held.
    with open("/proc/self/status") as status:
        peak_kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
except OSError:
    peak_kib = used.ru_maxrss
print(report.rows_in, report.rows_set_aside, trace.usage.height, used.ru_utime + used.ru_stime, peak_kib * 1024)
"""


def gpus_of(machine: int) -> int:
    return 8 if machine % 2 else 4


def write_utilisation(path: Path, lines: int) -> None:
    """Minutes of 552 machines as cluster_gpu_util has them, drawn from 40 invented minutes; one line in 100,000 odd."""
    rng = np.random.default_rng(0)
    values = np.array(["0.0", "100.0", *(f"{x:.2f}" for x in rng.uniform(0, 100, 2000))])
    minutes = []
    for _ in range(40):
        drawn = values[rng.integers(0, len(values), (MACHINES, 8))]
        cells = [",".join([*row[: gpus_of(m)], *["NA"] * (8 - gpus_of(m))]) for m, row in enumerate(drawn)]
        minutes.append("".join(f"@,m{m},{text},\n" for m, text in enumerate(cells)).encode())
    with path.open("wb") as file:
        file.write(b"time,machineId," + b",".join(b"gpu%d_util" % i for i in range(8)) + b"\n")
        for number in range(lines // MACHINES):
            stamp = str(START + timedelta(minutes=number)).encode() + b" PDT"
            file.write(minutes[number % 40].replace(b"@", stamp))
            if number % 181 == 0:
                file.write(stamp + b",m1,1.0\n")


def write_jobs(path: Path, lines: int) -> None:
    """As many jobs as Philly has in the period, on one to eight GPUs of a machine, back to back."""
    rng = np.random.default_rng(1)
    horizon = lines // MACHINES
    jobs = []
    for machine in range(MACHINES):
        minute = 0
        while minute < horizon:
            length, number = int(rng.exponential(400)) + 1, int(rng.integers(1, gpus_of(machine) + 1))
            begin = START + timedelta(minutes=minute)
            attempt = {
                "start_time": str(begin),
                "end_time": str(begin + timedelta(minutes=length)),
                "detail": [{"ip": f"m{machine}", "gpus": [f"gpu{i}" for i in range(number)]}],
            }
            jobs.append({"status": "Pass", "vc": "v", "jobid": f"j{len(jobs)}", "attempts": [attempt],
                         "submitted_time": str(begin), "user": "u"})  # fmt: skip
            minute += length + 1
    path.write_text(json.dumps(jobs))


@pytest.mark.full_trace
def test_philly_utilisation_is_streamed(benchmark, tmp_path):
    """Goal: 45 million lines within 1 GiB; joined with the jobs in the same pass."""
    raw = tmp_path / "raw"
    raw.mkdir()
    write_utilisation(raw / "cluster_gpu_util", LINES)
    write_jobs(raw / "cluster_job_log", LINES)
    command = [sys.executable, "-c", LOAD, str(raw), str(tmp_path / "T")]
    environment = {**os.environ, "POLARS_MAX_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}

    def run() -> list[float]:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return [float(word) for word in done.stdout.split()]

    rows_in, aside, measured, cpu_s, peak = benchmark.pedantic(run, rounds=1)
    size = (tmp_path / "T" / "usage_series.parquet").stat().st_size
    benchmark.extra_info |= {"rows": rows_in, "cpu_s": cpu_s, "peak_gib": peak / GIB, "parquet_gib": size / GIB}
    assert rows_in > 0.99 * LINES
    assert aside == len(range(0, LINES // MACHINES, 181))
    assert measured > 0
    assert peak > 0
