"""The interface that every predictor of durations shares, and the registry in which they are found by name."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from analysis import schema
from analysis.errors import HindcastError, UnknownNameError, UsageError
from predictors.history import Failures, ended_jobs
from predictors.jobs_table import as_jobs, is_failure, is_known, lower_bound_s

__all__ = ["PREDICTORS", "DurationPredictor", "make_predictor", "predictor"]

#: No prediction is shorter: a scheduler divides by it.
SHORTEST_S: Final = 1.0
PREDICTORS: Final[dict[str, type[DurationPredictor]]] = {}
_Class = TypeVar("_Class", bound="type[DurationPredictor]")


def predictor(name: str) -> Callable[[_Class], _Class]:
    """Register a class of predictors under a name; from then on the contract test walks it.

    Parameters
    ----------
    name : str
        Lower-case letters, digits and underscores: it becomes part of a column name.

    Raises
    ------
    ValueError
        If the name is taken or has other characters.
    """

    def register(cls: _Class) -> _Class:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            msg = f"predictor: the name {name!r} must be lower-case letters, digits and underscores."
            raise ValueError(msg)
        if name in PREDICTORS:
            msg = f"predictor: the name {name!r} is taken by {PREDICTORS[name].__name__}; choose another."
            raise ValueError(msg)
        PREDICTORS[name] = cls
        cls.name = name
        return cls

    return register


def make_predictor(name: str, **params: Any) -> DurationPredictor:
    """Make a predictor by its registered name.

    Parameters
    ----------
    name : str
        One of ``PREDICTORS``.
    **params
        Parameters of that predictor; by default its own defaults.

    Raises
    ------
    UnknownNameError
        If nobody registered the name, or a parameter does not exist.

    Examples
    --------
    >>> make_predictor("global_median").get_params()
    {'failures': 'exclude'}
    """
    if name not in PREDICTORS:
        raise UnknownNameError(
            kind="predictor", found=name, known=PREDICTORS, hint="Register your own with @predictor(name)."
        )
    known = PREDICTORS[name]().get_params()
    for given in params:
        if given not in known:
            raise UnknownNameError(kind=f"parameter of predictor {name!r}", found=given, known=known)
    return PREDICTORS[name](**params)


class DurationPredictor(BaseEstimator, ABC):  # type: ignore[misc]
    """A predictor of job durations that sees only the past.

    Parameters
    ----------
    failures : {"exclude", "keep"}, default "exclude"
        Whether jobs that broke (``failed``, ``node_fail``) teach. A job that broke after two seconds says nothing
        about how long such a job takes, so by default they are left out and counted; "keep" predicts how long a
        job will occupy its GPUs, however it ends.

    Attributes
    ----------
    past_ : DataFrame
        Ended jobs of the training log, for the history of rows to be predicted (``predictors.history.PAST``).
    fallback_s_ : float
        Median of the known durations, or of the lower bounds where none is known. [s]
    num_known_, num_censored_, num_excluded_ : int
        Training jobs with a known duration that taught, with a lower bound, and left out as failures.
    window_ : tuple of str or None
        First and last submission of the training log, ISO 8601.
    """

    name: str = ""

    def __init__(self, *, failures: Failures = "exclude") -> None:
        self.failures = failures

    def fit(self, jobs: Any) -> Self:
        """Learn from a log.

        Parameters
        ----------
        jobs : DataFrame of polars or pandas, one row per job
            A jobs table, best as ``training_view`` shows it. Rows with ``censoring`` "none" and a duration are
            known; "left", "right" and "both" with a duration are lower bounds; others are ignored.

        Returns
        -------
        DurationPredictor
            Itself.

        Raises
        ------
        HindcastError
            If no job has a duration or a lower bound.
        SchemaError
            If a column cannot be read.
        """
        if self.failures not in {"exclude", "keep"}:
            msg = f"{self.name}: failures is {self.failures!r}; expected 'exclude' or 'keep'."
            raise UsageError(msg)
        # One order for all: the same log gives the same model, whatever the order of its rows.
        table = schema.sort_jobs(as_jobs(jobs)).with_columns(is_known(), lower_bound_s())
        broke = pl.lit(self.failures == "exclude") & is_failure().fill_null(value=False)
        known = table.filter(pl.col("is_known") & ~broke)
        censored = table.filter(pl.col("lower_bound_s").is_not_null())
        self.num_known_ = known.height
        self.num_censored_ = censored.height
        self.num_excluded_ = table.filter(pl.col("is_known")).height - known.height
        self.fallback_s_ = self._fallback(table, known, censored)
        self.past_ = ended_jobs(table)
        self.window_ = _window(table)
        self._fit(known, censored)
        return self

    def _fallback(self, table: pl.DataFrame, known: pl.DataFrame, censored: pl.DataFrame) -> float:
        for labels in (known["duration_s"], table.filter(pl.col("is_known"))["duration_s"], censored["lower_bound_s"]):
            if len(labels):
                return max(float(np.median(labels.to_numpy())), SHORTEST_S)
        msg = (
            f"{self.name}: none of {table.height} training jobs has a duration or a lower bound of one; "
            "give jobs that have ended or are running (columns duration_s and censoring)."
        )
        raise HindcastError(msg)

    def predict(self, jobs: Any, *, history: Any = None) -> NDArray[np.float64]:
        """Predict how long jobs will run, each as of its own submission.

        Parameters
        ----------
        jobs : DataFrame of polars or pandas, one row per job
            A jobs table; only what is known at the submission is read.
        history : DataFrame of polars or pandas, optional
            A log whose jobs count for a row if they ended strictly before its submission; it may hold the jobs
            themselves and later ones. By default the training log.

        Returns
        -------
        array of float64, one value per row in the order of the rows
            Predicted duration, at least 1 s, always finite. [s]

        Raises
        ------
        NotFittedError
            Before ``fit``.
        SchemaError
            If a column cannot be read.
        """
        check_is_fitted(self, "past_")
        table = as_jobs(jobs)
        if not table.height:
            return np.zeros(0)
        past = self.past_ if history is None else ended_jobs(history)
        predicted = np.asarray(self._predict(table, past), dtype=np.float64)
        return np.maximum(np.where(np.isfinite(predicted), predicted, self.fallback_s_), SHORTEST_S)

    @abstractmethod
    def _fit(self, known: pl.DataFrame, censored: pl.DataFrame) -> None:
        """Learn from sorted rows with a known duration and rows with ``lower_bound_s``."""

    @abstractmethod
    def _predict(self, jobs: pl.DataFrame, past: pl.DataFrame) -> NDArray[np.float64]:
        """Predict seconds; NaN where the predictor has nothing to say (the fallback steps in)."""

    def _state(self) -> dict[str, Any]:
        """What beside ``past_`` was learned, as JSON; the store keeps it in the manifest."""
        return {}

    def _restore(self, state: dict[str, Any]) -> None:
        """Take back what ``_state`` gave."""

    def _part_names(self) -> list[str]:
        """Names of the files that ``_write_parts`` writes, lower-case and without folders."""
        return []

    def _write_parts(self, folder: Path) -> None:
        """Write fitted parts that are no JSON into files."""

    def _read_parts(self, folder: Path) -> None:
        """Take back what ``_write_parts`` wrote; the store has checked every file's checksum."""


def clip_to_limit(predicted: NDArray[np.float64], jobs: pl.DataFrame) -> NDArray[np.float64]:
    """Cut predictions at the requested limit, at which the job would be ended anyway; null = no limit [s]."""
    limit = jobs["time_limit_s"].fill_null(np.inf).to_numpy()
    return np.asarray(np.minimum(predicted, limit), dtype=np.float64)


def _window(table: pl.DataFrame) -> tuple[str | None, str | None]:
    times = table["submit_time"].drop_nulls()
    first, last = (None, None) if not len(times) else (times.min(), times.max())
    return (None if first is None else str(first), None if last is None else str(last))
