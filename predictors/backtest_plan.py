"""How a backtest is done: where the log is split, how often models are fitted again, when they are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl
from sklearn.base import clone

from analysis import schema
from analysis.errors import UnknownNameError, UsageError
from predictors.base import DurationPredictor, make_predictor
from predictors.calibration import CALIBRATIONS, DEFAULT_CALIBRATION
from predictors.jobs_table import is_known, lower_bound_s

__all__ = ["REFITS", "Models", "Plan", "make_plan", "named_models", "split_log", "usable_jobs"]

Models = Sequence[str | DurationPredictor] | Mapping[str, DurationPredictor]
#: How often models are fitted again, by name; null = never.
REFITS: Final[Mapping[str, timedelta | None]] = {
    "never": None,
    "daily": timedelta(days=1),
    "weekly": timedelta(days=7),
}


@dataclass(frozen=True)
class Plan:
    """How a backtest is done.

    Attributes
    ----------
    split : float, default 0.6
        Share of the jobs, in submission order, before the test part; between 0 and 1.
    refit : {"never", "daily", "weekly"}, default "never"
        How often a model is fitted again, each time to what is known then.
    at : str, default "submission"
        When models are asked: "submission", "start", or a column of datetimes.
    gpu_jobs_only : bool, default True
        Leave out jobs without GPUs.
    time_zone : str, default "UTC"
        Where hours and weekdays mean something; given to models made by name.
    random_state : int, default 0
        Seed, given to models made by name, and of the bootstrap.
    calibration : str, default "alike"
        How intervals are calibrated, one of ``predictors.calibration.CALIBRATIONS``.
    """

    split: float = 0.6
    refit: str = "never"
    at: str = "submission"
    gpu_jobs_only: bool = True
    time_zone: str = "UTC"
    random_state: int = 0
    calibration: str = DEFAULT_CALIBRATION


def make_plan(**options: Any) -> Plan:
    """Make a plan of named options; what is not given is as in ``Plan``.

    Raises
    ------
    UnknownNameError
        If an option, a refit or a calibration does not exist.
    UsageError
        If the split is not between 0 and 1.
    """
    known = [field.name for field in fields(Plan)]
    for name in options:
        if name not in known:
            raise UnknownNameError(kind="option of a backtest", found=name, known=known)
    plan = Plan(**options)
    if plan.refit not in REFITS:
        raise UnknownNameError(kind="refit", found=plan.refit, known=REFITS)
    if plan.calibration not in CALIBRATIONS:
        raise UnknownNameError(kind="calibration", found=plan.calibration, known=CALIBRATIONS)
    if not 0 < plan.split < 1:
        msg = f"backtest: split is {plan.split}; expected a share between 0 and 1, such as 0.6."
        raise UsageError(msg)
    return plan


def named_models(models: Models, *, time_zone: str, random_state: int) -> dict[str, DurationPredictor]:
    """Make unfitted predictors of what was asked for; predictors that were given are cloned."""
    if isinstance(models, str) or not models:
        msg = f"backtest: models is {models!r}; expected a list of names or predictors, at least one."
        raise UsageError(msg)
    pairs = list(models.items()) if isinstance(models, Mapping) else [(_name(model), model) for model in models]
    twice = sorted({name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1})
    if twice:
        msg = f"backtest: {', '.join(twice)} is given twice; give a mapping of names to predictors."
        raise UsageError(msg)
    shared = {"time_zone": time_zone, "random_state": random_state}
    return {name: _ready(model, shared) for name, model in pairs}


def _name(model: str | DurationPredictor) -> str:
    return model if isinstance(model, str) else model.name


def _ready(model: str | DurationPredictor, shared: dict[str, Any]) -> DurationPredictor:
    if not isinstance(model, str):
        return clone(model)  # type: ignore[no-any-return]
    made = make_predictor(model)
    known = made.get_params()
    return made.set_params(**{name: value for name, value in shared.items() if name in known})  # type: ignore[no-any-return]


def usable_jobs(log: pl.DataFrame, notes: list[str], *, gpu_jobs_only: bool) -> pl.DataFrame:
    """Sort the jobs that a backtest can use; say in ``notes`` how many were left out and why."""
    kept = log.filter(pl.col("submit_time").is_not_null())
    if kept.height < log.height:
        notes.append(f"{log.height - kept.height} jobs without a submission time were left out.")
    if gpu_jobs_only:
        with_gpus = kept.filter(pl.col("num_gpus") > 0)
        if with_gpus.height < kept.height:
            notes.append(
                f"{kept.height - with_gpus.height} jobs without GPUs (or with an unknown number) were left out."
            )
        kept = with_gpus
    if not kept.height:
        what = "GPU jobs" if gpu_jobs_only else "jobs"
        msg = (
            f"backtest: none of {log.height} rows can be used; expected {what} with a submission time. "
            "For a log of CPU jobs set gpu_jobs_only=False (on the command line: --cpu-jobs)."
        )
        raise UsageError(msg)
    return schema.sort_jobs(kept)


def split_log(log: pl.DataFrame, split: float, notes: list[str]) -> tuple[datetime, pl.DataFrame, pl.DataFrame]:
    """Find the cutoff, the later jobs with a known duration, and those with a lower bound."""
    cutoff = log["submit_time"][int(split * log.height)]
    if log["submit_time"][0] == cutoff:
        msg = (
            f"backtest: none of {log.height} jobs was submitted before {cutoff}, where the split of {split} lies, so "
            "there is nothing to learn from; a backtest needs jobs before and after it."
        )
        raise UsageError(msg)
    later = log.filter(pl.col("submit_time") >= cutoff)
    test = later.filter(is_known())
    if not test.height:
        msg = (
            f"backtest: none of the {later.height} jobs from {cutoff} on has a known duration; choose a smaller split."
        )
        raise UsageError(msg)
    if later.height > test.height:
        notes.append(f"{later.height - test.height} later jobs without a fully known duration are not scored.")
    return cutoff, test, later.filter(lower_bound_s().is_not_null())
