"""A log finished block by block is the log finished as a whole, whatever the blocks."""

from __future__ import annotations

import pytest
from polars.testing import assert_frame_equal

from analysis.loaders import block_scan, finish, load
from analysis.table_file import TableFile
from analysis.trace import Trace

HEADER = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
ROW = "{id},u{user},v,{gpus},8,1,{state},2020-09-01 08:00:{second:02},{start},2020-09-01 10:10:00,{duration},600\n"


def rows(ids, *, odd=()):
    return [
        ROW.format(
            id=i,
            user=i % 3,
            gpus="many" if i in odd else i % 9,
            state=("COMPLETED", "FAILED", "ODD")[i % 3],
            second=n // 2,
            start="None" if i % 7 == 0 else "2020-09-01 08:10:00",
            duration=7200 + i % 2 * 5,
        )
        for n, i in enumerate(ids)
    ]


@pytest.fixture
def blockwise(monkeypatch):
    """Every lazy log goes block by block, in blocks of few lines."""

    def switch(*, on):
        monkeypatch.setattr(finish, "MANY_ROWS", 1 if on else 10**9)
        monkeypatch.setattr(block_scan, "BLOCK_BYTES", 700 if on else 2**23)

    return switch


def both(path, blockwise):
    traces = []
    for on in (True, False):
        blockwise(on=on)
        traces.append(load("helios", path))
    return traces


def is_filed(trace):
    return isinstance(trace._tables["jobs"], TableFile)


@pytest.mark.parametrize("text", ["", "\n\n", "\r\n"], ids=["plain", "blank_lines", "crlf"])
def test_blocks_and_whole_give_the_same_trace(tmp_path, blockwise, text):
    path = tmp_path / "cluster_log.csv"
    lines = rows(range(100, 160), odd=(120, 121))
    body = text.join(lines) if text.startswith("\n") else "".join(lines).replace("\n", text or "\n")
    path.write_text(HEADER + body, newline="")
    large, whole = both(path, blockwise)
    assert is_filed(large)
    assert not is_filed(whole)
    assert large.meta == whole.meta
    assert large.meta.load_report.rejected_by_reason["unreadable_gpu_num"] == 2
    assert large.meta.load_report.unknown_statuses == {
        "ODD": whole.jobs.filter(whole.jobs["status"] == "unknown").height
    }
    assert_frame_equal(large.jobs, whole.jobs)
    assert_frame_equal(large.rejects, whole.rejects)


@pytest.mark.parametrize(
    "ids", [[*range(100, 140), 103], list(range(140, 100, -1))], ids=["a_repeated_id", "another_order"]
)
def test_rows_that_need_each_other_go_the_whole_road(tmp_path, blockwise, ids):
    path = tmp_path / "cluster_log.csv"
    path.write_text(HEADER + "".join(rows(ids)))
    large, whole = both(path, blockwise)
    assert not is_filed(large)
    assert large.meta == whole.meta
    assert_frame_equal(large.jobs, whole.jobs)


def test_the_jobs_stay_on_disk_until_they_are_asked_for(tmp_path, blockwise):
    path = tmp_path / "cluster_log.csv"
    path.write_text(HEADER + "".join(rows(range(100, 160))))
    blockwise(on=True)
    trace = load("auto", path)
    assert is_filed(trace)
    assert is_filed(trace.with_meta(name="other"))
    assert is_filed(trace.with_tables(nodes=trace.nodes))
    trace.write(tmp_path / "T")
    again = Trace.read(tmp_path / "T")
    assert_frame_equal(again.jobs, trace.jobs)
    assert again.meta.load_report.num_jobs == 60


def test_the_temporary_file_goes_with_the_trace(tmp_path, blockwise, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    path = tmp_path / "cluster_log.csv"
    path.write_text(HEADER + "".join(rows(range(100, 160))))
    blockwise(on=True)
    trace = load("helios", path)
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    del trace
    assert not list((tmp_path / "tmp").iterdir())
