"""What ended jobs say of a key, against a plain Python account of the windows."""

from __future__ import annotations

import numpy as np
import pytest

from predictors.rings import RING_STATS, WINDOW, Asks, Ends, ring_stats


def plain_stats(ends: Ends, key: int, at_us: int) -> list[float]:
    """The definition, one row at a time."""
    mine = [job for job in range(len(ends.key)) if ends.key[job] == key and ends.end_us[job] < at_us]
    batches: list[list] = []  # [batch, values], in order of first end; one that left the window starts anew
    for job in mine:
        known = [entry for entry in batches[-WINDOW:] if entry[0] == ends.batch[job]]
        if known:
            known[0][1].append(ends.log_s[job])
        else:
            batches.append([ends.batch[job], [ends.log_s[job]]])
    if key < 0:
        return [np.nan] * len(RING_STATS)
    if not mine:
        return [0.0 if stat in {"count", "batch_count"} else np.nan for stat in RING_STATS]
    last = np.array([ends.log_s[job] for job in mine[-WINDOW:]])[::-1]
    means = np.array([np.mean(values) for _, values in batches[-WINDOW:]])[::-1]
    found = {
        "count": len(mine),
        "since_s": (at_us - ends.end_us[mine[-1]]) / 1e6,
        "last": last[0],
        "mean_2": np.log1p(np.mean(np.expm1(last[:2]))),
        "median": np.median(last),
        "min": last.min(),
        "max": last.max(),
        "mean": last.mean(),
        "sd": last.std(),
        "broke": np.mean([ends.broke[job] for job in mine[-WINDOW:]]),
        "batch_count": len(batches),
        "batch_median": np.median(means),
        "batch_median_3": np.median(means[:3]),
        "batch_last": means[0],
        "batch_sd": means.std(),
    }
    return [float(found[stat]) for stat in RING_STATS]


@pytest.mark.parametrize("seed", range(3))
def test_windows_of_jobs_and_of_batches(seed):
    rng = np.random.default_rng(seed)
    jobs, rows = 300, 60
    ends = Ends(
        rng.integers(-1, 4, jobs),
        np.sort(rng.integers(0, 200, jobs)) * 1_000_000,
        rng.normal(6, 2, jobs),
        rng.integers(0, 2, jobs).astype(float),
        rng.integers(0, 60, jobs),
    )
    asks = Asks(rng.integers(-1, 6, rows), rng.integers(0, 210, rows) * 1_000_000)
    expected = [plain_stats(ends, asks.key[row], asks.at_us[row]) for row in range(rows)]
    found = ring_stats(ends, asks)
    assert np.allclose(found, expected, rtol=0, atol=1e-9, equal_nan=True)
    assert np.nanmax(found[:, RING_STATS.index("batch_count")]) > WINDOW


def test_five_hundred_jobs_at_once_are_one_batch():
    # One short job, then 500 long ones of one batch: the window of jobs has forgotten the short one.
    ends = Ends(
        np.zeros(501, dtype=np.int64),
        np.arange(501),
        np.array([1.0] + [9.0] * 500),
        np.zeros(501),
        np.array([0] + [1] * 500),
    )
    row = dict(zip(RING_STATS, ring_stats(ends, Asks(np.array([0]), np.array([1000])))[0], strict=True))
    assert (row["count"], row["median"], row["min"]) == (501, 9, 9)
    assert (row["batch_count"], row["batch_median"], row["batch_sd"]) == (2, 5, 4)
