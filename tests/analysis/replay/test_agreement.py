"""The compiled engine and the plain-Python one say the same of every job: start, end, nodes, GPU type, rejection."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given

from analysis.loaders import load
from analysis.replay import POLICIES, Cluster
from tests import reference_engine, reference_preemption
from tests.replay_cases import PREDICTED, Case, assert_agreement, cases, crowd, engine_of, reference_of, small

#: These have tests of their own with something to agree with: test_lending, test_topology.
LENDING = {"lending", "lending_skip", "topology", "topology_skip"}
TOLD = [name for name in POLICIES if name not in LENDING]
PREEMPTIVE = [name for name in TOLD if POLICIES[name].preempts]
PHILLY = "philly/philly_jobs.csv.gz"


def test_the_reference_knows_every_policy():
    assert set(reference_engine.ORDERS) | set(reference_preemption.MOVES) == set(TOLD)


@pytest.mark.parametrize("predicted", [None, PREDICTED], ids=["true", "predicted"])
@pytest.mark.parametrize("policy", TOLD)
@small
@given(case=cases())
def test_whole_gpus(policy: str, predicted: str | None, case: Case):
    assert_agreement(case, policy=policy, predicted=predicted)


@pytest.mark.parametrize("predicted", [None, PREDICTED], ids=["true", "predicted"])
@pytest.mark.parametrize("policy", TOLD)
@small
@given(case=cases(has_fractions=True))
def test_fractions(policy: str, predicted: str | None, case: Case):
    assert_agreement(case, policy=policy, predicted=predicted)


@pytest.mark.parametrize("seeds", [range(0, 60, 2), range(1, 60, 2)], ids=["vcs", "one_queue"])
@pytest.mark.parametrize("policy", TOLD)
def test_long_queues(policy: str, seeds: range):
    for seed in seeds:
        assert_agreement(crowd(seed), policy=policy, predicted=PREDICTED if seed % 4 < 3 else None)


@pytest.mark.parametrize("policy", ["multifactor", "multifactor_skip"])
@pytest.mark.parametrize("seeds", [range(0, 60, 2), range(1, 60, 2)], ids=["vcs", "one_queue"])
def test_age_against_size_and_priority(policy: str, seeds: range):
    for seed in seeds:
        worth = {"seconds_per_gpu": [2.5, -3.0, 0.0][seed % 3], "seconds_per_priority": 4.0}
        assert_agreement(crowd(seed), policy=policy, options=worth)


def options_of(policy: str, seed: int) -> dict[str, Any]:
    """Thresholds, slices and costs of the size of a crowd's jobs; every second time preemption costs nothing."""
    rng = random.Random(seed)
    levels = tuple(sorted(rng.sample([1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 20.0], rng.randint(1, 4))))
    by_size = ((1, 1.0), (4, 2.0), (1e9, 3.0))
    options: dict[str, Any] = {}
    if seed % 2:
        options["restart_cost_s"] = rng.choice([0.0, 1.0, 2.5, by_size])
        options["checkpoint_overhead_s"] = rng.choice([0.0, 0.5, 1.0, by_size])
    if policy in {"themis", "slo_lease"}:
        return options | {"lease_s": rng.choice([6.5, 8.0] if options else [0.7, 1.0, 2.0, 5.0])}
    if policy == "time_slicing":
        return options | {"quantum_s": rng.choice([6.5, 8.0] if options else [0.7, 1.0, 2.0, 5.0])}
    if seed % 4 == 1:
        options["min_run_s"] = rng.choice([1.0, 3.0, 5.5])
    if policy == "gittins" and seed % 3:
        options["service_gpu_s"] = tuple(rng.choice([1.0, 2.0, 5.0, 7.0, 40.0]) for _ in range(9))
    return options if policy.startswith("srtf") else options | {"thresholds_gpu_s": levels}


@pytest.mark.parametrize("seeds", [range(0, 40, 2), range(1, 40, 2)], ids=["free", "costly"])
@pytest.mark.parametrize("policy", PREEMPTIVE)
def test_preemption_in_long_queues(policy: str, seeds: range):
    """Also how often each job was stopped, and the GPU time that this cost it."""
    stops = 0
    for seed in seeds:
        options = options_of(policy, seed)
        case = crowd(seed)
        assert_agreement(case, policy=policy, options=options, predicted=PREDICTED if seed % 4 < 3 else None)
        stops += sum(run.stops for run in engine_of(case, policy=policy, options=options).runs.values())
    assert stops > 50


