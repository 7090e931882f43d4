"""Conformal calibration: how far a predictor's quantiles were off on jobs that had ended, added to what it says now.

A stream of past predictions is ordered by the instant at which each job ended. A prediction that is asked for at an
instant sees only jobs that had ended strictly before it: feedback is delayed as in life. MAPIE
(``TimeSeriesRegressor.update``) and crepes (``calibrate``) hold one calibration set at a time and know no instants of
feedback, so that a log whose jobs end in another order than they came would need one call of Python per job; hence the
passes of ``predictors.calibration_kernels``.

Methods, the default last:

none
    What the predictor says; of a point, its errors in the training log.
split
    The errors on the training log, once and for all.
rolling
    The errors of the last 2,000 jobs that had ended, both ends moved alike.
adaptive
    As rolling, and the level follows the misses: adaptive conformal inference, with its feedback delayed.
owner
    First the errors of the user's own last 200 ended jobs, mixed with those of all (which weigh as 100 of them): users
    differ in how predictable they are. Then both ends are moved alike by the errors that these intervals made on the
    last 2,000 or the last 5,000 ended jobs, whichever were larger, since what has ended says too little of the long
    jobs that still run. Chosen among 35 variants on two origins inside the first 60 % of KTH, RICC, Philly, Graham.
owner_running
    As owner, and jobs that still run count too: their errors are known from below (Kaplan-Meier). Wider; on the same
    origins nearer to what was asked on Graham, on later jobs it covered too much on RICC and Philly.
alike
    The default. First come the errors of jobs alike: everybody's of a like prediction and a like distance of it to the
    limit, then the owner's of a like prediction. Each fades with every further job, counts jobs of one batch less the
    more of it have come, and gives way to the one above where it has little to tell. Then both ends are moved alike,
    halfway between what the last 500 jobs and the larger of what the last 2,000 and 5,000 ask for. Chosen among some 60
    variants on weekly refits between 30 and 60 % of KTH, RICC, Philly and Graham, all with the default predictor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from analysis.errors import UnknownNameError
from predictors import calibration_alike as alike
from predictors.calibration_kernels import adaptive_shifts, pooled_shifts, rolling_shifts, surviving_shifts
from predictors.calibration_streams import NEVER, SCORES_TABLE, Asked, Stream

__all__ = [
    "CALIBRATIONS",
    "DEFAULT_CALIBRATION",
    "NEVER",
    "SCORES_TABLE",
    "Asked",
    "Stream",
    "calibrated_log_quantiles",
]

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
#: Jobs whose errors are looked at: the last so many that had ended.
WINDOW: Final = 2000
SHORT_WINDOW: Final = 500
LONG_WINDOW: Final = 5000
#: Of the same owner so many; all others together weigh as much as so many of them.
OWN_WINDOW: Final = 200
OTHERS_WEIGHT: Final = 100.0
#: Step of adaptive conformal inference.
STEP: Final = 0.005
#: Levels of a calibrated distribution where the predictor has none of its own but a point.
POINT_LEVELS: Final = np.array([0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99])
#: So many made-up errors stand beside the true ones: a prior that gives way as jobs end.
NUM_PRIOR: Final = 10
#: Standard deviation of the prior's log error for a point, and of a predictor that has quantiles of its own.
PRIOR_SPREAD: Final = (2.0, 1.0)


@dataclass(frozen=True)
class _Work:
    """Quantiles of the stream's jobs and of the rows asked for, as a method moves them."""

    levels: Numbers
    stream: Stream
    rows: Asked
    past_log: Numbers  # (jobs, levels)
    now_log: Numbers  # (rows, levels)
    is_point: bool

    def bounded(self, past_log: Numbers, now_log: Numbers) -> _Work:
        """Go on with these quantiles, held beside the median and below the limit."""
        past = _hold(past_log, self.levels, self.stream.asked)
        return _Work(self.levels, self.stream, self.rows, past, _hold(now_log, self.levels, self.rows), self.is_point)


def _hold(values: Numbers, levels: Numbers, asked: Asked) -> Numbers:
    """Hold lower quantiles below and higher ones above the median, and all in order, at least 0, below the limit."""
    middle = 0 if asked.raw_log.shape[1] == 1 else int(np.argmin(np.abs(levels - 0.5)))
    median = asked.raw_log[:, [middle]]
    upper = np.where(levels > 0.5, np.maximum(values, median), median)
    held = np.where(levels < 0.5, np.minimum(values, median), upper)
    # Sorted, crossing quantiles are never further from the truth (Chernozhukov et al., doi:10.3982/ECTA7880).
    return np.sort(np.clip(held, 0.0, np.maximum(asked.limit_log[:, None], median)), axis=1)


