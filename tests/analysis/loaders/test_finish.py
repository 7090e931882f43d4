"""What is concluded from times, ids and zones, case by case; the letters are those of the collected pitfalls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis import schema
from analysis.errors import UsageError
from analysis.loaders import finish_jobs
from analysis.loaders.zones import ZoneNotes, check_zone, to_utc

ORIGIN = datetime(2024, 5, 1, tzinfo=UTC)
STATUS = pl.Enum(schema.STATUSES)


def jobs_of(rows, *columns, **options):
    """Finish rows of (submit, start, end, ...): seconds after an origin, so that 0 is no special number."""
    times = ("submit_time", "start_time", "end_time")
    data = {
        name: [ORIGIN + timedelta(seconds=row[i]) if name in times and row[i] is not None else row[i] for row in rows]
        for i, name in enumerate(columns)
    }
    frame = pl.DataFrame(data, schema_overrides={n: schema.TIME for n in columns if n in times}, strict=False)
    if "job_id" not in columns:
        frame = frame.with_columns(job_id=pl.Series([str(i) for i in range(1, len(rows) + 1)], dtype=pl.String))
    done = finish_jobs(frame, **options)
    schema.validate_jobs(done.jobs)
    return done.jobs.sort("job_id") if "job_id" not in columns else done


def facts(jobs):
    return [
        (censoring, duration, flags)
        for censoring, duration, flags in jobs.select("censoring", "duration_s", "flags").iter_rows()
    ]


def some(jobs, *columns):
    return jobs.select(columns).rows()


SET = {"num_gpus": 1.0}


def finish(rows, *columns, **options):
    """As `jobs_of`, with known GPUs, so that only the flags about times are raised."""
    return jobs_of([(*row, 1.0) for row in rows], *columns, "num_gpus", **options)


def test_a14_zero_is_missing_and_nothing_is_subtracted_from_it():
    rows = [
        (0, None, 500, "completed"),
        (0, 100, None, "running"),
        (0, 100, 90, "completed"),
        (0, 100, None, "running"),
    ]
    jobs = finish(rows, "submit_time", "start_time", "end_time", "status")
    assert facts(jobs) == [
        ("left", None, ["start_missing"]),
        ("right", None, []),
        ("none", None, ["invalid_times"]),
        ("right", None, []),
    ]


def test_a22_and_a30_every_combination_of_missing_times():
    rows = [(None, None, None), (None, None, 500), (100, 120, None), (100, 120, 400), (7, 7, 7)]
    rows = [(*row, "completed") for row in rows]
    window_end = pl.lit(ORIGIN + timedelta(seconds=1000))
    jobs = finish(rows, "submit_time", "start_time", "end_time", "status", snapshot=window_end)
    assert some(jobs, "censoring", "queueing_delay_s", "duration_s") == [
        ("both", None, None),
        ("left", None, None),
        ("right", 20.0, 880.0),
        ("none", 20.0, 280.0),
        ("none", 0.0, 0.0),
    ]


def test_b40_not_finished_and_never_started():
    rows = [(0, 400, None, "running"), (0, None, None, "cancelled"), (0, None, None, "pending")]
    snapshot = pl.lit(ORIGIN + timedelta(seconds=1000))
    jobs = finish(rows, "submit_time", "start_time", "end_time", "status", snapshot=snapshot)
    assert facts(jobs) == [("right", 600.0, []), ("never_started", None, []), ("never_started", None, [])]
    assert jobs.filter(pl.col("status") == "completed").height == 0


def test_b40_an_elapsed_time_of_zero_of_a_cancelled_job_is_no_run():
    rows = [(0, None, 60, "cancelled", 0.0), (0, None, 60, "failed", 30.0)]
    jobs = finish(rows, "submit_time", "start_time", "end_time", "status", "published_duration_s")
    assert some(jobs, "censoring", "duration_s") == [("never_started", None), ("none", 30.0)]


def test_b53_start_missing_or_before_the_submission():
    jobs = finish([(1000, None, 1010), (1000, 990, 1100)], "submit_time", "start_time", "end_time")
    assert some(jobs, "censoring", "queueing_delay_s", "duration_s", "flags") == [
        ("never_started", None, None, []),
        ("none", 0.0, 110.0, ["clock_skew"]),
    ]


def test_b54_negative_durations_are_invalid_not_their_absolute_value():
    jobs = finish(
        [(0, 500, 440, 60.0), (0, 0, 16, -16.0)], "submit_time", "start_time", "end_time", "published_duration_s"
    )
    assert [(d, "invalid_times" in flags) for _, d, flags in facts(jobs)] == [(None, True), (None, True)]


def test_a10_a_published_duration_that_includes_the_queue():
    jobs = finish([(0, 40, 120, 120.0)], "submit_time", "start_time", "end_time", "published_duration_s")
    assert facts(jobs) == [("none", 80.0, ["duration_mismatch", "duration_includes_queue"])]
    assert jobs["queueing_delay_s"].to_list() == [40.0]


def test_b50_the_loaders_own_duration_counts_nulls_too():
    jobs = finish([(0, 0, 1000, 600.0), (0, 0, 1000, None)], "submit_time", "start_time", "end_time", "duration_s")
    assert jobs["duration_s"].to_list() == [600.0, None]


def test_a35_a_job_of_no_length_is_kept():
    assert facts(finish([(0, 5, 5)], "submit_time", "start_time", "end_time")) == [("none", 0.0, [])]


def test_a26_without_any_times_durations_and_delays_stay():
    jobs = finish([(12.0, 300.0), (0.0, 50.0)], "queueing_delay_s", "duration_s")
    assert jobs["duration_s"].mean() == 175
    assert jobs["queueing_delay_s"].mean() == 6
    assert jobs["flags"].to_list() == [["times_assumed"]] * 2


def test_negative_gpus_and_limits_of_zero_are_not_known():
    jobs = jobs_of([(0, -1, 0.0), (0, 0, 5.0)], "submit_time", "num_gpus", "time_limit_s")
    assert some(jobs, "num_gpus", "time_limit_s") == [(None, None), (0.0, 5.0)]
    assert "unknown_gpus" in jobs["flags"][0]


def test_a8_statuses_through_an_explicit_table():
    words = ["COMPLETED", "TIMEOUT", "NODE_FAIL", "SUSPENDED", "FOO", None]
    table = {"COMPLETED": "completed", "TIMEOUT": "timeout", "NODE_FAIL": "node_fail", "SUSPENDED": "suspended"}
    done = jobs_of([(str(i), word) for i, word in enumerate(words)], "job_id", "status_raw", statuses=table)
    assert done.jobs["status"].to_list() == ["completed", "timeout", "node_fail", "suspended", "unknown", None]
    assert done.unknown_statuses == {"FOO": 1}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a25_conflicting_duplicates_have_one_winner_whatever_the_order(order):
    rows = [("c1", 5, 0.04), ("c1", 5, 0.99)]
    done = jobs_of([rows[i] for i in order], "job_id", "submit_time", "mem_gib")
    assert done.jobs["mem_gib"].to_list() == [0.04]
    assert done.rejects["reason"].to_list() == ["duplicate_id"]


def test_b47_kin_an_id_that_is_used_again_is_another_job():
    rows = [("7", "x", 10), ("7", "x", 20), ("7", "x", 20), ("8", "x", 30)]
    done = jobs_of(rows, "job_id", "cluster", "submit_time", duplicates="by_submit")
    assert done.jobs["job_id"].to_list() == ["x/7/2024-05-01T00:00:10Z", "x/7/2024-05-01T00:00:20Z", "8"]
    assert done.rejects["reason"].to_list() == ["duplicate_row"]


def test_rows_without_id_or_with_an_implausible_year_are_set_aside():
    frame = pl.DataFrame(
        {
            "job_id": ["a", "", None, "b"],
            "submit_time": [datetime(2024, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1), datetime(1, 1, 1)],
            "_line": [2, 3, 4, 5],
        }
    )
    done = finish_jobs(frame, file="f")
    assert done.jobs["job_id"].to_list() == ["a"]
    assert done.rejects.select("file", "line", "reason").rows() == [
        ("f", 3, "no_id"),
        ("f", 4, "no_id"),
        ("f", 5, "implausible_submit_time"),
    ]


def test_ids_that_are_all_integers_sort_as_integers():
    done = jobs_of([("10", 0), ("9", 0)], "job_id", "submit_time")
    assert done.jobs["job_id"].to_list() == ["9", "10"]


def test_b51_the_hour_that_comes_twice_is_the_earlier_and_counted():
    notes = ZoneNotes()
    times = pl.Series([datetime(2025, 10, 26, 1, 30), datetime(2025, 10, 26, 2, 30), datetime(2025, 10, 26, 3, 30)])
    utc = to_utc(times, zone="Europe/Oslo", notes=notes)
    assert [t.hour * 60 + t.minute for t in utc.dt.convert_time_zone("UTC")] == [23 * 60 + 30, 30, 2 * 60 + 30]
    assert (utc[2] - utc[0]).total_seconds() == 10_800
    assert (notes.num_ambiguous, notes.num_nonexistent) == (1, 0)


def test_the_hour_that_never_came_is_shifted_and_counted():
    notes = ZoneNotes()
    times = pl.Series([datetime(2025, 3, 30, 2, 30), datetime(2025, 3, 30, 3, 30)])
    utc = to_utc(times, zone="Europe/Oslo", notes=notes)
    # Read with the offset before the change (UTC+1), as datetime's fold=0 does.
    assert utc[0] == datetime(2025, 3, 30, 1, 30, tzinfo=UTC)
    assert (notes.num_ambiguous, notes.num_nonexistent) == (0, 1)
    assert "do not exist" in notes.sentences("Europe/Oslo")[0]


def test_a11_aware_times_and_seconds_since_1970_are_the_same_instant():
    aware = pl.Series(["2023-05-01 00:30:00+0800", "2023-04-30 16:30:00+0000"]).str.to_datetime("%Y-%m-%d %H:%M:%S%z")
    assert to_utc(aware, zone="Europe/Oslo").dt.epoch("s").to_list() == [1_682_872_200] * 2
    assert to_utc(pl.Series([1_682_872_200.25]), zone="UTC").dt.epoch("us").to_list() == [1_682_872_200_250_000]


@pytest.mark.parametrize("name", ["Mars/Base", "Europe", "../etc/passwd", ""])
def test_an_unknown_zone_is_refused(name):
    with pytest.raises(UsageError, match="no time zone"):
        check_zone(name)
