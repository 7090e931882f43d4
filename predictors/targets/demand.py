"""Forecast of a cluster's demand (GPUs or nodes busy), an hour to weeks ahead, with quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np
import polars as pl
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from analysis.errors import UnknownNameError, UsageError
from analysis.schema import TIME
from predictors.predictive import check_quantiles
from predictors.targets.demand_mix import Path, forecast_path, quantiles_of, reach
from predictors.targets.demand_series import HOUR_US, as_hours

__all__ = ["DEFAULT_HORIZONS_H", "REFITS_H", "DemandForecaster", "check_horizons", "check_refit"]

DEFAULT_HORIZONS_H: Final = (1, 6, 24, 168)
#: How often learners learn anew, by name. [hours]
REFITS_H: Final = {"daily": 24, "weekly": 168}
LONGEST_H: Final = 28 * 24


def check_horizons(horizons_h: Sequence[int]) -> tuple[int, ...]:
    """Let through whole hours from 1 to four weeks.

    Raises
    ------
    UsageError
        If there is none, or one is something else.
    """
    wrong = [each for each in horizons_h if not isinstance(each, int | np.integer) or not 1 <= each <= LONGEST_H]
    if wrong or not len(horizons_h) or len(set(horizons_h)) < len(horizons_h):
        msg = (
            f"demand: horizons_h is {tuple(horizons_h)}; expected different whole hours from 1 to {LONGEST_H}, "
            "such as (1, 6, 24, 168)."
        )
        raise UsageError(msg)
    return tuple(int(each) for each in horizons_h)


def check_refit(refit: str) -> int:
    """Hours of a refit by its name.

    Raises
    ------
    UnknownNameError
        If there is none of that name.
    """
    if refit not in REFITS_H:
        raise UnknownNameError(kind="refit of a demand forecast", found=refit, known=REFITS_H)
    return REFITS_H[refit]


class DemandForecaster(BaseEstimator):  # type: ignore[misc]
    """Forecast of hourly demand by rules and small learners, mixed by how far each was off lately.

    Ten rules (the last value, seasonal naive by day and week, means, and what lies between them) and two learners
    (median regression, boosted trees) each say what they expect; the forecast is their median, weighted by their
    errors of the last four weeks. A guard looks at every refit: where the last value or a seasonal naive forecast was
    surely better than the mix (the paired interval over days excludes zero), that is the forecast. Quantiles add to it
    the errors that forecasts of the same horizon made, as far as they were known.

    Parameters
    ----------
    horizons_h : sequence of int, default (1, 6, 24, 168)
        Hours ahead; 1 is the hour after the last one of the series.
    refit : {"weekly", "daily"}, default "weekly"
        How often learners learn anew while past forecasts are made again, and the guard looks.

    Attributes
    ----------
    paths_ : list of Path
        Forecasts of the last weeks, by horizon.
    origin_ : datetime
        Where the last hour of the series begins, in UTC.
    choice_ : dict of int to str
        By horizon: "mix", or the rule that the guard chose.

    Notes
    -----
    statsforecast and skforecast were looked at in 2026-12: both need pandas below 3, which hindcast does not allow.

    Examples
    --------
    >>> from datetime import datetime, timedelta
    >>> hours = [datetime(2024, 1, 1) + timedelta(hours=i) for i in range(28 * 24)]
    >>> busy = pl.DataFrame({"time": hours, "value": [8.0 if 8 <= time.hour < 20 else 2.0 for time in hours]})
    >>> model = DemandForecaster(horizons_h=(1, 12)).fit(busy)
    >>> model.predict().select("time", "predicted").rows()  # doctest: +NORMALIZE_WHITESPACE
    [(datetime.datetime(2024, 1, 29, 0, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC')), 2.0),
     (datetime.datetime(2024, 1, 29, 11, 0, tzinfo=zoneinfo.ZoneInfo(key='UTC')), 8.0)]
    """

    def __init__(self, *, horizons_h: Sequence[int] = DEFAULT_HORIZONS_H, refit: str = "weekly") -> None:
        self.horizons_h = horizons_h
        self.refit = refit

    def fit(self, series: Any) -> Self:
        """Learn from the past of a series.

        Parameters
        ----------
        series : DataFrame of polars or pandas, or Trace
            Columns ``time`` and ``value`` as ``demand_series`` takes them; of a Trace the GPUs in use.

        Returns
        -------
        DemandForecaster
            Itself.

        Raises
        ------
        UsageError
            If a parameter or the series is not what it should be.
        HindcastError
            If the series has no value.
        """
        horizons, every = check_horizons(self.horizons_h), check_refit(self.refit)
        self.values_, self.first_hour_ = as_hours(series)
        last = len(self.values_) - 1
        self.paths_: list[Path] = [
            forecast_path(
                self.values_,
                horizon,
                first=max(last - reach(horizon, every), 0),
                first_hour=self.first_hour_,
                every=every,
            )
            for horizon in horizons
        ]
        self.origin_ = _time([self.first_hour_ + last])[0]
        self.choice_ = {path.horizon: path.choice_name(last) for path in self.paths_}
        return self

    def predict(self, *, quantiles: Sequence[float] = (0.1, 0.5, 0.9)) -> pl.DataFrame:
        """Forecast the hours after the end of the series.

        Parameters
        ----------
        quantiles : sequence of float, default (0.1, 0.5, 0.9)
            Each between 0 and 1.

        Returns
        -------
        DataFrame, one row per horizon
            ``origin_time`` (where the last known hour begins), ``horizon_h``, ``time`` (where the forecast hour
            begins), ``predicted`` (at least 0), and a column per quantile such as ``predicted_p10``: null with less
            than 20 past errors, never crossing, 0.5 is ``predicted``.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        UsageError
            If a quantile does not lie between 0 and 1.
        """
        check_is_fitted(self, "paths_")
        levels = check_quantiles(quantiles)
        last = len(self.values_) - 1
        horizons = [path.horizon for path in self.paths_]
        point = np.array([path.point[last] for path in self.paths_])
        rows = np.array([last])
        spread = np.vstack([quantiles_of(path, self.values_, levels, rows) for path in self.paths_])
        ahead = _time([self.first_hour_ + last + horizon for horizon in horizons])
        columns = {"horizon_h": horizons, "time": ahead, "predicted": point}
        columns |= {f"predicted_{_name(level)}": spread[:, place] for place, level in enumerate(levels)}
        table = pl.DataFrame(columns, nan_to_null=True)
        return table.select(pl.lit(self.origin_, dtype=TIME).alias("origin_time"), pl.all())


def _time(hours: Sequence[int]) -> pl.Series:
    return (pl.Series("time", hours, dtype=pl.Int64) * HOUR_US).cast(TIME)


def _name(level: float) -> str:
    return f"p{round(100 * level, 6):g}".replace(".", "_")
