"""Pollux, AdaptDL and Sia workloads."""

from __future__ import annotations

import pytest

from analysis.errors import BadFileError
from analysis.loaders import load

TEXT = """name,time,application,num_replicas,batch_size
cifar10-0,0,cifar10,1,128
bert-1,95,bert,4,48
imagenet-2,310,imagenet,8,800
"""


@pytest.fixture
def write(tmp_path):
    def put(text):
        path = tmp_path / "workload-1.csv"
        path.write_text(text)
        return path

    return put


def test_the_fixture_of_the_format(write):
    trace = load("auto", write(TEXT))
    jobs = trace.jobs
    assert jobs["job_id"].to_list() == ["cifar10-0", "bert-1", "imagenet-2"]
    assert jobs["submit_time"].dt.epoch("s").to_list() == [0, 95, 310]
    assert jobs["num_gpus"].to_list() == jobs["num_tasks"].to_list() == [1, 4, 8]
    assert jobs["workload"].to_list() == ["cifar10", "bert", "imagenet"]
    assert jobs["duration_s"].null_count() == 3
    assert trace.meta.clock == "relative"
    assert any("no durations" in note for note in trace.meta.load_report.notes)


def test_a_variant_with_durations_is_used(write):
    lines = TEXT.splitlines()
    timed = "\n".join([lines[0] + ",duration", *(f"{line},{60 * n}" for n, line in enumerate(lines[1:], start=1))])
    trace = load("pollux", write(timed))
    assert trace.jobs["duration_s"].to_list() == [60, 120, 180]
    assert not any("no durations" in note for note in trace.meta.load_report.notes)


def test_c64_arrivals_in_any_order_but_from_one_origin(write):
    head, *rows = TEXT.splitlines()
    swapped = "\n".join([head, *rows[::-1]])
    assert load("pollux", write(swapped)).jobs.equals(load("pollux", write(TEXT)).jobs)
    with pytest.raises(BadFileError, match="count from 1970"):
        load("pollux", write(TEXT.replace("bert-1,95", "bert-1,1700000095")))
