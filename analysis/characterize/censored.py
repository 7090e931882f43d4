"""Durations of which some are only lower bounds: how they are held, their Kaplan-Meier curve, and maximum likelihood.

A job that was still running when the log ended adds its survival function to the likelihood, not its density: leaving
it out, or taking its time so far for its duration, would make durations look shorter than they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from analysis.characterize.families import Family

__all__ = ["Fit", "Floats", "Sample", "fit", "kaplan_meier", "ks_distance"]

Floats = NDArray[np.float64]

#: A sample of more distinct values is put into bins.
MAX_DISTINCT: Final = 20_000
#: Relative width of those bins.
BIN_WIDTH: Final = 1e-3
#: Step of the numerical derivatives; parameters are logarithms or logits, so their scale is 1.
STEP: Final = 1e-4
MAX_ITERATIONS: Final = 100


@dataclass(frozen=True)
class Sample:
    """Values with how often they occur, ascending.

    Attributes
    ----------
    value : array of float
        Distinct positive values, ascending.
    ended, censored : array of float, same length
        How many jobs had exactly this value, and how many had at least this value.
    """

    value: Floats
    ended: Floats
    censored: Floats

    @classmethod
    def of(cls, value: Floats, *, ended: Floats, censored: Floats, floor: float = 0.0) -> Sample:
        """Gather equal values; smaller ones than ``floor`` count as the floor; many distinct ones go into bins.

        Values may come in any order. More than ``MAX_DISTINCT`` distinct values are put into bins of relative width
        ``BIN_WIDTH``, each at the mean of its values.

        Examples
        --------
        >>> two, none = np.array([1.0, 1.0]), np.zeros(2)
        >>> Sample.of(np.array([5.0, 0.0]), ended=two, censored=none, floor=1.0).value.tolist()
        [1.0, 5.0]
        """
        value = np.maximum(np.asarray(value, dtype=np.float64), floor)
        key = value
        distinct, place = np.unique(value, return_inverse=True)
        if len(distinct) > MAX_DISTINCT:
            key = np.floor(np.log(value) / BIN_WIDTH)
            distinct, place = np.unique(key, return_inverse=True)
        counts: list[Floats] = [
            np.bincount(place, weights=part, minlength=len(distinct)).astype(np.float64) for part in (ended, censored)
        ]
        if key is not value:
            total = np.bincount(place, weights=value * (ended + censored), minlength=len(distinct))
            distinct = total / np.maximum(counts[0] + counts[1], 1e-300)
        held = counts[0] + counts[1] > 0
        return cls(distinct[held], counts[0][held], counts[1][held])

    @property
    def num_jobs(self) -> float:
        """Jobs in all."""
        return float(self.ended.sum() + self.censored.sum())

    @cached_property
    def ended_value(self) -> Floats:
        """Values that some job ended with."""
        return self.value[self.ended > 0]

    @cached_property
    def ended_count(self) -> Floats:
        """How many jobs ended with each of ``ended_value``."""
        return self.ended[self.ended > 0]

    @cached_property
    def censored_value(self) -> Floats:
        """Values that some job had at least."""
        return self.value[self.censored > 0]

    @cached_property
    def censored_count(self) -> Floats:
        """How many jobs had at least each of ``censored_value``."""
        return self.censored[self.censored > 0]

    def above(self, threshold: float) -> Sample:
        """Values above a threshold, the threshold subtracted."""
        chosen = self.value > threshold
        return Sample(self.value[chosen] - threshold, self.ended[chosen], self.censored[chosen])


@dataclass(frozen=True)
class Fit:
    """One family fitted to one sample.

    Attributes
    ----------
    family : Family
        What was fitted.
    estimate, standard_error : array of float
        Natural parameters; nan standard errors where the observed information has no inverse.
    log_likelihood, aic : float
        At the estimate; aic = 2 (free parameters) - 2 log_likelihood.
    is_converged : bool
        Whether the search ended at a maximum; if not, the estimate means nothing.
    """

    family: Family
    estimate: Floats
    standard_error: Floats
    log_likelihood: float
    is_converged: bool

    @property
    def aic(self) -> float:
        """Akaike's information criterion."""
        return 2.0 * self.family.num_free - 2.0 * self.log_likelihood

    def share_below(self, x: Floats) -> Floats:
        """Fitted distribution function."""
        result: Floats = -np.expm1(self.family.logsf(self.estimate, x))
        return result


def kaplan_meier(sample: Sample) -> Floats:
    """Share of the jobs that run longer than each value, censored jobs leaving after those that end at the same value.

    References
    ----------
    .. [1] E. L. Kaplan and P. Meier, "Nonparametric Estimation from Incomplete Observations", JASA 53, 1958,
       doi:10.1080/01621459.1958.10501452.

    Examples
    --------
    >>> sample = Sample(np.array([1.0, 2.0, 3.0]), ended=np.array([1.0, 0.0, 1.0]), censored=np.array([0.0, 1.0, 0.0]))
    >>> kaplan_meier(sample).round(3).tolist()
    [0.667, 0.667, 0.0]
    """
    every = sample.ended + sample.censored
    at_risk = np.cumsum(every[::-1])[::-1]
    survival: Floats = np.cumprod(1.0 - sample.ended / at_risk).astype(np.float64)
    return survival


