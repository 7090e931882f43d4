"""The shared road for delimited text: nothing lost, physical line numbers, the fast look agrees with the slow road."""

from __future__ import annotations

import csv
import io

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.errors import BadFileError
from analysis.loaders.delimited import read_delimited
from analysis.loaders.files import list_files
from analysis.loaders.survey import survey


def read(tmp_path, data, **options):
    path = tmp_path / "x.csv"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return read_delimited(path, **options)


def rows(raw):
    return raw.frame.collect().rows()


def rejects(raw):
    return raw.rejects.select("line", "reason", "raw").rows()


def kind_of(tmp_path, data, **options):
    with pytest.raises(BadFileError) as caught:
        read(tmp_path, data, **options)
    return caught.value.kind


def test_rows_with_a_wrong_number_of_fields_are_set_aside_with_their_line(tmp_path):
    raw = read(tmp_path, "a,b\n1,2\n3\n4,5,6\n\n  \n7,8")
    assert rows(raw) == [(2, "1", "2"), (7, "7", "8")]
    assert rejects(raw) == [
        (3, "too_few_fields", "3"),
        (4, "too_many_fields", "4,5,6"),
        (5, "blank_line", ""),
        (6, "blank_line", "  "),
    ]
    assert raw.rows_in == 6


def test_blank_lines_alone_keep_the_fast_road_and_its_line_numbers(tmp_path):
    raw = read(tmp_path, "\na,b\n\n1,2\n\n\n3,4\n\n")
    assert rows(raw) == [(4, "1", "2"), (7, "3", "4")]
    assert [line for line, *_ in rejects(raw)] == [3, 5, 6, 8]
    assert raw.rows_in == 6


def test_one_line_too_long_and_one_too_short_do_not_cancel_out(tmp_path):
    # 2 + 4 separators are as many as 3 + 3.
    raw = read(tmp_path, "a,b,c,d\n1,2,3\n1,2,3,4,5\n5,6,7,8\n")
    assert [reason for _, reason, _ in rejects(raw)] == ["too_few_fields", "too_many_fields"]
    assert rows(raw) == [(4, "5", "6", "7", "8")]


@pytest.mark.parametrize("header", ["a,b", "a,b,"])
def test_a_trailing_separator_adds_no_column(tmp_path, header):
    raw = read(tmp_path, f"{header}\n1,2,\n3,4,\n")
    assert raw.columns == ("a", "b")
    assert rows(raw) == [(2, "1", "2"), (3, "3", "4")]
    mixed = read(tmp_path, f"{header}\n1,2,\n3,4\n5,6,7\n")
    assert rows(mixed) == [(2, "1", "2"), (3, "3", "4")]
    assert rejects(mixed) == [(4, "too_many_fields", "5,6,7")]


def test_a24_headerless_rows_are_no_header_and_the_odd_one_is_set_aside(tmp_path):
    names = [f"c{i}" for i in range(11)]
    good, bad = ",".join("x" * 11), ",".join("y" * 12)
    raw = read(tmp_path, f"{good}\n{bad}\n{good}\n", names=names)
    assert [line for line, *_ in rows(raw)] == [1, 3]
    assert rejects(raw) == [(2, "too_many_fields", bad)]


def test_b55_a_separator_in_the_one_free_text_column_is_put_together_again(tmp_path):
    text = "JobID|JobName|State|Elapsed|User\n55|train|v2|COMPLETED|00:10:00|u1\n56|x|FAILED|00:01:00|u2\n"
    recovered = read(tmp_path, text, free_text="JobName")
    assert rows(recovered)[0] == (2, "55", "train|v2", "COMPLETED", "00:10:00", "u1")
    assert recovered.rows_in == 2
    assert "1 rows" in recovered.notes[0]
    assert rejects(read(tmp_path, text)) == [(2, "too_many_fields", "55|train|v2|COMPLETED|00:10:00|u1")]
    trailing = read(tmp_path, text.replace("\n", "|\n"), free_text="JobName")
    assert trailing.columns == ("JobID", "JobName", "State", "Elapsed", "User")
    assert rows(trailing) == rows(recovered)


def test_b62_bom_and_a_byte_that_is_not_utf8(tmp_path):
    raw = read(tmp_path, b"\xef\xbb\xbfjob_id,user\n1,ok\n2,a\xbfb\n")
    assert raw.columns == ("job_id", "user")
    frame = raw.frame.collect()
    assert frame["user"].to_list() == ["ok", "a\ufffdb"]
    assert frame["_undecodable"].to_list() == [False, True]


