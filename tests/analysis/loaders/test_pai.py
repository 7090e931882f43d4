"""PAI 2020: units, zeros, levels, retries, sensors, machine metrics, headerless tables."""

from __future__ import annotations

import gzip
import io
import tarfile
from datetime import timedelta, timezone

import polars as pl
import pytest

from analysis.characterize import sharing_pairs
from analysis.errors import BadFileError, UsageError
from analysis.loaders import load
from tests.conftest import ROOT

SAMPLE = ROOT / "tests" / "golden" / "pai" / "raw"


def write(folder, **tables):
    """Write some tables from lists of rows."""
    for name, rows in tables.items():
        (folder / f"pai_{name}.csv").write_text("".join(f"{row}\n" for row in rows))
    return folder


def by_id(trace, *columns):
    return {row[0]: row[1:] for row in trace.jobs.select("job_id", *columns).iter_rows()}


def test_the_documented_example():
    trace = load("auto", SAMPLE)
    jobs = by_id(trace, "num_gpus", "queueing_delay_s", "duration_s", "censoring", "num_tasks")
    assert jobs["j01"] == (2.0, 60.0, 3640.0, "none", 4)
    assert jobs["j02"][2:4] == (None, "left")
    assert jobs["j03"] == (64.0, 30.0, None, "right", 8)
    assert jobs["j04"] == (None, None, None, "never_started", None)
    epochs = trace.jobs.filter(pl.col("job_id") == "j01").select(pl.col("submit_time", "start_time").dt.epoch("s"))
    assert epochs.row(0) == (500_000, 500_060)
    assert trace.nodes.select("node_id", "gpu_type", "num_gpus").rows() == [
        ("m01", "T4", 2), ("m02", None, 0), ("m03", "V100M32", 8)
    ]  # fmt: skip


def test_the_clock_is_right_at_plus_8_and_the_date_is_not(tmp_path):
    write(tmp_path, job_table=["j,i,u,Terminated,494319.0,494400.0"])
    trace = load("pai", tmp_path)
    local = trace.jobs["submit_time"][0].astimezone(timezone(timedelta(hours=8)))
    assert str(local) == "1970-01-07 01:18:39+08:00"
    assert (trace.meta.clock, trace.meta.time_zone) == ("clock_only", "Etc/GMT-8")


def test_a13_plan_gpu_is_percent_and_per_instance(tmp_path):
    plans = {"a": "4,100", "b": "2,50", "c": "1,0", "d": "1,"}
    rows = [f"{name},t,{plan.split(',')[0]},Terminated,10,20,,,{plan.split(',')[1]},T4" for name, plan in plans.items()]
    write(tmp_path, task_table=rows)
    found = by_id(load("pai", tmp_path, level="task"), "num_gpus", "num_tasks")
    assert found == {"a/t": (4.0, 4), "b/t": (1.0, 2), "c/t": (0.0, 1), "d/t": (None, 1)}


def test_a13_a_task_without_plan_and_model_is_a_cpu_role(tmp_path):
    write(
        tmp_path,
        job_table=["j,i,u,Terminated,5,20"],
        task_table=["j,worker,2,Terminated,10,20,600,30,50,T4", "j,ps,3,Terminated,10,20,300,10,,"],
    )
    job = load("pai", tmp_path).jobs.row(0, named=True)
    # Three parameter servers are no gang members: two instances of half a GPU are.
    assert (job["num_gpus"], job["num_tasks"], job["num_cpus"]) == (1.0, 2, 21.0)


def test_a14_zero_means_missing(tmp_path):
    times = {"a": "0,500", "b": "100,", "c": "100,90", "d": "100,0"}
    status = {"a": "Terminated", "b": "Running", "c": "Terminated", "d": "Running"}
    write(tmp_path, task_table=[f"{n},t,1,{status[n]},{t},,,100,T4" for n, t in times.items()])
    trace = load("pai", tmp_path, level="task")
    found = by_id(trace, "duration_s", "censoring", "flags")
    assert found["a/t"] == (None, "left", ["start_missing"])
    assert found["b/t"] == (None, "right", [])
    assert found["c/t"] == (None, "none", ["invalid_times"])
    assert found["d/t"] == (None, "right", [])
    assert trace.meta.load_report.flagged == {"invalid_times": 1, "start_missing": 1}
    assert trace.jobs.filter(pl.col("duration_s") == 0).height == 0


