"""Gradient-boosted trees on log(1 + s), told what is known at the submission and what ended before it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from predictors.asking import instants
from predictors.base import DurationPredictor, clip_to_limit, predictor
from predictors.features import (
    CATEGORY_COLUMNS,
    DEFAULT_FEATURES,
    category_codes,
    check_features,
    check_time_zone,
    feature_table,
    features_with_values,
    fit_categories,
    needs_all_jobs,
)
from predictors.history import Failures, ended_jobs, history_features, known_jobs
from predictors.skops_file import read_skops, write_skops

__all__ = ["Boosted", "BoostedTrees"]

Matrix = NDArray[np.float64]
#: A censored row is compared with the first of these that has ended jobs.
_GUESS_KEYS: Final = ("user_size", "user", "vc_size", "vc")


class BoostedTrees(DurationPredictor):
    """What boosted models share: features, categories, labels; a subclass brings the learner.

    A censored row teaches only if its lower bound is already above the rolling median of its own past (user and
    size, user, VC and size, VC, all): then the true duration, whatever it will be, lies above what the past says,
    and under the absolute loss the bound pulls a prediction below it exactly as the true duration would. A lower
    bound below that median says nothing and is left out, so that no job is learned as short because it still runs.

    Parameters
    ----------
    failures : {"exclude", "keep"}, default "exclude"
        See ``DurationPredictor``; the failure rate of the past is a feature in both cases.
    features : sequence of str, optional
        Names that ``predictors.features.check_features`` lets through; by default all that vary in the training log.
    time_zone : str, default "UTC"
        In which hour and weekday are meant; ``Trace.meta.time_zone``.
    num_trees : int, default 200
    learning_rate : float, default 0.1
    max_leaves : int, default 31
        Leaves of one tree.
    random_state : int, default 0
        Seed; the same seed and log give the same model, bit by bit.

    Attributes
    ----------
    features_ : list of str
        Columns of the matrix that the learner saw, in order.
    categories_ : dict of str to dict of str to float
        Numbers of the categories of each category column.
    """

    model_file: str

    def __init__(
        self,
        *,
        failures: Failures = "exclude",
        features: Sequence[str] | None = None,
        time_zone: str = "UTC",
        num_trees: int = 200,
        learning_rate: float = 0.1,
        max_leaves: int = 31,
        random_state: int = 0,
    ) -> None:
        super().__init__(failures=failures)
        self.features = features
        self.time_zone = time_zone
        self.num_trees = num_trees
        self.learning_rate = learning_rate
        self.max_leaves = max_leaves
        self.random_state = random_state

    def _past_of(self, log: Any) -> pl.DataFrame:
        return known_jobs(log) if needs_all_jobs(self._names()) else ended_jobs(log)

    def _fit(self, known: pl.DataFrame, censored: pl.DataFrame) -> None:
        self._check()
        rows = pl.concat([known, self._telling(censored)]).with_columns(
            label_s=pl.coalesce("lower_bound_s", "duration_s")
        )
        log_label = rows["label_s"].log1p()
        matrix = self._training_matrix(rows, log_label)
        # With nothing to tell jobs apart (one job, all the same) the fallback is the model.
        self.has_model_ = bool(self.features_)
        if self.has_model_:
            with threadpool_limits(limits=1, user_api="openmp"):
                self._learn(matrix, log_label.to_numpy())

    def _check(self) -> None:
        check_features(self._names())
        check_time_zone(self.time_zone)

    def _training_matrix(self, rows: pl.DataFrame, log_label: pl.Series) -> Matrix:
        """Number the categories, settle which features can tell jobs apart, and give these of the rows."""
        self.features_ = list(self._names())
        self.categories_ = {
            name: fit_categories(rows[name], log_duration=log_label)
            for name in self.features_
            if name in CATEGORY_COLUMNS
        }
        table = self._table(rows, self.past_)
        self.features_ = features_with_values(table)
        self.categories_ = {name: codes for name, codes in self.categories_.items() if name in self.features_}
        return _matrix(table.select(self.features_))

    def _names(self) -> Sequence[str]:
        """Features to begin with."""
        return DEFAULT_FEATURES if self.features is None else self.features

    def _telling(self, censored: pl.DataFrame) -> pl.DataFrame:
        past = history_features(
            censored, past=self.past_, keys=_GUESS_KEYS, stats=["median_20"], failures=self.failures
        )
        guess = past.select(pl.coalesce(*past.columns, pl.lit(self.fallback_s_))).to_series()
        return censored.filter(censored["lower_bound_s"] > guess)

    def _table(self, jobs: pl.DataFrame, past: pl.DataFrame) -> pl.DataFrame:
        plain = [name for name in self.features_ if name not in CATEGORY_COLUMNS]
        table = feature_table(
            jobs, past=past, names=plain, time_zone=self.time_zone, failures=self.failures, at=instants(jobs)
        )
        named = [category_codes(jobs[name], self.categories_[name]) for name in self.features_ if name not in plain]
        return pl.DataFrame([*table.get_columns(), *named]).select(self.features_)

    def _predict(self, jobs: pl.DataFrame, past: pl.DataFrame) -> Matrix:
        if not self.has_model_:
            predicted = np.full(jobs.height, self.fallback_s_)
        else:
            with threadpool_limits(limits=1, user_api="openmp"):
                predicted = np.expm1(self._apply(_matrix(self._table(jobs, past))))
        return clip_to_limit(predicted, jobs)

    @abstractmethod
    def _learn(self, matrix: Matrix, log_label: Matrix) -> None:
        """Fit the learner to log(1 + s)."""

    @abstractmethod
    def _apply(self, matrix: Matrix) -> Matrix:
        """Predict log(1 + s)."""

    def _part_names(self) -> list[str]:
        return [self.model_file] if self.has_model_ else []

    def _state(self) -> dict[str, Any]:
        return {"features": self.features_, "categories": self.categories_, "has_model": self.has_model_}

    def _restore(self, state: dict[str, Any]) -> None:
        self.features_ = [str(name) for name in state["features"]]
        check_features(self.features_)
        self.categories_ = {
            str(name): {str(k): float(v) for k, v in codes.items()} for name, codes in state["categories"].items()
        }
        self.has_model_ = bool(state["has_model"])


@predictor("boosted")
class Boosted(BoostedTrees):
    """scikit-learn's histogram gradient boosting with absolute loss."""

    model_file = "model.skops"

    def _learn(self, matrix: Matrix, log_label: Matrix) -> None:
        self.model_ = HistGradientBoostingRegressor(
            loss="absolute_error",
            max_iter=self.num_trees,
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.max_leaves,
            early_stopping=False,  # its validation rows would be drawn at random from the past and the future
            random_state=self.random_state,
        ).fit(matrix, log_label)

    def _apply(self, matrix: Matrix) -> Matrix:
        return np.asarray(self.model_.predict(matrix), dtype=np.float64)

    def _write_parts(self, folder: Path) -> None:
        if self.has_model_:
            write_skops(self.model_, folder / self.model_file)

    def _read_parts(self, folder: Path) -> None:
        if self.has_model_:
            self.model_ = read_skops(folder / self.model_file, num_features=len(self.features_))


def _matrix(table: pl.DataFrame) -> Matrix:
    return np.asarray(table.cast(pl.Float64).fill_null(np.nan).to_numpy(), dtype=np.float64)
