"""Column maps that ship with the package: the real files' counts, and what each map must know."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis.errors import UsageError
from analysis.loaders import LOADERS, load
from analysis.loaders.column_map import SHIPPED, parse_map

ROOT_FILES = {
    "graham": "slurm/graham_jobs.csv.gz",
    "thetagpu": "slurm/thetagpu_jobs.csv",
    "helios_slice": "helios/helios_slice.csv",
    "philly_lumos": "philly/philly_attempts.csv.gz",
}


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_map_says_what_a_reader_must_know(name):
    given = parse_map(name)
    for said in (given.summary, given.source, given.licence, given.citation, given.coverage, given.header):
        assert said
    assert set(given.missing) <= set(given.columns.values())
    assert name in LOADERS
    # Every raw column that is looked at when a file is recognised is one that the map uses or names.
    text = SHIPPED[name].read_text("utf-8")
    assert all(column in text for column in given.header)
    tomllib.loads(text)


@pytest.mark.full_trace
@pytest.mark.parametrize("name", sorted(ROOT_FILES))
def test_auto_name_and_table_give_the_same_jobs(real_data, name):
    path = real_data(ROOT_FILES[name])
    by_name = load(name, path)
    assert load("table", path, columns=name).jobs.equals(by_name.jobs)
    auto = load("auto", path)
    assert f"recognised as '{name}'" in auto.meta.load_report.notes[0]
    assert auto.jobs.equals(by_name.jobs)


def test_a_map_of_no_name_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    with pytest.raises(UsageError):
        load("table", path, columns="gram")


@pytest.mark.full_trace
def test_graham_has_171584_jobs_19407_of_them_with_gpus(real_data):
    trace = load("graham", real_data(ROOT_FILES["graham"]))
    jobs = trace.jobs
    assert jobs.height == trace.meta.load_report.rows_in == 171_584
    with_gpus = jobs.filter(pl.col("num_gpus") > 0)
    assert with_gpus.height == 19_407
    assert with_gpus["account"].n_unique() == 149
    # The stated elapsed time is what the time stamps say, in every row.
    assert trace.meta.load_report.flagged == {}
    assert dict(jobs["status"].value_counts().iter_rows()) == {
        "completed": 137_889,
        "failed": 13_506 + 2_003,  # FAILED and OUT_OF_MEMORY
        "timeout": 14_436,
        "cancelled": 2_177,
        "node_fail": 1_573,
    }
    assert (trace.meta.time_zone, trace.meta.time_zone_certainty) == ("UTC", "assumed")


@pytest.mark.full_trace
def test_thetagpu_has_22606_jobs_that_start_after_their_wait(real_data):
    trace = load("thetagpu", real_data(ROOT_FILES["thetagpu"]))
    jobs = trace.jobs
    assert jobs.height == 22_606
    assert jobs["start_time"].null_count() == jobs["end_time"].null_count() == 0
    assert jobs["user"].null_count() == 19_206
    assert "0.0" not in set(jobs["user"].drop_nulls())
    raw = pl.read_csv(real_data(ROOT_FILES["thetagpu"]), schema_overrides={"job": pl.String}).sort("job")
    found = jobs.sort("job_id")
    assert (found["duration_s"] - raw["run_time"]).abs().max() < 1e-5
    assert (found["queueing_delay_s"] - raw["wait_time"]).abs().max() < 1e-5


@pytest.mark.full_trace
def test_the_helios_slice_knows_a_start_only_where_it_says_how_long_a_job_queued(real_data):
    trace = load("helios_slice", real_data(ROOT_FILES["helios_slice"]))
    jobs = trace.jobs.with_columns(pl.col("extra").struct.field("duration").cast(pl.Float64).alias("stated"))
    assert (jobs.height, jobs["user"].n_unique()) == (1_056, 102)
    known = jobs.filter(pl.col("duration_s").is_not_null())
    # There the published duration is exactly what the derived start and the end give: it holds no wait.
    assert known.height == 225
    assert (known["duration_s"] == known["stated"]).all()
    rest = jobs.filter(pl.col("duration_s").is_null())
    assert (rest["censoring"] == "left").all()


@pytest.mark.full_trace
def test_philly_attempts_show_phillys_clock_in_new_york(real_data):
    """The Sia artifact holds naive submissions: read in New York, the attempts' epochs are the same clock."""
    trace = load("philly_lumos", real_data(ROOT_FILES["philly_lumos"]))
    assert trace.jobs.height == 151_816
    clock = trace.jobs["submit_time"].dt.convert_time_zone("America/New_York").dt.replace_time_zone(None)
    naive = pl.read_csv(real_data("philly/philly_jobs.csv.gz"))["timestamp"].drop_nulls()
    naive = naive.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us")
    assert naive.is_in(clock.implode()).mean() > 0.999


def test_an_end_follows_from_wait_and_run_in_naive_times_too(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("id,at,waited,ran\n1,2024-05-01 10:00:00,5.5,60\n2,2024-05-01 10:00:00,,60\n")
    toml = tmp_path / "map.toml"
    toml.write_text(
        'starts_after_wait = true\ntimezone = "Europe/Oslo"\n[columns]\n'
        'job_id = "id"\nsubmit_time = "at"\nqueueing_delay_s = "waited"\nduration_s = "ran"\n'
    )
    jobs = load("table", path, columns=toml).jobs
    start = datetime(2024, 5, 1, 8, 0, 5, 500_000, tzinfo=UTC)
    assert jobs["start_time"].to_list() == [start, None]
    assert jobs["end_time"].to_list() == [start + timedelta(seconds=60), None]
    assert jobs["duration_s"].to_list() == [60, 60]
