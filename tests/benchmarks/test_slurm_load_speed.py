"""CPU time and memory of loading a sacct export; run with ``pytest --benchmark-enable --benchmark-only``.

The default is a hundredth; ``HINDCAST_BENCH_SACCT_LINES=5000000`` makes the whole (1.1 GB of text, a minute).
"""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

LINES = int(os.environ.get("HINDCAST_BENCH_SACCT_LINES", "50000"))
#: Most jobs have a batch and an extern step, some of them more.
LINES_PER_JOB = 3.5
CHUNK = 50_000
GIB = 2**30
LOAD = """
import resource, sys
from analysis.loaders import load
trace = load("slurm", sys.argv[1], timezone="Europe/Oslo")
report = trace.meta.load_report
used = resource.getrusage(resource.RUSAGE_SELF)
print(report.rows_in, report.rows_set_aside, report.num_jobs, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
"""
HEADER = (
    "JobID|JobIDRaw|JobName|User|Account|Partition|QOS|Submit|Eligible|Start|End|Elapsed|Timelimit|Suspended|State|"
    "ExitCode|NNodes|NCPUS|ReqTRES|AllocTRES|NodeList|MaxRSS\n"
)


def draw_jobs(rng, *, first, num, second):
    """Lines of allocations: arrays, requeues, jobs that never ran, waiting array tasks, names with the delimiter."""
    ids = np.arange(first, first + num)
    gpus = rng.choice([0, 1, 2, 4, 8], num, p=[0.3, 0.4, 0.15, 0.1, 0.05])
    wait, run = rng.exponential(1800, num).astype(int), rng.lognormal(6, 2, num).astype(int) + 1
    seconds = second + np.sort(rng.integers(0, num * 6, num))
    submit = np.datetime64(datetime(2025, 1, 1), "ms") + (seconds * 1000).astype("timedelta64[ms]")
    state = rng.choice(
        ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 1001", "NODE_FAIL"], num, p=[0.7, 0.1, 0.05, 0.14, 0.01]
    )
    never = (state == "CANCELLED by 1001") & (rng.random(num) < 0.4)
    is_task, kind = rng.random(num) < 0.3, rng.choice(["a100", "v100"], num)
    frame = pl.DataFrame(
        {
            "id": ids,
            "task": is_task,
            "user": rng.integers(0, 900, num),
            "gpus": gpus,
            "kind": kind,
            "submit": submit,
            "start": submit + (wait * 1000).astype("timedelta64[ms]"),
            "end": submit + ((wait + run) * 1000).astype("timedelta64[ms]"),
            "run": run,
            "state": state,
            "never": never,
            "node": rng.integers(0, 400, num),
            "limit": rng.choice(["1-00:00:00", "02:00:00", "7-00:00:00", "UNLIMITED", "00:30:00"], num),
            "odd": ids % 100_000 == 7,
        }
    )
    return frame


def stamp(name):
    return pl.col(name).dt.to_string("%Y-%m-%dT%H:%M:%S")


