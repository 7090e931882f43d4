"""Files of which the content is no jobs: GenAI's telemetry and requests, Helios' GPUs per VC and day, openb's nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.laws.formats.common import (
    SHANGHAI,
    Expected,
    Format,
    Job,
    at,
    hashes,
    local,
    numerals,
    rows_to,
    seconds,
)

#: File -> order of its columns, metric, what a value is divided by.
TELEMETRY = {
    "queue_size_raw_anon": ("vct", "queue_size", 1),
    "queue_rt_raw_anon": ("vct", "queue_response_s", 1000),
    "pipeline_update_latency_anon": ("tvc", "pipeline_update_s", 1000),
    "basemodel_update_latency_anon": ("tvc", "base_model_update_s", 1000),
    "lora_update_latency_anon": ("tvc", "lora_update_s", 1000),
    "controlnet_latency_data_anon": ("tvc", "controlnet_s", 1000),
    "model_predict_data_anon": ("tvc", "model_predict_s", 1000),
    "pipeline_inference_data_anon": ("tvc", "pipeline_inference_s", 1000),
    "pod_memory_util_anon": ("vtc", "mem_utilization", 1),
    "pod_gpu_duty_cycle_anon": ("vtc", "gpu_utilization", 100),
    "pod_gpu_memory_used_bytes_anon": ("tvc", "gpu_mem_used_gib", 2**30),
}
LETTERS = {"t": "timestamp_anon", "v": "value", "c": "container_ip"}
RATES = {"Generative Requests": "generative_request_rate", "API Requests": "api_request_rate"}
STATUSES = {"SUCCEED": "completed", "FAILED": "failed", "PROCESSING": "running"}
REQUEST = ["gmt_create", "predict_type", "predict_status", "exec_time_seconds", "groupId", "prompt_length"]
REQUEST += ["negative_prompt_length", "num_images_per_prompt", "num_inference_steps", "checkpoint_model_version_id"]
#: Column -> metric.
STATED = {
    "exec_time_seconds": "request_exec_s",
    "prompt_length": "request_prompt_length",
    "negative_prompt_length": "request_negative_prompt_length",
    "num_images_per_prompt": "request_images",
    "num_inference_steps": "request_inference_steps",
    "num_lora": "request_loras",
}
TELEMETRY_S = 1_662_858_720


@st.composite
def genai_cases(draw):
    amount = st.integers(0, 10**7).map(lambda eighth: eighth / 8)
    row = st.tuples(st.integers(0, 80_000), st.none() | amount, st.none() | hashes)
    files = draw(st.dictionaries(st.sampled_from(list(TELEMETRY)), st.lists(row, max_size=4), max_size=3))
    rates = draw(st.lists(st.tuples(row, st.sampled_from(list(RATES))), min_size=1, max_size=4))
    request = {
        "at": seconds,
        "predict_type": st.sampled_from(["TXT_2_IMG", "IMG_2_IMG", "INPAINTING"]),
        "predict_status": st.sampled_from(list(STATUSES)),
        "groupId": hashes,
        **dict.fromkeys(STATED, st.none() | st.integers(0, 4000)),
    }
    requests = draw(st.lists(st.fixed_dictionaries(request), max_size=4))
    missing = draw(st.sampled_from(["", "None", "NULL"]))
    return {"files": files, "rates": rates, "requests": requests, "missing": missing}


def write_genai(folder: Path, case: dict[str, Any]) -> Path:
    def shown(row: tuple[int, float | None, str | None]) -> dict[str, Any]:
        time, value, container = row
        return {
            "t": float(TELEMETRY_S + time),
            "v": "" if value is None else value,
            "c": case["missing"] if container is None else container,
        }

    for name, rows in case["files"].items():
        order = TELEMETRY[name][0]
        rows_to(folder / f"{name}.csv", [LETTERS[x] for x in order], [[shown(row)[x] for x in order] for row in rows])
    head = ["timestamp_anon", "value", "container_ip", "request_type"]
    rows_to(folder / "qps.csv", head, [[*(shown(row)[x] for x in "tvc"), kind] for row, kind in case["rates"]])
    requests = []
    for one in case["requests"]:
        cells = {name: "" if value is None else value for name, value in one.items()}
        cells |= {"gmt_create": local(at(one["at"]), SHANGHAI), "checkpoint_model_version_id": "M1"}
        requests.append([cells[name] for name in [*REQUEST, "num_lora"]])
    rows_to(folder / "lora_request_trace.csv", [*REQUEST, "num_lora"], requests)
    return folder


def expect_genai(case: dict[str, Any]) -> Expected:
    def one(row: tuple[int, float | None, str | None], metric: str, divisor: int) -> Job:
        time, value, container = row
        where = {"entity": container or "all", "time": at(time, origin=TELEMETRY_S), "metric": metric}
        return where | {"value": None if value is None else value / divisor}

    series = [one(row, *TELEMETRY[name][1:]) for name, rows in case["files"].items() for row in rows]
    series += [one(row, RATES[kind], 1) for row, kind in case["rates"]]
    for request in case["requests"]:
        marks = {
            f"request_{STATUSES[request['predict_status']]}": 1,
            f"request_type_{request['predict_type'].lower()}": 1,
        }
        stated = {metric: request[name] for name, metric in STATED.items() if request[name] is not None}
        where = {"entity": request["groupId"], "time": at(request["at"])}
        series += [where | {"metric": metric, "value": value} for metric, value in (stated | marks).items()]
    rows = sum(map(len, case["files"].values())) + len(case["rates"]) + len(case["requests"])
    return Expected([], rows, {"usage_series": series})


@st.composite
def capacity_cases(draw):
    name = st.text("abcXYZ019", min_size=3, max_size=3).map("vc{}".format)
    vcs = draw(st.lists(name, min_size=1, max_size=4, unique=True))
    day = st.lists(st.sampled_from([0, 8, 12, 64, 136]), min_size=len(vcs), max_size=len(vcs))
    return {"vcs": vcs, "days": draw(st.lists(day, max_size=6)), "first": draw(st.integers(0, 100))}


def midnight(case: dict[str, Any], day: int) -> datetime:
    return datetime(2020, 4, 1, tzinfo=SHANGHAI) + timedelta(days=case["first"] + day)


def write_capacity(folder: Path, case: dict[str, Any]) -> Path:
    rows = [[f"{midnight(case, day):%Y-%m-%d}", *sizes, sum(sizes)] for day, sizes in enumerate(case["days"])]
    return rows_to(folder / "cluster_gpu_number.csv", ["date", *case["vcs"], "total"], rows)


def expect_capacity(case: dict[str, Any]) -> Expected:
    """The capacity holds changes; the nodes are the last day's GPUs, eight to a node."""
    capacity, nodes = [], []
    for place, vc in enumerate(case["vcs"]):
        sizes = [day[place] for day in case["days"]]
        for day, size in enumerate(sizes):
            if day == 0 or size != sizes[day - 1]:
                capacity.append({"vc": vc, "time": midnight(case, day).astimezone(UTC), "num_gpus": size})
        whole, rest = divmod(sizes[-1], 8) if sizes else (0, 0)
        nodes += [{"vc": vc, "num_gpus": size} for size in [8] * whole + [rest] * (rest > 0)]
    return Expected([], len(case["days"]), {"capacity": capacity, "nodes": nodes})


