"""The tables and their rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import schema
from analysis.errors import SchemaError
from tests.jobs import make_jobs

T0 = datetime(2024, 1, 1, tzinfo=UTC)


def test_every_table_makes_an_empty_frame_that_obeys_it():
    for name in schema.TABLES:
        schema.validate_table(name, schema.empty_table(name))


def test_a_sound_table_passes():
    schema.validate_jobs(make_jobs([{"job_id": "1"}, {"job_id": "2"}]))


def test_all_violations_are_reported_at_once():
    jobs = make_jobs([{"job_id": "1"}]).drop("user").with_columns(pl.col("num_gpus").cast(pl.Int32), surplus=pl.lit(1))
    with pytest.raises(SchemaError) as caught:
        schema.validate_jobs(jobs)
    text = str(caught.value)
    assert "breaks 3 rules" in text
    assert "column 'user' is missing; expected String" in text
    assert "column 'num_gpus' has dtype Int32; expected Float64" in text
    assert "column 'surplus' is not in the schema; put it into 'extra'" in text


def test_columns_in_another_order_are_named():
    jobs = make_jobs([{"job_id": "1"}])
    with pytest.raises(SchemaError, match="columns are in another order; expected job_id, cluster"):
        schema.validate_jobs(jobs.select(sorted(jobs.columns)))


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"num_gpus": -1.0}, "gpus_not_negative: 1 rows .first job ids .'1'.."),
        ({"duration_s": -0.5}, "duration_not_negative"),
        ({"queueing_delay_s": -1.0}, "queueing_delay_not_negative"),
        ({"time_limit_s": 0.0}, "limit_is_positive"),
        ({"censoring": "never_started", "start_time": T0}, "never_started_has_no_start"),
    ],
)
def test_a_broken_rule_is_named_with_its_rows(row, rule):
    with pytest.raises(SchemaError, match=rule):
        schema.validate_jobs(make_jobs([{"job_id": "1", **row}]))


def test_duplicate_ids_are_refused():
    with pytest.raises(SchemaError, match="id_is_unique: 2 rows"):
        schema.validate_jobs(make_jobs([{"job_id": "1"}, {"job_id": "1"}]))


def test_rules_that_only_flag_are_counted_and_do_not_refuse():
    jobs = make_jobs([{"job_id": "1", "submit_time": T0, "start_time": T0 - timedelta(seconds=9)}])
    schema.validate_jobs(jobs)
    counts = schema.count_violations(jobs)
    assert counts["starts_after_submit"] == 1
    assert counts["id_is_unique"] == 0
    assert set(counts) == set(schema.JOB_RULES)


def test_null_never_breaks_a_rule():
    jobs = make_jobs([{"job_id": "1", "num_gpus": None, "duration_s": None, "time_limit_s": None}])
    counts = schema.count_violations(jobs)
    assert [name for name, count in counts.items() if count] == ["has_submit_time", "has_duration", "has_gpus"]


def test_ids_order_as_integers_when_all_are_else_as_text():
    def order(ids):
        return schema.sort_jobs(make_jobs([{"job_id": i} for i in ids], sort=False))["job_id"].to_list()

    assert order(["10", "9", "1"]) == ["1", "9", "10"]
    assert order(["10", "9", "a"]) == ["10", "9", "a"]
    assert order(["7", "007"]) == ["007", "7"]


def test_jobs_without_a_submission_come_last():
    jobs = make_jobs([{"job_id": "1"}, {"job_id": "2", "submit_time": T0}], sort=False)
    assert schema.sort_jobs(jobs)["job_id"].to_list() == ["2", "1"]
    with pytest.raises(SchemaError, match="not sorted by .submit_time, job_id."):
        schema.validate_jobs(jobs)


@given(ids=st.lists(st.integers(-(10**17), 10**17), unique=True, max_size=20), seed=st.randoms())
def test_order_does_not_depend_on_the_row_order(ids, seed):
    shuffled = list(ids)
    seed.shuffle(shuffled)
    jobs = make_jobs([{"job_id": str(i)} for i in shuffled], sort=False)
    assert schema.sort_jobs(jobs)["job_id"].to_list() == [str(i) for i in sorted(ids)]


@pytest.mark.parametrize("ids", [["7", "007"], ["007", "7"], ["10", "9"], ["9", "10"], ["b", "10"], ["10", "b"]])
def test_is_sorted_is_what_sort_jobs_gives(ids):
    same_second = datetime(2020, 1, 1, tzinfo=UTC)
    for times in ([same_second] * 2, [None, same_second], [same_second, None], [None, None]):
        rows = pl.DataFrame({"job_id": ids, "submit_time": pl.Series(times, dtype=schema.TIME)})
        assert schema.is_sorted(rows) == schema.sort_jobs(rows).equals(rows)
