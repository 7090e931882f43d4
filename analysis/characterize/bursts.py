"""How bursty arrivals are: against a Poisson process, at many time scales, with their memory and self-similarity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from analysis.characterize.count_series import MIN_WINDOWS, Floats, Ints, Windows, autocorrelations, gap_statistics
from analysis.characterize.cubes import Cube
from analysis.characterize.hurst import aggregated_variance, local_whittle, without_cycle
from analysis.characterize.registry import characterization

__all__ = ["ARRIVALS", "arrival_autocorrelation", "arrival_dispersion", "burstiness"]

#: Jobs by the whole second of their submission (since 1970 UTC): nearly every one has a second of its own.
ARRIVALS: Final = Cube(
    "arrivals",
    keys={"second": pl.col("submit_us") // 1_000_000},
    values={"num_jobs": pl.len().cast(pl.Int64)},
    where=pl.col("submit_us").is_not_null(),
    is_fine=True,
)

HOUR_S: Final = 3600
DAY_S: Final = 86_400
WEEK_S: Final = 604_800
#: Groups with fewer jobs are left out.
MIN_JOBS: Final = 100
#: An autocorrelation needs a log of this many times its lag.
MIN_SPANS: Final = 3
#: The Hurst parameter is that of the counts in windows of this length, at least this many; the week is taken out of
#: logs of at least four weeks.
HURST_WINDOW_S: Final = 600
MIN_HURST_WINDOWS: Final = 1000
MIN_WEEKS: Final = 4
LARGEST_LAG_H: Final = 336
WINDOWS_S: Final = (
    *(10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10_800),
    *(21_600, 43_200, 86_400, 172_800, 345_600, 604_800, 1_209_600),
)

NAMED_WINDOWS_S: Final = {"idc_1min": 60, "idc_10min": 600, "idc_1h": HOUR_S, "idc_1d": DAY_S}
NAMED_LAGS_H: Final = {"acf_1h": 1, "acf_24h": 24, "acf_168h": 168}
BURSTINESS_COLUMNS: Final = (
    *("mean_gap_s", "gap_cv", *NAMED_WINDOWS_S, *NAMED_LAGS_H),
    *("hurst_whittle", "hurst_whittle_no_week", "hurst_se", "hurst_variance"),
)
BURSTINESS_SCHEMA: Final = {"num_jobs": pl.Int64(), **dict.fromkeys(BURSTINESS_COLUMNS, pl.Float64())}
DISPERSION_SCHEMA: Final = {
    "window_s": pl.Float64(),
    "num_windows": pl.Int64(),
    "mean_jobs": pl.Float64(),
    "idc": pl.Float64(),
}
AUTOCORRELATION_SCHEMA: Final = {"lag_h": pl.Int64(), "autocorrelation": pl.Float64(), "chance": pl.Float64()}

NOTE: Final = (
    "Submissions are counted to the whole second, from the group's first to its last; groups with fewer than "
    f"{MIN_JOBS} jobs are left out. Every job counts once."
)


def _table(
    arrivals: pl.DataFrame,
    by: tuple[str, ...],
    *,
    make: Callable[[Ints, Ints], Iterator[dict[str, Any]]],
    columns: Mapping[str, pl.DataType],
) -> pl.DataFrame:
    schema = {**{name: arrivals.schema[name] for name in by}, **columns}
    parts = arrivals.partition_by(by, as_dict=True, maintain_order=True) if by else {(): arrivals}
    rows = []
    for key, part in parts.items():
        if part["num_jobs"].sum() >= MIN_JOBS:
            named = dict(zip(by, key, strict=True))
            found = make(part["second"].to_numpy(), part["num_jobs"].to_numpy())
            rows += [{**dict.fromkeys(columns), **row, **named} for row in found]
    return pl.DataFrame(rows, schema=schema, orient="row")


@characterization(
    "burstiness",
    title="How bursty arrivals are",
    definition=(
        "gap_cv: standard deviation over mean of the gaps between submissions (1 for a Poisson process, above 1 "
        "bursty). idc: variance over mean of the counts in windows of 1 min, 10 min, 1 h, 1 day (1 for a Poisson "
        "process). acf: autocorrelation of hourly counts at lags of an hour, a day, a week. hurst: memory of the "
        "counts per 10 minutes (0.5 none, towards 1 long-range dependent) by local Whittle (standard error: hurst_se), "
        "also with the mean course of the week taken out, for a daily and weekly rhythm looks like memory; and by "
        f"aggregated variance. Null: the log is too short for it. {NOTE}"
    ),
    source=(
        "Index of dispersion: D. R. Cox, P. A. W. Lewis, The Statistical Analysis of Series of Events, 1966; Hurst: "
        "P. M. Robinson, 1995, doi:10.1214/aos/1176324317; M. S. Taqqu et al., 1995, doi:10.1142/S0218348X95000692"
    ),
    needs=("submit_time",),
    inputs=(ARRIVALS,),
)
def burstiness(arrivals: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Burstiness of the arrivals in one row: gaps, dispersion, autocorrelation, self-similarity.

    Parameters
    ----------
    arrivals : DataFrame
        Collected from ``ARRIVALS``.
    by : tuple of str
        Columns of the grouping.

    Returns
    -------
    DataFrame, a row per group with at least 100 jobs
        num_jobs, mean_gap_s [s], gap_cv, idc_1min, idc_10min, idc_1h, idc_1d (null with fewer than 20 windows),
        acf_1h, acf_24h, acf_168h (null where the log is shorter than 3 lags), hurst_whittle, hurst_whittle_no_week
        (null below 4 weeks), hurst_se, hurst_variance (null below a week or so). [unitless but for the gap]
    """
    return _table(arrivals, by, make=_burstiness, columns=BURSTINESS_SCHEMA)


