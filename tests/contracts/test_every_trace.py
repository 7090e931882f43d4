"""What every loader owes, whatever its source; walks the registry. How to add a sample: golden/make_expected.py."""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import importlib.util
import io
import json
import lzma
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from analysis import schema
from analysis.errors import BadFileError, HindcastError, UsageError
from analysis.loaders import LOADERS, load, recognise
from analysis.loaders.files import list_files

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
_spec = importlib.util.spec_from_file_location("make_expected", GOLDEN / "make_expected.py")
make_expected = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_expected)

FILE_LOADERS = sorted(name for name, entry in LOADERS.items() if entry.takes_files)


def samples(**wanted):
    """The loaders whose sample is of this kind; a loader without sample fails in `test_it_has_a_sample`."""
    have = [name for name in FILE_LOADERS if (GOLDEN / name / "sample.toml").exists()]
    return [name for name in have if wanted.items() <= make_expected.read_sample(name).items()]


def with_key(key, names):
    return [name for name in names if key in make_expected.read_sample(name)]


@pytest.fixture
def sample(request, tmp_path):
    """A copy of a loader's sample to spoil; ``.load()`` loads it, ``.main`` is the file of jobs."""
    name = request.param
    about = make_expected.read_sample(name)
    raw = tmp_path / "raw"
    shutil.copytree(GOLDEN / name / "raw", raw)

    def read():
        return load(name, raw, **about["options"])

    return SimpleNamespace(name=name, raw=raw, main=raw / about["main"], about=about, load=read)


def over(names):
    return pytest.mark.parametrize("sample", names, indirect=True)


def rewrite(sample, *, change=lambda rows: rows, header=lambda names: names):
    """Write the well-formed rows of a sample anew, changed."""
    separator = sample.about["separator"]
    lines = list(csv.reader(io.StringIO(sample.main.read_text("utf-8")), delimiter=separator))
    names, rows = lines[0], [row for row in lines[1:] if len(row) == len(lines[0])]
    records = change([dict(zip(names, row, strict=True)) for row in rows])
    names = header(names)
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, names, delimiter=separator, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    sample.main.write_text(out.getvalue(), "utf-8")


def same_jobs(one, other, *, but=()):
    assert_frame_equal(one.jobs.drop(but), other.jobs.drop(but))


ALL = samples()
CSV = samples(kind="csv", has_header=True)


@pytest.mark.parametrize("name", FILE_LOADERS)
def test_it_has_a_sample(name):
    for part in ("raw", "expected.csv", "WHY.md", "sample.toml"):
        assert (GOLDEN / name / part).exists(), f"tests/golden/{name}/{part} is missing; see make_expected.py"


@over(ALL)
def test_the_sample_gives_what_was_checked_by_eye(sample):
    found = make_expected.as_text(sample.load().jobs)
    expected = pl.read_csv(GOLDEN / sample.name / "expected.csv", infer_schema=False).fill_null("")
    assert_frame_equal(found.select(expected.columns), expected)
    rest = [column for column in found.columns if column not in expected.columns]
    assert not [column for column in rest if (found[column] != "").any()]


@over(ALL)
def test_tables_are_as_the_schema_says(sample, tmp_path):
    trace = sample.load()
    schema.validate_jobs(trace.jobs)
    for table in schema.TABLES:
        schema.validate_table(table, trace.table(table))
    again = type(trace).read(trace.write(tmp_path / "T"))
    assert_frame_equal(again.jobs, trace.jobs)
    assert again.meta == trace.meta


@over(ALL)
def test_every_row_is_used_or_set_aside(sample):
    trace = sample.load()
    report = trace.meta.load_report
    assert report.rows_in == report.rows_used + report.rows_set_aside
    assert report.rows_set_aside == trace.rejects.height == sum(report.rejected_by_reason.values())
    assert report.num_jobs == trace.jobs.height
    assert report.rows_in == sum(entry["rows"] for entry in report.files)
    assert trace.rejects["raw"].null_count() == 0
    if sample.about["kind"] == "csv":
        lines = sample.main.read_bytes().count(b"\n") - sample.about["has_header"]
        assert next(entry["rows"] for entry in report.files if entry["name"] == sample.main.name) == lines
        text = sample.main.read_text("utf-8").split("\n")
        for line, raw in trace.rejects.filter(pl.col("file") == sample.main.name).select("line", "raw").iter_rows():
            assert text[line - 1] == raw


