"""What every registered policy must do; a new one is tested as soon as it is registered."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from analysis.errors import UnknownNameError
from analysis.replay import POLICIES, Cluster, ReplayResult, replay
from tests.jobs import make_jobs
from tests.replay_cases import START
from tests.replay_checks import joined, overcommitted, schedule_bytes

GUESS = "predicted_duration_s"

pytestmark = pytest.mark.parametrize("policy", POLICIES)


def make_log(*, num_jobs: int = 150, seed: int = 0) -> pl.DataFrame:
    """Two VCs under more load than they can carry; times and lengths that coincide, gangs, fractions, a CPU job."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([0, 0.25, 0.5, 1, 1, 2, 4, 8, 12], num_jobs)
    rows = [
        {
            "job_id": str(i),
            "submit_time": START + timedelta(minutes=int(rng.integers(0, 200))),
            "num_gpus": float(gpus[i]),
            "duration_s": float(rng.choice([0, 60, 60, 300, 1_200, 3_600, 0.1, 77.7])),
            "vc": str(rng.choice(["left", "right"])),
        }
        for i in range(num_jobs)
    ]
    jobs = make_jobs(rows)
    wrong = np.exp(rng.normal(0, 1.5, num_jobs))
    return jobs.with_columns((pl.col("duration_s") * wrong + 1).alias(GUESS))


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    return make_log()


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """Two nodes of 8 in each VC; hardware not described, so that run times stay those of the log."""
    nodes = {"node_id": ["1", "2", "10", "11"], "num_gpus": [8, 8, 8, 8], "vc": ["left", "right", "left", "right"]}
    return Cluster(pl.DataFrame(nodes))


@pytest.fixture(params=[None, GUESS], ids=["true", "predicted"])
def result(request: pytest.FixtureRequest, policy: str, log: pl.DataFrame, cluster: Cluster) -> ReplayResult:
    return replay(log, cluster=cluster, policy=policy, predicted=request.param)


def test_every_gpu_job_starts_once_and_not_before_its_submission(result: ReplayResult, log: pl.DataFrame):
    table = joined(result, log)
    assert sorted(table["job_id"]) == sorted(log.filter(pl.col("num_gpus") > 0)["job_id"])
    assert (table["state"] == "finished").all()
    assert (table["start"] >= table["submit"]).all()
    assert POLICIES[result.policy].preempts or (table["num_preemptions"] == 0).all()
    assert result.counts["num_cpu_jobs_left_out"] == log.filter(pl.col("num_gpus") == 0).height > 0


def test_the_log_is_contended(result: ReplayResult):
    """Otherwise the other tests would show little."""
    assert result.counts["max_queue_length"] > (3 if POLICIES[result.policy].preempts else 10)
    if POLICIES[result.policy].preempts:
        # Who lends takes back now and then only.
        assert result.metrics()["num_preemptions"] > (1 if POLICIES[result.policy].leaves_vc else 10)


def test_run_time_is_the_logs(result: ReplayResult, log: pl.DataFrame):
    done = result.job_metrics()
    assert done["run_s"].to_list() == pytest.approx(done["duration_s"].to_list(), rel=1e-12)
    assert (result.schedule["wasted_gpu_s"] == 0).all()
    if not POLICIES[result.policy].preempts:
        table = joined(result, log)
        assert (table["end"] - table["start"]).to_list() == [round(s * 1e6) for s in table["duration_s"]]


def test_whole_gang_on_the_nodes_of_its_vc(result: ReplayResult, log: pl.DataFrame, cluster: Cluster):
    table = joined(result, log)
    sizes = dict(cluster.nodes.select("node_id", "num_gpus").iter_rows())
    vcs = dict(cluster.nodes.select("node_id", "vc").iter_rows())
    for gpus, vc, nodes in table.select("num_gpus", "vc", "nodes").iter_rows():
        assert {vcs[node] for node in nodes} == {vc} or POLICIES[result.policy].leaves_vc
        assert sum(sizes[node] for node in nodes) >= gpus
        assert len(nodes) == (1 if gpus <= 8 else 2)


def test_never_more_gpus_than_there_are(result: ReplayResult, log: pl.DataFrame):
    if POLICIES[result.policy].preempts:
        pytest.skip("a schedule does not say when stopped jobs held their GPUs; the reference engine asserts it")
    assert overcommitted(result, log) == []


