"""Figures of the distributions fitted to the durations."""

from __future__ import annotations

from typing import Final

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from analysis.plots.distributions import bucket_label
from analysis.plots.registry import figure
from analysis.plots.style import INK, duration_axis, legend, line_style, new_axes, share_axis, style_axes

__all__ = ["plot_duration_fits", "plot_duration_tail_fits"]

#: A family has the same colour in every figure of every log.
NAMES: Final = {
    "lognormal": "log-normal",
    "weibull": "Weibull",
    "gamma": "gamma",
    "hyperexponential_2": "hyper-exp., 2 phases",
    "hyperexponential_3": "hyper-exp., 3 phases",
    "generalized_pareto": "gen. Pareto tail",
}
#: The tail is drawn down to this share of the jobs.
LEAST_SHARE: Final = 1e-4
HEIGHT_IN: Final = 3.6


def _height(table: pl.DataFrame) -> float:
    del table
    return HEIGHT_IN


@figure(
    "duration_fits",
    table="duration_fit_curves",
    title="Durations and fitted distributions",
    caption=(
        "The thick line is what was observed (Kaplan-Meier); the others are the distributions fitted to it. The table "
        "of fits says which comes closest."
    ),
    height_in=_height,
)
def plot_duration_fits(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the observed distribution of all GPU jobs (of the first bucket where there are none) and the fitted ones.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.duration_fit_curves` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes(height_in=HEIGHT_IN)
    _draw(ax, table.filter(pl.col("family") != "generalized_pareto"), beyond=False)
    share_axis(ax, label="Share of jobs (%)", largest=1.0)
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax)


@figure(
    "duration_tail_fits",
    table="duration_fit_curves",
    title="Longest jobs and fitted distributions",
    caption=(
        "Share of the jobs that run longer, on two log scales: a straight line is a power law. A distribution that "
        "looks good in the middle may still miss the longest jobs, which use most of the GPU time."
    ),
    height_in=_height,
)
def plot_duration_tail_fits(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the share of the jobs that run longer, observed and fitted; see `plot_duration_fits`."""
    ax = ax or new_axes(height_in=HEIGHT_IN)
    _draw(ax, table, beyond=True)
    ax.set_yscale("log")
    ax.set_ylim(LEAST_SHARE, 1.0)
    ax.set_ylabel("Share of jobs that run longer (log scale)")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _place: f"{share * 100:g}%"))
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax)


def _draw(ax: Axes, table: pl.DataFrame, *, beyond: bool) -> None:
    """Draw a curve per family of all GPU jobs, or of the first bucket of a log without."""
    buckets = table["bucket"].cast(pl.String)
    bucket = "all" if (buckets == "all").any() else str(buckets[0])
    chosen = table.filter(buckets == bucket).with_columns(share=1 - pl.col("share") if beyond else pl.col("share"))
    seen = chosen.filter(pl.col("family") == "observed")
    label = "observed" if bucket == "all" else f"observed ({bucket_label(bucket)}s)"
    ax.plot(seen["duration_s"].to_numpy(), seen["share"].to_numpy(), color=INK, linewidth=2.6, label=label)
    for index, (family, name) in enumerate(NAMES.items()):
        curve = chosen.filter(pl.col("family") == family)
        if curve.height:
            ax.plot(curve["duration_s"].to_numpy(), curve["share"].to_numpy(), label=name, **line_style(index))
    duration_axis(ax, label="Duration (log scale)", largest=float(seen["duration_s"].to_numpy().max()))
