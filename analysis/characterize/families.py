"""Families of distributions of a duration: log densities, log survival functions, and where a fit begins.

Every family works on unconstrained parameters (logarithms, logits), so that a search never leaves the allowed ones, and
turns them into the natural ones that a table shows. Densities are those of continuous durations in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from analysis.characterize.censored import Floats, Sample

__all__ = ["FAMILIES", "GENERALIZED_PARETO", "Family"]

LogFunction = Callable[[Floats, Floats], Floats]


@dataclass(frozen=True)
class Family:
    """One family of distributions of a positive value.

    Attributes
    ----------
    name, words : str
        Name in a table; name in a sentence.
    parameters : tuple of str
        Natural parameters in order; ``_s`` at the end means seconds.
    logpdf, logsf : callable of (natural parameters, values)
        Log density and log survival function.
    natural : callable of unconstrained parameters
        Natural parameters, as many as ``parameters``.
    start : callable of Sample
        Unconstrained parameters near the best ones.
    num_free : int
        Parameters that are estimated.
    """

    name: str
    words: str
    parameters: tuple[str, ...]
    logpdf: LogFunction
    logsf: LogFunction
    natural: Callable[[Floats], Floats]
    start: Callable[[Sample], Floats]
    num_free: int = 2


def _log_moments(sample: Sample) -> tuple[float, float]:
    """Mean and standard deviation of the log value, censored values taken as they are."""
    log, weight = np.log(sample.value), sample.ended + sample.censored
    mean = float(np.average(log, weights=weight))
    return mean, max(float(np.sqrt(np.average((log - mean) ** 2, weights=weight))), 1e-3)


def _positive(unconstrained: Floats) -> Floats:
    result: Floats = np.exp(unconstrained)
    return result


def _lognormal_logpdf(theta: Floats, x: Floats) -> Floats:
    log = np.log(x)
    z = (log - theta[0]) / theta[1]
    result: Floats = -0.5 * z * z - log - np.log(theta[1]) - 0.5 * np.log(2 * np.pi)
    return result


def _lognormal_logsf(theta: Floats, x: Floats) -> Floats:
    from scipy import special

    result: Floats = special.log_ndtr(-(np.log(x) - theta[0]) / theta[1])
    return result


def _lognormal_start(sample: Sample) -> Floats:
    mean, spread = _log_moments(sample)
    return np.array([mean, np.log(spread)])


def _weibull_logpdf(theta: Floats, x: Floats) -> Floats:
    shape, scale = theta
    log = np.log(x / scale)
    result: Floats = np.log(shape / scale) + (shape - 1) * log - np.exp(shape * log)
    return result


def _weibull_logsf(theta: Floats, x: Floats) -> Floats:
    result: Floats = -np.exp(theta[0] * np.log(x / theta[1]))
    return result


def _weibull_start(sample: Sample) -> Floats:
    # The log of a Weibull value has standard deviation pi / (shape sqrt 6) and mean log(scale) - 0.5772 / shape.
    mean, spread = _log_moments(sample)
    shape = np.pi / (np.sqrt(6) * spread)
    return np.array([np.log(shape), mean + 0.5772 / shape])


def _gamma_logpdf(theta: Floats, x: Floats) -> Floats:
    from scipy import special

    shape, scale = theta
    z = x / scale
    result: Floats = special.xlogy(shape - 1, z) - z - special.gammaln(shape) - np.log(scale)
    return result


def _gamma_logsf(theta: Floats, x: Floats) -> Floats:
    from scipy import special

    shape, scale = theta
    z = x / scale
    share = special.gammaincc(shape, z)
    # Far out the survival function underflows; there it is its leading asymptotic term (DLMF 8.11.2).
    far = special.xlogy(shape - 1, z) - z - special.gammaln(shape)
    result: Floats = np.where(share > 1e-290, np.log(np.maximum(share, 1e-290)), far)
    return result


def _gamma_start(sample: Sample) -> Floats:
    # Minka's start of the shape from the gap between the log of the mean and the mean of the log.
    mean = float(np.average(sample.value, weights=sample.ended + sample.censored))
    gap = max(np.log(mean) - _log_moments(sample)[0], 1e-6)
    shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    return np.array([np.log(shape), np.log(mean / shape)])


def _pareto_log_arm(theta: Floats, x: Floats) -> Floats:
    """log(1 + shape x / scale) / shape, x / scale in the limit of shape 0, inf outside the support."""
    shape, scale = theta
    z: Floats = x / scale
    if abs(shape) < 1e-9:
        return z
    inside = 1 + shape * z
    result: Floats = np.where(inside > 0, np.log(np.where(inside > 0, inside, 1.0)) / shape, np.inf)
    return result


def _pareto_logsf(theta: Floats, x: Floats) -> Floats:
    return -_pareto_log_arm(theta, x)


def _pareto_logpdf(theta: Floats, x: Floats) -> Floats:
    result: Floats = -(1 + theta[0]) * _pareto_log_arm(theta, x) - np.log(theta[1])
    return result


def _pareto_start(sample: Sample) -> Floats:
    mean = float(np.average(sample.value, weights=sample.ended + sample.censored))
    return np.array([0.1, np.log(mean)])


def _mixture(unconstrained: Floats) -> Floats:
    """Weights and means of the phases, shortest phase first, from logits against the last weight and log means."""
    k = (len(unconstrained) + 1) // 2
    logits = np.append(unconstrained[: k - 1], 0.0)
    weights = np.exp(logits - logits.max())
    means = np.exp(unconstrained[k - 1 :])
    order = np.argsort(means, kind="stable")
    theta: Floats = np.concatenate([(weights / weights.sum())[order], means[order]])
    return theta


def _phases(theta: Floats, x: Floats) -> tuple[Floats, Floats, Floats]:
    """Log weights, means, and log survival of every phase, a row per phase."""
    k = len(theta) // 2
    log_weights = np.log(np.maximum(theta[:k], 1e-300))[:, None]
    means = theta[k:, None]
    return log_weights, means, -x[None, :] / means


def _log_sum(rows: Floats) -> Floats:
    top = rows.max(axis=0)
    total: Floats = top + np.log(np.exp(rows - top).sum(axis=0))
    return total


def _hyper_logpdf(theta: Floats, x: Floats) -> Floats:
    log_weights, means, survival = _phases(theta, x)
    return _log_sum(log_weights - np.log(means) + survival)


def _hyper_logsf(theta: Floats, x: Floats) -> Floats:
    log_weights, _, survival = _phases(theta, x)
    return _log_sum(log_weights + survival)


#: Steps of expectation and maximization before the search takes over.
NUM_EM_STEPS: Final = 200


def _hyper_start(sample: Sample, *, num_phases: int) -> Floats:
    """Weights and means after a fixed number of EM steps from equal parts of the jobs by duration."""
    share = np.cumsum(sample.ended + sample.censored) / sample.num_jobs
    part = np.minimum((share * num_phases * (1 - 1e-12)).astype(np.int64), num_phases - 1)
    means = np.full(num_phases, float(np.average(sample.value, weights=sample.ended + sample.censored)))
    for phase in np.unique(part):
        chosen = part == phase
        means[phase] = np.average(sample.value[chosen], weights=(sample.ended + sample.censored)[chosen])
    theta = np.concatenate([np.full(num_phases, 1 / num_phases), means])
    for _ in range(NUM_EM_STEPS):
        theta = _em_step(theta, sample)
    weights = np.maximum(theta[:num_phases], 1e-12)
    return np.concatenate([np.log(weights[:-1] / weights[-1]), np.log(theta[num_phases:])])


def _em_step(theta: Floats, sample: Sample) -> Floats:
    """One step of EM; a censored value adds the phase's mean to what was seen, for exponentials have no memory."""
    k = len(theta) // 2
    weight_sum, time_sum = np.zeros(k), np.zeros(k)
    for values, counts, is_ended in (
        (sample.ended_value, sample.ended_count, True),
        (sample.censored_value, sample.censored_count, False),
    ):
        if not len(values):
            continue
        log_weights, means, survival = _phases(theta, values)
        rows = log_weights + survival - (np.log(means) if is_ended else 0.0)
        held = np.exp(rows - _log_sum(rows)) * counts
        weight_sum += held.sum(axis=1)
        time_sum += (held * values).sum(axis=1) + (0.0 if is_ended else held.sum(axis=1) * theta[k:])
    weight_sum = np.maximum(weight_sum, 1e-9)
    return np.concatenate([weight_sum / weight_sum.sum(), np.maximum(time_sum, 1e-9) / weight_sum])