def as_lines(jobs):
    number = pl.col("id").cast(pl.String)
    cpus = (pl.col("gpus") * 8).clip(lower_bound=1)
    clock = pl.format(
        "{}:{}:{}",
        (pl.col("run") // 3600 % 24).cast(pl.String).str.zfill(2),
        (pl.col("run") // 60 % 60).cast(pl.String).str.zfill(2),
        (pl.col("run") % 60).cast(pl.String).str.zfill(2),
    )
    elapsed = pl.when(pl.col("run") >= 86400).then(pl.format("{}-{}", pl.col("run") // 86400, clock)).otherwise(clock)
    no_gpus = pl.format("billing={},cpu={},mem={}G,node=1", cpus, cpus, cpus * 4)
    typed = pl.format(
        "billing={},cpu={},gres/gpu:{}={},gres/gpu={},mem={}G,node=1", cpus, cpus, "kind", "gpus", "gpus", cpus * 4
    )
    tres = pl.when(pl.col("gpus") > 0).then(typed).otherwise(no_gpus)
    never = pl.col("never")
    columns = {
        "JobID": pl.when("task").then(pl.format("{}_{}", pl.col("id") // 50 * 50, pl.col("id") % 50)).otherwise(number),
        "JobIDRaw": number,
        "JobName": pl.when("odd").then(pl.lit("a|b")).otherwise(pl.format("train_{}", pl.col("id") % 5000)),
        "User": pl.format("user{}", "user"),
        "Account": pl.format("acct{}", pl.col("user") % 60),
        "Partition": pl.when(pl.col("gpus") > 0).then(pl.lit("gpu")).otherwise(pl.lit("cpu")),
        "QOS": pl.lit("normal"),
        "Submit": stamp("submit"),
        "Eligible": stamp("submit"),
        "Start": pl.when(never).then(pl.lit("None")).otherwise(stamp("start")),
        "End": stamp("end"),
        "Elapsed": pl.when(never).then(pl.lit("00:00:00")).otherwise(elapsed),
        "Timelimit": pl.col("limit"),
        "Suspended": pl.lit("00:00:00"),
        "State": pl.col("state"),
        "ExitCode": pl.lit("0:0"),
        "NNodes": pl.lit("1"),
        "NCPUS": cpus.cast(pl.String),
        "ReqTRES": tres,
        "AllocTRES": pl.when(never).then(pl.lit("")).otherwise(tres),
        "NodeList": pl.when(never).then(pl.lit("None assigned")).otherwise(pl.format("gpu{}", "node")),
        "MaxRSS": pl.lit(""),
    }
    return jobs.select(**columns, _order=pl.col("id") * 10)


def steps_of(jobs, lines, rng):
    """Batch and extern of every job that ran, and numbered steps of some."""
    parts = []
    for place, (name, share) in enumerate({"batch": 1.0, "extern": 1.0, "0": 0.45, "1": 0.25}.items(), start=1):
        picked = lines.filter(~jobs["never"] & pl.Series(rng.random(jobs.height) < share))
        parts.append(
            picked.with_columns(
                JobID=pl.format("{}.{}", "JobID", pl.lit(name)),
                JobIDRaw=pl.format("{}.{}", "JobIDRaw", pl.lit(name)),
                JobName=pl.lit(name),
                User=pl.lit(""),
                Partition=pl.lit(""),
                QOS=pl.lit(""),
                Timelimit=pl.lit(""),
                ReqTRES=pl.lit(""),
                MaxRSS=pl.format("{}K", pl.Series(rng.integers(1000, 10**7, picked.height))),
                _order=pl.col("_order") + place,
            )
        )
    return parts


def write_export(path: Path, lines: int) -> int:
    """Write about so many lines of an invented cluster's year; the number of lines written."""
    rng = np.random.default_rng(0)
    num_jobs, first, written = int(lines / LINES_PER_JOB), 1_000_000, 0
    with path.open("wb") as file:
        file.write(HEADER.encode())
        for begin in range(0, num_jobs, CHUNK):
            num = min(CHUNK, num_jobs - begin)
            jobs = draw_jobs(rng, first=first + begin, num=num, second=begin * 6)
            table = as_lines(jobs)
            again = table.filter(pl.Series(rng.random(num) < 0.005)).with_columns(
                State=pl.lit("REQUEUED"), Submit=pl.lit("2024-12-30T10:00:00"), _order=pl.col("_order") - 1
            )
            whole = pl.concat([table, again, *steps_of(jobs, table, rng)]).sort("_order").drop("_order")
            text = whole.write_csv(include_header=False, separator="|", quote_style="never")
            file.write(text.encode())
            written += whole.height
    return written


@pytest.mark.benchmark(group="slurm")
def test_a_sacct_export_with_steps(tmp_path, benchmark):
    path = tmp_path / "sacct.txt"
    written = write_export(path, LINES)
    env = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}

    def run():
        done = subprocess.run(
            [sys.executable, "-c", LOAD, str(path)], env=env, capture_output=True, text=True, check=True
        )
        return [float(word) for word in done.stdout.split()]

    rows, aside, num_jobs, cpu_s, peak = benchmark.pedantic(run, rounds=1)
    benchmark.extra_info |= {"rows": rows, "jobs": num_jobs, "cpu_s": cpu_s, "peak_gib": peak / GIB}
    assert (rows, aside) == (written, 0)
