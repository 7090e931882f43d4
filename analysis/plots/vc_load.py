"""Figure of the load of virtual clusters."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes

from analysis.plots.over_time import time_axis
from analysis.plots.registry import figure
from analysis.plots.style import PALETTE, legend, new_axes, share_axis, style_axes

__all__ = ["plot_vc_imbalance"]


@figure(
    "vc_imbalance",
    table="vc_imbalance",
    title="Load of the virtual clusters over time",
    caption=(
        "GPUs in use over the quota: of all virtual clusters together, and from the emptiest to the fullest of them. "
        "Where the band is wide, jobs wait in one while GPUs are free in another."
    ),
)
def plot_vc_imbalance(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the load of all virtual clusters, and the range of their loads, over time.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.vc_imbalance` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    places = time_axis(ax, table["time"])
    low, high = table["min_vc_load"].to_numpy(), table["max_vc_load"].to_numpy()
    ax.fill_between(
        places, low, high, step="post", color=PALETTE[0], alpha=0.3, linewidth=0, label="emptiest to fullest"
    )
    ax.step(places, table["load"].to_numpy(), where="post", color=PALETTE[3], linewidth=1.1, label="all together")
    share_axis(ax, label="GPUs in use over quota (%)")
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax)
