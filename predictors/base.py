"""The interface that every predictor of durations shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from analysis import schema
from analysis.errors import HindcastError, UsageError
from predictors.asking import asked_at, instants
from predictors.calibration import DEFAULT_CALIBRATION, Stream, calibrated_log_quantiles
from predictors.feedback import asked_rows, score_training, stream_for
from predictors.history import PAST, Failures, ended_jobs
from predictors.jobs_table import as_jobs, is_failure, is_known, limits_s, lower_bound_s, microseconds
from predictors.predictive import Predictive, check_quantiles
from predictors.registry import PREDICTORS, make_predictor, predictor

__all__ = ["PREDICTORS", "DurationPredictor", "clip_to_limit", "make_predictor", "predictor"]

#: No median is shorter: a scheduler divides by it.
SHORTEST_S: Final = 1.0


class DurationPredictor(BaseEstimator, ABC):  # type: ignore[misc]
    """A predictor of job durations that sees only the past.

    A subclass brings ``_fit`` and ``_predict`` (a point); with ``levels`` and ``_predict_quantiles`` it brings
    quantiles of its own. All else (calibrated quantiles, survival, remaining time) comes from here: what the predictor
    says is compared with how long jobs then ran, on jobs that had ended when it is asked.

    Parameters
    ----------
    failures : {"exclude", "keep"}, default "exclude"
        Whether jobs that broke (``failed``, ``node_fail``) teach. A job that broke after two seconds says nothing
        about how long such a job takes, so by default they are left out and counted; "keep" predicts how long a
        job will occupy its GPUs, however it ends. Intervals are about occupied time in both cases.

    Attributes
    ----------
    past_ : DataFrame
        Ended jobs of the training log, for the history of rows to be predicted (``predictors.history.PAST``).
    scores_ : dict of str to Stream
        How far predictions made at the "submission" and at the "start" of jobs of the training log were off.
    trained_until_ : datetime or None
        Latest submission or end in the training log.
    fallback_s_ : float
        Median of the known durations, or of the lower bounds where none is known. [s]
    num_known_, num_censored_, num_excluded_ : int
        Training jobs with a known duration that taught, with a lower bound, and left out as failures.
    window_ : tuple of str or None
        First and last submission of the training log, ISO 8601.
    """

    name: str = ""
    #: Levels of the quantiles that the predictor itself gives; 0.5 alone: it gives a point. 0.5 is always among them.
    levels: tuple[float, ...] = (0.5,)
    #: Whether the labels of the training log shape predictions beyond the history of each row. If so, errors on that
    #: log flatter, and the scores come from a copy that was fitted to its earlier part.
    learns: bool = True
    #: Columns of ``past_``, as they are stored.
    past_columns: ClassVar[Mapping[str, pl.DataType]] = PAST

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
        table = schema.sort_jobs(as_jobs(jobs))
        self._learn_log(table)
        self.scores_ = score_training(self, table)
        return self

    def _learn_log(self, table: pl.DataFrame) -> None:
        table = table.with_columns(is_known(), lower_bound_s())
        broke = pl.lit(self.failures == "exclude") & is_failure().fill_null(value=False)
        known = table.filter(pl.col("is_known") & ~broke)
        censored = table.filter(pl.col("lower_bound_s").is_not_null())
        self.num_known_ = known.height
        self.num_censored_ = censored.height
        self.num_excluded_ = table.filter(pl.col("is_known")).height - known.height
        self.fallback_s_ = self._fallback(table, known, censored)
        self.past_ = self._past_of(table)
        self.window_ = _window(table)
        self.trained_until_ = _latest(table["submit_time"], self.past_["end_time"])
        self._fit(known, censored)

    def _fallback(self, table: pl.DataFrame, known: pl.DataFrame, censored: pl.DataFrame) -> float:
        for labels in (known["duration_s"], table.filter(pl.col("is_known"))["duration_s"], censored["lower_bound_s"]):
            if len(labels):
                return max(float(np.median(labels.to_numpy())), SHORTEST_S)
        msg = (
            f"{self.name}: none of {table.height} training jobs has a duration or a lower bound of one; "
            "give jobs that have ended or are running (columns duration_s and censoring)."
        )
        raise HindcastError(msg)

    def predict(self, jobs: Any, *, history: Any = None, at: str = "submission") -> NDArray[np.float64]:
        """Predict how long jobs will run, each as of the instant at which it is asked about.

        Parameters
        ----------
        jobs : DataFrame of polars or pandas, one row per job
            A jobs table; only what is known at the submission is read, and the column of ``at``.
        history : DataFrame of polars or pandas, optional
            A log whose jobs count for a row if they ended strictly before that instant; it may hold the jobs
            themselves and later ones. By default the training log.
        at : str, default "submission"
            Instant of asking, up to which history is known: "submission", "start", or a column of datetimes of
            ``jobs``. A job whose instant is null is asked about at its submission.

        Returns
        -------
        array of float64, one value per row in the order of the rows
            Predicted duration (median), at least 1 s, always finite. [s]

        Raises
        ------
        NotFittedError
            Before ``fit``.
        SchemaError
            If a column cannot be read.
        UnknownNameError
            If there is no column ``at``.

        Examples
        --------
        >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, 1)], "duration_s": [60.0]})
        >>> job = pl.DataFrame({"submit_time": [datetime(2024, 1, 2)]})
        >>> model = make_predictor("global_median").fit(log)
        >>> model.predict(job).tolist()
        [60.0]
        >>> low, middle, high = model.predict_quantiles(job, [0.1, 0.5, 0.9])[0]
        >>> bool(low < middle < high), float(middle)
        (True, 60.0)
        """
        check_is_fitted(self, "past_")
        table = asked_at(as_jobs(jobs), at)
        if not table.height:
            return np.zeros(0)
        return self._point(table, self.past_ if history is None else self._past_of(history))

    def _point(self, table: pl.DataFrame, past: pl.DataFrame) -> NDArray[np.float64]:
        predicted = np.asarray(self._predict(table, past), dtype=np.float64)
        return np.maximum(np.where(np.isfinite(predicted), predicted, self.fallback_s_), SHORTEST_S)

    def predict_quantiles(
        self, jobs: Any, quantiles: ArrayLike, *, history: Any = None, at: str = "submission"
    ) -> NDArray[np.float64]:
        """Predict quantiles of how long jobs will run, calibrated on jobs that had ended by the instant of asking.

        Parameters
        ----------
        jobs, history, at
            As in ``predict``.
        quantiles : float or sequence of float
            Each between 0 and 1.

        Returns
        -------
        array of float64, shape (rows, quantiles)
            Never crossing, at least 0, never above the requested limit (but for a median that is); the quantile 0.5
            is what ``predict`` gives. [s]

        Raises
        ------
        UsageError
            If a quantile does not lie between 0 and 1.
        """
        asked = check_quantiles(quantiles)
        return self.predict_distribution(jobs, history=history, at=at).quantiles(asked)

    def predict_survival(
        self, jobs: Any, times_s: ArrayLike, *, history: Any = None, at: str = "submission"
    ) -> NDArray[np.float64]:
        """Predict the probability that jobs run longer than given times.

        Parameters
        ----------
        jobs, history, at
            As in ``predict``.
        times_s : float, sequence of float, or array of shape (rows, times)
            Times since the start, at least 0; the same for all rows, or each its own. [s]

        Returns
        -------
        array of float64, shape (rows, times)
            Between 0 and 1, not rising with time; the inverse of the quantiles. 0 from the requested limit on.

        Raises
        ------
        UsageError
            If a time is negative.
        """
        return self.predict_distribution(jobs, history=history, at=at).survival(times_s)

    def predict_remaining(
        self,
        jobs: Any,
        elapsed_s: ArrayLike,
        *,
        quantiles: ArrayLike | None = None,
        history: Any = None,
        at: str = "submission",
    ) -> NDArray[np.float64]:
        """Predict how much longer jobs will run, given that each has run for so long and not ended.

        Parameters
        ----------
        jobs, history, at
            As in ``predict``.
        elapsed_s : float or array of float, one for all rows or one per row
            How long the job has run, at least 0. [s]
        quantiles : float or sequence of float, optional
            By default the median alone.

        Returns
        -------
        array of float64, shape (rows,), or (rows, quantiles) if quantiles are asked for
            At least 0; with S from ``predict_survival``, the q-quantile r solves S(elapsed + r) = (1 - q) S(elapsed).
            A job that outlived all known durations is expected to run for another share of what it has run, from 7 %
            to as long again (``Predictive``); one that outran its limit, as if it had none. [s]

        Raises
        ------
        UsageError
            If an elapsed time is negative or their number is not that of the rows.
        """
        found = self.predict_distribution(jobs, history=history, at=at)
        elapsed = np.asarray(elapsed_s, dtype=np.float64)
        if elapsed.ndim > 1 or elapsed.size not in {1, len(found.limit_s)}:
            msg = f"elapsed_s: found shape {elapsed.shape} for {len(found.limit_s)} jobs; expected one, or one per job."
            raise UsageError(msg)
        left = found.remaining(elapsed, [0.5] if quantiles is None else quantiles)
        return left[:, 0] if quantiles is None else left

    def predict_distribution(
        self, jobs: Any, *, history: Any = None, at: str = "submission", calibration: str = DEFAULT_CALIBRATION
    ) -> Predictive:
        """Predict the whole distribution of each job's duration, from which the other methods take their answers.

        Parameters
        ----------
        jobs, history, at
            As in ``predict``.
        calibration : str, default "alike"
            One of ``predictors.calibration.CALIBRATIONS``: how the errors of jobs that had ended widen it.

        Returns
        -------
        Predictive
            One distribution per row, in the order of the rows.
        """
        check_is_fitted(self, "past_")
        table = asked_at(as_jobs(jobs), at)
        past = self.past_ if history is None else self._past_of(history)
        raw = self._raw(table, past)
        until_us = int(microseconds(instants(table))[0].max(initial=0))
        stream = stream_for(self, history, past=past, at=at, until_us=until_us)
        return self._calibrated(table, raw, stream, method=calibration)

    def _calibrated(self, asked: pl.DataFrame, raw: NDArray[np.float64], stream: Stream, *, method: str) -> Predictive:
        """Distributions of what was said of rows (``_raw``), calibrated with how jobs ended."""
        levels, values = calibrated_log_quantiles(
            asked_rows(asked, raw), levels=np.asarray(self.levels), stream=stream, method=method
        )
        median = raw[:, self.levels.index(0.5)]
        return Predictive(levels, values, np.maximum(limits_s(asked), median), median)

    def _raw(self, table: pl.DataFrame, past: pl.DataFrame) -> NDArray[np.float64]:
        """Quantiles of ``levels`` as the predictor itself says them [s]; the median is that of ``predict``."""
        if not table.height:
            return np.zeros((0, len(self.levels)))
        if len(self.levels) == 1:
            return self._point(table, past)[:, None]
        raw = np.asarray(self._predict_quantiles(table, past), dtype=np.float64)
        raw = np.maximum(np.where(np.isfinite(raw), raw, self.fallback_s_), 0.0)
        place = self.levels.index(0.5)
        raw[:, place] = np.maximum(raw[:, place], SHORTEST_S)
        return raw

    def _past_of(self, log: Any) -> pl.DataFrame:
        """What history needs of a log."""
        return ended_jobs(log)

    @abstractmethod
    def _fit(self, known: pl.DataFrame, censored: pl.DataFrame) -> None:
        """Learn from sorted rows with a known duration and rows with ``lower_bound_s``."""

    @abstractmethod
    def _predict(self, jobs: pl.DataFrame, past: pl.DataFrame) -> NDArray[np.float64]:
        """Predict seconds as of ``asking.instants(jobs)``; NaN where there is nothing to say: the fallback steps in."""

    def _predict_quantiles(self, jobs: pl.DataFrame, past: pl.DataFrame) -> NDArray[np.float64]:
        """Predict quantiles of ``levels``, shape (rows, levels) [s]; that of 0.5 equals ``_predict``."""
        return np.asarray(self._predict(jobs, past), dtype=np.float64)[:, None]

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
    return np.minimum(predicted, limits_s(jobs))


def _latest(*times: pl.Series) -> datetime | None:
    found = [column.max() for column in times if column.drop_nulls().len()]
    return max(found) if found else None  # type: ignore[type-var, return-value]


def _window(table: pl.DataFrame) -> tuple[str | None, str | None]:
    times = table["submit_time"].drop_nulls()
    first, last = (None, None) if not len(times) else (times.min(), times.max())
    return (None if first is None else str(first), None if last is None else str(last))
