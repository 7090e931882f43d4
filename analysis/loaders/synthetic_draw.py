"""The draw of a synthetic log: who submits what and when; GPUs, status, duration of every job; delays of CPU jobs.

Users submit in sessions (bursts of jobs of one family); a user's families follow one another over the window, and a
family goes through versions. Each of these has effects, on a normal scale, which add up to a score per job. A score
decides only the *order*: the job with the j-th lowest score of its kind gets a random quantile from the j-th of n
equal slices of the law (stratified sampling, with the dependence put in by ranks, Iman and Conover 1982,
doi:10.1080/03610918208812265). So each figure of the sample is that of the law but for the width of a slice, and
nothing is rescaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from analysis.loaders.synthetic_law import DelayLaw, JobLaw

__all__ = ["Marks", "Submissions", "draw_delays", "draw_marks", "draw_submissions"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: Of user, family, version, session and job.
Weights = tuple[float, float, float, float, float]

S_PER_HOUR: Final = 3600
#: Submissions by local hour: night low, a dip at noon and at dinner, busy until late.
HOUR_WEIGHTS: Final = np.array(
    [
        *(0.75, 0.55, 0.42, 0.34, 0.30, 0.30, 0.34, 0.45, 0.70, 1.10, 1.35, 1.35),
        *(1.00, 1.15, 1.40, 1.45, 1.45, 1.35, 1.05, 1.10, 1.25, 1.30, 1.20, 1.00),
    ]
)
WEEKEND_WEIGHT: Final = 0.6
#: Activity of the user of rank r is 1 / (r + offset) ** exponent (Zipf-Mandelbrot).
ZIPF_EXPONENT: Final = 1.3
ZIPF_OFFSET: Final = 3
#: Jobs per session: log-normal, rounded up.
SESSION_LOG_MEAN: Final = 0.9
SESSION_LOG_SD: Final = 1.1
MAX_SESSION_JOBS: Final = 400
#: Seconds between jobs of a session; some are submitted at once, by a script.
AT_ONCE_SHARE: Final = 0.3
GAP_LOG_MEAN: Final = 4.5
GAP_LOG_SD: Final = 1.8
MAX_GAP_S: Final = 4.0 * S_PER_HOUR
#: A user of c sessions works through c ** FAMILY_POWER families, about four at a time.
FAMILY_POWER: Final = 0.6
CONCURRENT_FAMILIES: Final = 1.0
SESSIONS_PER_VERSION: Final = 8
#: Weights of the effects in the scores that order durations, GPUs and statuses.
DURATION_WEIGHTS: Final[Weights] = (1.2, 0.5, 0.2, 0.1, 0.4)
GPU_WEIGHTS: Final[Weights] = (0.85, 0.50, 0.10, 0.0, 0.05)
STATUS_WEIGHTS: Final[Weights] = (0.30, 0.60, 0.0, 0.50, 0.90)
#: The noise of a job differs between families by this factor (log scale sd): some repeat to the second.
NOISE_LOG_SD: Final = 0.5
#: Steps of additive recurrences (Kronecker sequences) that spread effects evenly over users and families.
GOLDEN: Final = 0.6180339887498949
SILVER: Final = 0.4142135623730951
PLASTIC: Final = 0.7548776662466927


@dataclass(frozen=True)
class Submissions:
    """Who submits what, when; one entry per job, in no particular order.

    Attributes
    ----------
    user, session, family, version : ndarray of int64
        Counted from 0; users by falling activity, families and versions through all users.
    version_number, run : ndarray of int64
        Version within the family and run within the family, as the names show them; from 1.
    second : ndarray of int64
        Submission, in local seconds from the start of the window. [s]
    """

    user: Ints
    session: Ints
    family: Ints
    version: Ints
    version_number: Ints
    run: Ints
    second: Ints


@dataclass(frozen=True)
class Marks:
    """GPUs, status (index of `STATUS_NAMES`) and whole seconds of duration of each job; and what families are like.

    ``family_length`` is the effect of family and user on the score that orders durations: the higher, the longer.
    """

    num_gpus: Ints
    status: Ints
    duration_s: Ints
    family_length: Floats


def draw_submissions(
    num_jobs: int, *, num_users: int, start: date, window_days: int, rng: np.random.Generator
) -> Submissions:
    """Draw sessions and their jobs.

    Parameters
    ----------
    num_jobs, num_users : int
        At least 1.
    start : date
        First day; decides the weekdays.
    window_days : int
        Whole days; a session that runs over the end goes on at the beginning.
    rng : Generator

    Returns
    -------
    Submissions
    """
    sizes = _session_sizes(num_jobs, rng)
    num_sessions = len(sizes)
    begin = _session_starts(num_sessions, start=start, window_days=window_days, rng=rng)
    weights = 1 / (np.arange(1, num_users + 1) + ZIPF_OFFSET) ** ZIPF_EXPONENT
    share = (np.arange(num_sessions) + rng.random()) / num_sessions
    user = rng.permutation(np.searchsorted(np.cumsum(weights / weights.sum())[:-1], share, side="right"))
    family = _families(user, begin / (window_days * 24 * S_PER_HOUR), num_users=num_users, rng=rng)
    version_number = 1 + _count_before(family, begin) // SESSIONS_PER_VERSION
    key = family * (int(version_number.max()) + 1) + version_number
    version = np.unique(key, return_inverse=True)[1]
    session = np.repeat(np.arange(num_sessions), sizes)
    second = np.floor(begin[session] + _offsets(sizes, session, rng)).astype(np.int64)
    second %= window_days * 24 * S_PER_HOUR
    return Submissions(
        user=user[session],
        session=session,
        family=family[session],
        version=version[session],
        version_number=version_number[session],
        run=1 + _count_before(family[session], second),
        second=second,
    )


def draw_marks(jobs: Submissions, law: JobLaw, *, rng: np.random.Generator) -> Marks:
    """Draw GPUs, then status given GPUs, then duration given both."""
    lasting = _family_effects(jobs, GPU_WEIGHTS, steps=(SILVER, PLASTIC), rng=rng)
    by_gpus = _score(jobs, GPU_WEIGHTS, lasting=lasting, rng=rng)
    one_kind = np.zeros(len(by_gpus), dtype=np.int64)
    share = _shares(one_kind, by_gpus, rng)
    width = np.searchsorted(np.cumsum(law.probability.sum(axis=0))[:-1], share, side="right")

    # Along this score lie cancelled, completed, failed: a family that fails often is not one that is cancelled often.
    lasting = _family_effects(jobs, STATUS_WEIGHTS, steps=(PLASTIC, GOLDEN), rng=rng)
    by_status = _score(jobs, STATUS_WEIGHTS, lasting=lasting, rng=rng)
    share = _shares(width, by_status, rng)
    given = law.probability / law.probability.sum(axis=0)
    cancelled, not_failed = given[1][width], (1 - given[2])[width]
    status = np.where(share < cancelled, 1, np.where(share < not_failed, 0, 2))

    lasting = _family_effects(jobs, DURATION_WEIGHTS, steps=(GOLDEN, SILVER), rng=rng)
    noise = np.exp(NOISE_LOG_SD * rng.standard_normal(len(lasting)))
    by_length = _score(jobs, DURATION_WEIGHTS, lasting=lasting, noise=noise[jobs.family], rng=rng)
    share = _shares(status * len(law.gpus) + width, by_length, rng)
    seconds = law.quantile(np.maximum(share, 1e-12), status=status, width=width)
    return Marks(law.gpus[width], status, np.maximum(np.rint(seconds), 1).astype(np.int64), lasting)


def draw_delays(num_jobs: int, law: DelayLaw, *, rng: np.random.Generator) -> Ints:
    """Draw whole seconds of queueing delay [s]."""
    share = _shares(np.zeros(num_jobs, dtype=np.int64), rng.standard_normal(num_jobs), rng)
    return np.rint(law.quantile(share)).astype(np.int64)


def _session_sizes(num_jobs: int, rng: np.random.Generator) -> Ints:
    largest = max(1, min(MAX_SESSION_JOBS, num_jobs // 50))
    drawn: list[Ints] = []
    while (missing := num_jobs - sum(int(part.sum()) for part in drawn)) > 0:
        log_size = rng.normal(SESSION_LOG_MEAN, SESSION_LOG_SD, size=missing // 4 + 1)
        drawn.append(np.minimum(np.ceil(np.exp(log_size)), largest).astype(np.int64))
    ends = np.cumsum(np.concatenate(drawn))
    last = int(np.searchsorted(ends, num_jobs))
    return np.diff(np.append(ends[:last], num_jobs), prepend=0)


def _session_starts(num_sessions: int, *, start: date, window_days: int, rng: np.random.Generator) -> Floats:
    """Ascending local seconds, a stratified draw from the weekly rhythm."""
    weekday = (start.weekday() + np.arange(window_days)) % 7
    intensity = np.outer(np.where(weekday >= 5, WEEKEND_WEIGHT, 1.0), HOUR_WEIGHTS).ravel()
    cumulative = np.concatenate([[0.0], np.cumsum(intensity / intensity.sum())])
    share = (np.arange(num_sessions) + rng.random(num_sessions)) / num_sessions
    return np.interp(share, cumulative, S_PER_HOUR * np.arange(len(cumulative)))


def _families(user: Ints, progress: Floats, *, num_users: int, rng: np.random.Generator) -> Ints:
    """Family of each session: a user's families follow one another as the window progresses (0 to 1)."""
    count = np.maximum(np.ceil(np.bincount(user, minlength=num_users) ** FAMILY_POWER), 1)
    slot = progress * count[user] + CONCURRENT_FAMILIES * rng.standard_normal(len(user))
    slot = np.clip(np.floor(slot), 0, count[user] - 1).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(count)[:-1]]).astype(np.int64)
    return np.asarray(np.unique(first[user] + slot, return_inverse=True)[1], dtype=np.int64)


