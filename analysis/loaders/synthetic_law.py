"""The law that synthetic jobs are drawn from, solved from published moments before anything is drawn.

A job has a status *s* and *g* GPUs, by a fixed table. Its duration is ``exp(m + b_s + c log2 g + w(z))``, cut at
the longest published run (less for failed and wide jobs), with z standard normal and ``w(z) = lower_sd * z`` below zero
and ``upper_sd * z`` above: a log-normal whose two halves may differ in width.

Six parameters (m, b_cancelled, b_failed, c, lower_sd, upper_sd) are solved from six figures: median and mean duration,
GPU time per job, its split by status (two), and how far a typical job is from the median on the log scale. The last is
not published; it is `TYPICAL_LOG_ERROR`, from logs that can be scored. All moments are closed forms or quadrature: no
sample is looked at. The choice of the family is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, least_squares
from scipy.special import ndtr, ndtri

from analysis.errors import UsageError
from analysis.loaders.synthetic_published import PublishedLog, published_log

__all__ = ["STATUS_NAMES", "DelayLaw", "JobLaw", "Moments", "cpu_job_law", "delay_law", "job_law"]

Floats = npt.NDArray[np.float64]

STATUS_NAMES: Final = ("completed", "cancelled", "failed")
#: Mean |log1p(duration) - log1p(median)|: the global median scores 1.8 to 2.4 on the logs that we could score.
TYPICAL_LOG_ERROR: Final = 2.0
#: Of the jobs with several GPUs, how common each doubling (2, 4, 8, …) is before the mean is fitted; a full node of
#: eight is the favourite.
DOUBLING_WEIGHTS: Final = (1.0, 0.9, 2.0, 0.5, 0.35, 0.25, 0.15, 0.1, 0.06, 0.04, 0.03)
#: Cancelled jobs hold more GPU time than their number tells, by a published factor. Most of it is duration; the odds of
#: being cancelled grow per doubling of GPUs by the factor to this power.
CANCELLED_WIDTH_PART: Final = 0.1
#: Failed jobs spread wider: many break in the first minute, some after days.
FAILED_SPREAD: Final = 1.3
#: The longest failed run against the longest of all: what breaks, breaks within days.
LONGEST_FAILED: Final = 0.15
#: A job k times as wide as `WIDE` mean jobs runs at most the published longest run over k to this power: nobody gets
#: hundreds of GPUs for as many weeks as one GPU.
WIDE: Final = 6.0
LONGEST_BY_WIDTH: Final = 0.7
#: Share of jobs that start at once where the published median delay is 0.
NO_DELAY_SHARE: Final = 0.65
#: Spread of the others on the log scale.
DELAY_LOG_SD: Final = 2.2
#: Cancelled and failed jobs without GPUs against completed ones, log scale; their time by status is not published.
CPU_STATUS_EFFECTS: Final = (0.5, -0.5)
MAX_DELAY_S: Final = 14 * 86_400.0
QUADRATURE: Final = (np.arange(256) + 0.5) / 256


@dataclass(frozen=True)
class Moments:
    """Expected figures of a law, in the terms of `PublishedLog`."""

    mean_duration_s: float
    share_below_median: float
    mean_gpu_s: float  # jobs without GPUs count as one
    gpu_time_shares: tuple[float, ...]
    log_error: float


@dataclass(frozen=True)
class JobLaw:
    """Joint law of status, GPUs and duration.

    Attributes
    ----------
    gpus : ndarray of int, shape (num_widths,)
        GPU counts, ascending.
    probability : ndarray, shape (3, num_widths)
        Share of jobs of each status (order of `STATUS_NAMES`) and width; sums to 1.
    location : ndarray, shape (3, num_widths)
        Log of the median duration before the cut at ``max_duration_s``.
    lower_sd, upper_sd : ndarray, shape (3, 1)
        Log-scale spread below and above it, by status.
    max_duration_s : ndarray, shape (3, num_widths)
        Nothing of that status and width runs longer. [s]
    """

    gpus: npt.NDArray[np.int64]
    probability: Floats
    location: Floats
    lower_sd: Floats
    upper_sd: Floats
    max_duration_s: Floats

    @property
    def _highest_z(self) -> Floats:
        room = np.log(self.max_duration_s) - self.location
        return np.where(room > 0, room / self.upper_sd, room / self.lower_sd)

    def quantile(self, share: Floats, *, status: npt.NDArray[np.int64], width: npt.NDArray[np.int64]) -> Floats:
        """Duration below which ``share`` of the jobs of that status and width lie [s].

        Parameters
        ----------
        share : ndarray of float64 in (0, 1)
        status, width : ndarray of int, same shape
            Indices into `STATUS_NAMES` and ``gpus``.
        """
        z = ndtri(share * ndtr(self._highest_z)[status, width])
        spread = np.where(z < 0, self.lower_sd[status, 0], self.upper_sd[status, 0])
        seconds = np.exp(self.location[status, width] + spread * z)
        return np.asarray(np.minimum(seconds, self.max_duration_s[status, width]))

    def mean_duration_s(self) -> Floats:
        """Expected duration by status and width, shape (3, num_widths) [s]."""
        top = self._highest_z
        low, high = self.lower_sd, self.upper_sd
        below = np.exp(low**2 / 2) * ndtr(np.minimum(top, 0) - low)
        above = np.exp(high**2 / 2) * (ndtr(np.maximum(top, 0) - high) - ndtr(-high))
        return np.asarray(np.exp(self.location) * (below + above) / ndtr(top))

    def moments(self, *, median_s: float) -> Moments:
        """Expected figures; the share below and the log error are taken at ``median_s``."""
        mean = self.mean_duration_s()
        gpu_s = self.probability * mean * np.maximum(self.gpus, 1)
        by_status = gpu_s.sum(axis=1) / gpu_s.sum()
        room = np.log(median_s) - self.location
        z = np.where(room > 0, room / self.upper_sd, room / self.lower_sd)
        below = ndtr(np.minimum(z, self._highest_z)) / ndtr(self._highest_z)
        return Moments(
            mean_duration_s=float((self.probability * mean).sum()),
            share_below_median=float((self.probability * below).sum()),
            mean_gpu_s=float(gpu_s.sum()),
            gpu_time_shares=tuple(by_status.tolist()),
            log_error=self._log_error(median_s),
        )

    def _log_error(self, median_s: float) -> float:
        status, width = (np.repeat(index.ravel(), QUADRATURE.size) for index in np.indices(self.probability.shape))
        share = np.tile(QUADRATURE, self.probability.size)
        seconds = np.maximum(self.quantile(share, status=status, width=width), 1.0)
        error = np.abs(np.log1p(seconds) - np.log1p(median_s)).reshape(*self.probability.shape, -1).mean(axis=2)
        return float((self.probability * error).sum())


@cache
def job_law(name: str, *, max_gpus: int) -> JobLaw:
    """Solve the law of a published log's GPU jobs.

    Parameters
    ----------
    name : str
        A published log.
    max_gpus : int
        Widest job, a power of two; a small cluster cannot hold the published one.

    Returns
    -------
    JobLaw
        Meets the published mean and median duration, mean GPUs, status shares, GPU time per job and its shares.

    Raises
    ------
    UnknownNameError
        If there is no such log.

    Examples
    --------
    >>> law = job_law("venus", max_gpus=256)
    >>> round(float((law.probability.sum(axis=0) * law.gpus).sum()), 3)
    6.736
    """
    log = published_log(name)
    gpus, widths = _gpu_demand(log.mean_gpus, max_gpus)
    probability = _with_status(widths, log, gpus)
    start = np.array([np.log(log.median_duration_s), 0.3, -0.3, 0.1, np.log(2.0), np.log(2.6)])

    def miss(x: Floats) -> Floats:
        got = _law(x, log, gpus, probability).moments(median_s=log.median_duration_s)
        return np.array(
            [
                4 * (got.share_below_median - 0.5),
                np.log(got.mean_duration_s / log.mean_duration_s),
                np.log(got.mean_gpu_s / log.mean_gpu_s),
                *np.log(np.array(got.gpu_time_shares[1:]) / log.gpu_time_shares[1:]),
                np.log(got.log_error / TYPICAL_LOG_ERROR),
            ]
        )

    return _law(least_squares(miss, start, xtol=1e-12, ftol=1e-12).x, log, gpus, probability)


@cache
def cpu_job_law(name: str) -> JobLaw:
    """Solve the law of a published log's jobs without GPUs: mean, median and status shares are met.

    Raises
    ------
    UnknownNameError
        If there is no such log.
    UsageError
        If it has no such jobs.
    """
    log = published_log(name)
    if log.cpu is None:
        msg = f"published log {name!r} has no jobs without GPUs; ask for GPU jobs only (cpu_jobs=False)."
        raise UsageError(msg)
    cpu = log.cpu
    gpus = np.zeros(1, dtype=np.int64)
    statuses = np.array(cpu.status_shares)[:, None] / sum(cpu.status_shares)

    def law(x: Floats) -> JobLaw:
        return _law(np.array([x[0], *CPU_STATUS_EFFECTS, 0.0, x[1], x[1]]), log, gpus, statuses)

    def miss(x: Floats) -> Floats:
        got = law(x).moments(median_s=cpu.median_duration_s)
        return np.array([4 * (got.share_below_median - 0.5), np.log(got.mean_duration_s / cpu.mean_duration_s)])

    start = np.array([np.log(cpu.median_duration_s), np.log(2.5)])
    return law(least_squares(miss, start, xtol=1e-12, ftol=1e-12).x)


def _law(x: Floats, log: PublishedLog, gpus: npt.NDArray[np.int64], probability: Floats) -> JobLaw:
    by_status = np.array([0.0, x[1], x[2]])[:, None]
    doublings = np.log2(np.maximum(gpus, 1))
    location = x[0] + by_status + x[3] * doublings
    spread = np.array([1.0, 1.0, FAILED_SPREAD])[:, None]
    longest = log.max_duration_s / np.maximum(gpus / (WIDE * log.mean_gpus), 1) ** LONGEST_BY_WIDTH
    longest = longest * np.array([1.0, 1.0, LONGEST_FAILED])[:, None]
    return JobLaw(gpus, probability, location, np.exp(x[4]) * spread, np.exp(x[5]) * spread, longest)


def _gpu_demand(mean_gpus: float, max_gpus: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """GPU counts (powers of two) and their shares: the base weights, tilted exponentially to the published mean."""
    doublings = np.arange(int(np.log2(max_gpus)) + 1)
    gpus = 2**doublings
    # A median of 1 needs more than half the jobs; the more GPUs a mean job has, the fewer are left alone.
    alone = 0.55 + 0.35 / mean_gpus
    weights = np.array(DOUBLING_WEIGHTS[: max(len(gpus) - 1, 0)])

    def shares(tilt: float) -> Floats:
        tilted = weights * np.exp(tilt * (doublings[1:] - doublings[-1]))
        return np.concatenate([[alone], (1 - alone) * tilted / tilted.sum()])

    tilt = brentq(lambda t: float(shares(t) @ gpus) - mean_gpus, -20, 20, xtol=1e-13)
    return gpus, shares(tilt)


def _with_status(widths: Floats, log: PublishedLog, gpus: npt.NDArray[np.int64]) -> Floats:
    """Table of status by width with both margins exact (iterative proportional fitting of the odds)."""
    statuses = np.array(log.status_shares) / sum(log.status_shares)
    table = np.ones((3, len(gpus)))
    table[1] = (log.gpu_time_shares[1] / statuses[1]) ** (CANCELLED_WIDTH_PART * np.log2(gpus))
    for _ in range(200):
        table *= (statuses / table.sum(axis=1))[:, None]
        table *= widths / table.sum(axis=0)
    return table


@dataclass(frozen=True)
class DelayLaw:
    """Law of the queueing delay: none for some jobs, log-normal and cut at `MAX_DELAY_S` for the others."""

    none_share: float
    location: float
    spread: float

    def quantile(self, share: Floats) -> Floats:
        """Delay below which ``share`` of the jobs lie [s]."""
        rest = np.clip((share - self.none_share) / (1 - self.none_share), 1e-12, 1)
        top = ndtr((np.log(MAX_DELAY_S) - self.location) / self.spread)
        delay = np.exp(self.location + self.spread * ndtri(rest * top))
        return np.where(share < self.none_share, 0.0, np.minimum(delay, MAX_DELAY_S))


def delay_law(*, mean_s: float, median_s: float) -> DelayLaw:
    """Solve the law of the queueing delay from its published mean and median.

    Examples
    --------
    >>> law = delay_law(mean_s=3760.6, median_s=189.0)
    >>> [round(float(q)) for q in law.quantile(np.array([0.25, 0.5]))]
    [35, 189]
    """
    share = (np.arange(100_000) + 0.5) / 100_000
    none = NO_DELAY_SHARE if median_s == 0 else 0.0

    def law(x: float) -> DelayLaw:
        return DelayLaw(none, x, DELAY_LOG_SD) if none else DelayLaw(0.0, float(np.log(median_s)), x)

    low, high = (-10.0, 12.0) if none else (0.05, 6.0)
    solved = brentq(lambda x: float(law(x).quantile(share).mean()) - mean_s, low, high, xtol=1e-9)
    return law(solved)
