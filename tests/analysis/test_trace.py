"""The Trace folder: whole or not there, checked, replaced as one."""

from __future__ import annotations

import gc
import hashlib
import json
from datetime import UTC, datetime

import polars as pl
import pytest

from analysis import schema
from analysis.errors import BadFileError, HindcastError, SchemaError, SchemaVersionError, UnknownNameError, UsageError
from analysis.table_file import TableFile
from analysis.trace import LoadReport, Trace, TraceMeta
from tests.jobs import make_jobs

T0 = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def trace():
    jobs = make_jobs([{"job_id": "2", "submit_time": T0, "num_gpus": 0.5, "flags": ["clock_skew"]}, {"job_id": "1"}])
    jobs = jobs.with_columns(extra=pl.struct(pl.lit("x").alias("raw column")))
    rejects = pl.DataFrame([{"file": "f.csv", "line": 3, "reason": "blank_line", "raw": ""}], schema=schema.REJECTS)
    report = LoadReport(rows_in=3, rows_used=2, rows_set_aside=1, num_jobs=2, rejected_by_reason={"blank_line": 1})
    meta = TraceMeta(name="tiny", time_zone="Europe/Oslo", window=("2024-01-01", None), load_report=report)
    return Trace(jobs, meta=meta, tables={"rejects": rejects})


def test_a_written_trace_reads_back_equal(trace, tmp_path):
    read = Trace.read(trace.write(tmp_path / "deep" / "T"))
    assert read.meta == trace.meta
    for name in schema.TABLES:
        assert read.table(name).equals(trace.table(name))
    assert read.nodes.is_empty()
    assert read.scan("jobs").select(pl.len()).collect().item() == 2


def test_the_same_trace_is_the_same_bytes(trace, tmp_path):
    digests = []
    for name in ("a", "b"):
        folder = trace.write(tmp_path / name)
        digests.append({p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()})
    assert digests[0] == digests[1]


def test_a_trace_replaces_a_trace_as_a_whole_and_nothing_else(trace, tmp_path):
    folder = trace.write(tmp_path / "T")
    smaller = Trace(trace.jobs.head(1), meta=trace.meta)
    smaller.write(folder)
    assert Trace.read(folder).jobs.height == 1
    assert Trace.read(folder).rejects.is_empty()
    assert [p.name for p in tmp_path.iterdir()] == ["T"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="something that hindcast did not write"):
        trace.write(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_a_failure_while_writing_leaves_the_old_trace(trace, tmp_path, monkeypatch):
    folder = trace.write(tmp_path / "T")

    def full_disk(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full_disk)
    with pytest.raises(OSError, match="No space left"):
        trace.write(folder)
    monkeypatch.undo()
    assert Trace.read(folder).jobs.equals(trace.jobs)
    assert [p.name for p in tmp_path.iterdir()] == ["T"]


def test_a_newer_schema_is_refused_with_what_to_do(trace, tmp_path):
    folder = trace.write(tmp_path / "T")
    header = json.loads((folder / "trace.json").read_text())
    (folder / "trace.json").write_text(json.dumps(header | {"schema_version": 99, "new_field": 1}))
    with pytest.raises(SchemaVersionError, match="found schema version 99; expected at most 1.*pip install -U"):
        Trace.read(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "trace.json").unlink(), "without trace.json"),
        (lambda f: (f / "trace.json").write_text("{"), "not a Trace's metadata"),
        (lambda f: (f / "trace.json").write_text("[]"), "not a Trace's metadata"),
        (lambda f: (f / "jobs.parquet").write_bytes(b"PAR1"), "not readable as Parquet"),
        (lambda f: pl.DataFrame({"a": [1]}).write_parquet(f / "jobs.parquet"), "columns missing or unknown: job_id"),
    ],
)
def test_a_damaged_folder_is_refused_with_a_sentence(trace, tmp_path, damage, message):
    folder = trace.write(tmp_path / "T")
    damage(folder)
    with pytest.raises(BadFileError, match=message):
        Trace.read(folder)


def test_what_is_not_a_trace_is_refused(tmp_path):
    with pytest.raises(BadFileError, match="found nothing there; expected a Trace folder. Make one with"):
        Trace.read(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadFileError, match="found a file; expected a Trace folder"):
        Trace.read(tmp_path / "file")


def test_tables_are_checked_and_unknown_ones_refused(trace):
    with pytest.raises(SchemaError, match="table 'nodes' breaks"):
        Trace(trace.jobs, meta=trace.meta, tables={"nodes": pl.DataFrame({"node_id": ["a"]})})
    with pytest.raises(UnknownNameError, match="no table beside the jobs is named 'pods'"):
        Trace(trace.jobs, meta=trace.meta, tables={"pods": pl.DataFrame()})
    with pytest.raises(UnknownNameError, match="Did you mean 'nodes'"):
        trace.table("node")


def test_a_load_report_that_loses_rows_cannot_be_made():
    with pytest.raises(HindcastError, match="3 rows in, 1 used, 1 set aside"):
        LoadReport(rows_in=3, rows_used=1, rows_set_aside=1)


@pytest.fixture
def series(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    rows = [{"entity": "n1", "time": T0, "metric": "power_w", "value": 300.5}]
    pl.DataFrame(rows, schema=schema.USAGE_SERIES).write_parquet(folder / "series.parquet")
    return folder / "series.parquet"


def test_a_table_on_disk_is_copied_as_it_is_and_read_when_asked_for(trace, series, tmp_path):
    with_series = trace.with_tables(usage_series=TableFile(series))
    assert with_series.rejects.equals(trace.rejects)
    folder = with_series.with_meta(name="other").replace_jobs(trace.jobs.head(1)).write(tmp_path / "T")
    assert (folder / "usage_series.parquet").read_bytes() == series.read_bytes()
    again = Trace.read(folder)
    assert again.scan("usage_series").select("value").collect().item() == 300.5
    assert again.table("usage_series").equals(with_series.table("usage_series"))
    # Written over itself it is still there.
    again.write(folder)
    assert Trace.read(folder).table("usage_series").height == 1


def test_a_temporary_table_lives_as_long_as_a_trace_that_holds_it(trace, series):
    beside = {"usage_series": TableFile(series, is_temporary=True)}
    first = Trace(trace.jobs, meta=trace.meta, tables=beside)
    del beside
    second = first.with_meta(name="other")
    del first
    assert second.table("usage_series").height == 1
    del second
    gc.collect()
    assert not series.parent.exists()


def test_a_table_on_disk_is_checked(trace, series):
    with pytest.raises(BadFileError, match="columns missing or unknown: node_id"):
        Trace(trace.jobs, meta=trace.meta, tables={"nodes": TableFile(series)})
    pl.read_parquet(series).with_columns(pl.col("time").dt.replace_time_zone(None)).write_parquet(series)
    with pytest.raises(BadFileError, match="time is Datetime"):
        Trace(trace.jobs, meta=trace.meta, tables={"usage_series": TableFile(series)})
