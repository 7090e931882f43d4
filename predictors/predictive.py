"""What is predicted of a duration: not one number but a distribution, and what it says of a job that still runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.errors import UsageError

__all__ = ["Predictive", "check_quantiles"]

Numbers = NDArray[np.float64]
#: The tail is a power law; its exponent's inverse is kept between these. At 1 the mean just becomes infinite.
TAIL_BOUNDS: Final = (0.1, 1.0)
#: The tail's slope is that from this level (or the one before the last) to the last.
TAIL_FROM: Final = 0.9
CHUNK: Final = 16_384


def check_quantiles(quantiles: ArrayLike) -> Numbers:
    """Return quantiles as an array; each must lie strictly between 0 and 1.

    Raises
    ------
    UsageError
        If one does not, or none is given.
    """
    found = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    if found.ndim != 1 or not len(found) or not ((found > 0) & (found < 1)).all():
        msg = f"quantiles: found {np.asarray(quantiles).tolist()!r}; expected numbers between 0 and 1, such as 0.9."
        raise UsageError(msg)
    return found


@dataclass(frozen=True)
class Predictive:
    """Predictive distributions of durations, one per row, as quantiles on the scale log(1 + s).

    Between two levels the quantile function is linear on that scale; below the lowest it falls linearly to 0; above
    the highest it goes on as a power law (Pareto) with the slope of the last levels, so that no duration is impossible:
    what is left of a job that outlived every quantile is a fixed share of what it has run, between 7 % and as long
    again. All questions (quantile, survival, remaining time) are answered from this one function.

    Attributes
    ----------
    levels : array of float, shape (levels,)
        Ascending, between 0 and 1.
    log_values : array of float, shape (rows, levels)
        Quantiles of log(1 + s), not descending along a row.
    limit_s : array of float, shape (rows,)
        No quantile is longer; infinite = no bound. [s]
    median_s : array of float, shape (rows,), optional
        What the quantile 0.5 is, to the last digit. [s]
    """

    levels: Numbers
    log_values: Numbers
    limit_s: Numbers
    median_s: Numbers | None = None

    def quantiles(self, quantiles: ArrayLike) -> Numbers:
        """Quantiles of the duration, shape (rows, quantiles), not crossing [s]."""
        asked = check_quantiles(quantiles)
        log_share = np.broadcast_to(np.log1p(-asked), (len(self.log_values), len(asked)))
        found = np.minimum(np.maximum(np.expm1(self._quantile_of(log_share)), 0.0), self.limit_s[:, None])
        if self.median_s is None:
            return found
        median = self.median_s[:, None]
        upper = np.where(asked > 0.5, np.maximum(found, median), median)
        return np.where(asked < 0.5, np.minimum(found, median), upper)

    def survival(self, times_s: ArrayLike) -> Numbers:
        """Probability that a job runs longer than each time (of all rows, or of each), shape (rows, times) [0-1]."""
        times = _check_seconds("times_s", times_s)
        times = np.broadcast_to(times, (len(self.log_values), times.shape[-1]))
        return np.where(times >= self.limit_s[:, None], 0.0, np.exp(self._log_survival(np.log1p(times))))

    def remaining(self, elapsed_s: ArrayLike, quantiles: ArrayLike) -> Numbers:
        """Quantiles of what is left of jobs that have run for so long, shape (rows, quantiles), at least 0 [s].

        With S the survival function, the q-quantile r of the remaining time solves S(elapsed + r) = (1 - q) S(elapsed).
        A job that has outrun its limit shows that the limit does not bind: for it there is none.
        """
        elapsed = _check_seconds("elapsed_s", elapsed_s)
        elapsed = np.broadcast_to(elapsed.ravel(), len(self.log_values))[:, None]
        log_share = self._log_survival(np.log1p(elapsed)) + np.log1p(-check_quantiles(quantiles))
        limit = np.where(elapsed < self.limit_s[:, None], self.limit_s[:, None], np.inf)
        return np.maximum(np.minimum(np.expm1(self._quantile_of(log_share)), limit) - elapsed, 0.0)

    def _tail(self) -> Numbers:
        """Slope of the quantiles' logarithm in the logarithm of the share that is left, per row."""
        if len(self.levels) < 2:
            return np.full(len(self.log_values), TAIL_BOUNDS[1])
        anchor = min(int(np.searchsorted(self.levels, TAIL_FROM)), len(self.levels) - 2)
        width = np.log1p(-self.levels[anchor]) - np.log1p(-self.levels[-1])
        slope = (self.log_values[:, -1] - self.log_values[:, anchor]) / width
        return np.asarray(np.clip(slope, *TAIL_BOUNDS))

    def _log_survival(self, log_times: Numbers) -> Numbers:
        """Logarithm of the share that runs longer, shape (rows, times)."""
        edges, values = self._anchored()
        tail = self._tail()
        found = np.empty(log_times.shape)
        for part in _chunks(len(values)):
            below = (values[part, None, :] <= log_times[part, :, None]).sum(axis=2)
            left = np.clip(below - 1, 0, len(edges) - 2)
            low = np.take_along_axis(values[part], left, axis=1)
            high = np.take_along_axis(values[part], left + 1, axis=1)
            step = np.where(high > low, high - low, 1.0)
            level = edges[left] + (edges[left + 1] - edges[left]) * np.clip((log_times[part] - low) / step, 0.0, 1.0)
            beyond = np.maximum(log_times[part] - values[part, -1:], 0.0) / tail[part, None]
            found[part] = np.where(below == len(edges), np.log1p(-edges[-1]) - beyond, np.log1p(-level))
        return found

    def _quantile_of(self, log_share: Numbers) -> Numbers:
        """Logarithm of 1 + the time that this share (its logarithm) of jobs outlives, shape (rows, shares)."""
        edges, values = self._anchored()
        level = -np.expm1(log_share)
        left = np.clip(np.searchsorted(edges, level, side="right") - 1, 0, len(edges) - 2)
        low = np.take_along_axis(values, left, axis=1)
        high = np.take_along_axis(values, left + 1, axis=1)
        within = low + (high - low) * (level - edges[left]) / (edges[left + 1] - edges[left])
        beyond = np.log1p(-edges[-1]) - log_share
        return np.where(beyond > 0, values[:, -1:] + self._tail()[:, None] * beyond, np.minimum(within, high))

    def _anchored(self) -> tuple[Numbers, Numbers]:
        """Levels and quantiles with the level 0, at which log(1 + s) is 0."""
        start = np.minimum(0.0, self.log_values[:, :1])
        return np.concatenate([[0.0], self.levels]), np.hstack([start, self.log_values])


def _check_seconds(name: str, values: ArrayLike) -> Numbers:
    found = np.atleast_1d(np.asarray(values, dtype=np.float64))
    wrong = ~(found >= 0)
    if wrong.any():
        msg = (
            f"{name}: {int(wrong.sum())} of {found.size} are negative or not a number, first {found[wrong][0]}; "
            "expected seconds of at least 0."
        )
        raise UsageError(msg)
    return found


def _chunks(num_rows: int) -> Iterator[slice]:
    return (slice(begin, begin + CHUNK) for begin in range(0, num_rows, CHUNK))
