"""Figures of predictor scores and of policies compared."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator
from numpy.typing import NDArray

from analysis.plots.registry import figure
from analysis.plots.style import (
    INK,
    PALETTE,
    SMALL_PT,
    legend,
    line_style,
    new_axes,
    share_axis,
    style_axes,
    unique,
)

__all__ = ["plot_captured_share", "plot_policies", "plot_prediction_errors", "plot_predictor_scores"]

#: A share of the oracle's gain that counts as none.
NOTHING = 0.005
#: Colour and mark of each role of a prediction; the mark tells them apart in grey.
ROLES = {
    "base": ("base policy", INK, "|"),
    "knows_nothing": ("knows nothing", PALETTE[6], "X"),
    "predicted": ("predicted durations", PALETTE[0], "o"),
    "oracle": ("true durations (oracle)", PALETTE[3], "D"),
}


def _rows_height(num_rows: int) -> float:
    return 1.2 + 0.26 * max(num_rows, 3)


@figure(
    "predictor_scores",
    table="scores",
    title="Predictor scores",
    caption=(
        "Mean absolute error of log(1 + seconds) on jobs that the predictor had not seen: 0.69 is a factor of 2, "
        "1.1 a factor of 3. Shorter is better. Lines: 95 % intervals over days of the test part."
    ),
    height_in=lambda table: _rows_height(table.height),
    has_content=lambda table: "log_mae" in table.columns and table["log_mae"].count() > 0,
)
def plot_predictor_scores(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the log-MAE of every predictor.

    Parameters
    ----------
    table : DataFrame, one row per predictor
        model, log_mae; null = could not be scored, and is left out. log_mae_low and log_mae_high, if there, are the
        ends of its interval.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    scored = table.filter(pl.col("log_mae").is_not_null()).sort("log_mae", "model")
    ax = ax or new_axes(height_in=_rows_height(scored.height))
    values = scored["log_mae"].to_numpy()
    ax.barh(range(scored.height), values, color=PALETTE[0], height=0.7)
    ends = _interval_ends(scored)
    ax.hlines(range(scored.height), *ends, color=INK, linewidth=1.2)
    longest = float(ends.max(initial=1e-9))
    for place, value in enumerate(values):
        text = f"{value:.2f} (x {np.exp(value):.1f})"
        ax.text(ends[1, place] + longest * 0.012, place, text, va="center", color=INK, fontsize=SMALL_PT)
    ax.set_yticks(range(scored.height), labels=[str(name).replace("_", " ") for name in scored["model"]])
    ax.invert_yaxis()
    ax.set_xlim(0, longest * 1.27)
    ax.set_xlabel("Mean |log error| (log of seconds; x = factor)")
    ax.set_ylabel("Predictor")
    return style_axes(ax, grid="x")


def _interval_ends(scored: pl.DataFrame) -> NDArray[np.float64]:
    """Ends of the interval of each row, shape (2, rows); the value itself where there is none."""
    names = ("log_mae_low", "log_mae_high")
    ends = [pl.coalesce(name, "log_mae") if name in scored.columns else pl.col("log_mae") for name in names]
    found = scored.select(low=ends[0], high=ends[1]).to_numpy().T
    return np.asarray(found, dtype=np.float64)


PREFIX = "predicted_duration_s__"


@figure(
    "prediction_errors",
    table="predictions",
    title="How far predictions are off",
    caption="Share of the jobs whose prediction is within this factor of the true duration (1 s added to both).",
    has_content=lambda table: bool(_prediction_columns(table)) and table["duration_s"].count() > 0,
)
def plot_prediction_errors(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the distribution of every predictor's error as a factor.

    Parameters
    ----------
    table : DataFrame, one row per job
        duration_s and one column ``predicted_duration_s__<name>`` per predictor [s]; a null on either side counts
        nowhere.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    factors = 10.0 ** np.linspace(0, 3, 61)
    for index, column in enumerate(_prediction_columns(table)):
        both = table.select("duration_s", column).drop_nulls()
        errors = np.abs(np.log1p(both[column].to_numpy()) - np.log1p(both["duration_s"].to_numpy()))
        shares = np.searchsorted(np.sort(errors), np.log(factors) + 1e-12, side="right") / max(len(errors), 1)
        ax.plot(factors, shares, label=column.removeprefix(PREFIX).replace("_", " "), **line_style(index))
    ax.set_xscale("log")
    ax.set_xlim(1, 1000)
    ax.xaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 100, 1000]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("Factor between predicted and true duration (log scale)")
    share_axis(ax, label="Share of jobs (%)", largest=1.0)
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax)


def _prediction_columns(table: pl.DataFrame) -> list[str]:
    return [name for name in table.columns if name.startswith(PREFIX)] if "duration_s" in table.columns else []


def _pair_rows(table: pl.DataFrame) -> list[tuple[str, str]]:
    known = table.filter(pl.col("mean_jct_s").is_not_null())
    return unique_pairs(known.select("cluster", "pair").iter_rows())


def _hours_axis(ax: Axes) -> None:
    """Logarithmic: a base that blocks may be a hundred times slower than one that does not."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    if high < 10 * low:
        # At least a factor of ten, so that there are marks to read from.
        middle = (low * high) ** 0.5
        ax.set_xlim(min(low, middle / 10**0.5), max(high, middle * 10**0.5))
    ax.xaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=12))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("Mean job completion time (h, log scale)")


