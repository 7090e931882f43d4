"""Forecasts of demand mixed by how far each was off lately, with a guard and with intervals from their own errors."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictors.differences import block_interval
from predictors.targets.demand_experts import SIMPLE, Floats, learned, rules, stage_starts, targets

__all__ = ["WINDOW_H", "Path", "forecast_path", "quantiles_of", "reach"]

Ints = NDArray[np.int64]
#: Errors of the last four weeks count. [hours]
WINDOW_H: Final = 28 * 24
#: Weight of an expert: exp(-SHARPNESS x (its mean error / the least mean error - 1)).
SHARPNESS: Final = 10.0
#: With fewer errors nothing is said of quantiles.
LEAST_ERRORS: Final = 20
_TINY: Final = 1e-6


class Path(NamedTuple):
    """Forecasts of one horizon, one row per hour of asking.

    ``point`` is the forecast, ``simple`` those of the rules in ``SIMPLE`` (rows, 3), ``choice`` what the guard chose at
    each: -1 the mix, else the place in ``SIMPLE``; NaN where nothing is known, or before the path begins.
    """

    horizon: int
    point: Floats
    simple: Floats
    choice: Ints

    def choice_name(self, row: int) -> str:
        """What the forecast of a row is: "mix", or the rule that the guard chose."""
        return "mix" if self.choice[row] < 0 else SIMPLE[int(self.choice[row])]


def reach(horizon: int, every: int) -> int:
    """Hours before an hour of asking from which on forecasts must be made, for its own and its quantiles."""
    return 3 * (WINDOW_H + horizon) + every


def forecast_path(values: Floats, horizon: int, *, first: int, first_hour: int, every: int) -> Path:
    """Forecast ``horizon`` hours ahead at every hour from ``first`` on, each from what was known then.

    Parameters
    ----------
    values : array of float64
        Hourly values; NaN = missing.
    horizon : int
        Hours ahead.
    first : int
        Place of the first hour of asking.
    first_hour : int
        Hour since 1970 of the first value.
    every : int
        Hours after which learners learn anew and the guard looks again.

    Returns
    -------
    Path
        Appending later values changes none of its rows.
    """
    starts = stage_starts(len(values), first=first, first_hour=first_hour, every=every)
    by_rule = rules(values, horizon)
    said = np.column_stack([*by_rule.values(), *learned(values, horizon, starts).values()])
    said = np.maximum(said, 0.0)
    said[:first] = np.nan
    truth = targets(values, horizon)
    mixed = _weighted_median(said, _weights(np.abs(said - truth[:, None]), horizon))
    simple = said[:, : len(SIMPLE)]
    choice = _guard(mixed, simple, truth, horizon, starts)
    point = np.where(choice < 0, mixed, simple[np.arange(len(values)), choice])
    return Path(horizon, point, simple, choice)


def _weights(errors: Floats, horizon: int) -> Floats:
    """Weight of each expert at each hour, by its errors on targets of the last four weeks; equal without any."""
    there = ~np.isnan(errors)
    total = np.vstack([np.zeros(errors.shape[1]), np.cumsum(np.where(there, errors, 0.0), axis=0)])
    count = np.vstack([np.zeros(errors.shape[1]), np.cumsum(there, axis=0)])
    # When hour t is over, the error of the forecast made at t - horizon is the last known.
    stop = np.maximum(np.arange(len(errors)) - horizon + 1, 0)
    start = np.maximum(stop - WINDOW_H, 0)
    num = count[stop] - count[start]
    mean = np.divide(total[stop] - total[start], num, out=np.full(errors.shape, np.inf), where=num > 0)
    least = mean.min(axis=1, keepdims=True)
    is_new = ~np.isfinite(least)
    ratio = (mean + _TINY) / (np.where(is_new, 0.0, least) + _TINY) - 1
    return np.asarray(np.where(is_new, 1.0, np.exp(-SHARPNESS * np.maximum(ratio, 0.0))))


def _weighted_median(said: Floats, weight: Floats) -> Floats:
    """Smallest forecast at which half of the weight is reached; experts that say nothing have none."""
    weight = np.where(np.isnan(said), 0.0, weight)
    order = np.argsort(said, axis=1, kind="stable")
    sorted_said, run = (np.take_along_axis(each, order, axis=1) for each in (said, weight))
    run = np.cumsum(run, axis=1)
    place = (run >= run[:, -1:] / 2).argmax(axis=1)
    return sorted_said[np.arange(len(said)), place]  # type: ignore[no-any-return]


def _guard(mixed: Floats, simple: Floats, truth: Floats, horizon: int, starts: list[int]) -> Ints:
    """At each start: the simple rule that was surely better over the last four weeks, or -1."""
    choice = np.full(len(mixed), -1, dtype=np.int64)
    for start, stop in zip(starts, [*starts[1:], len(mixed)], strict=True):
        end = max(start - horizon + 1, 0)
        rows = np.arange(max(end - WINDOW_H, 0), end)
        rows = rows[~np.isnan(mixed[rows] - truth[rows])]
        if not len(rows):
            continue
        errors = np.abs(simple[rows] - truth[rows, None])
        best = int(errors.mean(axis=0).argmin())
        gap = np.abs(mixed[rows] - truth[rows]) - errors[:, best]
        low = block_interval(gap, days=(rows + horizon) // 24).low
        if low is not None and low > 0:
            choice[start:stop] = best
    return choice


def quantiles_of(path: Path, values: Floats, levels: Floats, rows: Ints) -> Floats:
    """Quantiles at hours of asking, from errors of the same horizon that were known then, shape (rows, levels).

    A level above 1/2 adds the ceil((n + 1) level)-th smallest of the n errors of the last four weeks, one below the
    floor((n + 1) level)-th; 0.5 is the forecast itself, and no other lies on the wrong side of it. Split conformal
    prediction on a moving window, each side by itself: V. Vovk, A. Gammerman and G. Shafer, "Algorithmic Learning in a
    Random World", 2005, section 2; hours are not exchangeable, so coverage is measured, not promised.
    """
    errors = targets(values, path.horizon) - path.point
    out = np.full((len(rows), len(levels)), np.nan)
    for place, row in enumerate(rows):
        end = max(int(row) - path.horizon + 1, 0)
        known = errors[max(end - WINDOW_H, 0) : end]
        known = np.sort(known[~np.isnan(known)])
        if len(known) >= LEAST_ERRORS:
            out[place] = path.point[row] + _shifts(known, levels)
    return np.asarray(np.maximum(out, 0.0))


def _shifts(known: Floats, levels: Floats) -> Floats:
    num = len(known)
    # Rounded: 0.1 x 10 must not come out as a hair more than 1.
    exact = np.round((num + 1) * levels, 9)
    rank = np.where(levels > 0.5, np.ceil(exact), np.floor(exact)).astype(np.int64)
    shift = known[np.clip(rank, 1, num) - 1]
    return np.asarray(
        np.where(levels > 0.5, np.maximum(shift, 0.0), np.where(levels < 0.5, np.minimum(shift, 0.0), 0.0))
    )
