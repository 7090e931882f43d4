"""Predictors of the queueing delay at the submission, with who waits and runs then, and simple rules beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from predictors.backtest import BacktestResult, backtest
from predictors.base import DurationPredictor
from predictors.features import category_codes, features_with_values, fit_categories
from predictors.history import history_features
from predictors.targets.waiting_set import queue_features, recent_waits
from predictors.targets.waits import WAITS_PAST, past_of_waits, waits_of

__all__ = ["WAIT_MODELS", "LastHourWait", "LastWait", "QueueingDelay", "UserWait", "backtest_queueing_delay"]

Floats = NDArray[np.float64]
CATEGORIES: Final = ("cluster", "vc", "user")
#: With fewer known waits nothing is learned: the user's median is said.
LEAST_JOBS: Final = 50


class WaitPredictor(DurationPredictor):
    """What predictors of waits share: they take a log as it is, and a wait may be 0.

    ``fit``, ``predict``, ``predict_quantiles`` and the rest are those of ``DurationPredictor``, in seconds of waiting:
    asked at the submission; "elapsed" is how long a job has waited.
    """

    past_columns: ClassVar[Mapping[str, pl.DataType]] = WAITS_PAST

    def fit(self, jobs: Any) -> Self:
        """Learn from a log.

        Parameters
        ----------
        jobs : DataFrame of polars or pandas, one row per job
            A jobs table, best as ``waits_view`` shows it. A job that still waits counts as a lower bound.

        Returns
        -------
        WaitPredictor
            Itself.

        Raises
        ------
        HindcastError
            If no job has a known wait or a lower bound of one.
        """
        super().fit(waits_of(jobs))
        return self

    def predict_distribution(self, jobs: Any, *, history: Any = None, **options: Any) -> Any:
        """Predict the whole distribution of each job's wait; see ``DurationPredictor.predict_distribution``."""
        return super().predict_distribution(waits_of(jobs), history=_seen(history), **options)

    def predict(self, jobs: Any, *, history: Any = None, at: str = "submission") -> Floats:
        """Predict how long jobs will wait from their submission on; see ``DurationPredictor.predict``.

        Returns
        -------
        array of float64, one value per row in the order of the rows
            Predicted queueing delay (median), at least 0, always finite. [s]
        """
        return super().predict(waits_of(jobs), history=_seen(history), at=at)

    def _past_of(self, log: Any) -> pl.DataFrame:
        return past_of_waits(waits_of(log))

    def _fallback(self, table: pl.DataFrame, known: pl.DataFrame, censored: pl.DataFrame) -> float:
        least = super()._fallback(table, known, censored)
        return float(np.median(known["duration_s"].to_numpy())) if known.height else least

    def _point(self, table: pl.DataFrame, past: pl.DataFrame) -> Floats:
        predicted = np.asarray(self._predict(table, past), dtype=np.float64)
        return np.maximum(np.where(np.isfinite(predicted), predicted, self.fallback_s_), 0.0)


def _seen(history: Any) -> pl.DataFrame | None:
    return None if history is None else waits_of(history)


class _RuleOfWaits(WaitPredictor):
    """A statistic of waits of the first key that has any; then the training median. Teaches nobody anything else."""

    learns = False
    keys: tuple[str, ...] = ("user", "vc", "all")
    stat = "median_20"

    def _fit(self, known: pl.DataFrame, censored: pl.DataFrame) -> None:
        pass

    def _predict(self, jobs: pl.DataFrame, past: pl.DataFrame) -> Floats:
        found = history_features(jobs, past=past, keys=self.keys, stats=[self.stat])
        return found.select(pl.coalesce(*found.columns, pl.lit(self.fallback_s_))).to_series().to_numpy()


class UserWait(_RuleOfWaits):
    """Median of the waits of the user's last 20 jobs that had started; else of the VC's; else of everybody's."""

    name = "user_wait"


class LastWait(_RuleOfWaits):
    """Wait of the user's last job that had started; else of the VC's; else of everybody's."""

    name = "last_wait"
    stat = "last"


class LastHourWait(_RuleOfWaits):
    """Mean wait of the jobs that started in the hour before; else the wait of the last one that did."""

    name = "last_hour_wait"
    keys = ("all",)
    stat = "last"

    def _predict(self, jobs: pl.DataFrame, past: pl.DataFrame) -> Floats:
        mean = recent_waits(jobs["submit_time"], past)["recent_wait_mean_s"].to_numpy()
        return np.where(np.isnan(mean), super()._predict(jobs, past), mean)