def unique_pairs(rows: Iterable[tuple[object, ...]]) -> list[tuple[str, str]]:
    """Pairs (cluster, pair of policies) in the order in which they first occur."""
    return list(dict.fromkeys((str(cluster), str(pair)) for cluster, pair in rows))


@figure(
    "policies",
    table="gains",
    title="Policies compared",
    caption=(
        "Mean time from submission to end under each policy, on the same jobs; further left is better. Each row "
        "is one base policy and the policy that it is compared with, under predictions of differing quality."
    ),
    height_in=lambda table: 1.5 + 0.34 * max(len(_pair_rows(table)), 2),
    has_content=lambda table: bool(_pair_rows(table)),
)
def plot_policies(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the mean JCT of base, knows nothing, predicted and oracle for every pair of policies and cluster.

    Parameters
    ----------
    table : DataFrame
        As `analysis.replay.gains.compare` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    rows = _pair_rows(table)
    ax = ax or new_axes(height_in=1.5 + 0.34 * len(rows))
    for place, (cluster, pair) in enumerate(rows):
        part = table.filter((pl.col("cluster") == cluster) & (pl.col("pair") == pair))
        base = part["base_mean_jct_s"].drop_nulls().head(1).to_list()
        points = [("base", value) for value in base] + [
            (str(role), value) for role, value in part.select("role", "mean_jct_s").iter_rows() if value is not None
        ]
        if points:
            hours = [max(value, 1.0) / 3600 for _, value in points]
            ax.plot([min(hours), max(hours)], [place, place], color=INK, alpha=0.3, linewidth=1)
        for role, value in points:
            _, color, mark = ROLES[role]
            size = 60 if role == "base" else 26
            ax.scatter(max(value, 1.0) / 3600, place, color=color, marker=mark, s=size, zorder=3, alpha=0.9)
    for label, color, mark in ROLES.values():
        ax.scatter([], [], color=color, marker=mark, s=30, label=label)
    ax.set_yticks(range(len(rows)), labels=[f"{pair.replace('->', '→')}\n{cluster}" for cluster, pair in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    _hours_axis(ax)
    ax.set_ylabel("Base → policy, cluster")
    legend(ax, num_columns=2, place="outside")
    return style_axes(ax, grid="x")


@figure(
    "captured_share",
    table="gains",
    title="Share of the oracle's gain",
    caption=(
        "How much of what perfect predictions would gain each predictor gains: 100 % = as good as knowing every "
        "duration, 0 % = no better than the base. Shown are the pairs of policies in which knowing nothing gains "
        "nothing, so that the share measures the predictions."
    ),
    height_in=lambda table: _share_height(_captured(table)),
    has_content=lambda table: _captured(table).height > 0,
)
def plot_captured_share(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the share of the oracle's gain captured by every predictor, like for like, on every cluster.

    Parameters
    ----------
    table : DataFrame
        As `analysis.replay.gains.compare` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    wide = _captured(table)
    ax = ax or new_axes(height_in=_share_height(wide))
    names = unique(wide["predictor"].to_list())
    pairs = _pair_rows(wide)
    for index, (cluster, pair) in enumerate(pairs):
        part = wide.filter((pl.col("cluster") == cluster) & (pl.col("pair") == pair))
        places = [names.index(name) + (index - (len(pairs) - 1) / 2) * 0.8 / len(pairs) for name in part["predictor"]]
        label = f"{pair.split(' -> ')[-1]}, {cluster}"
        mark = "osD^vP*Xhp"[index % 10]
        color = PALETTE[index % len(PALETTE)]
        ax.scatter(part["captured_share"], places, color=color, marker=mark, s=24, label=label, zorder=3)
    ax.set_yticks(range(len(names)), labels=[name.replace("_", " ") for name in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    low, high = float(wide["captured_share"].min()), float(wide["captured_share"].max())  # type: ignore[arg-type]
    share_axis(ax, label="Share of the oracle's gain (%)", axis="x")
    ax.set_xlim(max(min(low - 0.05, -0.05), -1.05), min(max(high + 0.05, 1.05), 1.5))
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.axvline(1, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
    ax.set_ylabel("Prediction")
    legend(ax, num_columns=3, place="outside")
    return style_axes(ax, grid="x")


def _share_height(shares: pl.DataFrame) -> float:
    num_pairs = shares.select("cluster", "pair").n_unique()
    return 1.2 + 0.07 * num_pairs + shares["predictor"].n_unique() * max(0.3, 0.09 * num_pairs)


def _captured(table: pl.DataFrame) -> pl.DataFrame:
    """Rows with a share, of the pairs where it measures the quality of predictions; the oracle is left out.

    Those are the pairs in which knowing nothing gains nothing: elsewhere part of the gain is the policy's own.
    """
    needed = {"captured_share", "like_for_like", "role"}
    if not needed <= set(table.columns):
        return table.head(0)
    blind = table.filter((pl.col("role") == "knows_nothing") & (pl.col("captured_share").abs() < NOTHING))
    fair = table.join(blind, on=["cluster", "pair"], how="semi", maintain_order="left").filter("like_for_like")
    return fair.filter(pl.col("captured_share").is_not_null() & (pl.col("role") != "oracle"))
