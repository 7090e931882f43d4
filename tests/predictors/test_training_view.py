"""What was known at a cutoff, worked by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import polars as pl
import pytest

from analysis.errors import SchemaError, UsageError
from predictors import known_end, training_view

START = datetime(2024, 1, 1, tzinfo=UTC)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


#        0 ------- 1 ------- 2 ------- 3 -- cutoff 4 ------- 5
# ended  s=========e
# tie    s                   =====================e   ends at the cutoff: not strictly before
# long             s         ==================== | ========...
# waits                      s                    |   ====
# later                                           s
LOG = pl.DataFrame(
    {
        "job_id": ["ended", "tie", "long", "waits", "later"],
        "submit_time": [at(0), at(0), at(1), at(2), at(4)],
        "start_time": [at(0), at(2), at(2), at(5), at(4)],
        "end_time": [at(1), at(4), at(9), at(6), at(5)],
        "duration_s": [3600.0, 7200.0, 25200.0, 3600.0, 3600.0],
        "status": ["completed", "failed", "completed", "cancelled", "completed"],
        "gpu_type": ["V100"] * 5,
        "num_attempts": [1, 2, 1, 3, 1],
    }
)


def test_ended_running_waiting_and_later_jobs():
    view = training_view(LOG, cutoff=at(4))
    assert view.select("job_id", "duration_s", "censoring", "status").rows() == [
        ("ended", 3600.0, "none", "completed"),
        ("tie", 7200.0, "right", "running"),
        ("long", 7200.0, "right", "running"),
        ("waits", None, "never_started", "pending"),
    ]
    assert view["end_time"].to_list() == [at(1), None, None, None]
    assert view["start_time"].to_list() == [at(0), at(2), at(2), None]
    assert view["gpu_type"].to_list() == ["V100", "V100", "V100", None]
    assert view["num_attempts"].to_list() == [1, None, None, None]


def test_without_times_the_end_is_a_stated_proxy():
    log = LOG.select("job_id", "submit_time", "duration_s")
    ends = known_end(log)
    assert ends["end_is_proxy"].all()
    assert ends["end_time"].to_list() == [at(1), at(2), at(8), at(3), at(5)]
    view = training_view(log, cutoff=at(4))
    assert view.select("job_id", "duration_s", "censoring").rows() == [
        ("ended", 3600.0, "none"),
        ("tie", 7200.0, "none"),
        ("long", 10800.0, "right"),
        ("waits", 3600.0, "none"),
    ]
    assert view["start_time"].null_count() == 4
    assert known_end(view)["end_time"].to_list() == [at(1), at(2), None, at(3)]


def test_the_flag_of_a_loader_makes_the_proxy_and_its_absence_does_not():
    log = LOG.with_columns(end_time=pl.lit(None, dtype=pl.Datetime("us", "UTC")), start_time=None)
    assert known_end(log)["end_time"].null_count() == 5
    flagged = log.with_columns(flags=pl.Series([["times_assumed"]] * 5))
    assert known_end(flagged)["end_time"].null_count() == 0


def test_a_job_that_the_log_lost_sight_of_is_known_no_longer_than_it_was_followed():
    log = LOG.with_columns(censoring=pl.lit("right"), duration_s=pl.lit(600.0))
    view = training_view(log, cutoff=at(4))
    assert view["duration_s"].to_list() == [600.0, 600.0, 600.0, None]
    assert known_end(log)["end_time"].null_count() == 5


def test_an_end_before_the_submission_counts_from_the_submission():
    assert known_end(LOG.with_columns(end_time=pl.lit(at(-5))))["end_time"].to_list() == LOG["submit_time"].to_list()


def test_a_view_of_a_view_is_the_view():
    view = training_view(LOG, cutoff=at(4))
    assert training_view(view, cutoff=at(4)).equals(view)


def test_a_naive_cutoff_is_utc_and_zones_are_converted():
    naive = training_view(LOG, cutoff=at(4).replace(tzinfo=None))
    pacific = at(4).astimezone(timezone(timedelta(hours=-8)))
    assert naive.equals(training_view(LOG, cutoff=pacific))
    assert naive.equals(training_view(LOG, cutoff=at(4)))


def test_nothing_before_the_cutoff_is_one_sentence():
    with pytest.raises(UsageError, match="no job of 5 was submitted before the cutoff 2024-01-01T00:00"):
        training_view(LOG, cutoff=at(0))


def test_all_unreadable_columns_are_named_at_once():
    bad = pl.DataFrame({"num_gpus": ["two"], "end_time": [5]})
    with pytest.raises(SchemaError, match=r"breaks 3 rules(.|\n)*submit_time(.|\n)*end_time(.|\n)*num_gpus"):
        training_view(bad, cutoff=at(1))
