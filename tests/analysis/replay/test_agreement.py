"""The compiled engine and the plain-Python one say the same of every job: start, end, nodes, GPU type, rejection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given

from analysis.loaders import load
from analysis.replay import POLICIES, Cluster
from tests import reference_engine
from tests.replay_cases import PREDICTED, Case, assert_agreement, cases, crowd, engine_of, reference_of, small

PHILLY = "philly/philly_jobs.csv.gz"


def test_the_reference_knows_every_policy():
    assert set(reference_engine.ORDERS) == set(POLICIES)


@pytest.mark.parametrize("predicted", [None, PREDICTED], ids=["true", "predicted"])
@pytest.mark.parametrize("policy", POLICIES)
@small
@given(case=cases())
def test_whole_gpus(policy: str, predicted: str | None, case: Case):
    assert_agreement(case, policy=policy, predicted=predicted)


@pytest.mark.parametrize("predicted", [None, PREDICTED], ids=["true", "predicted"])
@pytest.mark.parametrize("policy", POLICIES)
@small
@given(case=cases(has_fractions=True))
def test_fractions(policy: str, predicted: str | None, case: Case):
    assert_agreement(case, policy=policy, predicted=predicted)


@pytest.mark.parametrize("seeds", [range(0, 60, 2), range(1, 60, 2)], ids=["vcs", "one_queue"])
@pytest.mark.parametrize("policy", POLICIES)
def test_long_queues(policy: str, seeds: range):
    for seed in seeds:
        assert_agreement(crowd(seed), policy=policy, predicted=PREDICTED if seed % 4 < 3 else None)


@pytest.mark.parametrize("policy", ["multifactor", "multifactor_skip"])
@pytest.mark.parametrize("seeds", [range(0, 60, 2), range(1, 60, 2)], ids=["vcs", "one_queue"])
def test_age_against_size_and_priority(policy: str, seeds: range):
    for seed in seeds:
        worth = {"seconds_per_gpu": [2.5, -3.0, 0.0][seed % 3], "seconds_per_priority": 4.0}
        assert_agreement(crowd(seed), policy=policy, options=worth)


@pytest.mark.parametrize("policy", [name for name, chosen in POLICIES.items() if chosen.trait == "skip"])
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
def test_philly_fifo_figures(philly: Case):
    """Strict FIFO as measured before either engine was built: the month of overload is real."""
    outcome = engine_of(philly, policy="fifo")
    submit = dict(philly.jobs.select("job_id", pl.col("submit_time").dt.epoch("us")).iter_rows())
    waits = [run.start - submit[job_id] for job_id, run in outcome.runs.items()]
    assert outcome.peak == 28_265
    assert sum(waits) / len(waits) / 3.6e9 == pytest.approx(493.61, abs=0.005)
