"""How fast pods are packed, in CPU time; run with ``--benchmark-enable``. README.md keeps the results."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.loaders import load
from analysis.replay import Cluster, inflate, pack
from analysis.replay.placement import SCORED

cpu_time = pytest.mark.benchmark(timer=time.process_time, warmup=True)


@pytest.fixture(scope="module")
def openb(real_data: Callable[[str], Path]) -> tuple[pl.DataFrame, pl.DataFrame, Cluster]:
    """Pods that ask for 130 % of 6,212 GPUs, the pods they are drawn from, and the nodes."""
    names = ("pod_list_default", "node_list_gpu_node")
    trace = load("openb", [real_data(f"alibaba/openb_{name}.csv") for name in names])
    cluster = Cluster.from_trace(trace)
    return inflate(trace.jobs, num_gpus=cluster.num_gpus, load=1.3, seed=42), trace.jobs, cluster


@pytest.mark.full_trace
@cpu_time
@pytest.mark.parametrize("placement", SCORED)
def test_openb(benchmark: Any, openb: tuple[pl.DataFrame, pl.DataFrame, Cluster], placement: str):
    """10,826 pods on 1,213 nodes. Goal for fgd: 50,000 pods a CPU second, 0.22 s."""
    pods, typical, cluster = openb
    options = {"cluster": cluster, "placement": placement, "typical": typical}
    result = benchmark.pedantic(pack, (pods,), options, rounds=3, warmup_rounds=1)
    assert result.placed.height == 10_826
