"""What every registered placement must do; a new one is tested as soon as it is registered."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from analysis.errors import UnknownNameError, UsageError
from analysis.replay import PLACEMENTS, Cluster, ReplayResult, placement, replay
from tests.jobs import make_jobs
from tests.replay_cases import START
from tests.replay_checks import joined, overcommitted, schedule_bytes

each_placement = pytest.mark.parametrize("name", PLACEMENTS)


def make_log(*, num_jobs: int = 120, seed: int = 1) -> pl.DataFrame:
    """More than the cluster can carry: shares, gangs over nodes, CPUs and memory, types."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([0.25, 0.5, 0.5, 1, 1, 2, 4, 8, 12], num_jobs)
    rows = [
        {
            "job_id": str(i),
            "submit_time": START + timedelta(minutes=int(rng.integers(0, 120))),
            "num_gpus": float(gpus[i]),
            "num_cpus": float(rng.choice([1, 4, 9])) if i % 5 else None,
            "mem_gib": float(rng.choice([1, 20, 60])) if i % 7 else None,
            "duration_s": float(rng.choice([0, 60, 300, 1_200, 3_600, 0.1, 77.7])),
            "allowed_gpu_types": [["T4"], ["T4", "G2"], None][int(rng.integers(0, 3))] if gpus[i] < 4 else None,
        }
        for i in range(num_jobs)
    ]
    return make_jobs(rows)


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    return make_log()


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    nodes = {
        "node_id": ["1", "2", "10", "11", "12"],
        "num_gpus": [8, 8, 8, 4, 4],
        "gpu_type": ["G2", "G2", "G2", "T4", "T4"],
        "num_cpus": [16.0, 16.0, 24.0, 12.0, None],
        "mem_gib": [128.0, 64.0, None, 80.0, 80.0],
    }
    return Cluster(pl.DataFrame(nodes))


@pytest.fixture(params=["fifo", "easy", "sjf_skip"])
def result(request: pytest.FixtureRequest, name: str, log: pl.DataFrame, cluster: Cluster) -> ReplayResult:
    return replay(log, cluster=cluster, policy=request.param, placement=name)


@each_placement
def test_every_job_runs_once_on_nodes_of_a_type_that_it_may_use(result: ReplayResult, log: pl.DataFrame):
    table = joined(result, log)
    assert (table["state"] == "finished").all()
    assert (table["start"] >= table["submit"]).all()
    wrong = table.filter(~pl.col("gpu_type").is_in("allowed_gpu_types") & (pl.col("allowed_gpu_types").list.len() > 0))
    assert wrong.height == 0
    assert result.counts["max_queue_length"] > 10


@each_placement
def test_gpus_are_never_given_twice(result: ReplayResult, log: pl.DataFrame):
    assert overcommitted(result, log) == []


def busiest(result: ReplayResult, log: pl.DataFrame, cluster: Cluster) -> int:
    """Check CPUs and memory of all nodes whenever a job starts; return how often they were nearly all in use.

    A job that was stopped did not hold its GPUs from its first start to its last end, and is left out.
    """
    table = result.schedule.join(log.select("job_id", "num_cpus", "mem_gib"), on="job_id").filter(
        pl.col("start_time") < pl.col("end_time"), pl.col("nodes").list.len() == 1, pl.col("num_preemptions") == 0
    )
    on_nodes = table.with_columns(node_id=pl.col("nodes").list.first())
    crowded = 0
    for now in on_nodes["start_time"].unique():
        running = on_nodes.filter((pl.col("start_time") <= now) & (pl.col("end_time") > now))
        used = running.group_by("node_id").agg(pl.col("num_cpus", "mem_gib").sum())
        both = used.join(cluster.nodes.select("node_id", cpus="num_cpus", memory="mem_gib"), on="node_id")
        # Shares are rounded down: a thousandth of a CPU or a MiB a device.
        assert (both["num_cpus"] <= both["cpus"] + 0.1).fill_null(value=True).all()
        assert (both["mem_gib"] <= both["memory"] + 0.1).fill_null(value=True).all()
        crowded += int((both["num_cpus"] > 0.8 * both["cpus"]).sum() + (both["mem_gib"] > 0.8 * both["memory"]).sum())
    return crowded


@pytest.mark.parametrize("name", placement.SCORED)
def test_cpus_and_memory_are_never_given_twice(result: ReplayResult, log: pl.DataFrame, cluster: Cluster):
    assert busiest(result, log, cluster) > 10


@pytest.mark.parametrize("policy", ["srtf", "srtf_skip", "las_skip"])
@pytest.mark.parametrize("name", placement.SCORED)
def test_preemption_gives_no_cpu_or_memory_twice(name: str, policy: str, log: pl.DataFrame, cluster: Cluster):
    result = replay(log, cluster=cluster, policy=policy, placement=name)
    assert result.schedule["num_preemptions"].sum() > 0
    assert busiest(result, log, cluster) > 0


@each_placement
def test_the_order_of_rows_is_irrelevant(name: str, log: pl.DataFrame, cluster: Cluster):
    straight = replay(log, cluster=cluster, policy="easy", placement=name, seed=7)
    turned = Cluster(cluster.nodes[::-1])
    mixed = replay(log.sample(fraction=1, shuffle=True, seed=3), cluster=turned, policy="easy", placement=name, seed=7)
    assert schedule_bytes(straight) == schedule_bytes(mixed)


@each_placement
@pytest.mark.parametrize("tasks", range(2, 17))
def test_tasks_share_one_gpu_whatever_their_number(name: str, tasks: int):
    """1 / 6, 1 / 7 and 1 / 11 are no whole thousandths."""
    job = {"job_id": "1", "submit_time": START, "num_gpus": 1.0, "duration_s": 5.0, "num_tasks": tasks}
    result = replay(make_jobs([job]), cluster=Cluster.uniform(num_nodes=1, num_gpus=1), placement=name)
    assert result.schedule["state"].to_list() == ["finished"]


@each_placement
def test_preemptive_policies_place_by_it_too(name: str, log: pl.DataFrame, cluster: Cluster):
    result = replay(log, cluster=cluster, policy="srtf", placement=name)
    assert (result.schedule["state"] == "finished").all()
    assert result.schedule["num_preemptions"].sum() > 0


@each_placement
def test_its_rule_is_written_down(name: str):
    assert f"\n``{name}``\n    " in placement.__doc__


@each_placement
def test_conservative_backfill_knows_only_consolidate(name: str, log: pl.DataFrame, cluster: Cluster):
    if name == "consolidate":
        assert (replay(log, cluster=cluster, policy="conservative").schedule["state"] == "finished").all()
        return
    with pytest.raises(UsageError, match=f"found placement '{name}'"):
        replay(log, cluster=cluster, policy="conservative", placement=name)


def test_an_unknown_placement_is_refused(log: pl.DataFrame, cluster: Cluster):
    with pytest.raises(UnknownNameError, match=r"best_fit, consolidate, dot_product, fgd"):
        replay(log, cluster=cluster, placement="tetris")
