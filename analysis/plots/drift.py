"""Figure of whether the workload stays the same."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from analysis.plots.registry import figure
from analysis.plots.style import INK, legend, line_style, new_axes, style_axes

__all__ = ["plot_weekly_drift"]

WORDS = {"duration": "durations", "num_gpus": "GPUs asked for", "queueing_delay": "delays", "user": "users"}
#: Where the index begins to mean something, by convention.
LINES = (0.1, 0.25)
LEAST_PSI = 1e-3


def _against_before(table: pl.DataFrame) -> pl.DataFrame:
    texts = table.with_columns(pl.col("quantity", "weight", "against").cast(pl.String))
    return texts.filter((pl.col("against") == "week_before") & (pl.col("weight") == "jobs"))


def _has_weeks(table: pl.DataFrame) -> bool:
    return _against_before(table).height > 0


@figure(
    "weekly_drift",
    table="weekly_drift",
    title="Drift from week to week",
    caption=(
        "Population stability index of each week's jobs against the week before: how far durations, sizes, delays "
        "and the mix of users have moved. Dashed, by convention: from 0.1 some change, from 0.25 another workload, "
        "in which what was learnt the week before is of little use."
    ),
    has_content=_has_weeks,
    height_in=lambda table: 3.4,  # noqa: ARG005
)
def plot_weekly_drift(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the stability index of each week against the week before.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.weekly_drift` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes(height_in=3.4)
    chosen = _against_before(table)
    for index, (quantity, words) in enumerate(WORDS.items()):
        part = chosen.filter(pl.col("quantity") == quantity).sort("week")
        # What never varies (the GPUs of CPU jobs) cannot drift.
        if part.height and part["psi"].to_numpy().max() > 0:
            # A gap in the weeks is a gap in the line.
            weeks = pl.DataFrame({"week": range(int(part["week"][0]), int(part["week"][-1]) + 1)})
            line = weeks.join(part.select("week", "psi"), on="week", how="left", maintain_order="left")
            values = line["psi"].clip(lower_bound=LEAST_PSI).to_numpy()
            ax.plot(line["week"].to_numpy(), values, marker="o", ms=2.5, label=words, **line_style(index))
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, LEAST_PSI * 0.8), max(high, 0.6))
    for value in LINES:
        ax.axhline(value, color=INK, lw=1, ls=(0, (2, 2)))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("Week of the log (0 = first)")
    ax.set_ylabel("Stability index (log scale)")
    legend(ax, num_columns=4, place="outside")
    return style_axes(ax)
