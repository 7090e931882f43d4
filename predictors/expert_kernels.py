"""The compiled passes of the committee: what ended jobs say of each row, and the mix of what experts say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from predictors.mixing import KEEP, PRIOR, SHARPNESS, WORST

__all__ = ["mix_pass", "ring_pass"]


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
    done = 0
    for row in order:
        key, at_us = asks.key[row], asks.at_us[row]
        while done < len(ends.key) and ends.end_us[done] < at_us:
            if ends.key[done] >= 0:
                _push(ends, done, rings, batches, counts)
                last_end[ends.key[done]] = ends.end_us[done]
            done += 1
        if key < 0:
            continue
        out[row, 0], out[row, 10] = counts[key, 0], counts[key, 1]
        if counts[key, 0]:
            out[row, 1] = (at_us - last_end[key]) / 1e6
            _tell_jobs(rings[0, key], rings[1, key], counts[key, 0], out[row])
            _tell_batches(rings[2, key], counts[key, 1], out[row])


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
def _newest(ring: Any, count: int) -> Any:
    """Values of a ring, newest first."""
    size = min(count, 20)
    values = np.empty(size)
    for back in range(size):
        values[back] = ring[(count - 1 - back) % 20]
    return values


@_compiled
def _tell_jobs(ring: Any, broke: Any, count: int, out: Any) -> None:
    values = _newest(ring, count)
    pair = values[:2]
    out[2], out[3], out[4] = values[0], np.log1p(np.expm1(pair).mean()), np.median(values)
    out[5], out[6], out[7], out[8] = values.min(), values.max(), values.mean(), values.std()
    out[9] = _newest(broke, count).mean()


@_compiled
def _tell_batches(ring: Any, count: int, out: Any) -> None:
    values = _newest(ring, count)
    out[11], out[12], out[13], out[14] = np.median(values), np.median(values[:3]), values[0], values.std()


@_compiled
def mix_pass(losses: Any, questions: Any, order: Any, states: Any, out: Any) -> None:
    """Walk through ends and questions in order of time."""
    (total, weight), batches = states
    done = 0
    for row in order:
        while done < len(losses.end_us) and losses.end_us[done] < questions.at_us[row]:
            if not np.isnan(losses.said[done].sum()):
                _take_losses(losses, done, total, weight, batches)
            done += 1
        mean = np.zeros(questions.said.shape[1])
        for level in range(len(weight)):
            key = questions.keys[level, row]
            if key >= 0:
                mean = (total[level, key] + PRIOR[level] * mean) / (weight[level, key] + PRIOR[level])
        out[row] = _weighted_median(questions.said[row], np.exp(-SHARPNESS * (mean - mean.min())))


@_compiled
def _take_losses(losses: Any, job: int, total: Any, weight: Any, batches: Any) -> None:
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
