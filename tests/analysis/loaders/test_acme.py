"""AcmeTrace: durations recomputed, offsets per row, wide utilisation made long."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from analysis.errors import BadFileError, UsageError
from analysis.loaders import load
from analysis.trace import Trace

SEREN = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,"
    "fail_time,stop_time,duration,queue,gpu_time\n"
)


def test_a10_queue_time_inside_duration(tmp_path):
    path = tmp_path / "trace_kalos.csv"
    times = [f"2023-06-02 10:{clock}+00:00" for clock in ("00:00", "00:40", "02:00")]
    path.write_text(KALOS + f"a,u,2,16,240,1000,100.0,Pretrain,COMPLETED,{','.join(times)},,,120,40,1920.0\n")
    trace = load("acme", path)
    job = trace.jobs.row(0, named=True)
    assert (job["duration_s"], job["queueing_delay_s"], job["num_gpus"] * job["duration_s"]) == (80.0, 40.0, 1280.0)
    assert (job["end_time"] - job["submit_time"]).total_seconds() == 120
    assert set(job["flags"]) == {"duration_includes_queue", "duration_mismatch"}
    # What the authors published stays, so that their summary can be reproduced.
    assert (job["extra"]["duration"], job["extra"]["gpu_time"]) == (120.0, 1920.0)
    assert trace.meta.name == job["cluster"] == "kalos"


def test_a11_two_offsets_are_one_instant(tmp_path):
    path = tmp_path / "trace_seren.csv"
    rows = [f"{i},u,1,8,128,Eval,COMPLETED,{t},{t},{t},0,0,0.0" for i, t in
            enumerate(["2023-05-01 00:30:00+08:00", "2023-04-30 16:30:00+00:00"])]  # fmt: skip
    path.write_text(SEREN + "\n".join(rows) + "\n")
    trace = load("acme", path)
    assert trace.jobs["submit_time"].dt.epoch("s").to_list() == [1_682_872_200, 1_682_872_200]
    assert (trace.meta.time_zone, trace.meta.time_zone_certainty) == ("Asia/Shanghai", "declared")
    assert trace.meta.name == "seren"


def test_the_documented_seren_rows(tmp_path):
    rows = [
        "9000001,u1001,1,8,128,Eval,COMPLETED,2023-03-02 09:00:00+08:00,2023-03-02 09:00:30+08:00,"
        "2023-03-02 09:10:30+08:00,600,30,4800.0",
        "9000002,u1001,32,256,4096,Pretrain,CANCELLED,2023-03-02 10:00:00+08:00,2023-03-02 12:00:00+08:00,"
        "2023-03-04 12:00:00+08:00,172800,7200,44236800.0",
        "9000003,u1002,1,0,4,Other,NODE_FAIL,2023-03-02 11:00:00+08:00,2023-03-02 11:00:00+08:00,"
        "2023-03-02 11:00:05+08:00,5,0,0.0",
        "9000004,u1003,1,1,16,Debug,PREEMPTED,2023-03-03 00:00:00+08:00,2023-03-03 00:01:00+08:00,"
        "2023-03-03 00:31:00+08:00,1800,60,1800.0",
    ]
    (tmp_path / "trace_seren.csv").write_text(SEREN + "\n".join(rows) + "\n")
    trace = load("auto", tmp_path)
    assert trace.jobs.select("status", "duration_s", "queueing_delay_s", "num_gpus").rows() == [
        ("completed", 600.0, 30.0, 8.0),
        ("cancelled", 172_800.0, 7200.0, 256.0),
        ("node_fail", 5.0, 0.0, 0.0),
        ("preempted", 1800.0, 60.0, 1.0),
    ]
    assert trace.meta.load_report.flagged == {}
    published = trace.jobs["extra"].struct.field("gpu_time")
    assert published.to_list() == (trace.jobs["duration_s"] * trace.jobs["num_gpus"]).to_list()


def test_two_clusters_at_once_are_refused(tmp_path):
    (tmp_path / "trace_seren.csv").write_text(SEREN)
    (tmp_path / "trace_kalos.csv").write_text(KALOS)
    with pytest.raises(UsageError, match="several job logs .trace_kalos.csv, trace_seren.csv.*one cluster at a time"):
        load("acme", tmp_path)


def series(trace, metric):
    return trace.scan("usage_series").filter(pl.col("metric") == metric).drop("metric").collect()


def test_wide_becomes_long_and_a_repeated_time_is_set_aside(tmp_path):
    path = tmp_path / "GPU_UTIL.csv"
    path.write_text(
        "Time,172.31.0.1-0,172.31.0.1-1\n"
        "2023-07-01 08:00:00+08:00,97.0,\n"
        "2023-07-01 08:00:15+08:00,100.0,0.0\n"
        "2023-07-01 08:00:15+08:00,100.0,0.0\n"
    )
    trace = load("auto", path)
    zero, later = datetime(2023, 7, 1, tzinfo=UTC), datetime(2023, 7, 1, 0, 0, 15, tzinfo=UTC)
    assert series(trace, "gpu_utilization").rows() == [
        ("172.31.0.1-0", zero, 0.97), ("172.31.0.1-0", later, 1.0),
        ("172.31.0.1-1", zero, None), ("172.31.0.1-1", later, 0.0),
    ]  # fmt: skip
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used, report.rejected_by_reason) == (3, 2, {"duplicate_time": 1})
    assert trace.rejects.row(0) == ("GPU_UTIL.csv", 4, "duplicate_time", "2023-07-01 08:00:15+08:00,100.0,0.0")
    assert "gpu_utilization: 1 rows repeat a time and were set aside." in report.notes
    assert trace.jobs.height == 0
    assert trace.meta.window == ("2023-07-01T00:00:00+00:00", "2023-07-01T00:00:15+00:00")


def test_split_files_are_one_metric_and_overlap_once(tmp_path):
    head = "Time,10.140.0.1\n"
    (tmp_path / "NODE_MEMORY_UTILIZATION-2023-07-01.csv").write_text(head + "2023-07-01 00:00:00+08:00,10\n" * 1)
    (tmp_path / "NODE_MEMORY_UTILIZATION-2023-07-02.csv").write_text(
        head + "2023-07-02 00:00:00+08:00,30\n2023-07-01 00:00:00+08:00,20\n"
    )
    trace = load("acme", tmp_path)
    assert series(trace, "mem_utilization")["value"].to_list() == [0.1, 0.3]
    assert trace.rejects.select("file", "line").rows() == [("NODE_MEMORY_UTILIZATION-2023-07-02.csv", 3)]


def test_a18_values_above_100_percent_are_counted_not_clipped(tmp_path):
    path = tmp_path / "NODE_CPU_UTILIZATION.csv"
    path.write_text("Time,172.31.0.1,172.31.0.2\n2023-07-01 08:00:00+08:00,238.87,50\n")
    trace = load("acme", path)
    assert series(trace, "cpu_utilization")["value"].to_list() == pytest.approx([2.3887, 0.5])
    assert "cpu_utilization: 1 values are above 100 % (highest 238.87%); kept." in trace.meta.load_report.notes


def test_twin_columns_fill_the_gaps_of_the_first(tmp_path):
    path = tmp_path / "NODE_MEMORY_UTILIZATION.csv"
    path.write_text(
        "Time,10.140.0.1,10.140.0.1.1\n2023-07-19 11:34:45+08:00,20,\n2023-07-19 11:35:00+08:00,,30\n"
        "2023-07-19 11:35:15+08:00,40,41\n"
    )
    found = series(load("acme", path), "mem_utilization")
    assert found["entity"].unique().to_list() == ["10.140.0.1"]
    assert found["value"].to_list() == pytest.approx([0.2, 0.3, 0.4])


@pytest.mark.parametrize(
    ("name", "text", "metric", "expected"),
    [
        # Raw epoch form: the authors turn these into percent only when they publish.
        ("NODE_CPU_UTILIZATION", "1688169600,0.25", "cpu_utilization", 0.25),
        ("DCGM_FI_DEV_FB_USED", "1688169600,81920", "gpu_mem_used_gib", 80.0),
        ("SM_ACTIVE", "2023-07-01 08:00:00+08:00,0.5", "gpu_sm_active", 0.5),
        ("SM_ACTIVE", "2023-07-01 08:00:00+08:00,50.0", "gpu_sm_active", 0.5),
        ("POWER_USAGE", "2023-07-01 08:00:00,400", "gpu_power_w", 400.0),
        ("NEW_THING", "2023-07-01 08:00:00+08:00,7", "new_thing", 7.0),
    ],
)
def test_units_and_forms_of_time(tmp_path, name, text, metric, expected):
    path = tmp_path / f"{name}.csv"
    path.write_text(f"Time,172.31.0.1-0\n{text}\n")
    trace = load("acme", path)
    assert series(trace, metric).rows() == [("172.31.0.1-0", datetime(2023, 7, 1, tzinfo=UTC), expected)]
    assert any("not documented" in note for note in trace.meta.load_report.notes) == (metric == "new_thing")


def test_server_power_has_no_servers_and_so_no_duplicates(tmp_path):
    path = tmp_path / "GPU_AB_Power.csv"
    path.write_text(
        "Time,MEM_Power,Sys_Total_Power\n2023-07-01 08:00:00,200,4000\n2023-07-01 08:00:00,,2500\n"
        "2023-07-01 08:00:00,1\n"
    )
    trace = load("acme", path)
    assert series(trace, "sys_total_power_w").select("entity", "value").rows() == [
        ("GPU_AB_Power", 4000.0), ("GPU_AB_Power", 2500.0)
    ]  # fmt: skip
    assert trace.meta.load_report.rejected_by_reason == {"too_few_fields": 1}


def test_cells_that_cannot_be_read_are_set_aside_with_their_row(tmp_path):
    path = tmp_path / "GPU_TEMP.csv"
    path.write_text(
        "Time,172.31.0.1-0,172.31.0.1-1\n2023-07-01 08:00:00+08:00,hot,30\nyesterday,30,30\n,30,30\n"
        "2023-07-01 08:00:30+08:00,NaN,30\n"
    )
    trace = load("acme", path)
    assert trace.meta.load_report.rejected_by_reason == {
        "unreadable_172.31.0.1-0": 1, "unreadable_Time": 1, "no_Time": 1,
    }  # fmt: skip
    assert series(trace, "gpu_temperature_c")["value"].to_list() == [None, 30.0]


def test_a_log_with_series_is_written_and_read_again(tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "trace_seren.csv").write_text(SEREN)
    (raw / "GPU_UTIL.csv").write_text("Time,10.140.0.1-0\n2023-07-01 08:00:00+08:00,97.0\n")
    trace = load("acme", raw)
    again = Trace.read(trace.write(tmp_path / "T"))
    assert again.table("usage_series").equals(trace.table("usage_series"))
    assert again.table("usage_series").height == 1


def test_a_pointer_in_the_folder_is_named(tmp_path):
    (tmp_path / "GPU_UTIL.csv").write_text("Time,10.140.0.1-0\n")
    (tmp_path / "trace_seren.csv").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    with pytest.raises(BadFileError, match="Git-LFS pointer"):
        load("acme", tmp_path)