def test_a15_a_worker_that_begins_again_is_attempts(tmp_path):
    write(tmp_path, instance_table=["j,t,n1,w1,i,Terminated,200,400,m2", "j,t,n1,w1,i,Failed,100,150,m1"])
    trace = load("pai", tmp_path, level="instance")
    worker = trace.jobs.row(0, named=True)
    assert trace.jobs.height == 1
    assert (worker["job_id"], worker["num_attempts"], worker["duration_s"], worker["status"]) == (
        "w1", 2, 250.0, "completed"
    )  # fmt: skip
    length = (trace.attempts["end_time"] - trace.attempts["start_time"]).dt.total_seconds()
    assert length.to_list() == [50, 200]
    assert trace.attempts["nodes"].to_list() == [["m1"], ["m2"]]
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used, report.rows_merged) == (2, 2, 1)


def test_a16_every_level_has_its_own_duration(tmp_path):
    write(
        tmp_path,
        job_table=["j,i,u,Terminated,1000,2000"],
        task_table=["j,t,2,Terminated,1100,2000,100,1,100,T4"],
        instance_table=["j,t,n1,w1,i,Terminated,1150,1400,m1", "j,t,n2,w2,i,Terminated,1150,1950,m1"],
    )
    job = load("pai", tmp_path).jobs.row(0, named=True)
    assert ((job["end_time"] - job["submit_time"]).total_seconds(), job["queueing_delay_s"]) == (1000, 100)
    assert job["num_nodes"] == 1
    task = load("pai", tmp_path, level="task").jobs.row(0, named=True)
    assert (task["duration_s"], task["user"], task["num_gpus"]) == (900, "u", 2.0)
    workers = load("pai", tmp_path, level="instance").jobs
    assert (workers["duration_s"].mean(), workers["duration_s"].max()) == (525, 800)
    assert workers["num_gpus"].to_list() == [1.0, 1.0]


def sensor(worker, *, gpu="", cpu="", job="j", task="t"):
    return f"{job},{task},{worker},i,m1,/dev/nvidia0,{cpu},{gpu},1,2,1,2,0,0,0,0"


@pytest.mark.parametrize(("used", "planned", "share", "above"), [(230, 400, 0.575, False), (60, 50, 1.2, True)])
def test_a18_percent_of_one_gpu_above_the_plan_is_kept(tmp_path, used, planned, share, above):
    write(
        tmp_path,
        job_table=["j,i,u,Terminated,5,20"],
        task_table=[f"j,t,1,Terminated,10,20,600,30,{planned},T4"],
        sensor_table=[sensor("w1", gpu=used)],
    )
    trace = load("pai", tmp_path)
    assert trace.usage["gpu_utilization_mean"].to_list() == [pytest.approx(share)]
    assert any("1 tasks use more GPU than was planned" in note for note in trace.meta.load_report.notes) == above


def metric(worker, gpu, start=10, end=20):
    return f"{worker},m1,{start},{end},1,2,3,{gpu},4,5,1,50"


def test_a18_machine_gpu_is_percent_of_one_gpu(tmp_path):
    write(tmp_path, machine_spec=["m1,T4,96,512,2"], machine_metric=[metric("w1", 150)])
    assert series(load("auto", tmp_path), "gpu_utilization") == [("m1", 0.75)]


def series(trace, name):
    found = trace.table("usage_series").filter(pl.col("metric") == name)
    return found.select("entity", "value").rows()


def test_a19_who_shares_a_gpu(tmp_path):
    times = {"a": (10, 20), "b": (15, 25), "c": (10, 25), "d": (30, 40), "e": (25, "")}
    devices = {"a": 0, "b": 0, "c": 1, "d": 0, "e": 0}
    write(
        tmp_path,
        instance_table=[f"j,t,n,{w},i,Terminated,{s},{e},m1" for w, (s, e) in times.items()],
        sensor_table=[f"j,t,{w},i,m1,/dev/nvidia{d},1,1,1,2,1,2,0,0,0,0" for w, d in devices.items()],
    )
    workers = load("pai", tmp_path, level="instance").jobs
    place = pl.col("extra").struct
    pairs = sharing_pairs(
        workers.select(
            "start_time",
            "end_time",
            entity="job_id",
            node_id=place.field("machine"),
            device=place.field("gpu_name"),
        )
    )
    # b ends when e begins; e has no end, so it still has the device when d comes.
    assert pairs.select("first", "second").rows() == [("a", "b"), ("d", "e")]