def _hyperexponential(num_phases: int) -> Family:
    def start(sample: Sample) -> NDArray[np.float64]:
        return _hyper_start(sample, num_phases=num_phases)

    numbers = range(1, num_phases + 1)
    return Family(
        name=f"hyperexponential_{num_phases}",
        words=f"hyper-exponential with {num_phases} phases",
        parameters=(*(f"weight_{i}" for i in numbers), *(f"mean_{i}_s" for i in numbers)),
        logpdf=_hyper_logpdf,
        logsf=_hyper_logsf,
        natural=_mixture,
        start=start,
        num_free=2 * num_phases - 1,
    )


#: Families of the whole distribution.
FAMILIES: Final = (
    Family(
        name="lognormal",
        words="log-normal",
        parameters=("mean_of_log", "sd_of_log"),
        logpdf=_lognormal_logpdf,
        logsf=_lognormal_logsf,
        natural=lambda u: np.array([u[0], np.exp(u[1])]),
        start=_lognormal_start,
    ),
    Family(
        name="weibull",
        words="Weibull",
        parameters=("shape", "scale_s"),
        logpdf=_weibull_logpdf,
        logsf=_weibull_logsf,
        natural=_positive,
        start=_weibull_start,
    ),
    Family(
        name="gamma",
        words="gamma",
        parameters=("shape", "scale_s"),
        logpdf=_gamma_logpdf,
        logsf=_gamma_logsf,
        natural=_positive,
        start=_gamma_start,
    ),
    _hyperexponential(2),
    _hyperexponential(3),
)

#: What is fitted to the durations above a threshold, the threshold subtracted.
GENERALIZED_PARETO: Final = Family(
    name="generalized_pareto",
    words="generalised Pareto",
    parameters=("shape", "scale_s"),
    logpdf=_pareto_logpdf,
    logsf=_pareto_logsf,
    natural=lambda u: np.array([u[0], np.exp(u[1])]),
    start=_pareto_start,
)
