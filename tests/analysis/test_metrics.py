"""Each metric against cases worked by hand (pitfalls B53, B59, C77)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis import metrics

T0 = datetime(2024, 1, 1, tzinfo=UTC)


def at(seconds):
    return None if seconds is None else T0 + timedelta(seconds=seconds)


def jobs(*rows):
    names = ("submit_time", "start_time", "end_time")
    return pl.DataFrame(
        [dict(zip(names, map(at, row), strict=True)) for row in rows],
        schema=dict.fromkeys(names, pl.Datetime("us", "UTC")),
    )


def value(expression, table):
    return table.select(expression).to_series().to_list()


def test_jct_wait_and_span():
    table = jobs((0, 10, 110), (0, None, None), (5, 5, 5))
    assert value(metrics.jct_s(), table) == [110.0, None, 0.0]
    assert value(metrics.queueing_delay_s(), table) == [10.0, None, 0.0]
    assert value(metrics.span_s(), table) == [100.0, None, 0.0]


def test_b53_a_start_before_the_submission_waits_zero():
    assert value(metrics.queueing_delay_s(), jobs((1000, 990, 1100))) == [0.0]


def test_an_end_before_the_start_has_no_span():
    assert value(metrics.span_s(), jobs((0, 500, 440))) == [None]


def test_sub_second_times_keep_their_microseconds():
    assert value(metrics.jct_s(), jobs((0, 0, 0.6))) == [0.6]


def test_makespan_runs_from_the_first_submission_to_the_last_end():
    assert value(metrics.makespan_s(), jobs((50, 50, 70), (10, 10, 30), (90, None, None))) == [60.0]
    assert value(metrics.makespan_s(), jobs((50, None, None))) == [None]


def test_service_is_gpus_times_duration():
    table = pl.DataFrame({"num_gpus": [4.0, 0.0, None], "duration_s": [6300.0, 10.0, 1.0]})
    assert value(metrics.gpu_s(), table) == [25200.0, 0.0, None]
    assert value(metrics.gpu_hours(), table) == [7.0, 0.0, None]


def test_bounded_slowdown_refuses_a_floor_of_zero():
    with pytest.raises(ValueError, match="floor_s is 0; it must be above 0 seconds"):
        metrics.bounded_slowdown(floor_s=0)