def test_never_more_than_a_device_has(policy: str):
    """On nodes of one GPU a node is a device."""
    rng = np.random.default_rng(1)
    parts = [0.1, 0.3, 0.4, 0.5, 0.6, 0.7, 1.0]
    rows = [
        {
            "submit_time": START + timedelta(seconds=int(rng.integers(0, 60))),
            "num_gpus": float(rng.choice(parts)),
            "duration_s": float(rng.integers(1, 30)),
        }
        for _ in range(80)
    ]
    jobs = make_jobs(rows)
    result = replay(jobs, cluster=Cluster.uniform(num_nodes=3, num_gpus=1), policy=policy)
    assert result.counts["max_queue_length"] > 10
    if POLICIES[policy].preempts:
        return
    assert (result.schedule["nodes"].list.len() == 1).all()
    assert overcommitted(result, jobs) == []


def test_row_order_is_irrelevant(result: ReplayResult, log: pl.DataFrame, cluster: Cluster, policy: str):
    for seed in range(3):
        shuffled = log.sample(fraction=1, shuffle=True, seed=seed)
        nodes = cluster.nodes.sample(fraction=1, shuffle=True, seed=seed)
        again = replay(shuffled, cluster=Cluster(nodes), policy=policy, predicted=result.predicted)
        assert schedule_bytes(again) == schedule_bytes(result)


@pytest.mark.parametrize("shift", [timedelta(days=400, microseconds=1), timedelta(days=-30_000)], ids=str)
def test_shifted_times_shift_starts(
    result: ReplayResult, log: pl.DataFrame, cluster: Cluster, policy: str, shift: timedelta
):
    moved = log.with_columns(pl.col("submit_time") + shift)
    again = replay(moved, cluster=cluster, policy=policy, predicted=result.predicted)
    times = [pl.col("start_time") + shift, pl.col("end_time") + shift]
    assert again.schedule.equals(result.schedule.with_columns(times))


def test_no_contention_no_wait(policy: str, log: pl.DataFrame):
    """On a cluster that is large enough JCT = duration."""
    wide = replay(log, cluster=Cluster.uniform(num_nodes=300, num_gpus=8), policy=policy, predicted=GUESS)
    done = wide.job_metrics()
    assert done.height == log.filter(pl.col("num_gpus") > 0).height
    assert (done["queueing_delay_s"] == 0).all()
    assert done["jct_s"].to_list() == pytest.approx(done["duration_s"].to_list(), rel=1e-15)  # polars divides like that


def test_a_job_wider_than_its_vc_is_refused_by_name(
    result: ReplayResult, log: pl.DataFrame, cluster: Cluster, policy: str
):
    """Before the run: everybody else's schedule is as without it."""
    asked = {"submit_time": START + timedelta(hours=1), "duration_s": 5.0}
    extra = make_jobs(
        [
            asked | {"job_id": "900", "num_gpus": 17.0, "vc": "left"},
            asked | {"job_id": "901", "num_gpus": 1.0, "vc": "nowhere"},
            asked | {"job_id": "902", "num_gpus": 9.0, "vc": "left", "is_single_node": True},
            asked | {"job_id": "903", "num_gpus": None, "vc": "left"},
            asked | {"job_id": "904", "num_gpus": 1.0, "vc": "left", "duration_s": None},
        ]
    ).with_columns(pl.lit(1.0).alias(GUESS))
    again = replay(pl.concat([log, extra]), cluster=cluster, policy=policy, predicted=result.predicted).schedule
    refused = again.filter(pl.col("state") == "rejected")
    assert dict(refused.select("job_id", "reason").iter_rows()) == {
        "900": "exceeds_capacity",
        "901": "exceeds_capacity",
        "902": "exceeds_capacity",
        "903": "unknown_gpus",
        "904": "unknown_duration",
    }
    assert refused.select("start_time", "end_time", "nodes", "gpu_type").null_count().row(0) == (5, 5, 5, 5)
    assert again.filter(pl.col("state") != "rejected").equals(result.schedule)


def test_without_vcs_every_node_serves_everybody(policy: str, log: pl.DataFrame, cluster: Cluster):
    """As if neither jobs nor nodes had a VC."""
    ignored = replay(log, cluster=cluster, policy=policy, use_vcs=False)
    nobody = pl.lit(None, dtype=pl.String).alias("vc")
    bare = replay(log.with_columns(nobody), cluster=Cluster(cluster.nodes.with_columns(nobody)), policy=policy)
    assert ignored.schedule.equals(bare.schedule)


def test_wrong_names_are_refused(policy: str, log: pl.DataFrame, cluster: Cluster):
    with pytest.raises(UnknownNameError, match=GUESS):
        replay(log, cluster=cluster, policy=policy, predicted="predicted_typo_s")
    with pytest.raises(UnknownNameError, match="fifo_skip"):
        replay(log, cluster=cluster, policy=policy + "x")
    with pytest.raises(UnknownNameError, match="consolidate"):
        replay(log, cluster=cluster, policy=policy, placement="x")
