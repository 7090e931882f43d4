"""Scores of predicted durations, each defined once; null where no row can be scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

__all__ = ["INTERVAL_SCORES", "ROW_SCORES", "SCORES", "pinball", "score_all", "score_interval"]

Numbers = NDArray[np.float64]


def log_error(predicted: Numbers, true: Numbers) -> Numbers:
    """Error of log(1 + s), natural logarithm, per job; 0.69 is a factor of 2; below 0 = predicted too short."""
    return np.asarray(np.log1p(predicted) - np.log1p(true))


def abs_log_error(predicted: Numbers, true: Numbers) -> Numbers:
    """Absolute error of log(1 + s) per job; its mean is ``log_mae``."""
    return np.abs(log_error(predicted, true))


def is_within_2x(predicted: Numbers, true: Numbers) -> Numbers:
    """Whether a job was predicted as neither more than twice nor less than half its duration [0 or 1]."""
    return ((predicted <= 2 * true) & (true <= 2 * predicted)).astype(np.float64)


def min_max_ratio(predicted: Numbers, true: Numbers) -> Numbers:
    """Accuracy of each job: the smaller of prediction and duration over the larger; 1 where both are 0 [0-1].

    D. Tsafrir, Y. Etsion and D. G. Feitelson, IEEE TPDS 2007, doi:10.1109/TPDS.2007.70606, section 3.
    """
    high = np.maximum(predicted, true)
    return np.divide(np.minimum(predicted, true), high, out=np.ones_like(high), where=high > 0)


def is_under(predicted: Numbers, true: Numbers) -> Numbers:
    """Whether a job ran longer than predicted [0 or 1]."""
    return (predicted < true).astype(np.float64)


def pinball_losses(predicted: Numbers, true: Numbers, *, quantile: float) -> Numbers:
    """Pinball loss per job, in the unit of the values: max(q (y - p), (q - 1) (y - p))."""
    gap = true - predicted
    return np.maximum(quantile * gap, (quantile - 1) * gap)


def pinball(predicted: ArrayLike, true: ArrayLike, *, quantile: float) -> float:
    """Mean pinball loss of predicted quantiles, in the unit of the values.

    Parameters
    ----------
    predicted, true : array of float, same length
        In seconds or in log(1 + s).
    quantile : float
        Between 0 and 1.

    Returns
    -------
    float
        Mean of max(q (y - p), (q - 1) (y - p)).

    References
    ----------
    .. [1] R. Koenker and G. Bassett, "Regression Quantiles", Econometrica 1978, doi:10.2307/1913643.

    Examples
    --------
    >>> round(pinball([20, 20, 20, 20], [5, 15, 20, 25], quantile=0.9), 9)
    1.625
    """
    guess, truth = np.asarray(predicted, dtype=np.float64), np.asarray(true, dtype=np.float64)
    return float(pinball_losses(guess, truth, quantile=quantile).mean())


#: What is averaged over jobs: name of the mean -> value per job, of predicted and true seconds.
ROW_SCORES: Final[Mapping[str, Callable[[Numbers, Numbers], Numbers]]] = {
    "log_mae": abs_log_error,
    "within_2x": is_within_2x,
    "min_max_ratio": min_max_ratio,
    "pinball_50": lambda predicted, true: abs_log_error(predicted, true) / 2,
    "mae_s": lambda predicted, true: np.abs(predicted - true),
    "log_bias": log_error,
    "under_prediction": is_under,
}


def log_rmse(predicted: Numbers, true: Numbers) -> float:
    """Root mean squared error of log(1 + s)."""
    return float(np.sqrt((log_error(predicted, true) ** 2).mean()))


def spearman(predicted: Numbers, true: Numbers) -> float | None:
    """Rank correlation of predicted and true durations [-1 to 1]; null where either is constant."""
    if np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return None
    return float(stats.spearmanr(predicted, true).statistic)


def r2_log(predicted: Numbers, true: Numbers) -> float | None:
    """Coefficient of determination of log(1 + s); null where the truth is constant."""
    if np.ptp(true) == 0:
        return None
    target = np.log1p(true)
    rest = (log_error(predicted, true) ** 2).sum()
    return float(1 - rest / ((target - target.mean()) ** 2).sum())


#: What looks at all jobs together: not a mean over jobs.
SET_SCORES: Final[Mapping[str, Callable[[Numbers, Numbers], float | None]]] = {
    "log_rmse": log_rmse,
    "spearman": spearman,
    "r2_log": r2_log,
}
#: Names of all scores of a point prediction, in the order of the tables.
SCORES: Final = (
    "log_mae",
    "log_rmse",
    "within_2x",
    "min_max_ratio",
    "pinball_50",
    "mae_s",
    "spearman",
    "log_bias",
    "under_prediction",
    "r2_log",
)


def score_all(predicted: ArrayLike, true: ArrayLike, *, weights: ArrayLike | None = None) -> dict[str, float | None]:
    """Score predictions with every score.

    Parameters
    ----------
    predicted, true : array of float, same length
        Durations; a row in which either is NaN is not scored. [s]
    weights : array of float, same length, optional
        Weight of each job in the means; then scores that are no means over jobs are None.

    Returns
    -------
    dict of str to float or None
        Every score by name; None where no row could be scored.

    Raises
    ------
    ValueError
        If the lengths differ.

    Examples
    --------
    >>> score_all([99.0, 9.0], [99.0, 9.0])["within_2x"]
    1.0
    >>> round(score_all([10.0, 9.0], [20.0, 9.0], weights=[1.0, 3.0])["min_max_ratio"], 3)
    0.875
    >>> score_all([], [])["log_mae"] is None
    True
    """
    guess, truth, weight = _usable(predicted, true, weights=weights)
    if not len(truth):
        return dict.fromkeys(SCORES)
    found: dict[str, float | None] = {
        name: float(np.average(score(guess, truth), weights=weight)) for name, score in ROW_SCORES.items()
    }
    found |= {name: None if weights is not None else score(guess, truth) for name, score in SET_SCORES.items()}
    return {name: found[name] for name in SCORES}


def _usable(predicted: ArrayLike, true: ArrayLike, *, weights: ArrayLike | None) -> tuple[Numbers, Numbers, Numbers]:
    guess, truth = np.asarray(predicted, dtype=np.float64), np.asarray(true, dtype=np.float64)
    weight = np.ones(truth.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    if guess.shape != truth.shape or weight.shape != truth.shape:
        msg = f"scores: {guess.shape} predictions for {truth.shape} true durations; expected one for each."
        raise ValueError(msg)
    usable = np.isfinite(guess) & np.isfinite(truth)
    return guess[usable], truth[usable], weight[usable]


def is_covered(low: Numbers, high: Numbers, true: Numbers, *, quantiles: tuple[float, float]) -> Numbers:  # noqa: ARG001
    """Whether a duration lies in its interval, both ends included [0 or 1]."""
    return ((low <= true) & (true <= high)).astype(np.float64)


def log_width(low: Numbers, high: Numbers, true: Numbers, *, quantiles: tuple[float, float]) -> Numbers:  # noqa: ARG001
    """Width of an interval on log(1 + s): the logarithm of the factor between its ends."""
    return np.asarray(np.log1p(high) - np.log1p(low))


def interval_score(low: Numbers, high: Numbers, true: Numbers, *, quantiles: tuple[float, float]) -> Numbers:
    """Width plus the penalty of a miss, on log(1 + s); smaller is better, and only the true quantiles are best.

    T. Gneiting and A. E. Raftery, JASA 2007, doi:10.1198/016214506000001437, equation 43, for quantiles a and 1 - b:
    width + (low - y)+ / a + (y - high)+ / b.
    """
    bottom, top, truth = np.log1p(low), np.log1p(high), np.log1p(true)
    below, above = np.maximum(bottom - truth, 0) / quantiles[0], np.maximum(truth - top, 0) / (1 - quantiles[1])
    return np.asarray(top - bottom + below + above)


def pinball_ends(low: Numbers, high: Numbers, true: Numbers, *, quantiles: tuple[float, float]) -> Numbers:
    """Sum of the pinball losses of both ends on log(1 + s)."""
    truth = np.log1p(true)
    ends = zip((low, high), quantiles, strict=True)
    return np.asarray(sum(pinball_losses(np.log1p(end), truth, quantile=quantile) for end, quantile in ends))


#: What is averaged over jobs of an interval: name of the mean -> value per job.
INTERVAL_SCORES: Final[Mapping[str, Callable[..., Numbers]]] = {
    "coverage": is_covered,
    "interval_width": log_width,
    "interval_score": interval_score,
    "pinball_ends": pinball_ends,
}


def score_interval(
    low: ArrayLike,
    high: ArrayLike,
    true: ArrayLike,
    *,
    quantiles: tuple[float, float] = (0.1, 0.9),
    weights: ArrayLike | None = None,
) -> dict[str, float | None]:
    """Score predicted intervals with every score of ``INTERVAL_SCORES``.

    Parameters
    ----------
    low, high, true : array of float, same length
        Ends of the intervals and durations; a row in which one is NaN is not scored. [s]
    quantiles : tuple of float, default (0.1, 0.9)
        Which quantiles the ends are.
    weights : array of float, same length, optional
        Weight of each job in the means.

    Returns
    -------
    dict of str to float or None
        Every score by name; None where no row could be scored.

    Raises
    ------
    ValueError
        If the lengths differ.

    Examples
    --------
    >>> score_interval([0.0, 0.0], [99.0, 99.0], [9.0, 999.0])["coverage"]
    0.5
    """
    bottom, truth, weight = _usable(low, np.asarray(true, dtype=np.float64) + 0 * np.asarray(high), weights=weights)
    top, _, _ = _usable(high, np.asarray(true, dtype=np.float64) + 0 * np.asarray(low), weights=weights)
    if not len(truth):
        return dict.fromkeys(INTERVAL_SCORES)
    return {
        name: float(np.average(score(bottom, top, truth, quantiles=quantiles), weights=weight))
        for name, score in INTERVAL_SCORES.items()
    }