def calibrated_log_quantiles(
    rows: Asked, *, levels: Numbers, stream: Stream, method: str = "alike"
) -> tuple[Numbers, Numbers]:
    """Calibrate quantiles with the errors on jobs that had ended.

    Parameters
    ----------
    rows : Asked
        Predictions asked for.
    levels : array of float, shape (levels,)
        Of their columns, with 0.5 among them; of a point [0.5].
    stream : Stream
        Past predictions with their outcome.
    method : str, default "alike"
        One of ``CALIBRATIONS``; see the module.

    Returns
    -------
    levels : array of float, shape (out,)
        ``levels``; of a point ``POINT_LEVELS``.
    log_quantiles : array of float, shape (rows, out)
        Not descending along a row; that of 0.5 is the predictor's own.

    Raises
    ------
    UnknownNameError
        If there is no such method.

    References
    ----------
    .. [1] Y. Romano, E. Patterson and E. Candès, "Conformalized Quantile Regression", NeurIPS 2019, arXiv:1905.03222.
    .. [2] I. Gibbs and E. Candès, "Adaptive Conformal Inference Under Distribution Shift", NeurIPS 2021,
       arXiv:2106.00170.
    """
    if method not in CALIBRATIONS:
        raise UnknownNameError(kind="calibration", found=method, known=CALIBRATIONS)
    is_point = len(levels) == 1
    out = POINT_LEVELS if is_point else levels
    wide = np.ones((1, len(out))) if is_point else np.ones((1, 1))
    work = _Work(out, stream, rows, stream.asked.raw_log * wide, rows.raw_log * wide, is_point)
    work = CALIBRATIONS[method](work.bounded(work.past_log, work.now_log))
    return out, work.now_log


def _none(work: _Work) -> _Work:
    return _split(work) if work.is_point else work


def _split(work: _Work) -> _Work:
    trained = work.stream.num_trained
    return _move_each(work, stops=np.full(len(work.now_log), trained), window=max(trained, 1))


def _rolling(work: _Work) -> _Work:
    if work.is_point:
        return _move_each(work, stops=work.stream.known_at(work.rows.asked_us), window=WINDOW)
    return _move_pairs(work, windows=(WINDOW,))


def _adaptive(work: _Work) -> _Work:
    return _move_pairs(_pool(work) if work.is_point else work, windows=(WINDOW,), kind="adaptive")


def _owner(work: _Work) -> _Work:
    return _move_pairs(_pool(work), windows=(WINDOW, LONG_WINDOW))


def _alike(work: _Work) -> _Work:
    windows = (SHORT_WINDOW, WINDOW, LONG_WINDOW)
    return _move_pairs(_pool_alike(work), windows=windows, join=_between)


def _between(shifts: list[Numbers]) -> Numbers:
    """Halfway between what the last few jobs ask for and the larger of what many do."""
    return np.asarray((shifts[0] + np.maximum(*shifts[1:])) / 2)


def _largest(shifts: list[Numbers]) -> Numbers:
    return np.asarray(np.max(shifts, axis=0))


def _owner_running(work: _Work) -> _Work:
    return _move_pairs(_pool(work), windows=(WINDOW, LONG_WINDOW), kind="surviving")


def _prior(level: float, *, is_point: bool) -> Numbers:
    """Errors that are made up: of a point a normal error, of a quantile one that says that it is right."""
    z = ndtri((np.arange(NUM_PRIOR) + 0.5) / NUM_PRIOR)
    return np.asarray(PRIOR_SPREAD[0] * z if is_point else PRIOR_SPREAD[1] * (z - ndtri(level)))


def _move_each(work: _Work, *, stops: Integers, window: int) -> _Work:
    """Move the quantile of each level by that quantile of its errors among the last jobs before each stop."""
    now = work.now_log.copy()
    order = np.argsort(stops, kind="stable")
    for place, level in enumerate(work.levels):
        errors = work.stream.true_log - work.past_log[:, place]
        prior = _prior(level, is_point=work.is_point)
        now[order, place] += rolling_shifts(errors, stops[order], level, prior, window)
    return work.bounded(work.past_log, now)


