"""Lingjun: jobs joined with their workers, ids that do not join counted, minutes."""

from __future__ import annotations

import pytest

from analysis.loaders import load
from tests.conftest import ROOT

SAMPLE = ROOT / "tests" / "golden" / "lingjun" / "raw"
JOBS = (
    "id,job_name,kind,status,user_id,workspace_id,priority,is_deleted,gmt_created,gmt_job_submitted,gmt_job_running,"
    "gmt_job_stopped,gmt_job_finished\n"
)
WORKERS = "id,job_name,worker_name,replica_type,host_ip,RES\n"


def by_id(trace, *columns):
    return {row[0]: row[1:] for row in trace.jobs.select("job_id", *columns).iter_rows()}


def test_the_documented_example():
    found = by_id(
        load("auto", SAMPLE), "num_gpus", "num_nodes", "queueing_delay_s", "duration_s", "status", "censoring"
    )
    assert found["1"] == (16.0, 2, 120.0, 10_800.0, "completed", "none")
    assert found["2"] == (None, None, 60.0, 240.0, "cancelled", "none")
    assert found["3"] == (0.0, 1, None, None, "failed", "never_started")
    assert found["10"] == (None, None, 120.0, None, "running", "right")


def test_a23_ids_that_do_not_join_are_counted_both_ways(tmp_path):
    names = {"a": "x", "b": "y", "c": "z"}
    rows = [f"{n},{job},K,Failed,u,w,1,0,2023/7/1 00:00,,2023/7/1 00:00,,2023/7/1 00:01" for n, job in names.items()]
    (tmp_path / "job.csv").write_text(JOBS + "\n".join(rows) + "\n")
    res = '"{""nvidia.com/gpu"": ""4""}"'
    (tmp_path / "worker.csv").write_text(WORKERS + f"1,x,x-0,w,h1,{res}\n2,other,o-0,w,h1,{res}\n")
    trace = load("lingjun", tmp_path)
    assert "1 jobs have workers; 2 have none, 1 workers belong to no listed job." in trace.meta.load_report.notes
    assert trace.meta.load_report.rejected_by_reason == {"no_such_job": 1}
    assert trace.rejects["raw"].to_list() == [f"2,other,o-0,w,h1,{res}"]
    assert trace.jobs.height == 3
    assert (trace.meta.load_report.rows_in, trace.meta.load_report.rows_used) == (5, 4)


def test_deleted_jobs_can_be_set_aside():
    assert load("lingjun", SAMPLE).jobs.height == 6
    trace = load("lingjun", SAMPLE, drop_deleted=True)
    assert trace.jobs.height == 5
    assert trace.meta.load_report.rejected_by_reason == {"is_deleted": 1, "no_such_job": 1, "unreadable_RES": 1}


def test_a_run_before_its_submission_waits_0_and_is_flagged():
    jobs = by_id(load("lingjun", SAMPLE), "queueing_delay_s", "duration_s", "flags")
    assert jobs["9"] == (0.0, 120.0, ["clock_skew", "unknown_gpus"])


def test_hosts_have_as_many_gpus_as_the_largest_worker_asks_for():
    trace = load("lingjun", SAMPLE)
    assert trace.nodes.select("node_id", "num_gpus").rows() == [("00aa", 8), ("00bb", 8)]
    assert "Every host of the topology is taken to have 8 GPUs." in trace.meta.load_report.notes
    # Without workers nothing is known of the hosts' GPUs.
    alone = load("lingjun", [SAMPLE / "job.csv", SAMPLE / "topo.csv"])
    assert alone.nodes.height == 0
    assert alone.meta.load_report.rejected_by_reason == {"no_num_gpus": 2}


def test_another_zone_moves_the_times():
    shanghai, utc = load("lingjun", SAMPLE), load("lingjun", SAMPLE, timezone="UTC")
    gap = utc.jobs["submit_time"] - shanghai.jobs["submit_time"]
    assert set(gap.dt.total_hours()) == {8}
    assert (shanghai.meta.time_zone_certainty, utc.meta.time_zone_certainty) == ("assumed", "given")


@pytest.mark.parametrize(
    ("memory", "gib"), [("900Gi", 900.0), ("512Mi", 0.5), ("1Ti", 1024.0), ("1073741824", 1.0), ("lots", None)]
)
def test_memory_quantities(tmp_path, memory, gib):
    (tmp_path / "job.csv").write_text(JOBS + "1,x,K,Running,u,w,1,0,2023/7/1 00:00,,2023/7/1 00:00,,\n")
    (tmp_path / "worker.csv").write_text(WORKERS + f'1,x,x-0,w,h1,"{{""memory"": ""{memory}"", ""cpu"": ""1500m""}}"\n')
    assert by_id(load("lingjun", tmp_path), "mem_gib", "num_cpus")["1"] == (gib, 1.5)
