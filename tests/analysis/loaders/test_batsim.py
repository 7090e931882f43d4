"""Batsim workloads: the format's fixture, profiles worked by hand, and what is refused."""

from __future__ import annotations

import json

import pytest

from analysis.errors import BadFileError
from analysis.loaders import load
from analysis.loaders.batsim_profiles import Profiles


@pytest.fixture
def write(tmp_path):
    def put(jobs, profiles, nb_res=4):
        path = tmp_path / "workload.json"
        path.write_text(json.dumps({"nb_res": nb_res, "jobs": jobs, "profiles": profiles}), "utf-8")
        return path

    return put


DAY = {"d60": {"type": "delay", "delay": 60}, "bad": {"type": "DelayProfile", "delay": 5, "ret": 3}}


def job(**changes):
    return {"id": "a", "subtime": 0, "res": 1, "profile": "d60"} | changes


def test_the_fixture_of_the_format(write):
    jobs = [
        {"id": "j1", "subtime": 0, "res": 8, "profile": "d3600", "walltime": 7200},
        {"id": 2, "subtime": 10.5, "res": 1, "profile": "d60_fail"},
        {"id": "w0!3", "subtime": 20, "res": 4, "profile": "twice", "walltime": 500, "extra_data": '{"vc": "a"}'},
    ]
    profiles = {
        "d3600": {"type": "DelayProfile", "delay": 3600},
        "d60_fail": {"type": "delay", "delay": 60, "ret": 1},
        "twice": {"type": "SequentialCompositionProfile", "repeat": 2, "seq": ["d60_fail", "d60_fail"]},
    }
    trace = load("auto", write(jobs, profiles, nb_res=16))
    found = trace.jobs
    assert found["job_id"].to_list() == ["j1", "2", "w0!3"]
    assert found["num_gpus"].to_list() == [8, 1, 4]
    assert found["submit_time"].dt.epoch("ms").to_list() == [0, 10_500, 20_000]
    assert found["time_limit_s"].to_list() == [7200, None, 500]
    # Batsim (jobs_execution.cpp) ends a sequence at its first failing part.
    assert found["duration_s"].to_list() == [3600, 60, 60]
    assert found["status"].to_list() == ["completed", "failed", "failed"]
    assert found["vc"].to_list() == [None, None, "a"]
    assert trace.nodes.height == trace.nodes["num_gpus"].sum() == 16


def test_resources_may_be_cpus(write):
    trace = load("batsim", write([job(res=3)], DAY), resources_as_gpus=False)
    assert trace.jobs.select("num_gpus", "num_cpus").row(0) == (0, 3)
    assert trace.nodes["num_gpus"].sum() == 0


@pytest.mark.parametrize(
    ("profile", "duration", "fails"),
    [
        ({"type": "composed", "seq": ["d60", "d60"]}, 120, False),
        ({"type": "composed", "seq": ["d60", "bad", "d60"], "repeat": 4}, 65, True),
        ({"type": "composed", "seq": ["d60"], "repeat": 3, "ret": 2}, 180, True),
        ({"type": "composed", "seq": ["d60", "work"]}, None, False),
        ({"type": "composed", "seq": ["bad"], "repeat": 0}, 0, False),
        ({"type": "ParallelTaskProfile", "cpu": [1e9], "ret": 1}, None, True),
    ],
)
def test_lengths_of_profiles(profile, duration, fails):
    found = Profiles(DAY | {"work": {"type": "msg_par_hg", "cpu": 1, "com": 1}, "p": profile}).length("p")
    assert (found.duration_s, found.fails) == (duration, fails)


@pytest.mark.parametrize(
    "profile",
    [
        {"type": "delay", "delay": -1},
        {"type": "delay", "delay": "long"},
        {"type": "composed", "seq": ["p"]},
        {"type": "composed", "seq": ["d60"], "repeat": 1.5},
        {"type": "composed", "seq": ["nowhere"]},
        {"delay": 5},
        None,
    ],
)
def test_profiles_that_make_no_sense_set_their_jobs_aside(write, profile):
    trace = load("batsim", write([job(), job(id="b", profile="p")], DAY | {"p": profile}))
    assert trace.jobs["job_id"].to_list() == ["a"]
    assert trace.rejects.select("line", "reason").rows() == [(2, "unreadable_profile")]


def test_a_job_longer_than_its_walltime_keeps_its_duration_and_is_counted(write):
    trace = load("batsim", write([job(walltime=10)], DAY))
    assert trace.jobs.select("duration_s", "time_limit_s", "status").row(0) == (60, 10, "completed")
    assert any("1 jobs run longer than their walltime" in note for note in trace.meta.load_report.notes)


def test_c64_submissions_may_be_absolute_but_not_mixed(write):
    assert load("batsim", write([job(subtime=1.7e9)], DAY)).meta.clock == "absolute"
    with pytest.raises(BadFileError, match="count from 1970"):
        load("batsim", write([job(subtime=1.7e9), job(id="b")], DAY))


@pytest.mark.parametrize("text", ["[1]", '{"nb_res": 4, "jobs": {}}', '{"jobs": [], "profiles": []}', "7"])
def test_json_of_something_else_is_refused(tmp_path, text):
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(BadFileError, match="Batsim"):
        load("batsim", path)


def test_a_number_of_5000_digits_is_a_sentence(tmp_path):
    path = tmp_path / "w.json"
    path.write_text('{"nb_res": ' + "9" * 5000 + ', "jobs": [], "profiles": {}}')
    with pytest.raises(BadFileError) as caught:
        load("batsim", path)
    assert caught.value.kind == "not_json"