def ks_distance(fitted: Callable[[Floats], Floats], sample: Sample) -> float:
    """Largest distance between a distribution function and the sample's Kaplan-Meier curve, on both sides of its steps.

    Without censoring it is the Kolmogorov-Smirnov statistic.
    """
    survival = kaplan_meier(sample)
    steps = sample.ended > 0
    after = 1.0 - survival[steps]
    before = 1.0 - np.concatenate([[1.0], survival[:-1]])[steps]
    expected = fitted(sample.value[steps])
    return float(max(np.abs(expected - after).max(), np.abs(expected - before).max()))


def fit(family: Family, sample: Sample) -> Fit:
    """Fit a family by maximum likelihood, standard errors from the observed information.

    Parameters
    ----------
    family : Family
        One of ``FAMILIES``, or the generalised Pareto distribution on ``sample.above(threshold)``.
    sample : Sample
        Values, of which some may be lower bounds.

    Returns
    -------
    Fit
        Its estimate means nothing where ``is_converged`` is false (all values equal, say).

    References
    ----------
    .. [1] J. F. Lawless, "Statistical Models and Methods for Lifetime Data", 2nd ed., Wiley, 2003, ch. 2 and 5.
    """

    def loss(unconstrained: Floats) -> float:
        theta = family.natural(unconstrained)
        # Not a dot product: that of the linear-algebra library differs with its number of threads.
        total = (sample.ended_count * family.logpdf(theta, sample.ended_value)).sum()
        if len(sample.censored_value):
            total += (sample.censored_count * family.logsf(theta, sample.censored_value)).sum()
        return float(-total / sample.num_jobs) if np.isfinite(total) else np.inf

    # A trial step may overshoot; what it gives is then infinite, and the step is halved.
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        best, hessian, is_converged = _minimise(loss, family.start(sample))
        errors = _standard_errors(family, best, hessian * sample.num_jobs)
        return Fit(family, family.natural(best), errors, -loss(best) * sample.num_jobs, is_converged)


def _minimise(loss: Callable[[Floats], float], start: Floats) -> tuple[Floats, Floats, bool]:
    """Newton's method with a line search; where the curvature is not positive its size is used, so that it descends."""
    place, value = start, loss(start)
    for _ in range(MAX_ITERATIONS):
        gradient, hessian = _derivatives(loss, place, value)
        if not (np.isfinite(gradient).all() and np.isfinite(hessian).all()):
            return place, hessian, False
        size, axes = np.linalg.eigh(hessian)
        move = -axes @ ((axes.T @ gradient) / np.maximum(np.abs(size), 1e-7))
        move *= min(1.0, 2.0 / max(float(np.abs(move).max()), 1e-300))
        length = 1.0
        while length > 1e-10 and not loss(place + length * move) < value:
            length /= 2
        if length > 1e-10:
            place = place + length * move
            value = loss(place)
        if length <= 1e-10 or np.abs(length * move).max() < 1e-7:
            flat = bool(np.abs(gradient).max() < 1e-5)
            return place, hessian, flat and bool(size.min() > 1e-9)
    return place, hessian, False


def _derivatives(loss: Callable[[Floats], float], place: Floats, value: float) -> tuple[Floats, Floats]:
    """Gradient and Hessian by central differences."""
    p = len(place)
    unit = np.eye(p) * STEP
    up = np.array([loss(place + unit[i]) for i in range(p)])
    down = np.array([loss(place - unit[i]) for i in range(p)])
    hessian = np.diag((up - 2 * value + down) / STEP**2)
    for i in range(p):
        for j in range(i):
            same = loss(place + unit[i] + unit[j]) + loss(place - unit[i] - unit[j])
            cross = loss(place + unit[i] - unit[j]) + loss(place - unit[i] + unit[j])
            hessian[i, j] = hessian[j, i] = (same - cross) / (4 * STEP**2)
    return (up - down) / (2 * STEP), hessian


def _standard_errors(family: Family, place: Floats, information: Floats) -> Floats:
    """Square roots of the diagonal of the inverse information, carried to the natural parameters (delta method)."""
    unit = np.eye(len(place)) * STEP
    slope = np.array([(family.natural(place + e) - family.natural(place - e)) / (2 * STEP) for e in unit]).T
    if not np.isfinite(information).all() or np.linalg.eigvalsh(information).min() <= 0:
        return np.full(len(family.parameters), np.nan)
    variance = np.einsum("ij,jk,ik->i", slope, np.linalg.inv(information), slope)
    errors: Floats = np.sqrt(np.maximum(variance, 0.0))
    return errors
