"""Reading an export's lines: every line is used or set aside, whatever a job's name holds."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import BadFileError, UsageError
from analysis.loaders.slurm.blocks import LINE, Export
from analysis.loaders.slurm.layout import parse_fields, read_layout

HEADER = "JobID|JobName|State|Elapsed|User"


def read(path, *, block_bytes=1 << 20, delimiter=None, fields=None):
    export = Export(path, read_layout(path, delimiter=delimiter, fields=fields), block_bytes=block_bytes)
    frame = pl.concat(list(export.blocks()) or [pl.DataFrame()])
    return export, frame


def rows(frame):
    return frame.drop(LINE, "_undecodable").rows()


@pytest.fixture
def write(tmp_path):
    def make(text, *, name="sacct.txt", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return path

    return make


def test_b55_a_delimiter_in_the_name_is_recovered(write):
    export, frame = read(write(f"{HEADER}\n55|train|v2|COMPLETED|00:10:00|u1\n56|x|FAILED|00:00:01|u2\n"))
    assert rows(frame) == [
        ("55", "train|v2", "COMPLETED", "00:10:00", "u1"),
        ("56", "x", "FAILED", "00:00:01", "u2"),
    ]
    assert frame[LINE].to_list() == [2, 3]
    assert (export.rows_in, export.num_repaired, export.aside) == (2, 1, [])


def test_b55_a_trailing_delimiter_makes_no_column(write):
    export, frame = read(write(f"{HEADER}|\n55|a|COMPLETED|00:10:00|u1|\n56|b|c|COMPLETED|00:10:00||\n"))
    assert rows(frame) == [("55", "a", "COMPLETED", "00:10:00", "u1"), ("56", "b|c", "COMPLETED", "00:10:00", None)]
    assert export.layout.fields == tuple(HEADER.split("|"))


def test_b55_a_newline_in_the_name_is_recovered_also_over_blocks(write):
    path = write(f"{HEADER}\n1|a|COMPLETED|00:00:01|u\n55|tr\nain\n|x|COMPLETED|00:10:00|u1\n56|y|FAILED|00:00:01|u2\n")
    for block_bytes in (1 << 20, 40, 7):
        export, frame = read(path, block_bytes=block_bytes)
        assert frame["JobName"].to_list() == ["a", "tr\nain\n|x", "y"]
        assert frame[LINE].to_list() == [2, 3, 6]
        assert (export.rows_in, export.aside) == (3, [])


def test_b55_what_cannot_be_put_together_is_set_aside_with_its_line(write):
    text = f"{HEADER}\n1|a|COMPLETED|00:00:01|u\n\n2|b|COMPL\n3|c|NOSTATE|x|y|z\n4|d|COMPLETED|00:00:01|u\n5|e"
    export, frame = read(write(text))
    assert frame["JobID"].to_list() == ["1", "4"]
    assert export.rejects.rows() == [
        ("sacct.txt", 3, "blank_line", ""),
        ("sacct.txt", 4, "too_few_fields", "2|b|COMPL"),
        ("sacct.txt", 5, "too_many_fields", "3|c|NOSTATE|x|y|z"),
        ("sacct.txt", 7, "too_few_fields", "5|e"),
    ]
    assert export.rows_in == 6


def test_b55_of_two_free_fields_the_one_that_leaves_the_others_right_takes_the_surplus(write):
    head = "JobID|JobName|State|Comment|Elapsed"
    text = f"{head}\n1|a|b|FAILED|c|00:00:01\n2|a|FAILED|b|c|00:00:01\n3|a|FAILED|FAILED|c|00:00:01\n"
    export, frame = read(write(text))
    assert rows(frame) == [("1", "a|b", "FAILED", "c", "00:00:01"), ("2", "a", "FAILED", "b|c", "00:00:01")]
    assert export.aside == [(4, "too_many_fields", "3|a|FAILED|FAILED|c|00:00:01")]


def test_b62_mark_and_wrong_bytes(write):
    text = b"\xef\xbb\xbfJobID|User\r\n1|a\r\n2|b\xbf\r\n3|\xc3\xa4\r\n"
    export, frame = read(write(text))
    assert frame.columns[1] == "JobID"
    assert frame["User"].to_list() == ["a", "b�", "ä"]
    assert frame["_undecodable"].to_list() == [False, True, False]
    assert (export.rows_in, export.undecodable) == (3, {3})


@pytest.mark.parametrize("mark", ["|", ",", ";", "\t", "^", "@@", "~|~", "§"])
@pytest.mark.parametrize("tail", [False, True])
def test_delimiters_are_recognised(write, mark, tail):
    lines = [["JobID", "User", "State"], ["1", "a", "COMPLETED"], ["2", "", "FAILED"]]
    path = write("".join(mark.join(line) + (mark if tail else "") + "\n" for line in lines))
    _, frame = read(path)
    assert rows(frame) == [("1", "a", "COMPLETED"), ("2", None, "FAILED")]
    _, again = read(path, delimiter=mark)
    assert again.equals(frame)


def test_b63_a_header_is_optional_and_fields_may_be_given(write):
    body = "1|a|COMPLETED\n2||FAILED\n"
    with_header, without = write(f"JobID|User|State\n{body}", name="a"), write(body, name="b")
    fields = parse_fields("jobid,User%20,STATE")
    assert fields == ("JobID", "User", "State")
    expected = read(with_header)[1]
    assert rows(read(without, fields=fields)[1]) == rows(expected)
    assert rows(read(with_header, fields=fields)[1]) == rows(expected)
    with pytest.raises(BadFileError, match="first line that is no header of sacct"):
        read(without)
    with pytest.raises(BadFileError, match="no usual delimiter cuts into 2 fields"):
        read(without, fields=parse_fields("JobID,User"))
    with pytest.raises(UsageError, match="close: JobID"):
        parse_fields("JobIDD,User")


def test_a_header_in_the_middle_and_a_row_without_id_are_set_aside(write):
    export, frame = read(write(f"{HEADER}\n1|a|FAILED|00:00:01|u\n{HEADER}\n|a|FAILED|00:00:01|u\n"))
    assert frame.height == 1
    assert [(line, reason) for line, reason, _ in export.aside] == [(3, "repeated_header"), (4, "no_id")]


def test_quotes_are_ordinary_characters(write):
    _, frame = read(write(f'{HEADER}\n1|"a|COMPLETED|00:00:01|u\n2|b"c"|COMPLETED|00:00:01|"u"\n'))
    assert frame["JobName"].to_list() == ['"a', 'b"c"']
    assert frame["User"].to_list() == ["u", '"u"']


def test_fixed_width_columns_are_refused_with_the_command_to_use(write):
    text = "JobID           JobName\n------------ ----------\n1            a\n"
    with pytest.raises(BadFileError, match="parsable export") as caught:
        read(write(text))
    assert caught.value.kind == "fixed_width"


names = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\x00\x1f\x0b\x0c\x1c\x1d\x1e\x85"))


@settings(deadline=None)
@given(names=st.lists(names.filter(lambda text: "|" not in text and "\n" not in text), max_size=20))
def test_any_names_come_back_as_they_were(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("x") / "a"
    path.write_text(
        f"{HEADER}\n" + "".join(f"{i}|{n}|COMPLETED|00:00:01|u\n" for i, n in enumerate(names, 1)), newline=""
    )
    export, frame = read(path, block_bytes=64)
    assert (frame["JobName"].to_list() if names else []) == [name or None for name in names]
    assert (export.rows_in, export.aside) == (len(names), [])


@settings(deadline=None)
@given(names=st.lists(names, max_size=12))
def test_no_line_is_lost_whatever_the_names_hold(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("x") / "a"
    body = "".join(f"{i}|{n}|COMPLETED|00:00:01|u\n" for i, n in enumerate(names, 1))
    path.write_text(f"{HEADER}\n{body}", newline="")
    for block_bytes in (1 << 16, 16):
        export, frame = read(path, block_bytes=block_bytes)
        height = frame.height if names else 0
        assert export.rows_in == height + len(export.aside)
        assert export.rows_in >= len(names)
