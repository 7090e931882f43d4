"""Permutation importance: how much worse predictions become when something about the jobs is mixed up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from analysis import schema
from analysis.errors import UnknownNameError, UsageError
from predictors.asking import asked_at, instants
from predictors.base import DurationPredictor
from predictors.differences import block_interval
from predictors.explain_inputs import HISTORY_BLOCKS, HOUR, INPUT_BLOCKS, Clock, Question, differ, relabelled
from predictors.features import SUBMISSION_COLUMNS
from predictors.jobs_table import as_jobs, is_known
from predictors.scores import abs_log_error

__all__ = ["permutation_importance", "sample_jobs"]

Floats = NDArray[np.float64]
US_PER_DAY: Final = 86_400_000_000
#: Columns of the table.
COLUMNS: Final = {
    "block": pl.String,
    "kind": pl.String,
    "importance": pl.Float64,
    "sd": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "num_jobs": pl.Int64,
}


def permutation_importance(  # noqa: PLR0913 - the options are named
    model: DurationPredictor,
    jobs: Any,
    *,
    history: Any = None,
    at: str = "submission",
    blocks: Mapping[str, Sequence[str]] | None = None,
    num_repeats: int = 5,
    most_jobs: int = 5_000,
    random_state: int = 0,
) -> pl.DataFrame:
    """Say by how much the log-MAE grows when a block of what is known of jobs is mixed up among them [1]_.

    Blocks of inputs: columns of the asked jobs are permuted together among these jobs; the hour is permuted by the
    clock alone, so the instant of asking and the history up to it stay. Blocks of history: the values of a key are
    swapped in the history (each user's past becomes another's), so every job meets the past of another key, while no
    end and no duration moves: nothing that had not ended by an instant is ever seen. A permuted user also meets
    another's history; the two blocks are not independent and do not add up. Where most jobs share one value of a key
    (one GPU), swapping gives nearly all of them the past of a rare one: what losing the key would cost at worst.

    Parameters
    ----------
    model : DurationPredictor
        Fitted, best to what was known before the jobs came (``training_view``).
    jobs : DataFrame of polars or pandas, one row per job
        A window of a jobs table, such as the test part of a backtest. Jobs with a fully known duration are scored.
    history, at
        As in ``DurationPredictor.predict``.
    blocks : mapping of str to sequence of str, optional
        Blocks of inputs by name, columns of ``predictors.features.SUBMISSION_COLUMNS`` but the time; by default
        ``predictors.explain_inputs.INPUT_BLOCKS``.
    num_repeats : int, default 5
        Permutations of each block.
    most_jobs : int, default 5,000
        Of more jobs so many are drawn.
    random_state : int, default 0
        Seed; the same seed gives the same table, whatever the order of the rows.

    Returns
    -------
    DataFrame, one row per block, the most important first
        ``block``; ``kind`` ("input" or "history"); ``importance``: log-MAE with the block mixed up minus that without,
        mean over the repeats (0 = the predictor does not need it); ``sd`` over the repeats; ``low``, ``high``: 95 %
        interval of that mean, given these permutations, over days (moving blocks; null with less than 10 days);
        ``num_jobs``. Numbers are null where all are the same in the block, so that it cannot be mixed up.

    Raises
    ------
    UsageError
        If no job has a known duration, or a number is not positive.
    UnknownNameError
        If a column of a block is not known at the submission.

    References
    ----------
    .. [1] L. Breiman, "Random Forests", Machine Learning 2001, doi:10.1023/A:1010933404324; for any model: A. Fisher,
       C. Rudin and F. Dominici, JMLR 2019. That of scikit-learn permutes single columns of a matrix, which a history
       is not.

    Examples
    --------
    >>> from datetime import datetime
    >>> from predictors import make_predictor
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, day) for day in range(1, 21)],
    ...                     "user": ["ann", "bob"] * 10, "duration_s": [9.0, 9999.0] * 10})
    >>> table = permutation_importance(make_predictor("user_median").fit(log), log)
    >>> table.filter(pl.col("importance") > 1)["block"].to_list()
    ['history by owner', 'user']
    """
    check_is_fitted(model, "past_")
    _check_numbers(num_repeats=num_repeats, most_jobs=most_jobs)
    inputs = _checked(INPUT_BLOCKS if blocks is None else blocks)
    scored = sample_jobs(jobs, most_jobs=most_jobs, random_state=random_state)
    past = model.past_ if history is None else model._past_of(history)
    losses = _Losses(Question(model, asked_at(scored, at), past), random_state, num_repeats)
    rows = [losses.row(name, "input", losses.inputs_mixed(columns)) for name, columns in inputs.items()]
    rows.append(losses.row(HOUR, "input", losses.hours_mixed()))
    rows += [losses.row(name, "history", losses.past_mixed(columns)) for name, columns in HISTORY_BLOCKS.items()]
    table = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    return table.sort("importance", "block", descending=[True, False], nulls_last=True)


def sample_jobs(jobs: Any, *, most_jobs: int, random_state: int) -> pl.DataFrame:
    """Jobs with a fully known duration in the order of their submission, drawn if there are more than ``most_jobs``.

    Raises
    ------
    UsageError
        If there is none.
    """
    table = schema.sort_jobs(as_jobs(jobs))
    known = table.filter(is_known())
    if not known.height:
        msg = f"explain: none of {table.height:,} jobs has a fully known duration to compare with; give ended ones."
        raise UsageError(msg)
    if known.height <= most_jobs:
        return known
    rng = np.random.default_rng(random_state)
    return known[np.sort(rng.choice(known.height, size=most_jobs, replace=False))]


#: Predictions with a block mixed up once.
Mixed = Callable[[np.random.Generator], Floats]


class _Losses:
    """Losses of the jobs, as they are and with a block mixed up."""

    def __init__(self, question: Question, random_state: int, num_repeats: int) -> None:
        self.question = question
        self.random_state, self.num_repeats = random_state, num_repeats
        self.true_s = question.jobs["duration_s"].to_numpy()
        self.days = (instants(question.jobs).dt.epoch("us").fill_null(0) // US_PER_DAY).to_numpy()
        self.plain_s = question.answer()
        self.plain = abs_log_error(self.plain_s, self.true_s)

    def row(self, name: str, kind: str, mixed: Mixed | None) -> tuple[str | float | int | None, ...]:
        """The row of a block; null numbers where it cannot be mixed up."""
        num_jobs = self.question.jobs.height
        if mixed is None:
            return (name, kind, None, None, None, None, num_jobs)
        # Every block draws from a stream of its own: a block more or less changes no other row.
        rng = np.random.default_rng([self.random_state, *name.encode()])
        gaps = np.stack([abs_log_error(mixed(rng), self.true_s) - self.plain for _ in range(self.num_repeats)])
        ends = block_interval(gaps.mean(axis=0), days=self.days, seed=self.random_state)
        means = gaps.mean(axis=1)
        spread = float(means.std(ddof=1)) if self.num_repeats > 1 else None
        return (name, kind, float(means.mean()), spread, ends.low, ends.high, num_jobs)

    def inputs_mixed(self, columns: tuple[str, ...]) -> Mixed | None:
        """Columns of the asked jobs, permuted together."""
        jobs = self.question.jobs
        if not any(jobs[name].n_unique() > 1 for name in columns):
            return None
        return lambda rng: self.question.answer(
            jobs.with_columns(jobs.select(columns)[rng.permutation(jobs.height)].get_columns())
        )

    def hours_mixed(self) -> Mixed | None:
        """The hours that clocks show, permuted."""
        clock = Clock(self.question)
        hours = clock.hours()
        if len(np.unique(hours)) < 2:
            return None
        return lambda rng: clock.answer(hours[rng.permutation(len(hours))]) if clock.is_read else self.plain_s

    def past_mixed(self, columns: tuple[tuple[str, ...], ...]) -> Mixed | None:
        """Values of a key of past jobs, swapped."""
        past = self.question.past
        if not any(differ(past, together) for together in columns):
            return None
        return lambda rng: replace(self.question, past=relabelled(past, columns, rng=rng)).answer()


def _checked(blocks: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    allowed = [name for name in SUBMISSION_COLUMNS if name != "submit_time"]
    for columns in blocks.values():
        for name in columns:
            if name not in allowed:
                hint = "Only what is known at the submission is permuted; the hour is a block of its own."
                raise UnknownNameError(kind="column to permute", found=name, known=allowed, hint=hint)
    return {name: tuple(columns) for name, columns in blocks.items()}


def _check_numbers(**numbers: int) -> None:
    wrong = [f"{name} is {value}" for name, value in numbers.items() if value < 1]
    if wrong:
        msg = f"explain: {', '.join(wrong)}; expected 1 or more."
        raise UsageError(msg)
