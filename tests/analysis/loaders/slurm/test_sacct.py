"""Exports of sacct to traces: the cases of the pitfalls' part B by name, the format's fixture, and laws."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import BadFileError, NoTimelineError, UnknownNameError, UsageError
from analysis.loaders import load

FIXTURE = """\
JobIDRaw|User|Account|Partition|Submit|Start|End|Elapsed|Timelimit|State|AllocTRES|ReqTRES|NNodes|NodeList|ExitCode
7001|alice|ml|gpu|2024-03-01T08:00:00|2024-03-01T08:05:00|2024-03-02T09:05:00|1-01:00:00|2-00:00:00|COMPLETED|billing=32,cpu=32,gres/gpu:a100=4,gres/gpu=4,mem=256G,node=1|billing=32,cpu=32,gres/gpu=4,mem=256G,node=1|1|gpu01|0:0
7001.batch||ml||2024-03-01T08:05:00|2024-03-01T08:05:00|2024-03-02T09:05:00|1-01:00:00||COMPLETED|cpu=32,gres/gpu:a100=4,gres/gpu=4,mem=256G,node=1||1|gpu01|0:0
7002|bob|vision|gpu|2024-03-01T08:10:00|None|2024-03-01T08:20:00|00:00:00|UNLIMITED|CANCELLED by 1002||billing=16,cpu=16,gres/gpu=16,mem=1T,node=2|2|None assigned|0:0
7003|bob|vision|gpu,long|2024-03-01T09:00:00|2024-03-01T09:00:30|2024-03-01T09:59:30|00:59:00|Partition_Limit|OUT_OF_MEMORY|billing=8,cpu=8,gres/gpu:h100=8,mem=524288M,node=2|billing=8,cpu=8,gres/gpu:h100=8,mem=524288M,node=2|2|gpu[02-03]|0:125
7004|carol|ml|cpu|2024-03-01T10:00:00|2024-03-01T10:00:01|Unknown|00:10:00|01:00:00|RUNNING|billing=4,cpu=4,mem=8G,node=1|billing=4,cpu=4,mem=8G,node=1|1|cpu5|0:0
7005|carol|ml|gpu|2024-03-01T11:00:00|2024-03-01T11:00:10|2024-03-01T11:30:10|00:30:00|01:00:00|PREEMPTED|billing=1,cpu=4,gres/gpu:1g.10gb=1,mem=8G,node=1|billing=1,cpu=4,gres/gpu:1g.10gb=1,mem=8G,node=1|1|gpu04|0:15
"""  # noqa: E501 - sacct's own lines


@pytest.fixture
def sacct(tmp_path):
    """Load an export given as header and lines; times are seconds since 1970 unless written out."""

    def make(header, *lines, **options):
        path = tmp_path / "sacct.txt"
        path.write_text("".join(f"{line}\n" for line in (header, *lines)))
        return load("slurm", path, **options)

    return make


def one(trace):
    assert trace.jobs.height == 1
    return trace.jobs.row(0, named=True)


def by_id(trace, *columns):
    return {
        row[0]: row[1:] if len(columns) > 1 else row[1] for row in trace.jobs.select("job_id", *columns).iter_rows()
    }


def t(seconds):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def test_the_fixture_of_the_format_gives_what_it_states(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_text(FIXTURE)
    trace = load("auto", path, timezone="Europe/Oslo")
    assert by_id(trace, "num_gpus", "gpu_type", "duration_s") == {
        "7001": (4, "a100", 90_000),
        "7002": (16, None, None),
        "7003": (8, "h100", 3540),
        "7004": (0, None, 600),
        "7005": (1, "1g.10gb", 1800),
    }
    jobs = trace.jobs
    assert jobs["status"].to_list() == ["completed", "cancelled", "failed", "running", "preempted"]
    assert jobs["censoring"].to_list() == ["none", "never_started", "none", "right", "none"]
    assert jobs["time_limit_s"].to_list() == [172_800, None, None, 3600, 3600]
    assert jobs["mem_gib"].to_list() == [256, 1024, 512, 8, 8]
    assert jobs["user"].to_list() == ["alice", "bob", "bob", "carol", "carol"]
    assert jobs["submit_time"][0] == datetime(2024, 3, 1, 7, tzinfo=UTC)
    assert trace.attempts.select("job_id", "nodes").rows()[1] == ("7003", ["gpu02", "gpu03"])
    assert jobs["extra"].struct["Partition"].to_list()[2] == "gpu,long"
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used, report.rows_merged, report.num_jobs) == (6, 6, 1, 5)
    assert (trace.meta.time_zone, trace.meta.time_zone_certainty) == ("Europe/Oslo", "given")


def test_a_zone_that_is_not_given_is_said_to_be_assumed(sacct):
    trace = sacct("JobID|Submit|State", "1|2024-03-01T08:00:00|PENDING")
    assert trace.meta.time_zone_certainty == "assumed"
    assert any("read in UTC; that is an assumption" in note for note in trace.meta.load_report.notes)
    trace = sacct("JobID|Submit|State", "1|1709280000|PENDING")
    assert (one(trace)["submit_time"], trace.meta.time_zone_certainty) == (t(1_709_280_000), "declared")


def test_b39_partition_limit_is_the_partitions_if_it_is_known(sacct):
    lines = ["1|UNLIMITED|gpu", "2|Partition_Limit|gpu", "3|Partition_Limit|other", "4|01:00:00|gpu"]
    trace = sacct("JobID|Timelimit|Partition", *lines, partition_limits="gpu=2-00:00:00")
    assert by_id(trace, "time_limit_s") == {"1": None, "2": 172_800, "3": None, "4": 3600}
    with pytest.raises(UsageError, match=r"found 'gpu'; expected 'partition=limit'"):
        sacct("JobID|Timelimit|Partition", *lines, partition_limits="gpu")


def test_b40_running_never_started_pending(sacct):
    lines = ["1|RUNNING|400|Unknown|0:0|", "2|CANCELLED|None|700|0:0|00:00:00", "3|PENDING|Unknown|Unknown|0:0|"]
    trace = sacct("JobID|State|Start|End|ExitCode|Elapsed", *lines, snapshot="1970-01-01T00:16:40Z")
    assert by_id(trace, "status", "censoring", "duration_s") == {
        "1": ("running", "right", 600),
        "2": ("cancelled", "never_started", None),
        "3": ("pending", "never_started", None),
    }
    # Without a word about the query, the latest time in the log is what it cannot be earlier than.
    trace = sacct("JobID|State|Start|End|ExitCode|Elapsed", *lines)
    assert by_id(trace, "duration_s")["1"] == 300
    assert any("ran at least until the latest time of the log" in note for note in trace.meta.load_report.notes)


def test_b41_types_of_gpus(sacct):
    tres = [
        "gres/gpu:a100=4,gres/gpu=4",
        "gres/gpu:a100=2",
        "gres/gpu:a100=1,gres/gpu:v100=1,gres/gpu=2",
        "gres/gpu=2",
        "cpu=8,mem=60G,node=1",
    ]
    trace = sacct("JobID|State|AllocTRES", *(f"{i}|COMPLETED|{text}" for i, text in enumerate(tres)))
    assert by_id(trace, "num_gpus", "gpu_type") == {
        "0": (4, "a100"),
        "1": (2, "a100"),
        "2": (2, "mixed"),
        "3": (2, None),
        "4": (0, None),
    }
    assert trace.jobs["extra"].struct["gpu_types"].to_list()[2] == "a100,v100"
    assert by_id(trace, "mem_gib")["4"] == 60


def test_b43_old_gres_fields(sacct):
    lines = [
        "1|COMPLETED|gpu:v100:4|gpu:v100:2|2",
        "2|COMPLETED||gpu:2|3",
        "3|COMPLETED|16?||1",
        "4|COMPLETED|(null)||1",
    ]
    trace = sacct("JobID|State|AllocGRES|ReqGRES|NNodes", *lines)
    # An allocation is a total; a request is per node.
    assert by_id(trace, "num_gpus") == {"1": 4, "2": 6, "3": None, "4": None}
    assert "unknown_gpus" in by_id(trace, "flags")["3"]
    assert by_id(trace, "allowed_gpu_types")["1"] == ["v100"]


def test_b44_allocated_before_requested_and_never_times_nodes(sacct):
    trace = sacct("JobID|ReqGRES|ReqTRES|AllocTRES|NNodes", "1|N/A||cpu=8,node=2,gres/gpu=4|2")
    assert one(trace)["num_gpus"] == 4


def test_b44_a_cluster_that_does_not_record_gpus_has_unknown_not_none(sacct):
    trace = sacct("JobID|State|AllocTRES", "1|COMPLETED|cpu=8,node=2", "2|COMPLETED|cpu=1")
    assert trace.jobs["num_gpus"].to_list() == [None, None]
    assert trace.meta.load_report.flagged["unknown_gpus"] == 2
    assert any("No line speaks of GPUs" in note for note in trace.meta.load_report.notes)


def test_b45_array_brackets(sacct):
    trace = sacct("JobID|JobIDRaw|State|Submit", "77_[3-10%2]|77|PENDING|100")
    assert trace.jobs["job_id"].to_list() == [f"77_{i}" for i in (10, 3, 4, 5, 6, 7, 8, 9)]
    assert set(trace.jobs["status"]) == {"pending"}
    assert trace.jobs["extra"].struct["JobID"].unique().to_list() == ["77_[3-10%2]"]
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used, report.rows_expanded, report.num_jobs) == (1, 1, 7, 8)
    assert set(sacct("JobID|JobIDRaw|State", "77_[1,4-6]|77|PENDING").jobs["job_id"]) == {
        "77_1",
        "77_4",
        "77_5",
        "77_6",
    }
    task = one(sacct("JobID|JobIDRaw|State", "77_2|81|COMPLETED"))
    assert (task["job_id"], task["extra"]["JobIDRaw"]) == ("77_2", "81")
    plain = one(sacct("JobID|JobIDRaw|State", "77|77|COMPLETED"))
    assert (plain["job_id"], plain["extra"]["JobIDRaw"]) == ("77", "77")


def test_b45_a_task_with_a_line_of_its_own_is_not_made_twice(sacct):
    # An older export saw tasks 1-3 waiting; since then task 1 ran, and 2-3 wait.
    lines = ["7_[1-3]|PENDING|100|Unknown|Unknown", "7_1|COMPLETED|100|150|160", "7_[2-3]|PENDING|100|Unknown|Unknown"]
    trace = sacct("JobID|State|Submit|Start|End", *lines)
    assert by_id(trace, "status") == {"7_1": "completed", "7_2": "pending", "7_3": "pending"}
    report = trace.meta.load_report
    assert report.rows_in == report.rows_used + report.rows_set_aside == 3


def test_b45_a_list_of_tasks_that_slurm_cut_is_said(sacct):
    trace = sacct("JobID|State", "7_[1,3,5,...]|PENDING")
    assert set(trace.jobs["job_id"]) == {"7_1", "7_3", "7_5"}
    assert any("cut short" in note for note in trace.meta.load_report.notes)


def test_b46_steps_and_het_components_are_one_job(sacct):
    lines = [
        "88|COMPLETED|0|3600|01:00:00|gres/gpu=2|",
        "88.batch|COMPLETED|0|3600|01:00:00||3G",
        "88.extern|COMPLETED|0|3600|01:00:00||0",
        "88.interactive|COMPLETED|0|3600|01:00:00||",
        "88.0|COMPLETED|0|3600|01:00:00||5G",
        "90+0|COMPLETED|0|60|00:01:00|gres/gpu=2|",
        "90+0.batch|COMPLETED|0|60|00:01:00||1G",
        "90+1|COMPLETED|0|60|00:01:00|gres/gpu=4|",
    ]
    trace = sacct("JobID|State|Submit|End|Elapsed|AllocTRES|MaxRSS", *lines)
    assert by_id(trace, "num_gpus", "duration_s") == {"88": (2, 3600), "90": (6, 60)}
    assert trace.jobs.select((pl.col("num_gpus") * pl.col("duration_s")).first() / 3600).item() == 2  # GPU-hours
    assert dict(trace.usage.select("job_id", "mem_gib_max").iter_rows()) == {"88": 5, "90": 1}
    assert trace.jobs["extra"].struct["num_steps"].to_list() == [4, 1]
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_merged, report.num_jobs) == (8, 6, 2)


def test_memory_of_a_step_that_ended_before_it_was_sampled_is_not_known(sacct):
    lines = [
        "1|COMPLETED|",
        "1.batch|COMPLETED|0",
        "2|COMPLETED|",
        "2.0|COMPLETED|0K",
        "3|COMPLETED|",
        "3.0|COMPLETED|1K",
    ]
    trace = sacct("JobID|State|MaxRSS", *lines)
    assert dict(trace.usage.select("job_id", "mem_gib_max").iter_rows()) == {"3": 2**-20}


def test_b46_a_step_without_its_job_is_set_aside(sacct):
    trace = sacct("JobID|State", "1|COMPLETED", "2.batch|COMPLETED", "1.0|COMPLETED")
    assert trace.rejects.select("line", "reason", "raw").rows() == [(3, "step_without_job", "2.batch|COMPLETED")]
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used, report.rows_set_aside) == (3, 2, 1)


def test_b46_a_het_job_fails_as_its_first_part_that_fails_and_runs_again_as_a_whole(sacct):
    lines = [
        "90+0|NODE_FAIL|100|110|120|00:00:10|gres/gpu:a100=1",
        "90+1|CANCELLED|100|110|121|00:00:11|gres/gpu:v100=2",
        "90+0|COMPLETED|200|210|220|00:00:10|gres/gpu:a100=1",
        "90+1|FAILED|200|210|225|00:00:15|gres/gpu:v100=2",
    ]
    trace = sacct("JobID|State|Submit|Start|End|Elapsed|AllocTRES", *lines)
    job = one(trace)
    assert (job["num_gpus"], job["gpu_type"], job["status"], job["num_attempts"]) == (3, "mixed", "failed", 2)
    assert (job["submit_time"], job["start_time"], job["end_time"], job["duration_s"]) == (t(100), t(110), t(225), 26)
    assert trace.attempts["end_time"].to_list() == [t(121), t(225)]


def test_b47_a_requeue_is_one_job_with_its_attempts(sacct):
    header = "JobID|State|Elapsed|Submit|Start|End"
    lines = [
        "231|REQUEUED|00:40:00|50|150|2500",
        "231|NODE_FAIL|00:10:00|2500|3000|3600",
        "231|COMPLETED|01:00:00|3600|4000|7600",
    ]
    trace = sacct(header, *lines)
    job = one(trace)
    assert (job["num_attempts"], job["status"], job["duration_s"]) == (3, "completed", 6600)
    last = trace.attempts.filter(pl.col("attempt") == 3).select(s=pl.col("end_time") - pl.col("start_time")).item()
    assert last == timedelta(seconds=3600)
    assert job["duration_s"] - last.total_seconds() == 3000  # wasted
    assert (job["queueing_delay_s"], job["end_time"]) == (100, t(7600))
    assert sacct(header, *reversed(lines)).jobs.equals(trace.jobs)


def test_b47_without_times_the_files_order_is_the_order_of_attempts(sacct):
    trace = sacct("JobID|State|Elapsed", "231|REQUEUED|00:40:00", "231|NODE_FAIL|00:10:00", "231|COMPLETED|01:00:00")
    job = one(trace)
    assert (job["num_attempts"], job["status"], job["duration_s"]) == (3, "completed", 6600)


def test_b47_without_d_the_count_of_restarts_is_kept_and_what_is_missing_is_said(sacct):
    trace = sacct(
        "JobID|State|Start|End|Elapsed|Restarts", "1|COMPLETED|100|200|00:01:40|2", "2|COMPLETED|1|2|00:00:01|0"
    )
    assert by_id(trace, "num_attempts") == {"1": 3, "2": 1}
    assert any("1 jobs were restarted" in note and "-D" in note for note in trace.meta.load_report.notes)


def test_b47_an_id_that_another_user_has_is_another_job(sacct):
    trace = sacct("JobID|User|State|Submit|Elapsed", "5|ann|COMPLETED|86400|00:00:01", "5|bob|FAILED|172800|00:00:02")
    assert by_id(trace, "user", "duration_s") == {
        "5/1970-01-02T00:00:00Z": ("ann", 1),
        "5/1970-01-03T00:00:00Z": ("bob", 2),
    }


def test_b49_a_job_in_two_exports_is_counted_once_and_usage_is_clipped_to_the_window(tmp_path):
    from analysis.characterize.running import gpu_intervals

    header = "JobID|State|Submit|Start|End|Elapsed|AllocTRES\n"
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    a = "A1|COMPLETED|1|950|1050|00:01:40|gres/gpu=2\n".replace("A1", "1")
    first.write_text(header + a + "2|RUNNING|1|1090|Unknown|00:00:10|gres/gpu=1\n")
    second.write_text(header + "2|COMPLETED|1|1090|1130|00:00:40|gres/gpu=1\n")
    trace = load("slurm", [first, second], window="1970-01-01T00:16:40Z,1970-01-01T00:18:20Z")
    assert by_id(trace, "status", "duration_s", "flags") == {
        "1": ("completed", 100, ["carry_in"]),
        "2": ("completed", 40, []),
    }
    assert trace.rejects.select("file", "line", "reason").rows() == [("first.txt", 3, "older_record")]
    assert trace.meta.window == ("1970-01-01T00:16:40+00:00", "1970-01-01T00:18:20+00:00")

    def gpu_seconds(start, end):
        found = gpu_intervals(trace.jobs, attempts=trace.attempts, window=(t(start), t(end)))
        return found.select((pl.col("milli_gpus") * (pl.col("end_us") - pl.col("begin_us"))).sum()).item() / 1e9

    assert gpu_seconds(1000, 1100) == 110
    assert gpu_seconds(1100, 1200) == 30
    started = trace.jobs.filter(pl.col("start_time").is_between(t(1000), t(1100), closed="left"))
    assert started.height == 1


def test_b50_run_is_elapsed_without_the_pause(sacct):
    trace = sacct(
        "JobID|State|Start|End|Elapsed|Suspended|AllocTRES", "1|COMPLETED|100|1100|00:10:00|00:06:40|gres/gpu=1"
    )
    job = one(trace)
    assert (job["duration_s"], (job["end_time"] - job["start_time"]).total_seconds()) == (600, 1000)
    # Without Elapsed the pause is taken off the span.
    assert one(sacct("JobID|State|Start|End|Suspended", "1|COMPLETED|100|1100|00:06:40"))["duration_s"] == 600


def test_b51_the_hour_that_comes_twice(sacct):
    header, oslo = "JobID|State|Start|End|Elapsed", "Europe/Oslo"
    trace = sacct(header, "1|COMPLETED|2025-10-26T01:30:00|2025-10-26T03:30:00|03:00:00", timezone=oslo)
    assert one(trace)["duration_s"] == 10_800
    assert "invalid_times" not in one(trace)["flags"]
    trace = sacct("JobID|State|Start|End", "1|COMPLETED|2025-10-26T01:30:00|2025-10-26T03:30:00", timezone=oslo)
    assert one(trace)["duration_s"] == 10_800


def test_b51_elapsed_tells_which_of_the_two_hours_was_meant(sacct):
    lines = [
        "1|COMPLETED|2025-10-26T01:30:00|2025-10-26T02:30:00|01:00:00",  # the first 02:30
        "2|COMPLETED|2025-10-26T01:30:00|2025-10-26T02:30:00|02:00:00",  # the second
        "3|COMPLETED|2025-10-26T02:30:00|2025-10-26T03:30:00|01:00:00",  # from the second
        "4|COMPLETED|2025-10-26T02:50:00|2025-10-26T02:10:00|00:20:00",  # from the first into the second
    ]
    trace = sacct("JobID|State|Start|End|Elapsed", *lines, timezone="Europe/Oslo")
    span = trace.jobs.select((pl.col("end_time") - pl.col("start_time")).dt.total_seconds()).to_series()
    assert span.to_list() == trace.jobs["duration_s"].to_list() == [3600, 7200, 3600, 1200]
    assert trace.meta.load_report.flagged == {"unknown_gpus": 4}
    assert any("settled by Elapsed" in note for note in trace.meta.load_report.notes)


def test_b53_start_zero_and_start_before_submit(sacct):
    trace = sacct("JobID|State|Submit|Start|End|Elapsed", "1|CANCELLED|1000|0|1010|", "2|COMPLETED|1000|990|1100|")
    assert by_id(trace, "censoring", "start_time")["1"] == ("never_started", None)
    job = trace.jobs.row(by_predicate=pl.col("job_id") == "2", named=True)
    assert (job["queueing_delay_s"], job["duration_s"], job["submit_time"] - job["start_time"]) == (
        0,
        110,
        timedelta(seconds=10),
    )
    assert "clock_skew" in job["flags"]
    # Slurm's zero also comes as the year 1970 in the site's zone.
    trace = sacct(
        "JobID|State|Submit|Start", "1|CANCELLED|2024-03-01T08:00:00|1970-01-01T01:00:00", timezone="Europe/Oslo"
    )
    assert one(trace)["censoring"] == "never_started"


def test_b54_negative_times_are_invalid_and_never_turned_round(sacct):
    trace = sacct(
        "JobID|State|Start|End|Elapsed",
        "1|COMPLETED|500|440|",
        "2|COMPLETED|500|600|-0:00:16",
        "3|COMPLETED|500|600|00:01:40",
    )
    assert by_id(trace, "duration_s") == {"1": None, "2": None, "3": 100}
    assert trace.meta.load_report.flagged["invalid_times"] == 2


def test_b55_a_name_with_the_delimiter_is_recovered(sacct):
    trace = sacct("JobID|JobName|State|Elapsed|User", "55|train|v2|COMPLETED|00:10:00|u1", "56|x|COMPLETED")
    job = one(trace)
    assert (job["job_name"], job["duration_s"]) == ("train|v2", 600)
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used, report.rows_set_aside) == (2, 1, 1)


def test_b56_lists_and_stars_of_partitions(sacct):
    trace = sacct("JobID|State|Partition", "1|PENDING|a100,v100", "2|PENDING|gpu*")
    assert trace.jobs.height == 2
    assert by_id(trace, "vc") == {"1": "a100", "2": "gpu"}
    assert trace.jobs["extra"].struct["Partition"].to_list() == ["a100,v100", "gpu*"]


def test_b57_memory_per_processor_and_per_node(sacct):
    lines = ["1|4000Mc|8|2", "2|16Gn|8|2", "3|0n|8|2", "4|2097M|8|2"]
    trace = sacct("JobID|ReqMem|NCPUS|NNodes", *lines)
    assert by_id(trace, "mem_gib") == {"1": 32_000 / 1024, "2": 32, "3": None, "4": 2097 / 1024}


def test_b58_states(sacct):
    states = ["CANCELLED by 1234", "OUT_OF_ME+", "COMPLETED ", "NODE_FAIL", "COMPL+", "C+"]
    trace = sacct("JobID|State|Elapsed", *(f"{i}|{state}|00:00:01" for i, state in enumerate(states)))
    assert by_id(trace, "status_raw", "status") == {
        "0": ("CANCELLED", "cancelled"),
        "1": ("OUT_OF_MEMORY", "failed"),
        "2": ("COMPLETED", "completed"),
        "3": ("NODE_FAIL", "node_fail"),
        "4": ("COMPLETED", "completed"),
        "5": ("C", "unknown"),
    }
    assert trace.meta.load_report.unknown_statuses == {"C": 1}


def test_b59_wait_from_submit_or_from_eligible(sacct):
    job = one(sacct("JobID|State|Submit|Eligible|Start|End", "1|COMPLETED|100|700|1000|1100"))
    assert (job["queueing_delay_s"], job["duration_s"]) == (900, 100)
    assert (job["start_time"] - job["eligible_time"]).total_seconds() == 300


def test_b60_utilization_is_of_all_gpus_and_missing_is_not_zero(sacct):
    lines = [
        "1|COMPLETED|gres/gpu=4|",
        "1.batch|COMPLETED||gres/gpuutil=396,gres/gpumem=2G,cpu=00:01:00",
        "2|COMPLETED|gres/gpu=2|",
        "2.batch|COMPLETED||cpu=00:01:00",
        "3|COMPLETED|gres/gpu=1|",
        "3.batch|COMPLETED||gres/gpuutil=0",
        "4|COMPLETED|cpu=1|",
        "4.batch|COMPLETED||cpu=00:01:00",
    ]
    usage = sacct("JobID|State|AllocTRES|TRESUsageInAve", *lines).usage
    assert usage.select("job_id", "gpu_utilization_mean").rows() == [("1", 0.99), ("3", 0.0)]


def test_b62_wrong_bytes_lose_no_row(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_bytes(b"\xef\xbb\xbfJobID|User|State\n1|a|COMPLETED\n2|b\xbf|COMPLETED\n")
    trace = load("auto", path)
    assert trace.jobs["user"].to_list() == ["a", "b�"]
    assert trace.meta.load_report.flagged["undecodable_text"] == 1


def test_b63_unknown_and_reordered_columns_and_no_submit(sacct):
    trace = sacct("State,Elapsed,JobID,Foo", "COMPLETED,00:01:00,9,bar")
    job = one(trace)
    assert (job["job_id"], job["duration_s"], job["extra"]["Foo"]) == ("9", 60, "bar")
    assert job["submit_time"] is None
    from analysis.replay import Cluster, replay

    with pytest.raises(NoTimelineError, match="1 of 1 jobs have no submit_time"):
        replay(trace.jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=1))


def test_b63_a_window_without_end_reaches_to_the_last_record(sacct):
    trace = sacct("JobID|State|Submit|Start|End", "1|COMPLETED|100|110|200", window="1970-01-01T00:00:50Z,")
    assert trace.meta.window == ("1970-01-01T00:00:50+00:00", "1970-01-01T00:03:20+00:00")
    with pytest.raises(UsageError, match="window: found 'soon'"):
        sacct("JobID|State", "1|COMPLETED", window="soon")


def test_relative_times_are_refused_with_what_to_do(sacct):
    for text in ("Ystday 10:00", "10:00:12", "Tue 09:00", "3 Mar 08:00"):
        with pytest.raises(BadFileError, match=r"SLURM_TIME_FORMAT=%s") as caught:
            sacct("JobID|State|Submit", f"1|COMPLETED|{text}")
        assert caught.value.kind == "relative_times"


def test_times_too_long_for_the_column_are_unknown_and_other_text_is_set_aside(sacct):
    lines = [
        "1|COMPLETED|100|110|#####|00:00:05",
        "2|COMPLETED|100|junk|120|00:00:05",
        "3|COMPLETED|100|110|115|INVALID",
    ]
    trace = sacct("JobID|State|Submit|Start|End|Elapsed", *lines)
    assert by_id(trace, "duration_s", "censoring") == {"1": (5, "none"), "3": (5, "none")}
    assert trace.rejects.select("line", "reason", "raw").rows() == [(3, "unreadable_Start", lines[1])]
    assert any("1 times are '#####'" in note for note in trace.meta.load_report.notes)


def test_times_of_no_century_are_set_aside(sacct):
    lines = ["1|PENDING|99999999999", "2|PENDING|9223372036854775807", "3|PENDING|3024-03-01T08:00:00", "4|PENDING|100"]
    trace = sacct("JobID|State|Submit", *lines)
    assert trace.jobs["job_id"].to_list() == ["4"]
    assert trace.meta.load_report.rejected_by_reason == {"unreadable_Submit": 3}


def test_times_with_offset_and_of_an_own_form(sacct):
    trace = sacct("JobID|State|Submit", "1|PENDING|2024-03-01T08:00:00+01:00", "2|PENDING|2024-03-01T07:00:00Z")
    assert trace.jobs["submit_time"].unique().to_list() == [datetime(2024, 3, 1, 7, tzinfo=UTC)]
    assert trace.meta.time_zone_certainty == "declared"
    trace = sacct(
        "JobID|State|Submit", "1|PENDING|01.03.2024 08:00", time_format="%d.%m.%Y %H:%M", timezone="Europe/Oslo"
    )
    assert one(trace)["submit_time"] == datetime(2024, 3, 1, 7, tzinfo=UTC)


def test_an_old_version_that_writes_the_cancellation_as_start(sacct):
    trace = sacct("JobID|State|Submit|Start|End|Elapsed|NodeList", "1|CANCELLED|100|200|200|00:00:00|None assigned")
    job = one(trace)
    assert (job["censoring"], job["start_time"], job["num_attempts"]) == ("never_started", None, 0)


def test_several_clusters_in_one_export(sacct):
    trace = sacct("Cluster|JobID|State|Submit", "a|1|FAILED|100", "b|1|COMPLETED|100", "b|1.0|COMPLETED|100")
    assert by_id(trace, "cluster", "status") == {"a/1": ("a", "failed"), "b/1": ("b", "completed")}


def test_exports_of_different_fields_go_together(tmp_path):
    (tmp_path / "a.txt").write_text("JobID|State|QOS\n1|COMPLETED|low\n")
    (tmp_path / "b.txt").write_text("JobID|State|Flags|Submit\n2|COMPLETED|x|100\n")
    trace = load("slurm", tmp_path)
    extra = trace.jobs.sort("job_id")["extra"].struct
    assert (extra["QOS"].to_list(), extra["Flags"].to_list()) == (["low", None], [None, "x"])


def test_nodes_beside_the_export_and_alone(tmp_path):
    (tmp_path / "sacct.txt").write_text("JobID|State|Partition|Timelimit\n1|COMPLETED|gpu|Partition_Limit\n")
    (tmp_path / "nodes.txt").write_text(
        "NodeName=n1 CPUTot=4 RealMemory=1024 Gres=gpu:a100:8 State=IDLE Partitions=gpu\n"
    )
    (tmp_path / "parts.txt").write_text("PartitionName=gpu MaxTime=1-00:00:00 State=UP\n")
    trace = load("auto", tmp_path)
    assert trace.nodes.select("node_id", "gpu_type", "num_gpus", "vc").rows() == [("n1", "a100", 8, "gpu")]
    assert one(trace)["time_limit_s"] == 86_400
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used) == (3, 3)
    by_option = load("slurm", tmp_path / "sacct.txt", nodes=tmp_path / "nodes.txt")
    assert by_option.nodes.equals(trace.nodes)
    alone = load("auto", tmp_path / "nodes.txt")
    assert (alone.jobs.height, alone.nodes.height) == (0, 1)


def test_a_header_only_is_an_empty_trace_and_other_files_say_what_is_wrong(tmp_path, sacct):
    assert sacct("JobID|State|Submit|AllocTRES").jobs.height == 0
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(BadFileError, match="no header of sacct"):
        load("slurm", other)
    with pytest.raises(UnknownNameError, match="no option of the loader 'slurm' is named 'field'"):
        load("slurm", other, field="JobID")


@pytest.mark.parametrize("compress", ["gzip", "zstd"])
def test_compressed_exports(tmp_path, compress):
    import gzip

    import pyarrow as pa

    path = tmp_path / "sacct.txt"
    data = FIXTURE.encode()
    path.write_bytes(gzip.compress(data) if compress == "gzip" else pa.compress(data, codec="zstd", asbytes=True))
    assert load("auto", path).jobs.height == 5


job_rows = st.lists(
    st.tuples(
        st.integers(1, 6),  # id: repeats are requeues
        st.sampled_from(["COMPLETED", "FAILED", "CANCELLED by 7", "RUNNING", "PENDING", "REQUEUED", "TIMEOUT", "ODD"]),
        st.integers(0, 5000),
        st.one_of(st.none(), st.integers(0, 5000)),
        st.one_of(st.none(), st.integers(0, 5000)),
        st.sampled_from(["", "gres/gpu=1", "gres/gpu:a100=2,gres/gpu=2", "cpu=1"]),
        st.sampled_from(["", ".batch", ".0", "_[1-4%2]", "_2", "+0", "+1"]),
    ),
    max_size=15,
)


def write_rows(path, rows):
    lines = ["JobID|State|Submit|Start|End|AllocTRES"]
    for number, state, submit, start, end, tres, suffix in rows:
        times = [10**6 + submit, *("Unknown" if x is None else 10**6 + submit + x for x in (start, end))]
        lines.append("|".join(map(str, (f"{number}{suffix}", state, *times, tres))))
    path.write_text("\n".join(lines) + "\n")


@given(rows=job_rows, data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_log_adds_up_and_its_lines_may_come_in_any_order(tmp_path_factory, rows, data):
    folder = tmp_path_factory.mktemp("any")
    write_rows(folder / "a.txt", rows)
    write_rows(folder / "b.txt", data.draw(st.permutations(rows)))
    one_, two = load("slurm", folder / "a.txt"), load("slurm", folder / "b.txt")
    for trace in (one_, two):
        report = trace.meta.load_report
        assert report.rows_in == len(rows) == report.rows_used + report.rows_set_aside
        assert report.rows_set_aside == trace.rejects.height
    assert one_.jobs["job_id"].to_list() == two.jobs["job_id"].to_list()
    assert one_.jobs["duration_s"].to_list() == two.jobs["duration_s"].to_list()


def test_runs_of_a_cluster_that_records_no_gpus_have_an_unknown_number(tmp_path):
    # Found by the law test: the jobs' GPUs were null, their attempts' 0.
    path = tmp_path / "sacct.txt"
    path.write_text(
        "JobID|State|Submit|Start|End|AllocTRES\n"
        "1|COMPLETED|2024-03-01T08:00:00|2024-03-01T08:05:00|2024-03-01T09:05:00|cpu=4,mem=8G,node=1\n"
    )
    trace = load("slurm", path, timezone="UTC")
    assert trace.jobs["num_gpus"].to_list() == [None]
    assert trace.attempts["gpus"].to_list() == [None]
