"""openb: every figure of the in-tree files (counted by others), and the pods that are odd."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.errors import BadFileError, UsageError
from analysis.loaders import load

HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)


@pytest.fixture(scope="module")
def default(real_data):
    return load(
        "openb", [real_data("alibaba/openb_node_list_all_node.csv"), real_data("alibaba/openb_pod_list_default.csv")]
    )


@pytest.fixture(scope="module")
def all_jobs(default):
    return default.jobs


@pytest.mark.full_trace
def test_counts_of_the_default_list(default, all_jobs):
    report = default.meta.load_report
    assert (report.rows_in, report.rows_used, report.rows_set_aside) == (8_152 + 1_523, 8_152 + 1_523, 0)
    assert dict(all_jobs["status_raw"].value_counts().iter_rows()) == {
        "Running": 5_193,
        "Failed": 1_870,
        "Pending": 897,
        "Succeeded": 192,
    }
    qos = all_jobs["extra"].struct.field("qos").value_counts()
    assert dict(qos.iter_rows()) == {"LS": 4_647, "BE": 3_398, "Burstable": 100, "Guaranteed": 7}
    devices = dict(all_jobs["extra"].struct.field("num_gpu").value_counts().iter_rows())
    assert devices == {0: 1_088, 1: 6_989, 2: 16, 4: 15, 8: 44}
    assert all_jobs.filter(pl.col("num_gpus").is_between(0, 1, closed="none")).height == 3_078
    assert all_jobs["allowed_gpu_types"].null_count() == 8_152


@pytest.mark.full_trace
def test_gpus_requested_and_their_shares(all_jobs):
    gpus = all_jobs["num_gpus"]
    assert gpus.sum() == pytest.approx(6_086.8, abs=0.05)

    def share(mask):
        return round(100 * gpus.filter(mask).sum() / gpus.sum(), 2)

    assert [share(gpus < 1), *(share(gpus == n) for n in (1, 2, 4, 8))] == [28.45, 64.25, 0.53, 0.99, 5.78]


@pytest.mark.full_trace
def test_waits_and_durations(all_jobs):
    wait, duration = all_jobs["queueing_delay_s"].drop_nulls(), all_jobs["duration_s"].drop_nulls()
    assert (round(wait.mean(), 2), wait.median(), wait.max()) == (61.30, 2, 14_330)
    assert (duration.len(), round(duration.mean(), 2), duration.median(), duration.max()) == (
        7_255,
        28_949.46,
        616,
        12_537_496,
    )
    on_gpus = all_jobs.filter(pl.col("num_gpus") > 0)["duration_s"].drop_nulls()
    assert (on_gpus.len(), round(on_gpus.mean(), 2), on_gpus.median()) == (6_203, 30_851.15, 655)
    seconds = all_jobs["submit_time"].dt.epoch("s")
    assert (seconds.min(), seconds.max()) == (0, 12_901_761)
    deleted = all_jobs["extra"].struct.field("deletion_time")
    assert (deleted.min(), deleted.max()) == (9_964_972, 12_902_960)


@pytest.mark.full_trace
def test_a31_phase_is_not_outcome(all_jobs):
    counts = all_jobs.group_by("status", "censoring").len()
    by = {(status, censoring): count for status, censoring, count in counts.iter_rows()}
    assert by == {
        (None, "none"): 5_193 - 34,
        ("running", "right"): 34,
        ("failed", "none"): 1_870,
        ("completed", "none"): 192,
        ("pending", "never_started"): 897,
    }
    assert all_jobs.filter(pl.col("censoring") == "right")["end_time"].null_count() == 34


@pytest.mark.full_trace
def test_nodes(default):
    by_type = default.nodes.group_by("gpu_type").agg(pl.len(), pl.col("num_gpus").sum())
    assert {kind: (n, gpus) for kind, n, gpus in by_type.iter_rows()} == {
        "G2": (549, 4_392),
        "T4": (404, 842),
        "P100": (134, 265),
        "V100M16": (55, 195),
        "G3": (39, 312),
        "V100M32": (30, 204),
        "A10": (2, 2),
        None: (310, 0),
    }
    with_gpu = default.nodes.filter(pl.col("num_gpus") > 0)
    assert (default.nodes["num_cpus"].sum(), default.nodes["mem_gib"].sum()) == (125_514, 597_684)
    assert (with_gpu["num_cpus"].sum(), with_gpu["mem_gib"].sum()) == (107_018, 492_020)


@pytest.mark.full_trace
@pytest.mark.parametrize(("variant", "rows"), [("cpu250", 9_420), ("gpushare40", 8_152), ("multigpu50", 9_061)])
def test_variants(real_data, variant, rows):
    assert load("auto", real_data(f"alibaba/openb_pod_list_{variant}.csv")).jobs.height == rows


@pytest.mark.full_trace
def test_gpu_types_of_gpuspec33(real_data):
    jobs = load("openb", real_data("alibaba/openb_pod_list_gpuspec33.csv")).jobs
    assert jobs.filter(pl.col("num_gpus") > 0).height == 7_064
    specs = dict(jobs["allowed_gpu_types"].drop_nulls().list.join("|").value_counts().iter_rows())
    assert sum(specs.values()) == 2_388
    assert [specs[s] for s in ("T4", "G2", "P100")] == [1_291, 331, 279]
    # 141 pods write it so, 22 more repeat one of the two.
    assert specs["V100M16|V100M32"] == 141 + 22


@pytest.mark.full_trace
def test_a_list_without_times_loads_and_says_so(real_data):
    trace = load("openb", real_data("alibaba/openb_pod_list_multigpu50.csv"))
    assert trace.jobs["submit_time"].null_count() == trace.jobs.height
    assert trace.jobs["status"].null_count() == trace.jobs.height
    assert any("no times" in note for note in trace.meta.load_report.notes)


def test_a32_fractions_types_and_nodes_without_gpus(tmp_path):
    pods = tmp_path / "pods.csv"
    pods.write_text(
        HEADER
        + "a,1000,1024,1,460,V100M16|V100M32,LS,Failed,5,25,7\n"
        + "b,1000,1024,8,1000,,LS,Failed,5,25,7\n"
        + "c,1000,1024,0,0,,LS,Failed,5,25,7\n"
        + "d,1000,1024,4,500,,LS,Failed,5,25,7\n"
    )
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn,1000,1024,0,\n")
    trace = load("auto", [nodes, pods])
    assert trace.jobs.select("num_gpus", "num_tasks", "allowed_gpu_types").rows() == [
        (0.46, 1, ["V100M16", "V100M32"]),
        (8.0, 1, None),
        (0.0, 1, None),
        (2.0, 4, None),
    ]
    assert trace.nodes.select("num_gpus", "gpu_type").rows() == [(0, None)]
    assert trace.meta.clock == "relative"


def test_two_pod_lists_are_one_too_many(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(HEADER)
    with pytest.raises(UsageError, match=r"several files of one kind \(pods: .*a\.csv, .*b\.csv"):
        load("openb", tmp_path)


def test_a_pod_list_that_lost_one_column_is_named(tmp_path):
    pods = tmp_path / "pods.csv"
    pods.write_text(HEADER.replace("scheduled_time", "schedule_time"))
    with pytest.raises(BadFileError, match="'schedule_time' for 'scheduled_time'"):
        load("openb", pods)
