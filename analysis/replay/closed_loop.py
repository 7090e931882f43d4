"""Predictions in closed loop: each job is predicted at its submission, from the jobs that have ended in the replay.

What ends at an instant is known to the jobs that are submitted at it. What is learnt of a job is its duration: its run
time on the hardware of the log, pauses and waste out, whatever hardware it ran on here. CPU jobs and rejected jobs take
no part, so that nothing is learnt of them; a job that ends at its time limit teaches that it ran for so long.

``RollingPrediction`` runs inside the compiled loop. Anything else is a ``Forecaster``: an object of your own that is
called back once at every instant at which jobs are submitted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.errors import HindcastError, UnknownNameError, UsageError
from analysis.replay._bits import I64
from analysis.replay._closed import F64, IS_ROLLING, Closed
from analysis.replay._jobs import US, to_us
from analysis.replay._moving import _ratio_table
from analysis.replay._order import key_values
from analysis.replay._prepare import Prepared, _densify
from analysis.replay._state import KNOWN, NEXT, NOW, Log
from analysis.replay.policies import MovingKey, Policy

__all__ = ["Forecaster", "RollingPrediction"]

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

    def __post_init__(self) -> None:
        wrong = []
        if self.statistic not in {"median", "mean"}:
            wrong.append(f"statistic is {self.statistic!r}, expected 'median' or 'mean'")
        if not (isinstance(self.last, int) and 1 <= self.last <= 100_000):
            wrong.append(f"last is {self.last!r}, expected a whole number from 1 to 100,000")
        if not 0 <= self.default_s < np.inf:
            wrong.append(f"default_s is {self.default_s!r}, expected seconds, 0 or more")
        if any(isinstance(group, str) for group in self.groups) or isinstance(self.groups, str):
            wrong.append(f"groups are {self.groups!r}, expected tuples of columns, e.g. (('user', 'num_gpus'), ())")
        if wrong:
            msg = f"rolling prediction: {'; '.join(wrong)}."
            raise UsageError(msg)

    @property
    def name(self) -> str:
        """What a result calls it."""
        groups = ", ".join("+".join(group) or "all" for group in self.groups)
        return f"rolling_{self.statistic}_{self.last}({groups})"

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


@dataclass(frozen=True)
class Teacher:
    """Predictions of one replay.

    Attributes
    ----------
    name : str
        What a result calls it.
    closed : Closed
        What the loop keeps.
    answer : callable of Log, or None
        Predicts jobs from Python; None where the loop does it.
    """

    name: str
    closed: Closed
    answer: Callable[[Log], None] | None


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


def known_at_submission(jobs: pl.DataFrame, prepared: Prepared) -> pl.DataFrame:
    """Rows of the jobs that take part, in their order, without what is known only at their end."""
    from analysis.replay.steps._scene import OUTCOMES

    ids = prepared.jobs.select("job_id")[prepared.accepted]
    return ids.join(jobs.drop(OUTCOMES, strict=False), on="job_id", how="left", maintain_order="left")


def answer(forecaster: Forecaster, closed: Closed, prepared: Prepared) -> Callable[[Log], None]:
    """What is done whenever the loop asks: tell what has ended, and predict whoever is submitted now."""
    told = 0

    def predict(log: Log) -> None:
        nonlocal told
        first, now = int(log.counters[NEXT]), int(log.counters[NOW])
        stop = int(np.searchsorted(prepared.submit, now, side="right"))
        rows = np.arange(first, stop, dtype=np.int64)
        ended = closed.ended[told : int(closed.num_ended[0])].copy()
        told += len(ended)
        if len(ended):
            forecaster.ended(ended, closed.value[ended] / US, now / US)
        closed.guess[first:stop] = _as_us(forecaster.predict(rows, now / US), rows, forecaster)
        log.counters[KNOWN] = stop

    return predict


def _as_us(seconds: Any, rows: I64, forecaster: Forecaster) -> I64:
    values = np.asarray(seconds, dtype=np.float64)
    if values.shape != rows.shape or not np.all(np.isfinite(values)) or np.any(values < 0):
        found = f"{values.shape} values" if values.shape != rows.shape else f"{values[:3].tolist()}"
        msg = (
            f"replay: predict of {getattr(forecaster, 'name', forecaster)!r} gave {found} for {len(rows)} jobs (first "
            f"row {rows[0]}); expected one finite number of seconds, 0 or more, for each."
        )
        raise HindcastError(msg)
    return to_us(pl.Series(values))
