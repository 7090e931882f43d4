"""A boosted survival model: a hazard per stretch of time, learned also from jobs that run or were cut off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from analysis.errors import UsageError
from predictors.base import predictor
from predictors.boosted import BoostedTrees, Matrix, _matrix
from predictors.history import Failures
from predictors.skops_file import read_skops, write_skops

__all__ = ["BoostedSurvival"]

#: What the model is told by default: few columns, since every job is one row per stretch that it lived through.
SURVIVAL_FEATURES: Final = (
    *("num_gpus", "num_tasks", "num_cpus", "mem_gib", "time_limit_s", "hour", "weekday", "cluster", "vc"),
    *(
        f"{key}__{stat}"
        for key in ("user", "user_size", "user_size_limit", "user_family", "vc", "vc_size")
        for stat in ("last", "mean_2", "median_20", "min_20", "max_20")
    ),
    *("user__count", "user__failure_rate_20", "vc__count"),
)
#: Jobs that somebody or something else ended: they would have run on.
CUT_OFF: Final = ("cancelled", "timeout", "preempted", "node_fail")
#: Stretches of time, with as many ends in each; the last one is open.
NUM_STRETCHES: Final = 16
#: The last so many jobs teach.
MOST_JOBS: Final = 20_000
#: With fewer ends nothing is learned: the median of all is said.
LEAST_ENDS: Final = 50
#: No stretch is shorter, in log(1 + s), and no hazard lower.
LEAST: Final = 1e-3


@predictor("boosted_survival")
class BoostedSurvival(BoostedTrees):
    """Boosted piecewise-exponential survival: how long a job would run if nobody cut it off.

    Time, as log(1 + s), is parted into stretches with as many ends in each; in a stretch the hazard is constant, and
    its logarithm is a sum of trees of the job's features and the stretch, fitted by the Poisson likelihood of whether a
    job ended there, given how long it was at risk [1]_. A job that still runs, or that was cancelled, timed out,
    preempted or lost its node, was at risk until then and did not end: no label is made up for it. One that has run for
    less than the first stretch, a sixteenth of the ends, tells next to nothing and is left out.
    Where the time that a job occupies its GPUs is wanted, cut off or not, set ``cut_off="keep"``.

    Parameters
    ----------
    failures, features, time_zone, num_trees, learning_rate, max_leaves, random_state
        See ``BoostedTrees``; ``features`` are by default ``SURVIVAL_FEATURES``.
    cut_off : {"censor", "keep"}, default "censor"
        Whether jobs that were cut off count as lower bounds or as ended.

    Attributes
    ----------
    edges_ : list of float
        Begins of the stretches. [log(1 + s)]

    References
    ----------
    .. [1] M. Friedman, "Piecewise Exponential Models for Survival Data with Covariates", Annals of Statistics 1982,
       doi:10.1214/aos/1176345693; boosted trees as its regression are our choice.
    """

    levels = (0.1, 0.25, 0.5, 0.75, 0.9)
    model_file = "model.skops"

    def __init__(  # noqa: PLR0913
        self,
        *,
        failures: Failures = "exclude",
        cut_off: str = "censor",
        features: Sequence[str] | None = None,
        time_zone: str = "UTC",
        num_trees: int = 100,
        learning_rate: float = 0.1,
        max_leaves: int = 16,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            failures=failures,
            features=features,
            time_zone=time_zone,
            num_trees=num_trees,
            learning_rate=learning_rate,
            max_leaves=max_leaves,
            random_state=random_state,
        )
        self.cut_off = cut_off

    def _names(self) -> Sequence[str]:
        return SURVIVAL_FEATURES if self.features is None else self.features

    def _fit(self, known: pl.DataFrame, censored: pl.DataFrame) -> None:
        self._check()
        if self.cut_off not in {"censor", "keep"}:
            msg = f"{self.name}: cut_off is {self.cut_off!r}; expected 'censor' or 'keep'."
            raise UsageError(msg)
        was_cut = pl.col("status").cast(pl.String).is_in(CUT_OFF).fill_null(value=False) & (self.cut_off == "censor")
        known = known.with_columns(_s="duration_s", _ended=~was_cut)
        self.edges_ = _edges(np.log1p(known.filter("_ended")["_s"].to_numpy()))
        first = np.expm1(self.edges_[1]) if len(self.edges_) > 1 else 0.0
        running = censored.with_columns(_s="lower_bound_s", _ended=pl.lit(value=False)).filter(pl.col("_s") > first)
        rows = pl.concat([known, running]).tail(MOST_JOBS)
        log_s, ended = np.maximum(np.log1p(rows["_s"].to_numpy()), LEAST), rows["_ended"].to_numpy()
        matrix = self._training_matrix(rows, pl.Series(log_s))
        self.has_model_ = int(ended.sum()) >= LEAST_ENDS
        if self.has_model_:
            self._learn_hazards(matrix, log_s, ended)

    def _learn_hazards(self, matrix: Matrix, log_s: Matrix, ended: NDArray[np.bool_]) -> None:
        job, stretch, at_risk = _stretches(log_s, np.asarray(self.edges_))
        is_last = np.append(job[1:] != job[:-1], [True])
        event = is_last & ended[job]
        with threadpool_limits(limits=1, user_api="openmp"):
            self.model_ = HistGradientBoostingRegressor(
                loss="poisson",
                max_iter=self.num_trees,
                learning_rate=self.learning_rate,
                max_leaf_nodes=self.max_leaves,
                early_stopping=False,
                random_state=self.random_state,
            ).fit(np.column_stack([stretch, matrix[job]]), event / at_risk, sample_weight=at_risk)

    def _predict_quantiles(self, jobs: pl.DataFrame, past: pl.DataFrame) -> Matrix:
        if not self.has_model_:
            return np.full((jobs.height, len(self.levels)), self.fallback_s_)
        hazards = self._hazards(_matrix(self._table(jobs, past)))
        found = hazard_quantiles(hazards, edges=np.asarray(self.edges_), levels=np.asarray(self.levels))
        # scikit-learn's weighted mean differs in the last digit with where in memory its rows lie.
        found = np.expm1(np.round(found, 8))
        limit = jobs["time_limit_s"].fill_null(np.inf).to_numpy()
        return np.asarray(np.minimum(found, limit[:, None]))

    def _predict(self, jobs: pl.DataFrame, past: pl.DataFrame) -> Matrix:
        return np.asarray(self._predict_quantiles(jobs, past)[:, self.levels.index(0.5)])

    def _hazards(self, matrix: Matrix) -> Matrix:
        """Hazard of each stretch, shape (rows, stretches)."""
        with threadpool_limits(limits=1, user_api="openmp"):
            found = [
                self.model_.predict(np.column_stack([np.full(len(matrix), float(stretch)), matrix]))
                for stretch in range(len(self.edges_))
            ]
        return np.asarray(np.maximum(np.column_stack(found), LEAST))

    def _learn(self, matrix: Matrix, log_label: Matrix) -> None:
        """Not used: hazards are learned."""

    def _apply(self, matrix: Matrix) -> Matrix:
        """Not used: hazards are asked for."""
        return matrix

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"edges": self.edges_}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self.edges_ = [float(edge) for edge in state["edges"]]

    def _write_parts(self, folder: Path) -> None:
        if self.has_model_:
            write_skops(self.model_, folder / self.model_file)

    def _read_parts(self, folder: Path) -> None:
        if self.has_model_:
            self.model_ = read_skops(folder / self.model_file, num_features=len(self.features_) + 1)


def _edges(log_ends: NDArray[np.float64]) -> list[float]:
    """Begins of stretches with as many ends in each; 0 alone where nothing ended."""
    if not len(log_ends):
        return [0.0]
    inner = np.quantile(log_ends, np.arange(1, NUM_STRETCHES) / NUM_STRETCHES)
    edges = [0.0]
    for edge in inner:
        if edge >= edges[-1] + LEAST:
            edges.append(float(edge))
    return edges


def _stretches(
    log_s: NDArray[np.float64], edges: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Every stretch that a job lived through: job, number of the stretch, time at risk in it; ordered by both."""
    lived = np.searchsorted(edges, log_s, side="left")
    job = np.repeat(np.arange(len(log_s)), lived)
    stretch = np.arange(len(job)) - np.repeat(np.cumsum(lived) - lived, lived)
    stops = np.append(edges[1:], np.inf)
    return job, stretch.astype(np.float64), np.minimum(log_s[job], stops[stretch]) - edges[stretch]


def hazard_quantiles(
    hazards: NDArray[np.float64], *, edges: NDArray[np.float64], levels: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Quantiles of a piecewise-exponential law.

    Parameters
    ----------
    hazards : array of float, shape (rows, stretches)
        Above 0; the last stretch goes on for ever.
    edges : array of float, shape (stretches,)
        Where each begins; the first at 0.
    levels : array of float, shape (levels,)
        Between 0 and 1.

    Returns
    -------
    array of float, shape (rows, levels)
        Where the cumulated hazard reaches -log(1 - level), in the unit of the edges.

    Examples
    --------
    >>> hazard_quantiles(np.array([[0.0001, np.log(2)]]), edges=np.array([0.0, 10.0]), levels=np.array([0.5])).round(3)
    array([[10.999]])
    """
    steps = hazards[:, :-1] * np.diff(edges)
    begun = np.concatenate([np.zeros((len(hazards), 1)), np.cumsum(steps, axis=1)], axis=1)
    asked = -np.log1p(-levels)
    place = (begun[:, None, :] <= asked[None, :, None]).sum(axis=2) - 1
    left = asked[None, :] - np.take_along_axis(begun, place, axis=1)
    return np.asarray(edges[place] + left / np.take_along_axis(hazards, place, axis=1))
