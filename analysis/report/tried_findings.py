"""Findings on what was tried on a log: how well durations are predicted, and what predictions gain."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from analysis.plots.style import duration_text
from analysis.report.numbers import percent_text
from analysis.report.sentences import row_of, words

__all__ = ["gain_findings", "score_findings"]

#: How a sentence begins that is about a cluster of the comparison.
PLACES: Final = {
    "own": "On its own cluster",
    "given": "On the cluster given",
    "sized": "On a cluster sized from the log",
    "mixed": "On a mixed cluster of the same size",
}


def score_findings(scores: pl.DataFrame | None) -> list[str]:
    """How well durations can be predicted, from the scores of a backtest."""
    if scores is None or "log_mae" not in scores.columns:
        return []
    known = scores.filter(pl.col("log_mae").is_not_null()).sort("log_mae", "model")
    if not known.height:
        return []
    best = known.row(0, named=True)
    text = (
        f"The best predictor tried, {words(best['model'])}, is off by a factor of {np.exp(best['log_mae']):.1f} in "
        "the geometric mean on jobs that it had not seen"
    )
    if best.get("within_2x") is not None:
        text += f", and within a factor of 2 for {percent_text(best['within_2x'])} of them"
    blind = row_of(known, model="global_median")
    if blind and blind["model"] != best["model"]:
        text += f"; one guess for all jobs, the global median, is off by a factor of {np.exp(blind['log_mae']):.1f}"
    return [f"{text}."]


def gain_findings(gains: pl.DataFrame | None) -> list[str]:
    """What predictions gain: a sentence per cluster on the largest like-for-like pair with skipping, else any."""
    if gains is None or not gains.height:
        return []
    found = []
    for (cluster,), part in gains.partition_by("cluster", as_dict=True, maintain_order=True).items():
        fair = part.filter(pl.col("like_for_like") & pl.col("mean_jct_s").is_not_null())
        pair = next((name for name in ("fifo_skip -> sjf_skip", "fifo -> sjf") if (fair["pair"] == name).any()), None)
        chosen = fair.filter(pl.col("pair") == pair) if pair else fair.head(0)
        text = _gain_sentence(chosen)
        if text:
            found.append(f"{PLACES.get(str(cluster), f'On {cluster}')}, {text}")
    return found


def _gain_sentence(pair: pl.DataFrame) -> str | None:
    best = pair.filter(pl.col("role") == "predicted").sort("mean_jct_s", "predictor").head(1).to_dicts()
    oracle = row_of(pair, role="oracle")
    if not oracle:
        return None
    load = f" (load {oracle['offered_load']:.2f})" if oracle["offered_load"] is not None else ""
    if oracle["captured_share"] is None:
        return f"{oracle['policy']} gains nothing over {oracle['base']}{load}: {oracle['reason']}."
    head = (
        f"{oracle['policy']} with true durations brings the mean completion time from "
        f"{duration_text(oracle['base_mean_jct_s'])} under {oracle['base']} to "
        f"{duration_text(oracle['mean_jct_s'])}{load}"
    )
    if not best:
        return f"{head}."
    row = best[0]
    text = (
        f"{head}; with the predictions of {words(row['predictor'])}, the best of those tried on these "
        f"jobs, to {duration_text(row['mean_jct_s'])}, "
        f"which is {percent_text(row['captured_share'])} of that gain"
    )
    blind = row_of(pair, role="knows_nothing")
    if blind and blind["captured_share"] is not None:
        text += f" (knowing nothing: {percent_text(blind['captured_share'])})"
    if row["gain_low_s"] is not None:
        sure = row["gain_low_s"] > 0
        text += (
            f"; 95 % interval of the gain {duration_text(row['gain_low_s'])} to {duration_text(row['gain_high_s'])}"
            f"{'' if sure else ', so no difference is shown'}"
        )
    return f"{text}."
