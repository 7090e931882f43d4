"""Figures on why durations are predicted as they are: what a predictor needs, and how it answers to a request."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from analysis.plots.registry import figure
from analysis.plots.style import (
    DURATION_TICKS,
    INK,
    PALETTE,
    SMALL_PT,
    legend,
    new_axes,
    short_duration,
    style_axes,
)

__all__ = ["plot_importance", "plot_shape_gpus", "plot_shape_hour", "plot_shape_limit"]

#: An axis of effects reaches at least so far, in log(1 + s).
LEAST_EFFECT = 0.25
#: Colour and hatching of what is mixed up, for print in grey too.
KINDS = {"input": ("of the job", PALETTE[0], ""), "history": ("of its history", PALETTE[1], "////")}


def _measured(table: pl.DataFrame) -> pl.DataFrame:
    return table.filter(pl.col("importance").is_not_null()) if "importance" in table.columns else table.head(0)


def _importance_height(table: pl.DataFrame) -> float:
    return 1.4 + 0.24 * max(_measured(table).height, 3)


@figure(
    "importance",
    table="importance",
    title="What the predictor needs",
    caption=(
        "By how much the mean absolute error of log(1 + seconds) grows when this is mixed up among the jobs, or among "
        "the keys of their history: 0 = not needed, 0.69 = off by another factor of 2. Lines: 95 % intervals over days."
    ),
    height_in=_importance_height,
    has_content=lambda table: _measured(table).height > 0,
)
def plot_importance(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the permutation importance of each block.

    Parameters
    ----------
    table : DataFrame, one row per block
        As `predictors.permutation_importance` gives it; null = could not be mixed up, and is left out.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes(height_in=_importance_height(table))
    rows = _measured(table)
    for kind, (label, color, hatch) in KINDS.items():
        places = (rows["kind"] == kind).arg_true().to_list()
        values = rows["importance"].gather(places).to_list()
        if places:
            ax.barh(places, values, color=color, hatch=hatch, edgecolor="white", linewidth=0, height=0.7, label=label)
    ends = rows.select(pl.coalesce("low", "importance"), pl.coalesce("high", "importance").alias("high"))
    ax.hlines(range(rows.height), ends["low"].to_list(), ends["high"].to_list(), color=INK, linewidth=1.2)
    largest = max(float(ends["high"].max() or 0.0), 0.01)  # type: ignore[arg-type]
    for place, (high, value) in enumerate(zip(ends["high"], rows["importance"], strict=True)):
        text = f"{value:.3f}".replace("-0.000", "0.000")
        ax.text(max(high, 0.0) + 0.015 * largest, place, text, va="center", color=INK, fontsize=SMALL_PT)
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.set_yticks(range(rows.height), labels=rows["block"].to_list())
    ax.invert_yaxis()
    ax.set_xlim(min(float(ends["low"].min() or 0.0), 0.0) * 1.05, 1.2 * largest)  # type: ignore[arg-type]
    ax.set_xlabel("Growth of the mean |log error| (log of seconds)")
    ax.set_ylabel("Mixed up")
    legend(ax, num_columns=2, place="outside")
    _name(ax, rows)
    return style_axes(ax, grid="x")


def _name(ax: Axes, table: pl.DataFrame) -> None:
    """Say above the axes whose figure it is, where the table tells."""
    if "model" in table.columns and table.height:
        ax.set_title(str(table["model"][0]).replace("_", " "), loc="left", fontsize=SMALL_PT, color=INK)


def _has(name: str) -> Callable[[pl.DataFrame], bool]:
    def has_content(table: pl.DataFrame) -> bool:
        return "input" in table.columns and _rows(table, name).height > 1

    return has_content


def _rows(table: pl.DataFrame, name: str) -> pl.DataFrame:
    return table.filter(pl.col("input") == name).sort("value")


_CAPTION = (
    "How the prediction moves with the {what}, all else as it is; 0 = the mean of the jobs, 0.69 = twice as long. "
    "Band: 95 % interval over days; dots: values asked about, larger where more jobs are."
)


def _shape(table: pl.DataFrame, name: str, ax: Axes | None) -> Axes:
    ax = ax or new_axes()
    rows = _rows(table, name)
    values, effect = rows["value"].to_list(), rows["effect"].to_list()
    is_step = rows["method"][0] == "curve"
    ax.axhline(0, color=INK, linewidth=0.8)
    if rows["low"].null_count() == 0:
        ax.fill_between(values, rows["low"].to_list(), rows["high"].to_list(), color=PALETTE[0], alpha=0.2, linewidth=0)
    ax.plot(values, effect, color=PALETTE[0], linewidth=1.6, drawstyle="steps-post" if is_step else "default")
    if not is_step:
        most = max(rows["num_jobs"].max() or 1, 1)
        sizes = [4 + 40 * count / most for count in rows["num_jobs"]]
        ax.scatter(values, effect, s=sizes, color=PALETTE[0], zorder=3)
    # What hardly matters shall look so: at least from a fifth less to a quarter more.
    low, high = ax.get_ylim()
    ax.set_ylim(min(low, -LEAST_EFFECT), max(high, LEAST_EFFECT))
    ax.set_ylabel("Effect on the prediction (log of seconds)")
    _name(ax, rows)
    return ax


@figure(
    "shape_limit",
    table="shapes",
    title="The requested limit in predictions",
    caption=_CAPTION.format(what="requested time limit"),
    has_content=_has("time_limit_s"),
)
def plot_shape_limit(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw how predictions move with the requested limit.

    Parameters
    ----------
    table : DataFrame
        As `predictors.shape_table` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = _shape(table, "time_limit_s", ax)
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    ticks = [tick for tick in DURATION_TICKS if low <= tick <= high]
    if len(ticks) < 2:
        ticks = [_rows(table, "time_limit_s")["value"][place] for place in (0, -1)]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: _tick(seconds)))
    ax.set_xlabel("Requested limit (log scale)")
    return style_axes(ax)


def _tick(seconds: float) -> str:
    number, unit = short_duration(seconds).split(" ")
    return f"{float(number):.3g} {unit}"


@figure(
    "shape_gpus",
    table="shapes",
    title="The number of GPUs in predictions",
    caption=_CAPTION.format(what="number of GPUs"),
    has_content=_has("num_gpus"),
)
def plot_shape_gpus(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw how predictions move with the number of GPUs; parameters as in `plot_shape_limit`."""
    ax = _shape(table, "num_gpus", ax)
    values = _rows(table, "num_gpus")["value"]
    if float(values.min()) > 0:  # type: ignore[arg-type]
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("GPUs per job")
    return style_axes(ax)


@figure(
    "shape_hour",
    table="shapes",
    title="The hour of submission in predictions",
    caption=_CAPTION.format(what="hour at which clocks stand"),
    has_content=_has("hour"),
)
def plot_shape_hour(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw how predictions move with the hour; parameters as in `plot_shape_limit`."""
    ax = _shape(table, "hour", ax)
    ax.set_xlim(-0.5, 23.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[3, 6], nbins=9))
    ax.set_xlabel("Hour of submission (h, local time)")
    return style_axes(ax)
