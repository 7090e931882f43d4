"""Self-similarity of a series of counts: two estimates of its Hurst parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["aggregated_variance", "local_whittle", "without_cycle"]

Floats = NDArray[np.float64]

#: The lowest ``n ** BANDWIDTH`` frequencies enter the local Whittle estimate.
BANDWIDTH: Final = 0.65
#: Sizes of the blocks of the aggregated-variance method: this many, from the smallest to a twentieth of the series.
NUM_SIZES: Final = 30
SMALLEST_BLOCK: Final = 10
FEWEST_BLOCKS: Final = 20


def local_whittle(series: Floats) -> tuple[float, float]:
    """Hurst parameter by the local Whittle (Gaussian semiparametric) method, with its standard error.

    Parameters
    ----------
    series : array of float
        Equally spaced, not constant.

    Returns
    -------
    tuple of float
        Estimate between 0.01 and 1.49 (0.5 = no memory; 1 and more: not stationary), and standard error
        1 / (2 sqrt m), m = floor(n^0.65) being the number of low frequencies used.

    References
    ----------
    .. [1] P. M. Robinson, "Gaussian Semiparametric Estimation of Long Range Dependence", Annals of Statistics 23(5),
       1995, doi:10.1214/aos/1176324317.

    Examples
    --------
    >>> estimate, error = local_whittle(np.random.default_rng(1).normal(size=4096))
    >>> bool(abs(estimate - 0.5) < 3 * error)
    True
    """
    num_used = int(len(series) ** BANDWIDTH)
    place = np.arange(1, num_used + 1)
    power = np.abs(np.fft.rfft(series - series.mean())[1 : num_used + 1]) ** 2
    log_frequency = np.log(2 * np.pi * place / len(series))

    def loss(hurst: float) -> float:
        slope = 2 * hurst - 1
        return float(np.log(np.mean(power * np.exp(slope * log_frequency))) - slope * log_frequency.mean())

    return _lowest(loss, low=0.01, high=1.49), 1 / (2 * num_used**0.5)


def _lowest(loss: Callable[[float], float], *, low: float, high: float) -> float:
    """Place of the minimum of a convex function, by golden sections."""
    golden = (5**0.5 - 1) / 2
    while high - low > 1e-7:
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if loss(left) <= loss(right) else (left, high)
    return (low + high) / 2


def aggregated_variance(series: Floats) -> float | None:
    """Hurst parameter by the aggregated-variance method: how slowly the variance of block means falls.

    Parameters
    ----------
    series : array of float
        Equally spaced.

    Returns
    -------
    float or None
        1 + (slope of log variance against log block size) / 2, for 30 block sizes from 10 to a twentieth of the
        series; for long memory too low by some hundredths (its known bias). Null where the series is too short or a
        variance is 0.

    References
    ----------
    .. [1] M. S. Taqqu, V. Teverovsky and W. Willinger, "Estimators for Long-Range Dependence: An Empirical Study",
       Fractals 3(4), 1995, doi:10.1142/S0218348X95000692.
    """
    largest = len(series) // FEWEST_BLOCKS
    if largest < 4 * SMALLEST_BLOCK:
        return None
    sizes = np.unique(np.geomspace(SMALLEST_BLOCK, largest, NUM_SIZES).round().astype(np.int64))
    variances = np.array([np.var(series[: len(series) // m * m].reshape(-1, m).mean(axis=1)) for m in sizes])
    if (variances <= 0).any():
        return None
    return float(1 + np.polyfit(np.log(sizes), np.log(variances), 1)[0] / 2)


def without_cycle(series: Floats, *, period: int, step: int) -> Floats:
    """Take the mean course of a period out of a series.

    Parameters
    ----------
    series : array of float
        Equally spaced.
    period, step : int
        Length of the period (a week, say), and of the pieces that share a mean (an hour), in values of the series.

    Examples
    --------
    >>> without_cycle(np.array([1.0, 5.0, 3.0, 7.0]), period=2, step=1).tolist()
    [-1.0, -1.0, 1.0, 1.0]
    """
    place = np.arange(len(series)) % period // step
    means = np.bincount(place, weights=series) / np.maximum(np.bincount(place), 1)
    rest: Floats = series - means[place]
    return rest