def _burstiness(second: Ints, count: Ints) -> Iterator[dict[str, Any]]:
    mean, variation = gap_statistics(second, count)
    row: dict[str, Any] = {"num_jobs": int(count.sum()), "mean_gap_s": mean, "gap_cv": variation}
    windows = Windows(second, count)
    for name, window in NAMED_WINDOWS_S.items():
        found = windows.dispersion(window)
        row[name] = found["idc"] if found else None
    hourly = windows.series(HOUR_S)
    correlation = autocorrelations(hourly, max(NAMED_LAGS_H.values()))
    for name, lag in NAMED_LAGS_H.items():
        row[name] = float(correlation[lag]) if len(correlation) > lag and len(hourly) >= MIN_SPANS * lag else None
    yield row | _self_similarity(windows.series(HURST_WINDOW_S))


def _self_similarity(series: Floats) -> dict[str, float | None]:
    if len(series) < MIN_HURST_WINDOWS or not np.ptp(series):
        return {}
    estimate, error = local_whittle(series)
    row = {"hurst_whittle": estimate, "hurst_se": error, "hurst_variance": aggregated_variance(series)}
    week = WEEK_S // HURST_WINDOW_S
    if len(series) >= MIN_WEEKS * week:
        rest = without_cycle(series, period=week, step=HOUR_S // HURST_WINDOW_S)
        row["hurst_whittle_no_week"] = local_whittle(rest)[0] if np.ptp(rest) else None
    return row


@characterization(
    "arrival_dispersion",
    title="Burstiness of arrivals by time scale",
    definition=(
        "Variance over mean of the number of submissions in windows of each length: 1 for a Poisson process at every "
        "length; a line that rises says that bursts, rhythms or trends of that length remain. Only lengths of which at "
        f"least {MIN_WINDOWS} whole windows fit. {NOTE}"
    ),
    source="D. R. Cox, P. A. W. Lewis, The Statistical Analysis of Series of Events, 1966",
    needs=("submit_time",),
    empty_means="The log is too short, or holds too few jobs.",
    inputs=(ARRIVALS,),
)
def arrival_dispersion(arrivals: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Index of dispersion of counts at windows from 10 s to 2 weeks.

    Parameters
    ----------
    arrivals : DataFrame
        Collected from ``ARRIVALS``.
    by : tuple of str
        Columns of the grouping.

    Returns
    -------
    DataFrame, a row per group and window length
        window_s [s], num_windows, mean_jobs (per window), idc (unitless).
    """
    return _table(arrivals, by, make=_dispersions, columns=DISPERSION_SCHEMA)


def _dispersions(second: Ints, count: Ints) -> Iterator[dict[str, Any]]:
    windows = Windows(second, count)
    found = (windows.dispersion(window) for window in WINDOWS_S)
    return (row for row in found if row is not None)


@characterization(
    "arrival_autocorrelation",
    title="Memory of the arrivals",
    definition=(
        "Autocorrelation of the number of submissions per hour at lags up to two weeks (a third of the log at most). "
        f"'chance': beyond plus or minus this lie 5 % of the lags of a series without memory. {NOTE}"
    ),
    source="G. E. P. Box, G. M. Jenkins, Time Series Analysis, 1976",
    needs=("submit_time",),
    empty_means="The log is too short, or holds too few jobs.",
    inputs=(ARRIVALS,),
)
def arrival_autocorrelation(arrivals: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Autocorrelation of hourly counts by lag.

    Parameters
    ----------
    arrivals : DataFrame
        Collected from ``ARRIVALS``.
    by : tuple of str
        Columns of the grouping.

    Returns
    -------
    DataFrame, a row per group and lag
        lag_h [h], autocorrelation (-1 to 1), chance (1.96 / sqrt(hours)).
    """
    return _table(arrivals, by, make=_lags, columns=AUTOCORRELATION_SCHEMA)


def _lags(second: Ints, count: Ints) -> Iterator[dict[str, Any]]:
    hourly = Windows(second, count).series(HOUR_S)
    largest = min(LARGEST_LAG_H, len(hourly) // MIN_SPANS)
    chance = 1.96 / max(len(hourly), 1) ** 0.5
    correlation = autocorrelations(hourly, largest) if largest >= 1 else np.empty(0)
    for lag in range(1, len(correlation)):
        yield {"lag_h": lag, "autocorrelation": float(correlation[lag]), "chance": chance}
