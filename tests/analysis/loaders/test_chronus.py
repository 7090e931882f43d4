"""Chronus workloads: minutes, virtual clusters, lists in a cell."""

from __future__ import annotations

import pytest

from analysis.loaders import load

HEAD = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,"
    "expect_time_list,expect_value_list,best_effort,job_type\n"
)


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(
        HEAD
        + '4,vc_a,8,90,1000,resnet50,1.5,60,"[5400, 10800]","[100, 50]",0,strict\n'
        + "3,shared,1,0,10,bert,0,60,[],[],1,best\n"
    )
    return load("auto", path)


def test_submissions_and_durations_are_minutes(trace):
    assert trace.jobs["job_id"].to_list() == ["3", "4"]
    assert trace.jobs["submit_time"].dt.epoch("s").to_list() == [0, 5400]
    assert trace.jobs["duration_s"].to_list() == [0, 90]
    assert trace.meta.clock == "relative"


def test_a_user_that_is_a_virtual_cluster_is_both(trace):
    assert trace.jobs.select("user", "vc").rows() == [("shared", None), ("vc_a", "vc_a")]


def test_deadlines_stay_with_the_job(trace):
    extra = trace.jobs["extra"].struct.unnest()
    assert extra["expect_time_list"].to_list() == ["[]", "[5400, 10800]"]
    assert extra["job_type"].to_list() == ["best", "strict"]
    assert trace.meta.load_report.rows_set_aside == 0