def _offsets(sizes: Ints, session: Ints, rng: np.random.Generator) -> Floats:
    """Seconds from the session's start to each of its jobs."""
    gap = np.minimum(np.exp(rng.normal(GAP_LOG_MEAN, GAP_LOG_SD, size=len(session))), MAX_GAP_S)
    gap[rng.random(len(session)) < AT_ONCE_SHARE] = 0
    first = np.cumsum(sizes) - sizes
    gap[first] = 0
    passed = np.cumsum(gap)
    return np.asarray(passed - passed[first][session])


def _count_before(group: Ints, when: npt.NDArray[np.int64] | Floats) -> Ints:
    """Number of earlier members of the same group."""
    order = np.lexsort((when, group))
    ordered = group[order]
    first = np.searchsorted(ordered, ordered, side="left")
    count = np.empty(len(group), dtype=np.int64)
    count[order] = np.arange(len(group)) - first
    return count


def _shares(kind: Ints, score: Floats, rng: np.random.Generator) -> Floats:
    """Place in (0, 1) of each job among those of its kind, by score.

    Each place is uniform in its slice; places in neighbouring slices and kinds are spread out by an additive
    recurrence, which leaves less to chance where a kind has few jobs.
    """
    order = np.lexsort((score, kind))
    ordered = kind[order]
    first = np.searchsorted(ordered, ordered, side="left")
    size = np.bincount(kind)[ordered]
    place = np.arange(len(kind)) - first
    jitter = (rng.random() + GOLDEN * ordered + SILVER * (size - place)) % 1.0
    share = np.empty(len(kind))
    share[order] = (place + jitter) / size
    return share


