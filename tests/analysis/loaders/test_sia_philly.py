"""The Sia artifact's Philly jobs: counts of the real file, and its stated assumptions on rows worked by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from analysis.loaders import load

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(
        HEADER
        + "2017-11-05 01:30:00,60.0,2,120.0,aaaa\n"  # shown twice by a Pacific clock
        + "2017-11-05 00:30:00,10.0,1,999.0,bbbb\n"  # gpu_time is not duration * GPUs
        + "\n"
    )
    return path


@pytest.mark.full_trace
def test_the_real_file_has_82247_jobs_and_a_blank_last_line(real_data):
    trace = load("auto", real_data("philly/philly_jobs.csv.gz"))
    report = trace.meta.load_report
    assert (trace.jobs.height, report.rows_in, report.rows_used, report.rows_set_aside) == (82_247, 82_248, 82_247, 1)
    assert trace.rejects.rows() == [("philly_jobs.csv.gz", 82_249, "blank_line", "")]
    assert trace.meta.time_zone == "Etc/GMT+8"
    assert "recognised as 'sia_philly'" in report.notes[0]
    assert trace.jobs["start_time"].null_count() == trace.jobs["end_time"].null_count() == 82_247
    assert set(trace.jobs["job_id"].cast(pl.Int64)) == set(range(1, 82_248))
    assert report.flagged == {"times_assumed": 82_247}
    # The split: 60 % of the jobs in submission order, 49,119 of them known (submit + duration) by then.
    jobs = trace.jobs.with_columns(end=pl.col("submit_time") + pl.duration(seconds=pl.col("duration_s")))
    cut = jobs["submit_time"][int(0.6 * jobs.height)]
    assert jobs.filter(pl.col("end") <= cut).height == pytest.approx(49_119, abs=1)


def test_ids_are_row_numbers_and_times_have_a_fixed_offset(small):
    trace = load("sia_philly", small)
    assert trace.jobs["job_id"].to_list() == ["2", "1"]
    assert trace.jobs["submit_time"].to_list() == [
        datetime(2017, 11, 5, 8, 30, tzinfo=UTC),
        datetime(2017, 11, 5, 9, 30, tzinfo=UTC),
    ]
    assert trace.jobs["vc"].to_list() == ["bbbb", "aaaa"]
    assert trace.meta.time_zone_certainty == "assumed"


def test_gpu_time_that_disagrees_is_flagged(small):
    flags = dict(load("sia_philly", small).jobs.select("job_id", "flags").iter_rows())
    assert flags == {"1": ["times_assumed"], "2": ["times_assumed", "duration_mismatch"]}


def test_another_zone_counts_the_hour_that_comes_twice(small):
    trace = load("sia_philly", small, timezone="America/Los_Angeles")
    assert trace.jobs["submit_time"].to_list() == [
        datetime(2017, 11, 5, 7, 30, tzinfo=UTC),
        datetime(2017, 11, 5, 8, 30, tzinfo=UTC),
    ]
    assert any("twice in America/Los_Angeles (clock change): 1;" in note for note in trace.meta.load_report.notes)
    assert trace.meta.time_zone_certainty == "given"
