"""The compiled passes of the committee: what ended jobs say of each row, and the mix of what experts say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from predictors.mixing import KEEP, PRIOR, SHARPNESS, WORST

__all__ = ["learn_pass", "mix_pass", "ring_pass"]


def _compiled(function: Any) -> Any:
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # no folder can be written for the cache
        return njit(function)


@_compiled
def ring_pass(ends: Any, asks: Any, order: Any, state: Any, out: Any) -> None:
    """Walk through ends and asks in order of time."""
    rings, batches, counts = state
    last_end = np.zeros(len(counts), dtype=np.int64)
    # What is said of a key changes only when a job of it ends: in between it is told from here.
    told = np.empty((len(counts), out.shape[1]))
    is_told = np.zeros(len(counts), dtype=np.bool_)
    work = np.empty((2, 20))
    done = 0
    for row in order:
        key, at_us = asks.key[row], asks.at_us[row]
        while done < len(ends.key) and ends.end_us[done] < at_us:
            if ends.key[done] >= 0:
                _push(ends, done, rings, batches, counts)
                last_end[ends.key[done]] = ends.end_us[done]
                is_told[ends.key[done]] = False
            done += 1
        if key < 0:
            continue
        if counts[key, 0] == 0:
            out[row, 0], out[row, 10] = 0.0, 0.0
            continue
        if not is_told[key]:
            told[key, 0], told[key, 10] = counts[key, 0], counts[key, 1]
            _tell_jobs(rings[0, key], rings[1, key], counts[key, 0], work, told[key])
            _tell_batches(rings[2, key], counts[key, 1], work, told[key])
            is_told[key] = True
        out[row] = told[key]
        out[row, 1] = (at_us - last_end[key]) / 1e6


@_compiled
def _push(ends: Any, job: int, rings: Any, batches: Any, counts: Any) -> None:
    key, value, batch = ends.key[job], ends.log_s[job], ends.batch[job]
    place = counts[key, 0] % 20
    rings[0, key, place], rings[1, key, place] = value, ends.broke[job]
    counts[key, 0] += 1
    for known in range(min(counts[key, 1], 20)):
        if batches[key, known] == batch:
            rings[3, key, known] += 1.0
            rings[2, key, known] += (value - rings[2, key, known]) / rings[3, key, known]
            return
    place = counts[key, 1] % 20
    rings[2, key, place], rings[3, key, place], batches[key, place] = value, 1.0, batch
    counts[key, 1] += 1


@_compiled
def _newest(ring: Any, count: int, values: Any) -> int:
    """Copy the values of a ring, newest first; return how many."""
    size = min(count, 20)
    place = (count - 1) % 20
    for back in range(size):
        values[back] = ring[place]
        place = place - 1 if place else 19
    return size


@_compiled
def _median(values: Any, size: int, ranked: Any) -> float:
    """Median of the first values; ``ranked`` is overwritten."""
    for new in range(size):
        value, place = values[new], new
        while place > 0 and ranked[place - 1] > value:
            ranked[place] = ranked[place - 1]
            place -= 1
        ranked[place] = value
    half = size // 2
    return float(ranked[half] if size % 2 else (ranked[half - 1] + ranked[half]) / 2)


@_compiled
def _mean(values: Any, size: int) -> float:
    total = 0.0
    for place in range(size):
        total += values[place]
    return total / size


@_compiled
def _spread(values: Any, size: int, mean: float) -> float:
    total = 0.0
    for place in range(size):
        total += (values[place] - mean) * (values[place] - mean)
    return float((total / size) ** 0.5)


@_compiled
def _tell_jobs(ring: Any, broke: Any, count: int, work: Any, out: Any) -> None:
    values, ranked = work[0], work[1]
    size = _newest(ring, count, values)
    pair = min(size, 2)
    seconds = 0.0
    for place in range(pair):
        seconds += np.expm1(values[place])
    out[2], out[3], out[4] = values[0], np.log1p(seconds / pair), _median(values, size, ranked)
    out[5], out[6] = ranked[0], ranked[size - 1]
    out[7] = _mean(values, size)
    out[8] = _spread(values, size, out[7])
    out[9] = _mean(values, _newest(broke, count, values))


@_compiled
def _tell_batches(ring: Any, count: int, work: Any, out: Any) -> None:
    values, ranked = work[0], work[1]
    size = _newest(ring, count, values)
    out[12] = _median(values, min(size, 3), ranked)
    out[11] = _median(values, size, ranked)
    out[13] = values[0]
    out[14] = _spread(values, size, _mean(values, size))


@_compiled
def mix_pass(losses: Any, questions: Any, order: Any, states: Any, out: Any) -> None:
    """Walk through ends and questions in order of time."""
    (total, weight), batches = states
    num_experts = questions.said.shape[1]
    mean, trust = np.empty(num_experts), np.empty(num_experts)
    done = 0
    for row in order:
        while done < len(losses.end_us) and losses.end_us[done] < questions.at_us[row]:
            _take_losses(losses, done, total, weight, batches)
            done += 1
        mean[:] = 0.0
        for level in range(len(weight)):
            key = questions.keys[level, row]
            if key >= 0:
                scale = weight[level, key] + PRIOR[level]
                for expert in range(num_experts):
                    mean[expert] = (total[level, key, expert] + PRIOR[level] * mean[expert]) / scale
        least = mean.min()
        for expert in range(num_experts):
            trust[expert] = np.exp(-SHARPNESS * (mean[expert] - least))
        out[row] = _weighted_median(questions.said[row], trust)


@_compiled
def learn_pass(losses: Any, states: Any) -> None:
    """Take in all losses."""
    (total, weight), batches = states
    for job in range(len(losses.end_us)):
        _take_losses(losses, job, total, weight, batches)


@_compiled
def _take_losses(losses: Any, job: int, total: Any, weight: Any, batches: Any) -> None:
    """Take in the losses of a job; one on which an expert had said nothing tells of none."""
    for expert in range(total.shape[2]):
        if np.isnan(losses.said[job, expert]):
            return
    last, run = batches
    for level in range(len(weight)):
        key = losses.keys[level, job]
        if key < 0:
            continue
        run[level, key] = run[level, key] + 1.0 if last[level, key] == losses.batch[job] else 1.0
        last[level, key] = losses.batch[job]
        news = 1.0 / np.sqrt(run[level, key])
        keep = KEEP[level] ** news
        weight[level, key] = weight[level, key] * keep + news
        for expert in range(total.shape[2]):
            loss = min(abs(losses.said[job, expert] - losses.log_s[job]), WORST)
            total[level, key, expert] = total[level, key, expert] * keep + news * loss


@_compiled
def _weighted_median(values: Any, weights: Any) -> float:
    """Least value at which half of the weight is reached; NaN values have none."""
    order = np.argsort(values)
    half = 0.0
    for place in range(len(values)):
        if not np.isnan(values[place]):
            half += weights[place] / 2
    reached = 0.0
    for place in order:
        if not np.isnan(values[place]):
            reached += weights[place]
            if reached >= half:
                return float(values[place])
    return np.nan
