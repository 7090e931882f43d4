"""GenAI telemetry and requests: no jobs, everything in usage_series."""

from __future__ import annotations

import io
import tarfile
from datetime import UTC, datetime

import polars as pl
import pytest

from analysis.errors import BadFileError
from analysis.loaders import load
from tests.conftest import ROOT

SAMPLE = ROOT / "tests" / "golden" / "genai" / "raw"
MD5 = "0123456789abcdef0123456789abcdef"


def series(trace, metric):
    return trace.table("usage_series").filter(pl.col("metric") == metric).drop("metric").rows()


def test_the_sample():
    trace = load("auto", SAMPLE)
    at = datetime.fromtimestamp(1662859000, tz=UTC)
    assert trace.jobs.height == 0
    assert series(trace, "api_request_rate") == [("all", at, 0.11)]
    assert [row[2] for row in series(trace, "generative_request_rate")] == [0.25, None]
    assert [row[::2] for row in series(trace, "request_exec_s")] == [("G1", 21.0), ("G2", 3.0), ("G2", 0.0)]
    assert [row[::2] for row in series(trace, "request_negative_prompt_length")] == [("G2", 5.0)]
    # 10:00:00 in Shanghai is 02:00:00 UTC.
    assert series(trace, "request_completed") == [("G1", datetime(2024, 11, 20, 2, tzinfo=UTC), 1.0)]
    assert series(trace, "request_unknown")[0][0] == "G2"
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used) == (8, 6)
    assert report.rejected_by_reason == {"no_time": 1, "unreadable_value": 1}
    assert any("PENDING (1)" in note for note in report.notes)
    assert any("cannot be aligned" in note for note in report.notes)
    assert trace.meta.clock == "relative"


@pytest.mark.parametrize(
    ("name", "value", "metric", "expected"),
    [
        ("queue_rt_raw_anon", "1500", "queue_response_s", 1.5),
        ("pod_memory_util_anon", "0.5", "mem_utilization", 0.5),
        ("pod_gpu_duty_cycle_anon", "50", "gpu_utilization", 0.5),
        ("pod_gpu_memory_used_bytes_anon", str(2 * 1024**3), "gpu_mem_used_gib", 2.0),
        ("basemodel_update_latency_anon", "20", "base_model_update_s", 0.02),
        ("something_else", "3", "something_else", 3.0),
    ],
)
def test_units_by_the_file_name_in_a_tar_with_its_mac_shadow(tmp_path, name, value, metric, expected):
    data = f"value,container_ip,timestamp_anon\n{value},{MD5},1662858720\n".encode()
    with tarfile.open(tmp_path / f"{name}.tar.gz", "w:gz") as tar:
        for inside, content in ((f"._{name}.csv", b"shadow"), (f"{name}.csv", data)):
            info = tarfile.TarInfo(inside)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    trace = load("auto", tmp_path)
    assert series(trace, metric) == [(MD5, datetime.fromtimestamp(1662858720, tz=UTC), pytest.approx(expected))]
    assert any("not documented" in note for note in trace.meta.load_report.notes) == (metric == "something_else")


def test_a_time_of_no_century_is_set_aside(tmp_path):
    (tmp_path / "qps.csv").write_text(f"timestamp_anon,value,container_ip,request_type\n1e300,1,{MD5},API Requests\n")
    assert load("genai", tmp_path).meta.load_report.rejected_by_reason == {"implausible_time": 1}


def test_a_file_without_times_is_refused_by_name_and_left_alone_in_a_folder(tmp_path):
    (tmp_path / "data_trace_processed.csv").write_text("predict_type,exec_time_seconds\nx,1\n")
    with pytest.raises(BadFileError, match="nothing that looks like telemetry or requests"):
        load("genai", tmp_path / "data_trace_processed.csv")
    (tmp_path / "queue_size_raw_anon.csv").write_text(f"value,container_ip,timestamp_anon\n4,{MD5},1662858720\n")
    assert load("genai", tmp_path).meta.load_report.rows_in == 1


def test_the_real_requests(real_data):
    trace = load("auto", real_data("alibaba/genai_lora_request_trace.csv.gz"))
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used) == (26_823, 26_823)
    found = trace.table("usage_series")
    counts = dict(found["metric"].value_counts().iter_rows())
    status = {name: counts[f"request_{name}"] for name in ("completed", "failed", "unknown", "running")}
    assert status == {"completed": 26_392, "failed": 398, "unknown": 30, "running": 3}
    types = {name: counts[f"request_type_{name}"] for name in ("txt_2_img", "img_2_img", "inpainting")}
    assert types == {"txt_2_img": 24_438, "img_2_img": 2_199, "inpainting": 186}
    exec_s = found.filter(pl.col("metric") == "request_exec_s")
    assert exec_s["value"].mean() == pytest.approx(28.67, abs=0.005)
    assert (exec_s["value"].median(), exec_s["value"].max()) == (23, 567)
    assert exec_s["entity"].n_unique() == 4_247
    assert 26_823 - counts["request_negative_prompt_length"] == 6_215
    assert 26_823 - counts["request_images"] == 25
    # 2024-11-15 16:57:50 … 2024-12-08 17:33:57 by a clock in China.
    assert trace.meta.window == ("2024-11-15T08:57:50+00:00", "2024-12-08T09:33:57+00:00")
    assert "PENDING (30)" in report.notes[-1]