def test_a20_sensors_are_joined_from_the_left_and_coverage_is_said(tmp_path):
    write(
        tmp_path,
        task_table=["j,t,3,Terminated,10,20,600,30,100,T4"],
        instance_table=[f"j,t,n{n},w{n},i,Terminated,10,20,m1" for n in range(3)],
        sensor_table=[sensor("w1", gpu=40)],
    )
    trace = load("pai", tmp_path, level="instance")
    joined = trace.jobs.join(trace.usage, on="job_id", how="left")
    assert joined.height == 3
    assert (joined["gpu_utilization_mean"].mean(), joined["gpu_utilization_mean"].count()) == (0.4, 1)
    assert "Sensors cover 1 of 3 rows (33.3%)." in trace.meta.load_report.notes


def test_a21_a_machine_is_measured_once_however_many_workers_it_has(tmp_path):
    rows = [metric("w1", 80), metric("w2", 80), metric("w3", 80, start=15, end=30)]
    write(tmp_path, machine_spec=["m1,T4,96,512,2"], machine_metric=rows)
    trace = load("pai", tmp_path)
    assert series(trace, "gpu_utilization") == [("m1", 0.4), ("m1", 0.4)]
    assert series(trace, "interval_s") == [("m1", 10.0), ("m1", 15.0)]
    assert series(trace, "cpu_utilization")[0] == ("m1", 0.5)
    assert any("1 machine metrics repeat an interval" in note for note in trace.meta.load_report.notes)
    write(tmp_path, machine_metric=rows[::-1])
    assert load("pai", tmp_path).table("usage_series").equals(trace.table("usage_series"))
    # Without the machines' sizes it is a number of GPUs.
    assert series(load("pai", tmp_path / "pai_machine_metric.csv"), "gpus_used")[0] == ("m1", 0.8)


def test_a22_before_the_window_and_missing_ends(tmp_path):
    times = {"a": "-30,-10", "b": "50,", "c": "0,40", "d": "60,90"}
    write(
        tmp_path,
        task_table=[f"{n},t,1,{'Running' if n == 'b' else 'Terminated'},{t},,,100,T4" for n, t in times.items()],
    )
    trace = load("pai", tmp_path, level="task")
    found = by_id(trace, "censoring", "duration_s")
    assert found == {"b/t": ("right", None), "c/t": ("left", None), "d/t": ("none", 30.0)}
    assert trace.rejects.select("line", "reason").rows() == [(1, "before_trace")]


def test_a23_rows_that_belong_to_no_job_are_set_aside_in_every_table(tmp_path):
    write(
        tmp_path,
        job_table=["a,ia,u,Terminated,5,20", "d,id,u,Terminated,5,20"],
        task_table=["b,t,1,Terminated,10,20,1,1,100,T4"],
        instance_table=["c,t,n,w,ic,Terminated,10,20,m"],
        sensor_table=[sensor("w", job="b"), sensor("w", job="a")],
        group_tag_table=["ib,u,,g,bert", "ia,u,,g,bert"],
    )
    trace = load("pai", tmp_path)
    assert trace.meta.load_report.rejected_by_reason == {"no_such_job": 4}
    assert trace.rejects["raw"].null_count() == 0
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used, report.rows_set_aside) == (8, 4, 4)
    assert trace.usage["job_id"].to_list() == ["a"]


