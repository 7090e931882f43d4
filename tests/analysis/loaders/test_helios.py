"""Helios: clusters, VCs over time, the authors' folding; and the slice of another layout through ``table``."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from analysis.errors import BadFileError
from analysis.loaders import load

HEADER = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
JOB = "{},u,v,1,8,1,{},2020-09-01 08:00:00,2020-09-01 08:10:00,2020-09-01 10:10:00,7200,600\n"


@pytest.fixture
def venus(tmp_path):
    folder = tmp_path / "Venus"
    folder.mkdir()
    states = ("COMPLETED", "TIMEOUT", "NODE_FAIL", "SUSPENDED")
    (folder / "cluster_log.csv").write_text(HEADER + "".join(JOB.format(i, s) for i, s in enumerate(states)))
    (folder / "cluster_gpu_number.csv").write_text("date,v,vc,total\n2020-09-01,64,0,64\n2020-09-02,20,0,20\n")
    return folder


def test_the_folder_names_the_cluster(venus):
    trace = load("auto", venus)
    assert (trace.meta.name, trace.jobs["cluster"].unique().to_list()) == ("venus", ["Venus"])
    assert load("helios", venus, cluster="Mine").jobs["cluster"][0] == "Mine"


def test_times_are_those_of_china(venus):
    trace = load("helios", venus)
    assert trace.jobs["submit_time"][0] == datetime(2020, 9, 1, 0, 0, tzinfo=UTC)
    assert (trace.meta.time_zone, trace.meta.time_zone_certainty) == ("Asia/Shanghai", "assumed")
    assert load("helios", venus, timezone="UTC").jobs["submit_time"][0] == datetime(2020, 9, 1, 8, 0, tzinfo=UTC)


def test_fold_rare_counts_as_the_authors_do(venus):
    assert load("helios", venus).jobs["status"].to_list() == ["completed", "timeout", "node_fail", "suspended"]
    assert load("helios", venus, fold_rare=True).jobs["status"].to_list() == [
        "completed",
        "failed",
        "failed",
        "suspended",
    ]


def test_capacity_holds_the_changes_and_nodes_the_last_day(venus):
    trace = load("helios", [venus / "cluster_gpu_number.csv", venus / "cluster_log.csv"])
    first, second = (datetime(2020, 8, day, 16, tzinfo=UTC) for day in (31, 31))
    second = second.replace(month=9, day=1)
    assert trace.capacity.rows() == [("v", first, 64), ("v", second, 20), ("vc", first, 0)]
    assert trace.nodes.select("node_id", "num_gpus", "vc").rows() == [
        ("v-000", 8, "v"),
        ("v-001", 8, "v"),
        ("v-002", 4, "v"),
    ]


@pytest.mark.full_trace
def test_gpus_per_vc_of_the_real_file(real_data, venus):
    raw = pl.read_csv(real_data("helios/cluster_gpu_number.csv"))
    trace = load("helios", [venus / "cluster_log.csv", real_data("helios/cluster_gpu_number.csv")])
    assert trace.nodes["num_gpus"].sum() == raw["total"][-1]
    assert trace.meta.load_report.files[1]["rows"] == 181
    # Summing the changes back gives every day's total.
    vcs = [c for c in raw.columns if c not in ("date", "total")]
    day = datetime(2020, 6, 30, 16, tzinfo=UTC)
    then = trace.capacity.filter(pl.col("time") <= day).group_by("vc").last()
    assert then["num_gpus"].sum() == raw.filter(pl.col("date") == "2020-07-01").select(pl.sum_horizontal(vcs)).item()


def test_another_layout_is_refused_by_name(tmp_path):
    path = tmp_path / "cluster_log.csv"
    path.write_text(HEADER.replace("gpu_num", "gpus") + JOB.format(1, "COMPLETED"))
    with pytest.raises(BadFileError, match=r"missing: gpu_num.*column map"):
        load("helios", path)


@pytest.mark.full_trace
def test_the_slice_loads_through_a_map_and_says_what_its_duration_is(real_data):
    columns = (
        "job_id=job_id,user=user,num_cpus=cpu_num,num_nodes=node_num,status=state,submit_time=submit_time,"
        "start_time=start_time,end_time=end_time,duration_s=duration,num_gpus=max_parallelism"
    )
    trace = load("table", real_data("helios/helios_slice.csv"), columns=columns, timezone="Asia/Shanghai")
    jobs, report = trace.jobs, trace.meta.load_report
    assert (jobs.height, report.rows_set_aside, jobs["user"].n_unique()) == (1_056, 0, 102)
    # start_time is 0 in every row: missing, not 1970.
    assert jobs["start_time"].null_count() == 1_056
    assert report.flagged["start_missing"] == 1_056
    assert report.flagged["duration_includes_queue"] > 500
    assert set(jobs["status"]) == {"completed"}
    assert jobs["extra"].struct.field("model").null_count() == 0


@pytest.fixture
def uranus(tmp_path):
    folder = tmp_path / "Uranus"
    folder.mkdir()
    line = "{},u,{},8,64,1,COMPLETED,2020-09-01 08:00:00,2020-09-01 08:10:00,2020-09-01 10:10:00,7200,600\n"
    vcs = ("vc7Bz", "vczGr", "vcUV3", "vcVvI", "vcOther")
    (folder / "cluster_log.csv").write_text(HEADER + "".join(line.format(i, vc) for i, vc in enumerate(vcs)))
    days = "2020-09-10,8,4,16,8,24,60\n2020-09-11,8,4,16,16,32,76\n"
    (folder / "cluster_gpu_number.csv").write_text(f"date,{','.join(vcs)},total\n{days}")
    return folder


def test_the_authors_clean_up_leaves_out_and_merges_vcs(uranus):
    trace = load("helios", uranus, clean_up=True)
    assert trace.jobs["vc"].to_list() == ["vcUV3", "vcUV3", "vcOther"]
    assert trace.rejects["reason"].to_list() == ["vc_left_out"] * 2
    # The nodes are those of 2020-09-10, the merged VC with both its parts; the capacity goes on changing.
    sizes = dict(trace.nodes.group_by("vc").agg(pl.col("num_gpus").sum()).iter_rows())
    assert sizes == {"vcUV3": 24, "vcOther": 24}
    assert trace.capacity.sort("vc", "time")["num_gpus"].to_list() == [24, 32, 24, 32]
    assert any("clean-up" in note for note in trace.meta.load_report.notes)


def test_without_clean_up_every_vc_stays(uranus):
    trace = load("helios", uranus)
    assert trace.jobs.height == 5
    assert trace.nodes["num_gpus"].sum() == 76


def test_the_clean_up_needs_no_gpu_numbers(uranus):
    trace = load("helios", uranus / "cluster_log.csv", clean_up=True)
    assert trace.jobs["vc"].to_list() == ["vczGr", "vcUV3", "vcUV3", "vcOther"]


def test_the_gpu_numbers_alone_are_a_cluster_without_jobs(uranus):
    trace = load("helios", uranus / "cluster_gpu_number.csv")
    assert (trace.jobs.height, trace.nodes["num_gpus"].sum(), trace.meta.name) == (0, 76, "uranus")


def test_the_real_gpu_numbers_are_those_of_25_vcs(real_data):
    trace = load("auto", real_data("helios/cluster_gpu_number.csv"))
    assert trace.capacity["vc"].n_unique() == 25
    # The sum over the VCs on the first and the last of 181 days, as the file's own total has it.
    first = trace.capacity.filter(pl.col("time") == pl.col("time").min())
    assert first["num_gpus"].sum() == 968
    assert trace.nodes["num_gpus"].sum() == trace.capacity.group_by("vc").last()["num_gpus"].sum()
    assert trace.meta.load_report.rows_in == 181
