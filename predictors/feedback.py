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
from predictors.calibration import Asked, Stream
from predictors.jobs_table import as_jobs, is_known, limits_s, microseconds
from predictors.training_view import known_end, training_view

if TYPE_CHECKING:
    from predictors.base import DurationPredictor

__all__ = ["asked_rows", "score_predictions", "score_training", "stream_for"]

#: A predictor that learns is scored on the last part of its training log by a copy fitted to this first share.
FIT_SHARE: Final = 0.8
#: Scores of so many ended jobs are kept.
MOST_SCORES: Final = 5000


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
        As ``as_jobs`` gives it; those that have not ended are left out.
    past : DataFrame
        Ended jobs, from ``ended_jobs``: the history of each job up to its instant.
    at : str
        Instant of asking.
    trained : bool, default False
        Whether these are jobs of the training log; then the last 5,000 to end are enough.

    Returns
    -------
    Stream
        In the order in which the jobs ended.
    """
    ended = jobs.with_columns(_end=known_end(jobs)["end_time"]).filter(is_known() & pl.col("_end").is_not_null())
    ended = schema.sort_jobs(ended).sort("_end", maintain_order=True)
    ended = ended.tail(MOST_SCORES) if trained else ended
    if not ended.height:
        return Stream.empty(num_levels=len(model.levels))
    then = asked_at(ended, at)
    return Stream(
        end_us=ended["_end"].dt.epoch("us").to_numpy(),
        true_log=np.log1p(ended["duration_s"].to_numpy()),
        asked=asked_rows(then, model._raw(then, past)),
        num_trained=ended.height if trained else 0,
    )


def stream_for(model: DurationPredictor, history: Any, *, past: pl.DataFrame, at: str, until_us: int) -> Stream:
    """Scores of the training log, and of the history's jobs that ended after it and before an instant.

    For an instant of a column the scores are those of predictions at the submission, which know less.
    """
    kind = at if at in INSTANTS else "submission"
    known = model.scores_[kind]
    if history is None:
        return known
    log = as_jobs(history)
    ends = known_end(log)["end_time"].dt.epoch("us")
    later = log.filter((ends > _epoch_us(model.trained_until_)) & (ends < until_us))
    return known.joined(score_predictions(model, later, past=past, at=kind))


def _epoch_us(time: datetime | None) -> int:
    return -(2**62) if time is None else int(pl.Series([time]).dt.epoch("us")[0])