@over(ALL)
def test_metadata_says_what_was_assumed(sample):
    meta = sample.load().meta
    assert meta.name
    assert meta.source
    assert meta.licence
    assert meta.time_zone_certainty in ("declared", "assumed", "given", "none")
    assert load(sample.name, sample.raw, **sample.about["options"], name="mine").meta.name == "mine"


@over(ALL)
def test_auto_recognises_it_and_no_other_is_as_sure(sample):
    files = list_files([sample.raw])
    chosen, certainty = recognise(files)
    assert chosen.name == sample.name
    others = {name: LOADERS[name].sniff(files) for name in FILE_LOADERS if name != sample.name}
    assert certainty > max(others.values(), default=0)
    for name in others:
        assert 0 <= others[name] <= 1


@over(ALL)
def test_zero_bytes_are_an_error(sample):
    sample.main.write_bytes(b"")
    with pytest.raises(BadFileError, match="0 bytes"):
        load(sample.name, sample.main, **sample.about["options"])


@over(ALL)
def test_an_lfs_pointer_is_named(sample):
    sample.main.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n")
    with pytest.raises(BadFileError, match="12345 bytes") as caught:
        load(sample.name, sample.main, **sample.about["options"])
    assert caught.value.kind == "lfs_pointer"


@over(samples(kind="csv", has_header=True) + samples(kind="json"))
def test_a_header_only_is_an_empty_trace(sample):
    is_json = sample.about["kind"] == "json"
    sample.main.write_text("[]" if is_json else sample.main.read_text("utf-8").split("\n")[0] + "\n", "utf-8")
    # An empty array says nothing about its source: it is given by name.
    trace = load(sample.name, sample.main, **sample.about["options"])
    assert trace.jobs.height == 0
    assert trace.jobs.schema.names() == list(schema.JOBS)


@over(ALL)
@pytest.mark.parametrize("how", ["gzip", "zstd", "bzip2", "xz"])
def test_compressed_files_are_the_same(sample, how):
    plain = sample.load()
    data = sample.main.read_bytes()
    packed = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
    sample.main.write_bytes(pa.Codec("zstd").compress(data, asbytes=True) if how == "zstd" else packed[how](data))
    trace = sample.load()
    same_jobs(trace, plain)
    assert_frame_equal(trace.rejects, plain.rejects)


@over(ALL)
def test_a_truncated_gzip_is_an_error(sample):
    sample.main.write_bytes(gzip.compress(sample.main.read_bytes(), compresslevel=0)[:-20])
    with pytest.raises(BadFileError) as caught:
        load(sample.name, sample.main, **sample.about["options"])
    assert caught.value.kind == "truncated"


@over(samples(kind="csv"))
@pytest.mark.parametrize("how", ["byte order mark", "CRLF", "no last newline"])
def test_spellings_of_a_text_file_are_the_same(sample, how):
    plain = sample.load()
    data = sample.main.read_bytes()
    spelt = {
        "byte order mark": b"\xef\xbb\xbf" + data,
        "CRLF": data.replace(b"\n", b"\r\n"),
        "no last newline": data.removesuffix(b"\n"),
    }
    sample.main.write_bytes(spelt[how])
    trace = sample.load()
    same_jobs(trace, plain)
    assert_frame_equal(trace.rejects, plain.rejects)


@over(CSV)
def test_columns_in_another_order_are_the_same(sample):
    rewrite(sample)
    plain = sample.load()
    rewrite(sample, header=lambda names: names[::-1])
    # Which of the other columns comes first in extra is the file's order.
    same_jobs(sample.load(), plain, but=["extra"])


@over(CSV)
def test_columns_that_nobody_knows_are_kept(sample):
    rewrite(sample)
    plain = sample.load()
    rewrite(
        sample,
        change=lambda rows: [{**row, "never heard of": f"x{i}"} for i, row in enumerate(rows)],
        header=lambda names: [*names, "never heard of"],
    )
    trace = sample.load()
    same_jobs(trace, plain, but=["extra"])
    kept = trace.jobs["extra"].struct.field("never heard of")
    assert kept.null_count() == 0
    assert kept.str.starts_with("x").all()


