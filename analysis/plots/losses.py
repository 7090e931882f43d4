"""Figures of what is lost: how jobs of each size end, slowdowns, and what jobs wait for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from analysis.plots.distributions import bucket_label
from analysis.plots.registry import figure
from analysis.plots.style import INK, PALETTE, duration_axis, legend, new_axes, share_axis, style_axes

__all__ = ["plot_outcomes_by_size", "plot_slowdown", "plot_time_to_failure", "plot_what_jobs_wait_for"]


def _height(table: pl.DataFrame) -> float:
    return 1.2 + 0.3 * max(table["bucket"].n_unique(), 3)


def _labels(ax: Axes, buckets: Sequence[object]) -> None:
    ax.set_yticks(range(len(buckets)), labels=[bucket_label(str(bucket)) for bucket in buckets])
    ax.set_ylim(len(buckets) - 0.5, -0.5)
    ax.set_ylabel("GPUs per job")


@figure(
    "outcomes_by_size",
    table="outcomes_by_size",
    title="How jobs of each size end",
    caption="Share of the GPU jobs of each size that complete, fail (with timeouts and failed nodes) or are cancelled.",
    height_in=_height,
)
def plot_outcomes_by_size(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the shares of outcomes by GPU count, each bar being all jobs of a size.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.outcomes_by_size` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes(height_in=_height(table))
    left = np.zeros(table.height)
    looks = (("completed", PALETTE[0], ""), ("failed", PALETTE[3], "////"), ("cancelled", PALETTE[1], r"\\\\"))
    for name, color, hatch in looks:
        shares = table[f"{name}_share"].fill_null(0.0).to_numpy()
        ax.barh(range(table.height), shares, left=left, color=color, hatch=hatch, edgecolor="white", lw=0, label=name)
        left += shares
    _labels(ax, table["bucket"].to_list())
    share_axis(ax, label="Share of the jobs of this size (%)", axis="x", largest=1.0)
    legend(ax, num_columns=3, place="outside")
    return style_axes(ax, grid="x")


def _ranges(ax: Axes, table: pl.DataFrame, *, wide: tuple[str, str], narrow: tuple[str, str], middle: str) -> None:
    """Draw per row a thin line, a thick one inside it, and a point."""
    for (low, high), width, alpha in ((wide, 1.2, 0.8), (narrow, 5.0, 0.45)):
        for place, (a, b) in enumerate(table.select(low, high).iter_rows()):
            if a is not None and b is not None:
                ax.plot([max(a, 1.0), max(b, 1.0)], [place, place], color=PALETTE[0], linewidth=width, alpha=alpha)
    points = [(place, max(value, 1.0)) for place, value in enumerate(table[middle]) if value is not None]
    ax.scatter([value for _, value in points], [place for place, _ in points], color=INK, s=22, zorder=3)


@figure(
    "time_to_failure",
    table="time_to_failure",
    title="Time to failure",
    caption="How long failed GPU jobs had run: median (point), half of them (thick line), nine tenths (thin line).",
    height_in=_height,
)
def plot_time_to_failure(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the quantiles of the running time of failed jobs by GPU count.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.time_to_failure` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes(height_in=_height(table))
    _ranges(ax, table, wide=("p5_s", "p95_s"), narrow=("p25_s", "p75_s"), middle="p50_s")
    _labels(ax, table["bucket"].to_list())
    duration_axis(ax, label="Running time before the failure (log scale)", largest=_largest(table, "p95_s"))
    return style_axes(ax, grid="x")


def _largest(table: pl.DataFrame, column: str) -> float:
    value = table[column].max()
    return 1.3 * float(value) if isinstance(value, int | float) else 10.0


@figure(
    "slowdown",
    table="slowdown",
    title="Slowdown by GPU count",
    caption=(
        "Time from submission to end over running time (at least 10 s): 1 is no wait at all. Point: median; thick line "
        "to the 90 %, thin line to the 99 % quantile."
    ),
    height_in=_height,
)
def plot_slowdown(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw median and upper quantiles of the bounded slowdown by GPU count.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.slowdown` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes(height_in=_height(table))
    _ranges(ax, table, wide=("p50", "p99"), narrow=("p50", "p90"), middle="p50")
    _labels(ax, table["bucket"].to_list())
    ax.set_xscale("log")
    ax.set_xlim(0.9, max(_largest(table, "p99"), 10.0))
    ax.xaxis.set_major_locator(LogLocator(base=10, numticks=8))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("Bounded slowdown (log scale)")
    return style_axes(ax, grid="x")


def _cluster_rows(table: pl.DataFrame) -> pl.DataFrame:
    is_known = pl.col("is_capacity_known") & pl.col("enough_free_time_share").is_not_null()
    return table.filter((pl.col("scope").cast(pl.String) == "cluster") & is_known)


@figure(
    "what_jobs_wait_for",
    table="what_jobs_wait_for",
    title="What GPU jobs wait for",
    caption=(
        "Waiting time of GPU jobs during which as many GPUs were free in the cluster as the job asks for: then it "
        "waited for the right ones (fragmentation, quotas, types) or for its turn, not for GPUs as such."
    ),
    height_in=_height,
    has_content=lambda table: _cluster_rows(table).height > 0,
)
def plot_what_jobs_wait_for(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the share of the waiting time with and without enough free GPUs, by GPU count.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.what_jobs_wait_for` gives it; drawn is the whole cluster.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    rows = _cluster_rows(table)
    ax = ax or new_axes(height_in=_height(rows))
    free = rows["enough_free_time_share"].to_numpy()
    ax.barh(range(rows.height), free, color=PALETTE[1], hatch="////", edgecolor="white", lw=0, label="enough GPUs free")
    ax.barh(range(rows.height), 1 - free, left=free, color=PALETTE[0], label="too few GPUs free")
    _labels(ax, rows["bucket"].to_list())
    share_axis(ax, label="Share of the waiting time (%)", axis="x", largest=1.0)
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax, grid="x")