@st.composite
def node_cases(draw):
    node = st.tuples(st.integers(1, 128), st.integers(1, 1024), st.integers(0, 8), st.sampled_from(["T4", "G2", "A10"]))
    return draw(st.dictionaries(numerals.map("openb-node-{}".format), node, max_size=8))


def write_nodes(folder: Path, case: dict[str, Any]) -> list[Path]:
    """The nodes come beside a list of pods."""
    rows = [
        [name, cpus * 1000, gib * 1024, gpus, model if gpus else ""] for name, (cpus, gib, gpus, model) in case.items()
    ]
    pods = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"]
    return [
        rows_to(folder / "openb_node_list_all_node.csv", ["sn", "cpu_milli", "memory_mib", "gpu", "model"], rows),
        rows_to(folder / "openb_pod_list_multigpu20.csv", pods, [["openb-pod-1", 6100, 25_000, 4, 1000]]),
    ]


def expect_nodes(case: dict[str, Any]) -> Expected:
    nodes = [
        {"node_id": name, "num_cpus": cpus, "mem_gib": gib, "num_gpus": gpus, "gpu_type": model if gpus else None}
        for name, (cpus, gib, gpus, model) in case.items()
    ]
    return Expected([{"job_id": "openb-pod-1", "num_gpus": 4, "num_cpus": 6.1}], 1 + len(nodes), {"nodes": nodes})


FORMATS = {
    "genai": Format("genai", genai_cases(), write_genai, expect_genai),
    "helios GPU numbers": Format("helios", capacity_cases(), write_capacity, expect_capacity),
    "openb nodes": Format("openb", node_cases(), write_nodes, expect_nodes),
}
