"""Pairs that share a device (pitfall A19)."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.characterize import sharing_pairs
from analysis.errors import SchemaError


def uses(*rows):
    names = ["entity", "node_id", "device", "start_time", "end_time"]
    return pl.DataFrame(rows, schema=names, orient="row")


def test_a19_sharing_needs_the_same_machine_the_same_device_and_the_same_time():
    pairs = sharing_pairs(
        uses(
            ("a", "x", "nvidia0", 0, 10),
            ("b", "x", "nvidia0", 5, 15),
            ("c", "x", "nvidia1", 0, 15),
            ("d", "x", "nvidia0", 20, 30),
        )
    )
    assert pairs.rows() == [("x", "nvidia0", "a", "b", 5, 10)]


def test_another_machine_a_touching_end_and_an_unknown_time_are_no_pair():
    pairs = sharing_pairs(
        uses(
            ("a", "x", "0", 0, 10),
            ("b", "y", "0", 0, 10),
            ("c", "x", "0", 10, 20),
            ("d", "x", "0", None, 20),
            ("f", "z", "0", 0, 5),
            ("e", "x", "0", 5, 5),
        )
    )
    assert pairs.is_empty()


def test_a_use_without_an_end_goes_on():
    pairs = sharing_pairs(uses(("a", "x", "0", 0, None), ("b", "x", "0", 7, None), ("c", "x", "0", 3, 4)))
    assert pairs.select("first", "second", "start_time", "end_time").rows() == [("a", "b", 7, None), ("a", "c", 3, 4)]


def test_row_order_does_not_matter():
    table = uses(("b", "x", "0", 0, 9), ("a", "x", "0", 1, 9), ("c", "x", "0", 2, 3))
    assert sharing_pairs(table).equals(sharing_pairs(table.reverse()))
    assert sharing_pairs(table).height == 3


def test_missing_columns_are_all_named():
    with pytest.raises(SchemaError, match="'device' is missing\n.*'end_time' is missing"):
        sharing_pairs(pl.DataFrame({"entity": ["a"], "node_id": ["x"], "start_time": [0]}))
