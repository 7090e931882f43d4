"""Predictors of ``hindcast replay``: the true durations, rolling statistics in closed loop, and models."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import polars as pl
import typer

from analysis.cli.app import split_names
from analysis.cli.replay_runs import Predicted
from analysis.errors import UsageError

if TYPE_CHECKING:
    from analysis.replay import RollingPrediction
    from analysis.trace import Trace

__all__ = ["ORACLE", "ROLLING", "PredictorOption", "RefreshOption", "oracle_note", "with_predictions"]

#: Predictors that are no model folders.
ORACLE: Final = "oracle"
ROLLING: Final = "rolling"
SECONDS_PER_HOUR: Final = 3600.0

PredictorOption = Annotated[
    str,
    typer.Option(
        metavar="M",
        help="'oracle' (the true durations), 'rolling' (the median of the last 20 jobs of the same VC and size "
        "that have ended in the replay), or model folders, commas between.",
    ),
]
RefreshOption = Annotated[
    float | None,
    typer.Option(
        metavar="HOURS",
        help="Let 'rolling' predict jobs that wait or run again, given their age, every so many hours.",
    ),
]


def _rolling(predictor: str, refresh_h: float | None) -> RollingPrediction:
    """What 'rolling' means here.

    Raises
    ------
    UsageError
        If hours are given that make no sense, or that nobody asks for.
    """
    from analysis.replay import RollingPrediction

    if refresh_h is None:
        return RollingPrediction()
    if ROLLING not in split_names(predictor, option="--predictor"):
        msg = f"--refresh: only predictor 'rolling' predicts again; found --predictor {predictor}. Add rolling to it."
        raise UsageError(msg)
    if not 1e-9 < refresh_h < math.inf:
        msg = f"--refresh {refresh_h}: expected hours, above 0, e.g. 1 or 0.25."
        raise UsageError(msg)
    return RollingPrediction(refresh_s=refresh_h * SECONDS_PER_HOUR)


def with_predictions(
    trace: Trace, predictor: str, *, refresh_h: float | None
) -> tuple[pl.DataFrame, dict[str, Predicted], list[str]]:
    """Add one predicted column a model (the others need none); and say which models may have seen these jobs.

    Parameters
    ----------
    predictor : str
        What the user wrote: 'oracle', 'rolling', model folders.
    refresh_h : float or None
        Hours after which 'rolling' predicts again.

    Raises
    ------
    UsageError
        If two models have one name, or 'rolling' cannot be what is asked for.
    """
    from predictors import load_model, predict_frame

    models, rolling = split_names(predictor, option="--predictor"), _rolling(predictor, refresh_h)
    names = {text: text if text in (ORACLE, ROLLING) else Path(text).resolve().name for text in models}
    if twice := sorted({name for name in names.values() if list(names.values()).count(name) > 1}):
        msg = (
            f"--predictor: {', '.join(map(repr, twice))} is the name of more than one of {', '.join(models)}; a "
            "schedule bears its model's name, so copy or write the model to a folder of another name."
        )
        raise UsageError(msg)
    jobs, notes = trace.jobs, []
    columns: dict[str, Predicted] = {}
    for text, name in names.items():
        columns[name] = {ORACLE: None, ROLLING: rolling}.get(text, f"predicted_duration_s__{name}")
        if text not in (ORACLE, ROLLING):
            model = load_model(Path(text))
            predicted = predict_frame(model, trace.jobs, history=trace.jobs, quantiles=())["predicted_duration_s"]
            jobs = jobs.with_columns(predicted.alias(f"predicted_duration_s__{name}"))
            notes += _seen(name, model.window_, trace.jobs)
    return jobs, columns, notes


def _seen(name: str, window: tuple[str | None, str | None], jobs: pl.DataFrame) -> list[str]:
    """Say how many jobs lie in the time that a model was trained on: of those it may know the durations."""
    first, last = (None if text is None else datetime.fromisoformat(text) for text in window)
    if first is None or last is None:
        return []
    num_seen = jobs.filter(pl.col("submit_time").is_between(first, last)).height
    if not num_seen:
        return []
    return [
        f"{name} was trained on jobs submitted from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} (UTC), and "
        f"{num_seen:,} of the {jobs.height:,} jobs here lie in that time: if it saw them, its result is flattered. "
        "'hindcast report' compares on later jobs only."
    ]


def oracle_note(policies: list[str], columns: dict[str, Predicted]) -> list[str]:
    """Say what the true durations are worth, where policies were given them."""
    from analysis.replay import POLICIES

    knowing = [name for name in policies if name in POLICIES and POLICIES[name].uses_predictions]
    if not knowing or ORACLE not in columns:
        return []
    return [
        f"Under the oracle ({', '.join(knowing)}) every true duration is known beforehand, as for no real scheduler: "
        "a reference, not a forecast. Give models, or rolling, with --predictor."
    ]
