"""An additive model that can be read: a curve per feature, whose heights add up (extra ``additive``)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import polars as pl

from analysis.errors import HindcastError, UnknownNameError
from predictors.base import predictor
from predictors.boosted import BoostedTrees, Matrix
from predictors.history import Failures

__all__ = ["Additive"]

#: What the model is told by default: few columns, each of which a reader understands.
ADDITIVE_FEATURES: Final = (
    *("num_gpus", "num_cpus", "mem_gib", "time_limit_s", "hour", "weekday", "vc"),
    *("user__median_20", "user__last", "user_size_limit__median_20", "user_size_limit__mean_2", "user_size__median_20"),
    *("user_family__median_20", "vc__median_20", "vc_size__median_20", "user__count", "user__failure_rate_20"),
)
#: Values of a feature are told apart by so many cuts at most.
MOST_BINS: Final = 256


@predictor("additive")
class Additive(BoostedTrees):
    """Explainable boosting machine (GA2M without pairs): log(1 + s) = base + a curve of each feature [1]_.

    Nothing is hidden: ``curve`` gives the curve of a feature, and a prediction is the sum of its heights. Fitting needs
    the extra ``additive``; predicting and loading need nothing more. The loss is the squared error of log(1 + s), since
    the package has no absolute one: a prediction is a mean of logarithms, not a median.

    Parameters
    ----------
    failures, features, time_zone, learning_rate, random_state
        See ``BoostedTrees``; ``features`` are by default ``ADDITIVE_FEATURES``.
    num_trees : int, default 300
        Rounds of boosting; in each every feature gets its turn.

    References
    ----------
    .. [1] Y. Lou, R. Caruana, J. Gehrke and G. Hooker, "Accurate Intelligible Models with Pairwise Interactions", KDD
       2013, doi:10.1145/2487575.2487579; used for durations of GPU jobs by Q. Hu et al., "Lucid", ASPLOS 2023,
       doi:10.1145/3575693.3575705.
    """

    def __init__(
        self,
        *,
        failures: Failures = "exclude",
        features: Sequence[str] | None = None,
        time_zone: str = "UTC",
        num_trees: int = 300,
        learning_rate: float = 0.05,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            failures=failures,
            features=features,
            time_zone=time_zone,
            num_trees=num_trees,
            learning_rate=learning_rate,
            random_state=random_state,
        )

    def _names(self) -> Sequence[str]:
        return ADDITIVE_FEATURES if self.features is None else self.features

    def _learn(self, matrix: Matrix, log_label: Matrix) -> None:
        model = _glassbox().ExplainableBoostingRegressor(
            interactions=0,
            outer_bags=1,
            validation_size=0,  # its validation rows would be drawn at random from the past and the future
            max_rounds=self.num_trees,
            max_bins=MOST_BINS,
            learning_rate=self.learning_rate,
            greedy_ratio=0,  # every feature gets its turn
            smoothing_rounds=0,  # so few rounds would all go to random cuts
            feature_types=["continuous"] * matrix.shape[1],
            n_jobs=1,
            random_state=self.random_state,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Missing values detected")  # ``curve`` shows them
            # A logarithm's last digit differs with where in memory the rows lie.
            model.fit(matrix, np.round(log_label, 10))
        self.base_ = round(float(np.ravel(model.intercept_)[0]), 5)
        self.cuts_ = [[float(cut) for cut in bins[0]] for bins in model.bins_]
        # So are sums inside of interpret: by some 1e-10, which a rounding to 1e-5 hides.
        self.heights_ = [[round(float(height), 5) for height in heights] for heights in model.term_scores_]

    def _apply(self, matrix: Matrix) -> Matrix:
        total = np.full(len(matrix), self.base_)
        for place in range(len(self.features_)):
            total += self._height(place, matrix[:, place])
        return total

    def _height(self, place: int, values: Matrix) -> Matrix:
        """Height of a feature's curve at values; the first of the heights is that of a missing value."""
        inside = np.searchsorted(self.cuts_[place], values, side="right") + 1
        return np.asarray(self.heights_[place])[np.where(np.isnan(values), 0, inside)]

    def curve(self, feature: str) -> pl.DataFrame:
        """Give the curve of a feature: what it adds to log(1 + s).

        Parameters
        ----------
        feature : str
            One of ``features_``.

        Returns
        -------
        DataFrame, one row per stretch of values
            ``from`` and ``to`` (null = open; both null: where the value is missing), and ``adds`` [log(1 + s)].

        Raises
        ------
        UnknownNameError
            If the model has no such feature.
        """
        if not self.has_model_ or feature not in self.features_:
            raise UnknownNameError(kind="feature of the model", found=feature, known=self.features_)
        place = self.features_.index(feature)
        cuts = self.cuts_[place]
        columns = {
            "from": [None, None, *cuts],
            "to": [None, *cuts, None],
            "adds": self.heights_[place][: len(cuts) + 2],
        }
        return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64))

    def _state(self) -> dict[str, Any]:
        if not self.has_model_:
            return super()._state()
        return super()._state() | {"base": self.base_, "cuts": self.cuts_, "heights": self.heights_}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        if not self.has_model_:
            return
        self.base_ = float(state["base"])
        self.cuts_ = [[float(cut) for cut in cuts] for cuts in state["cuts"]]
        self.heights_ = [[round(float(height), 5) for height in heights] for heights in state["heights"]]
        whole = len(self.cuts_) == len(self.heights_) == len(self.features_)
        if not whole or any(len(h) < len(c) + 2 for c, h in zip(self.cuts_, self.heights_, strict=True)):
            msg = "curves that do not fit the features"
            raise ValueError(msg)

    def _part_names(self) -> list[str]:
        return []

    def _write_parts(self, folder: Path) -> None:
        """The curves are in the manifest."""

    def _read_parts(self, folder: Path) -> None:
        """The curves are in the manifest."""


def _glassbox() -> ModuleType:
    try:
        from interpret import glassbox
    except ImportError as error:
        msg = (
            "additive: the package interpret-core is not installed; install it with "
            "\"pip install 'gpu-hindcast[additive]'\", or use the predictor 'boosted', which needs nothing more."
        )
        raise HindcastError(msg) from error
    return glassbox  # type: ignore[no-any-return]
