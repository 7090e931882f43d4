"""Figure of how unevenly the cluster is used: Lorenz curves."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from analysis.plots.registry import Tables, figure
from analysis.plots.style import INK, legend, line_style, log_label, new_axes, share_axis, style_axes

__all__ = ["plot_concentration"]

WORDS = {
    ("user", "jobs"): "users, jobs",
    ("user", "gpu_time"): "users, GPU time",
    ("vc", "jobs"): "VCs, jobs",
    ("vc", "gpu_time"): "VCs, GPU time",
}


def _curves(table: pl.DataFrame) -> dict[tuple[str, str], pl.DataFrame]:
    parts = table.with_columns(pl.col("tenant", "weight").cast(pl.String)).partition_by(
        ["tenant", "weight"], as_dict=True, maintain_order=True
    )
    return {(str(key[0]), str(key[1])): part for key, part in parts.items()}


@figure(
    "concentration",
    table="concentration_curve",
    title="How unevenly the cluster is used",
    caption=(
        "Share of the jobs, or of the GPU time, that the smallest so many percent of the users or virtual clusters "
        "have. On the straight line all would have the same; the deeper a curve hangs, the more belongs to a few."
    ),
    compares=True,
    compared_caption=(
        "Share of the GPU time (of the jobs where there is none) that the smallest so many percent of the users "
        "(virtual clusters where users are not named) have. The deeper a curve hangs, the more belongs to a few."
    ),
    height_in=lambda table: 3.6,  # noqa: ARG005
)
def plot_concentration(table: Tables, *, ax: Axes | None = None) -> Axes:
    """Draw the Lorenz curves of users and virtual clusters.

    Parameters
    ----------
    table : DataFrame, or mapping of str to DataFrame
        As `analysis.characterize.concentration_curve` gives it; of several logs by their names, for a curve per log.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes(height_in=3.6)
    ax.plot([0, 1], [0, 1], color=INK, lw=1, ls=(0, (2, 2)), label="all the same")
    if isinstance(table, pl.DataFrame):
        for kind, curve in _curves(table).items():
            _draw(ax, curve, label=WORDS[kind], index=list(WORDS).index(kind))
    else:
        for index, (log, part) in enumerate(table.items()):
            curves = _curves(part)
            kind = next(
                k for k in (("user", "gpu_time"), ("user", "jobs"), ("vc", "gpu_time"), ("vc", "jobs")) if k in curves
            )
            _draw(ax, curves[kind], label=f"{log_label(log)} ({WORDS[kind]})", index=index)
    share_axis(ax, label="Share of users or VCs, smallest first (%)", axis="x", largest=1.0)
    share_axis(ax, label="Their share of jobs or GPU time (%)", largest=1.0)
    ax.xaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax)


def _draw(ax: Axes, curve: pl.DataFrame, *, label: str, index: int) -> None:
    ax.plot(curve["tenant_share"].to_numpy(), curve["share"].to_numpy(), label=label, **line_style(index))
