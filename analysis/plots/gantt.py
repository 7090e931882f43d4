"""Gantt chart of a schedule: every GPU a lane, every job a bar."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.dates import date2num
from numpy.typing import NDArray

from analysis.plots.over_time import time_axis
from analysis.plots.registry import figure
from analysis.plots.style import INK, PALETTE, SMALL_PT, legend, log_label, new_axes, style_axes

__all__ = ["plot_gantt"]

#: Groups with a colour of their own; the others share the last one, grey.
MOST_GROUPS = len(PALETTE) - 1
#: Up to so many nodes are named, and so many are kept apart by a line.
MOST_NAMED, MOST_RULED = 12, 64
#: Words for what gives the colour.
WORDS = {"vc": "VC", "user": "user", "size": "size of the job"}


def _height(table: pl.DataFrame) -> float:
    lanes = int(table["num_lanes"][0]) if table.height else 8
    return 1.5 + min(max(0.06 * lanes, 1.2), 6.5)


@figure(
    "gantt",
    table="gantt",
    title="Who held which GPU",
    caption=(
        "A lane for each GPU, node above node; a bar is a job, coloured as the legend says. A log that is too long to "
        "be shown whole is shown around its longest queue. Which of its node's GPUs a job had is not known: it is "
        "drawn on the lowest free ones. Jobs that a policy stopped are left out where there is no event log."
    ),
    height_in=_height,
)
def plot_gantt(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the jobs of a schedule as bars in lanes, a lane for each GPU.

    Parameters
    ----------
    table : DataFrame
        As `analysis.replay.gantt` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes(height_in=_height(table))
    bars = _merged(table)
    low, high = (_numbers(ax, table[name].head(1))[0] for name in ("window_start", "window_end"))
    left = _numbers(ax, bars["start_time"]).clip(low, high)
    # A job shorter than a hair is still seen.
    right = np.maximum(_numbers(ax, bars["end_time"]).clip(low, high), left + (high - low) / 1500)
    bottom, height = bars["lane"].to_numpy(), bars["num_gpus"].to_numpy()
    corners = np.stack([left, bottom, right, bottom, right, bottom + height, left, bottom + height], axis=1)
    num_lanes = int(table["num_lanes"][0])
    # White edges part neighbours; on many lanes they would be all that is seen.
    edge = 0.4 if num_lanes <= MOST_RULED else 0.1
    order = _groups(table)
    for place, group in enumerate(order):
        is_rest = ~bars["group"].is_in(order[:-1])
        rows = (is_rest if group is None else bars["group"] == group).fill_null(value=group is None).to_numpy()
        color = PALETTE[-1] if group is None else PALETTE[place % MOST_GROUPS]
        name = "others" if group is None else log_label(group)
        shapes = list(corners[rows].reshape(-1, 4, 2))
        ax.add_collection(PolyCollection(shapes, facecolors=color, edgecolors="white", linewidths=edge, label=name))
    ax.set_xlim(low, high)
    ax.set_ylim(0, num_lanes)
    _name_nodes(ax, table, num_lanes)
    title = WORDS.get(table["grouped_by"][0], log_label(table["grouped_by"][0]))
    legend(ax, title=f"Colour: {title}", num_columns=3 if max(len(str(g)) for g in order) <= 14 else 2, place="outside")
    return style_axes(ax, grid="x")


def _numbers(ax: Axes, times: pl.Series) -> NDArray[np.float64]:
    """Positions on the axis of time, which is made for the window."""
    places = time_axis(ax, times)
    if places.dtype.kind != "M":
        return places
    ax.xaxis_date()
    numbers: NDArray[np.float64] = date2num(places)  # type: ignore[no-untyped-call]
    return numbers


def _merged(table: pl.DataFrame) -> pl.DataFrame:
    """One bar for what a job holds on neighbouring lanes, also of several nodes."""
    job = ["job_id", "start_time", "end_time"]
    ordered = table.sort(*job, "lane", maintain_order=True)
    follows = (pl.col("lane") - pl.col("num_gpus").shift(1).over(job) - pl.col("lane").shift(1).over(job)).abs() < 1e-9
    runs = ordered.with_columns(run=(~follows).fill_null(value=True).cum_sum())
    whole = [pl.col(*job, "group", "lane").first(), pl.col("num_gpus").sum()]
    return runs.group_by("run", maintain_order=True).agg(*whole)


def _groups(table: pl.DataFrame) -> list[str | None]:
    """The groups with most GPU time, most first; then None for the rest, if there is one."""
    time = (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() * pl.col("num_gpus")
    held = table.group_by("group").agg(time.sum().alias("held")).sort("held", "group", descending=[True, False])
    named: list[str | None] = held["group"].drop_nulls().head(MOST_GROUPS).to_list()
    if table["grouped_by"][0] == "size":
        named = sorted(named, key=lambda text: (str(text).startswith("over"), str(text)))
    return named if len(named) == held.height else [*named, None]


def _name_nodes(ax: Axes, table: pl.DataFrame, num_lanes: int) -> None:
    firsts = table.select("node", "first_lane").unique().sort("first_lane")
    edges = [*firsts["first_lane"].to_list(), num_lanes]
    if 1 < len(firsts) <= MOST_RULED:
        ax.hlines(edges[1:-1], *ax.get_xlim(), color=INK, linewidth=0.4, alpha=0.5)
    if firsts["node"].null_count() or len(firsts) > MOST_NAMED:
        ax.set_ylabel("GPUs, node above node" if len(firsts) > 1 else "GPUs")
        return
    labels = [log_label(name) for name in firsts["node"]]
    ax.set_yticks([(low + high) / 2 for low, high in itertools.pairwise(edges)], labels=labels, fontsize=SMALL_PT)
    ax.tick_params(axis="y", length=0)
    ax.set_ylabel("Node")
