"""Conformal calibration: how far a predictor's quantiles were off on jobs that had ended, added to what it says now.

A stream of *scores* (true log duration minus the predicted quantile) is ordered by the instant at which each job ended.
A prediction that is asked for at an instant sees only scores of jobs that had ended strictly before it: feedback is
delayed as in life. MAPIE (``TimeSeriesRegressor.update``) and crepes (``calibrate``) hold one calibration set at a time
and know no instants of feedback, so that a log of jobs that end in another order than they came would need one call of
Python per job; hence the one pass here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtri

from analysis import schema

__all__ = ["SCORES_TABLE", "Stream", "calibrated_log_quantiles"]

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
#: Jobs whose scores are looked at: the last so many that had ended.
WINDOW: Final = 2000
#: Levels of a calibrated distribution where the predictor has none of its own but a point.
POINT_LEVELS: Final = np.array([0.002, 0.005, *np.arange(1, 100) / 100, 0.995, 0.998])
#: So many made-up scores stand beside the true ones: a prior that gives way as jobs end.
NUM_PRIOR: Final = 10
#: Standard deviation of the prior's log error for a point, and of a predictor that has quantiles of its own.
PRIOR_SPREAD: Final = (2.0, 1.0)
#: Columns of stored scores: when the job ended, its true log(1 + s), and the predictor's quantiles of it.
SCORES_TABLE: Final = {"end_time": schema.TIME, "true_log": pl.Float64(), "raw_log": pl.List(pl.Float64())}


@dataclass(frozen=True)
class Stream:
    """Past predictions of jobs that have ended, in the order in which they ended.

    Attributes
    ----------
    end_us : array of int, shape (jobs,)
        Instant of the end, ascending. [microseconds]
    true_log : array of float, shape (jobs,)
        log(1 + s) of the duration.
    raw_log : array of float, shape (jobs, levels)
        The predictor's own quantiles of it, as it said them when it was asked.
    num_trained : int
        The first so many ended before the predictor was fitted: it knows them whenever it is asked.
    """

    end_us: Integers
    true_log: Numbers
    raw_log: Numbers
    num_trained: int = 0

    @classmethod
    def of_table(cls, table: pl.DataFrame, *, num_levels: int) -> Stream:
        """Stream of stored scores (``SCORES_TABLE``), all of which the predictor was fitted with."""
        raw = table["raw_log"].explode(empty_as_null=False, keep_nulls=False).to_numpy().reshape(-1, num_levels)
        end = table["end_time"].dt.epoch("us").to_numpy()
        return cls(end_us=end, true_log=table["true_log"].to_numpy(), raw_log=raw, num_trained=table.height)

    def to_table(self) -> pl.DataFrame:
        """Scores as a table to be stored."""
        ends = pl.Series(self.end_us, dtype=pl.Int64).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
        raw = pl.Series(self.raw_log.tolist(), dtype=pl.List(pl.Float64))
        return pl.DataFrame({"end_time": ends, "true_log": self.true_log, "raw_log": raw}, schema=SCORES_TABLE)

    def joined(self, later: Stream) -> Stream:
        """Both streams as one; ``later`` holds jobs that ended after all of these."""
        return Stream(
            end_us=np.concatenate([self.end_us, later.end_us]),
            true_log=np.concatenate([self.true_log, later.true_log]),
            raw_log=np.vstack([self.raw_log, later.raw_log]),
            num_trained=self.num_trained,
        )

    def known_at(self, asked_us: Integers) -> Integers:
        """How many scores are known at each instant: those of jobs that ended strictly before it."""
        return np.maximum(np.searchsorted(self.end_us, asked_us, side="left"), self.num_trained)


def calibrated_log_quantiles(
    raw_log: Numbers, *, levels: Numbers, asked_us: Integers, stream: Stream, window: int = WINDOW
) -> tuple[Numbers, Numbers]:
    """Calibrate quantiles with the scores of the last jobs that had ended.

    The quantile of level a is moved by the a-quantile of (true - predicted quantile of level a) over the window:
    conformalized quantile regression, one side at a time. A point is the quantile of every level.

    Parameters
    ----------
    raw_log : array of float, shape (rows, levels)
        The predictor's quantiles of log(1 + s); one column: a point.
    levels : array of float, shape (levels,)
        Of the columns; of a point [0.5].
    asked_us : array of int, shape (rows,)
        Instant of asking. [microseconds]
    stream : Stream
        Past predictions with their outcome.
    window : int, default 2000
        Look at the last so many ended jobs.

    Returns
    -------
    levels : array of float, shape (out,)
        ``levels``; of a point ``POINT_LEVELS``.
    log_quantiles : array of float, shape (rows, out)
        Not descending along a row.

    References
    ----------
    .. [1] Y. Romano, E. Patterson and E. Candès, "Conformalized Quantile Regression", NeurIPS 2019, arXiv:1905.03222.
    .. [2] C. Xu and Y. Xie, "Conformal prediction interval for dynamic time-series", ICML 2021, arXiv:2010.09107
       (a window of recent scores).
    """
    stops = stream.known_at(asked_us)
    order = np.argsort(stops, kind="stable")
    is_point = len(levels) == 1
    out = POINT_LEVELS if is_point else levels
    moved = np.empty((len(raw_log), len(out)))
    z = ndtri((np.arange(NUM_PRIOR) + 0.5) / NUM_PRIOR)
    for place in range(1 if is_point else len(levels)):
        asked = out if is_point else levels[place : place + 1]
        # The prior of a point is a normal error; that of a quantile says that it is right.
        prior = PRIOR_SPREAD[0] * z if is_point else PRIOR_SPREAD[1] * (z - ndtri(levels[place]))
        scores = stream.true_log - stream.raw_log[:, place]
        shift = _rolling_quantiles(scores, stops[order], asked, prior, window)
        columns = slice(None) if is_point else slice(place, place + 1)
        moved[order, columns] = raw_log[order, place : place + 1] + shift
    # Sorted, crossing quantiles are never further from the truth (Chernozhukov et al., doi:10.3982/ECTA7880).
    return out, np.sort(np.maximum(moved, 0.0), axis=1)


@njit(cache=True)
def _rolling_quantiles(scores: Numbers, stops: Integers, levels: Numbers, prior: Numbers, window: int) -> Numbers:
    """Quantiles of scores[stop - window : stop] and the prior, for ascending stops; shape (stops, levels).

    With n values the quantile of level a lies at place (n + 1) a: for an upper bound that is the conformal quantile.
    """
    found = np.empty((len(stops), len(levels)))
    held = np.empty(window + len(prior) + 1)
    size = len(prior)
    held[:size] = np.sort(prior)
    first, stop = 0, 0
    for row in range(len(stops)):
        if row and stops[row] == stops[row - 1]:
            found[row] = found[row - 1]
            continue
        if stops[row] - window > stop:  # the whole window is new
            size = len(prior)
            held[:size] = np.sort(prior)
            first = stop = stops[row] - window
        while stop < stops[row]:
            place = np.searchsorted(held[:size], scores[stop])
            for k in range(size, place, -1):
                held[k] = held[k - 1]
            held[place] = scores[stop]
            size += 1
            stop += 1
            if stop - first > window:
                place = np.searchsorted(held[:size], scores[first])
                for k in range(place, size - 1):
                    held[k] = held[k + 1]
                size -= 1
                first += 1
        for k in range(len(levels)):
            at = min(max((size + 1) * levels[k] - 1, 0.0), size - 1.0)
            low = int(at)
            high = min(low + 1, size - 1)
            found[row, k] = held[low] + (held[high] - held[low]) * (at - low)
    return found
