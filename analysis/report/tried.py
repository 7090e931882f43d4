"""Chapters of a report on what was tried on the log: predictors scored, policies compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from analysis.plots import FIGURES
from analysis.report.blocks import Block, Section, figure_block, table_block
from analysis.report.numbers import TableView, table_view

__all__ = ["gains_section", "scores_section", "side_by_side"]

SCORE_COLUMNS: Final = (
    *("model", "log_mae", "log_mae_low", "log_mae_high", "log_mae_batch", "within_2x", "spearman", "r2_log", "mae_s"),
    *("within_interval_share", "c_index", "num_train", "num_test"),
)
#: Figures of a backtest after the leaderboard, each left out where its table has nothing to show.
BACKTEST_FIGURES: Final = (
    *("prediction_errors", "error_by_window", "calibration_curve"),
    *("importance", "shape_limit", "shape_gpus", "shape_hour"),
)
GAIN_COLUMNS: Final = (
    *("pair", "predictor", "base_mean_jct_s", "mean_jct_s", "gain_s", "gain_low_s", "gain_high_s"),
    *("relative_gain", "captured_share", "base_mean_queueing_delay_s", "mean_queueing_delay_s", "num_jobs"),
)


GAP_COLUMNS: Final = ("against", "log_mae_difference", "days_low", "days_high", "users_low", "users_high", "verdict")
SHARE_TEXT: Final = (
    "100 % = as good as knowing every duration, 0 % = no better than the base. Where knowing nothing has a share too, "
    "that much is the policy's own and needs no predictions."
)


def scores_section(
    scores: pl.DataFrame | None, predictions: pl.DataFrame | None, backtest: Mapping[str, pl.DataFrame] | None = None
) -> Section:
    """Section on predictors; ``backtest`` holds its further tables (see `write_report`)."""
    section = Section(
        "predictors",
        "Predictors",
        text="Durations predicted at submission, from what was known then, and compared with what happened.",
    )
    if scores is None or not scores.height:
        section.blocks = [Block("Predictor scores", missing="No predictor was scored on this log (see the notes).")]
        return section
    tables = {"scores": scores, **(backtest or {})}
    tables |= {} if predictions is None else {"predictions": predictions}
    section.blocks = [figure_block("predictor_scores", scores)]
    for name in BACKTEST_FIGURES:
        table = tables.get(FIGURES[name].table)
        if table is not None and FIGURES[name].has_content(table):
            section.blocks.append(figure_block(name, table))
    shown = scores.rename({"coverage": "within_interval_share"}, strict=False).sort("log_mae", "model", nulls_last=True)
    columns = tuple(name for name in SCORE_COLUMNS if name in shown.columns) or None
    section.blocks.append(table_block("scores", scores, title="Scores", shown=shown, columns=columns, is_folded=False))
    if (gaps := tables.get("differences")) is not None and gaps.height:
        section.blocks.append(_against_best(gaps))
    return section


def _against_best(gaps: pl.DataFrame) -> Block:
    """The best predictor against each other one; the download has all pairs."""
    best = gaps["model"][0]
    shown = gaps.filter(pl.col("model") == best).rename({"other": "against"})
    block = table_block("differences", gaps, title="Which differences are real", shown=shown, columns=GAP_COLUMNS)
    block.text = (
        f"{str(best).replace('_', ' ').capitalize()} has the smallest error; below 0 it is better than the other one. "
        "A verdict needs the intervals over days and over users to agree."
    )
    return block


def gains_section(gains: pl.DataFrame | None) -> Section:
    """Section on policies compared, with a table per cluster."""
    section = Section(
        "policies",
        "Policies compared",
        text=(
            "The same jobs replayed under pairs of policies, like for like: strict with strict, skip with skip. "
            "'Knows nothing' predicts the same duration for every job, the oracle knows them all; what a "
            "predictor is worth lies between the two."
        ),
    )
    if gains is None or not gains.height:
        section.blocks = [Block("Policies compared", missing="No policies were compared on this log (see the notes).")]
        return section
    section.blocks = [
        figure_block("policies", gains),
        figure_block("captured_share", gains, missing=_no_share(gains)),
    ]
    for (cluster,), part in gains.partition_by("cluster", as_dict=True, maintain_order=True).items():
        load = part["offered_load"][0]
        text = f"{int(part['num_gpus'][0]):,} GPUs" + (f", load {load:.2f}" if load is not None else "")
        text += "".join(f". {pairs}: {reason}" for pairs, reason in _reasons(part)) + "."
        place = f"{cluster} cluster"
        jct, share = side_by_side(part, "mean_jct_s"), side_by_side(part, "captured_share")
        every = table_block(
            f"gains_{cluster}", part, title=f"All numbers, {place}", columns=GAIN_COLUMNS, is_folded=True
        )
        section.blocks += [
            Block(f"Mean completion time, {place}", text=text, table=jct, is_wide=True),
            Block(f"Share of the oracle's gain, {place}", text=SHARE_TEXT, table=share, is_wide=True),
            every,
        ]
    return section


def _reasons(part: pl.DataFrame) -> list[tuple[str, str]]:
    """Pairs without a share by the reason why."""
    known = part.filter(pl.col("reason").is_not_null()).select("pair", "reason").unique(maintain_order=True)
    grouped = known.group_by("reason", maintain_order=True).agg(pl.col("pair").str.join(", "))
    return list(grouped.select("pair", "reason").iter_rows())


def side_by_side(part: pl.DataFrame, column: str) -> TableView:
    """One row per pair of policies: the base, then one column per prediction."""
    names = part["predictor"].unique(maintain_order=True).to_list()
    base = ["base_mean_jct_s"] if column == "mean_jct_s" else []
    wide = part.pivot("predictor", index=["pair", *base], values=column, aggregate_function="first")
    suffix = "_s" if column.endswith("_s") else "_share"
    return table_view(wide.select("pair", *base, *(pl.col(name).alias(f"{name}{suffix}") for name in names)))


def _no_share(gains: pl.DataFrame) -> str:
    reasons = gains["reason"].drop_nulls().unique(maintain_order=True).to_list()
    return f"No share of the oracle's gain: {'; '.join(reasons)}." if reasons else "Nothing was compared like for like."
