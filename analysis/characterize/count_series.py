"""Series of counts of arrivals: gaps, windows of any length, autocorrelation."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Ints", "Windows", "autocorrelations", "gap_statistics"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: An index of dispersion needs this many windows.
MIN_WINDOWS: Final = 20


def gap_statistics(second: Ints, count: Ints) -> tuple[float, float | None]:
    """Mean gap between arrivals [s] and its coefficient of variation; jobs of one second have gaps of 0.

    Examples
    --------
    >>> gap_statistics(np.array([0, 10, 40]), np.array([1, 1, 1]))  # gaps 10 and 30
    (20.0, 0.5)
    """
    num_gaps = int(count.sum()) - 1
    gaps = np.diff(second).astype(np.float64)
    mean = float(gaps.sum()) / num_gaps
    if mean <= 0:
        return mean, None
    variance = float(np.square(gaps).sum()) / num_gaps - mean**2
    return mean, float(np.sqrt(max(variance, 0.0)) / mean)


class Windows:
    """Counts of arrivals in windows from the first arrival on, at any length that a shorter one divides.

    Parameters
    ----------
    second, count : array of int
        Ascending seconds with an arrival, and how many.
    """

    def __init__(self, second: Ints, count: Ints) -> None:
        self.length_s = int(second[-1] - second[0]) + 1
        self._known = {1: (second - second[0], count)}

    def held(self, window_s: int) -> tuple[Ints, Ints, int]:
        """Windows with an arrival, their counts, and the number of whole windows; the last one may be a part of one."""
        if window_s not in self._known:
            finer = max(width for width in self._known if window_s % width == 0)
            place, count = self._known[finer]
            place = place // (window_s // finer)
            starts = np.flatnonzero(np.diff(place, prepend=-1))
            self._known[window_s] = (place[starts], np.add.reduceat(count, starts))
        return *self._known[window_s], self.length_s // window_s

    def dispersion(self, window_s: int) -> dict[str, Any] | None:
        """Index of dispersion of the counts in whole windows; null with too few windows.

        Variance (of a sample) over mean: 1 for a Poisson process at every length, growing with it for a bursty one.
        """
        place, count, num_windows = self.held(window_s)
        if num_windows < MIN_WINDOWS:
            return None
        # Empty windows add nothing to the sums, so that only the others are made.
        counts = count[place < num_windows].astype(np.float64)
        mean = float(counts.sum()) / num_windows
        variance = (float(np.square(counts).sum()) - num_windows * mean**2) / (num_windows - 1)
        return {"window_s": float(window_s), "num_windows": num_windows, "mean_jobs": mean, "idc": variance / mean}

    def series(self, window_s: int) -> Floats:
        """Counts in whole windows, empty ones included."""
        place, count, num_windows = self.held(window_s)
        whole = place < num_windows
        series = np.zeros(num_windows)
        series[place[whole]] = count[whole]
        return series


def autocorrelations(series: Floats, largest: int) -> Floats:
    """Autocorrelation at lags 0 to ``largest`` (the usual estimate, divided by n); empty for a constant series.

    References
    ----------
    .. [1] G. E. P. Box and G. M. Jenkins, "Time Series Analysis: Forecasting and Control", 1976, section 2.1.5.

    Examples
    --------
    >>> autocorrelations(np.array([1.0, -1.0, 1.0, -1.0]), 1).round(9).tolist()
    [1.0, -0.75]
    """
    centred = series - series.mean() if len(series) else series
    if not np.any(centred):
        return np.empty(0)
    size = 1 << (2 * len(series) - 1).bit_length()
    products = np.fft.irfft(np.abs(np.fft.rfft(centred, size)) ** 2, size)[: largest + 1]
    result: Floats = products / products[0]
    return result
