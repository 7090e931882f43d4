"""All families fitted to one sample of durations, and the verdict about which one describes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from analysis.characterize.censored import Fit, Sample, fit, kaplan_meier, ks_distance
from analysis.characterize.families import FAMILIES, GENERALIZED_PARETO

__all__ = ["MIN_DISTINCT", "MIN_ENDED", "FittedDurations", "fit_durations", "verdict"]

#: Fewer jobs that ended, or fewer distinct durations, are not fitted.
MIN_ENDED: Final = 50
MIN_DISTINCT: Final = 10
#: The generalised Pareto distribution is fitted to the longest tenth.
TAIL_SHARE: Final = 0.1
#: A larger KS distance times the root of the sample size is told from chance at the 5 % level.
KS_CRITICAL: Final = 1.358


@dataclass(frozen=True)
class FittedDurations:
    """All families fitted to one sample of durations.

    Attributes
    ----------
    sample : Sample
        What they were fitted to.
    whole : tuple of Fit
        Of the whole distribution, in the order of ``FAMILIES``.
    threshold_s : float
        Above this lies the tail.
    tail : Fit or None
        Of the durations above the threshold, the threshold subtracted; null where too few lie there.
    """

    sample: Sample
    whole: tuple[Fit, ...]
    threshold_s: float
    tail: Fit | None

    def ks(self, one: Fit) -> float:
        """KS distance of a fit of the whole distribution."""
        return ks_distance(one.share_below, self.sample)

    def ks_tail(self, one: Fit) -> float | None:
        """KS distance of a fit of the whole distribution, among the durations above the threshold."""
        beyond = self.sample.above(self.threshold_s)
        held = 1.0 - float(one.share_below(np.array([self.threshold_s]))[0])
        if self.tail is None or held <= 0:
            return None
        return ks_distance(lambda y: 1.0 - (1.0 - one.share_below(y + self.threshold_s)) / held, beyond)


def fit_durations(sample: Sample) -> FittedDurations | None:
    """Fit all families to durations; null where there are too few.

    Parameters
    ----------
    sample : Sample
        Durations [s], above 0.

    Returns
    -------
    FittedDurations or None
        Null with fewer than ``MIN_ENDED`` ended jobs or ``MIN_DISTINCT`` distinct durations. [s]
    """
    if sample.ended.sum() < MIN_ENDED or len(sample.ended_value) < MIN_DISTINCT:
        return None
    # The tables of one log ask for the same fits one after the other.
    return _fit_all(sample.value.tobytes(), sample.ended.tobytes(), sample.censored.tobytes())


@lru_cache(maxsize=256)
def _fit_all(value: bytes, ended: bytes, censored: bytes) -> FittedDurations:
    sample = Sample(*(np.frombuffer(part, dtype=np.float64) for part in (value, ended, censored)))
    below = 1.0 - kaplan_meier(sample)
    place = min(int(np.searchsorted(below, (1.0 - TAIL_SHARE) * (1 - 1e-12))), len(below) - 1)
    threshold = float(sample.value[place])
    beyond = sample.above(threshold)
    enough = beyond.ended.sum() >= MIN_ENDED and len(beyond.ended_value) >= MIN_DISTINCT
    tail = fit(GENERALIZED_PARETO, beyond) if enough else None
    return FittedDurations(sample, tuple(fit(family, sample) for family in FAMILIES), threshold, tail)


def verdict(fitted: FittedDurations) -> str:
    """Say in a sentence which family describes the durations best, and whether any describes them exactly."""
    good = [(one, fitted.ks(one)) for one in fitted.whole if one.is_converged]
    if not good:
        return "No family could be fitted."
    best, distance = min(good, key=lambda pair: pair[0].aic)
    nearest, least = min(good, key=lambda pair: pair[1])
    text = f"{_capital(best.family.words)} describes the durations best of {len(good)} families by AIC"
    if nearest is best:
        text += f" and lies closest (KS distance {distance:.3f})"
    else:
        text += f" (KS distance {distance:.3f}); {nearest.family.words} lies closest (KS distance {least:.3f})"
    chance = KS_CRITICAL / math.sqrt(fitted.sample.ended.sum())
    within = [one.family.words for one, ks in good if ks <= chance]
    if within:
        return f"{text}; within the {chance:.3f} that chance explains (5 % level): {', '.join(within)}."
    return f"{text}; none lies within the {chance:.3f} that chance explains (5 % level): each is an approximation."


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]
