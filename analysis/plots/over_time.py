"""Figures over time: arrivals by hour and weekday, arrivals and GPUs in use over the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from numpy.typing import NDArray

from analysis.plots.registry import Tables, figure
from analysis.plots.style import INK, PALETTE, SMALL_PT, legend, line_style, log_label, new_axes, style_axes

__all__ = ["bin_text", "plot_arrivals_by_hour", "plot_arrivals_over_time", "plot_running_gpus", "time_axis"]

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: A log that counts from its own start is stored as instants just after 1970.
FIRST_REAL_YEAR = 1980
S_PER_DAY = 86_400.0


@figure(
    "arrivals_by_hour",
    table="arrivals_by_hour",
    title="Arrivals by hour and weekday",
    caption="Jobs submitted per hour of the week, in the log's time zone. Blank: the log does not cover that hour.",
    compares=True,
    compared_caption="Jobs submitted in each hour of the day, against the log's own average hour, in its time zone.",
)
def plot_arrivals_by_hour(table: Tables, *, ax: Axes | None = None) -> Axes:
    """Draw submissions per hour of the week as a map of colours; of several logs a curve each over the day.

    Parameters
    ----------
    table : DataFrame, or mapping of str to DataFrame
        As `analysis.characterize.arrivals_by_hour` gives it; of several logs by their names.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    if not isinstance(table, pl.DataFrame):
        return _hours_compared(table, ax=ax)
    grid = np.full((7, 24), np.nan)
    grid[table["weekday"].to_numpy().astype(int) - 1, table["hour"].to_numpy().astype(int)] = table["jobs_per_hour"]
    mesh = ax.pcolormesh(np.arange(25) - 0.5, np.arange(8) - 0.5, np.ma.masked_invalid(grid), cmap="cividis", vmin=0)
    # Viewers leave hair lines between cells that only touch.
    mesh.set_edgecolor("face")
    mesh.set_linewidth(0.4)
    ax.set_yticks(range(7), labels=WEEKDAYS)
    ax.set_xticks(range(0, 24, 3))
    ax.set_ylim(6.5, -0.5)
    ax.set_xlabel("Hour of the day (h, local time)")
    ax.set_ylabel("Weekday")
    bar = ax.figure.colorbar(mesh, ax=ax, fraction=0.05, pad=0.02)
    bar.set_label("Jobs per hour", color=INK, fontsize=SMALL_PT)
    bar.ax.tick_params(colors=INK, labelsize=SMALL_PT)
    if bar.solids is not None:
        # As vectors: a picture inside the picture would need a data address.
        bar.solids.set_rasterized(False)
        bar.solids.set_edgecolor("face")
    return style_axes(ax, grid="none")


def _hours_compared(tables: Mapping[str, pl.DataFrame], *, ax: Axes) -> Axes:
    for index, (log, table) in enumerate(tables.items()):
        hours = table.group_by("hour").agg(pl.col("num_jobs", "num_hours").sum()).sort("hour")
        rate = hours["num_jobs"] / hours["num_hours"]
        mean = float(hours["num_jobs"].sum()) / float(hours["num_hours"].sum())
        ax.plot(hours["hour"].to_numpy(), (rate / mean).to_numpy(), label=log_label(log), **line_style(index))
    ax.axhline(1.0, color=INK, linewidth=0.8, alpha=0.6)
    ax.set_xlim(0, 23)
    ax.set_ylim(bottom=0)
    ax.set_xticks(range(0, 24, 3))
    ax.set_xlabel("Hour of the day (h, local time)")
    ax.set_ylabel("Arrivals (times the average hour)")
    legend(ax, num_columns=3, place="outside")
    return style_axes(ax)


def time_axis(ax: Axes, times: pl.Series) -> NDArray[Any]:
    """Positions of the instants, and the axis for them: dates, or days for a log that counts from its start."""
    if times[0].year >= FIRST_REAL_YEAR:
        # 3 and 7 leave no gap: six steps of the longest interval of a unit reach three of the next larger unit.
        locator = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_locator(locator)
        formatter = ConciseDateFormatter(locator, show_offset=False)  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_formatter(formatter)
        ax.set_xlabel(f"Time (UTC, from {times[0]:%Y-%m-%d})")
        return times.dt.replace_time_zone(None).to_numpy()
    ax.set_xlabel("Time since the start of the log (days)")
    days: NDArray[Any] = times.dt.timestamp("us").to_numpy() / 1e6 / S_PER_DAY
    return days


def bin_text(table: pl.DataFrame) -> str:
    """Length of the bins of a table over time, in words."""
    width = float(table["bin_s"][0])
    for size, unit in ((S_PER_DAY, "day"), (3600.0, "hour"), (60.0, "minute")):
        if width >= size:
            count = width / size
            return unit if count == 1 else f"{count:g} {unit}s"
    return f"{width:g} s"


@figure(
    "arrivals_over_time",
    table="arrivals_over_time",
    title="Arrivals over time",
    caption="Jobs submitted per bin over the whole log.",
)
def plot_arrivals_over_time(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw submissions over time.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.arrivals_over_time` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    places = time_axis(ax, table["time"])
    counts = table["num_jobs"].to_numpy()
    ax.fill_between(places, counts, step="post", color=PALETTE[0], alpha=0.35, linewidth=0)
    ax.step(places, counts, where="post", color=PALETTE[0], linewidth=1.0)
    ax.set_ylim(bottom=0)
    ax.set_ylabel(f"Jobs submitted per {bin_text(table)}")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    return style_axes(ax)


@figure(
    "running_gpus",
    table="running_gpus",
    title="GPUs in use over time",
    caption="GPUs held by jobs: the mean and the highest value of each bin.",
)
def plot_running_gpus(table: pl.DataFrame, *, ax: Axes | None = None, total_gpus: float | None = None) -> Axes:
    """Draw the GPUs in use over time.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.running_gpus` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.
    total_gpus : float, optional
        GPUs of the cluster, drawn as a line; null = not known.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    places = time_axis(ax, table["time"])
    ax.fill_between(
        places,
        table["mean_gpus"].to_numpy(),
        step="post",
        color=PALETTE[0],
        alpha=0.35,
        linewidth=0,
        label=f"mean per {bin_text(table)}",
    )
    ax.step(places, table["max_gpus"].to_numpy(), where="post", color=PALETTE[3], linewidth=0.9, label="highest")
    if total_gpus:
        ax.axhline(total_gpus, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), label=f"all {total_gpus:,.0f} GPUs")
    ax.set_ylim(bottom=0)
    ax.set_ylabel("GPUs in use")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    legend(ax, num_columns=3, place="outside")
    return style_axes(ax)
