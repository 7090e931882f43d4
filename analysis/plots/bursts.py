"""Figures of the burstiness of arrivals: dispersion by time scale, and memory."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from analysis.plots.registry import Tables, by_log, figure
from analysis.plots.style import (
    INK,
    SMALL_PT,
    legend,
    line_style,
    log_label,
    new_axes,
    short_duration,
    style_axes,
)

__all__ = ["plot_arrival_autocorrelation", "plot_arrival_dispersion"]

WINDOW_TICKS_S = (10, 60, 600, 3600, 21_600, 86_400, 604_800)
HOURS_PER_DAY = 24


@figure(
    "arrival_dispersion",
    table="arrival_dispersion",
    title="Burstiness of arrivals by time scale",
    caption=(
        "Variance over mean of the number of submissions in windows of each length. Independent arrivals would stay at "
        "1; a line that rises says that bursts, rhythms or trends of that length remain."
    ),
    compares=True,
)
def plot_arrival_dispersion(table: Tables, *, ax: Axes | None = None) -> Axes:
    """Draw the index of dispersion against the length of the window.

    Parameters
    ----------
    table : DataFrame, or mapping of str to DataFrame
        As `analysis.characterize.arrival_dispersion` gives it; of several logs by their names.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    tables = by_log(table)
    for index, (log, part) in enumerate(tables.items()):
        style = line_style(index) | {"label": log_label(log), "marker": "o", "ms": 3}
        ax.plot(part["window_s"].to_numpy(), part["idc"].to_numpy(), **style)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.xaxis.set_major_locator(FixedLocator(list(WINDOW_TICKS_S)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(short_duration))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:,g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("Length of the window (log scale)")
    ax.set_ylabel("Variance / mean of submissions (log scale)")
    low, high = ax.get_ylim()
    ax.set_ylim(min(low, 0.7), max(high, 2.0))
    _independent(ax, at=1.0, text="independent arrivals")
    if len(tables) > 1:
        legend(ax, num_columns=3, place="outside")
    return style_axes(ax)


def _independent(ax: Axes, *, at: float, text: str) -> None:
    """Draw what independent arrivals would give."""
    ax.axhline(at, color=INK, lw=1, ls=(0, (2, 2)))
    ax.annotate(
        text,
        xy=(0.98, at),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        color=INK,
        fontsize=SMALL_PT,
    )


@figure(
    "arrival_autocorrelation",
    table="arrival_autocorrelation",
    title="Memory of the arrivals",
    caption=(
        "How alike the number of submissions is to that of so many hours before: peaks at 24 h and 168 h are the "
        "rhythm of the day and the week. Within the grey band lies what chance alone gives."
    ),
    compares=True,
)
def plot_arrival_autocorrelation(table: Tables, *, ax: Axes | None = None) -> Axes:
    """Draw the autocorrelation of hourly submissions against the lag; see `plot_arrival_dispersion`."""
    ax = ax or new_axes()
    tables = by_log(table)
    largest = max(int(part["lag_h"].to_numpy().max()) for part in tables.values())
    for index, (log, part) in enumerate(tables.items()):
        style = line_style(index) | {"label": log_label(log), "linewidth": 1.2}
        ax.plot(part["lag_h"].to_numpy(), part["autocorrelation"].to_numpy(), **style)
    chance = max(float(part["chance"][0]) for part in tables.values())
    ax.axhspan(-chance, chance, color=INK, alpha=0.12, lw=0)
    ax.axhline(0.0, color=INK, lw=0.8)
    step = HOURS_PER_DAY if largest <= 8 * HOURS_PER_DAY else 2 * HOURS_PER_DAY
    ax.xaxis.set_major_locator(FixedLocator(list(range(0, largest + 1, step if largest > step else 6))))
    ax.set_xlim(0, largest)
    ax.set_xlabel("Lag (h)")
    ax.set_ylabel("Autocorrelation of hourly submissions")
    if len(tables) > 1:
        legend(ax, num_columns=3, place="outside")
    return style_axes(ax)
