"""Predictions in closed loop: each job is predicted at its submission, from the jobs that have ended in the replay.

What ends at an instant is known to the jobs that are submitted at it. What is learnt of a job is its duration: its run
time on the hardware of the log, pauses and waste out, whatever hardware it ran on here. CPU jobs and rejected jobs take
no part, so that nothing is learnt of them; a job that ends at its time limit teaches that it ran for so long.

``RollingPrediction`` runs inside the compiled loop. Anything else is a ``Forecaster``: an object of your own that is
called back once at every instant at which jobs are submitted.

With ``refresh_s`` all jobs that wait or run are predicted again, from what has ended by then and given their *age*: the
work that a job has done and not lost (time on the hardware of the log, restarts out), 0 for one that has not started.
That happens at the first instant of the replay (something ends, arrives, happens to a node or changes a key) that is at
least ``refresh_s`` after the first submission, then after the last time; after the ends of the instant, before anything
else, and every VC has a scheduling pass at it. ``RollingPrediction`` predicts a job of age 0 as at its submission, and
an older one from those of the last durations only that are longer than its age: the first group with such a one is
asked, and if none has any the prediction stays as it was. A prediction that comes out the same changes nothing. A new
one is the job's total: it gives its place in the order while it waits (also if it was killed or preempted), and

* under EASY the end of its run (one that has passed counts as ending 1 us from now, as ever);
* under conservative backfill the end of its run, unless that has passed, its corrections beginning anew; where one has
  changed, all promises of the VC are void, and everybody who waits is planned anew in the order of submission;
* under srtf its remaining time, as if it had been predicted so at its last start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.errors import UnknownNameError, UsageError
from analysis.replay._bits import I64
from analysis.replay._closed import F64, IS_ROLLING, Closed
from analysis.replay._jobs import LONGEST_US, US, to_us
from analysis.replay._moving import _ratio_table
from analysis.replay._order import key_values
from analysis.replay._prepare import Prepared, _densify
from analysis.replay._renew import make_renewal
from analysis.replay.policies import MovingKey, Policy
from analysis.replay.teacher import Teacher, answer, known_at_submission

__all__ = ["Forecaster", "RefreshingForecaster", "RollingPrediction"]

Grouping = tuple[str, ...]
DAY_S: Final = 86_400


@dataclass(frozen=True)
class RollingPrediction:
    """Mean or median duration of the last jobs of the same group that have ended in the replay.

    Attributes
    ----------
    statistic : {"median", "mean"}
        In whole microseconds, rounded down; the median of an even number is the mean of the two in the middle.
    last : int
        How many jobs at most.
    groups : tuple of tuples of str
        Columns of the jobs table that jobs of a group have in common: the first group that any job has ended of is
        asked, () is all jobs. A job whose value is null in one of the columns has no such group.
    default_s : float
        Predicted before any job of any of its groups has ended. [s]
    refresh_s : float, optional
        Jobs that wait or run are predicted again, at instants that are at least so far apart; None: each job is
        predicted once, at its submission. [s]

    Raises
    ------
    UsageError
        If a value makes no sense.

    References
    ----------
    .. [1] D. Tsafrir, Y. Etsion, D. G. Feitelson, "Backfilling Using System-Generated Predictions Rather than User
       Runtime Estimates", IEEE TPDS 18(6), 2007, doi:10.1109/TPDS.2007.70606: the mean of the user's last two.

    Examples
    --------
    >>> RollingPrediction("mean", last=2, groups=(("user",),)).name
    'rolling_mean_2(user)'
    """

    statistic: Literal["median", "mean"] = "median"
    last: int = 20
    groups: tuple[Grouping, ...] = (("vc", "num_gpus"), ("vc",), ())
    default_s: float = 3600.0
    refresh_s: float | None = None

    def __post_init__(self) -> None:
        wrong = []
        if self.statistic not in {"median", "mean"}:
            wrong.append(f"statistic is {self.statistic!r}, expected 'median' or 'mean'")
        if not (isinstance(self.last, int) and 1 <= self.last <= 100_000):
            wrong.append(f"last is {self.last!r}, expected a whole number from 1 to 100,000")
        if not 0 <= self.default_s < np.inf:
            wrong.append(f"default_s is {self.default_s!r}, expected seconds, 0 or more")
        if self.refresh_s is not None:
            wrong += wrong_refresh(self.refresh_s)
        if any(isinstance(group, str) for group in self.groups) or isinstance(self.groups, str):
            wrong.append(f"groups are {self.groups!r}, expected tuples of columns, e.g. (('user', 'num_gpus'), ())")
        if wrong:
            msg = f"rolling prediction: {'; '.join(wrong)}."
            raise UsageError(msg)

    @property
    def name(self) -> str:
        """What a result calls it."""
        groups = ", ".join("+".join(group) or "all" for group in self.groups)
        again = "" if self.refresh_s is None else f" every {self.refresh_s:g} s"
        return f"rolling_{self.statistic}_{self.last}({groups}){again}"

    @property
    def columns(self) -> list[str]:
        """Columns that it reads."""
        return list(dict.fromkeys(name for group in self.groups for name in group))


@runtime_checkable
class Forecaster(Protocol):
    """Something that predicts jobs while a replay runs.

    Rows are numbers of jobs in the order (submit_time, job_id), from 0; instants are seconds from the first
    submission.
    """

    name: str

    def begin(self, jobs: pl.DataFrame) -> None:
        """Take the jobs that will be replayed, a row each, without the columns that are known only at their end."""

    def ended(self, rows: I64, duration_s: F64, now_s: float) -> None:
        """Learn how long jobs took that have ended since the last call, by ``now_s``, in the order of their ends."""

    def predict(self, rows: I64, now_s: float) -> npt.ArrayLike:
        """Predict the durations of the jobs that are submitted now, one for each row [s]."""


@runtime_checkable
class RefreshingForecaster(Forecaster, Protocol):
    """A ``Forecaster`` that is asked again for jobs that wait or run, at instants at least ``refresh_s`` apart [s]."""

    refresh_s: float

    def repredict(self, rows: I64, age_s: F64, is_running: npt.NDArray[np.bool_], now_s: float) -> npt.ArrayLike:
        """Predict the total durations of all jobs that wait or run, one for each row in rising order [s].

        ``age_s`` is the work that each has done and not lost. What ends now has been told before; who is submitted now
        is asked for afterwards, by ``predict``.
        """


def refresh_us(predicted: object) -> int:
    """Microseconds from one time at which jobs are predicted again to the next; 0 if they are predicted once.

    Raises
    ------
    UsageError
        If a forecaster asks for what it cannot do, or for times that make no sense.
    """
    every = getattr(predicted, "refresh_s", None)
    if every is None or not is_closed(predicted):
        return 0
    wrong = wrong_refresh(every)
    if not isinstance(predicted, RollingPrediction | RefreshingForecaster):
        wrong.append("it has no method repredict(rows, age_s, is_running, now_s)")
    if wrong:
        name = getattr(predicted, "name", predicted)
        msg = (
            f"replay: forecaster {name!r} asks to be refreshed, but {' and '.join(wrong)}. Give it what is missing "
            "(see analysis.replay.closed_loop.RefreshingForecaster), or set its refresh_s to None."
        )
        raise UsageError(msg)
    us: int = round(min(every * US, LONGEST_US))
    return us


def wrong_refresh(every: Any) -> list[str]:
    """What is wrong with seconds from one time to the next; nothing if they will do."""
    is_number = isinstance(every, int | float) and not isinstance(every, bool)
    if is_number and 1 / US <= every < np.inf:
        return []
    return [f"refresh_s is {every!r}, expected seconds, at least 0.000001, or None"]


def is_closed(predicted: object) -> bool:
    """Tell whether predictions are made in the replay.

    Raises
    ------
    UsageError
        If it is neither that nor the name of a column.
    """
    if predicted is None or isinstance(predicted, str):
        return False
    if isinstance(predicted, RollingPrediction | Forecaster):
        return True
    msg = (
        f"replay: predicted is a {type(predicted).__name__}; expected the name of a column, a RollingPrediction, or an "
        "object with name, begin, ended and predict (see analysis.replay.closed_loop.Forecaster)."
    )
    raise UsageError(msg)


def check_columns(predicted: object, jobs: pl.DataFrame) -> list[str]:
    """Columns that predictions read.

    Raises
    ------
    UnknownNameError
        If the jobs table lacks one; the message lists those it has.
    """
    columns = predicted.columns if isinstance(predicted, RollingPrediction) else []
    for name in columns:
        if name not in jobs.columns:
            hint = "Group by columns that the log has."
            raise UnknownNameError(kind="column to group jobs by", found=name, known=jobs.columns, hint=hint)
    return columns


def prepare_closed(
    predicted: RollingPrediction | Forecaster | str | None, policy: Policy, prepared: Prepared, jobs: pl.DataFrame
) -> tuple[Prepared, Teacher]:
    """Lay out what is learnt, empty, in place of predictions that stand beforehand.

    Raises
    ------
    UsageError
        If the policy cannot do with predictions that are made at the submission.
    """
    offset, slope = _key_line(policy, prepared)
    rolling = predicted if isinstance(predicted, RollingPrediction) else RollingPrediction(last=1, groups=())
    closed = _make_closed(rolling, prepared, offset=offset, slope=slope)
    if every := refresh_us(predicted):
        facts = {"num_jobs": len(prepared.accepted), "num_groups": len(closed.seen), "every_us": every}
        closed = closed._replace(renewal=make_renewal(**facts))
    ask = None
    if not isinstance(predicted, RollingPrediction):
        closed.rule[IS_ROLLING] = 0
        forecaster = cast("Forecaster", predicted)
        forecaster.begin(known_at_submission(jobs, prepared))
        ask = answer(forecaster, closed, prepared)
    name = str(getattr(predicted, "name", "forecaster"))
    return replace(prepared, predicted=closed.on_types, predicted_log=closed.guess), Teacher(name, closed, ask)


def _make_closed(rolling: RollingPrediction, prepared: Prepared, *, offset: F64, slope: F64) -> Closed:
    n = len(prepared.accepted)
    group = _groups(rolling.groups, prepared)
    num_groups = int(group.max(initial=-1)) + 1
    facts = [rolling.last, rolling.statistic == "median", round(rolling.default_s * US), True]
    return Closed(
        rule=np.array(facts, dtype=np.int64),
        group=group,
        ring=np.zeros(num_groups * rolling.last, dtype=np.int64),
        seen=np.zeros(num_groups, dtype=np.int64),
        value=to_us(prepared.jobs["duration_s"][prepared.accepted]),
        ratio=_ratio_table(prepared),
        guess=np.zeros(n, dtype=np.int64),
        on_types=np.zeros((n, len(prepared.ratios)), dtype=np.int64),
        offset=offset,
        slope=slope,
        key=np.zeros(n),
        ended=np.empty(n, dtype=np.int64),
        num_ended=np.zeros(2, dtype=np.int64),
        scratch=np.empty(rolling.last, dtype=np.int64),
    )


def _groups(groups: tuple[Grouping, ...], prepared: Prepared) -> I64:
    """Number of every job's group on every level, no number twice; -1 where a value is null."""
    n = len(prepared.accepted)
    levels = np.zeros((len(groups), n), dtype=np.int64)
    base = 0
    for level, names in enumerate(groups):
        code, is_null = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
        for name in names:
            values = prepared.jobs[name][prepared.accepted]
            dense = values.rank("dense").fill_null(0).cast(pl.Int64).to_numpy()
            code, _ = _densify(code * (int(dense.max(initial=0)) + 1) + dense)
            is_null |= values.is_null().to_numpy()
        levels[level] = np.where(is_null, -1, base + code)
        base += int(code.max(initial=-1)) + 1
    return levels


