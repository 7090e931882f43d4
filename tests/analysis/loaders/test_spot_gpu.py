"""Spot-GPU jobs and nodes: requests are per worker, carry-ins, the real node list."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.errors import BadFileError
from analysis.loaders import load

JOBS = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
NODES = "gpu_model,gpu_capacity_num,cpu_num,node_name\n"


def test_a28_gpu_request_is_per_worker(tmp_path):
    (tmp_path / "j.csv").write_text(JOBS + "a,o,A10,10,1.0,16,0,100,HP\nb,o,A10,10,1.0,1,50,100,HP\n")
    job = load("spot_gpu", tmp_path / "j.csv").jobs.filter(pl.col("job_id") == "a")
    assert job.select("num_gpus", "num_tasks", "num_cpus").row(0) == (16.0, 16, 160.0)
    assert job.select(pl.col("num_gpus") * pl.col("duration_s")).item() == 1600.0


def test_the_documented_example(tmp_path):
    rows = [
        "900000,901,A10,13,1.0,1,0,15897599,HP",
        "900001,903,A100-SXM4-80GB,97,8.0,4,120,3600,HP",
        "900002,905,GPU-series-1,9,0.5,1,500,30,Spot",
        "900003,905,H800,101,8.0,1,500,0,Spot",
    ]
    (tmp_path / "job_info_df.csv").write_text(JOBS + "\n".join(rows) + "\n")
    (tmp_path / "node_info_df.csv").write_text(NODES + "A10,1,100,90000\nA100-SXM4-80GB,8,120,90001\n")
    trace = load("auto", tmp_path)
    found = trace.jobs.select("num_gpus", "duration_s", "censoring", pl.col("flags").list.contains("carry_in"))
    assert found.rows() == [
        (1.0, 15_897_599.0, "right", True),
        (32.0, 3600.0, "none", False),
        (0.5, 30.0, "none", False),
        (8.0, 0.0, "none", False),
    ]
    assert trace.jobs["start_time"].null_count() == trace.jobs["end_time"].null_count() == 4
    assert trace.meta.load_report.flagged["times_assumed"] == 4
    assert trace.nodes.select("node_id", "num_gpus").rows() == [("90000", 1), ("90001", 8)]
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used) == (6, 6)


def test_a_file_that_is_neither_is_refused(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadFileError, match="nothing that looks like jobs or nodes|missing: job_name"):
        load("spot_gpu", tmp_path / "x.csv")


def test_the_real_node_list_alone_gives_nodes_and_no_jobs(real_data):
    trace = load("auto", real_data("alibaba/spot_node_info_df.csv"))
    assert trace.jobs.height == 0
    assert (trace.nodes.height, trace.nodes["num_gpus"].sum(), trace.nodes["num_cpus"].sum()) == (
        4_278,
        10_412,
        632_636,
    )
    by_type = trace.nodes.group_by("gpu_type").agg(pl.len(), pl.col("num_gpus").sum())
    assert {(row[1], row[2]) for row in by_type.iter_rows()} == {
        (2_494, 2_494), (989, 1_558), (432, 3_456), (219, 1_752), (122, 976), (22, 176)
    }  # fmt: skip
    assert trace.meta.load_report.rows_used == 4_278
