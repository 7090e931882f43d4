"""Types of GPUs, constraints, matches, consolidation and measured speeds: by hand, and against published figures."""

from __future__ import annotations

import gzip
import json

import numpy as np
import polars as pl
import pytest

from analysis import schema
from analysis.characterize import (
    gpu_types,
    gpus_per_node,
    idle_gpu_hours,
    type_constraints,
    type_matches,
)
from analysis.characterize.speedups import scaling_efficiency, speed_ratios
from analysis.errors import SchemaError, UnknownNameError
from analysis.loaders import load
from analysis.loaders.gavel_throughput import read_throughputs
from analysis.trace import Trace, TraceMeta
from tests.jobs import make_jobs

H = 3600.0


def trace():
    """Jobs on V100M16, T4 and an unsaid type; a cluster of 8 V100M16, 2 V100M32 and 10 T4."""
    rows = [
        # id, type, asked, GPUs, run, wait
        ("a", "V100M16", ["V100M32", "V100M16"], 4.0, 2 * H, 60.0),
        ("b", "V100M16", ["V100M16", "V100M32", "V100M32"], 2.0, 1 * H, 0.0),
        ("c", "T4", ["V100"], 1.0, 6 * H, 600.0),
        ("d", "T4", None, 1.0, 1 * H, 0.0),
        ("e", None, ["T4"], 1.0, None, None),
        ("f", "V100M16", ["V100"], 1.0, 1 * H, 30.0),
        ("g", None, [], 0.0, 1 * H, 0.0),
    ]
    names = ("job_id", "gpu_type", "allowed_gpu_types", "num_gpus", "duration_s", "queueing_delay_s")
    nodes = [("n1", "V100M16", 8), ("n2", "V100M32", 2), ("n3", "T4", 10), ("n4", None, 0)]
    table = [dict(zip(("node_id", "gpu_type", "num_gpus"), row, strict=True)) for row in nodes]
    return Trace(
        make_jobs([dict(zip(names, row, strict=True)) for row in rows]),
        meta=TraceMeta(name="t"),
        tables={"nodes": pl.DataFrame(table, schema=schema.NODES)},
    )


def test_demand_use_and_delay_by_type():
    rows = {row["gpu_type"]: row for row in gpu_types(trace()).iter_rows(named=True)}
    assert list(rows) == ["T4", "V100M16"]
    big = rows["V100M16"]
    assert (big["num_jobs"], big["job_share"], big["gpus_per_job"]) == (3, 0.6, pytest.approx(7 / 3))
    assert (big["gpu_hours"], big["gpu_time_share"]) == (11, pytest.approx(11 / 18))
    assert (big["total_gpus"], big["capacity_share"], big["speed"]) == (8, 0.4, 1.0)
    assert (big["median_duration_s"], big["p50_queueing_delay_s"], big["mean_queueing_delay_s"]) == (H, 30, 30)
    assert rows["T4"]["mean_queueing_delay_s"] == 300
    assert rows["T4"]["speed"] is None  # nobody measured it


def test_constraints_are_sets():
    table = type_constraints(trace())
    # The order of the types and a repetition do not matter; the frequent set comes first, ties by the alphabet.
    assert table["gpu_types"].to_list() == ["any", "V100", "V100M16|V100M32", "T4"]
    anything, family, pair, _ = table.iter_rows(named=True)
    assert (anything["num_jobs"], anything["num_types"], anything["total_gpus"]) == (1, None, 20)
    assert (pair["num_jobs"], pair["num_gpus"], pair["num_types"], pair["total_gpus"]) == (2, 6, 2, 10)
    assert (pair["gpu_hours"], pair["mean_queueing_delay_s"]) == (10, 30)
    # A bare family name stands for its variants.
    assert (family["num_jobs"], family["total_gpus"]) == (2, 10)
    few = type_constraints(trace(), num_top=1)
    assert few.select("gpu_types", "num_jobs", "num_types").rows() == [
        ("any", 1, None),
        ("V100", 2, 1),
        ("other", 3, None),
    ]


def test_matches_of_asked_and_given_types():
    table = type_matches(trace())
    assert table.select("asked", "gpu_type", "is_match", "num_jobs", "job_share").rows() == [
        ("V100", "T4", False, 1, 0.25),
        ("V100", "V100M16", True, 1, 0.25),
        ("V100M16|V100M32", "V100M16", True, 2, 0.5),
    ]
    assert table["gpu_time_share"].to_list() == pytest.approx([6 / 17, 1 / 17, 10 / 17])


def test_logs_without_types_have_empty_tables():
    log = trace()
    bare = log.jobs.with_columns(gpu_type=pl.lit(None, pl.String), allowed_gpu_types=pl.lit(None, pl.List(pl.String)))
    for table in (gpu_types, type_constraints, type_matches):
        assert table(bare).height == 0
        assert table(bare).schema == table(log).schema


def test_measured_use_by_type():
    usage = pl.DataFrame(
        [{"job_id": "a", "gpu_utilization_mean": 0.25}, {"job_id": "d", "gpu_utilization_mean": 1.0}],
        schema=schema.USAGE,
    )
    table = idle_gpu_hours(trace().with_tables(usage=usage), by="gpu_type").filter(bucket="all")
    assert table.select("gpu_type", "num_jobs", "num_measured", "gpu_utilization").rows() == [
        ("T4", 2, 1, 1.0),
        ("V100M16", 3, 1, 0.25),
    ]


