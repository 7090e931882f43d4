"""What ``hindcast replay`` writes and prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from analysis.cli.app import write_json

if TYPE_CHECKING:
    from analysis.replay import ReplayResult

__all__ = ["MARKER", "agreement", "compared_with_log", "in_hours", "rejected_note", "timeout_notes", "write_replays"]

#: The file that tells a folder of replays.
MARKER: Final = "metrics.json"
SHOWN: Final = (
    *("schedule", "num_finished", "num_unfinished", "num_rejected"),
    *("mean_jct_s", "mean_queueing_delay_s", "p95_queueing_delay_s", "max_queue_length", "makespan_s"),
)


def write_replays(
    folder: Path,
    rows: Sequence[dict[str, Any]],
    results: dict[str, ReplayResult],
    fidelity: pl.DataFrame | None,
    *,
    figures: bool = True,
) -> None:
    """Write schedules, metrics, and, where the log tells waits, fidelity with its figure."""
    from analysis.report.download import csv_text

    (folder / "schedules").mkdir()
    for label, result in results.items():
        result.schedule.write_parquet(folder / "schedules" / f"{label}.parquet")
    metrics = pl.DataFrame(rows, infer_schema_length=None)
    metrics.write_parquet(folder / "metrics.parquet")
    (folder / "metrics.csv").write_text(csv_text(metrics), encoding="utf-8")
    write_json(list(rows), folder / MARKER)
    if fidelity is None:
        return
    from analysis.plots import write_figures

    fidelity.write_parquet(folder / "fidelity.parquet")
    (folder / "fidelity.csv").write_text(csv_text(fidelity), encoding="utf-8")
    if not figures:
        return
    (folder / "figures").mkdir()
    write_figures({"fidelity": fidelity}, folder / "figures", names=["fidelity"])


def compared_with_log(jobs: pl.DataFrame, results: dict[str, ReplayResult]) -> pl.DataFrame | None:
    """Recorded against simulated waits, where the log says when jobs started and anything was simulated."""
    from analysis.replay.fidelity import fidelity, recorded_waits
    from analysis.replay.recorded import RECORDED

    simulated = {label: result for label, result in results.items() if label != RECORDED}
    return fidelity(jobs, simulated) if simulated and recorded_waits(jobs).height else None


def agreement(fidelity: pl.DataFrame | None) -> list[dict[str, Any]]:
    """How like the log each schedule is, over all jobs."""
    if fidelity is None:
        return []
    names = {"policy": "schedule", "num_jobs": "num_jobs", "mean_ratio": "mean_wait_over_recorded"}
    names |= {name: name for name in ("rank_correlation", "within_2x_share")}
    whole = fidelity.filter(pl.col("group") == "all")
    return whole.select(pl.col(old).alias(new) for old, new in names.items()).to_dicts()


def rejected_note(result: ReplayResult) -> list[str]:
    """Say why jobs were not replayed."""
    refused = result.schedule.filter(pl.col("state") == "rejected")
    if not refused.height:
        return []
    reasons = refused.group_by("reason").len().sort("len", "reason", descending=[True, False])
    text = ", ".join(f"{reason} {count:,}" for reason, count in reasons.iter_rows())
    return [f"{refused.height:,} of {result.schedule.height:,} GPU jobs were not replayed and are in no mean: {text}."]


def timeout_notes(results: dict[str, ReplayResult]) -> list[str]:
    """Say what enforced limits did in these."""
    counts = {label: int((result.schedule["reason"] == "timeout").sum()) for label, result in results.items()}
    text = ", ".join(f"{label} {count:,}" for label, count in counts.items()) or "none; no policy here keeps to limits"
    return [f"Time limits are enforced; jobs that ended at theirs (reason timeout, state finished): {text}."]


def in_hours(row: dict[str, Any], columns: Sequence[str] = SHOWN) -> dict[str, Any]:
    """Some columns of a metrics row, such as fit a terminal, in hours."""
    shown: dict[str, Any] = {}
    for name in columns:
        value = row[name]
        if name.endswith("_s"):
            shown[f"{name.removesuffix('_s')}_h"] = None if value is None else value / 3600
        else:
            shown[name] = value
    return shown