@pytest.mark.parametrize("policy", ["fair_share", "fair_share_skip"])
def test_use_per_owner(policy: str):
    """Few users with unequal shares, and half-lives as short as the jobs."""
    first_come = POLICIES["fifo_skip" if policy.endswith("skip") else "fifo"]
    differing = 0
    for seed in range(30):
        rng = random.Random(seed)
        jobs, cluster = crowd(seed)
        users = [rng.choice([None, "ann", "bob", "cy"]) for _ in range(jobs.height)]
        case = Case(jobs.with_columns(user=pl.Series(users, dtype=pl.String)), cluster)
        options = {
            "half_life_s": rng.choice([1.0, 7.5, 30.0, float("inf")]),
            "shares": rng.choice([None, {"ann": 3.0, "cy": 0.5}]),
        }
        assert_agreement(case, policy=policy, options=options)
        differing += engine_of(case, policy=policy, options=options) != engine_of(case, policy=first_come.name)
    assert differing > 20


@pytest.mark.parametrize("policy", [name for name in PREEMPTIVE if POLICIES[name].trait == "skip"])
def test_a_kind_that_found_no_room_finds_none_later_in_the_pass(policy: str):
    """The compiled engine passes over it; the reference says the same when it tries every job again."""
    for seed in range(20):
        told = {"policy": policy, "options": options_of(policy, seed), "predicted": PREDICTED}
        assert reference_of(crowd(seed), **told) == reference_of(crowd(seed), **told, one_by_one=True)


@pytest.mark.parametrize(
    "policy", [name for name in TOLD if POLICIES[name].trait == "skip" and not POLICIES[name].preempts]
)
@small
@given(case=cases(min_jobs=8, has_fractions=True))
def test_passing_over_equal_jobs_is_no_shortcut(policy: str, case: Case):
    """The reference looks once at equal jobs; it says the same when it looks at every one."""
    assert reference_of(case, policy=policy) == reference_of(case, policy=policy, one_by_one=True)


# --- a real trace ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def philly(real_data: Callable[[str], Path]) -> Case:
    """82,247 jobs of Philly on 52 nodes of 8 GPUs, and a prediction that knows only the VC and the GPUs."""
    jobs = load("sia_philly", real_data(PHILLY)).jobs
    median = pl.col("duration_s").median().over("vc", "num_gpus")
    return Case(jobs.with_columns(median.alias(PREDICTED)), Cluster.uniform(num_nodes=52, num_gpus=8))


@pytest.mark.full_trace
@pytest.mark.parametrize("policy", ["fifo", "fifo_skip", "sjf", "ljf_skip", "smallest_first"])
def test_philly_whole(philly: Case, policy: str):
    assert philly.jobs.height == 82_247
    assert_agreement(philly, policy=policy)


@pytest.mark.full_trace
def test_philly_whole_by_prediction(philly: Case):
    assert_agreement(philly, policy="qssf_skip", predicted=PREDICTED)


@pytest.mark.full_trace
@pytest.mark.parametrize("predicted", [None, PREDICTED], ids=["true", "predicted"])
def test_philly_easy(philly: Case, predicted: str | None):
    assert_agreement(Case(philly.jobs.head(8_000), philly.cluster), policy="easy", predicted=predicted)


@pytest.mark.full_trace
@pytest.mark.parametrize("predicted", [None, PREDICTED], ids=["true", "predicted"])
def test_philly_conservative(philly: Case, predicted: str | None):
    """The reference looks through all bookings for every question: only the first jobs, on few nodes."""
    case = Case(philly.jobs.head(200 if predicted is None else 60), Cluster.uniform(num_nodes=8, num_gpus=8))
    assert_agreement(case, policy="conservative", predicted=predicted)


@pytest.mark.full_trace
@pytest.mark.parametrize("policy", ["srtf", "srtf_skip", "las", "tiresias"])
def test_philly_preemption(philly: Case, policy: str):
    assert_agreement(Case(philly.jobs.head(4_000), philly.cluster), policy=policy)


@pytest.mark.full_trace
def test_philly_fifo_figures(philly: Case):
    """Strict FIFO as measured before either engine was built: the month of overload is real."""
    outcome = engine_of(philly, policy="fifo")
    submit = dict(philly.jobs.select("job_id", pl.col("submit_time").dt.epoch("us")).iter_rows())
    waits = [run.start - submit[job_id] for job_id, run in outcome.runs.items()]
    assert outcome.peak == 28_265
    assert sum(waits) / len(waits) / 3.6e9 == pytest.approx(493.61, abs=0.005)