def test_a24_columns_come_from_the_side_file_and_bad_rows_are_set_aside(tmp_path):
    write(
        tmp_path,
        instance_table=[
            "w1,j,t,n1,i,Terminated,10,30,m1,x,y", "w2,j,t,n2,i,Terminated,10,40,m1,x,y,z",
            "w3,j,t,n3,i,Terminated,10,50,m1,x,y",
        ],
    )  # fmt: skip
    (tmp_path / "pai_instance_table.header").write_text(
        "worker_name,job_name,task_name,inst_name,inst_id,status,start_time,end_time,machine,more,yet_more\n"
    )
    trace = load("pai", tmp_path, level="instance")
    assert by_id(trace, "duration_s") == {"w1": (20.0,), "w3": (40.0,)}
    assert trace.rejects.select("line", "reason").rows() == [(2, "too_many_fields")]
    assert trace.meta.load_report.rows_in == 3


def test_a25_of_two_rows_of_one_job_one_counts_whatever_their_order(tmp_path):
    rows = ["j,i,u,Terminated,5,20", "j,i,u,Failed,5,90"]
    first = load("pai", write(tmp_path, job_table=rows))
    second = load("pai", write(tmp_path, job_table=rows[::-1]))
    assert first.jobs.equals(second.jobs)
    assert first.jobs.height == 1
    assert first.meta.load_report.rejected_by_reason == {"duplicate_id": 1}


def test_a_header_line_is_not_taken_for_a_row(tmp_path):
    header = "job_name,inst_id,user,status,start_time,end_time"
    trace = load("auto", write(tmp_path, job_table=[header, "j,i,u,Terminated,5,20"]))
    assert trace.jobs["job_id"].to_list() == ["j"]
    assert trace.meta.load_report.rows_in == 1


@pytest.mark.parametrize("level", ["job", "task", "instance"])
def test_tar_and_gzip_give_the_same(tmp_path, level):
    plain = load("pai", SAMPLE, level=level)
    for path in SAMPLE.glob("*.csv"):
        data = path.read_bytes()
        if "machine" in path.name:
            (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(data))
            continue
        with tarfile.open(tmp_path / f"{path.stem}.tar.gz", "w:gz") as tar:
            info = tarfile.TarInfo(path.name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    packed = load("pai", tmp_path, level=level)
    assert packed.jobs.equals(plain.jobs)
    for table in ("nodes", "usage", "usage_series", "attempts"):
        assert packed.table(table).equals(plain.table(table))


def test_what_is_missing_is_said(tmp_path):
    write(tmp_path, task_table=["j,t,1,Terminated,10,20,,,100,T4"])
    with pytest.raises(BadFileError, match="found the tables task; expected pai_job_table too, for level 'job'"):
        load("pai", tmp_path)
    with pytest.raises(UsageError, match="level is 'user'; expected one of job, task, instance"):
        load("pai", tmp_path, level="user")
    (tmp_path / "again.csv").write_text("j,t,1,Terminated,10,20,,,100,T4\n")
    with pytest.raises(UsageError, match="several files of one table .task: again.csv, pai_task_table.csv"):
        load("pai", tmp_path, level="task")


def test_times_of_no_century_are_set_aside_at_every_level(tmp_path):
    write(
        tmp_path,
        job_table=["j,i,u,Terminated,5,20"],
        task_table=["j,t,1,Terminated,10,1e300,1,1,100,T4"],
        instance_table=["j,t,n,w,i,Terminated,1e300,,m"],
        machine_metric=[metric("w", 80, start="1e300")],
    )
    for level in ("job", "task", "instance"):
        report = load("pai", tmp_path, level=level).meta.load_report
        assert report.rejected_by_reason == {"implausible_time": 2, "implausible_start_time": 1}, level
        assert (report.rows_in, report.rows_used) == (4, 1)


def test_the_real_machine_list(real_data):
    trace = load("auto", real_data("alibaba/pai_machine_spec.tar.gz"))
    assert (trace.nodes.height, trace.jobs.height) == (1_897, 0)
    assert trace.meta.load_report.rows_used == 1_897
    types = set(trace.nodes["gpu_type"].drop_nulls())
    assert types == {"T4", "MISC", "P100", "V100", "V100M32"}
    # "More than 6,500 GPUs" (README), 6,742 in the paper.
    assert 6_500 < trace.nodes["num_gpus"].sum() < 7_000
    assert (trace.nodes.filter(pl.col("gpu_type").is_null())["num_gpus"] == 0).all()
