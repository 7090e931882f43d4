"""Figures of distributions: durations and queueing delays by GPU-count bucket."""

from __future__ import annotations

from typing import Any

import polars as pl
from matplotlib.axes import Axes

from analysis.plots.registry import Tables, figure
from analysis.plots.style import INK, duration_axis, legend, line_style, log_label, new_axes, share_axis, style_axes

#: A bucket has the same colour in every figure of every log.
ORDER = ("1", "<1", "2", "5-8", "3-4", ">8", "0", "unknown")

__all__ = ["bucket_label", "plot_duration_cdf", "plot_duration_cdf_gpu_time", "plot_queueing_delay_cdf"]


def bucket_label(bucket: str) -> str:
    """Words for a GPU-count bucket.

    Examples
    --------
    >>> [bucket_label(b) for b in ("0", "<1", "1", "3-4", "all")]
    ['CPU job', '<1 GPU', '1 GPU', '3-4 GPUs', 'all GPU jobs']
    """
    names = {"all": "all GPU jobs", "0": "CPU job", "unknown": "GPUs unknown", "<1": "<1 GPU", "1": "1 GPU"}
    return names.get(bucket, f"{bucket} GPUs")


def _curves(table: Tables, *, value: str, weight: str, ax: Axes) -> float:
    """Draw a curve per bucket of one log, or of several logs one for all their jobs; return where the axis may end."""
    if isinstance(table, pl.DataFrame):
        return _bucket_curves(table, value=value, weight=weight, ax=ax)
    largest = 0.0
    for index, (log, part) in enumerate(table.items()):
        chosen = part.filter(pl.col("weight").cast(pl.String) == weight)
        bucket = "all" if (chosen["bucket"].cast(pl.String) == "all").any() else str(chosen["bucket"][0])
        curve = chosen.filter(pl.col("bucket").cast(pl.String) == bucket)
        label = log_label(log) if bucket == "all" else f"{log_label(log)} ({bucket_label(bucket)}s)"
        ax.plot(curve[value].to_numpy(), curve["share"].to_numpy(), label=label, **line_style(index))
        largest = max(largest, float(curve[value].to_numpy().max()))
    return largest


def _bucket_curves(table: pl.DataFrame, *, value: str, weight: str, ax: Axes) -> float:
    chosen = table.filter(pl.col("weight").cast(pl.String) == weight)
    for key, curve in chosen.partition_by("bucket", as_dict=True, maintain_order=True).items():
        bucket = str(key[0])
        # All jobs together in ink, so that the parts stand out by colour.
        style: dict[str, Any] = {"color": INK, "linewidth": 2.2} if bucket == "all" else line_style(ORDER.index(bucket))
        ax.plot(curve[value].to_numpy(), curve["share"].to_numpy(), label=bucket_label(bucket), **style)
    return float(chosen[value].to_numpy().max())


def _has_gpu_time(table: pl.DataFrame) -> bool:
    return bool((table["weight"].cast(pl.String) == "gpu_time").any())


@figure(
    "duration_cdf",
    table="duration_cdf",
    title="Job durations by GPU count",
    caption="How many of the jobs ran at most this long. A curve further right means longer jobs.",
    compares=True,
    compared_caption="How many of the GPU jobs of each log ran at most this long. Further right means longer jobs.",
)
def plot_duration_cdf(table: Tables, *, ax: Axes | None = None) -> Axes:
    """Draw the distribution of durations by GPU count, every job counting once.

    Parameters
    ----------
    table : DataFrame, or mapping of str to DataFrame
        As `analysis.characterize.duration_cdf` gives it; of several logs by their names, for a curve per log.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    largest = _curves(table, value="duration_s", weight="jobs", ax=ax)
    duration_axis(ax, label="Duration (log scale)", largest=largest)
    share_axis(ax, label="Share of jobs (%)", largest=1.0)
    legend(ax, num_columns=3, place="outside")
    return style_axes(ax)


@figure(
    "duration_cdf_gpu_time",
    table="duration_cdf",
    title="Where the GPU time goes, by duration",
    caption="Share of the GPU time that belongs to jobs of at most this duration: a few long jobs use most of it.",
    has_content=_has_gpu_time,
    compares=True,
)
def plot_duration_cdf_gpu_time(table: Tables, *, ax: Axes | None = None) -> Axes:
    """Draw the distribution of durations by GPU count, every job counting by its GPU time; see `plot_duration_cdf`."""
    ax = ax or new_axes()
    largest = _curves(table, value="duration_s", weight="gpu_time", ax=ax)
    duration_axis(ax, label="Duration (log scale)", largest=largest)
    share_axis(ax, label="Share of GPU time (%)", largest=1.0)
    legend(ax, num_columns=3, place="outside")
    return style_axes(ax)


@figure(
    "queueing_delay",
    table="queueing_delay_cdf",
    title="Queueing delay by GPU count",
    caption="How many of the jobs waited at most this long; the height at 1 s is the share that hardly waited.",
    compares=True,
)
def plot_queueing_delay_cdf(table: Tables, *, ax: Axes | None = None) -> Axes:
    """Draw the distribution of queueing delays by GPU count.

    Parameters
    ----------
    table : DataFrame, or mapping of str to DataFrame
        As `analysis.characterize.queueing_delay_cdf` gives it; of several logs by their names, for a curve per log.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    largest = _curves(table, value="queueing_delay_s", weight="jobs", ax=ax)
    duration_axis(ax, label="Queueing delay (log scale)", largest=largest)
    share_axis(ax, label="Share of jobs that started (%)", largest=1.0)
    legend(ax, num_columns=3, place="outside")
    return style_axes(ax)
