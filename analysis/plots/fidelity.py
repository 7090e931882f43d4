"""Figure of recorded against simulated waits."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes

from analysis.plots.registry import figure
from analysis.plots.style import INK, PALETTE, duration_axis, legend, new_axes, style_axes, unique

__all__ = ["plot_fidelity"]

MARKS = ("o", "s", "D", "^", "v", "P", "X")
#: Waits below are drawn here: the axis is logarithmic [s].
FLOOR_S = 1.0
#: Most VCs in the figure, those with the most jobs.
MOST_VCS = 8


def _shown(table: pl.DataFrame) -> pl.DataFrame:
    """All jobs, the sizes, and the VCs with the most jobs."""
    vcs = table.filter(pl.col("group") == "vc").sort("num_jobs", descending=True)["value"].unique(maintain_order=True)
    keep = vcs.head(MOST_VCS).to_list() if len(vcs) > 1 else []
    simulated = table.filter(pl.col("policy") != "recorded")
    return simulated.filter((pl.col("group") != "vc") | pl.col("value").is_in(keep))


def _labels(shown: pl.DataFrame) -> list[str]:
    names = {"all": "all jobs", "gpus": "{} GPUs", "vc": "VC {}"}
    texts = (names[group].format(value) for group, value in shown.select("group", "value").iter_rows())
    return unique(text.removesuffix("s") if text == "1 GPUs" else text for text in texts)


@figure(
    "fidelity",
    table="fidelity",
    title="Recorded and simulated waits",
    caption=(
        "Mean queueing delay in the log (black bar) and in the replay under each policy (marks), over the same jobs: "
        "the closer a mark is to the bar, the more the policy is like the scheduler that ran."
    ),
    height_in=lambda table: 1.4 + 0.3 * len(_labels(_shown(table))),
    has_content=lambda table: _shown(table).height > 0,
)
def plot_fidelity(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw recorded and simulated mean waits by size and VC.

    Parameters
    ----------
    table : DataFrame, one row per policy and group
        As `analysis.replay.fidelity.fidelity` gives it.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    shown = _shown(table)
    labels = _labels(shown)
    ax = ax or new_axes(height_in=1.4 + 0.3 * len(labels))
    policies = unique(shown["policy"])
    for place, policy in enumerate(policies):
        part = shown.filter(pl.col("policy") == policy)
        rows = [labels.index(label) for label in _labels(part)]
        waits = part["simulated_mean_s"].clip(lower_bound=FLOOR_S).to_list()
        mark, colour = MARKS[place % len(MARKS)], PALETTE[place % len(PALETTE)]
        ax.plot(
            waits, rows, mark, color=colour, markersize=5, label=policy, markerfacecolor="none", markeredgewidth=1.5
        )
    once = shown.unique(["group", "value"], maintain_order=True)
    waits = once["recorded_mean_s"].clip(lower_bound=FLOOR_S).to_list()
    ax.plot(waits, [labels.index(label) for label in _labels(once)], "|", color=INK, markersize=13, mew=2, label="log")
    ax.set_yticks(range(len(labels)), labels=labels)
    ax.invert_yaxis()
    largest = max(float(shown[name].max() or FLOOR_S) for name in ("recorded_mean_s", "simulated_mean_s"))  # type: ignore[arg-type]
    duration_axis(ax, label="Mean queueing delay (log scale)", largest=1.6 * largest)
    ax.set_ylabel("Jobs")
    legend(ax, place="best")
    return style_axes(ax, grid="x")
