"""Calibration against the same rules written down plainly, and coverage on laws where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from predictors.calibration import NUM_PRIOR, POINT_LEVELS, Stream, calibrated_log_quantiles

RAW_LEVELS = np.array([0.1, 0.5, 0.9])


def plain_quantile(values: list[float], level: float) -> float:
    """The value at place (n + 1) a of the sorted ones, on the line between its neighbours."""
    ranked = sorted(values)
    place = min(max((len(ranked) + 1) * level, 1.0), float(len(ranked)))
    low = int(place)
    high = min(low + 1, len(ranked))
    return ranked[low - 1] + (ranked[high - 1] - ranked[low - 1]) * (place - low)


def make(rng, *, jobs: int, levels: int) -> Stream:
    end = np.sort(rng.integers(0, jobs, jobs))  # many ends are equal
    raw = np.sort(rng.normal(5, 1, (jobs, levels)), axis=1)
    return Stream(end_us=end, true_log=rng.normal(5, 2, jobs), raw_log=raw)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_trained", [0, 40])
def test_a_rolling_window_of_ended_jobs_plainly(seed, num_trained):
    rng = np.random.default_rng(seed)
    stream = make(rng, jobs=200, levels=3)
    stream = Stream(stream.end_us, stream.true_log, stream.raw_log, num_trained=num_trained)
    raw = np.sort(rng.normal(5, 1, (60, 3)), axis=1)
    asked = rng.integers(-10, 220, 60)
    levels, found = calibrated_log_quantiles(raw, levels=RAW_LEVELS, asked_us=asked, stream=stream, window=30)
    assert levels.tolist() == RAW_LEVELS.tolist()
    prior = norm.ppf((np.arange(NUM_PRIOR) + 0.5) / NUM_PRIOR)
    for row in range(60):
        known = [i for i in range(200) if stream.end_us[i] < asked[row] or i < num_trained][-30:]
        expected = []
        for place, level in enumerate(RAW_LEVELS):
            scores = [stream.true_log[i] - stream.raw_log[i, place] for i in known]
            scores += list(prior - norm.ppf(level))
            expected.append(max(raw[row, place] + plain_quantile(scores, level), 0.0))
        assert found[row] == pytest.approx(sorted(expected))


def test_a_point_gets_its_quantiles_from_its_errors():
    rng = np.random.default_rng(5)
    stream = make(rng, jobs=100, levels=1)
    raw = rng.normal(5, 1, (20, 1))
    asked = np.full(20, 70)
    levels, found = calibrated_log_quantiles(raw, levels=np.array([0.5]), asked_us=asked, stream=stream, window=2000)
    assert levels is POINT_LEVELS
    scores = [float(stream.true_log[i] - stream.raw_log[i, 0]) for i in range(100) if stream.end_us[i] < 70]
    scores += list(2 * norm.ppf((np.arange(NUM_PRIOR) + 0.5) / NUM_PRIOR))
    for place in (0, 30, 51, 90, -1):
        expected = np.maximum(raw[:, 0] + plain_quantile(scores, levels[place]), 0)
        assert found[:, place] == pytest.approx(expected)


def test_without_feedback_the_prior_speaks():
    none = Stream(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, 1)))
    raw = np.array([[8.0]])
    levels, found = calibrated_log_quantiles(raw, levels=np.array([0.5]), asked_us=np.array([9]), stream=none)
    at = {round(float(level), 3): place for place, level in enumerate(levels)}
    assert found[0, at[0.5]] == pytest.approx(8.0)
    # Ten values say 0.9 at place 9.9: between the last two.
    ends = 2 * norm.ppf([0.85, 0.95])
    assert found[0, at[0.9]] - found[0, at[0.1]] == pytest.approx(2 * (ends[0] + 0.9 * (ends[1] - ends[0])))


def test_what_has_not_ended_is_not_heard():
    """The scores of jobs that end later, however wild, change nothing; an end at the very instant is later."""
    rng = np.random.default_rng(1)
    stream = make(rng, jobs=200, levels=3)
    wild = np.where(stream.end_us >= 100, 99.0, stream.true_log)
    raw = np.sort(rng.normal(5, 1, (5, 3)), axis=1)
    asked = np.full(5, 100)
    both = [
        calibrated_log_quantiles(
            raw, levels=RAW_LEVELS, asked_us=asked, stream=Stream(stream.end_us, truth, stream.raw_log)
        )
        for truth in (stream.true_log, wild)
    ]
    assert np.array_equal(both[0][1], both[1][1])


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_coverage_is_what_was_asked_whatever_the_predictor_claims(factor):
    """Quantiles that are too narrow or too wide by a factor cover 80 % after calibration."""
    rng = np.random.default_rng(2)
    truth = rng.normal(8, 1, 6000)
    raw = np.tile(8 + factor * norm.ppf(RAW_LEVELS), (6000, 1))
    stream = Stream(np.arange(6000), truth, raw)
    _, found = calibrated_log_quantiles(raw, levels=RAW_LEVELS, asked_us=np.arange(6000), stream=stream)
    covered = (truth >= found[:, 0]) & (truth <= found[:, 2])
    assert covered[500:].mean() == pytest.approx(0.8, abs=3 * np.sqrt(0.16 / 5500))


def test_an_empty_table():
    none = Stream.of_table(Stream(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, 3))).to_table(), num_levels=3)
    assert none.raw_log.shape == (0, 3)
    rng = np.random.default_rng(0)
    stream = make(rng, jobs=50, levels=3)
    again = Stream.of_table(stream.to_table(), num_levels=3)
    assert np.array_equal(again.raw_log, stream.raw_log)
    assert np.array_equal(again.end_us, stream.end_us)
    assert again.num_trained == 50
