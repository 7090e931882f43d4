"""The chapter on predictors shows a real backtest: its figures, its scores, and which differences are real."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.plots import FIGURES
from analysis.report.blocks import Block
from analysis.report.tried import scores_section
from predictors import BacktestResult, backtest


@pytest.fixture(scope="module")
def result() -> BacktestResult:
    """Eight weeks of two users, one of whom runs ten times as long; their names are all that tells."""
    rng = np.random.default_rng(0)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    log = pl.DataFrame(
        {
            "submit_time": [start + timedelta(hours=2 * i) for i in range(672)],
            "user": [f"u{i % 6}" for i in range(672)],
            "num_gpus": [1.0] * 672,
            "duration_s": [100.0 * 10 ** (i % 2) * math.exp(x) for i, x in enumerate(rng.normal(0, 0.3, 672))],
        }
    )
    return backtest(log, models=["global_median", "last_two", "user_median"])


@pytest.fixture(scope="module")
def blocks(result) -> dict[str, Block]:
    tables = {"scores_by": result.by, "calibration_curve": result.curve, "differences": result.differences}
    section = scores_section(result.scores, result.predictions, tables)
    return {block.title: block for block in section.blocks}


def texts(block: Block) -> list[list[str]]:
    assert block.table is not None
    return [[cell.text for cell in row] for row in block.table.rows]


def test_leaderboard_errors_windows_and_calibration_are_drawn(blocks):
    names = ("predictor_scores", "prediction_errors", "error_by_window", "calibration_curve")
    for name in names:
        assert blocks[FIGURES[name].title].svg.startswith("<svg"), name


def test_scores_come_best_first_with_their_interval(blocks, result):
    rows = texts(blocks["Scores"])
    assert [row[0] for row in rows] == ["user_median", "last_two", "global_median"]
    best = result.scores.filter(pl.col("model") == "user_median").row(0, named=True)
    assert rows[0][1:4] == [f"{best[name]:.3g}" for name in ("log_mae", "log_mae_low", "log_mae_high")]
    assert best["log_mae_low"] < best["log_mae"] < best["log_mae_high"]
    heads = [column.text for column in blocks["Scores"].table.head]
    covered = rows[0][heads.index("within the 80 % interval")]
    assert covered == f"{100 * best['coverage']:.1f}".removesuffix(".0") + " %"


def test_the_best_is_set_against_the_others_with_a_verdict(blocks):
    block = blocks["Which differences are real"]
    nearest, (against, gap, *ends, verdict) = texts(block)
    assert nearest[0] == "last_two"
    assert (against, verdict) == ("global_median", "better")
    assert float(ends[0]) < float(gap) < float(ends[1]) < 0
    assert block.text.startswith("User median has the smallest error")
    assert block.download is not None


def test_without_the_further_tables_the_chapter_has_what_there_is(result):
    section = scores_section(result.scores, None)
    assert [block.title for block in section.blocks] == ["Predictor scores", "Scores"]
    assert [block.missing for block in scores_section(None, None, {}).blocks] != [""]
