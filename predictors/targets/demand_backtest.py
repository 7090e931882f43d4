"""How far forecasts of demand are off: rolling origin over the last part of a series, against the naive forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from analysis.errors import UsageError
from predictors.differences import block_interval, verdict
from predictors.scores import pinball
from predictors.targets.demand import DEFAULT_HORIZONS_H, check_horizons, check_refit
from predictors.targets.demand_experts import SIMPLE, Floats, targets
from predictors.targets.demand_mix import Ints, Path, forecast_path, quantiles_of, reach
from predictors.targets.demand_series import HOUR_US, as_hours

__all__ = ["DemandBacktest", "backtest_demand"]

LEVELS: Final = np.array([0.1, 0.5, 0.9])
#: Up to two days ahead errors are drawn anew by days, beyond by weeks: neighbours share most of a long way ahead.
BY_DAYS_UP_TO_H: Final = 48


@dataclass(frozen=True)
class DemandBacktest:
    """Scores and forecasts of a backtest of demand.

    Attributes
    ----------
    scores : DataFrame, one row per horizon
        ``horizon_h``; ``num_hours`` scored (those whose value is known); ``mae`` of the forecast and ``mae_last``,
        ``mae_daily``, ``mae_weekly`` of the naive ones; ``baseline``: the better seasonal naive forecast on these very
        hours; ``skill`` = 1 - mae / mae of the baseline; ``difference`` to the baseline (below 0 = better) with its
        95 % interval ``difference_low``, ``difference_high`` (moving blocks of days, beyond two days ahead of weeks;
        null where there are less than ten) and the ``verdict``; the same against the last value (``last_...``);
        ``coverage`` and mean ``width`` of p10 to p90, and ``pinball_10``, ``pinball_90``. All but coverage and skill
        are in the unit of the series.
    forecasts : DataFrame, one row per hour of asking and horizon
        ``horizon_h``, ``origin_time``, ``time``, ``value`` (null = missing, not scored), ``predicted``,
        ``predicted_p10``, ``predicted_p90``, ``last``, ``daily``, ``weekly``, ``choice``.
    """

    scores: pl.DataFrame
    forecasts: pl.DataFrame


def backtest_demand(
    series: Any, *, horizons_h: Sequence[int] = DEFAULT_HORIZONS_H, split: float = 0.6, refit: str = "weekly"
) -> DemandBacktest:
    """Forecast every hour of the last part of a series from what was known some hours before.

    Parameters
    ----------
    series : DataFrame of polars or pandas, or Trace
        As ``predictors.targets.DemandForecaster.fit`` takes it.
    horizons_h : sequence of int, default (1, 6, 24, 168)
        Hours ahead.
    split : float, default 0.6
        Share of the hours before the test part. All forecasts that are scored are made from its first hour on.
    refit : {"weekly", "daily"}, default "weekly"
        How often learners learn anew and the guard looks.

    Returns
    -------
    DemandBacktest
        What ``DemandForecaster`` would have said at each hour.

    Raises
    ------
    UsageError
        If a parameter is not what it should be, or the test part has no hour.

    Examples
    --------
    >>> from datetime import datetime, timedelta
    >>> hours = [datetime(2024, 1, 1) + timedelta(hours=i) for i in range(60 * 24)]
    >>> busy = pl.DataFrame({"time": hours, "value": [8.0 if 8 <= time.hour < 20 else 2.0 for time in hours]})
    >>> backtest_demand(busy, horizons_h=(24,)).scores.select("num_hours", "mae", "mae_daily").rows()
    [(552, 0.0, 0.0)]
    """
    horizons, every = check_horizons(horizons_h), check_refit(refit)
    if not 0 < split < 1:
        msg = f"backtest_demand: split is {split}; expected a share between 0 and 1, such as 0.6."
        raise UsageError(msg)
    values, first_hour = as_hours(series)
    begin = int(split * len(values))
    scores, forecasts = [], []
    for horizon in horizons:
        first = max(begin - reach(horizon, every), 0)
        path = forecast_path(values, horizon, first=first, first_hour=first_hour, every=every)
        part = _part(path, values, begin)
        if not len(part.rows):
            msg = f"backtest_demand: no hour lies {horizon} hours after the split of {split} of {len(values)} hours."
            raise UsageError(msg)
        scores.append({**_scores(part, horizon), "horizon_h": horizon})
        forecasts.append(_table(part, path, first_hour))
    return DemandBacktest(pl.DataFrame(scores, schema=_SCHEMA), pl.concat(forecasts))


class _Part(NamedTuple):
    """Rows of the test part, their true values, forecasts and quantiles."""

    rows: Ints
    truth: Floats
    point: Floats
    spread: Floats
    simple: Floats


def _part(path: Path, values: Floats, begin: int) -> _Part:
    rows = np.arange(begin, len(values) - path.horizon)
    spread = quantiles_of(path, values, LEVELS, rows)
    return _Part(rows, targets(values, path.horizon)[rows], path.point[rows], spread, path.simple[rows])


_NUMBERS: Final = ("mae", *(f"mae_{name}" for name in SIMPLE))
_SCHEMA: Final = {
    **{"horizon_h": pl.Int64(), "num_hours": pl.Int64()},
    **dict.fromkeys(_NUMBERS, pl.Float64()),
    **{"baseline": pl.String(), "skill": pl.Float64()},
    **dict.fromkeys(("difference", "difference_low", "difference_high"), pl.Float64()),
    "verdict": pl.String(),
    **dict.fromkeys(("last_difference", "last_difference_low", "last_difference_high"), pl.Float64()),
    "last_verdict": pl.String(),
    **dict.fromkeys(("coverage", "width", "pinball_10", "pinball_90"), pl.Float64()),
}


def _scores(part: _Part, horizon: int) -> dict[str, Any]:
    known = ~np.isnan(part.truth) & ~np.isnan(part.point)
    truth, errors = part.truth[known], np.abs(part.point - part.truth)[known]
    found: dict[str, Any] = {**dict.fromkeys(_SCHEMA), "num_hours": len(truth)}
    if not len(truth):
        return found
    naive = {name: np.abs(part.simple[known, place] - truth) for place, name in enumerate(SIMPLE)}
    found |= {"mae": float(errors.mean()), **{f"mae_{name}": float(each.mean()) for name, each in naive.items()}}
    baseline = min(SIMPLE[1:], key=lambda name: found[f"mae_{name}"])
    least = found[f"mae_{baseline}"]
    found |= {"baseline": baseline, "skill": 1 - found["mae"] / least if least > 0 else None}
    blocks = (part.rows[known] + horizon) // (24 if horizon <= BY_DAYS_UP_TO_H else 168)
    for prefix, other in (("", baseline), ("last_", "last")):
        gap = errors - naive[other]
        interval = block_interval(gap, days=blocks)
        found |= {
            f"{prefix}difference": float(gap.mean()),
            f"{prefix}difference_low": interval.low,
            f"{prefix}difference_high": interval.high,
            f"{prefix}verdict": verdict(interval).replace("days and users", "weeks" if horizon > 48 else "days"),
        }
    return found | _interval_scores(part.spread[known], truth)


def _interval_scores(spread: Floats, truth: Floats) -> dict[str, float | None]:
    told = ~np.isnan(spread[:, 0])
    if not told.any():
        return {}
    low, high, truth = spread[told, 0], spread[told, 2], truth[told]
    return {
        "coverage": float(((low <= truth) & (truth <= high)).mean()),
        "width": float((high - low).mean()),
        "pinball_10": pinball(low, truth, quantile=0.1),
        "pinball_90": pinball(high, truth, quantile=0.9),
    }


def _table(part: _Part, path: Path, first_hour: int) -> pl.DataFrame:
    origin = pl.Series((part.rows + first_hour) * HOUR_US).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    columns = {
        "horizon_h": np.full(len(part.rows), path.horizon),
        "origin_time": origin,
        "time": origin.dt.offset_by(f"{path.horizon}h"),
        "value": part.truth,
        "predicted": part.point,
        "predicted_p10": part.spread[:, 0],
        "predicted_p90": part.spread[:, 2],
        **{name: part.simple[:, place] for place, name in enumerate(SIMPLE)},
        "choice": [path.choice_name(row) for row in part.rows.tolist()],
    }
    return pl.DataFrame(columns, nan_to_null=True)
