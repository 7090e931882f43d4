"""Scores of predicted probabilities, each defined once; null where no row can be scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy import stats

__all__ = ["PROBABILITY_SCORES", "auc", "brier", "log_loss", "reliability", "score_probabilities"]

Floats = NDArray[np.float64]
#: No probability is taken as nearer to 0 or 1: a single wrong certainty would be an infinite loss.
LEAST: Final = 1e-6


def brier(predicted: Floats, true: Floats) -> Floats:
    """Squared error of each probability; its mean is the Brier score (G. W. Brier, Monthly Weather Review 1950)."""
    return np.asarray((predicted - true) ** 2)


def log_loss(predicted: Floats, true: Floats) -> Floats:
    """Negative logarithm of the probability of what came about, per job [nats]."""
    sure = np.clip(np.where(true > 0, predicted, 1 - predicted), LEAST, 1.0)
    return np.asarray(-np.log(sure))


#: What is averaged over jobs: name of the mean -> value per job, of probabilities and outcomes (0 or 1).
PROBABILITY_SCORES: Final[Mapping[str, Callable[[Floats, Floats], Floats]]] = {"brier": brier, "log_loss": log_loss}


def auc(predicted: Floats, true: Floats) -> float | None:
    """Probability that of two jobs the one to which it happened had the higher prediction; ties count half.

    Null if it happened to all or none. J. A. Hanley and B. J. McNeil, Radiology 1982,
    doi:10.1148/radiology.143.1.7063747: the rank sum of the ones, less its least value, over the number of pairs.
    """
    ones = int((true > 0).sum())
    if ones in {0, len(true)}:
        return None
    ranks = stats.rankdata(predicted)[true > 0].sum()
    return float((ranks - ones * (ones + 1) / 2) / (ones * (len(true) - ones)))


def score_probabilities(predicted: ArrayLike, true: ArrayLike) -> dict[str, float | None]:
    """Score predicted probabilities.

    Parameters
    ----------
    predicted, true : array of float, same length
        Probabilities and outcomes (0 or 1); a row in which either is NaN is not scored.

    Returns
    -------
    dict of str to float or None
        ``rate`` (share of ones), ``mean_predicted``, ``brier``, ``log_loss``, ``auc``; None where no row is scored.

    Examples
    --------
    >>> found = score_probabilities([0.5, 0.9, 0.1], [0.0, 1.0, 0.0])
    >>> round(found["brier"], 9), found["auc"]
    (0.09, 1.0)
    """
    guess, truth = np.asarray(predicted, dtype=np.float64), np.asarray(true, dtype=np.float64)
    usable = np.isfinite(guess) & np.isfinite(truth)
    guess, truth = guess[usable], truth[usable]
    if not len(truth):
        return dict.fromkeys(("rate", "mean_predicted", *PROBABILITY_SCORES, "auc"))
    means = {name: float(score(guess, truth).mean()) for name, score in PROBABILITY_SCORES.items()}
    return {"rate": float(truth.mean()), "mean_predicted": float(guess.mean()), **means, "auc": auc(guess, truth)}


def reliability(predicted: ArrayLike, true: ArrayLike, *, num_bins: int = 10) -> pl.DataFrame:
    """Calibration curve: how often it came about where about so much was predicted.

    Parameters
    ----------
    predicted, true : array of float, same length
        Probabilities and outcomes (0 or 1), no NaN.
    num_bins : int, default 10
        Bins of equal width from 0 to 1; empty ones are left out.

    Returns
    -------
    DataFrame, one row per bin
        ``bin`` (its lower end), ``num_jobs``, ``mean_predicted``, ``observed``.

    Examples
    --------
    >>> reliability([0.05, 0.07, 0.95], [0.0, 1.0, 1.0])["observed"].to_list()
    [0.5, 1.0]
    """
    guess = np.asarray(predicted, dtype=np.float64)
    place = np.clip(np.floor(guess * num_bins), 0, num_bins - 1) / num_bins
    rows = pl.DataFrame({"bin": place, "guess": guess, "true": np.asarray(true, dtype=np.float64)})
    told = rows.group_by("bin").agg(
        num_jobs=pl.len().cast(pl.Int64), mean_predicted=pl.col("guess").mean(), observed=pl.col("true").mean()
    )
    return told.sort("bin")
