"""Figures of shares: GPU demand, outcomes, tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from analysis import schema
from analysis.characterize.buckets import BUCKETS
from analysis.plots.distributions import bucket_label
from analysis.plots.registry import Tables, figure
from analysis.plots.style import (
    INK,
    PALETTE,
    SMALL_PT,
    bar_style,
    legend,
    line_style,
    log_label,
    new_axes,
    share_axis,
    style_axes,
)

__all__ = ["plot_gpu_demand", "plot_status", "plot_top_users", "plot_top_vcs"]

MARKED = "of GPU time"
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


def _compared_height(tables: Mapping[str, pl.DataFrame], *, key: str) -> float:
    num_labels = len({label for table in tables.values() for label in table[key].cast(pl.String)})
    return 1.3 + num_labels * max(0.36, 0.15 * len(tables))


def compared_bars(
    ax: Axes, tables: Mapping[str, pl.DataFrame], *, key: str, order: Sequence[str], axis_label: str
) -> Axes:
    """Draw per label a bar of each log, its share of jobs, with a mark at its share of GPU time."""
    labels = [label for label in order if any((table[key].cast(pl.String) == label).any() for table in tables.values())]
    height, largest = 0.8 / len(tables), 0.0
    for index, (log, table) in enumerate(tables.items()):
        shares = {str(row[0]): row[1:] for row in table.select(key, "job_share", "gpu_time_share").iter_rows()}
        places = np.arange(len(labels)) + (index - (len(tables) - 1) / 2) * height
        jobs, used = zip(*(shares.get(label, (0.0, None)) for label in labels), strict=True)
        ax.barh(places, jobs, height=height * 0.9, label=log_label(log), **bar_style(index))
        known = [(place, share) for place, share in zip(places, used, strict=True) if share is not None]
        ax.scatter([share for _, share in known], [place for place, _ in known], color=INK, marker="D", s=11, zorder=3)
        largest = max(largest, *jobs, *(share for _, share in known))
    ax.scatter([], [], color=INK, marker="D", s=11, label=MARKED)
    ax.set_yticks(range(len(labels)), labels=labels)
    ax.set_ylim(len(labels) - 0.45, -0.55)
    share_axis(ax, label=axis_label, axis="x", largest=min(largest * 1.08, 1.04) or 1.0)
    legend(ax, num_columns=3, place="outside", last=MARKED)
    return style_axes(ax, grid="x")


@figure(
    "gpu_demand",
    table="gpu_demand",
    title="GPU demand",
    caption="GPU jobs by the GPUs they ask for: many small jobs, while the GPU time may go to the large ones.",
    height_in=_bar_height,
    compares=True,
    compared_caption="GPU jobs of each log by the GPUs asked for: bars are shares of the jobs, marks of the GPU time.",
    compared_height_in=lambda tables: _compared_height(tables, key="bucket"),
)
def plot_gpu_demand(table: Tables, *, ax: Axes | None = None) -> Axes:
    """Draw the shares of the GPU-count buckets by jobs and by GPU time.

    Parameters
    ----------
    table : DataFrame, or mapping of str to DataFrame
        As `analysis.characterize.gpu_demand` gives it; of several logs by their names.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    if not isinstance(table, pl.DataFrame):
        ax = ax or new_axes(height_in=_compared_height(table, key="bucket"))
        words = {log: part.with_columns(pl.col("bucket").cast(pl.String)) for log, part in table.items()}
        compared_bars(ax, words, key="bucket", order=BUCKETS, axis_label="Share of GPU jobs (%)")
        ax.set_yticklabels([bucket_label(tick.get_text()) for tick in ax.get_yticklabels()])
        ax.set_ylabel("GPUs per job")
        return ax
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
    height_in=lambda table: _bar_height(one_kind(table)),
    compares=True,
    compared_caption="Last status of each log's jobs: bars are shares of the jobs, marks of the GPU time.",
    compared_height_in=lambda tables: _compared_height(tables, key="status"),
)
def plot_status(table: Tables, *, ax: Axes | None = None) -> Axes:
    """Draw the shares of the statuses by jobs and by GPU time, of GPU jobs (of CPU jobs where there are no others).

    Parameters
    ----------
    table : DataFrame, or mapping of str to DataFrame
        As `analysis.characterize.status_shares` gives it; of several logs by their names.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    if not isinstance(table, pl.DataFrame):
        ax = ax or new_axes(height_in=_compared_height(table, key="status"))
        return _compared_status(table, ax=ax)
    chosen = one_kind(table)
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


def _compared_status(tables: Mapping[str, pl.DataFrame], *, ax: Axes) -> Axes:
    chosen = {log: one_kind(table) for log, table in tables.items()}
    kinds = {str(table["kind"][0]) for table in chosen.values()}
    words = {"gpu": "GPU jobs", "cpu": "CPU jobs"}.get(next(iter(kinds)), "jobs") if len(kinds) == 1 else "jobs"
    compared_bars(ax, chosen, key="status", order=schema.STATUSES, axis_label=f"Share of {words} (%)")
    ax.set_yticklabels([tick.get_text().replace("_", " ") for tick in ax.get_yticklabels()])
    ax.set_ylabel("Last status")
    return ax


def one_kind(table: pl.DataFrame) -> pl.DataFrame:
    """Rows of GPU jobs, else of CPU jobs, else of jobs with unknown GPUs."""
    return table.filter(pl.col("kind") == table["kind"][0]) if table.height else table


def _plot_ranks(tables: Mapping[str, pl.DataFrame], *, by: str, words: str, ax: Axes | None) -> Axes:
    """Names of one log mean nothing in another: what the largest use together, by how many they are."""
    ax, weights = ax or new_axes(), set()
    for index, (log, table) in enumerate(tables.items()):
        named = table.filter(pl.col(by).is_not_null()).head(MOST_TENANTS)
        # A log of CPU jobs has no GPU time: there the jobs count.
        column = "gpu_time_share" if named["gpu_time_share"].fill_null(0.0).sum() > 0 else "job_share"
        label = log_label(log) if column == "gpu_time_share" else f"{log_label(log)} (jobs)"
        weights.add("GPU time" if column == "gpu_time_share" else "jobs")
        share = named[column].fill_null(0.0).cum_sum()
        ax.plot(range(len(share) + 1), [0.0, *share], label=label, marker=".", **line_style(index))
    ax.set_xlim(0, MOST_TENANTS)
    ax.set_xlabel(f"Largest {words} (number)")
    share_axis(ax, label=f"Share of all {' or '.join(sorted(weights))} (%)", largest=1.0)
    legend(ax, num_columns=3, place="outside")
    return style_axes(ax)


def _plot_tenants(table: pl.DataFrame, *, by: str, words: str, ax: Axes | None) -> Axes:
    table = table.head(MOST_TENANTS)
    ax = ax or new_axes(height_in=_bar_height(table))
    names = ["(not said)" if name is None else log_label(str(name)) for name in table[by]]
    series = [("of jobs", table["job_share"].to_list(), PALETTE[0])]
    if table["gpu_time_share"].null_count() < table.height:
        series.append(("of GPU time", table["gpu_time_share"].to_list(), PALETTE[1]))
    paired_bars(ax, labels=names, series=series, axis_label="Share of all jobs and of all GPU time (%)")
    ax.set_ylabel(words)
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax, grid="x")


@figure(
    "top_vcs",
    table="top_vcs",
    title="Largest virtual clusters",
    caption="Virtual clusters, partitions or queues in the order of their GPU time.",
    height_in=_bar_height,
    compares=True,
    compared_caption="What the largest virtual clusters of each log use together.",
)
def plot_top_vcs(table: Tables, *, ax: Axes | None = None) -> Axes:
    """Draw the shares of the largest virtual clusters; table as `analysis.characterize.top_vcs` gives it."""
    if not isinstance(table, pl.DataFrame):
        return _plot_ranks(table, by="vc", words="virtual clusters", ax=ax)
    return _plot_tenants(table, by="vc", words="Virtual cluster", ax=ax)


@figure(
    "top_users",
    table="top_users",
    title="Largest users",
    caption="Users in the order of their GPU time.",
    height_in=_bar_height,
    compares=True,
    compared_caption="What the largest users of each log use together.",
)
def plot_top_users(table: Tables, *, ax: Axes | None = None) -> Axes:
    """Draw the shares of the largest users; table as `analysis.characterize.top_users` gives it."""
    if not isinstance(table, pl.DataFrame):
        return _plot_ranks(table, by="user", words="users", ax=ax)
    return _plot_tenants(table, by="user", words="User", ax=ax)
