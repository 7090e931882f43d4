"""HeliosArtifact's rules: against a second-by-second restatement, and each difference from our own rules by name."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import UnknownNameError, UsageError
from analysis.replay import Cluster, helios_artifact, replay
from tests.benchmarks.test_replay_speed import philly_jobs
from tests.jobs import make_jobs
from tests.reference_helios import Task, TickByTick
from tests.replay_cases import START, small

POLICIES = ("fifo", "sjf", "srtf", "qssf")


def log(*rows: tuple[float, float, float], vc: str | None = None) -> pl.DataFrame:
    """Jobs 1, 2, … of (submission [s], GPUs, duration [s]), rows in this order."""
    table = [
        {
            "job_id": str(i),
            "submit_time": START + timedelta(seconds=at),
            "num_gpus": gpus,
            "duration_s": length,
            "vc": vc,
        }
        for i, (at, gpus, length) in enumerate(rows, start=1)
    ]
    return make_jobs(table, sort=False)


def site(num_nodes: int) -> Cluster:
    return Cluster.uniform(num_nodes=num_nodes, num_gpus=8)


def times(jobs: pl.DataFrame, num_nodes: int, **how: Any) -> list[tuple[float, float]]:
    """Start and end of every job by their rules, in the order of the log."""
    return helios_artifact(jobs, cluster=site(num_nodes), **how).schedule.select("start_s", "end_s").rows()


def our_times(jobs: pl.DataFrame, num_nodes: int, **how: Any) -> list[tuple[float, float]]:
    return replay(jobs, cluster=site(num_nodes), **how).schedule.select("start_s", "end_s").rows()


# --- the same as second by second ------------------------------------------------------------------------------------

job_rows = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5, 8, 13, 21]),
        st.sampled_from([1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 8, 9, 12, 16, 17, 20]),
        st.sampled_from([1, 1, 2, 3, 5, 8, 9, 10, 17, 40, 90]),
    ),
    min_size=1,
    max_size=14,
)


def differences(jobs: list[tuple[int, int, int]], *, num_nodes: int, policy: str) -> list[str]:
    jobs = [(at, gpus, length) for at, gpus, length in jobs if -(-gpus // 8) <= num_nodes]
    tasks = [Task(str(i), at, length, gpus) for i, (at, gpus, length) in enumerate(jobs, start=1)]
    TickByTick(tasks, num_nodes=num_nodes, policy=policy).run()
    if not tasks:
        return []
    first = min(task.submit for task in tasks)
    schedule = helios_artifact(log(*jobs), cluster=site(num_nodes), policy=policy).schedule
    found = {
        name: (start, end, [int(node[1:]) for node in nodes], stops)
        for name, start, end, nodes, stops in schedule.select(
            "job_id", "start_s", "end_s", "nodes", "num_preemptions"
        ).iter_rows()
    }
    expected = {
        task.name: (task.start - first, task.end - first, list(task.nodes), task.stops)
        for task in tasks
        if task.start is not None and task.end is not None
    }
    return [f"{name}: {expected[name]} {found[name]}" for name in expected if expected[name] != found[name]]


@pytest.mark.parametrize("policy", POLICIES)
@small
@given(jobs=job_rows, num_nodes=st.integers(1, 4))
def test_every_second_walked_through_gives_the_same(policy: str, jobs: list[tuple[int, int, int]], num_nodes: int):
    assert differences(jobs, num_nodes=num_nodes, policy=policy) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_crowds_walked_through_give_the_same(policy: str):
    for seed in range(6):
        rng = random.Random(seed)
        jobs = [
            (rng.randrange(300), rng.choice([1, 1, 1, 2, 4, 4, 6, 8, 12, 16]), rng.choice([1, 5, 9, 20, 20, 60, 150]))
            for _ in range(90)
        ]
        assert differences(jobs, num_nodes=rng.randint(2, 4), policy=policy) == []


# --- what differs from our rules, each on a case worked out by hand --------------------------------------------------


def test_the_rest_of_a_wide_job_goes_to_the_most_free_node_not_to_the_fullest():
    # n0 has 4 GPUs free, n1 1, n2 2, n3 and n4 are empty. Job 4 asks for 10 = 8 + 2. Best fit puts the 2 on n2, which
    # has just 2; worst fit on the emptiest node beside n3: n4.
    jobs = log((0, 4, 9), (0, 7, 9), (0, 6, 9), (1, 10, 9))
    ours = replay(jobs, cluster=site(5)).schedule["nodes"].to_list()
    theirs = helios_artifact(jobs, cluster=site(5)).schedule["nodes"].to_list()
    assert ours == [["n0"], ["n1"], ["n2"], ["n2", "n3"]]
    assert theirs == [["n0"], ["n1"], ["n2"], ["n3", "n4"]]


def test_jobs_of_one_second_keep_the_order_of_the_trace():
    # Job 2 stands before job 1 in the trace; both in second 5, job 1 a quarter earlier.
    jobs = log((5.25, 8, 10), (5.5, 8, 10)).reverse()
    assert our_times(jobs, 1) == [(0.0, 10.0), (10.0, 20.0)]
    # Second 6 is the first tick at which they are seen, 0.75 s after the first submission.
    assert times(jobs, 1) == [(10.75, 20.75), (0.75, 10.75)]


def test_ticks_of_a_second():
    # 1.5 s count as 2; the next job starts then, not half a second earlier.
    jobs = log((0, 8, 1.5), (1, 8, 3))
    assert our_times(jobs, 1) == [(0.0, 1.5), (1.5, 4.5)]
    assert times(jobs, 1) == [(0.0, 2.0), (2.0, 5.0)]


def test_srtf_runs_a_second_longer_than_the_duration():
    jobs = log((0, 8, 10), (0, 8, 20))
    assert our_times(jobs, 1, policy="srtf") == [(0.0, 10.0), (10.0, 30.0)]
    assert times(jobs, 1, policy="srtf") == [(0.0, 11.0), (11.0, 32.0)]
    assert times(jobs, 1, policy="sjf") == [(0.0, 10.0), (10.0, 30.0)]


@pytest.mark.parametrize(("gpus", "overhead"), [(1, 7), (2, 30), (8, 30), (9, 60), (16, 60)])
def test_srtf_adds_its_overhead_to_what_remains(gpus: int, overhead: int):
    # At 10 s, 90 s remain of job 1; it is stopped for one of 5 s that takes everything and ends at 16.
    nodes = 2
    jobs = log((0, gpus, 100), (10, 16, 5))
    found = helios_artifact(jobs, cluster=site(nodes), policy="srtf")
    assert found.schedule["num_preemptions"].to_list() == [1, 0]
    assert found.schedule["end_s"].to_list() == [16.0 + 90 + overhead + 1, 16.0]
    assert found.schedule["wasted_gpu_s"].to_list() == [gpus * (overhead + 1.0), 16.0]
    assert found.jobs["run_s"].to_list() == [100.0 + overhead + 1, 6.0]
    ours = replay(jobs, cluster=site(nodes), policy="srtf")
    assert ours.schedule["end_s"].to_list() == [105.0, 15.0]


def test_srtf_the_overhead_lowers_the_place_in_the_order():
    # At 10 s, 20 s remain of job 1. Job 2 stops it, whereupon 50 remain: job 3 of 40 s goes first. Ours: job 1 first.
    jobs = log((0, 8, 30), (10, 8, 5), (11, 8, 40))
    assert times(jobs, 1, policy="srtf") == [(0.0, 16.0 + 41 + 51), (10.0, 16.0), (16.0, 57.0)]
    assert our_times(jobs, 1, policy="srtf") == [(0.0, 35.0), (10.0, 15.0), (35.0, 75.0)]


def test_srtf_the_quota_does_not_see_nodes_so_that_stopped_gpus_stay_idle():
    # Jobs 1 and 3 fill n0, jobs 2 and 4 n1 (5 + 3 GPUs each). At 10 s job 5 (6 GPUs) comes before all. The quota of
    # 16 admits it, job 1 and job 2; jobs 3 and 4 are stopped, which leaves 3 free GPUs on each node: no place for 6.
    jobs = log((0, 5, 100), (0, 5, 110), (0, 3, 190), (0, 3, 200), (10, 6, 20))
    found = helios_artifact(jobs, cluster=site(2), policy="srtf").schedule
    assert found["num_preemptions"].to_list() == [0, 0, 1, 1, 0]
    # Six GPUs idle until job 1 ends at 101.
    assert found["start_s"].to_list() == [0.0, 0.0, 0.0, 0.0, 101.0]
    # Job 3 had 180 + 30 s left and runs again from 101, job 4 190 + 30 s from 111, when job 2 ends.
    assert found["end_s"].to_list() == [101.0, 111.0, 101.0 + 211, 111.0 + 221, 122.0]
    # Ours stops as many as job 5 needs: it starts at once.
    assert our_times(jobs, 2, policy="srtf_skip")[4] == (10.0, 30.0)


def test_srtf_passes_over_what_does_not_fit_the_quota():
    # Job 2 (16 GPUs) does not fit beside job 1, which is shorter; job 3 behind it does, and has less left when 1 ends.
    jobs = log((0, 8, 10), (0, 16, 20), (0, 8, 30))
    assert times(jobs, 2, policy="srtf") == [(0.0, 11.0), (31.0, 52.0), (0.0, 31.0)]
    assert our_times(jobs, 2, policy="srtf") == [(0.0, 10.0), (10.0, 30.0), (30.0, 60.0)]


def test_srtf_a_waiting_job_comes_before_a_running_one_with_as_much_left():
    # At 10 s, 20 s remain of job 1, and job 2 has 20 s: it takes over. Ours leaves the older one running.
    jobs = log((0, 8, 30), (10, 8, 20))
    assert times(jobs, 1, policy="srtf") == [(0.0, 31.0 + 51), (10.0, 31.0)]
    assert our_times(jobs, 1, policy="srtf") == [(0.0, 30.0), (30.0, 50.0)]


def test_qssf_has_no_keys_before_somebody_waits():
    # An empty queue: 4 GPUs x 100 s goes before 8 GPUs x 10 s, by GPUs. Ours: by GPU time.
    jobs = log((0, 8, 10), (0, 4, 100))
    assert times(jobs, 1, policy="qssf") == [(100.0, 110.0), (0.0, 100.0)]
    assert our_times(jobs, 1, policy="qssf") == [(0.0, 10.0), (10.0, 110.0)]
    # Behind a job that waits, arrivals have keys.
    jobs = log((0, 8, 50), (1, 8, 400), (2, 8, 10), (2, 4, 100))
    assert times(jobs, 1, policy="qssf")[2:] == [(50.0, 60.0), (60.0, 160.0)]


def test_qssf_ties_go_by_gpus():
    # Both 800 GPU-s: the later, narrower one first; ours the earlier one.
    jobs = log((0, 8, 50), (1, 8, 400), (2, 8, 100), (3, 4, 200))
    assert times(jobs, 1, policy="qssf")[2:] == [(250.0, 350.0), (50.0, 250.0)]
    assert our_times(jobs, 1, policy="qssf")[2:] == [(50.0, 150.0), (150.0, 350.0)]


def test_jobs_that_would_never_end_there_are_rejected():
    jobs = log((0, 8, 0), (0, 1.5, 5), (0, 17, 5), (0, 1, 5))
    for policy in POLICIES:
        found = helios_artifact(jobs, cluster=site(2), policy=policy).schedule["reason"].to_list()
        zero = None if policy == "srtf" else "zero_duration"
        assert found == [zero, "fractional_gpus", "exceeds_capacity", None]


def test_each_vc_is_on_its_own():
    nodes = pl.DataFrame({"node_id": ["1", "2"], "num_gpus": [8, 8], "vc": ["a", "b"]})
    jobs = pl.concat([log((0, 8, 10), (0, 8, 10), vc="a"), log((0, 8, 10), vc=None).with_columns(job_id=pl.lit("9"))])
    found = helios_artifact(jobs, cluster=Cluster(nodes))
    assert found.schedule["start_s"].to_list() == [0.0, 10.0, None]
    assert found.schedule["nodes"].to_list() == [["1"], ["1"], None]
    assert found.schedule["reason"].to_list() == [None, None, "exceeds_capacity"]
    together = helios_artifact(jobs, cluster=Cluster(nodes), use_vcs=False)
    assert together.schedule["start_s"].to_list() == [0.0, 0.0, 10.0]


def test_predictions_order_sjf_and_qssf_and_nothing_else():
    jobs = log((0, 8, 50), (1, 8, 10), (2, 8, 20)).with_columns(predicted_duration_s=pl.Series([1.0, 9.0, 3.0]))
    for policy in ("sjf", "qssf"):
        found = times(jobs, 1, policy=policy, predicted="predicted_duration_s")
        assert found == [(0.0, 50.0), (70.0, 80.0), (50.0, 70.0)]
    with pytest.raises(UsageError, match="counts down true durations"):
        times(jobs, 1, policy="srtf", predicted="predicted_duration_s")


def test_other_nodes_and_names_are_refused():
    with pytest.raises(UsageError, match="nodes of 8 GPUs; found 2 others .first: n0 has 4, n1 has 4"):
        helios_artifact(log((0, 1, 1)), cluster=Cluster.uniform(num_nodes=2, num_gpus=4))
    with pytest.raises(UnknownNameError, match=r"no policy of HeliosArtifact is named 'easy' \(known: fifo, qssf"):
        times(log((0, 1, 1)), 1, policy="easy")


# --- where the rules are the same ------------------------------------------------------------------------------------


def disagreeing(jobs: pl.DataFrame, cluster: Cluster, policy: str) -> int:
    ours = replay(jobs, cluster=cluster, policy=policy).schedule
    theirs = helios_artifact(jobs, cluster=cluster, policy=policy).schedule
    return int((ours.hash_rows() != theirs.hash_rows()).sum()) if not ours.equals(theirs) else 0


def same_rules(jobs: pl.DataFrame) -> pl.DataFrame:
    """Whole seconds, some length, and no job that takes whole nodes and a bit of another."""
    gpus, length = pl.col("num_gpus"), pl.col("duration_s")
    return jobs.filter((length >= 1) & (length == length.round()) & ((gpus <= 8) | (gpus % 8 == 0)))


@pytest.mark.parametrize("policy", ["fifo", "sjf"])
def test_on_a_random_log_fifo_and_sjf_are_ours(policy: str):
    rng = random.Random(5)
    rows = [
        (rng.randrange(5000), rng.choice([1, 1, 2, 3, 5, 8, 16, 24]), rng.choice([1, 30, 200, 200, 900]))
        for _ in range(600)
    ]
    jobs = same_rules(log(*sorted(rows)))
    assert disagreeing(jobs, site(4), policy) == 0


@pytest.mark.full_trace
@pytest.mark.parametrize("policy", ["fifo", "sjf"])
def test_on_philly_fifo_and_sjf_are_ours(policy: str, real_data):
    jobs = philly_jobs(real_data("philly/philly_jobs.csv.gz"))
    jobs = same_rules(jobs)
    assert jobs.height > 60_000
    assert disagreeing(jobs, site(52), policy) == 0


@pytest.mark.full_trace
def test_srtf_on_philly_every_job_that_was_never_stopped_runs_a_second_longer(real_data):
    # As measured in the artifact itself on 28,288 jobs of three of its VCs.
    jobs = philly_jobs(real_data("philly/philly_jobs.csv.gz")).head(20_000)
    found = helios_artifact(jobs, cluster=site(52), policy="srtf")
    table = pl.concat([found.schedule, found.jobs], how="horizontal").filter(pl.col("state") == "finished")
    extra = table["run_s"] - table["duration_s"].ceil()
    sizes = pl.when(pl.col("num_gpus") == 1).then(7).when(pl.col("num_gpus") <= 8).then(30).otherwise(60)
    overhead = table.select(sizes * pl.col("num_preemptions")).to_series()
    assert (extra - overhead).unique().to_list() == [1.0]
    assert table["num_preemptions"].sum() > 100
    stayed = table.filter(pl.col("num_preemptions") == 0)
    assert ((stayed["end_s"] - stayed["start_s"] - stayed["duration_s"].ceil()).round(6) == 1.0).all()
