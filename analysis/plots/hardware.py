"""Figures of the hardware: use by type of GPU over time, fragmentation, and how busy the GPUs are that jobs hold."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from analysis.plots.distributions import bucket_label
from analysis.plots.over_time import time_axis
from analysis.plots.registry import figure
from analysis.plots.style import PALETTE, legend, line_style, log_label, new_axes, share_axis, style_axes

__all__ = ["plot_allocation_by_type", "plot_fragmentation", "plot_idle_gpu_hours"]

MOST_TYPES = 7


def _types(table: pl.DataFrame) -> list[str]:
    """Types of which the share in use is known, the largest first."""
    known = table.filter(pl.col("gpu_type").is_not_null() & pl.col("gpu_allocation").is_not_null())
    sizes = (
        known.group_by("gpu_type")
        .agg(pl.col("total_gpus").max())
        .sort("total_gpus", "gpu_type", descending=[True, False])
    )
    return sizes["gpu_type"].to_list()[:MOST_TYPES]


@figure(
    "allocation_over_time",
    table="allocation_over_time",
    title="Share of the GPUs in use, by type",
    caption="GPUs held by jobs over the GPUs there are of that type, the mean of each bin.",
    has_content=lambda table: len(_types(table)) > 0,
)
def plot_allocation_by_type(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the share of the GPUs in use over time, a curve per type.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.allocation_over_time` gives it; drawn are the types whose number is known.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    for index, name in enumerate(_types(table)):
        part = table.filter(pl.col("gpu_type") == name).sort("time")
        style = {**line_style(index), "linewidth": 1.0}
        ax.plot(time_axis(ax, part["time"]), part["gpu_allocation"].to_numpy(), label=log_label(name), **style)
    share_axis(ax, label="GPUs in use of this type (%)")
    legend(ax, num_columns=4, place="outside")
    return style_axes(ax)


@figure(
    "fragmentation",
    table="fragmentation",
    title="Fragmentation over time",
    caption=(
        "Of the free GPUs: those on partly used nodes, those that no job of 8 GPUs on one node can take, and those "
        "that the next typical job is expected not to be able to use (FGD)."
    ),
)
def plot_fragmentation(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw measures of fragmentation over time, as shares of the free GPUs.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.fragmentation` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    places = time_axis(ax, table["time"])
    words = {
        "scattered_share": "on partly used nodes",
        "unusable_by_8_gpus_share": "useless for 8 GPUs",
        "unallocatable_share": "useless for the next (FGD)",
    }
    for index, (column, label) in enumerate(words.items()):
        ax.plot(places, table[column].to_numpy(), label=label, **{**line_style(index), "linewidth": 1.1})
    share_axis(ax, label="Share of the free GPUs (%)", largest=1.0)
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax)


@figure(
    "idle_gpu_hours",
    table="idle_gpu_hours",
    title="How busy the GPUs are that jobs hold",
    caption="GPU time that jobs of each size held, and the part of it in which the device was busy, as measured.",
    height_in=lambda table: 1.2 + 0.34 * max(table.height, 3),
    has_content=lambda table: table.height > 0 and table["gpu_utilization"].count() > 0,
)
def plot_idle_gpu_hours(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the mean device utilization by GPU count.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.idle_gpu_hours` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    rows = table.filter(pl.col("gpu_utilization").is_not_null())
    ax = ax or new_axes(height_in=1.2 + 0.34 * max(rows.height, 3))
    busy = np.minimum(rows["gpu_utilization"].to_numpy(), 1.0)
    ax.barh(range(rows.height), busy, color=PALETTE[0], label="busy")
    ax.barh(
        range(rows.height), 1 - busy, left=busy, color=PALETTE[1], hatch="////", edgecolor="white", lw=0, label="idle"
    )
    ax.set_yticks(range(rows.height), labels=[bucket_label(str(bucket)) for bucket in rows["bucket"]])
    ax.set_ylim(rows.height - 0.5, -0.5)
    ax.set_ylabel("GPUs per job")
    share_axis(ax, label="Share of the GPU time held (%)", axis="x", largest=1.0)
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax, grid="x")
