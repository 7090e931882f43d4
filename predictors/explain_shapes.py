"""How predictions move with one number of the request: curves of the additive model, accumulated local effects else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import singledispatch
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from analysis.errors import UnknownNameError, UsageError
from predictors.additive import Additive
from predictors.asking import asked_at, instants
from predictors.base import DurationPredictor
from predictors.explain_importance import US_PER_DAY, sample_jobs
from predictors.explain_inputs import HOUR, Clock, Question

__all__ = ["SHAPE_INPUTS", "shape_table"]

Floats = NDArray[np.float64]
#: Numbers of a request whose shapes are drawn.
SHAPE_INPUTS: Final = ("time_limit_s", "num_gpus", HOUR)
#: Others that may be asked for.
NUMBERS: Final = ("num_cpus", "mem_gib", "num_tasks", "num_nodes")
COLUMNS: Final = {
    "input": pl.String,
    "value": pl.Float64,
    "effect": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "num_jobs": pl.Int64,
    "method": pl.String,
}
NUM_DRAWS: Final = 500
#: With fewer days a bootstrap over them says nothing.
MIN_DAYS: Final = 10
#: Values of an input in between which local effects are taken, at most.
MOST_EDGES: Final = 17
Row = tuple[str, float, float, float | None, float | None, int, str]


def shape_table(
    model: DurationPredictor,
    jobs: Any,
    *,
    history: Any = None,
    at: str = "submission",
    inputs: Sequence[str] = SHAPE_INPUTS,
    most_jobs: int = 5_000,
    random_state: int = 0,
) -> pl.DataFrame:
    """Say how predictions move with one number of the request.

    The additive model has a curve of each feature, and tells that. Of any other predictor accumulated local effects are
    taken [1]_: each job is asked about with the value just below and just above its own, all else as it is, and the
    mean differences are added up. So no job is asked about with a request far from its own, and what goes along with
    the value (whose jobs they are) is not mistaken for its effect. With another size or limit a job also meets another
    history; the hour is moved by the clock alone (``predictors.explain_inputs.Clock``).

    Parameters
    ----------
    model : DurationPredictor
        Fitted.
    jobs, history, at, most_jobs, random_state
        As in ``permutation_importance``.
    inputs : sequence of str, default ("time_limit_s", "num_gpus", "hour")
        Numbers of the request; of the additive model any of its features.

    Returns
    -------
    DataFrame, one row per input and value, in order
        ``input``, ``value`` (in the input's own unit), ``effect`` on log(1 + s), on average over jobs 0; ``low``,
        ``high``: 95 % interval over days (null with less than 10 days, and for a curve); ``num_jobs`` with this value
        or between it and the one before; ``method`` ("local effects" or "curve": a step that holds from this value
        on). No row for an input of which all jobs have the same, or none.

    Raises
    ------
    UnknownNameError
        If there is no such input.
    UsageError
        If no job has a known duration.

    References
    ----------
    .. [1] D. W. Apley and J. Zhu, "Visualizing the Effects of Predictor Variables in Black Box Supervised Learning
       Models", JRSS B 2020, doi:10.1111/rssb.12377.

    Examples
    --------
    >>> from datetime import datetime
    >>> from predictors import make_predictor
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, day) for day in (1, 2, 3)], "duration_s": [9.0] * 3,
    ...                     "time_limit_s": [99.0, 99.0, 9999.0]})
    >>> table = shape_table(make_predictor("requested_limit").fit(log), log, inputs=["time_limit_s"])
    >>> table.select("value", pl.col("effect").round(2), "num_jobs").rows()  # ln(10000 / 100) = 4.61
    [(99.0, -2.3, 2), (9999.0, 2.3, 1)]
    """
    check_is_fitted(model, "past_")
    if most_jobs < 1:
        msg = f"explain: most_jobs is {most_jobs}; expected 1 or more."
        raise UsageError(msg)
    scored = asked_at(sample_jobs(jobs, most_jobs=most_jobs, random_state=random_state), at)
    question = Question(model, scored, model.past_ if history is None else model._past_of(history))
    rows = [row for name in inputs for row in _shape(model, question, name, random_state)]
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


@singledispatch
def _shape(model: DurationPredictor, question: Question, name: str, random_state: int) -> Iterator[Row]:
    """Rows of one input."""
    del model
    known = (*SHAPE_INPUTS, *NUMBERS)
    if name not in known:
        raise UnknownNameError(kind="input with a shape", found=name, known=known)
    values, ask = _by_clock(question) if name == HOUR else _by_column(question, name)
    told = ~np.isnan(values)
    edges = _edges(values[told])
    if len(edges) < 2:
        return
    place = np.clip(np.searchsorted(edges, values, side="left"), 1, len(edges) - 1)
    both = (np.log1p(ask(np.where(told, edges[place - side], np.nan))) for side in (0, 1))
    step = next(both) - next(both)
    days = (instants(question.jobs).dt.epoch("us").fill_null(0) // US_PER_DAY).to_numpy()
    effect, low, high = _accumulated(place[told] - 1, step[told], days[told], len(edges) - 1, random_state)
    counts = np.bincount(np.searchsorted(edges, values[told], side="left"), minlength=len(edges))
    for row in zip(edges, effect, low, high, counts, strict=True):
        value, middle, *ends = (float(number) for number in row[:4])
        yield (name, value, middle, *(None if np.isnan(e) else e for e in ends), int(row[4]), "local effects")  # type: ignore[misc]


def _by_clock(question: Question) -> tuple[Floats, Callable[[Floats], Floats]]:
    clock = Clock(question)
    hours = clock.hours()
    plain = question.answer()
    values = np.where(hours < 0, np.nan, hours.astype(np.float64))

    def ask(wanted: Floats) -> Floats:
        return clock.answer(np.where(np.isnan(wanted), hours, wanted).astype(np.int64)) if clock.is_read else plain

    return values, ask


def _by_column(question: Question, name: str) -> tuple[Floats, Callable[[Floats], Floats]]:
    dtype = question.jobs.schema[name]
    values = question.jobs[name].cast(pl.Float64).fill_null(np.nan).to_numpy()

    def ask(wanted: Floats) -> Floats:
        column = pl.Series(name, wanted, nan_to_null=True).cast(dtype)
        return question.answer(question.jobs.with_columns(column))

    return values, ask


def _edges(values: Floats) -> Floats:
    """Values to compare: all there are, or else quantiles of them."""
    found = np.unique(values)
    if len(found) <= max(MOST_EDGES, 24):  # an hour each of the day
        return found
    return np.unique(np.quantile(values, np.linspace(0, 1, MOST_EDGES), method="inverted_cdf"))


def _accumulated(
    bins: NDArray[np.int64], step: Floats, days: NDArray[np.int64], num_bins: int, random_state: int
) -> tuple[Floats, Floats, Floats]:
    """Accumulated effect at each edge, on average 0 over the jobs, and its interval, days drawn anew (NaN: too few)."""
    found, day = np.unique(days, return_inverse=True)
    sums, counts = np.zeros((len(found), num_bins)), np.zeros((len(found), num_bins))
    np.add.at(sums, (day, bins), step)
    np.add.at(counts, (day, bins), 1.0)
    effect = _curves(sums.sum(axis=0)[None], counts.sum(axis=0)[None])[0]
    if len(found) < MIN_DAYS:
        return effect, np.full(num_bins + 1, np.nan), np.full(num_bins + 1, np.nan)
    rng = np.random.default_rng(random_state)
    drawn = rng.multinomial(len(found), np.full(len(found), 1 / len(found)), size=NUM_DRAWS).astype(np.float64)
    low, high = np.quantile(_curves(drawn @ sums, drawn @ counts), [0.025, 0.975], axis=0)
    return effect, low, high


def _curves(sums: Floats, counts: Floats) -> Floats:
    """Curves of summed steps, shape (draws, bins + 1); a bin that a draw misses adds nothing there."""
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    curve = np.concatenate([np.zeros((len(means), 1)), np.cumsum(means, axis=1)], axis=1)
    middle = (curve[:, 1:] + curve[:, :-1]) / 2
    return np.asarray(curve - (middle * counts).sum(axis=1, keepdims=True) / counts.sum(axis=1, keepdims=True))


@_shape.register
def _own_curve(model: Additive, question: Question, name: str, random_state: int) -> Iterator[Row]:
    """The curve that the additive model has of a feature, from the least to the largest value of the jobs."""
    del random_state
    if not model.has_model_ or (name not in model.features_ and name in (*SHAPE_INPUTS, *NUMBERS)):
        return
    curve = model.curve(name)
    values = model._table(question.jobs, question.past)[name].cast(pl.Float64).drop_nulls().to_numpy()
    if not len(values):
        return
    steps = curve.slice(1)  # the first row is that of a missing value
    cuts = steps["from"].fill_null(-np.inf).to_numpy()
    place = np.searchsorted(cuts, values, side="right") - 1
    heights = steps["adds"].to_numpy()
    counts = np.bincount(place, minlength=len(cuts))
    centre = float(heights[place].mean())
    for at in range(int(place.min()), int(place.max()) + 1):
        start = max(float(cuts[at]), float(values.min()))
        yield name, start, float(heights[at]) - centre, None, None, int(counts[at]), "curve"
