"""What tests/fuzz_loaders.py found once, so that it stays mended: each input made a traceback or took for ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.errors import BadFileError
from analysis.loaders import load
from analysis.loaders.slurm.nodes import read_scontrol_nodes

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def test_philly_gpus_that_are_no_list(tmp_path):
    attempt = {
        "start_time": "2017-10-03 10:00:00",
        "end_time": "2017-10-03 11:00:00",
        "detail": [{"ip": "m1", "gpus": 5}],
    }
    job = {"jobid": "a", "user": "u", "vc": "v", "status": "Pass", "submitted_time": "2017-10-03 09:00:00"}
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps([job | {"attempts": [attempt]}]))
    jobs = load("philly", path).jobs
    assert jobs.select("num_gpus", "duration_s").rows() == [(0, 3600)]


def test_helios_a_vc_of_more_gpus_than_there_are(tmp_path):
    for path in (GOLDEN / "helios" / "raw").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    gpus = tmp_path / "cluster_gpu_number.csv"
    head, first, *rest = gpus.read_text().splitlines()
    date, _, *others = first.split(",")
    gpus.write_text("\n".join([head, ",".join([date, "9" * 14, *others]), *rest]) + "\n")
    trace = load("helios", tmp_path)
    assert trace.meta.load_report.rejected_by_reason["implausible_num_gpus"] == 1
    assert trace.nodes["num_gpus"].sum() < 1_000


def test_slurm_a_node_whose_name_is_no_host_list(tmp_path):
    path = tmp_path / "nodes.txt"
    path.write_text("NodeName=g[3-1] CPUTot=8 State=IDLE\nNodeName=g7 CPUTot=8 Gres=gpu:2 State=IDLE\n")
    assert read_scontrol_nodes(path).select("node_id", "num_gpus").rows() == [("g7", 2)]


def test_acme_a_year_that_no_calendar_of_ours_has(tmp_path):
    path = tmp_path / "GPU_UTIL.csv"
    rows = ["2023-06-12 10:00:00,10,20", "0000-06-12 10:00:00,10,20", "2023-06-12 10:00:30,30,40"]
    path.write_text("Time,10.0.0.1-0,10.0.0.1-1\n" + "\n".join(rows) + "\n")
    trace = load("acme", path)
    assert trace.meta.load_report.rejected_by_reason == {"unreadable_Time": 1}
    assert trace.table("usage_series").height == 4


def test_a_nul_byte_in_a_header_is_refused_with_a_sentence(tmp_path):
    (tmp_path / "GPU_UTIL.csv").write_bytes(b"Time,172.31.0.1-0,172.31.0.\x00-1\n2023-07-01 08:00:00+08:00,97.0,1.0\n")
    with pytest.raises(BadFileError, match="found a NUL byte in the header .line 1.; expected text"):
        load("acme", tmp_path)


def test_slurm_a_node_of_more_gpus_than_there_are(tmp_path):
    path = tmp_path / "nodes.txt"
    path.write_text("NodeName=n1 CPUTot=8 RealMemory=1000 Gres=gpu:9999999999999999999999999 State=IDLE Partitions=p\n")
    with pytest.raises(BadFileError, match=r"found 1e\+25 GPUs on node n1; expected at most 10,000"):
        read_scontrol_nodes(path)
