"""The weighted median of experts against a plain Python one, and cases that can be checked by eye."""

from __future__ import annotations

import math

import numpy as np
import pytest

from predictors.mixing import KEEP, PRIOR, SHARPNESS, WORST, Losses, Questions, mix


def plain_mix(losses: Losses, questions: Questions, row: int) -> float:
    """The definition, one row at a time."""
    num_experts = questions.said.shape[1]
    mean = [0.0] * num_experts
    for level in range(len(KEEP)):
        key = questions.keys[level, row]
        if key < 0:
            continue
        total, weight, last, run = [0.0] * num_experts, 0.0, None, 0
        for job in range(len(losses.end_us)):
            mine = losses.keys[level, job] == key and losses.end_us[job] < questions.at_us[row]
            if not mine or any(math.isnan(value) for value in losses.said[job]):
                continue
            run = run + 1 if losses.batch[job] == last else 1
            last = losses.batch[job]
            news = 1 / math.sqrt(run)
            weight = weight * KEEP[level] ** news + news
            for expert in range(num_experts):
                loss = min(abs(losses.said[job, expert] - losses.log_s[job]), WORST)
                total[expert] = total[expert] * KEEP[level] ** news + news * loss
        mean = [(t + PRIOR[level] * m) / (weight + PRIOR[level]) for t, m in zip(total, mean, strict=True)]
    voices = [(v, math.exp(-SHARPNESS * (m - min(mean)))) for v, m in zip(questions.said[row], mean, strict=True)]
    voices = sorted(voice for voice in voices if not math.isnan(voice[0]))
    reached = 0.0
    for value, weight in voices:
        reached += weight
        if reached >= sum(w for _, w in voices) / 2 - 1e-12:
            return value
    return math.nan


@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_its_definition_says(seed):
    rng = np.random.default_rng(seed)
    jobs, rows, experts = 120, 40, 5
    said = rng.normal(6, 2, (jobs, experts))
    said[:10, 3] = np.nan
    losses = Losses(
        said,
        rng.normal(6, 2, jobs),
        np.sort(rng.integers(0, 50, jobs)),
        np.stack([np.zeros(jobs, dtype=np.int64), rng.integers(-1, 4, jobs), rng.integers(-1, 9, jobs)]),
        rng.integers(0, 6, jobs),
    )
    keys = np.stack([np.zeros(rows, dtype=np.int64), rng.integers(-1, 5, rows), rng.integers(-1, 11, rows)])
    asked = rng.normal(6, 2, (rows, experts))
    asked[0] = np.nan
    asked[1, 2:] = np.nan
    questions = Questions(asked, rng.integers(0, 60, rows), keys)
    expected = [plain_mix(losses, questions, row) for row in range(rows)]
    assert np.allclose(mix(losses, questions), expected, rtol=0, atol=1e-12, equal_nan=True)
    assert np.isnan(expected[0])


def everybody(num: int) -> np.ndarray:
    return np.zeros((3, num), dtype=np.int64)


def test_without_any_loss_it_is_the_median():
    none = Losses(np.zeros((0, 3)), np.zeros(0), np.zeros(0, dtype=np.int64), everybody(0), np.zeros(0, dtype=np.int64))
    questions = Questions(np.array([[1.0, 9.0, 3.0]]), np.array([5]), everybody(1))
    assert mix(none, questions).tolist() == [3.0]


def test_a_loss_counts_only_after_the_end():
    # Two experts say 1, one says 8; the one is right 50 times, in 50 batches that end at 10.
    said = np.tile([1.0, 1.0, 8.0], (50, 1))
    losses = Losses(said, np.full(50, 8.0), np.full(50, 10), everybody(50), np.arange(50))
    questions = Questions(np.tile([1.0, 1.0, 8.0], (3, 1)), np.array([9, 10, 11]), everybody(3))
    assert mix(losses, questions).tolist() == [1.0, 1.0, 8.0]
