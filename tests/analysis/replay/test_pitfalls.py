"""Faults that other simulators had: each test bears its number in the project's list of pitfalls, part C."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.errors import SchemaError
from analysis.replay import POLICIES, Cluster, ReplayResult, replay
from tests.jobs import make_jobs
from tests.replay_cases import START
from tests.replay_checks import overcommitted, schedule_bytes

ROOT = Path(__file__).resolve().parents[3]
every_policy = pytest.mark.parametrize("policy", POLICIES)


def ask(job_id: str, num_gpus: float, duration_s: float, at: float = 0, **more: Any) -> dict[str, Any]:
    submit = START + timedelta(seconds=at)
    asked = {"job_id": job_id, "num_gpus": float(num_gpus), "duration_s": float(duration_s)}
    return asked | {"submit_time": submit} | more


def gpus(*sizes: int, types: list[str] | None = None, speed: dict[str, float] | None = None) -> Cluster:
    table = pl.DataFrame({"node_id": [f"n{i}" for i in range(len(sizes))], "num_gpus": sizes})
    if types is not None:
        table = table.with_columns(gpu_type=pl.Series(types))
    return Cluster(table, speed=speed or {})


def column(result: ReplayResult, name: str) -> dict[str, Any]:
    return dict(result.schedule.select("job_id", name).iter_rows())


@every_policy
def test_c63_time_is_not_cut_into_rounds(policy: str):
    result = replay(make_jobs([ask("a", 1, 70)]), cluster=gpus(1), policy=policy)
    assert result.job_metrics()["jct_s"].to_list() == [70]


@every_policy
@pytest.mark.parametrize("origin_s", [0, 1.7e9])
def test_c64_unsorted_and_absolute_arrivals(policy: str, origin_s: float):
    rows = [ask("late", 1, 20, at=origin_s + 50), ask("soon", 1, 20, at=origin_s + 10)]
    result = replay(make_jobs(rows, sort=False), cluster=gpus(1), policy=policy)
    delays = result.schedule.select("job_id", (pl.col("start_time") - START).dt.total_seconds())
    assert dict(delays.iter_rows()) == {"soon": origin_s + 10, "late": origin_s + 50}
    assert column(result, "start_s") == {"soon": 0, "late": 40}  # from the first submission
    assert column(result, "end_s") == {"soon": 20, "late": 60}
    assert result.metrics()["makespan_s"] == 60


@every_policy
def test_c65_end_and_start_at_the_same_instant(policy: str):
    jobs = make_jobs([ask("a", 4, 10), ask("b", 4, 10, at=10)])
    result = replay(jobs, cluster=gpus(4), policy=policy)
    assert column(result, "start_s") == {"a": 0, "b": 10}
    assert overcommitted(result, jobs) == []
    assert result.counts["max_queue_length"] == 0


@every_policy
def test_c66_a_job_that_cannot_use_a_type_waits(policy: str):
    rows = [ask("busy", 1, 30, allowed_gpu_types=["V100"]), ask("picky", 1, 50, at=1, allowed_gpu_types=["V100"])]
    result = replay(make_jobs(rows), cluster=gpus(1, 1, types=["K80", "V100"]), policy=policy)
    assert column(result, "start_s") == {"busy": 0, "picky": 30}
    assert column(result, "gpu_type") == {"busy": "V100", "picky": "V100"}


@every_policy
def test_c66_work_takes_as_long_as_its_type_needs(policy: str):
    """100 units at 10 a second on a V100 and at 2 on a K80."""
    cluster = gpus(1, 1, types=["V100", "K80"], speed={"V100": 10.0, "K80": 2.0})
    rows = [
        ask("fast", 1, 10, gpu_type="V100", allowed_gpu_types=["V100"]),
        ask("slow", 1, 10, gpu_type="V100", allowed_gpu_types=["K80"]),
        ask("from_k80", 1, 50, at=100, gpu_type="K80", allowed_gpu_types=["V100"]),
    ]
    result = replay(make_jobs(rows), cluster=cluster, policy=policy)
    assert column(result, "end_s") == {"fast": 10, "slow": 50, "from_k80": 110}


@every_policy
def test_c66_an_unmeasured_type_is_named(policy: str):
    result = replay(make_jobs([ask("a", 1, 10)]), cluster=gpus(1, types=["Abacus9"]), policy=policy)
    assert column(result, "end_s") == {"a": 10}
    assert any("Abacus9" in note for note in result.notes)


@pytest.mark.parametrize("policy", ["srtf", "srtf_skip"])
@pytest.mark.parametrize("num_tasks", [2, 4], ids=["whole", "halves"])
def test_c68_nothing_leaks_when_jobs_are_swapped(policy: str, num_tasks: int):
    """Each newcomer is shorter than what the last one has left; at last somebody needs both GPUs.

    One character is a second:      aaaaaaaaaabbbbbccbbbaaaaaaaaaadddd...
    """
    rows = [ask("a", 2, 20), ask("b", 2, 8, at=10), ask("c", 2, 2, at=15), ask("d", 2, 100, at=16)]
    jobs = make_jobs([row | {"num_tasks": num_tasks} for row in rows])
    result = replay(jobs, cluster=gpus(1, 1), policy=policy)
    assert column(result, "num_preemptions")["a"] == 1
    assert column(result, "end_s")["c"] == 17
    assert column(result, "end_s")["b"] == 20
    assert column(result, "end_s")["a"] == 30
    assert column(result, "start_s")["d"] == 30
    held = result.job_metrics()
    assert held["run_s"].to_list() == held["duration_s"].to_list()


@pytest.mark.parametrize("policy", ["srtf", "las"])
def test_c68_a_victim_whose_gpus_are_not_needed_is_not_stopped(policy: str):
    """y, the last in the order, runs on n0 of one GPU; z needs two, and only with b on n1 gone, too, does it fit."""
    options = {"thresholds_gpu_s": (9.9,)} if policy == "las" else {}
    rows = [ask("b", 2, 60), ask("y", 1, 90), ask("z", 2, 4, at=10)]
    chosen = POLICIES[policy].using(**options)
    result = replay(make_jobs(rows), cluster=gpus(1, 2), policy=chosen)
    assert column(result, "num_preemptions") == {"b": 1, "y": 0, "z": 0}
    assert column(result, "start_s")["z"] == 10
    assert column(result, "nodes")["z"] == ["n1"]


@every_policy
def test_c69_a_job_larger_than_the_cluster(policy: str):
    result = replay(make_jobs([ask("A", 16, 5), ask("B", 4, 10)]), cluster=gpus(8), policy=policy)
    assert column(result, "state") == {"A": "rejected", "B": "finished"}
    assert column(result, "reason") == {"A": "exceeds_capacity", "B": None}
    assert column(result, "end_s") == {"A": None, "B": 10}
    metrics = result.metrics()
    assert (metrics["num_finished"], metrics["num_rejected"], metrics["mean_jct_s"]) == (1, 1, 10)


@every_policy
def test_c70_neither_a_prediction_nor_a_limit_kills(policy: str):
    """Unless limits are to be enforced: the job ran for 100 s in the log, and it does so here."""
    jobs = make_jobs([ask("a", 1, 100, time_limit_s=60.0)]).with_columns(predicted_duration_s=pl.lit(60.0))
    result = replay(jobs, cluster=gpus(1), policy=policy, predicted="predicted_duration_s")
    assert column(result, "end_s") == {"a": 100}
    assert column(result, "state") == {"a": "finished"}


@every_policy
@pytest.mark.parametrize("guess", [None, 30.0, 60.0, 500.0])
def test_c70_an_enforced_limit_kills_and_a_prediction_still_does_not(policy: str, guess: float | None):
    rows = [ask("a", 1, 100, time_limit_s=60.0), ask("b", 1, 50, time_limit_s=60.0), ask("c", 1, 70)]
    jobs = make_jobs(rows).with_columns(predicted_duration_s=pl.lit(guess, dtype=pl.Float64))
    predicted = None if guess is None else "predicted_duration_s"
    result = replay(jobs, cluster=gpus(3), policy=policy, predicted=predicted, enforce_limits=True)
    assert column(result, "end_s") == {"a": 60, "b": 50, "c": 70}
    assert column(result, "state") == dict.fromkeys("abc", "finished")
    assert column(result, "reason") == {"a": "timeout", "b": None, "c": None}
    assert result.metrics()["max_jct_s"] == 70


def test_c70_whom_the_limit_ends_makes_room_then():
    jobs = make_jobs([ask("a", 1, 100, time_limit_s=60.0), ask("b", 1, 10), ask("wide", 9, 100, time_limit_s=60.0)])
    for enforce, start in ((False, 100), (True, 60)):
        result = replay(jobs, cluster=gpus(1), policy="fifo", enforce_limits=enforce)
        assert column(result, "start_s") == {"a": 0, "b": start, "wide": None}
        assert column(result, "reason")["wide"] == "exceeds_capacity"


def test_c70_a_job_known_only_to_have_reached_its_limit_times_out():
    jobs = make_jobs([ask("a", 1, 100, time_limit_s=60.0, censoring="right"), ask("b", 1, 10, censoring="right")])
    result = replay(jobs, cluster=gpus(2), enforce_limits=True)
    assert column(result, "reason") == {"a": "timeout", "b": "right_censored"}


def test_c70_limits_that_are_none_are_refused_by_name():
    jobs = make_jobs([ask("a", 1, 100, time_limit_s=0.0)])
    with pytest.raises(SchemaError, match=r"'time_limit_s' has 1 values of 0 or below .first job ids \['a'\]"):
        replay(jobs, cluster=gpus(1), enforce_limits=True)
    assert column(replay(jobs, cluster=gpus(1)), "end_s") == {"a": 100}
    with pytest.raises(SchemaError, match="'time_limit_s' is missing"):
        replay(jobs.drop("time_limit_s"), cluster=gpus(1), enforce_limits=True)


def test_c71_easy_backfill_is_exact():
    rows = [ask("A", 3, 10), ask("B", 4, 5), ask("C", 1, 8), ask("D", 1, 15)]
    result = replay(make_jobs(rows), cluster=gpus(4), policy="easy")
    assert column(result, "start_s") == {"A": 0, "C": 0, "B": 10, "D": 15}


HASH_A_SCHEDULE = """
import hashlib, itertools
import polars as pl
from analysis.replay import POLICIES, Cluster, replay
from tests.analysis.replay.test_pitfalls import THREE, gpus
from tests.jobs import make_jobs
from tests.replay_checks import schedule_bytes

