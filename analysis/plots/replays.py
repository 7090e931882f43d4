"""Figures of replays side by side: GPUs held and jobs waiting over time, distributions of delays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.plots.over_time import time_axis
from analysis.plots.registry import figure
from analysis.plots.style import (
    INK,
    PALETTE,
    SMALL_PT,
    duration_axis,
    legend,
    line_style,
    new_axes,
    share_axis,
    style_axes,
    unique,
)

__all__ = [
    "plot_replay_allocation",
    "plot_replay_delays",
    "plot_replay_jct",
    "plot_replay_queue",
    "plot_replay_queue_gpus",
]

F64 = npt.NDArray[np.float64]
#: A strip of one schedule [inch], and how much of it may be filled.
STRIP_IN, STRIP = 0.5, 0.88
#: More curves than that get into each other's way; then each has a strip.
MOST_CURVES = 3
#: Longer names of schedules are cut in the middle, where predictor and placement differ at the ends.
NAME_LENGTH = 30


def _name(text: str) -> str:
    half = NAME_LENGTH // 2
    cut = text if len(text) <= NAME_LENGTH else f"{text[: half - 1]}…{text[-half:]}"
    return cut.replace("$", r"\$").replace("__", "\n", 1) if len(text) > 16 else cut.replace("$", r"\$")


def _height(table: pl.DataFrame) -> float:
    return 1.5 + max(STRIP_IN * table["schedule"].n_unique(), 1.5)


def _columns(names: list[str]) -> int:
    """Columns of a legend that is no wider than the figure."""
    longest = max((len(name) for name in names), default=0)
    return 3 if longest <= 14 else 2 if longest <= 22 else 1


def _queue_height(table: pl.DataFrame) -> float:
    return _legend_height(table) if table["schedule"].n_unique() <= MOST_CURVES else _height(table)


def _legend_height(table: pl.DataFrame) -> float:
    names = unique(table["schedule"])
    return 2.9 + 0.17 * -(-len(names) // _columns(names))


@figure(
    "replay_allocation",
    table="replay_over_time",
    title="GPUs in use over time",
    caption=(
        "Share of the cluster's GPUs that jobs held, mean per bin, a strip for each schedule from 0 to 100% (dashed). "
        "Where a policy stopped jobs and there is no event log, a stopped job counts with its mean from its first "
        "start to its last end; what then comes to more than 100% is cut off."
    ),
    height_in=_height,
)
def plot_replay_allocation(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the share of GPUs in use over time, one strip below the other.

    Parameters
    ----------
    table : DataFrame
        As `analysis.replay.over_time` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes(height_in=_height(table))
    names = unique(table["schedule"])
    for place, name in enumerate(names):
        part = table.filter(pl.col("schedule") == name)
        base = len(names) - 1 - place
        _strip(ax, part["time"], part["gpu_allocation"].clip(upper_bound=1.0).to_numpy(), base=base, place=place)
        ax.axhline(base + STRIP, color=INK, linewidth=0.5, alpha=0.4, linestyle=(0, (4, 3)))
    if len(names) == 1:
        ax.set_yticks(
            [STRIP * share for share in (0, 0.25, 0.5, 0.75, 1.0)], labels=["0%", "25%", "50%", "75%", "100%"]
        )
    _name_strips(ax, names)
    ax.set_ylabel("GPUs in use (%)")
    return style_axes(ax, grid="x")


@figure(
    "replay_queue",
    table="replay_over_time",
    title="Jobs waiting over time",
    caption=(
        "Jobs that wait, mean per bin, on a logarithmic scale that begins with 0; lines at 1, 10, 100 and so on. Where "
        "a policy stopped jobs and there is no event log, a stopped job waits in part from its first start to its last "
        "end."
    ),
    height_in=_queue_height,
)
def plot_replay_queue(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the number of waiting jobs over time, a curve for each schedule.

    Parameters
    ----------
    table : DataFrame
        As `analysis.replay.over_time` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    return _queue(table, "num_waiting", "Jobs waiting", ax=ax)


@figure(
    "replay_queue_gpus",
    table="replay_over_time",
    title="GPUs waited for over time",
    caption=(
        "GPUs that the waiting jobs ask for, mean per bin, on a logarithmic scale that begins with 0; lines at 1, 10, "
        "100 and so on."
    ),
    height_in=_queue_height,
)
def plot_replay_queue_gpus(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the GPUs that waiting jobs ask for over time, a curve for each schedule.

    Parameters
    ----------
    table : DataFrame
        As `analysis.replay.over_time` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    return _queue(table, "waiting_gpus", "GPUs waited for", ax=ax)


def _strip(ax: Axes, times: pl.Series, height: F64, *, base: int, place: int) -> None:
    """Fill a strip of a schedule; heights from 0 to 1."""
    places = time_axis(ax, times)
    top = base + STRIP * height
    ax.fill_between(places, base, top, step="post", color=PALETTE[place % len(PALETTE)], alpha=0.8, linewidth=0)
    ax.axhline(base, color=INK, linewidth=0.6)


def _name_strips(ax: Axes, names: list[str]) -> None:
    if len(names) > 1:
        middle = [len(names) - 1 - place + STRIP / 2 for place in range(len(names))]
        ax.set_yticks(middle, labels=[_name(name) for name in names])
        ax.tick_params(axis="y", length=0)
    ax.margins(x=0)
    ax.set_ylim(0, len(names))


def _queue(table: pl.DataFrame, column: str, label: str, *, ax: Axes | None) -> Axes:
    """Curves of a few schedules, or a strip each of many; then the highest tick stands at the right of each."""
    ax = ax or new_axes(height_in=_queue_height(table))
    names = unique(table["schedule"])
    most = max(float(table[column].max() or 0), 1.0)  # type: ignore[arg-type]
    ticks = [0.0, *(10.0**k for k in range(math.ceil(math.log10(most)) + 1))]
    if len(names) <= MOST_CURVES:
        return _queue_curves(table, column, label, ax=ax, ticks=ticks)
    scale = math.log1p(most)
    inside = [tick for tick in ticks[1:] if tick <= most]
    for place, name in enumerate(names):
        part = table.filter(pl.col("schedule") == name)
        base = len(names) - 1 - place
        _strip(ax, part["time"], np.log1p(part[column].to_numpy()) / scale, base=base, place=place)
        for tick in inside:
            ax.axhline(base + STRIP * math.log1p(tick) / scale, color=INK, linewidth=0.5, alpha=0.2)
        where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        height = base + STRIP * math.log1p(inside[-1]) / scale
        ax.annotate(
            f"{inside[-1]:,.0f}", (1.0, height), xytext=(3, 0), va="center", fontsize=SMALL_PT, color=INK, **where
        )
    _name_strips(ax, names)
    ax.set_ylabel(label)
    return style_axes(ax, grid="x")


def _queue_curves(table: pl.DataFrame, column: str, label: str, *, ax: Axes, ticks: list[float]) -> Axes:
    names = unique(table["schedule"])
    for place, name in enumerate(names):
        part = table.filter(pl.col("schedule") == name)
        style = line_style(place) | {"linewidth": 1.1}
        ax.step(time_axis(ax, part["time"]), part[column].to_numpy(), where="post", label=_name(name), **style)
    ax.set_yscale("symlog", linthresh=1.0)
    ax.set_ylim(0, 1.1 * max(ticks[-1], 2.0))
    ax.yaxis.set_major_locator(FixedLocator(ticks))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.set_ylabel(label)
    ax.margins(x=0)
    legend(ax, num_columns=_columns(names), place="outside")
    return style_axes(ax)


@figure(
    "replay_delays",
    table="replay_quantiles",
    title="Queueing delay by schedule",
    caption="How many finished jobs waited at most this long; the height at 1 s is the share that hardly waited.",
    height_in=_legend_height,
)
def plot_replay_delays(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the distribution of queueing delays, a curve for each schedule.

    Parameters
    ----------
    table : DataFrame
        As `analysis.replay.quantiles` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    return _curves(table, "queueing_delay_s", "Queueing delay (log scale)", ax=ax)


@figure(
    "replay_jct",
    table="replay_quantiles",
    title="Job completion time by schedule",
    caption="How many of the finished jobs had ended this long after their submission.",
    height_in=_legend_height,
)
def plot_replay_jct(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the distribution of job completion times, a curve for each schedule.

    Parameters
    ----------
    table : DataFrame
        As `analysis.replay.quantiles` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    return _curves(table, "jct_s", "Time from submission to end (log scale)", ax=ax)


def _curves(table: pl.DataFrame, column: str, label: str, *, ax: Axes | None) -> Axes:
    ax = ax or new_axes(height_in=_legend_height(table))
    names = unique(table["schedule"])
    for place, name in enumerate(names):
        part = table.filter(pl.col("schedule") == name)
        values = part[column].clip(lower_bound=1.0).to_numpy()
        ax.step(values, part["quantile"].to_numpy(), where="post", label=_name(name), **line_style(place))
    largest = float(table[column].max() or 1.0)  # type: ignore[arg-type]
    duration_axis(ax, label=label, largest=1.2 * largest)
    share_axis(ax, label="Share of finished jobs (%)", largest=1.0)
    legend(ax, num_columns=_columns(names), place="outside")
    return style_axes(ax)
