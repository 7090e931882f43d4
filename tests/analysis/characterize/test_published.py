"""Published figures of real logs, reproduced from the files; skipped, with the file's name, where they are missing."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analysis.characterize import CHARACTERIZATIONS, characterize, gpu_intervals
from analysis.loaders import load
from analysis.trace import Trace

RealData = Callable[[str], Path]


def _openb(real_data: RealData, variant: str = "default") -> Trace:
    names = (f"alibaba/openb_pod_list_{variant}.csv", "alibaba/openb_node_list_all_node.csv")
    return load("openb", [real_data(name) for name in names])


@pytest.mark.full_trace
def test_openb_durations_waits_and_demand(real_data: RealData) -> None:
    # Figures of the authors' in-tree files, counted independently of this project.
    tables = characterize(_openb(real_data))
    summary = tables["summary"].row(0, named=True)
    assert (summary["num_jobs"], summary["num_cpu_jobs"], summary["num_gpu_jobs"]) == (8152, 1088, 7064)
    assert summary["num_never_started"] == 897

    rows = tables["duration_quantiles"].filter(pl.col("weight").cast(pl.String) == "jobs")
    by = {str(row["bucket"]): row for row in rows.iter_rows(named=True)}
    assert by["all"]["num_jobs"] == 6203
    assert by["all"]["mean_s"] == pytest.approx(30_851.15, abs=0.005)
    assert by["all"]["p50_s"] == 655
    assert by["all"]["max_s"] == 12_537_496
    known = by["all"]["num_jobs"] + by["0"]["num_jobs"]
    assert known == 7255
    mean = sum(by[name]["mean_s"] * by[name]["num_jobs"] for name in ("all", "0")) / known
    assert mean == pytest.approx(28_949.46, abs=0.005)

    demand = {str(row["bucket"]): row for row in tables["gpu_demand"].iter_rows(named=True)}
    assert sum(row["num_gpus"] for row in demand.values()) == pytest.approx(6086.8)
    shares = {name: round(100 * row["gpu_share"], 2) for name, row in demand.items()}
    assert shares == {"<1": 28.45, "1": 64.25, "2": 0.53, "3-4": 0.99, "5-8": 5.78}
    assert {name: row["num_jobs"] for name, row in demand.items()} == {
        "<1": 3078,
        "1": 3911,
        "2": 16,
        "3-4": 15,
        "5-8": 44,
    }

    waits = {str(row["bucket"]): row for row in tables["queueing_delay"].iter_rows(named=True)}
    started = waits["all"]["num_jobs"] + waits["0"]["num_jobs"]
    assert started == 7255
    mean = sum(waits[name]["mean_s"] * waits[name]["num_jobs"] for name in ("all", "0")) / started
    assert mean == pytest.approx(61.30, abs=0.005)
    assert max(waits["all"]["max_s"], waits["0"]["max_s"]) == 14_330

    use = tables["running_gpus_summary"].row(0, named=True)
    assert use["total_gpus"] == 6212
    assert tables["arrivals_by_hour"].height == 0  # seconds from the start: no hours of the day


@pytest.mark.full_trace
def test_openb_gpuspec_has_as_many_gpu_pods(real_data: RealData) -> None:
    tables = characterize(_openb(real_data, "gpuspec33"), names=("summary",))
    assert tables["summary"]["num_gpu_jobs"].item() == 7064


@pytest.mark.full_trace
def test_openb_use_agrees_with_a_count_at_single_moments(real_data: RealData) -> None:
    # An independent way to the same curve: GPUs in use at moments drawn at random, counted interval by interval.
    trace = _openb(real_data)
    held = gpu_intervals(trace.jobs)
    begin, end = held["begin_us"].to_numpy(), held["end_us"].to_numpy()
    item = CHARACTERIZATIONS["running_gpus"]
    table = item.table(trace)
    rng = np.random.default_rng(0)
    for place in rng.choice(table.height, size=20, replace=False):
        row = table.row(int(place), named=True)
        moments = [row["time"] + timedelta(seconds=row["bin_s"] * (k + 0.5) / 400) for k in range(400)]
        stamps = np.array([int(moment.timestamp() * 1e6) for moment in moments])
        milli = ((begin[:, None] <= stamps) & (stamps < end[:, None])).T @ held["milli_gpus"].to_numpy()
        assert milli.mean() / 1000 == pytest.approx(row["mean_gpus"], rel=0.05, abs=0.05)
        assert milli.max() / 1000 <= row["max_gpus"] + 1e-9


@pytest.mark.full_trace
def test_philly_gpu_hours_are_those_of_the_published_column(real_data: RealData) -> None:
    # The file has a column of its own for GPUs x duration; it is read here by other means.
    path = real_data("philly/philly_jobs.csv.gz")
    with gzip.open(path, "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu_time"]]
    published = sum(float(row["gpu_time"]) for row in rows) / 3600
    trace = load("sia_philly", path)
    tables = characterize(trace)
    assert tables["summary"]["num_jobs"].item() == 82_247
    assert tables["summary"]["gpu_hours"].item() == pytest.approx(published, rel=1e-9)
    assert tables["gpu_demand"]["gpu_hours"].sum() == pytest.approx(published, rel=1e-9)
    assert tables["top_vcs"]["gpu_hours"].sum() == pytest.approx(published, rel=1e-9)
    assert tables["top_vcs"].height == 15
    for name in ("queueing_delay", "running_gpus", "status", "top_users"):
        assert tables[name].height == 0
        assert CHARACTERIZATIONS[name].missing(trace)


@pytest.mark.full_trace
@pytest.mark.parametrize(
    ("source", "name", "rows", "gpu_jobs", "users"),
    [
        ("graham", "slurm/graham_jobs.csv.gz", 171_584, 19_407, 0),
        ("thetagpu", "slurm/thetagpu_jobs.csv", 22_606, 22_606, 51),
        ("mit_supercloud", "mit_supercloud/slurm-log-clean.csv", 9_628, 2_401, 322),
        ("philly_lumos", "philly/philly_attempts.csv.gz", 151_816, 151_816, 0),
        ("helios_slice", "helios/helios_slice.csv", 1_056, 1_056, 102),
        ("swf", "swf/KTH-SP2-1996-2.swf.gz", 28_489, 0, 214),
    ],
)
def test_counts_of_other_logs(
    real_data: RealData, source: str, name: str, rows: int, gpu_jobs: int, users: int
) -> None:
    trace = load(source, real_data(name))
    row = characterize(trace, names=("summary",))["summary"].row(0, named=True)
    assert trace.meta.load_report.rows_in == rows
    assert (row["num_gpu_jobs"], row["num_users"]) == (gpu_jobs, users)