class QueueingDelay(WaitPredictor):
    """Boosted trees on log(1 + wait), told of the job, of the history of waits, and of who waits and runs.

    All at the submission (``predictors.targets.waiting_set``): of everybody, the VC and the user the jobs, GPUs, CPUs
    and predicted work that wait, the jobs, GPUs and CPUs that run; waits by key of jobs that had started; the mean
    wait of the last hour's starts. A job that still waited teaches only if it had waited longer than the user's
    median, as in ``BoostedTrees``.

    Parameters
    ----------
    num_trees : int, default 200
    learning_rate : float, default 0.05
    max_leaves : int, default 15
    random_state : int, default 0
        Seed; the same seed and log give the same model.

    Attributes
    ----------
    features_ : list of str
        Columns of the matrix that the learner saw.

    Examples
    --------
    >>> from datetime import datetime, timedelta
    >>> day = datetime(2024, 1, 1)
    >>> log = pl.DataFrame({"submit_time": [day, day + timedelta(hours=1)], "user": ["a", "a"],
    ...                     "start_time": [day + timedelta(minutes=5), None], "end_time": [None, None]})
    >>> QueueingDelay().fit(log).predict(log.tail(1)).tolist()
    [300.0]
    """

    name = "queueing_delay"

    def __init__(
        self, *, num_trees: int = 200, learning_rate: float = 0.05, max_leaves: int = 15, random_state: int = 0
    ) -> None:
        super().__init__(failures="keep")
        self.num_trees = num_trees
        self.learning_rate = learning_rate
        self.max_leaves = max_leaves
        self.random_state = random_state

    def _fit(self, known: pl.DataFrame, censored: pl.DataFrame) -> None:
        guess = _user_median(censored, self.past_, self.fallback_s_)
        told = censored.filter(censored["lower_bound_s"] > guess)
        rows = pl.concat([known, told]).with_columns(label_s=pl.coalesce("lower_bound_s", "duration_s"))
        label = rows["label_s"].log1p()
        self.categories_ = {name: fit_categories(rows[name], log_duration=label) for name in CATEGORIES}
        self.features_: list[str] = []
        table = self._table(rows, self.past_)
        self.features_ = features_with_values(table)
        self.model_ = None
        if rows.height >= LEAST_JOBS and self.features_:
            model = HistGradientBoostingRegressor(
                loss="absolute_error",
                max_iter=self.num_trees,
                learning_rate=self.learning_rate,
                max_leaf_nodes=self.max_leaves,
                early_stopping=False,
                random_state=self.random_state,
            )
            with threadpool_limits(limits=1, user_api="openmp"):
                self.model_ = model.fit(_matrix(table, self.features_), label.to_numpy())

    def _table(self, waits: pl.DataFrame, past: pl.DataFrame) -> pl.DataFrame:
        codes = [category_codes(waits[name], self.categories_[name]).alias(name) for name in CATEGORIES]
        return queue_features(waits, past).with_columns(codes)

    def _predict(self, jobs: pl.DataFrame, past: pl.DataFrame) -> Floats:
        if self.model_ is None:
            return _user_median(jobs, past, self.fallback_s_).to_numpy()
        matrix = _matrix(self._table(jobs, past), self.features_)
        with threadpool_limits(limits=1, user_api="openmp"):
            return np.expm1(np.asarray(self.model_.predict(matrix), dtype=np.float64))


def _user_median(waits: pl.DataFrame, past: pl.DataFrame, fallback_s: float) -> pl.Series:
    found = history_features(waits, past=past, keys=("user", "vc", "all"), stats=["median_20"])
    return found.select(pl.coalesce(*found.columns, pl.lit(fallback_s))).to_series()


def _matrix(table: pl.DataFrame, names: list[str]) -> Floats:
    return np.asarray(table.select(names).cast(pl.Float64).fill_null(np.nan).to_numpy(), dtype=np.float64)


#: Predictors of the queueing delay by name, simple rules first.
WAIT_MODELS: Final[Mapping[str, type[WaitPredictor]]] = {
    model.name: model for model in (UserWait, LastWait, LastHourWait, QueueingDelay)
}


def backtest_queueing_delay(jobs: Any, **options: Any) -> BacktestResult:
    """Backtest every predictor of ``WAIT_MODELS`` on the last part of a log; see ``predictors.backtest``.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table whose starts are known.
    **options
        As of ``predictors.backtest``.

    Returns
    -------
    BacktestResult
        All scores in terms of waits: ``duration_s`` of ``predictions`` is the queueing delay.

    Raises
    ------
    UsageError, UnknownNameError
        As ``predictors.backtest``.
    """
    models = {name: model() for name, model in WAIT_MODELS.items()}
    return backtest(waits_of(jobs), models=models, **options)