def _family_effects(
    jobs: Submissions, weights: Weights, *, steps: tuple[float, float], rng: np.random.Generator
) -> Floats:
    """Weighted effects of each family and its user, one per family."""
    user_of = np.zeros(int(jobs.family.max()) + 1, dtype=np.int64)
    user_of[jobs.family] = jobs.user
    user = _spread_normals(int(jobs.user.max()) + 1, steps[0], rng)[user_of]
    return np.asarray(weights[0] * user + weights[1] * _spread_normals(len(user_of), steps[1], rng))


def _score(
    jobs: Submissions, weights: Weights, *, lasting: Floats, rng: np.random.Generator, noise: Floats | float = 1.0
) -> Floats:
    """Sum of the weighted effects of user and family (``lasting``), version, session and job."""
    score = lasting[jobs.family]
    score += weights[2] * rng.standard_normal(int(jobs.version.max()) + 1)[jobs.version]
    score += weights[3] * rng.standard_normal(int(jobs.session.max()) + 1)[jobs.session]
    score += weights[4] * noise * rng.standard_normal(len(score))
    return score


def _spread_normals(count: int, step: float, rng: np.random.Generator) -> Floats:
    """Normal quantiles of an additive recurrence with a random start: neighbours differ, any run covers the range."""
    return np.asarray(ndtri(np.clip((rng.random() + step * np.arange(count)) % 1.0, 1e-9, 1 - 1e-9)))
