"""Simple rules, hard to beat: medians of what ended before, Tsafrir's last two, the requested limit, one constant."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from predictors.asking import instants
from predictors.base import DurationPredictor, clip_to_limit, predictor
from predictors.history import history_features

__all__ = ["GlobalMedian", "LastTwo", "RequestedLimit", "UserMedian", "VcGpusMedian", "VcMedian"]


@predictor("global_median")
class GlobalMedian(DurationPredictor):
    """One constant, the median of the training durations: what a predictor that knows nothing says."""

    learns = False

    def _fit(self, known: pl.DataFrame, censored: pl.DataFrame) -> None:
        pass

    def _predict(self, jobs: pl.DataFrame, past: pl.DataFrame) -> NDArray[np.float64]:  # noqa: ARG002
        return np.full(jobs.height, self.fallback_s_)


class _BackOff(DurationPredictor):
    """A statistic of the first key that has ended jobs; then the next key's; then the training median.

    Never more than the requested limit. Censored rows do not teach: a job that still runs is in nobody's window of
    ended jobs.
    """

    learns = False
    keys: tuple[str, ...] = ()
    stat = "median_20"

    def _fit(self, known: pl.DataFrame, censored: pl.DataFrame) -> None:
        pass

    def _predict(self, jobs: pl.DataFrame, past: pl.DataFrame) -> NDArray[np.float64]:
        found = history_features(
            jobs, past=past, keys=self.keys, stats=[self.stat], failures=self.failures, at=instants(jobs)
        )
        first = found.select(pl.coalesce(*found.columns, pl.lit(self.fallback_s_))).to_series()
        return clip_to_limit(first.to_numpy(), jobs)


@predictor("user_median")
class UserMedian(_BackOff):
    """Median of the user's last 20 ended jobs; else of the VC's; else the training median."""

    keys = ("user", "vc")


@predictor("vc_median")
class VcMedian(_BackOff):
    """Median of the VC's last 20 ended jobs; else the training median."""

    keys = ("vc",)


@predictor("vc_gpus_median")
class VcGpusMedian(_BackOff):
    """Median of the last 20 ended jobs of the same VC and size; else of the VC; else the training median.

    Size is the number of GPUs (of CPUs for a CPU job).
    """

    keys = ("vc_size", "vc")


@predictor("last_two")
class LastTwo(_BackOff):
    """Mean of the user's last two ended jobs; else of the VC's; else the training median.

    References
    ----------
    .. [1] D. Tsafrir, Y. Etsion and D. G. Feitelson, "Backfilling Using System-Generated Predictions Rather than
       User Runtime Estimates", IEEE TPDS 2007, doi:10.1109/TPDS.2007.70606.
    """

    keys = ("user", "vc")
    stat = "mean_2"


@predictor("requested_limit")
class RequestedLimit(DurationPredictor):
    """The time limit that was asked for; the training median where there is none."""

    learns = False

    def _fit(self, known: pl.DataFrame, censored: pl.DataFrame) -> None:
        pass

    def _predict(self, jobs: pl.DataFrame, past: pl.DataFrame) -> NDArray[np.float64]:  # noqa: ARG002
        return jobs["time_limit_s"].fill_null(np.nan).to_numpy()
