"""Counts and means of public files, each known from the file itself, read here through the public API only.

Skipped, with the file's name, where a file is missing. Those that only a fetched trace can show are in
``test_checklist_fetched.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from analysis.loaders import load
from analysis.trace import Trace

RealData = Callable[[str], Path]

pytestmark = pytest.mark.full_trace


def counts(column: pl.Series) -> dict[object, int]:
    """How often each value occurs; nulls under None."""
    return dict(column.cast(pl.String).value_counts().rows())


def extra(trace: Trace, name: str) -> pl.Series:
    """A column of the source that has no place in the schema."""
    return trace.jobs["extra"].struct.field(name)


def seconds(times: pl.Series) -> pl.Series:
    """Seconds from the start of a relative trace."""
    return times.dt.timestamp("us") / 1e6


@pytest.fixture(scope="module")
def openb(real_data: RealData) -> Trace:
    names = ("alibaba/openb_pod_list_default.csv", "alibaba/openb_node_list_all_node.csv")
    return load("openb", [real_data(name) for name in names])


@pytest.fixture(scope="module")
def dlrm(real_data: RealData) -> Trace:
    return load("dlrm", real_data("alibaba/disaggregated_DLRM_trace.csv"))


class TestOpenb:
    def test_nodes_by_model(self, openb: Trace) -> None:
        nodes = openb.nodes
        assert (nodes.height, nodes.filter(pl.col("num_gpus") > 0).height, nodes["num_gpus"].sum()) == (
            1523,
            1213,
            6212,
        )
        by = nodes.group_by("gpu_type").agg(nodes=pl.len(), gpus=pl.col("num_gpus").sum())
        assert {model: (count, gpus) for model, count, gpus in by.rows()} == {
            "G2": (549, 4392),
            "T4": (404, 842),
            "P100": (134, 265),
            "V100M16": (55, 195),
            "G3": (39, 312),
            "V100M32": (30, 204),
            "A10": (2, 2),
            None: (310, 0),
        }

    def test_processors_and_memory(self, openb: Trace) -> None:
        with_gpus = openb.nodes.filter(pl.col("num_gpus") > 0)
        assert openb.nodes["num_cpus"].sum() == pytest.approx(125_514)
        assert with_gpus["num_cpus"].sum() == pytest.approx(107_018)
        assert openb.nodes["mem_gib"].sum() == pytest.approx(597_684, abs=0.5)
        assert with_gpus["mem_gib"].sum() == pytest.approx(492_020, abs=0.5)

    def test_the_list_of_gpu_nodes_holds_the_same_machines(self, openb: Trace, real_data: RealData) -> None:
        pods = real_data("alibaba/openb_pod_list_default.csv")
        alone = load("openb", [pods, real_data("alibaba/openb_node_list_gpu_node.csv")]).nodes
        kinds = ["gpu_type", "num_gpus", "num_cpus", "mem_gib"]
        ours = openb.nodes.filter(pl.col("num_gpus") > 0)
        assert alone.select(kinds).sort(kinds).equals(ours.select(kinds).sort(kinds))

    def test_devices_and_shares(self, openb: Trace) -> None:
        devices = counts(extra(openb, "num_gpu"))
        assert devices == {"0": 1088, "1": 6989, "2": 16, "4": 15, "8": 44}
        pairs = openb.jobs.unnest("extra").group_by("num_gpu", milli=pl.col("gpu_milli") < 1000).len().rows()
        assert {(devices, is_share): count for devices, is_share, count in pairs} == {
            (0, True): 1088,
            (1, True): 3078,
            (1, False): 3911,
            (2, False): 16,
            (4, False): 15,
            (8, False): 44,
        }
        assert openb.jobs["num_gpus"].sum() == pytest.approx(6086.8)

    def test_phases_and_qos(self, openb: Trace) -> None:
        phases = {"Running": 5193, "Failed": 1870, "Pending": 897, "Succeeded": 192}
        assert counts(openb.jobs["status_raw"]) == phases
        assert counts(extra(openb, "qos")) == {"LS": 4647, "BE": 3398, "Burstable": 100, "Guaranteed": 7}

    def test_times(self, openb: Trace) -> None:
        created, deleted = seconds(openb.jobs["submit_time"]), extra(openb, "deletion_time")
        assert (created.min(), created.max()) == (0, 12_901_761)
        assert (deleted.min(), deleted.max(), deleted.null_count()) == (9_964_972, 12_902_960, 0)
        waits, durations = openb.jobs["queueing_delay_s"], openb.jobs["duration_s"]
        assert waits.mean() == pytest.approx(61.30, abs=0.005)
        assert (waits.median(), waits.max(), waits.count()) == (2, 14_330, 7255)
        assert durations.mean() == pytest.approx(28_949.46, abs=0.005)
        assert (durations.median(), durations.max(), durations.count()) == (616, 12_537_496, 7255)

    def test_phase_is_not_outcome(self, openb: Trace) -> None:
        # 897 pending pods were deleted without a start; 34 running ones last as long as the list.
        censoring = counts(openb.jobs["censoring"])
        assert censoring == {"none": 8152 - 897 - 34, "never_started": 897, "right": 34}
        pending = openb.jobs.filter(pl.col("status_raw") == "Pending")
        assert pending["start_time"].null_count() == pending["end_time"].null_count() == 897

    def test_gpuspec33_constraints(self, real_data: RealData) -> None:
        trace = load("openb", real_data("alibaba/openb_pod_list_gpuspec33.csv"))
        jobs = trace.jobs.filter(pl.col("num_gpus") > 0)
        spec = jobs["allowed_gpu_types"].list.join("|").replace("", None)
        assert (jobs.height, spec.count()) == (7064, 2388)
        found = counts(spec)
        assert (found["T4"], found["G2"], found["P100"]) == (1291, 331, 279)
        # The file writes the pair 141 times as it is and 22 times with a repetition, which the loader drops.
        assert found["V100M16|V100M32"] == 141 + 22
        assert not any("V100M32|V100M32" in str(name) for name in found)

    @pytest.mark.parametrize(
        ("variant", "rows"), [("cpu250", 9420), ("gpushare40", 8152), ("gpuspec33", 8152), ("multigpu50", 9061)]
    )
    def test_rows_of_the_variants(self, real_data: RealData, variant: str, rows: int) -> None:
        assert load("openb", real_data(f"alibaba/openb_pod_list_{variant}.csv")).jobs.height == rows


class TestDlrm:
    def test_roles_and_applications(self, dlrm: Trace) -> None:
        assert dlrm.jobs.height == 23_871
        assert counts(dlrm.jobs["workload"]) == {"CN": 16_485, "HN": 7_386}
        gpus = dlrm.jobs.group_by("workload", "num_gpus").len().rows()
        assert sorted(gpus) == [("CN", 0.0, 16_485), ("HN", 1.0, 7_386)]
        assert dlrm.jobs["group"].n_unique() == 156

    def test_which_times_are_known(self, dlrm: Trace) -> None:
        jobs = dlrm.jobs
        nulls = (jobs[name].null_count() for name in ("submit_time", "start_time", "end_time"))
        assert tuple(nulls) == (7_280, 7_280, 8_878)
        assert counts(jobs["censoring"]) == {"none": 12_390, "both": 4_677, "right": 4_201, "left": 2_603}

    def test_durations_and_waits(self, dlrm: Trace) -> None:
        whole = dlrm.jobs.filter(pl.col("censoring") == "none")
        durations = whole["duration_s"]
        assert durations.mean() == pytest.approx(102_491, abs=0.5)
        assert (durations.median(), durations.max(), durations.min()) == (8278.5, 2_462_429, 0)
        assert (durations == 0).sum() == 16
        # Waits are of all instances created inside the trace, also those that were not deleted.
        waits = dlrm.jobs["queueing_delay_s"]
        assert waits.count() == 12_390 + 4_201
        assert waits.mean() == pytest.approx(187.93, abs=0.005)
        assert (waits.median(), waits.max()) == (0, 238_116)

    def test_last_time_and_disks(self, dlrm: Trace) -> None:
        last = max(seconds(dlrm.jobs[name]).max() for name in ("submit_time", "start_time", "end_time"))
        assert last == 2_677_541
        assert (extra(dlrm, "disk_limit") != extra(dlrm, "disk_request")).sum() == 23_201


def test_spot_nodes(real_data: RealData) -> None:
    nodes = load("spot_gpu", real_data("alibaba/spot_node_info_df.csv")).nodes
    assert (nodes.height, nodes["num_gpus"].sum(), nodes["num_cpus"].sum()) == (4278, 10_412, 632_636)
    by = nodes.group_by("gpu_type").agg(nodes=pl.len(), gpus=pl.col("num_gpus").sum())
    assert {model: (count, gpus) for model, count, gpus in by.rows()} == {
        "A10": (2494, 2494),
        "GPU-series-1": (989, 1558),
        "A100-SXM4-80GB": (432, 3456),
        "H800": (219, 1752),
        "GPU-series-2": (122, 976),
        "A800-SXM4-80GB": (22, 176),
    }


class TestGenai:
    @pytest.fixture(scope="class")
    @staticmethod
    def requests(real_data: RealData) -> Trace:
        return load("genai", real_data("alibaba/genai_lora_request_trace.csv.gz"))

    def test_requests_by_status_and_type(self, requests: Trace) -> None:
        sums = dict(requests.scan("usage_series").group_by("metric").agg(pl.col("value").sum()).collect().rows())
        assert requests.meta.load_report.rows_in == 26_823
        # PENDING is outside the documented set: unknown, named and counted.
        statuses = ("completed", "failed", "unknown", "running")
        assert [sums[f"request_{name}"] for name in statuses] == [26_392, 398, 30, 3]
        assert requests.meta.load_report.notes[-1] == "Unknown request statuses: PENDING (30)."
        kinds = ("txt_2_img", "img_2_img", "inpainting")
        assert [sums[f"request_type_{name}"] for name in kinds] == [24_438, 2_199, 186]

    def test_execution_times_groups_and_empty_fields(self, requests: Trace) -> None:
        series = requests.scan("usage_series").collect()
        seconds = series.filter(pl.col("metric") == "request_exec_s")["value"]
        assert seconds.mean() == pytest.approx(28.67, abs=0.005)
        assert (seconds.median(), seconds.max(), seconds.count()) == (23, 567, 26_823)
        assert series["entity"].n_unique() == 4_247
        stated = counts(series["metric"])
        assert 26_823 - stated["request_negative_prompt_length"] == 6_215
        for name in ("request_prompt_length", "request_images", "request_inference_steps"):
            assert 26_823 - stated[name] == 25

    def test_the_requests_span(self, requests: Trace) -> None:
        # 2024-11-15 16:57:50 to 2024-12-08 17:33:57 in China.
        assert requests.meta.window == ("2024-11-15T08:57:50+00:00", "2024-12-08T09:33:57+00:00")


def test_pai_machine_spec_is_the_published_file(real_data: RealData) -> None:
    path = real_data("alibaba/pai_machine_spec.tar.gz")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == "cc0d38a4045af1b1af8179de8b1b54b1ddd995e6160d6d061a6b1000f1276c2d"