def _key_line(policy: Policy, prepared: Prepared) -> tuple[F64, F64]:
    """Every job's key as a line over its prediction: the key at 0, and its growth by the microsecond.

    Scaled so that the line is exact where the key is a whole number times the prediction.
    """
    n = len(prepared.accepted)
    nothing = np.zeros(n)
    if isinstance(policy.rule, MovingKey):
        if policy.rule.kind == "levels" and "predicted_duration_s" in policy.rule.needs:
            raise _refusal(policy, "needs the predictions of all jobs before the first")
        return nothing, nothing
    if not isinstance(policy.rule, pl.Expr):
        raise _refusal(policy, "is a Python function")
    if policy.trait == "fastest":
        raise _refusal(policy, "orders (job, type) pairs")
    if "predicted_duration_s" not in policy.needs:
        return nothing, nothing
    at = [key_values(policy, prepared, np.full(n, us, dtype=np.int64)) for us in (0, US, DAY_S * US)]
    low, one, day = (values.astype(np.float64) for values in at)
    rise = one - low
    if not np.allclose(low + DAY_S * rise, day, rtol=1e-9, atol=0):
        raise _refusal(policy, "has a key that is no line over predicted_duration_s")
    if policy.trait != "skip" and policy.trait != "strict" and np.any(rise != 0):
        raise _refusal(policy, "reserves in an order that depends on predictions")
    per_us = rise / US
    if np.all(per_us == np.rint(per_us)):
        return low, per_us
    return low * US, rise


def _refusal(policy: Policy, why: str) -> UsageError:
    return UsageError(
        f"replay: policy {policy.name!r} {why}, so that it cannot have predictions in closed loop. Take one like sjf, "
        "qssf, ljf (strict or skip), easy, conservative or srtf, or give predictions as a column."
    )
