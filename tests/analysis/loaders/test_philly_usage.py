"""Philly's utilisation: suffixes, NA, trailing commas, and whose minutes they are."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.loaders import load
from analysis.loaders.philly_usage import read_usage
from analysis.trace import Trace

GPU = "time,machineId," + ",".join(f"gpu{i}_util" for i in range(8)) + "\n"
CPU = "time,machine_id,cpu_util\n"
MEM = "time,machine_id,mem_total,mem_free\n"


def attempt(start, end, **gpus):
    detail = [{"ip": ip, "gpus": [f"gpu{i}" for i in indices]} for ip, indices in gpus.items()]
    return {"start_time": start, "end_time": end, "detail": detail}


def job(name, submitted, *attempts):
    return {"status": "Pass", "vc": "v", "jobid": name, "attempts": list(attempts), "submitted_time": submitted,
            "user": "u"}  # fmt: skip


def series(trace, metric):
    return trace.scan("usage_series").filter(pl.col("metric") == metric).drop("metric").collect().rows()


def test_a6_the_suffix_decides_na_is_missing_and_a_trailing_comma_adds_no_column(tmp_path):
    path = tmp_path / "cluster_gpu_util"
    path.write_text(
        "time,machineId,gpu0_util,gpu1_util\n2017-11-05 01:30:00 PDT,m3,50.0,NA,\n2017-11-05 01:30:00 PST,m3,70.0,NA,\n"
    )
    trace = load("auto", path)
    found = trace.table("usage_series")
    assert found["time"].unique().sort().to_list() == [
        datetime(2017, 11, 5, 8, 30, tzinfo=UTC),
        datetime(2017, 11, 5, 9, 30, tzinfo=UTC),
    ]
    by_gpu = found.group_by("entity").agg(pl.col("value").mean(), n=pl.col("value").count()).sort("entity")
    assert by_gpu.rows() == [("m3/gpu0", pytest.approx(0.6), 2), ("m3/gpu1", None, 0)]
    assert trace.meta.load_report.rows_used == 2
    assert trace.jobs.height == 0


@pytest.fixture
def raw(tmp_path):
    """The documented example, rebuilt: jobs 11-14, three machines, three utilisation files."""
    folder = tmp_path / "raw"
    folder.mkdir()
    eight = range(8)
    jobs = [
        job("application_1_0011", "2017-10-09 07:00:00",
            attempt("2017-10-09 07:05:30", "2017-10-09 09:05:30", m7=[0, 1])),
        job("application_1_0012", "2017-10-09 07:59:00",
            attempt("2017-10-09 08:00:00", "2017-10-09 08:10:00", m7=[2]),
            attempt("2017-10-09 08:20:00", "2017-10-09 08:50:00", m8=[5])),
        job("application_1_0013", "2017-10-09 08:30:00"),
        job("application_1_0014", "2017-10-09 23:00:00",
            attempt("2017-10-10 00:00:00", "None", m8=eight, m9=eight)),
    ]  # fmt: skip
    (folder / "cluster_job_log").write_text(json.dumps(jobs))
    (folder / "cluster_machine_list").write_text(
        "machineId, number of GPUs, single GPU mem\nm7, 2, 12GB\nm8, 8, 24GB\nm9, 2, 12GB\n"
    )
    (folder / "cluster_gpu_util").write_text(
        GPU + "2017-10-09 07:05:00 PDT,m7,91.5,88.0,0.0,NA,NA,NA,NA,NA,\n"
        "2017-10-09 08:20:00 PDT,m8,0.0,0.0,0.0,0.0,0.0,55.0,0.0,0.0,\n"
        "2017-10-09 08:50:00 PDT,m8,0.0,0.0,0.0,0.0,0.0,99.0,0.0,0.0,\n"
        "2017-11-05 01:30:00 PST,m8,12.0,0.0,0.0,0.0,0.0,0.0,0.0,NA,\n"
        "2017-11-05 01:31:00 PST,m8,12.0\n"
        "2017-11-05 01:32:00,m8,12.0,0.0,0.0,0.0,0.0,0.0,0.0,NA,\n"
        "2017-11-05 01:33:00 PST,,12.0,0.0,0.0,0.0,0.0,0.0,0.0,NA,\n"
        "2017-11-05 01:34:00 PST,m8,hot,0.0,0.0,0.0,0.0,0.0,0.0,NA,\n"
    )
    (folder / "cluster_cpu_util").write_text(CPU + "2017-10-09 07:05:00 PDT,m7,33.25\n2017-10-09 07:05:00 PDT,m8,NA\n")
    (folder / "cluster_mem_util").write_text(
        MEM + "2017-10-09 07:05:00 PDT,m7,263942108,101000000\n2017-10-09 07:05:00 PDT,m9,0,0\n"
    )
    return folder


def test_everything_together(raw, tmp_path):
    trace = load("auto", raw)
    at = datetime(2017, 10, 9, 14, 5, tzinfo=UTC)
    assert series(trace, "cpu_utilization") == [("m7", at, 0.3325), ("m8", at, None)]
    assert series(trace, "mem_utilization") == [("m7", at, pytest.approx(1 - 101000000 / 263942108)), ("m9", at, None)]
    assert series(trace, "mem_total_gib") == [("m7", at, pytest.approx(263942108 / 2**20)), ("m9", at, 0.0)]
    report = trace.meta.load_report
    assert report.rejected_by_reason == {
        "too_few_fields": 1, "unreadable_time": 1, "no_machineId": 1, "unreadable_gpu0_util": 1,
    }  # fmt: skip
    assert (report.rows_in, report.rows_used, report.rows_set_aside) == (4 + 3 + 8 + 2 + 2, 15, 4)
    assert trace.rejects.row(0) == ("cluster_gpu_util", 6, "too_few_fields", "2017-11-05 01:31:00 PST,m8,12.0")
    assert trace.jobs["duration_s"].drop_nulls().to_list() == [7200.0, 2400.0]
    again = Trace.read(trace.write(tmp_path / "T"))
    assert again.table("usage").equals(trace.table("usage"))
    assert again.table("usage_series").equals(trace.table("usage_series"))


def test_minutes_go_to_the_job_that_had_the_gpu(raw):
    usage = {row[0]: row[1:4] for row in load("philly", raw).usage.iter_rows()}
    # Job 11 began at 07:05:30: floored to its minute, which therefore counts.
    assert usage["application_1_0011"] == (pytest.approx(0.8975), 0.88, 0.915)
    # Job 12: its second attempt had m8/gpu5 in [08:20, 08:50).
    assert usage["application_1_0012"] == (0.55, 0.55, 0.55)
    # Job 14 has no end: it had all of m8 until the measurements stop. NA does not count.
    assert usage["application_1_0014"] == (pytest.approx(0.12 / 7), 0.0, 0.12)
    assert len(usage) == 3
    assert "3 of 4 jobs (75.0%) have measured GPU utilisation." in load("philly", raw).meta.load_report.notes


def test_a_log_without_utilisation_is_as_before(raw):
    trace = load("philly", [raw / "cluster_job_log", raw / "cluster_machine_list"])
    assert trace.usage.height == trace.table("usage_series").height == 0
    assert trace.jobs.equals(load("philly", raw).jobs)


def test_a_time_of_no_century_is_set_aside(tmp_path):
    (tmp_path / "cluster_cpu_util").write_text(CPU + "9999-10-09 07:05:00 PDT,m7,33.25\n")
    assert load("philly", tmp_path).meta.load_report.rejected_by_reason == {"unreadable_time": 1}


def test_utilisation_with_the_machine_list_alone(raw):
    trace = load("philly", [raw / "cluster_cpu_util", raw / "cluster_machine_list"])
    assert (trace.jobs.height, trace.nodes.height, trace.table("usage_series").height) == (0, 3, 2)
    assert trace.meta.load_report.rows_used == 5


def test_overlapping_attempts_are_counted_and_the_last_to_begin_wins(tmp_path):
    jobs = [
        job("a", "2017-10-09 07:00:00", attempt("2017-10-09 07:00:00", "2017-10-09 09:00:00", m1=[0])),
        job("b", "2017-10-09 07:00:00", attempt("2017-10-09 08:00:00", "2017-10-09 09:00:00", m1=[0])),
    ]
    (tmp_path / "cluster_job_log").write_text(json.dumps(jobs))
    (tmp_path / "cluster_gpu_util").write_text(
        GPU + "2017-10-09 07:30:00 PDT,m1,10,,,,,,,,\n2017-10-09 08:30:00 PDT,m1,20,,,,,,,,\n"
    )
    trace = load("philly", tmp_path)
    assert dict(trace.usage.select("job_id", "gpu_utilization_mean").iter_rows()) == {"a": 0.1, "b": 0.2}
    assert any(note.startswith("1 attempts overlap on a GPU") for note in trace.meta.load_report.notes)


def test_against_a_join_by_hand(tmp_path):
    """Random attempts and minutes: the same means and medians as a dictionary of minutes gives, whatever the blocks."""
    rng = random.Random(3)
    day = datetime(2017, 10, 9)
    owner = {}
    jobs = []
    for machine in ("m1", "m2"):
        for gpu in range(3):
            minute = 0
            while minute < 200:
                length, name = rng.randint(1, 40), f"j{len(jobs)}"
                start, end = day + timedelta(minutes=minute), day + timedelta(minutes=minute + length)
                jobs.append(job(name, str(day), attempt(str(start), str(end), **{machine: [gpu]})))
                owner |= {(machine, gpu, m): name for m in range(minute, minute + length)}
                minute += length + rng.randint(0, 3)
    lines, minutes = [], {}
    for minute in range(200):
        for machine in ("m1", "m2"):
            values = [rng.choice([None, round(rng.uniform(0, 100) * 2) / 2]) for _ in range(8)]
            cells = ",".join("NA" if value is None else str(value) for value in values)
            lines.append(f"{day + timedelta(minutes=minute)} PDT,{machine},{cells},")
            for gpu, value in enumerate(values):
                if value is not None and (machine, gpu, minute) in owner:
                    minutes.setdefault(owner[machine, gpu, minute], []).append(value)
    (tmp_path / "cluster_job_log").write_text(json.dumps(jobs))
    (tmp_path / "cluster_gpu_util").write_text(GPU + "\n".join(lines) + "\n")
    usage = load("philly", tmp_path).usage
    assert set(usage["job_id"]) == set(minutes)
    for name, mean, p50, p95 in usage.select(usage.columns[:4]).iter_rows():
        values = np.array(minutes[name])
        assert mean == pytest.approx(values.mean() / 100)
        assert p50 == pytest.approx(np.quantile(values, 0.5, method="inverted_cdf") / 100)
        assert p95 == pytest.approx(np.quantile(values, 0.95, method="inverted_cdf") / 100)


def test_the_same_bytes_every_time(raw):
    first, second = (read_usage({"gpu_util": raw / "cluster_gpu_util"}).series for _ in range(2))
    assert first.path.read_bytes() == second.path.read_bytes()
