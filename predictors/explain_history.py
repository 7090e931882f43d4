"""Which ended jobs are like a job: by owner, name, size and limit, from the most alike to everybody's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import singledispatch
from typing import Any, Final

import polars as pl

from predictors.asking import ASKED
from predictors.base import DurationPredictor
from predictors.baselines import GlobalMedian, RequestedLimit, _BackOff
from predictors.history import key_columns
from predictors.history_keys import HISTORY_KEYS

__all__ = ["Likeness", "PastJob", "ended_before", "like_jobs", "likenesses", "of_owner", "owner_of"]

#: Whose ended jobs are looked at, the most alike first: what is shared -> columns. The limit may be null on both sides.
ALIKE: Final[Mapping[str, tuple[str, ...]]] = {
    "same owner, name, size and limit": ("owner", "job_family", "size", "time_limit_s"),
    "same owner, size and limit": ("owner", "size", "time_limit_s"),
    "same owner and name": ("owner", "job_family"),
    "same owner": ("owner",),
    "same group": ("group",),
    "same VC and size": ("vc", "size"),
    "same VC": ("vc",),
    "all jobs": (),
}
_WORDS: Final = {"user": "user", "vc": "VC", "size": "size", "time_limit_s": "limit"}


@dataclass(frozen=True)
class PastJob:
    """A job that had ended before the instant of asking.

    Attributes
    ----------
    job_id, job_name : str or None
        Null name = none is known.
    size : float or None
        GPUs; below 0 = CPUs of a CPU job.
    time_limit_s, duration_s, ended_ago_s : float or None
        Requested limit (null = none), how long it ran, and how long ago it ended. [s]
    outcome : {"ended", "broke", "killed"}
        Killed: cancelled, or cut off at its limit.
    without_it_s : float or None
        What would be predicted had this job not been; null = that was not asked for. [s]
    """

    job_id: str
    job_name: str | None
    size: float | None
    time_limit_s: float | None
    duration_s: float
    ended_ago_s: float
    outcome: str
    without_it_s: float | None = None


@dataclass(frozen=True)
class Likeness:
    """How many ended jobs share something with a job, and how long they ran.

    Attributes
    ----------
    shares : str
        What they share with it.
    num_jobs : int
        Jobs that had ended before the instant of asking (without those that broke, where these do not teach).
    median_s, last_s, last_ago_s : float or None
        Median of the last 20, the last one, and how long ago it ended; null = there is none. [s]
    """

    shares: str
    num_jobs: int
    median_s: float | None
    last_s: float | None
    last_ago_s: float | None


@singledispatch
def likenesses(model: DurationPredictor) -> Mapping[str, tuple[str, ...]]:
    """What past jobs must share with a job to be shown as like it, by words, the most alike first.

    A predictor that looks at other jobs registers its own; empty = it looks at no single past job.
    """
    del model
    return ALIKE


@likenesses.register(GlobalMedian)
@likenesses.register(RequestedLimit)
def _no_history(model: DurationPredictor) -> Mapping[str, tuple[str, ...]]:
    del model
    return {}


@likenesses.register(_BackOff)
def _keys_of_rule(model: _BackOff) -> Mapping[str, tuple[str, ...]]:
    return {f"same {' and '.join(_WORDS[name] for name in HISTORY_KEYS[key])}": HISTORY_KEYS[key] for key in model.keys}


def owner_of() -> pl.Expr:
    """Whose past a job has: its user's, or where there is none its account's, or else its VC's."""
    return pl.coalesce("user", "account", "vc").alias("owner")


def with_owner(past: pl.DataFrame) -> pl.DataFrame:
    """Past jobs with a column ``owner``; where the table does not tell accounts, the user or else the VC."""
    return past if "owner" in past.columns else past.with_columns(owner=pl.coalesce("user", "vc"))


def of_owner(past: pl.DataFrame, asked: pl.DataFrame) -> pl.Series:
    """Which past jobs are the owner's of the one job that is asked about."""
    owner = asked.select(owner_of()).item()
    is_own = pl.lit(value=False) if owner is None else (pl.col("owner") == owner).fill_null(value=False)
    return with_owner(past).select(is_own=is_own if past.height else pl.lit(value=False))["is_own"]


def had_ended(asked: pl.DataFrame) -> pl.Expr:
    """Whether a past job had ended strictly before the instant; null if that is not known."""
    return pl.col("end_time") < pl.lit(asked[ASKED][0], asked.schema[ASKED])


def ended_before(past: pl.DataFrame, asked: pl.DataFrame, *, failures: str) -> pl.DataFrame:
    """Past jobs that had ended strictly before the instant and teach, in the order of their ends."""
    is_told = had_ended(asked)
    if failures == "exclude":
        is_told &= ~pl.col("is_failure").fill_null(value=False)
    return with_owner(past.filter(is_told)).sort("end_time", maintain_order=True)


def _keys_of(asked: pl.DataFrame) -> dict[str, Any]:
    return asked.select(owner_of(), **key_columns()).row(0, named=True)


def _lacks(asked: pl.DataFrame, columns: Sequence[str]) -> bool:
    job = _keys_of(asked)
    return any(job[name] is None for name in columns if name != "time_limit_s")


def shared(ended: pl.DataFrame, asked: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Ended jobs that agree with the job in all columns; none if one but the limit is null."""
    if _lacks(asked, columns):
        return ended.head(0)
    if not columns:
        return ended
    job = _keys_of(asked)
    return ended.filter([pl.col(name).eq_missing(pl.lit(job[name], ended.schema[name])) for name in columns])


def count_alike(
    ended: pl.DataFrame, asked: pl.DataFrame, levels: Mapping[str, tuple[str, ...]], *, last: int = 20
) -> list[Likeness]:
    """How many ended jobs there are on each level of likeness that the job has the columns for."""
    found = []
    for words, columns in levels.items():
        if _lacks(asked, columns):
            continue
        part = shared(ended, asked, columns)
        tail = part.tail(1).row(0, named=True) if part.height else None
        found.append(
            Likeness(
                shares=words,
                num_jobs=part.height,
                median_s=_number(part["duration_s"].tail(last).median()),
                last_s=None if tail is None else tail["duration_s"],
                last_ago_s=None if tail is None else _ago(asked[ASKED][0], tail["end_time"]),
            )
        )
    return found


def like_jobs(
    ended: pl.DataFrame, asked: pl.DataFrame, levels: Mapping[str, tuple[str, ...]], *, most: int
) -> tuple[str | None, list[PastJob]]:
    """The last ended jobs of the first level that has any, the newest first, and what they share (null: none had)."""
    for words, columns in levels.items():
        part = shared(ended, asked, columns)
        if part.height:
            rows = part.tail(most).reverse().iter_rows(named=True)
            return words, [_past_job(row, asked[ASKED][0]) for row in rows]
    return None, []


def _past_job(row: Mapping[str, object], instant: datetime) -> PastJob:
    fields = {name: row[name] for name in ("job_id", "job_name", "size", "time_limit_s", "duration_s")}
    outcome = "broke" if row["is_failure"] else "killed" if row["is_killed"] else "ended"
    return PastJob(**fields, ended_ago_s=_ago(instant, row["end_time"]), outcome=outcome)  # type: ignore[arg-type]


def _ago(instant: datetime, end: object) -> float:
    assert isinstance(end, datetime)
    return (instant - end).total_seconds()


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