@over(CSV)
def test_a_last_line_that_breaks_off_is_set_aside(sample):
    rewrite(sample)
    plain = sample.load()
    text = sample.main.read_text("utf-8").removesuffix("\n")
    sample.main.write_text(text[: text.rindex(sample.about["separator"])], "utf-8")
    trace = sample.load()
    assert trace.rejects.filter(pl.col("reason") == "too_few_fields").height == 1
    assert trace.jobs.height == plain.jobs.height - 1
    assert trace.meta.load_report.rows_in == plain.meta.load_report.rows_in


@over(with_key("text_column", CSV))
def test_b62_bytes_that_are_not_utf8_are_replaced_and_counted(sample):
    rewrite(sample)
    plain = sample.load()
    column = sample.about["text_column"]
    rewrite(sample, change=lambda rows: [*rows[:-1], {**rows[-1], column: "BYTE"}])
    sample.main.write_bytes(sample.main.read_bytes().replace(b"BYTE", b"a\xbfb"))
    trace = sample.load()
    assert trace.jobs.height == plain.jobs.height
    assert trace.meta.load_report.flagged["undecodable_text"] == 1
    assert "a\ufffdb" in str(trace.jobs.filter(pl.col("flags").list.contains("undecodable_text")).row(0))


@over(with_key("status_column", samples(kind="csv", has_header=True) + samples(kind="json")))
def test_a8_an_unknown_status_is_named_and_counted(sample):
    column = sample.about["status_column"]
    if sample.about["kind"] == "json":
        records = json.loads(sample.main.read_text("utf-8"))
        records[0][column] = "NEVER_SEEN"
        sample.main.write_text(json.dumps(records), "utf-8")
    else:
        rewrite(sample, change=lambda rows: [{**rows[0], column: "NEVER_SEEN"}, *rows[1:]])
    trace = sample.load()
    assert trace.meta.load_report.unknown_statuses["NEVER_SEEN"] == 1
    job = trace.jobs.filter(pl.col("status_raw") == "NEVER_SEEN")
    assert job["status"].to_list() == ["unknown"]
    assert "unknown_status" in job["flags"][0]


@over(samples(kind="csv", has_header=True, ids_in_file=True) + samples(kind="json", ids_in_file=True))
@pytest.mark.parametrize("seed", [1, 2])
def test_the_order_of_the_rows_means_nothing(sample, seed):
    plain = sample.load()
    if sample.about["kind"] == "json":
        records = json.loads(sample.main.read_text("utf-8"))
        random.Random(seed).shuffle(records)
        sample.main.write_text(json.dumps(records), "utf-8")
    else:
        head, *rows = sample.main.read_text("utf-8").removesuffix("\n").split("\n")
        random.Random(seed).shuffle(rows)
        sample.main.write_text("\n".join([head, *rows]) + "\n", "utf-8")
    trace = sample.load()
    same_jobs(trace, plain)
    for table in ("nodes", "capacity"):
        assert_frame_equal(trace.table(table), plain.table(table))
    assert trace.meta.load_report.rejected_by_reason == plain.meta.load_report.rejected_by_reason


@over(ALL)
def test_an_unknown_option_lists_the_known_ones(sample):
    with pytest.raises(HindcastError, match=r"no option of the loader .* is named 'nonsense' .*timezone"):
        load(sample.name, sample.raw, nonsense=1)


@over(ALL)
def test_garbage_is_refused_with_a_sentence(sample):
    """Mutated samples load with all rows accounted for or raise our own error about the file, nothing else."""
    rng = random.Random(7)
    data = sample.main.read_bytes()
    for _ in range(40):
        spoilt = bytearray(data)
        for _ in range(rng.randint(1, 8)):
            at = rng.randrange(len(spoilt))
            spoilt[at : at + rng.randint(0, 3)] = rng.choice(
                [b"", b'"', b",", b"\n", b"\xff", b"9", b"-", b"\r", b"\x00"]
            )
        sample.main.write_bytes(spoilt)
        with contextlib.suppress(BadFileError, UsageError):
            report = load(sample.name, sample.raw, **sample.about["options"]).meta.load_report
            assert report.rows_in == report.rows_used + report.rows_set_aside, bytes(spoilt)
