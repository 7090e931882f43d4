"""What ``hindcast replay`` writes beside schedules and metrics: tables by VC and user and over time, and figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

if TYPE_CHECKING:
    from analysis.replay import ReplayResult

__all__ = ["write_tables"]

#: Columns of the jobs table by which metrics are split, and the file of each.
GROUPS: Final = {"vc": "by_vc", "user": "by_user"}


def write_tables(folder: Path, results: Mapping[str, ReplayResult], jobs: pl.DataFrame, *, figures: bool) -> None:
    """Write by_vc, by_user, over_time and quantiles (Parquet and CSV), and figures of them and of each schedule.

    Parameters
    ----------
    folder : Path
        Where; it must exist.
    results : mapping of str to ReplayResult
        By the name of the schedule.
    jobs : DataFrame
        The jobs table that was replayed.
    figures : bool
        Whether to draw them, into ``folder/figures``.
    """
    from analysis.replay.groups import metrics_by
    from analysis.replay.over_time import over_time
    from analysis.replay.quantiles import quantiles
    from analysis.report.download import csv_text

    known = [name for name in GROUPS if name in jobs.columns and jobs[name].null_count() < jobs.height]
    tables = {GROUPS[name]: metrics_by(results, jobs, by=name) for name in known}
    tables |= {"over_time": over_time(results), "quantiles": quantiles(results)}
    for name, table in tables.items():
        table.write_parquet(folder / f"{name}.parquet")
        (folder / f"{name}.csv").write_text(csv_text(table), encoding="utf-8")
    if figures:
        (folder / "figures").mkdir(exist_ok=True)
        _draw(folder / "figures", results, jobs, tables)


def _draw(
    folder: Path, results: Mapping[str, ReplayResult], jobs: pl.DataFrame, tables: Mapping[str, pl.DataFrame]
) -> None:
    from analysis.plots import FIGURES, write_figure, write_figures
    from analysis.replay.gantt import gantt, gantt_window

    drawn = {"replay_over_time": tables["over_time"], "replay_quantiles": tables["quantiles"]}
    write_figures(drawn, folder, names=[name for name, spec in FIGURES.items() if spec.table in drawn])
    # The same stretch of time for all, so that they can be laid side by side.
    window = gantt_window(next(iter(results.values())))
    for label, result in results.items():
        bars = gantt(result, jobs, window=window)
        if bars.height:
            write_figure("gantt", bars, folder, file_name=f"gantt__{label}")
