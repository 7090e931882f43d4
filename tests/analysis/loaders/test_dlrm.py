"""DLRM instances: the censoring classes of the real file, and every pattern of missing times."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.loaders import load

HEADER = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
    "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
)


def write(path, *times):
    path.write_text(
        HEADER + "".join(f"i{n},HN,a,11,11,1,1,20,20,110.0,110.0,600.0,750.0,6,{t}\n" for n, t in enumerate(times))
    )
    return path


def by_id(trace, *columns):
    return {row[0]: row[1:] for row in trace.jobs.select("job_id", *columns).iter_rows()}


def test_a30_every_combination_of_missing_times(tmp_path):
    path = write(tmp_path / "t.csv", ",,", ",,500", "100,120,", "100,120,400", "7,7,7")
    jobs = by_id(load("dlrm", path, window_s=1000), "censoring", "queueing_delay_s", "duration_s", "status")
    assert jobs == {
        "i0": ("both", None, 1000.0, "running"),
        "i1": ("left", None, 500.0, None),
        "i2": ("right", 20.0, 880.0, "running"),
        "i3": ("none", 20.0, 280.0, None),
        "i4": ("none", 0.0, 0.0, None),
    }


def test_without_a_window_the_latest_time_ends_the_trace(tmp_path):
    # The shape of the documented example: wait 2 s, ran 86,398 s; the others are censored.
    path = write(tmp_path / "t.csv", ",,", "1000.0,1002.0,87400.0", ",,5000.0", "2000.0,2000.0,")
    trace = load("dlrm", path)
    assert by_id(trace, "censoring", "queueing_delay_s", "duration_s") == {
        "i0": ("both", None, 87_400.0),
        "i1": ("none", 2.0, 86_398.0),
        "i2": ("left", None, 5000.0),
        "i3": ("right", 0.0, 85_400.0),
    }
    assert "The trace is taken to end at 87,400 s." in trace.meta.load_report.notes
    assert trace.meta.load_report.flagged == {"start_missing": 2, "carry_in": 2}
    assert trace.meta.clock == "relative"


def test_the_real_file(real_data):
    trace = load("auto", real_data("alibaba/disaggregated_DLRM_trace.csv"))
    jobs, report = trace.jobs, trace.meta.load_report
    assert (report.rows_in, report.rows_used, jobs.height) == (23_871, 23_871, 23_871)
    classes = dict(jobs["censoring"].value_counts().iter_rows())
    assert classes == {"none": 12_390, "both": 4_677, "right": 4_201, "left": 2_603}
    assert dict(jobs["workload"].value_counts().iter_rows()) == {"CN": 16_485, "HN": 7_386}
    assert dict(jobs.group_by("workload").agg(pl.col("num_gpus").sum()).iter_rows()) == {"CN": 0.0, "HN": 7_386.0}
    assert jobs["group"].n_unique() == 156
    whole = jobs.filter(pl.col("censoring") == "none")
    assert whole["duration_s"].mean() == pytest.approx(102_491, abs=0.5)
    assert (whole["duration_s"].median(), whole["duration_s"].max(), whole["duration_s"].min()) == (
        8_278.5,
        2_462_429,
        0,
    )
    assert (whole["duration_s"] == 0).sum() == 16
    waits = jobs["queueing_delay_s"].drop_nulls()
    assert (waits.median(), waits.max()) == (0, 238_116)
    assert waits.mean() == pytest.approx(187.93, abs=0.005)
    assert "The trace is taken to end at 2,677,541 s." in report.notes
    extra = jobs["extra"].struct.unnest()
    assert (extra["disk_limit"] != extra["disk_request"]).sum() == 23_201
    assert extra["max_instance_per_node"].min() > 0


@pytest.mark.parametrize("rows", [[], [",,", ",,"]])
def test_a_file_without_any_time_has_no_durations(tmp_path, rows):
    # Found by the law test: a header only, or no time at all, was a traceback.
    trace = load("dlrm", write(tmp_path / "t.csv", *rows))
    assert trace.jobs["duration_s"].to_list() == [None] * len(rows)
    assert trace.jobs["censoring"].to_list() == ["both"] * len(rows)
