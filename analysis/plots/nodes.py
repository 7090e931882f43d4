"""Figure of the nodes that jobs of several GPUs are spread over."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from analysis.plots.distributions import bucket_label
from analysis.plots.registry import figure
from analysis.plots.style import bar_style, legend, new_axes, share_axis, style_axes

__all__ = ["plot_consolidation"]

#: Nodes put together, so that neighbours are told apart in grey: name, least and most nodes.
GROUPS: Final = (("1 node", 1, 1), ("2", 2, 2), ("3-4", 3, 4), ("5 or more", 5, 2**31))


@figure(
    "consolidation",
    table="consolidation",
    title="Nodes of jobs of several GPUs",
    caption="Jobs of more than one GPU by the number of nodes that they ran on, for each number of GPUs.",
    height_in=lambda table: 1.25 + 0.3 * max(table["bucket"].n_unique(), 2),
)
def plot_consolidation(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw how many nodes jobs of each size ran on, as shares of the jobs.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.gpus_per_node` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    buckets = table["bucket"].cast(pl.String).unique(maintain_order=True).to_list()
    ax = ax or new_axes(height_in=1.25 + 0.3 * max(len(buckets), 2))
    places, left = np.arange(len(buckets)), np.zeros(len(buckets))
    for index, (name, least, most) in enumerate(GROUPS):
        inside = table.filter(pl.col("num_nodes").is_between(least, most)).with_columns(
            pl.col("bucket").cast(pl.String)
        )
        sums = dict(inside.group_by("bucket").agg(pl.col("job_share").sum()).rows())
        shares = np.array([sums.get(bucket, 0.0) for bucket in buckets])
        ax.barh(places, shares, left=left, height=0.7, label=name, **bar_style(index))
        left += shares
    ax.set_yticks(places, labels=[bucket_label(bucket) for bucket in buckets])
    ax.set_ylim(len(buckets) - 0.45, -0.55)
    share_axis(ax, label="Share of the jobs of this size (%)", axis="x", largest=1.0)
    ax.set_ylabel("GPUs per job")
    legend(ax, num_columns=4, place="outside")
    return style_axes(ax, grid="x")