def _both(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([first, second])


def _owners(work: _Work) -> Integers:
    """Number of the owner of each past job, then of each row; -1 = nobody known."""
    everybody = pl.concat([work.stream.asked.owner, work.rows.owner])
    return (everybody.rank("dense").cast(pl.Int64).fill_null(0) - 1).to_numpy()


def _stage(work: _Work, shifts: Callable[[Numbers, Integers, Integers, Integers], Numbers], *, first: int = 0) -> _Work:
    """Move each level by what ``shifts`` says, also for past jobs as of their own instants.

    It is given the errors of the past jobs, how many of them each past job and row knows, ascending, the places of
    these among past jobs and rows, and the places of the levels. Past jobs before ``first`` stay as they are.
    """
    past, now = work.past_log.copy(), work.now_log.copy()
    then = np.searchsorted(work.stream.end_us, work.stream.asked.asked_us, side="left")
    stops = _both(then, work.stream.known_at(work.rows.asked_us))
    order = first + np.argsort(stops[first:], kind="stable")
    groups = [np.arange(len(work.levels))] if work.is_point else [np.array([i]) for i in range(len(work.levels))]
    for places in groups:
        found = np.zeros((len(stops), len(places)))
        found[order] = shifts(work.stream.true_log - work.past_log[:, places[0]], stops[order], order, places)
        past[:, places] += found[: len(past)]
        now[:, places] += found[len(past) :]
    return work.bounded(past, now)


def _pool(work: _Work) -> _Work:
    """Move each level by its errors among the owner's jobs and all."""
    owners, num_past = _owners(work), len(work.past_log)

    def shifts(errors: Numbers, stops: Integers, order: Integers, places: Integers) -> Numbers:
        prior = np.sort(_prior(work.levels[places[0]], is_point=work.is_point))
        asking, pooling = owners[order], (WINDOW, OWN_WINDOW, OTHERS_WEIGHT)
        found = pooled_shifts(errors, owners[:num_past], stops, asking, work.levels[places], prior, pooling)
        return np.asarray(found)

    return _stage(work, shifts)


def _pool_alike(work: _Work) -> _Work:
    """Move each level by its errors among jobs alike."""
    owners, num_past, middle = _owners(work), len(work.past_log), int(np.argmin(np.abs(work.levels - 0.5)))
    past, rows = work.stream.asked, work.rows
    limit_log = _both(past.limit_log, rows.limit_log)
    keys = alike.keys_alike(_both(work.past_log[:, middle], work.now_log[:, middle]), limit_log, owners)
    batch = alike.batches(_both(past.asked_us, rows.asked_us), limit_log, owners)[:num_past]

    def shifts(errors: Numbers, stops: Integers, order: Integers, places: Integers) -> Numbers:
        told = alike.Errors(alike.bins_of(errors), np.ascontiguousarray(keys[:, :num_past]), batch)
        asking = alike.Rows(stops, np.ascontiguousarray(keys[:, order]))
        prior = alike.prior_shares(_prior(work.levels[places[0]], is_point=work.is_point))
        return np.asarray(alike.alike_shifts(told, asking, alike.FADING, work.levels[places], prior, alike.EDGES))

    # The second stage looks no further back than its longest window.
    known = work.stream.known_at(rows.asked_us)
    return _stage(work, shifts, first=max(int(known.min(initial=num_past)) - LONG_WINDOW, 0))


def _move_pairs(
    work: _Work, *, windows: tuple[int, ...], kind: str = "rolling", join: Callable[[list[Numbers]], Numbers] = _largest
) -> _Work:
    """Move both ends of each central interval alike, by its errors in several windows, joined.

    A level without a counterpart stays as it is.
    """
    now = work.now_log.copy()
    stops = work.stream.known_at(work.rows.asked_us)
    order = np.argsort(stops, kind="stable")
    truth = work.stream.true_log
    for place, level in enumerate(work.levels):
        other = int(np.argmin(np.abs(work.levels - (1 - level))))
        if level >= 0.5 or abs(work.levels[other] + level - 1) > 1e-9:
            continue
        errors = np.maximum(work.past_log[:, place] - truth, truth - work.past_log[:, other])
        wanted = float(1 - 2 * level)
        shifts = [_shifts(work, errors, stops[order], wanted, other, window, kind) for window in windows]
        shift = join(shifts)
        now[order, place] -= shift
        now[order, other] += shift
    return work.bounded(work.past_log, now)


def _shifts(work: _Work, errors: Numbers, stops: Integers, level: float, upper: int, window: int, kind: str) -> Numbers:
    """How far both ends are moved at each stop; ``upper`` is the place of the upper end."""
    prior, stream = _prior(level, is_point=False), work.stream
    if kind == "adaptive":
        then = np.searchsorted(stream.end_us, stream.asked.asked_us, side="left")
        return np.asarray(adaptive_shifts(errors, then, stops, level, prior, (window, STEP)))
    if kind == "surviving":
        spans = (stream.start_us, stream.end_us, np.argsort(stream.start_us, kind="stable"))
        return np.asarray(surviving_shifts(errors, work.past_log[:, upper], spans, stops, level, prior, window))
    return np.asarray(rolling_shifts(errors, stops, level, prior, window))


#: Methods by name.
CALIBRATIONS: Final[dict[str, Callable[[_Work], _Work]]] = {
    "none": _none,
    "split": _split,
    "rolling": _rolling,
    "adaptive": _adaptive,
    "owner": _owner,
    "alike": _alike,
    "owner_running": _owner_running,
}
DEFAULT_CALIBRATION: Final = "alike"
