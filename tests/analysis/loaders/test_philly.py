"""Philly's official files: the cases that its users met."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from analysis.errors import BadFileError, UsageError
from analysis.loaders import load


def job(number, attempts, *, submit="2017-10-09 09:50:00", **more):
    return {"status": "Pass", "vc": "v", "jobid": f"application_1_{number:04d}", "attempts": attempts,
            "submitted_time": submit, "user": "u", **more}  # fmt: skip


def attempt(start, end, **machines):
    detail = [{"ip": ip, "gpus": [f"gpu{i}" for i in gpus]} for ip, gpus in machines.items()]
    return {"start_time": start, "end_time": end, "detail": detail}


@pytest.fixture
def trace_of(tmp_path):
    def make(jobs, machines="", **options):
        (tmp_path / "cluster_job_log").write_text(json.dumps(jobs))
        if machines:
            text = "machineId, number of GPUs, single GPU mem\n" + machines
            (tmp_path / "cluster_machine_list").write_text(text)
        return load("philly", tmp_path, **options)

    return make


def test_a3_pauses_between_attempts_are_no_run_time(trace_of):
    day = "2017-10-09"
    tries = [
        attempt(f"{day} 10:00:00", f"{day} 10:30:00", m1=range(4)),
        attempt(f"{day} 11:00:00", f"{day} 12:15:00", m1=range(4)),
    ]
    trace = trace_of([job(1, tries)])
    row = trace.jobs.row(0, named=True)
    assert (row["queueing_delay_s"], row["duration_s"], row["num_attempts"] - 1) == (600, 6300, 1)
    assert (row["end_time"] - row["start_time"]).total_seconds() == 8100
    assert row["num_gpus"] * row["duration_s"] == 25_200
    assert trace.attempts["attempt"].to_list() == [1, 2]
    assert trace.attempts["nodes"].to_list() == [["m1"], ["m1"]]


def test_a2_a_machine_has_the_larger_of_listed_and_used(trace_of):
    tries = [attempt("2017-10-09 10:00:00", "2017-10-09 10:30:00", m7=range(8))]
    trace = trace_of([job(1, tries)], "m7, 2, 12GB\nm8,8,24GB\n")
    assert trace.jobs["num_gpus"].to_list() == [8]
    assert trace.jobs["flags"].to_list() == [["over_capacity"]]
    assert trace.nodes.select("node_id", "num_gpus", "gpu_type").rows() == [("m7", 8, "12GB"), ("m8", 8, "24GB")]
    assert any(note.startswith("1 machines run jobs on more GPUs") for note in trace.meta.load_report.notes)


def test_a5_three_spellings_of_missing(trace_of):
    tries = [
        [attempt(None, "2017-10-09 05:00:00", m1=[0])],
        [attempt("", "")],
        [attempt("None", "2017-10-09 06:00:00", m1=[0])],
        [],
    ]
    jobs = trace_of([job(i, t, submit="2017-10-09 04:00:00") for i, t in enumerate(tries, 1)]).jobs
    assert jobs["duration_s"].null_count() == 4
    assert jobs["censoring"].to_list() == ["left", "never_started", "left", "never_started"]
    assert jobs["start_time"].null_count() == 4


def test_a_running_job_has_no_duration_unless_the_snapshot_is_said(trace_of):
    tries = [
        attempt("2017-10-09 10:00:00", "2017-10-09 10:10:00", m1=[0]),
        attempt("2017-10-09 11:00:00", "None", m1=[0]),
    ]
    jobs = [job(1, tries), job(2, [], submit="2017-10-09 12:00:00")]
    assert trace_of(jobs).jobs["duration_s"].to_list() == [None, None]
    for said in ("last", "2017-10-09 12:00:00"):
        trace = trace_of(jobs, snapshot=said)
        assert trace.jobs["duration_s"].to_list() == [600 + 3600, None]
        assert trace.jobs["censoring"].to_list() == ["right", "never_started"]
    with pytest.raises(UsageError, match="snapshot is 'soon'"):
        trace_of(jobs, snapshot="soon")


def test_b51_an_attempt_across_the_autumn_clock_change(trace_of):
    tries = [attempt("2017-11-05 00:30:00", "2017-11-05 02:30:00", m1=[0])]
    row = trace_of([job(1, tries, submit="2017-11-05 00:30:00")]).jobs.row(0, named=True)
    assert row["duration_s"] == 3 * 3600
    assert row["submit_time"] == datetime(2017, 11, 5, 7, 30, tzinfo=UTC)


def test_attempts_of_records_that_are_set_aside_go_with_them(trace_of):
    tries = [attempt("2017-10-09 10:00:00", "2017-10-09 10:30:00", m1=[0])]
    trace = trace_of([job(1, tries), job(1, tries), job(2, tries, submit="soon")])
    assert trace.jobs["job_id"].to_list() == ["application_1_0001"]
    assert trace.attempts.height == 1
    assert trace.meta.load_report.rejected_by_reason == {"duplicate_row": 1, "unreadable_submitted_time": 1}


def test_keys_that_nobody_knows_are_kept(trace_of):
    assert "red" in trace_of([job(1, [], colour="red"), job(2, [])]).jobs["extra"].struct.field("other")[0]


@pytest.mark.parametrize(
    ("text", "kind"),
    [('[{"jobid": "a", "attempts": [', "truncated"), ("[1,,2]", "not_json"), ('{"jobid": 1}', "wrong_columns")],
)
def test_broken_json_is_named(tmp_path, text, kind):
    path = tmp_path / "cluster_job_log"
    path.write_text(text)
    with pytest.raises(BadFileError) as caught:
        load("philly", path)
    assert caught.value.kind == kind
