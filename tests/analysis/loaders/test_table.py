"""The road for a user's own log: maps, units, times of every spelling, frames of every library."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from analysis.errors import BadFileError, UsageError
from analysis.loaders import load

FRAME = pl.DataFrame(
    {
        "id": ["b", "a"],
        "at": [datetime(2024, 5, 1, 10), datetime(2024, 5, 1, 9)],
        "minutes": [2.0, 1.5],
        "gpus": [1, 4],
        "mem": [2048, 1024],
        "how": ["OK", "Killed"],
        "colour": ["red", None],
    }
)
COLUMNS = {
    "job_id": "id",
    "submit_time": "at",
    "duration_s": "minutes",
    "num_gpus": "gpus",
    "mem_gib": "mem",
    "status": "how",
}
OPTIONS = {
    "columns": COLUMNS,
    "units": {"duration_s": "min", "mem_gib": "MiB"},
    "status": {"OK": "completed", "Killed": "cancelled"},
    "timezone": "UTC",
}


def shapes(tmp_path):
    FRAME.write_csv(tmp_path / "t.csv", datetime_format="%Y-%m-%d %H:%M:%S")
    FRAME.write_csv(tmp_path / "t.tsv", separator="\t", datetime_format="%Y-%m-%dT%H:%M:%S")
    FRAME.write_parquet(tmp_path / "t.parquet")
    return {
        "csv": tmp_path / "t.csv",
        "tsv": tmp_path / "t.tsv",
        "parquet": tmp_path / "t.parquet",
        "polars": FRAME,
        "lazy": FRAME.lazy(),
        "pandas": FRAME.to_pandas(),
        "arrow": pa.table(FRAME.to_dict(as_series=False)),
    }


@pytest.mark.parametrize("shape", ["csv", "tsv", "parquet", "polars", "lazy", "pandas", "arrow"])
def test_every_shape_of_a_table_is_the_same_trace(tmp_path, shape):
    trace = load("table", shapes(tmp_path)[shape], **OPTIONS)
    jobs = trace.jobs
    assert jobs.select("job_id", "submit_time", "duration_s", "num_gpus", "mem_gib", "status").rows() == [
        ("a", datetime(2024, 5, 1, 9, tzinfo=UTC), 90.0, 4.0, 1.0, "cancelled"),
        ("b", datetime(2024, 5, 1, 10, tzinfo=UTC), 120.0, 1.0, 2.0, "completed"),
    ]
    assert jobs["extra"].struct.field("colour").to_list() == [None, "red"]
    assert trace.meta.load_report.rows_in == 2


def test_a_toml_file_holds_the_whole_map(tmp_path):
    path = tmp_path / "map.toml"
    path.write_text(
        'timezone = "UTC"\nlicence = "mine"\n[columns]\n'
        + "".join(f'{canonical} = "{raw}"\n' for canonical, raw in COLUMNS.items())
        + '[units]\nduration_s = "min"\nmem_gib = "MiB"\n[status]\nOK = "completed"\nKilled = "cancelled"\n'
    )
    by_file = load("table", FRAME, columns=str(path))
    assert_frame_equal(by_file.jobs, load("table", FRAME, **OPTIONS).jobs)
    assert by_file.meta.licence == "mine"
    as_text = load(
        "table",
        FRAME,
        columns=",".join(f"{c}={raw}" for c, raw in COLUMNS.items()),
        units="duration_s=min,mem_gib=MiB",
        status="OK=completed,Killed=cancelled",
        timezone="UTC",
    )
    assert_frame_equal(as_text.jobs, by_file.jobs)


def test_all_faults_of_a_map_are_named_at_once():
    with pytest.raises(UsageError, match="4 faults") as caught:
        load("table", FRAME, columns={"jobid": "id", "num_gpus": "gpu"}, status={"OK": "done"}, clock="sundial")
    for part in ("'jobid' is not a canonical", "did you mean 'job_id'", "did you mean 'gpus'", "'done'", "'sundial'"):
        assert part in str(caught.value)


@pytest.mark.parametrize("text", ["job_id", "job_id=", "=id", "job_id=id,job_id=at", ""])
def test_a_map_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="expected 'name=column"):
        load("table", FRAME, columns=text)


@pytest.mark.parametrize(("text", "kind"), [("a = [", "not_toml"), ("colums = 1\n", "wrong_keys")])
def test_a_map_file_that_is_none_is_refused(tmp_path, text, kind):
    path = tmp_path / "m.toml"
    path.write_text(text)
    with pytest.raises(BadFileError) as caught:
        load("table", FRAME, columns=path)
    assert caught.value.kind == kind


INSTANT = datetime(2024, 5, 1, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "options"),
    [
        ("2024-05-01 10:00:00", {}),
        ("2024-05-01T10:00:00.000", {}),
        ("2024-05-01 10:00", {}),
        ("2024-05-01T08:00:00Z", {}),
        ("2024-05-01 04:00:00-04:00", {}),
        ("2024-05-01T11:00:00+0300", {}),
        ("01.05.2024 10.00", {"time_format": "%d.%m.%Y %H.%M"}),
        ("05/01/2024 03:00 -0500", {"time_format": "%m/%d/%Y %H:%M %z"}),
        ("1714550400", {}),
        (1714550400, {}),
        (1714550400000, {}),
        ("1714550400000", {}),
        (1714550400.0, {}),
        (datetime(2024, 5, 1, 10), {}),
        (INSTANT, {}),
    ],
)
def test_an_instant_in_every_spelling(value, options):
    frame = pl.DataFrame({"submit_time": [value, None]})
    jobs = load("table", frame, timezone="Europe/Oslo", **options).jobs
    assert jobs["submit_time"].to_list() == [INSTANT, None]


def test_a_date_is_its_midnight():
    jobs = load("table", pl.DataFrame({"submit_time": [date(2024, 5, 1)]}), timezone="Europe/Oslo").jobs
    assert jobs["submit_time"].to_list() == [datetime(2024, 4, 30, 22, tzinfo=UTC)]


def test_small_numbers_are_seconds_from_the_start():
    trace = load("table", pl.DataFrame({"submit_time": [0.0, 60.5]}))
    assert trace.meta.clock == "relative"
    assert trace.jobs["submit_time"].dt.epoch("ms").to_list() == [0, 60_500]
    assert any("relative" in note for note in trace.meta.load_report.notes)


def test_times_of_no_known_form_name_one():
    with pytest.raises(UsageError, match=r"'1\. Mai'.*time_format"):
        load("table", pl.DataFrame({"submit_time": ["1. Mai"]}))
    with pytest.raises(UsageError, match="some do not"):
        load("table", pl.DataFrame({"submit_time": ["2024-05-01 10:00:00", "2024-05-01 10:00:00Z"]}))


def test_b53_zero_as_an_instant_did_not_happen():
    frame = pl.DataFrame({"submit_time": [1_000_000_000], "start_time": [0], "end_time": [1_000_000_010]})
    row = load("table", frame).jobs.row(0, named=True)
    assert (row["start_time"], row["censoring"], row["duration_s"]) == (None, "never_started", None)


def test_without_ids_the_row_number_is_the_id(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("submit_time\n5\n\n3\n")
    trace = load("table", path)
    assert trace.jobs["job_id"].to_list() == ["3", "1"]
    assert trace.rejects.select("line", "reason").rows() == [(3, "blank_line")]
    assert load("table", pl.DataFrame({"submit_time": [5, 3]})).jobs["job_id"].to_list() == ["2", "1"]


def test_no_zone_is_said():
    assert any("No time zone" in n for n in load("table", FRAME, columns={"submit_time": "at"}).meta.load_report.notes)


def test_pandas_nan_is_missing():
    frame = pd.DataFrame({"submit_time": [1.0, 2.0], "num_gpus": [float("nan"), 2.0]})
    jobs = load("table", frame).jobs
    assert jobs["num_gpus"].to_list() == [None, 2.0]
    assert ["unknown_gpus" in flags for flags in jobs["flags"].to_list()] == [True, False]


def test_a_column_of_a_reserved_name_is_kept():
    frame = pl.DataFrame({"submit_time": [1.0], "_line": ["x"]})
    assert load("table", frame).jobs["extra"].struct.field("_line_2").to_list() == ["x"]


def test_something_else_than_a_table_is_refused():
    with pytest.raises(UsageError, match="found a int"):
        load("table", 5)
    with pytest.raises(UsageError, match="Tables in memory go through: table"):
        load("helios", FRAME)


def test_a_damaged_parquet_file_is_named(tmp_path):
    path = tmp_path / "t.parquet"
    FRAME.write_parquet(path)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(BadFileError) as caught:
        load("table", path)
    assert caught.value.kind == "truncated"
