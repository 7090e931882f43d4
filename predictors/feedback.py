"""Feedback: how far predictions were off, once the jobs had ended; of the training log and of the history after it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import clone

from analysis import schema
from predictors.asking import INSTANTS, asked_at, instants
from predictors.calibration import NEVER, Asked, Stream
from predictors.jobs_table import as_jobs, is_known, limits_s, microseconds
from predictors.training_view import known_end, training_view

if TYPE_CHECKING:
    from predictors.base import DurationPredictor

__all__ = ["asked_rows", "score_predictions", "score_training", "stream_for", "told_stream"]

#: A predictor that learns is scored on the last part of its training log by a copy fitted to this first share.
FIT_SHARE: Final = 0.8
#: Scores of so many ended jobs are kept: distributions of an owner's jobs alike fill slowly.
MOST_SCORES: Final = 20_000


def score_training(model: DurationPredictor, table: pl.DataFrame) -> dict[str, Stream]:
    """Score predictions of jobs of the training log by a predictor that had not seen how they ended.

    Parameters
    ----------
    model : DurationPredictor
        Fitted to the table.
    table : DataFrame
        The training log, as ``as_jobs`` gives it.

    Returns
    -------
    dict of str to Stream
        By instant of asking ("submission", "start"); empty streams where the log is too short to tell.
    """
    judge, jobs = model, table
    if model.learns:
        cut = _cut(table)
        view = None if cut is None else training_view(table, cutoff=cut)
        if view is None or not view.filter(is_known()).height:
            return {at: Stream.empty(num_levels=len(model.levels)) for at in INSTANTS}
        judge, jobs = clone(model), table.filter(pl.col("submit_time") >= cut)
        judge._learn_log(view)
    return {at: score_predictions(judge, jobs, past=model.past_, at=at, trained=True) for at in INSTANTS}


def _cut(table: pl.DataFrame) -> datetime | None:
    times = table["submit_time"].drop_nulls()
    cut: datetime | None = times[int(FIT_SHARE * len(times))] if len(times) else None
    return cut if cut is not None and (times < cut).any() else None


def asked_rows(table: pl.DataFrame, raw_s: NDArray[np.float64]) -> Asked:
    """What a predictor says (quantiles in seconds) of jobs, at the instant of each."""
    asked_us, _ = microseconds(instants(table))
    return Asked(
        asked_us=asked_us,
        owner=table.select(owner=pl.coalesce("user", "account", "vc"))["owner"],
        limit_log=np.log1p(limits_s(table)),
        raw_log=np.log1p(raw_s),
    )


def score_predictions(
    model: DurationPredictor, jobs: pl.DataFrame, *, past: pl.DataFrame, at: str, trained: bool = False
) -> Stream:
    """Compare what a predictor says of jobs, when asked at an instant, with how long they ran.

    Parameters
    ----------
    model : DurationPredictor
        Fitted.
    jobs : DataFrame
        As ``as_jobs`` gives it.
    past : DataFrame
        Ended jobs, from ``ended_jobs``: the history of each job up to its instant.
    at : str
        Instant of asking.
    trained : bool, default False
        Whether these are jobs of the training log; then the last 20,000 to end are enough.

    Returns
    -------
    Stream
        In the order in which the jobs ended; then, but of the training log, those that have started and not ended.
    """
    told = asked_at(_told(jobs, ended_only=trained), at)
    told = told.tail(MOST_SCORES) if trained else told
    return told_stream(told, model._raw(told, past), num_trained=told.height if trained else 0)


def told_stream(told: pl.DataFrame, raw_s: NDArray[np.float64], *, num_trained: int = 0) -> Stream:
    """What was said of jobs (from ``asked_at``), with their starts and ends as far as known, in the order given."""
    times = told.select(start=_start(), end=known_end(told)["end_time"])
    ended = told.select(is_known()).to_series() & times["end"].is_not_null()
    end_us = times["end"].dt.epoch("us").fill_null(NEVER).to_numpy()
    return Stream(
        start_us=times["start"].dt.epoch("us").fill_null(NEVER).to_numpy(),
        end_us=np.where(ended.to_numpy(), end_us, NEVER),
        true_log=told["duration_s"].fill_null(0.0).log1p().to_numpy(),
        asked=asked_rows(told, raw_s),
        num_trained=num_trained,
    )


def _start() -> pl.Expr:
    """When a job started; where the log has no times, as if it had not waited."""
    assumed = pl.col("flags").list.contains("times_assumed")
    return pl.when(assumed).then(pl.coalesce("start_time", "submit_time")).otherwise(pl.col("start_time"))


def _told(jobs: pl.DataFrame, *, ended_only: bool) -> pl.DataFrame:
    """Jobs in the order in which they ended; then those that have started and not ended."""
    table = jobs.with_columns(_end=known_end(jobs)["end_time"], _known=is_known())
    ended = pl.col("_known") & pl.col("_end").is_not_null()
    # A job that the log lost sight of is not known to run.
    runs = pl.lit(not ended_only) & (pl.col("status") == "running") & ~pl.col("_known") & _start().is_not_null()
    kept = schema.sort_jobs(table.filter(ended | runs))
    order = pl.when(ended).then(pl.col("_end"))
    return kept.sort(order, nulls_last=True, maintain_order=True).drop("_end", "_known")


def stream_for(model: DurationPredictor, history: Any, *, past: pl.DataFrame, at: str, until_us: int) -> Stream:
    """Scores of the training log, and of the history's jobs that came before an instant and ended after that log.

    For an instant of a column the scores are those of predictions at the submission, which know less. Jobs that run
    are known from a history only.
    """
    kind = at if at in INSTANTS else "submission"
    known = model.scores_[kind]
    if history is None:
        return known
    log = as_jobs(history)
    ends = known_end(log)["end_time"].dt.epoch("us").fill_null(NEVER)
    later = log.filter((ends > _epoch_us(model.trained_until_)) & (log["submit_time"].dt.epoch("us") < until_us))
    return known.joined(score_predictions(model, later, past=past, at=kind))


def _epoch_us(time: datetime | None) -> int:
    return -(2**62) if time is None else int(pl.Series([time]).dt.epoch("us")[0])
