"""Reading in blocks gives what reading at once gives, whatever is odd in the file and wherever the blocks end."""

from __future__ import annotations

import random

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from analysis.errors import BadFileError
from analysis.loaders.batches import Batches
from analysis.loaders.delimited import read_delimited

ODD = [
    b"", b"  ", b"x", b"1,2", b"1,2,3,4,5", b"1,2,3,", b'"a,b",2,3', b'"a""b",2,3', b'"open,2,3', b"a\xffb,2,3",
    "æ,ø,å".encode(), b"1,2,3\r", b",,", b'a"b,2,3',
]  # fmt: skip


def read_both(path, *, block_bytes, **options):
    whole = read_delimited(path, **options)
    batches = Batches(path, block_bytes=block_bytes, **options)
    frames = [frame.select("_line", *batches.columns) for frame in batches]
    return whole, batches, pl.concat(frames) if frames else None


@pytest.mark.parametrize("block_bytes", [16, 64, 1 << 20])
@pytest.mark.parametrize("seed", range(8))
def test_odd_lines_are_the_same_in_blocks(tmp_path, seed, block_bytes):
    rng = random.Random(seed)
    lines = [rng.choice(ODD) if rng.random() < 0.3 else b"%d,%d,%d" % (i, i + 1, i + 2) for i in range(60)]
    path = tmp_path / "odd.csv"
    path.write_bytes(b"\n".join([b"one,two,three", *lines]) + (b"\n" if seed % 2 else b""))
    whole, batches, found = read_both(path, block_bytes=block_bytes, required=["one"])
    assert_frame_equal(found, whole.frame.collect().select("_line", "one", "two", "three"))
    assert_frame_equal(batches.rejects.sort("line"), whole.rejects.sort("line"))
    assert batches.rows_in == whole.rows_in
    assert batches.notes == whole.notes
    assert batches.raw_text([1]) == {1: "one,two,three"}
    assert batches.raw_text([]) == {}


def test_a_trailing_comma_and_a_missing_header_are_understood(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xef\xbb\xbf1,2,\n3,4,\n5,6\n\n7\n")
    whole, batches, found = read_both(path, block_bytes=8, names=["a", "b"])
    assert found.rows() == [(1, "1", "2"), (2, "3", "4"), (3, "5", "6")]
    assert_frame_equal(found, whole.frame.collect().select("_line", "a", "b"))
    assert batches.rejects.rows() == [("x.csv", 4, "blank_line", ""), ("x.csv", 5, "too_few_fields", "7")]


def test_rows_that_a_loader_sets_aside_keep_their_text(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n\n3,x\r\n5,6\n")
    batches = Batches(path, block_bytes=4)
    for frame in batches:
        batches.set_aside(frame.filter(pl.col("b") == "x").select("_line", reason=pl.lit("unreadable_b")))
    assert batches.rejects.sort("line").rows() == [("x.csv", 3, "blank_line", ""), ("x.csv", 4, "unreadable_b", "3,x")]
    assert batches.rows_in == 4


def test_a_missing_column_and_an_empty_file_are_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n")
    assert list(Batches(path)) == []
    with pytest.raises(BadFileError, match="missing: c"):
        Batches(path, required=["c"])
    path.write_text("")
    with pytest.raises(BadFileError, match="0 bytes"):
        Batches(path)
