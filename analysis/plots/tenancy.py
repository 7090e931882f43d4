"""Figures of tenants: how full their quotas are, and whose GPU time brought no result."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes

from analysis.plots.registry import figure
from analysis.plots.shares import paired_bars
from analysis.plots.style import INK, PALETTE, legend, log_label, new_axes, style_axes

__all__ = ["plot_vc_load", "plot_wasteful_users"]

MOST = 12


def _height(table: pl.DataFrame) -> float:
    return 1.15 + 0.36 * max(min(table.height, MOST), 2)


def _fullest(table: pl.DataFrame) -> pl.DataFrame:
    """Virtual clusters with a known quota, those with most GPU time first."""
    return table.filter(pl.col("mean_load").is_not_null()).sort("gpu_hours", "vc", descending=[True, False]).head(MOST)


def _names(column: pl.Series) -> Sequence[str]:
    return ["(not said)" if name is None else log_label(str(name)) for name in column]


@figure(
    "vc_load",
    table="vc_load",
    title="Load of the virtual clusters",
    caption=(
        "GPUs in use over the quota of each virtual cluster, those with most GPU time first; right of the line more "
        "than the quota was in use."
    ),
    height_in=lambda table: _height(_fullest(table)),
    has_content=lambda table: _fullest(table).height > 0,
)
def plot_vc_load(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw mean and peak load of the virtual clusters with most GPU time.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.loads_of_vcs` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    chosen = _fullest(table)
    ax = ax or new_axes(height_in=_height(chosen))
    series = [
        ("mean", chosen["mean_load"].to_list(), PALETTE[0]),
        ("peak", chosen["peak_load"].to_list(), PALETTE[1]),
    ]
    paired_bars(ax, labels=_names(chosen["vc"]), series=series, axis_label="GPUs in use over quota (%)")
    largest = max(float(share or 0) for _, shares, _ in series for share in shares)
    ax.set_xlim(0, max(largest * 1.16, 1.05))
    ax.axvline(1.0, color=INK, linewidth=0.8)
    ax.set_ylabel("Virtual cluster")
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax, grid="x")


def _wasteful(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.col("wasted_gpu_hours") > 0).head(MOST)


@figure(
    "wasteful_users",
    table="outcomes_by_user",
    title="Users with most GPU time without a result",
    caption=(
        "GPU time of jobs that failed, were cancelled, timed out or were preempted: the user's share of all of it, "
        "and its share of the user's own GPU time. An upper bound of what was lost."
    ),
    height_in=lambda table: _height(_wasteful(table)),
    has_content=lambda table: _wasteful(table).height > 0,
)
def plot_wasteful_users(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the users who wasted most GPU time.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.outcomes_by_user` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    chosen = _wasteful(table)
    ax = ax or new_axes(height_in=_height(chosen))
    own = (chosen["wasted_gpu_hours"] / chosen["gpu_hours"]).to_list()
    series = [("of all of it", chosen["share_of_waste"].to_list(), PALETTE[0]), ("of the user's own", own, PALETTE[1])]
    paired_bars(ax, labels=_names(chosen["user"]), series=series, axis_label="GPU time without a result (%)")
    ax.set_ylabel("User")
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax, grid="x")
