"""Figure of waits over the day."""

from __future__ import annotations

import polars as pl
from matplotlib.axes import Axes

from analysis.plots.registry import Tables, by_log, figure
from analysis.plots.style import duration_y_axis, legend, line_style, log_label, new_axes, style_axes

__all__ = ["plot_queueing_by_hour"]


def _gpu_hours_of_day(part: pl.DataFrame) -> pl.DataFrame:
    """Rows of GPU jobs, of CPU jobs where there are no others."""
    kinds = part["kind"].cast(pl.String)
    return part.filter(kinds == ("gpu" if (kinds == "gpu").any() else kinds[0])) if part.height else part


@figure(
    "queueing_by_hour",
    table="queueing_by_hour",
    title="Mean wait by hour of submission",
    caption="Mean queueing delay of the GPU jobs submitted in each hour of the day, in the log's time zone.",
    has_content=lambda table: table.height > 0 and float(table["mean_s"].fill_null(0.0).sum()) > 0,
    compares=True,
)
def plot_queueing_by_hour(table: Tables, *, ax: Axes | None = None) -> Axes:
    """Draw the mean queueing delay by the hour of submission.

    Parameters
    ----------
    table : DataFrame, or mapping of str to DataFrame
        As `analysis.characterize.queueing_by_hour` gives it; of several logs by their names.
    ax : Axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    Axes
        The axes drawn into.
    """
    ax = ax or new_axes()
    for index, (log, part) in enumerate(by_log(table).items()):
        hours = _gpu_hours_of_day(part).sort("hour")
        waits = hours["mean_s"].clip(1.0).to_numpy()
        ax.plot(hours["hour"].to_numpy(), waits, label=log_label(log), marker=".", **line_style(index))
    ax.set_xlim(0, 23)
    ax.set_xticks(range(0, 24, 3))
    ax.set_xlabel("Hour of the day (h, local time)")
    duration_y_axis(ax, label="Mean queueing delay (log scale)")
    if not isinstance(table, pl.DataFrame):
        legend(ax, num_columns=3, place="outside")
    return style_axes(ax)
