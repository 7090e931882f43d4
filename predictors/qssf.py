"""QSSF's estimator: what the user's jobs of a similar name ran for, merged with boosted trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.errors import UsageError
from predictors.asking import instants
from predictors.base import clip_to_limit, predictor
from predictors.boosted import Boosted, Matrix
from predictors.history import Failures, history_features, known_jobs

__all__ = ["Qssf"]

#: What the trees are told: request, user, VC and time, as published, and the history of similar names in place of an
#: encoded name (a code of a name that was never seen says nothing).
QSSF_FEATURES: Final = (
    *("num_gpus", "num_cpus", "num_tasks", "hour", "weekday", "user", "vc"),
    *("user_similar__mean_20", "user_similar__ewma", "user_similar__count"),
)
#: The rolling estimate: the first of these that has ended jobs.
ROLLING: Final = ("user_similar__ewma", "user_size__mean_20", "user__mean_20", "vc_size__mean_20", "all__mean_20")


@predictor("qssf")
class Qssf(Boosted):
    """The estimator of Quasi-Shortest-Service-First scheduling [1]_: a rolling estimate and boosted trees, merged.

    The rolling estimate is a moving average over the user's ended jobs of a similar name, which favours the newest; for
    a name like none before, the mean of the user's jobs of that size; for a new user, the mean of the VC's jobs of that
    size, and else of all. The prediction, in seconds, is ``weight`` times the rolling estimate plus (1 - ``weight``)
    times that of the trees. QSSF then sorts by GPUs times this. Names are similar as in ``predictors.families``. How
    the newest are favoured (a weight of 0.2 of the newest, ``ewma``), the order of the fallbacks and the weight of 0.5
    are ours: this follows the paper's description and was not compared with its code or its numbers.

    Parameters
    ----------
    failures, features, time_zone, num_trees, learning_rate, max_leaves, random_state
        See ``BoostedTrees``; ``features`` are by default ``QSSF_FEATURES``.
    weight : float, default 0.5
        Of the rolling estimate, 0 to 1.

    References
    ----------
    .. [1] Q. Hu, P. Sun, S. Yan, Y. Wen and T. Zhang, "Characterization and Prediction of Deep Learning Workloads in
       Large-Scale GPU Datacenters", SC 2021, doi:10.1145/3458817.3476223.
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        failures: Failures = "exclude",
        weight: float = 0.5,
        features: Sequence[str] | None = None,
        time_zone: str = "UTC",
        num_trees: int = 200,
        learning_rate: float = 0.1,
        max_leaves: int = 31,
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
        self.weight = weight

    def _past_of(self, log: Any) -> pl.DataFrame:
        return known_jobs(log)  # clusters of similar names need every name that was submitted

    def _names(self) -> Sequence[str]:
        return QSSF_FEATURES if self.features is None else self.features

    def _fit(self, known: pl.DataFrame, censored: pl.DataFrame) -> None:
        if not 0 <= self.weight <= 1:
            msg = f"{self.name}: weight is {self.weight!r}; expected a number from 0 to 1."
            raise UsageError(msg)
        super()._fit(known, censored)

    def _predict(self, jobs: pl.DataFrame, past: pl.DataFrame) -> Matrix:
        rolling = np.maximum(self.rolling_estimate(jobs, past), 0.0)
        merged = self.weight * rolling + (1 - self.weight) * super()._predict(jobs, past)
        return clip_to_limit(merged, jobs)

    def rolling_estimate(self, jobs: pl.DataFrame, past: pl.DataFrame) -> NDArray[np.float64]:
        """The rolling estimate of each job as of ``asking.instants(jobs)`` [s]."""
        pairs = [name.split("__") for name in ROLLING]
        keys, stats = [key for key, _ in pairs], list(dict.fromkeys(stat for _, stat in pairs))
        found = history_features(jobs, past=past, keys=keys, stats=stats, failures=self.failures, at=instants(jobs))
        return found.select(pl.coalesce(*ROLLING, pl.lit(self.fallback_s_))).to_series().to_numpy()
