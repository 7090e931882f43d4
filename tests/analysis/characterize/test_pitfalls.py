"""Cases of the lists of pitfalls whose right answer is a figure of a result table; others stand with their table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis import schema
from analysis.characterize import (
    allocation_by_gpu_type,
    duration_quantiles,
    gpu_demand,
    headline_figures,
    loads_of_vcs,
    outcomes_by_size,
    queueing_delay_quantiles,
    retries,
    running_gpus_summary,
    slowdowns,
    summary,
    time_to_failure,
    wasted_gpu_time,
    what_jobs_wait_for,
)
from analysis.loaders import load
from analysis.replay import Cluster, replay
from analysis.trace import Trace, TraceMeta
from tests.jobs import make_jobs

T0 = datetime(2024, 1, 1, tzinfo=UTC)


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def job(submit, start, end, gpus=1.0, **more):
    times = {"submit_time": at(submit), "start_time": at(start), "end_time": at(end)}
    derived = {"duration_s": float(end - start), "queueing_delay_s": float(max(start - submit, 0)), "num_gpus": gpus}
    return {**times, **derived, **more}


def trace(rows, *, window=(None, None), **tables):
    ends = tuple(None if moment is None else at(moment).isoformat() for moment in window)
    return Trace(make_jobs(rows), meta=TraceMeta(name="t", window=ends), tables=tables)


def cells(table, *names, **where):
    return table.filter(**where).select(names).row(0)


def test_a3_the_pause_between_attempts_is_neither_run_time_nor_gpu_time():
    # Submitted 9:50; tries 10:00-10:30 and 11:00-12:15 on four GPUs: wait 600, service 6300 s, span 8100, 25200 GPU-s.
    one = job(0, 600, 8700, 4.0, job_id="j", duration_s=6300.0, num_attempts=2, status="completed")
    tries = [(1, 600, 2400), (2, 4200, 8700)]
    table = [
        {"job_id": "j", "attempt": n, "start_time": at(a), "end_time": at(b), "nodes": ["n"], "gpus": 4.0}
        for n, a, b in tries
    ]
    log = trace([one], attempts=pl.DataFrame(table, schema=schema.ATTEMPTS))
    assert cells(headline_figures(log), "mean_gpu_duration_s", "mean_gpu_queueing_delay_s", "completed_gpu_s") == (
        6300,
        600,
        25_200,
    )
    assert running_gpus_summary(log)["gpu_hours"].item() == pytest.approx(7)
    assert allocation_by_gpu_type(log)["gpu_hours"].item() == pytest.approx(7)
    assert cells(retries(log), "num_attempts", "lost_gpu_hours") == (2, 2.0)


def test_a8_timeouts_and_node_failures_keep_their_names_and_a_foreign_word_is_unknown():
    statuses = ("completed", "timeout", "node_fail", "suspended", "unknown")
    log = make_jobs([job(0, 0, 3600, status=status) for status in statuses])
    assert summary(log)["num_jobs"].item() == 5
    assert wasted_gpu_time(log).select("status", "num_jobs").rows() == [("timeout", 1), ("node_fail", 1)]
    # Of four with a known status one completed, two failed in the papers' sense; a node failure is not the job's limit.
    assert cells(outcomes_by_size(log), "num_jobs", "completed_share", "failed_share", bucket="all") == (4, 0.25, 0.5)
    assert cells(time_to_failure(log), "num_jobs", bucket="all") == (1,)


def test_a16_job_task_and_instance_durations_are_tables_of_their_own(tmp_path):
    # Job 0-1000; task 100-1000; instances 150-400 and 150-950.
    (tmp_path / "pai_job_table.csv").write_text("j,i,u,Terminated,1000,2000\n")
    (tmp_path / "pai_task_table.csv").write_text("j,t,2,Terminated,1100,2000,100,1,100,T4\n")
    (tmp_path / "pai_instance_table.csv").write_text(
        "j,t,n1,w1,i,Terminated,1150,1400,m1\nj,t,n2,w2,i,Terminated,1150,1950,m1\n"
    )
    levels = {level: load("pai", tmp_path, level=level) for level in ("job", "task", "instance")}
    assert cells(summary(levels["job"]), "mean_queueing_delay_s") == (100,)
    assert cells(slowdowns(levels["job"]), "queueing_share_of_jct", bucket="all") == (0.1,)
    assert cells(summary(levels["task"]), "mean_duration_s") == (900,)
    assert cells(summary(levels["instance"]), "mean_duration_s", "max_duration_s") == (525, 800)


def test_a26_without_a_time_line_durations_and_delays_are_told_and_use_is_not():
    rows = [
        {"num_gpus": 1.0, "duration_s": run, "queueing_delay_s": wait} for wait, run in ((12.0, 300.0), (0.0, 50.0))
    ]
    log = trace(rows)
    assert cells(headline_figures(log), "mean_gpu_duration_s", "mean_gpu_queueing_delay_s") == (175, 6)
    for table in (allocation_by_gpu_type, running_gpus_summary, what_jobs_wait_for, slowdowns):
        assert table(log).height == 0
        assert table.missing(log)


def test_a28_demand_may_exceed_the_cluster_and_allocation_may_not(tmp_path):
    header = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
    (tmp_path / "j.csv").write_text(header + "a,o,A10,10,1.0,16,0,100,HP\nb,o,A10,10,1.0,1,0,0,HP\n")
    asked = gpu_demand(load("spot_gpu", tmp_path / "j.csv"))
    assert cells(asked, "num_gpus", "gpu_hours", bucket=">8") == (16, pytest.approx(1600 / 3600))
    # Two jobs of 8 GPUs and 100 s on 10 GPUs in 150 s: a demand of 106.7 %, in a replay never more than all.
    jobs = make_jobs([job(0, 0, 100, 8.0, job_id=name) for name in "ab"])
    offered = gpu_demand(jobs)["gpu_hours"].sum() * 3600 / (10 * 150)
    assert offered == pytest.approx(1.0667, abs=1e-4)
    nodes = pl.DataFrame([{"node_id": "n", "num_gpus": 10}], schema=schema.NODES)
    ten = Trace(jobs, meta=TraceMeta(name="ten"), tables={"nodes": nodes})
    schedule = replay(jobs, cluster=Cluster.from_trace(ten), policy="fifo").schedule
    placed = jobs.drop("start_time", "end_time").join(schedule.select("job_id", "start_time", "end_time"), on="job_id")
    played = ten.replace_jobs(schema.sort_jobs(placed.select(list(schema.JOBS))))
    assert running_gpus_summary(played)["peak_allocation"].item() == 0.8


def test_a31_a_phase_is_no_outcome(tmp_path):
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    header += "creation_time,deletion_time,scheduled_time\n"
    pods = ["p1,1,1,1,1000,,LS,Running,0,500,0", "p2,1,1,1,1000,,LS,Pending,10,60,"]
    pods += ["p3,1,1,1,1000,,LS,Failed,5,25,7", "p4,1,1,1,1000,,LS,Running,0,900,100"]
    (tmp_path / "pods.csv").write_text(header + "\n".join(pods) + "\n")
    log = load("openb", tmp_path / "pods.csv")
    row = summary(log).row(0, named=True)
    assert (row["num_never_started"], row["num_right_censored"]) == (1, 1)
    # 500, 18 and, still running, at least 800 s.
    assert cells(
        duration_quantiles(log), "num_jobs", "num_right_censored", "p50_s", "max_s", bucket="all", weight="jobs"
    ) == (*(3, 1, 500, 800),)
    assert cells(queueing_delay_quantiles(log), "num_jobs", "num_never_started", bucket="all") == (3, 1)


def test_a35_a_job_of_no_length_counts_and_has_a_slowdown():
    log = make_jobs([job(0, 0, 0, status="completed"), job(0, 5, 15, status="failed")])
    assert cells(duration_quantiles(log), "num_jobs", "min_s", bucket="all", weight="jobs") == (2, 0)
    assert cells(slowdowns(log), "num_jobs", "mean", "max", bucket="all") == (2, 1.25, 1.5)
    assert cells(outcomes_by_size(log), "completed_share", "completed_gpu_time_share", bucket="all") == (0.5, 0)


def test_b40_running_never_started_and_pending_jobs_did_not_complete():
    rows = [
        job(0, 400, 400, status="running", censoring="right", end_time=None, duration_s=600.0),
        {"submit_time": at(0), "num_gpus": 1.0, "status": "cancelled", "censoring": "never_started"},
        {"submit_time": at(0), "num_gpus": 1.0, "status": "pending", "censoring": "never_started"},
    ]
    log = trace(rows, window=(0, 1000))
    assert cells(outcomes_by_size(log), "num_jobs", "completed_share", "cancelled_share", bucket="all") == (
        *(3, 0, pytest.approx(1 / 3)),
    )
    assert cells(wasted_gpu_time(log), "status", "gpu_hours") == ("cancelled", 0)
    assert cells(duration_quantiles(log), "num_jobs", "num_right_censored", "max_s", bucket="all", weight="jobs") == (
        1,
        1,
        600,
    )
    assert allocation_by_gpu_type(log)["mean_gpus"].item() == pytest.approx(0.6)


def test_b49_loads_are_clipped_to_the_window_and_adjacent_windows_add_up():
    rows = [job(-50, -50, 50, 2.0, vc="v"), job(90, 90, 130, 1.0, vc="v")]
    seconds = [loads_of_vcs(trace(rows, window=ends))["gpu_hours"].item() * 3600 for ends in ((0, 100), (100, 200))]
    assert seconds == pytest.approx([110, 30])
    both = allocation_by_gpu_type(trace(rows, window=(0, 200)))
    assert both["gpu_hours"].item() * 3600 == pytest.approx(140)


def test_b50_a_pause_is_no_gpu_time():
    # 1000 s from start to end, of which the job was suspended for 400.
    log = make_jobs([job(0, 0, 1000, duration_s=600.0, status="completed")])
    assert cells(outcomes_by_size(log), "gpu_hours", bucket="all") == (pytest.approx(600 / 3600),)


def test_b53_a_start_before_its_submission_waited_for_nothing():
    log = make_jobs([job(1000, 990, 1100, flags=["clock_skew"], status="completed")])
    assert cells(slowdowns(log), "mean", "queueing_share_of_jct", bucket="all") == (1, 0)
    assert what_jobs_wait_for(log).height == 0


def test_b54_invalid_times_are_in_no_statistic():
    bad = job(0, 500, 440, flags=["invalid_times"], status="completed") | {"duration_s": None}
    log = make_jobs([bad, job(0, 0, 60, status="completed")])
    assert cells(duration_quantiles(log), "num_jobs", "mean_s", bucket="all", weight="jobs") == (1, 60)
    assert summary(log)["num_unknown_duration"].item() == 1
    assert running_gpus_summary(log)["gpu_hours"].item() == pytest.approx(60 / 3600)
    assert allocation_by_gpu_type(log)["gpu_hours"].item() == pytest.approx(60 / 3600)


def test_b59_the_delay_is_from_the_submission():
    # Submitted at 0, eligible at 600, started at 900, over at 1000.
    log = make_jobs([job(0, 900, 1000, eligible_time=at(600))])
    assert cells(slowdowns(log), "mean", "queueing_share_of_jct", bucket="all") == (10, 0.9)
    assert cells(queueing_delay_quantiles(log), "mean_s", bucket="all") == (900,)
