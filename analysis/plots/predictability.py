"""Figures of how well durations can be known beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from analysis.plots.registry import figure
from analysis.plots.shares import one_kind
from analysis.plots.style import INK, SMALL_PT, bar_style, legend, new_axes, style_axes

__all__ = ["plot_duration_predictability", "plot_nearest_history"]

GROUPINGS = {
    "none": "nothing",
    "vc": "the VC",
    "vc_size": "VC and size",
    "user": "the user",
    "user_request": "user, size, limit",
    "user_name": "user and job name",
    "group": "recurrence group",
}
RULES = {"last": "the last job", "mean_2": "mean of last 2", "median_15": "median of last 15"}
KEYS = {"owner": "of the user or VC", "owner_request": "of the same request"}
#: Error of a factor of two, in natural logarithms.
FACTOR_2 = float(np.log(2))


def _bars(ax: Axes, *, labels: Sequence[str], series: Sequence[tuple[str, Sequence[float | None]]], words: str) -> None:
    """Draw bars of errors, one of each series per label, with their numbers, and a line at a factor of two."""
    height = 0.8 / len(series)
    largest = max((value or 0.0 for _, values in series for value in values), default=1.0)
    for index, (name, values) in enumerate(series):
        places = np.arange(len(labels)) + (index - (len(series) - 1) / 2) * height
        ax.barh(places, [value or 0.0 for value in values], height=height * 0.92, label=name, **bar_style(index))
        for place, value in zip(places, values, strict=True):
            if value is not None:
                ax.text(value + largest * 0.015, place, f"{value:.2f}", va="center", color=INK, fontsize=SMALL_PT)
    ax.axvline(FACTOR_2, color=INK, lw=1, ls=(0, (2, 2)))
    ax.set_yticks(range(len(labels)), labels=list(labels))
    ax.set_ylim(len(labels) - 0.45, -0.55)
    ax.set_xlim(0, max(largest * 1.14, FACTOR_2 * 1.3))
    ax.set_xlabel(f"{words} (log of seconds; dashed = factor 2)")


def _height(table: pl.DataFrame) -> float:
    return 1.2 + 0.38 * max(one_kind(table).height, 2)


@figure(
    "duration_predictability",
    table="duration_predictability",
    title="Least error when only the group is known",
    caption=(
        "Mean error of the logarithm of the duration if each group's own median, known only afterwards, were "
        "predicted. A predictor that knows no more than the group cannot be better on these jobs."
    ),
    height_in=_height,
)
def plot_duration_predictability(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the hindsight error of each grouping, of GPU jobs (of CPU jobs where there are no others).

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.duration_predictability` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    chosen = one_kind(table)
    ax = ax or new_axes(height_in=_height(table))
    series = [("by jobs", chosen["hindsight_log_mae"].to_list())]
    heavy = chosen["hindsight_log_mae_gpu_time"]
    if heavy.null_count() < len(heavy):
        series.append(("by GPU time", heavy.to_list()))
    labels = [GROUPINGS[str(name)] for name in chosen["grouping"]]
    _bars(ax, labels=labels, series=series, words="Mean error")
    ax.set_ylabel("What is known of a job")
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax, grid="x")


def _history_height(table: pl.DataFrame) -> float:
    return 1.3 + 0.975 * max(one_kind(table)["key"].n_unique() if table.height else 0, 1)


@figure(
    "nearest_history",
    table="nearest_history",
    title="How well looking back predicts a duration",
    caption=(
        "Mean error of the logarithm of the duration when the jobs that had ended before a submission are the "
        "prediction. A trained predictor has to be better than these."
    ),
    height_in=_history_height,
)
def plot_nearest_history(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the errors of predictions from ended jobs, of GPU jobs (of CPU jobs where there are no others).

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.nearest_history` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    chosen = one_kind(table).with_columns(pl.col("key", "rule").cast(pl.String))
    ax = ax or new_axes(height_in=_history_height(table))
    found = {(key, rule): error for key, rule, error in chosen.select("key", "rule", "log_mae").iter_rows()}
    keys = [key for key in KEYS if any(known == key for known, _ in found)]
    series = [(words, [found.get((key, rule)) for key in keys]) for rule, words in RULES.items()]
    _bars(ax, labels=[KEYS[key].replace(" of ", "\nof ") for key in keys], series=series, words="Mean error")
    ax.set_ylabel("Ended jobs looked at")
    legend(ax, num_columns=3, place="outside")
    return style_axes(ax, grid="x")
