"""What each part of a predictor says of one job: experts and their weights, rules in their order, terms of a sum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from predictors.additive import Additive
from predictors.base import SHORTEST_S, DurationPredictor
from predictors.baselines import GlobalMedian, RequestedLimit, _BackOff
from predictors.boosted import Boosted
from predictors.committee import LEARNERS
from predictors.expert_rules import RULES
from predictors.guarded import KINDS, Guarded
from predictors.history import history_features
from predictors.jobs_table import limits_s
from predictors.mixing import KEEP, PRIOR, SHARPNESS, WORST, Losses
from predictors.qssf import Qssf

__all__ = ["Voice", "Voices", "expert_weights", "voices"]

Floats = NDArray[np.float64]
#: What the committee's experts and the guard's rules are, in words.
ABOUT: Final = {
    "request_median": "median of the owner's last 20 jobs that asked for the same",
    "request_last_two": "mean of the owner's last two jobs that asked for the same",
    "request_batches": "median over batches of the owner's jobs that asked for the same",
    "limit_share": "the limit times the share of it that the owner uses",
    "requested_limit": "the requested limit",
    "user_median": "median of the owner's last 20 jobs",
    "last_two": "mean of the owner's last two jobs",
    "correction": "trees that correct the rules, told the job and the history of jobs",
    "small_correction": "small trees that correct the rules, told all history",
    "history": "trees told the job and all history",
    "batches": "trees told the job and the history of batches",
    "owner": "trees told the job, who owns it, and a little history",
    "request": "trees told the job alone",
}
#: Levels at which the committee counts losses, as keys of its log.
LEVELS: Final = ("all", "owner", "owner_size_limit")
_STATS: Final = {"median_20": "median of the last 20 jobs", "mean_2": "mean of the last two jobs"}


@dataclass(frozen=True)
class Voice:
    """A part of a predictor, and what it says of a job.

    Attributes
    ----------
    name, about : str
        Its name, and what it is in words.
    says_s : float or None
        What it alone would predict; null = it says nothing of its own. [s]
    weight : float or None
        Its share of the say, 0 to 1; null where parts are not weighed.
    adds : float or None
        What it adds to log(1 + s), where parts are terms of a sum.
    """

    name: str
    about: str
    says_s: float | None = None
    weight: float | None = None
    adds: float | None = None


class Voices(NamedTuple):
    """What the parts of a predictor say, and how they become one prediction (in words; empty = there are no parts)."""

    combined: str
    parts: list[Voice]


@singledispatch
def voices(model: DurationPredictor, asked: pl.DataFrame, past: pl.DataFrame) -> Voices:
    """What each part of a predictor says of one job (``asked``, from ``asked_at``).

    A predictor with parts of its own registers what they say; weights sum to 1, terms (``adds``) to log(1 + s).
    """
    del model, asked, past
    return Voices("", [])


@voices.register
def _of_constant(model: GlobalMedian, asked: pl.DataFrame, past: pl.DataFrame) -> Voices:
    del asked, past
    return Voices("one constant", [Voice("training_median", *_training_median(model), 1.0)])


@voices.register
def _of_limit(model: RequestedLimit, asked: pl.DataFrame, past: pl.DataFrame) -> Voices:
    del past
    limit = asked["time_limit_s"][0]
    return _in_order([("requested_limit", "the requested limit", limit), ("training_median", *_training_median(model))])


@voices.register
def _of_back_off(model: _BackOff, asked: pl.DataFrame, past: pl.DataFrame) -> Voices:
    options = {"stats": [model.stat], "failures": model.failures, "at": asked["asked_time"]}
    found = history_features(asked, past=past, keys=model.keys, **options).row(0)  # type: ignore[arg-type]
    limit = float(limits_s(asked)[0])
    said = [
        (f"{key}__{model.stat}", f"{_STATS[model.stat]} of the same {key.replace('_', ' and ')}", value)
        for key, value in zip(model.keys, found, strict=True)
    ]
    told = [*said, ("training_median", *_training_median(model))]
    return _in_order([(name, about, None if value is None else min(value, limit)) for name, about, value in told])


def _training_median(model: DurationPredictor) -> tuple[str, float]:
    return "median of the training jobs", model.fallback_s_


def _in_order(said: list[tuple[str, str, float | None]]) -> Voices:
    """Rules of which the first that says anything has all the weight."""
    first = next(place for place, (_, _, value) in enumerate(said) if value is not None)
    parts = [
        Voice(name, about, None if value is None else max(float(value), SHORTEST_S), float(place == first))
        for place, (name, about, value) in enumerate(said)
    ]
    return Voices("the first that says anything", parts)


@voices.register
def _of_qssf(model: Qssf, asked: pl.DataFrame, past: pl.DataFrame) -> Voices:
    rolling = max(float(model.rolling_estimate(asked, past)[0]), 0.0)
    trees = float(Boosted._predict(model, asked, past)[0])
    parts = [
        Voice("rolling", "moving average of the user's jobs of a similar name", rolling, model.weight),
        Voice("trees", "boosted trees", trees, 1 - model.weight),
    ]
    return Voices("weighted mean", parts)


@voices.register
def _of_sum(model: Additive, asked: pl.DataFrame, past: pl.DataFrame) -> Voices:
    if not model.has_model_:
        return Voices("one constant", [Voice("training_median", *_training_median(model), 1.0)])
    row = model._table(asked, past).cast(pl.Float64).fill_null(np.nan).row(0)
    terms = []
    for place, (name, value) in enumerate(zip(model.features_, row, strict=True)):
        about = f"{name} = {'unknown' if np.isnan(value) else f'{value:.6g}'}"
        terms.append(Voice(name, about, adds=float(model._height(place, np.array([value]))[0])))
    base = Voice("base", "what every job begins with", adds=model.base_)
    return Voices("sum of logarithms", [base, *sorted(terms, key=lambda term: (-abs(term.adds or 0.0), term.name))])


@voices.register
def _of_committee(model: Guarded, asked: pl.DataFrame, past: pl.DataFrame) -> Voices:
    view = model._view(past, asked)
    kind = "start" if view.waited_s[0] > 0 else "submission"
    chosen = model.choice_[kind]
    if chosen != "committee":
        about = f"{ABOUT[chosen]}: on the training log it was surely better than the committee"
        return Voices("the guard's choice", [Voice(chosen, about, _seconds(view.rules[chosen][0]), 1.0)])
    said = model._say(view, kind)[0]
    keys = [view.keys(level) for level in LEVELS]
    past_said = model._say(model._view(view.whole_log, KINDS[kind]), kind)
    losses = Losses(past_said, view.log_s, view.end_us, np.stack([of_log for of_log, _ in keys]), view.batch)
    mine = np.array([of_row[0] for _, of_row in keys])
    weights = expert_weights(losses, mine, at_us=int(view.at_us[0]))
    weights = np.where(np.isnan(said), 0.0, weights)
    weights /= weights.sum()
    names = [*RULES, *LEARNERS][: len(said)]
    found = [
        Voice(name, ABOUT.get(name, name), None if np.isnan(value) else _seconds(value), float(weight))
        for name, value, weight in zip(names, said, weights, strict=True)
    ]
    return Voices("weighted median", sorted(found, key=lambda voice: (-(voice.weight or 0.0), voice.name)))


def _seconds(log_s: float) -> float:
    return max(float(np.expm1(log_s)), SHORTEST_S)


def expert_weights(losses: Losses, keys: NDArray[np.int64], *, at_us: int) -> Floats:
    """Weights of experts for one row, not yet scaled: what ``predictors.mixing.mix`` weighs them by.

    Parameters
    ----------
    losses : Losses
        Ended jobs, and what experts had said of them.
    keys : array of int, one per level
        The row's keys (-1 = none).
    at_us : int
        Its instant: only jobs that ended strictly before count. [microseconds]

    Returns
    -------
    array of float64, one per expert
        exp(-SHARPNESS x (faded mean loss - the least of them)).
    """
    told = (losses.end_us < at_us) & ~np.isnan(losses.said).any(axis=1)
    mean = np.zeros(losses.said.shape[1])
    for level, key in enumerate(keys):
        if key < 0:
            continue
        rows = np.flatnonzero(told & (losses.keys[level] == key))
        loss = np.minimum(np.abs(losses.said[rows] - losses.log_s[rows, None]), WORST)
        news = 1 / np.sqrt(_run_lengths(losses.batch[rows]))
        later = np.cumsum(news[::-1])[::-1] - news
        share = news * KEEP[level] ** later
        mean = (share @ loss + PRIOR[level] * mean) / (share.sum() + PRIOR[level])
    return np.asarray(np.exp(-SHARPNESS * (mean - mean.min())))


def _run_lengths(batch: NDArray[np.int64]) -> Floats:
    """How many jobs of the same batch in a row each job closes, itself included."""
    place = np.arange(len(batch))
    is_first = np.concatenate([[True], batch[1:] != batch[:-1]])[: len(batch)]
    start = np.maximum.accumulate(np.where(is_first, place, 0))
    return np.asarray(place - start + 1, dtype=np.float64)
