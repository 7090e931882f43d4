"""Figure of logs beside published ones."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.plots.registry import figure
from analysis.plots.style import DURATION_TICKS, INK, PALETTE, legend, log_label, new_axes, short_duration, style_axes

__all__ = ["plot_published_comparison"]


def _known(table: pl.DataFrame) -> pl.DataFrame:
    """Logs of which a median duration of at least a second is known."""
    return table.filter(pl.col("median_duration_s") >= 1)


@figure(
    "published_comparison",
    table="published_comparison",
    title="Durations beside published logs",
    caption=(
        "Median and mean duration of GPU jobs, of the logs given and of published ones. The further the mean lies from "
        "the median, the more of the time belongs to few long jobs."
    ),
    height_in=lambda table: 1.3 + 0.24 * _known(table).height,
    has_content=lambda table: _known(table).filter(~pl.col("is_published")).height > 0,
)
def plot_published_comparison(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw median and mean duration of every log, the logs given first.

    Parameters
    ----------
    table : DataFrame
        As `analysis.report.compare_with_published` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    known = _known(table)
    ax = ax or new_axes(height_in=1.3 + 0.24 * known.height)
    rows = known.select("trace", "is_published", "median_duration_s", "mean_duration_s").rows()
    for place, (_, is_published, median, mean) in enumerate(rows):
        color = PALETTE[0] if is_published else PALETTE[3]
        if mean is not None:
            ax.plot([median, mean], [place, place], color=color, alpha=0.5, linewidth=1.2)
            ax.scatter(mean, place, color=color, marker="D", s=22, zorder=3)
        ax.scatter(median, place, color=color, marker="o", s=26, zorder=3)
    for label, mark in (("median", "o"), ("mean", "D")):
        ax.scatter([], [], color=INK, marker=mark, s=22, label=label)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(FixedLocator(list(DURATION_TICKS)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(short_duration))
    ax.set_xlabel("Duration of GPU jobs (log scale)")
    ax.set_yticks(range(len(rows)), labels=[log_label(row[0]) for row in rows])
    for tick, row in zip(ax.get_yticklabels(), rows, strict=True):
        tick.set_fontweight("normal" if row[1] else "bold")
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_ylabel("Log")
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax, grid="x")
