"""Gavel traces in both layouts, the throughputs, and durations worked by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import polars as pl
import pytest

from analysis.errors import BadFileError, UnknownNameError
from analysis.loaders import load
from analysis.loaders.gavel_throughput import read_throughputs

PRESENT = """ResNet-18 (batch size 32)→main.py %s→cifar10→--num_steps→1→150000→1→1→-1.000000→0.000000
LM (batch size 20)→python3 main.py --cuda --data %s/wikitext2→language_modeling→--steps→1→80000→4→1→-1.000000→612.500000
A3C→python3 main.py --env PongDeterministic-v4→rl→--max-steps→0→9000→1→2→1.500000→700.000000
"""
OLD = "ResNet-50 (batch size 64)→python3 main.py -j 4 %s/imagenet→--num_minibatches→1→50000→30.0→2\n"
RATES = {
    "v100": {
        "('ResNet-18 (batch size 32)', 1)": {"null": 50.0, "('A3C', 1)": [40.0, 3.0]},
        "('LM (batch size 20)', 4)": {"null": 40.0},
        "('A3C', 1)": {"null": 4.5},
        "('ResNet-50 (batch size 64)', 2)": {"null": 2.5},
    },
    "v100_unconsolidated": {"('ResNet-18 (batch size 32)', 1)": {"null": 45.0}},
    "k80": {"('ResNet-18 (batch size 32)', 1)": {"null": 10.0}, "('ResNet-50 (batch size 64)', 2)": {"null": 0.0}},
}


@pytest.fixture
def write(tmp_path):
    def put(name, text):
        path = tmp_path / name
        path.write_text(text.replace("→", "\t"), "utf-8")
        return path

    return put


@pytest.fixture
def rates(write):
    return write("throughputs.json", json.dumps(RATES))


def test_the_present_layout_has_ten_fields(write, rates):
    trace = load("auto", [write("a.trace", PRESENT), rates])
    jobs = trace.jobs
    assert jobs["num_gpus"].to_list() == [1, 4, 1]
    assert jobs["duration_s"].to_list() == [3000, 2000, 2000]
    assert jobs["submit_time"].dt.epoch("ms").to_list() == [0, 612_500, 700_000]
    assert jobs["extra"].struct.field("SLO").to_list() == [None, None, 1.5]
    assert jobs["workload"].to_list() == ["ResNet-18 (batch size 32)", "LM (batch size 20)", "A3C"]
    assert trace.meta.clock == "relative"


def test_the_old_layout_has_seven_and_arrival_and_size_change_places(write, rates):
    job = load("auto", [write("old.trace", OLD), rates]).jobs.row(0, named=True)
    assert (job["num_gpus"], job["submit_time"]) == (2, datetime(1970, 1, 1, 0, 0, 30, tzinfo=UTC))
    assert job["duration_s"] == 50_000 / 2.5
    assert job["gpu_type"] == "V100"


def test_without_throughputs_there_are_no_durations_and_that_is_said(write):
    trace = load("gavel", write("a.trace", PRESENT))
    assert trace.jobs["duration_s"].null_count() == 3
    assert any("simulation_throughputs.json" in note for note in trace.meta.load_report.notes)


def test_c66_a_type_of_rate_0_is_not_allowed_and_gives_no_duration(write, rates):
    path = write("old.trace", OLD)
    assert load("gavel", path, throughputs=rates).jobs["allowed_gpu_types"].to_list() == [["V100"]]
    on_k80 = load("gavel", path, throughputs=rates, reference="K80")
    assert on_k80.jobs["duration_s"].to_list() == [None]
    assert any("ResNet-50 (batch size 64)" in note for note in on_k80.meta.load_report.notes)


def test_c66_a_type_that_was_not_measured_is_refused_by_name(write, rates):
    with pytest.raises(UnknownNameError, match="H100.*known: K80, V100"):
        load("gavel", write("a.trace", PRESENT), throughputs=rates, reference="H100")


def test_a_class_that_was_not_measured_is_named_and_counted(write, rates):
    trace = load("gavel", [write("a.trace", PRESENT.replace("80000→4", "80000→8")), rates])
    assert trace.jobs["duration_s"].to_list() == [3000, None, 2000]
    assert any("LM (batch size 20) on 8" in note for note in trace.meta.load_report.notes)


@pytest.mark.parametrize("origin", [0, 1_700_000_000])
def test_c64_arrivals_in_any_order_and_from_any_origin(write, rates, origin):
    lines = [OLD.replace("30.0", str(origin + at)) for at in (50, 10)]
    trace = load("gavel", [write("a.trace", "".join(lines)), rates])
    assert trace.jobs["job_id"].to_list() == ["2", "1"]
    assert trace.jobs["submit_time"].dt.epoch("s").to_list() == [origin + 10, origin + 50]
    assert trace.meta.clock == ("absolute" if origin else "relative")


def test_c64_two_origins_in_one_file_are_refused(write):
    with pytest.raises(BadFileError, match="count from 1970"):
        load("gavel", write("a.trace", OLD + OLD.replace("30.0", "1700000000")))


def test_another_number_of_fields_is_refused(write):
    with pytest.raises(BadFileError, match="10 fields .* or 7"):
        load("gavel", write("a.trace", "ResNet→python3→1→2\n"))


def test_throughputs_are_a_long_table(rates):
    table = read_throughputs(rates)
    assert table.height == 8
    pair = table.filter(pl.col("colocated_with") == "A3C").row(0, named=True)
    assert (pair["job_class"], pair["colocated_num_gpus"], pair["steps_per_s"]) == ("ResNet-18 (batch size 32)", 1, 40)
    scattered = table.filter(~pl.col("is_consolidated"))
    assert scattered.select("gpu_type", "steps_per_s").rows() == [("V100", 45.0)]


@pytest.mark.parametrize("spoil", [-1.0, "fast", None, [1.0], True, float("inf")])
def test_a_rate_that_is_none_is_refused(write, spoil):
    bad = {"v100": {"('A3C', 1)": {"null": spoil}}}
    with pytest.raises(BadFileError, match="1 entries that are no measurement"):
        read_throughputs(write("bad.json", json.dumps(bad)))


@pytest.mark.full_trace
def test_the_real_throughputs_have_83_keys_of_26_classes(real_data):
    table = read_throughputs(real_data("throughput/gavel_simulation_throughputs.json.gz"))
    alone = table.filter(pl.col("colocated_with").is_null())
    assert alone.filter(pl.col("is_consolidated")).group_by("gpu_type").len().sort("gpu_type").rows() == [
        ("K80", 83),
        ("P100", 83),
        ("V100", 83),
    ]
    assert table["job_class"].n_unique() == 26
    # The three classes that do not fit a K80 (counted in the file itself).
    assert alone.filter((pl.col("steps_per_s") == 0) & pl.col("is_consolidated")).height == 3


@pytest.mark.full_trace
@pytest.mark.parametrize(("name", "jobs"), [("physical_cluster_max_min_fairness", 96), ("seed=0_0e4a51", 1181)])
def test_the_real_traces(real_data, name, jobs):
    rates = real_data("throughput/gavel_simulation_throughputs.json.gz")
    trace = load("auto", [real_data(f"throughput/gavel_traces/{name}.trace"), rates])
    assert trace.jobs.height == trace.meta.load_report.rows_in == jobs
    assert set(trace.jobs["num_gpus"]) <= {1, 2, 4, 8}
    known = read_throughputs(rates).filter(
        (pl.col("gpu_type") == "V100") & pl.col("colocated_with").is_null() & pl.col("is_consolidated")
    )
    rate = {(row["job_class"], row["num_gpus"]): row["steps_per_s"] for row in known.iter_rows(named=True)}
    for job in trace.jobs.iter_rows(named=True):
        own = rate.get((job["workload"], job["num_gpus"]))
        assert job["duration_s"] == (pytest.approx(job["extra"]["total_steps"] / own) if own else None)