for policy in POLICIES:
    for order in itertools.permutations(THREE):
        result = replay(make_jobs(list(order), sort=False), cluster=gpus(2, 2), policy=policy)
        print(policy, hashlib.sha256(schedule_bytes(result)).hexdigest())
"""
THREE = [ask(name, 2, 5, vc="x", allowed_gpu_types=["V100", "K80", "T4"]) for name in ("10", "9", "8")]


def test_c73_same_input_same_bytes_whatever_the_hash_seed():
    told = [
        subprocess.run(
            [sys.executable, "-c", HASH_A_SCHEDULE],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    ]
    assert told[0] == told[1]
    lines = told[0].splitlines()
    assert len(lines) == 6 * len(POLICIES)
    assert len(set(lines)) == len(POLICIES)  # all six orders of the rows: one schedule
    here = replay(make_jobs(THREE), cluster=gpus(2, 2), policy="fifo")
    assert f"fifo {hashlib.sha256(schedule_bytes(here)).hexdigest()}" in lines
    assert column(here, "start_s") == {"8": 0, "9": 0, "10": 5}  # numbers, not text


@every_policy
def test_c74_a_gang_starts_whole_or_not_at_all(policy: str):
    jobs = make_jobs([ask("a", 1, 5), ask("gang", 16, 10, at=1), ask("b", 15, 2, at=20)])
    result = replay(jobs, cluster=gpus(8, 8), policy=policy)
    assert column(result, "start_s") == {"a": 0, "gang": 5, "b": 20}
    assert column(result, "nodes")["gang"] == ["n0", "n1"]
    assert overcommitted(result, jobs) == []


@every_policy
def test_c74_two_gangs_do_not_deadlock(policy: str):
    """12 and 12 of 16 GPUs: the second one holds nothing of the 4 that are left, and they go to who may have them."""
    # Elsewhere s is the head, or may pass.
    blocked = {"fifo", "sjf", "ljf", "edf", "multifactor", "srtf", "las", "fair_share", "lending", "topology"}
    jobs = make_jobs([ask("g1", 12, 10), ask("g2", 12, 10), ask("s", 4, 10, at=1)])
    result = replay(jobs, cluster=gpus(8, 8), policy=policy)
    assert column(result, "start_s") == {"g1": 0, "g2": 10, "s": 10 if policy in blocked else 1}
    assert overcommitted(result, jobs) == []


@every_policy
def test_c75_free_in_sum_but_not_on_one_node(policy: str):
    held = [ask("a", 3, 50), ask("b", 3, 50)]
    one = make_jobs([*held, ask("x", 2, 60, at=1, is_single_node=True)])
    assert column(replay(one, cluster=gpus(4, 4), policy=policy), "start_s")["x"] == 50
    spread = make_jobs([*held, ask("x", 2, 60, at=1, is_single_node=False)])
    result = replay(spread, cluster=gpus(4, 4), policy=policy)
    assert column(result, "start_s")["x"] == 1
    assert column(result, "nodes")["x"] == ["n0", "n1"]


@every_policy
def test_c76_fractions_share_one_device(policy: str):
    too_much = replay(make_jobs([ask("a", 0.6, 10), ask("b", 0.5, 10)]), cluster=gpus(1), policy=policy)
    assert sorted(column(too_much, "start_s").values()) == [0, 10]
    exact = make_jobs([ask("a", 0.6, 10), ask("b", 0.4, 10), ask("c", 1, 99, at=1)])
    assert column(replay(exact, cluster=gpus(1), policy=policy), "start_s") == {"a": 0, "b": 0, "c": 10}


@every_policy
def test_c76_ten_tenths_are_one(policy: str):
    rows = [ask(str(i), 0.1, 7) for i in range(11)]
    starts = column(replay(make_jobs(rows), cluster=gpus(1), policy=policy), "start_s")
    assert [starts[str(i)] for i in range(11)] == [0] * 10 + [7]


@every_policy
def test_c76_free_in_sum_but_on_two_devices(policy: str):
    """0.4 + 0.4 free are no 0.5."""
    rows = [ask("a", 0.6, 10), ask("b", 0.6, 10), ask("c", 0.5, 20, at=1)]
    assert column(replay(make_jobs(rows), cluster=gpus(2), policy=policy), "start_s")["c"] == 10


@every_policy
def test_c77_rejected_jobs_and_the_drain_in_the_averages(policy: str):
    jobs = make_jobs([ask("a", 2, 10), ask("b", 2, 20), ask("never", 99, 1_000)])
    metrics = replay(jobs, cluster=gpus(4), policy=policy).metrics()
    assert (metrics["mean_jct_s"], metrics["num_finished"], metrics["num_rejected"]) == (15, 2, 1)

    nobody = replay(make_jobs([ask("never", 99, 1_000)]), cluster=gpus(4), policy=policy).metrics()
    assert nobody["num_finished"] == 0
    assert nobody["mean_jct_s"] is None
    assert nobody["makespan_s"] is None

    jobs = make_jobs([ask("full", 4, 100), ask("drain", 1, 100, at=100)])
    metrics = replay(jobs, cluster=gpus(4), policy=policy).metrics()
    assert metrics["gpu_allocation"] == pytest.approx(0.625)
    assert metrics["gpu_allocation_steady"] == pytest.approx(1.0)


def test_c78_no_queue_no_gain():
    jobs = make_jobs([ask("a", 1, 30), ask("b", 1, 20), ask("c", 1, 10, at=10)])
    results = [replay(jobs, cluster=gpus(3), policy=policy) for policy in POLICIES]
    assert {result.metrics()["mean_jct_s"] for result in results} == {20}
    assert {result.counts["max_queue_length"] for result in results} == {0}
    loads = [result.metrics()["offered_load"] for result in results]
    assert loads == pytest.approx([60 / 30] * len(POLICIES))  # 60 GPU-s are submitted in 10 s, to 3 GPUs


@every_policy
def test_c79_time_does_not_drift(policy: str):
    assert column(replay(make_jobs([ask("a", 1, 0.6)]), cluster=gpus(1), policy=policy), "end_s") == {"a": 0.6}
    tenths = make_jobs([ask(str(i), 1, 0.1) for i in range(1_000)])
    result = replay(tenths, cluster=gpus(1), policy=policy)
    assert column(result, "end_s")["999"] == 100.0
    ends = result.schedule["end_time"].sort()
    assert ends.diff().drop_nulls().unique().to_list() == [timedelta(milliseconds=100)]


def test_c80_policies_move_waits_and_nothing_else():
    jobs = make_jobs([ask("a", 2, 30), ask("b", 1, 20), ask("c", 2, 10)])
    results = {policy: replay(jobs, cluster=gpus(2), policy=policy) for policy in POLICIES}
    work = {policy: result.job_metrics().sort("job_id") for policy, result in results.items()}
    for done in work.values():
        assert done["run_s"].to_list() == [30, 20, 10]
        assert (done["run_s"] * done["num_gpus"]).sum() == 100
    assert work["fifo"]["queueing_delay_s"].to_list() == [0, 30, 50]
    assert work["sjf"]["queueing_delay_s"].to_list() == [30, 10, 0]


@every_policy
def test_c81_an_empty_month_costs_nothing(policy: str):
    """A loop that ticks through 30 days of microseconds would not come back."""
    jobs = make_jobs([ask("a", 1, 10), ask("b", 1, 10, at=30 * 86_400)])
    replay(jobs, cluster=gpus(1), policy=policy)  # compiles
    began = time.process_time()
    result = replay(jobs, cluster=gpus(1), policy=policy)
    assert time.process_time() - began < 1
    assert column(result, "start_s") == {"a": 0, "b": 30 * 86_400}


@every_policy
@pytest.mark.parametrize("kind", ["failure", "absence"])
def test_c82_a_node_that_goes_down_takes_its_job_along(policy: str, kind: str):
    """One character is a second, X = out:   aaaaaXXXXXXXXXXaaaaaaaaaa, and then b, whom nobody promises 10."""
    down, up = (START + timedelta(seconds=at) for at in (5, 15))
    outages = pl.DataFrame({"node_id": ["n0"], "down": [down], "up": [up], "kind": [kind]})
    cluster = Cluster(gpus(1).nodes, outages=outages)
    result = replay(make_jobs([ask("a", 1, 10)]), cluster=cluster, policy=policy)
    row = result.schedule.row(0, named=True)
    assert (row["start_s"], row["end_s"], row["state"]) == (0, 25, "finished")
    assert (row["num_restarts"], row["num_preemptions"], row["wasted_gpu_s"]) == (1, 0, 5)
    assert result.metrics()["num_restarts"] == 1
    if not POLICIES[policy].preempts:
        longer = make_jobs([ask("a", 1, 10), ask("b", 1, 10, at=1)])
        starts = column(replay(longer, cluster=cluster, policy=policy), "end_s")
        assert starts == {"a": 25, "b": 35}
