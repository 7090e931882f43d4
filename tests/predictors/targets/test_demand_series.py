"""Demand per hour: gaps are null, of a Trace the GPUs held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.errors import HindcastError, UnknownNameError, UsageError
from analysis.loaders import load
from predictors.targets import busy_gpus, demand_series

DAY = datetime(2024, 3, 4, tzinfo=UTC)


def minutes(values: dict[int, float | None]) -> pl.DataFrame:
    """Observations by minute of the day."""
    return pl.DataFrame({"time": [DAY + timedelta(minutes=m) for m in values], "value": list(values.values())})


def test_an_hour_is_the_mean_of_what_was_seen_of_it():
    seen = minutes({0: 2.0, 20: 4.0, 40: 9.0, 60: 1.0, 80: 1.0, 100: None, 180: 3.0, 190: 5.0, 200: 7.0})
    hours = demand_series(seen)
    assert hours["value"].to_list() == [5.0, 1.0, None, 5.0]
    assert hours["time"].to_list() == [DAY + timedelta(hours=h) for h in range(4)]


def test_an_hour_of_which_little_was_seen_is_missing():
    seen = dict.fromkeys(range(180), 6.0) | {180 + m: 1.0 for m in range(29)} | {240 + m: 2.0 for m in range(30)}
    assert demand_series(minutes(seen))["value"].to_list() == [6.0, 6.0, 6.0, None, 2.0]


def test_zero_is_a_value_and_a_missing_one_is_not_zero():
    seen = pl.DataFrame({"time": [DAY + timedelta(hours=h) for h in range(4)], "value": [0.0, None, float("nan"), 8.0]})
    assert demand_series(seen)["value"].to_list() == [0.0, None, None, 8.0]


def test_row_order_zone_text_and_pandas_make_no_difference():
    seen = minutes({m: float(m % 7) for m in range(0, 600, 7)})
    hours = demand_series(seen)
    for other in (
        seen.reverse(),
        seen.with_columns(pl.col("time").dt.convert_time_zone("America/Los_Angeles")),
        seen.with_columns(pl.col("time").dt.replace_time_zone(None)),
        seen.with_columns(pl.col("time").dt.strftime("%Y-%m-%d %H:%M:%S")),
        seen.to_pandas(),
        hours,
    ):
        assert demand_series(other).equals(hours)


def test_what_cannot_be_read_is_one_sentence():
    good = minutes({0: 1.0})
    with pytest.raises(UnknownNameError, match="no column of the demand table is named 'gpus'"):
        demand_series(good, value="gpus")
    with pytest.raises(UsageError, match=r"1 of 2 values of 'value' are below 0 \(the least is -1.0\)"):
        demand_series(minutes({0: -1.0, 1: 4.0}))
    with pytest.raises(HindcastError, match="none of 2 rows has both a time and a value"):
        demand_series(minutes({0: None, 1: None}))
    with pytest.raises(UsageError, match="text that is no time"):
        demand_series(pl.DataFrame({"time": ["noon"], "value": [1.0]}))
    with pytest.raises(UsageError, match="expected datetimes"):
        demand_series(pl.DataFrame({"time": [3], "value": [1.0]}))
    with pytest.raises(UsageError, match="expected numbers"):
        demand_series(good.with_columns(value=pl.lit("many")))
    stray = pl.DataFrame({"time": [datetime(1901, 1, 1), datetime(2024, 1, 1)], "value": [1.0, 1.0]})
    with pytest.raises(UsageError, match="a date is wrong"):
        demand_series(stray)


def trace_of(rows: list[tuple[float, float, int]]):
    """A Trace of jobs (start, end in hours, GPUs)."""
    at = lambda hour: DAY + timedelta(hours=hour)  # noqa: E731
    jobs = {
        "job_id": [str(i) for i in range(len(rows))],
        "submit_time": [at(start) for start, _, _ in rows],
        "start_time": [at(start) for start, _, _ in rows],
        "end_time": [at(end) for _, end, _ in rows],
        "num_gpus": [gpus for _, _, gpus in rows],
    }
    return load("table", pl.DataFrame(jobs))


def test_busy_gpus_are_those_that_jobs_hold():
    #   hour   0     1     2     3     4     5
    #   4 GPUs ########
    #   2 GPUs       ############
    #   1 GPU                          ####      and nobody from 3.25 to 4
    trace = trace_of([(0, 1.5, 4), (1, 3.25, 2), (4, 5, 1)])
    hours = busy_gpus(trace)
    assert hours["value"].to_list() == [4.0, 4.0, 2.0, 0.5, 1.0]
    assert hours["time"][0] == DAY
    assert demand_series(trace).equals(hours)


def test_busy_gpus_agree_with_a_sum_over_jobs():
    rng = np.random.default_rng(3)
    starts, lengths, gpus = rng.uniform(0, 40, 60), rng.exponential(5, 60), rng.integers(1, 9, 60).tolist()
    rows = list(zip(starts, starts + lengths, gpus, strict=True))
    found = busy_gpus(trace_of(rows))
    for time, value in found.rows():
        hour = (time - DAY).total_seconds() / 3600
        held = sum(gpus * max(min(end, hour + 1) - max(start, hour), 0) for start, end, gpus in rows)
        assert value == pytest.approx(held, abs=1e-6)


def test_a_trace_without_times_or_hours_says_so():
    with pytest.raises(HindcastError, match="no GPU job of the trace has a known start and end"):
        busy_gpus(load("table", pl.DataFrame({"submit_time": [DAY], "num_gpus": [1]})))
    with pytest.raises(HindcastError, match="no full hour"):
        busy_gpus(trace_of([(0.1, 0.9, 1)]))


def test_philly_has_a_night_without_record_which_is_not_zero(real_data):
    hours = demand_series(pl.read_csv(real_data("philly/philly_active_nodes.csv.gz")), value="active")
    gap = hours.filter(pl.col("value").is_null())["time"]
    # The minute before midnight of 2017-10-26 is missing, and nine and a half hours before it.
    assert (gap.min(), gap.max(), len(gap)) == (
        datetime(2017, 10, 25, 14, tzinfo=UTC),
        datetime(2017, 10, 25, 23, tzinfo=UTC),
        10,
    )
    assert hours.height == 1771
