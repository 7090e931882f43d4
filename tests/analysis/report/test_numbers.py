"""Tables as text: units, words, keys to sort by, days where dates mean nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl

from analysis.characterize import CHARACTERIZATIONS, characterize
from analysis.characterize.buckets import BUCKET
from analysis.loaders.synthetic import synthesize
from analysis.report.blocks import stacked, table_block
from analysis.report.download import csv_text
from analysis.report.numbers import table_view, transposed_view
from analysis.report.workload import SECTIONS, Logs, section_of


def texts(view):
    return [[cell.text for cell in row] for row in view.rows]


def keys(view, column):
    return [row[column].key for row in view.rows]


def test_units_stand_in_the_cells_and_keys_keep_the_value():
    table = pl.DataFrame({"mean_s": [5400.0, None], "job_share": [0.25, 1.0], "num_jobs": [1234567, 3]})
    view = table_view(table)
    assert [column.text for column in view.head] == ["mean", "of jobs", "jobs"]
    assert texts(view) == [["1.5 h", "25 %", "1,234,567"], ["-", "100 %", "3"]]
    assert keys(view, 0) == ["5400", ""]
    assert keys(view, 1) == ["0.25", "1"]
    assert keys(view, 2) == ["1234567", None]


def test_gpu_seconds_are_read_as_gpu_hours():
    view = table_view(pl.DataFrame({"failed_gpu_s": [7200.0]}))
    assert (view.head[0].text, texts(view)) == ("failed GPU-hours", [["2"]])


def test_categories_are_sorted_in_their_order_and_read_as_words():
    table = pl.DataFrame({"bucket": [">8", "all", "1"]}, schema={"bucket": BUCKET})
    view = table_view(table)
    assert texts(view) == [[">8 GPUs"], ["all GPU jobs"], ["1 GPU"]]
    order = BUCKET.categories.to_list()
    assert keys(view, 0) == [str(order.index(name)) for name in (">8", "all", "1")]


def test_a_name_that_someone_gave_is_not_read_as_a_word():
    view = table_view(pl.DataFrame({"user": ["gpu", "none", "a_b"], "vc": ["last", "log", "vc"]}))
    assert texts(view) == [["gpu", "last"], ["none", "log"], ["a_b", "vc"]]


def test_weekdays_are_named_and_sorted_from_monday():
    view = table_view(pl.DataFrame({"weekday": [7, 1]}))
    assert texts(view) == [["Sun"], ["Mon"]]
    assert keys(view, 0) == ["7", "1"]
    assert not view.head[0].is_number


def test_a_row_per_log_is_read_from_top_to_bottom():
    wide = {f"p{n}": [float(n), float(n + 1)] for n in (5, 25, 50, 75, 90, 99)}
    view = transposed_view(pl.DataFrame({"trace": ["a", "b"], **wide, "unknown_s": [None, None]}))
    assert [column.text for column in view.head] == ["", "a", "b"]
    assert texts(view)[0] == ["p5", "5", "6"]
    assert "unknown" not in {row[0] for row in texts(view)}
    assert not view.is_sortable
    block = table_block("x", pl.DataFrame({"trace": ["a", "b"], **wide}))
    assert block.table is not None
    assert block.table.head == view.head


def test_only_the_first_rows_are_shown_and_all_are_counted():
    block = table_block("x", pl.DataFrame({"a": range(1000)}))
    assert block.table is not None
    assert (len(block.table.rows), block.table.num_rows) == (40, 1000)
    assert block.is_folded


def test_stacked_tables_keep_their_columns_and_say_whose_rows_they_are():
    both = stacked({"a": pl.DataFrame({"x": [1]}), "b": pl.DataFrame({"x": [2], "y": [3.0]})})
    assert both.columns == ["trace", "x", "y"]
    assert both.rows() == [("a", 1, None), ("b", 2, 3.0)]
    summary = stacked({"mine": pl.DataFrame({"trace": ["theirs"], "n": [1]})})
    assert summary.rows() == [("mine", 1)]


def test_days_stand_for_dates_where_the_clock_is_relative():
    made = {}
    for name, clock in (("counted", "relative"), ("dated", "absolute")):
        trace = synthesize(like="philly", num_jobs=50, seed=1)
        made[name] = trace.with_meta(clock=clock)
    day = pl.DataFrame({"time": [datetime(1970, 1, 3, 12, tzinfo=UTC)], "n": [1]})
    logs = Logs(made, {"t": dict.fromkeys(made, day)})
    shown = logs.shown("t")
    assert shown is not None
    assert shown.rows() == [("counted", "day 2.5", 1), ("dated", "1970-01-03 12:00", 1)]
    assert Logs({"dated": made["dated"]}, {"t": {"dated": day}}).shown("t") is None


def test_every_table_has_a_section_of_its_own():
    assert {name: section_of(item) for name, item in CHARACTERIZATIONS.items() if section_of(item) == "more"} == {}
    assert {section_of(item) for item in CHARACTERIZATIONS.values()} <= set(SECTIONS)


def test_every_table_of_a_log_can_be_shown():
    for name, table in characterize(synthesize(like="venus", num_jobs=300, seed=1)).items():
        block = table_block(name, table)
        assert block.table is not None
        assert block.table.num_rows >= min(table.height, 1)
        assert block.definition.endswith(".")


def test_a_name_that_is_a_formula_is_none_in_a_spreadsheet():
    names = ["=cmd|' /C calc'!A0", "+SUM(1)", "-1+cmd()", "@x", "\t=1", "-5", "+1.5e3", "a=b", "", None, 'O\'Neil, "x"']
    table = pl.DataFrame({"user": names, "share": [-0.5] * len(names)})
    back = pl.read_csv(csv_text(table).encode())
    assert back["share"].to_list() == table["share"].to_list()
    held = ["'" + name if name and names.index(name) < 5 else name or "" for name in names]
    assert [name or "" for name in back["user"]] == held
