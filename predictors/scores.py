"""Scores of predicted durations, each defined once; null where no row can be scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

__all__ = ["SCORES", "score_all"]

Numbers = NDArray[np.float64]


def _log_error(predicted: Numbers, true: Numbers) -> Numbers:
    return np.asarray(np.log1p(predicted) - np.log1p(true))


def log_mae(predicted: Numbers, true: Numbers) -> float:
    """Mean absolute error of log(1 + s), natural logarithm; 0.69 is a factor of 2."""
    return float(np.abs(_log_error(predicted, true)).mean())


def log_rmse(predicted: Numbers, true: Numbers) -> float:
    """Root mean squared error of log(1 + s)."""
    return float(np.sqrt((_log_error(predicted, true) ** 2).mean()))


def within_2x(predicted: Numbers, true: Numbers) -> float:
    """Share of jobs predicted as neither more than twice nor less than half their duration [0-1]."""
    return float(((predicted <= 2 * true) & (true <= 2 * predicted)).mean())


def pinball_50(predicted: Numbers, true: Numbers) -> float:
    """Pinball loss of the median on log(1 + s): half of ``log_mae``."""
    return pinball(np.log1p(predicted), np.log1p(true), quantile=0.5)


def mae_s(predicted: Numbers, true: Numbers) -> float:
    """Mean absolute error [s]; ruled by the longest jobs."""
    return float(np.abs(predicted - true).mean())


def spearman(predicted: Numbers, true: Numbers) -> float | None:
    """Rank correlation of predicted and true durations [-1 to 1]; null where either is constant."""
    if np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return None
    return float(stats.spearmanr(predicted, true).statistic)


def log_bias(predicted: Numbers, true: Numbers) -> float:
    """Mean of log(1 + predicted) - log(1 + true); below 0 = predicted too short."""
    return float(_log_error(predicted, true).mean())


def under_prediction(predicted: Numbers, true: Numbers) -> float:
    """Share of jobs that ran longer than predicted [0-1]."""
    return float((predicted < true).mean())


def r2_log(predicted: Numbers, true: Numbers) -> float | None:
    """Coefficient of determination of log(1 + s); null where the truth is constant."""
    if np.ptp(true) == 0:
        return None
    target = np.log1p(true)
    rest = (_log_error(predicted, true) ** 2).sum()
    return float(1 - rest / ((target - target.mean()) ** 2).sum())


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
    gap = np.asarray(true, dtype=np.float64) - np.asarray(predicted, dtype=np.float64)
    return float(np.maximum(quantile * gap, (quantile - 1) * gap).mean())


#: Every score by name, of predicted and true seconds.
SCORES: Final[Mapping[str, Callable[[Numbers, Numbers], float | None]]] = {
    "log_mae": log_mae,
    "log_rmse": log_rmse,
    "within_2x": within_2x,
    "pinball_50": pinball_50,
    "mae_s": mae_s,
    "spearman": spearman,
    "log_bias": log_bias,
    "under_prediction": under_prediction,
    "r2_log": r2_log,
}


def score_all(predicted: ArrayLike, true: ArrayLike) -> dict[str, float | None]:
    """Score predictions with every score.

    Parameters
    ----------
    predicted, true : array of float, same length
        Durations; a row in which either is NaN is not scored. [s]

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
    >>> score_all([], [])["log_mae"] is None
    True
    """
    guess, truth = np.asarray(predicted, dtype=np.float64), np.asarray(true, dtype=np.float64)
    if guess.shape != truth.shape:
        msg = f"scores: {guess.shape} predictions for {truth.shape} true durations; expected one for each."
        raise ValueError(msg)
    usable = np.isfinite(guess) & np.isfinite(truth)
    guess, truth = guess[usable], truth[usable]
    return {name: score(guess, truth) if len(truth) else None for name, score in SCORES.items()}