def test_consolidation_by_hand():
    rows = [(16.0, 2), (16.0, 4), (8.0, 1), (8.0, 2), (2.0, 1), (2.0, 2), (1.0, 1), (96.0, 12), (4.0, None)]
    jobs = make_jobs([{"num_gpus": gpus, "num_nodes": nodes, "duration_s": H} for gpus, nodes in rows])
    table = gpus_per_node(jobs, node_gpus=8)
    found = {(row["bucket"], row["num_nodes"]): row for row in table.iter_rows(named=True)}
    assert list(found)[:4] == [("all", 1), ("all", 2), ("all", 4), ("all", 8)]
    assert (found[">8", 2]["num_jobs"], found[">8", 2]["fewest_share"]) == (1, 1)
    assert (found[">8", 4]["gpus_per_node"], found[">8", 4]["fewest_share"]) == (4, 0)
    assert (found[">8", 8]["is_or_more"], found[">8", 8]["fewest_share"]) == (True, 1)
    assert found["5-8", 2]["job_share"] == 0.5
    assert (found["all", 2]["num_jobs"], found["all", 2]["fewest_share"]) == (3, pytest.approx(1 / 3))
    assert found["all", 8]["gpu_time_share"] == pytest.approx(96 / 148)
    assert gpus_per_node(jobs)["fewest_share"].null_count() == table.height


@pytest.mark.full_trace
def test_openb_gpuspec33_has_the_constraints_of_its_file(real_data):
    files = ("alibaba/openb_pod_list_gpuspec33.csv", "alibaba/openb_node_list_all_node.csv")
    table = type_constraints(load("openb", [real_data(name) for name in files]))
    rows = {row["gpu_types"]: row for row in table.iter_rows(named=True)}
    assert rows["any"]["num_jobs"] == 7064 - 2388
    assert [rows[name]["num_jobs"] for name in ("T4", "G2", "P100")] == [1291, 331, 279]
    assert rows["V100M16|V100M32"]["num_jobs"] == 141 + 22
    assert [rows[name]["total_gpus"] for name in ("any", "T4", "V100M16|V100M32")] == [6212, 842, 195 + 204]
    assert table["num_jobs"].sum() == 7064


class TestMeasuredSpeeds:
    def test_ratios_and_efficiency_of_two_classes(self):
        rows = [
            ("A", "K80", 1, None, True, 1.0),
            ("A", "V100", 1, None, True, 2.0),
            ("A", "V100", 4, None, True, 6.0),
            ("B", "K80", 1, None, True, 1.0),
            ("B", "V100", 1, None, True, 8.0),
            ("B", "V100", 1, "A", True, 100.0),
            ("C", "K80", 1, None, True, 0.0),
            ("C", "V100", 1, None, True, 1.0),
        ]
        names = ["job_class", "gpu_type", "num_gpus", "colocated_with", "is_consolidated", "steps_per_s"]
        table = pl.DataFrame(rows, schema=names, orient="row")
        row = speed_ratios(table).row(0, named=True)
        # 1/2 and 1/8: their geometric mean is 1/4. C does not run on a K80, and shared GPUs say nothing.
        assert (row["num_classes"], row["geometric_mean_ratio"]) == (2, pytest.approx(0.25))
        assert (row["min_ratio"], row["slowest_class"], row["fastest_class"]) == (0.125, "B", "A")
        assert speed_ratios(table, reference="K80")["geometric_mean_ratio"].item() == pytest.approx(4)
        scaling = scaling_efficiency(table).row(0, named=True)
        assert (scaling["num_gpus"], scaling["geometric_mean_efficiency"]) == (4, pytest.approx(0.75))
        with pytest.raises(UnknownNameError, match="H100.*K80, V100"):
            speed_ratios(table, reference="H100")
        with pytest.raises(SchemaError, match="'gpu_type' is missing"):
            scaling_efficiency(table.drop("gpu_type"))

    @pytest.mark.full_trace
    def test_gavel_against_the_file_read_by_other_means(self, real_data):
        path = real_data("throughput/gavel_simulation_throughputs.json.gz")
        raw = json.loads(gzip.decompress(path.read_bytes()))
        rates = {kind: {key: pairs["null"] for key, pairs in raw[kind].items() if key.endswith(", 1)")} for kind in raw}
        both = [key for key in rates["v100"] if rates["v100"][key] > 0 and rates["k80"][key] > 0]
        ratios = np.array([rates["v100"][key] / rates["k80"][key] for key in both])
        table = speed_ratios(read_throughputs(path), reference="K80")
        row = table.filter(gpu_type="V100", num_gpus=1, is_consolidated=True).row(0, named=True)
        assert row["num_classes"] == len(both) == 26
        assert row["geometric_mean_ratio"] == pytest.approx(np.exp(np.log(ratios).mean()))
        assert (row["min_ratio"], row["max_ratio"]) == (pytest.approx(ratios.min()), pytest.approx(ratios.max()))
        # OSDI 2020 says that A3C gains about two times from a V100 over a K80: so it does in the file.
        a3c = speed_ratios(read_throughputs(path).filter(job_class="A3C"), reference="K80")
        assert a3c.filter(gpu_type="V100", is_consolidated=True)["max_ratio"].item() == pytest.approx(2, abs=0.1)
