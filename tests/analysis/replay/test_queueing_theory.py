"""Replays of random logs against the closed forms of queueing theory: means within three standard errors.

Arrivals are Poisson, lengths in units of the mean one (1,000 s, so that microseconds do not matter). Standard errors
are those of the means of 30 successive batches, after the first tenth of the jobs has been left out.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import exp, factorial, inf

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy.integrate import quad

from analysis.replay import POLICIES, Cluster, Policy, replay
from tests.replay_cases import START

F64 = npt.NDArray[np.float64]
UNIT_S = 1_000.0
NUM_BATCHES = 30


def log_of(lengths: F64, *, rate: float, rng: np.random.Generator) -> pl.DataFrame:
    """One-GPU jobs of these lengths that arrive at this rate, both in units."""
    at = np.cumsum(rng.exponential(1 / rate, len(lengths)))
    return pl.DataFrame(
        {
            "job_id": pl.Series(np.arange(len(lengths))).cast(pl.String),
            "submit_time": pl.Series((at * UNIT_S * 1e6).astype(np.int64)).cast(pl.Datetime("us", "UTC")),
            "num_gpus": np.ones(len(lengths)),
            "duration_s": lengths * UNIT_S,
        }
    )


def times_in_system(jobs: pl.DataFrame, policy: str | Policy, *, num_servers: int = 1) -> F64:
    """JCT of every job, in units."""
    result = replay(jobs, cluster=Cluster.uniform(num_nodes=num_servers, num_gpus=1), policy=policy)
    submit = jobs["submit_time"].dt.epoch("us").to_numpy()
    end: F64 = result.schedule["end_time"].dt.epoch("us").to_numpy()
    return (end - submit) / 1e6 / UNIT_S


def assert_mean(values: F64, expected: float) -> None:
    """The mean is the expected one, within three standard errors of batch means, which are not too wide to tell."""
    steady = values[len(values) // 10 :]
    batches = np.array([batch.mean() for batch in np.array_split(steady, NUM_BATCHES)])
    error = batches.std(ddof=1) / np.sqrt(NUM_BATCHES)
    assert error < 0.05 * expected, "too few jobs to say anything"
    assert abs(batches.mean() - expected) < 3 * error, (batches.mean(), expected, error)


def hyperexponential(n: int, rng: np.random.Generator) -> F64:
    """Mean 1, squared coefficient of variation 4: a few long ones among short ones."""
    p = (1 + np.sqrt(3 / 5)) / 2
    return np.where(rng.random(n) < p, rng.exponential(1 / (2 * p), n), rng.exponential(1 / (2 * (1 - p)), n))


def test_m_m_c_first_come_first_served():
    """Erlang C: mean wait C(c, a) / (c - a) in units of the mean length."""
    servers, load = 8, 0.85
    a = servers * load
    rng = np.random.default_rng(1)
    lengths = rng.exponential(1, 300_000)
    busy = a**servers / factorial(servers) / (1 - load)
    all_busy = busy / (sum(a**k / factorial(k) for k in range(servers)) + busy)
    values = times_in_system(log_of(lengths, rate=a, rng=rng), "fifo", num_servers=servers)
    assert_mean(values - lengths, all_busy / (servers - a))


@pytest.mark.parametrize("policy", ["fifo", "fifo_skip", "easy"])
def test_m_d_1(policy: str):
    """Pollaczek-Khinchine with constant lengths: mean wait rho / (2 (1 - rho)). With one server nobody can pass."""
    load = 0.8
    rng = np.random.default_rng(2)
    lengths = np.ones(200_000)
    values = times_in_system(log_of(lengths, rate=load, rng=rng), policy)
    assert_mean(values - lengths, load / (2 * (1 - load)))


def test_m_g_1_first_come_first_served():
    """Pollaczek-Khinchine: mean wait lambda E[S^2] / (2 (1 - rho)) with E[S^2] = 5."""
    load = 0.6
    rng = np.random.default_rng(3)
    lengths = hyperexponential(400_000, rng)
    values = times_in_system(log_of(lengths, rate=load, rng=rng), "fifo")
    assert_mean(values - lengths, load * 5 / (2 * (1 - load)))


@pytest.mark.parametrize("policy", ["srtf", "srtf_skip"])
def test_m_m_1_shortest_remaining_time_first(policy: str):
    """Schrage and Miller 1966, doi:10.1287/opre.14.4.670."""
    load = 0.8

    def done(x: float) -> float:  # load of jobs up to length x
        return load * (1 - (1 + x) * exp(-x))

    def mean(x: float) -> float:
        second = quad(lambda t: t * t * exp(-t), 0, x)[0] + x * x * exp(-x)
        waiting = load * second / (2 * (1 - done(x)) ** 2)
        return waiting + quad(lambda t: 1 / (1 - done(t)), 0, x)[0]

    rng = np.random.default_rng(4)
    values = times_in_system(log_of(rng.exponential(1, 200_000), rate=load, rng=rng), policy)
    assert_mean(values, mean_over_exponential(mean))


def test_m_m_1_shortest_job_first_without_preemption():
    """Phipps 1956: mean wait R / (1 - rho(x))^2 of a job of length x, R = lambda E[S^2] / 2."""
    load = 0.8
    rng = np.random.default_rng(5)
    lengths = rng.exponential(1, 200_000)
    values = times_in_system(log_of(lengths, rate=load, rng=rng), "sjf")
    assert_mean(values - lengths, mean_over_exponential(lambda x: load / (1 - load * (1 - (1 + x) * exp(-x))) ** 2))


def test_m_g_1_processor_sharing():
    """Slices much shorter than jobs: mean time 1 / (1 - rho), whatever the distribution; FIFO would take 8.5."""
    load = 0.75
    rng = np.random.default_rng(6)
    sliced = POLICIES["time_slicing"].using(quantum_s=0.025 * UNIT_S)
    values = times_in_system(log_of(hyperexponential(50_000, rng), rate=load, rng=rng), sliced)
    assert_mean(values, 1 / (1 - load))


def test_m_g_1_foreground_background():
    """LAS with narrow levels: Nuyens and Wierman 2008, doi:10.1016/j.peva.2007.06.028, section 3."""
    load, step = 0.7, 0.05

    def mean(x: float) -> float:
        part = load * (1 - exp(-x))  # of jobs cut off at x: E[min(S, x)] = 1 - e^-x
        second = 2 * (1 - (1 + x) * exp(-x))  # E[min(S, x)^2]
        return load * second / (2 * (1 - part) ** 2) + x / (1 - part)

    rng = np.random.default_rng(7)
    levels = tuple(np.arange(step, 15, step) * UNIT_S)
    jobs = log_of(rng.exponential(1, 60_000), rate=load, rng=rng)
    values = times_in_system(jobs, POLICIES["las"].using(thresholds_gpu_s=levels))
    assert_mean(values, mean_over_exponential(mean))


@pytest.mark.parametrize("policy", ["edf", "multifactor"])
def test_priority_classes_without_preemption(policy: str):
    """Cobham 1954, doi:10.1287/opre.2.1.70: class k waits R / ((1 - s_(k-1)) (1 - s_k)), s_k the load up to k.

    A class has one deadline, or a priority that no age makes up for.
    """
    rates = np.array([0.2, 0.3, 0.35])
    rng = np.random.default_rng(8)
    lengths = rng.exponential(1, 400_000)
    classes = rng.choice(3, len(lengths), p=rates / rates.sum())
    jobs = log_of(lengths, rate=rates.sum(), rng=rng).with_columns(
        deadline_time=pl.lit(START)
        + pl.Series(classes * timedelta(days=1).total_seconds() * 1e6).cast(pl.Duration("us")),
        priority=pl.Series(-classes * 1e9),
    )
    waits = times_in_system(jobs, policy) - lengths
    above = np.concatenate([[0], np.cumsum(rates)])
    for k in range(3):
        assert_mean(waits[classes == k], rates.sum() / ((1 - above[k]) * (1 - above[k + 1])))


def mean_over_exponential(conditional: Callable[[float], float]) -> float:
    """Mean over lengths of mean 1 of what is expected given the length."""
    return float(quad(lambda x: conditional(x) * exp(-x), 0, inf, limit=200)[0])
