"""Figures of a backtest beyond the leaderboard: are intervals calibrated, and does the error hold week by week."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from analysis.plots.registry import figure
from analysis.plots.style import INK, legend, line_style, new_axes, share_axis, style_axes, unique

__all__ = ["plot_calibration_curve", "plot_error_by_window"]

#: A figure with more curves cannot be read: the best ones are drawn.
MOST_CURVES = 6


def _best(table: pl.DataFrame, column: str) -> list[str]:
    """Names of the models with the smallest mean of a column, at most as many as can be told apart."""
    ranked = table.group_by("model").agg(pl.col(column).mean()).sort(column, "model", nulls_last=True)
    return ranked["model"].head(MOST_CURVES).to_list()


@figure(
    "calibration_curve",
    table="calibration_curve",
    title="Do predicted quantiles hold",
    caption=(
        "Share of the jobs that ran no longer than each predicted quantile. On the diagonal a promise of 90 % is kept "
        "in 90 % of the cases; below it durations are underestimated. At 50 % stands the prediction itself, which is "
        "not calibrated. Shown are the six models closest to the diagonal."
    ),
    has_content=lambda table: table["observed"].count() > 0 if "observed" in table.columns else False,
)
def plot_calibration_curve(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the observed share below each predicted quantile against its level.

    Parameters
    ----------
    table : DataFrame
        ``BacktestResult.curve``: model, level, observed. [0-1]
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    ax.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
    ranked = _best(table.with_columns(off=(pl.col("observed") - pl.col("level")).abs()), "off")
    chosen = [name for name in unique(table["model"].to_list()) if name in ranked]
    for index, name in enumerate(chosen):
        part = table.filter(pl.col("model") == name).sort("level")
        ax.plot(part["level"], part["observed"], label=name.replace("_", " "), marker="o", ms=3, **line_style(index))
    share_axis(ax, label="Jobs that ran no longer (%)", largest=1.0)
    share_axis(ax, label="Predicted quantile (%)", axis="x", largest=1.0)
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax)


@figure(
    "error_by_window",
    table="scores_by",
    title="Error of predictors week by week",
    caption=(
        "Mean absolute error of log(1 + seconds) of the jobs of each week of the test part: 0.69 is a factor of 2. "
        "Shown are the six best models; the dates are the first days of the weeks."
    ),
    has_content=lambda table: "grouping" in table.columns and _weeks(table)["value"].n_unique() > 1,
)
def plot_error_by_window(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the log-MAE of each model in each week.

    Parameters
    ----------
    table : DataFrame
        ``BacktestResult.by``: grouping, value, model, log_mae.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    weeks = _weeks(table)
    names = sorted(unique(weeks["value"].to_list()))
    ranked = _best(weeks, "log_mae")
    for index, name in enumerate(name for name in unique(weeks["model"].to_list()) if name in ranked):
        part = weeks.filter(pl.col("model") == name).sort("value")
        places = [names.index(value) for value in part["value"]]
        values = np.array(part["log_mae"].to_list(), dtype=float)
        ax.plot(places, values, label=name.replace("_", " "), marker="o", ms=3, **line_style(index))
    step = max(1, -(-len(names) // 5))
    ax.set_xticks(range(0, len(names), step), labels=names[::step])
    ax.set_ylim(0, None)
    ax.set_xlabel("First day of the week (UTC)")
    ax.set_ylabel("Mean |log error| (log of seconds)")
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax)


def _weeks(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter((pl.col("grouping") == "window") & pl.col("log_mae").is_not_null())
