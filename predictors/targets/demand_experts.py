"""What simple rules and small learners say of demand some hours ahead, each from what was known at the hour of asking.

All work on an array of hourly values in which NaN is missing. Row ``t`` of a result is the forecast of hour
``t + horizon`` made when hour ``t`` is over; it depends on hours up to ``t`` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import QuantileRegressor
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

__all__ = ["LEARNERS", "SIMPLE", "Floats", "last_known", "learned", "rules", "stage_starts", "targets"]

Floats = NDArray[np.float64]
DAY: Final = 24
WEEK: Final = 168
#: What a forecast must not fall behind: the last value, and the same hour of the last day and of the last week known.
SIMPLE: Final = ("last", "daily", "weekly")
LEARNERS: Final = ("linear", "trees")
#: Seasons that a seasonal rule goes back where the value is missing.
MOST_SEASONS: Final = 4
#: How far back learners look, and how many rows they need at least. [hours]
LOOK_BACK_H: Final = {"linear": 12 * WEEK, "trees": 52 * WEEK}
LEAST_ROWS: Final = 7 * DAY
#: The linear programme of a median regression takes seconds for thousands of rows, and neighbouring hours tell nearly
#: the same: of more rows every second, third … is enough.
MOST_ROWS: Final = {"linear": 4 * WEEK, "trees": 52 * WEEK}


def targets(values: Floats, horizon: int) -> Floats:
    """Value ``horizon`` hours after each hour; NaN where it is missing or not yet there."""
    out = np.full(len(values), np.nan)
    out[: max(len(values) - horizon, 0)] = values[horizon:]
    return out


def last_known(values: Floats) -> Floats:
    """Last value that is not missing; NaN before the first."""
    place = np.where(np.isnan(values), -1, np.arange(len(values)))
    place = np.maximum.accumulate(place)
    return np.asarray(np.where(place >= 0, values[place], np.nan))


def rules(values: Floats, horizon: int) -> dict[str, Floats]:
    """Forecasts by rules, those of ``SIMPLE`` first.

    Seasonal naive forecasts are those of R. J. Hyndman and G. Athanasopoulos, "Forecasting: Principles and Practice",
    3rd ed., section 5.2; a missing value is taken from the season before, and in the end from the last value. The
    others damp the last value towards the mean of the last day or week, and shift it by the change that the hours of
    the day brought over four weeks.
    """
    last = last_known(values)
    day, week = _mean_of(values, DAY), _mean_of(values, WEEK)
    shift = _change_of_day(values, horizon) / 2
    found = {
        "last": last,
        "daily": _seasonal(values, horizon, DAY),
        "weekly": _seasonal(values, horizon, WEEK),
        "day_mean": day,
        "week_mean": week,
        "to_day_mean": 0.75 * last + 0.25 * day,
        "to_week_mean": 0.75 * last + 0.25 * week,
        "half_week_mean": 0.5 * last + 0.5 * week,
        "shifted": last + shift,
        "half_week_mean_shifted": 0.5 * last + 0.5 * week + shift,
    }
    return {name: np.where(np.isnan(said), last, said) for name, said in found.items()}


def _ago(values: Floats, hours: int) -> Floats:
    """Value so many hours before each hour; NaN before the first."""
    out = np.full(len(values), np.nan)
    out[hours:] = values[: max(len(values) - hours, 0)]
    return out


def _seasonal(values: Floats, horizon: int, season: int) -> Floats:
    """Value of the last hour known that lies whole seasons before the target."""
    first = season * -(-horizon // season) - horizon
    out = np.full(len(values), np.nan)
    for back in range(MOST_SEASONS):
        out = np.where(np.isnan(out), _ago(values, first + back * season), out)
    return out


def _mean_of(values: Floats, window: int) -> Floats:
    """Mean of the last ``window`` hours, missing ones left out."""
    there = ~np.isnan(values)
    total = np.concatenate([[0.0], np.cumsum(np.where(there, values, 0.0))])
    count = np.concatenate([[0], np.cumsum(there)])
    stop = np.arange(1, len(values) + 1)
    start = np.maximum(stop - window, 0)
    num = count[stop] - count[start]
    mean: Floats = np.divide(total[stop] - total[start], num, out=np.full(len(values), np.nan), where=num > 0)
    return mean


def _change_of_day(values: Floats, horizon: int, days: int = 28) -> Floats:
    """Mean change from this hour of the day to the target's, over the last days on which both are known."""
    steps = horizon % DAY
    total, count = np.zeros(len(values)), np.zeros(len(values))
    for back in range(1, days + 1):
        change = _ago(values, back * DAY - steps) - _ago(values, back * DAY)
        there = ~np.isnan(change)
        total += np.where(there, change, 0.0)
        count += there
    return np.asarray(total / np.maximum(count, 1))


def stage_starts(num_hours: int, *, first: int, first_hour: int, every: int) -> list[int]:
    """Hours at which learners learn anew: whole multiples of ``every`` since 1970, and the first hour asked about."""
    due = -(-(first + first_hour) // every) * every - first_hour
    return sorted({first, *range(due, num_hours, every)})


def learned(values: Floats, horizon: int, starts: list[int]) -> dict[str, Floats]:
    """Forecasts by learners, each fitted anew at every start to targets that were known then.

    Both learn the change from the last value, under the absolute loss; NaN before the first start that has a week of
    rows to learn from.
    """
    last = last_known(values)
    change = targets(values, horizon) - last
    told = _features(values, horizon)
    found = {name: np.full(len(values), np.nan) for name in LEARNERS}
    for start, stop in zip(starts, [*starts[1:], len(values)], strict=True):
        # At the start hours up to it are known: the last row is the one whose target is that hour.
        usable = np.flatnonzero(~np.isnan(change[: max(start - horizon + 1, 0)]))
        if len(usable) < LEAST_ROWS:
            continue
        for name, fit in _FITS.items():
            rows = usable[usable > usable[-1] - LOOK_BACK_H[name]]
            rows = rows[:: -(-len(rows) // MOST_ROWS[name])]
            model = fit(told[rows], change[rows])
            found[name][start:stop] = last[start:stop] + model(told[start:stop])
    return found


def _features(values: Floats, horizon: int) -> Floats:
    """How far rules lie from the last value; 0 where that is missing, as nothing speaks for a change then."""
    said = rules(values, horizon)
    last = said["last"]
    few = [said["week_mean"], said["day_mean"], _mean_of(values, 6), _ago(last, 1), said["daily"], said["shifted"]]
    return np.nan_to_num(np.column_stack(few) - last[:, None])


def _fit_linear(told: Floats, change: Floats) -> Callable[[Floats], Floats]:
    """Fit the median regression, unpenalized and through 0: without signs of change there is none."""
    model = QuantileRegressor(quantile=0.5, alpha=0.0, fit_intercept=False, solver="highs").fit(told, change)
    return lambda rows: np.asarray(model.predict(rows), dtype=np.float64)


def _fit_trees(told: Floats, change: Floats) -> Callable[[Floats], Floats]:
    model = HistGradientBoostingRegressor(
        loss="absolute_error",
        max_iter=40,
        learning_rate=0.05,
        max_leaf_nodes=4,
        min_samples_leaf=80,
        early_stopping=False,
        random_state=0,
    )
    with threadpool_limits(limits=1, user_api="openmp"):
        model.fit(told, change)

    def say(rows: Floats) -> Floats:
        with threadpool_limits(limits=1, user_api="openmp"):
            return np.asarray(model.predict(rows), dtype=np.float64)

    return say


_FITS: Final = {"linear": _fit_linear, "trees": _fit_trees}