def test_quoted_fields_may_hold_separators_quotes_and_newlines(tmp_path):
    raw = read(tmp_path, 'a,b\n"1,1","say ""x"""\n"two\nlines",4\n5,6\n7\n')
    assert rows(raw) == [(2, "1,1", 'say "x"'), (3, "two\nlines", "4"), (5, "5", "6")]
    assert rejects(raw) == [(6, "too_few_fields", "7")]
    assert raw.rows_in == 4
    assert raw.raw_text({3}) == {3: '"two\nlines",4'}


def test_a_quote_that_never_closes_swallows_nothing(tmp_path):
    raw = read(tmp_path, 'a,b\n"1,2\n3,4\n5,"6\n7,8\n')
    assert rows(raw) == [(2, '"1', "2"), (3, "3", "4"), (4, "5", '"6'), (5, "7", "8")]


def test_the_separator_is_the_one_that_finds_the_columns(tmp_path):
    assert read(tmp_path, "id;name,with comma,x\n1;2\n", required=("id",)).columns == ("id", "name,with comma,x")
    assert read(tmp_path, "id\tname\n1\t2\n").columns == ("id", "name")


def test_columns_of_one_name_and_of_reserved_names_are_told_apart(tmp_path):
    assert read(tmp_path, "a,a,_line,\n1,2,3,\n").columns == ("a", "a_2", "_line_2")


def test_missing_columns_are_listed_with_close_ones(tmp_path):
    with pytest.raises(BadFileError, match=r"missing: submit_time, gpus.*'submit_tme' for 'submit_time'") as caught:
        read(tmp_path, "id,submit_tme\n1,2\n", required=("id", "submit_time", "gpus"))
    assert caught.value.kind == "wrong_columns"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"<!DOCTYPE html><html>Quota", "html"),
        (b"PK\x03\x04zip", "archive"),
        ("a,b\n1,2\n".encode("utf-16"), "encoding"),
        (b"\x1f\x8b\x08\x00broken", "truncated"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00..\nsize 12345\n", "lfs_pointer"),
    ],
)
def test_a1_what_is_no_data_is_named(tmp_path, data, kind):
    assert kind_of(tmp_path, data) == kind


def test_a_missing_file_names_its_neighbours_and_a_folder_is_no_file(tmp_path):
    (tmp_path / "jobs.csv").write_text("a\n1\n")
    with pytest.raises(BadFileError, match=r"similar name there: jobs\.csv"):
        read_delimited(tmp_path / "job.csv")
    with pytest.raises(BadFileError, match="found a folder"):
        read_delimited(tmp_path)


def test_files_of_a_folder_come_sorted_and_hidden_ones_stay_hidden(tmp_path):
    for name in ("b", "a", ".x"):
        (tmp_path / name).write_text("1")
    assert [path.name for path in list_files([tmp_path])] == ["a", "b"]


FIELDS = st.text(alphabet=st.sampled_from('ab ,;"\n\r\tö'), max_size=4)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=st.lists(st.lists(FIELDS, min_size=3, max_size=3), max_size=6))
def test_what_csv_writes_is_read_back(tmp_path, table):
    """Python's own csv module is the independent witness; a record of blanks only counts as a blank line."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([["x", "y", "z"], *table])
    raw = read(tmp_path, out.getvalue())
    assert [tuple(value or "" for value in row[1:]) for row in rows(raw)] == [tuple(row) for row in table]
    assert raw.rows_in == len(table)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.sampled_from('a,"\n'), max_size=30))
def test_every_line_is_a_row_or_set_aside(tmp_path, text):
    raw = read(tmp_path, "x,y\n" + text)
    assert raw.rows_in == raw.frame.collect().height + raw.rejects.height
    if '"' not in text:
        lines = text.split("\n") if not text.endswith("\n") else text.split("\n")[:-1]
        assert raw.rows_in == (len(lines) if text else 0)
        assert rows(raw) == [
            (i, *(part or None for part in line.split(",")[:2]))
            for i, line in enumerate(lines, start=2)
            if line.count(",") == 1 or (line.count(",") == 2 and line.endswith(",") and line.strip())
        ]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_look_is_the_same_whatever_the_block_size(monkeypatch, size):
    monkeypatch.setattr("analysis.loaders.survey.BLOCK", size)
    look = survey(io.BytesIO('1,"a,ö"\n\n2,3\r\n4,5'.encode()), separator=b",", seps_per_line=1)
    assert (look.is_regular, look.num_lines, look.blank_lines) == (True, 4, [1])


def test_a_large_file_takes_the_fast_road(tmp_path):
    body = "".join(f"{i},x{i}\n" for i in range(1, 50_001))
    raw = read(tmp_path, "a,b\n" + body)
    assert "SCAN" in raw.frame.explain().upper()
    assert raw.frame.select(pl.col("a").cast(pl.Int64).sum()).collect().item() == 50_000 * 50_001 // 2
