"""Figures of shares: GPU demand, outcomes, tenants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from analysis.plots.distributions import bucket_label
from analysis.plots.registry import figure
from analysis.plots.style import INK, PALETTE, SMALL_PT, legend, new_axes, share_axis, style_axes

__all__ = ["plot_gpu_demand", "plot_status", "plot_top_users", "plot_top_vcs"]

NAME_LENGTH = 16
#: A figure shows the largest of the table.
MOST_TENANTS = 12


def paired_bars(
    ax: Axes, *, labels: Sequence[str], series: Sequence[tuple[str, Sequence[float | None], str]], axis_label: str
) -> Axes:
    """Draw horizontal bars, one of each series (name, shares, colour) side by side per label, with their percents."""
    height = 0.8 / len(series)
    largest = max((share or 0.0 for _, shares, _ in series for share in shares), default=0.0)
    for index, (name, shares, color) in enumerate(series):
        places = np.arange(len(labels)) + (index - (len(series) - 1) / 2) * height
        ax.barh(places, [share or 0.0 for share in shares], height=height * 0.92, color=color, label=name)
        for place, share in zip(places, shares, strict=True):
            if share is not None:
                ax.text(share + largest * 0.015, place, _percent(share), va="center", color=INK, fontsize=SMALL_PT)
    ax.set_yticks(range(len(labels)), labels=list(labels))
    ax.set_ylim(len(labels) - 0.45, -0.55)
    share_axis(ax, label=axis_label, axis="x", largest=min(largest * 1.16, 1.16) or 1.0)
    return style_axes(ax, grid="x")


def _percent(share: float) -> str:
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{share * 100:.1f}%" if share < 0.995 else f"{share * 100:.0f}%"


def _bar_height(table: pl.DataFrame) -> float:
    return 1.15 + 0.36 * max(min(table.height, MOST_TENANTS), 2)


@figure(
    "gpu_demand",
    table="gpu_demand",
    title="GPU demand",
    caption="GPU jobs by the GPUs they ask for: many small jobs, while the GPU time may go to the large ones.",
    height_in=_bar_height,
)
def plot_gpu_demand(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the shares of the GPU-count buckets by jobs and by GPU time.

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.gpu_demand` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes(height_in=_bar_height(table))
    labels = [bucket_label(str(bucket)) for bucket in table["bucket"]]
    jobs, gpu_time = table["job_share"].to_list(), table["gpu_time_share"].to_list()
    series = [("of jobs", jobs, PALETTE[0]), ("of GPU time", gpu_time, PALETTE[1])]
    paired_bars(ax, labels=labels, series=series, axis_label="Share of GPU jobs and of GPU time (%)")
    ax.set_ylabel("GPUs per job")
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax, grid="x")


@figure(
    "status",
    table="status",
    title="How jobs end, by count and by GPU time",
    caption="Last status of the jobs. The second bar weighs each job by the GPU time it used.",
    height_in=lambda table: _bar_height(_one_kind(table)),
)
def plot_status(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the shares of the statuses by jobs and by GPU time, of GPU jobs (of CPU jobs where there are no others).

    Parameters
    ----------
    table : DataFrame
        As `analysis.characterize.status_shares` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    chosen = _one_kind(table)
    ax = ax or new_axes(height_in=_bar_height(chosen))
    words = {"gpu": "GPU jobs", "cpu": "CPU jobs", "unknown": "jobs with unknown GPUs"}[str(chosen["kind"][0])]
    series = [("of jobs", chosen["job_share"].to_list(), PALETTE[0])]
    if chosen["gpu_time_share"].null_count() < chosen.height:
        series.append(("of GPU time", chosen["gpu_time_share"].to_list(), PALETTE[1]))
    labels = [str(status).replace("_", " ") for status in chosen["status"]]
    paired_bars(ax, labels=labels, series=series, axis_label=f"Share of {words} (%)")
    ax.set_ylabel("Last status")
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax, grid="x")


def _one_kind(table: pl.DataFrame) -> pl.DataFrame:
    """Rows of GPU jobs, else of CPU jobs, else of jobs with unknown GPUs."""
    return table.filter(pl.col("kind") == table["kind"][0]) if table.height else table


def _plot_tenants(table: pl.DataFrame, *, by: str, words: str, ax: Axes | None) -> Axes:
    table = table.head(MOST_TENANTS)
    ax = ax or new_axes(height_in=_bar_height(table))
    names = ["(not said)" if name is None else _shorten(str(name)) for name in table[by]]
    series = [("of jobs", table["job_share"].to_list(), PALETTE[0])]
    if table["gpu_time_share"].null_count() < table.height:
        series.append(("of GPU time", table["gpu_time_share"].to_list(), PALETTE[1]))
    paired_bars(ax, labels=names, series=series, axis_label="Share of all jobs and of all GPU time (%)")
    ax.set_ylabel(words)
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax, grid="x")


def _shorten(name: str) -> str:
    # A dollar sign would begin a formula.
    cut = name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"
    return cut.replace("$", r"\$")


@figure(
    "top_vcs",
    table="top_vcs",
    title="Largest virtual clusters",
    caption="Virtual clusters, partitions or queues in the order of their GPU time.",
    height_in=_bar_height,
)
def plot_top_vcs(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the shares of the largest virtual clusters; table as `analysis.characterize.top_vcs` gives it."""
    return _plot_tenants(table, by="vc", words="Virtual cluster", ax=ax)


@figure(
    "top_users",
    table="top_users",
    title="Largest users",
    caption="Users in the order of their GPU time.",
    height_in=_bar_height,
)
def plot_top_users(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the shares of the largest users; table as `analysis.characterize.top_users` gives it."""
    return _plot_tenants(table, by="user", words="User", ax=ax)
