"""What may be concluded from the times that a source gives: duration, queueing delay, censoring, flags.

Every pattern of missing times has one answer, given here once for all loaders; nothing is ever subtracted from a
sentinel, and a missing time is never a 0.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import polars as pl

from analysis import metrics, schema

__all__ = ["JOB_FLAGS", "Given", "conclude"]

#: Published and derived durations within this count as equal: sources round to whole seconds.
TOLERANCE_S: Final = 1.0
NEVER_RAN: Final = ("cancelled", "pending")
FINAL: Final = ("completed", "failed", "cancelled", "timeout", "node_fail")
#: Flags that `conclude` sets, as boolean columns ``flag_<name>``.
JOB_FLAGS: Final = (
    "clock_skew",
    "times_assumed",
    "duration_mismatch",
    "duration_includes_queue",
    "invalid_times",
    "start_missing",
)


@dataclass(frozen=True)
class Given:
    """Which columns the source has at all.

    Attributes
    ----------
    columns : collection of str
        Names of the columns that the loader gave; the other ones are null throughout.
    """

    columns: Collection[str]

    def has(self, *names: str) -> bool:
        """Whether the loader gave all of these."""
        return all(name in self.columns for name in names)


def _duration_candidates() -> pl.Expr:
    """The duration that the source states, if it states one."""
    return pl.coalesce("duration_s", "published_duration_s")


def _censoring(given: Given) -> pl.Expr:
    no_start, no_end = pl.col("start_time").is_null(), pl.col("end_time").is_null()
    stated = _duration_candidates()
    is_running = (pl.col("status") == "running").fill_null(value=False)
    never_like = pl.col("status").is_in(NEVER_RAN)
    # Without any status a missing start means "never started" only if the source has a column for starts.
    never_like = never_like.fill_null(value=given.has("start_time"))
    never = no_start & never_like & (stated.fill_null(0.0) == 0) if given.has("start_time") else pl.lit(value=False)
    if not given.has("start_time"):
        never = no_start & no_end & stated.is_null() & never_like.fill_null(value=False)
    ended_by_status = pl.col("status").is_in(FINAL).fill_null(value=False)
    return pl.coalesce(
        "censoring",
        pl.when(never)
        .then(pl.lit("never_started"))
        .when(is_running & no_end)
        .then(pl.lit("right"))
        .when(stated.is_not_null() & (no_start | ended_by_status))
        .then(pl.lit("none"))
        .when(no_start & no_end)
        .then(pl.lit("both"))
        .when(no_start)
        .then(pl.lit("left"))
        .when(no_end)
        .then(pl.lit("right"))
        .otherwise(pl.lit("none")),
    ).cast(schema.CENSORING)


def conclude(jobs: pl.LazyFrame, *, given: Given, snapshot: pl.Expr | None = None) -> pl.LazyFrame:
    """Derive duration, queueing delay, censoring and the flags about times.

    Parameters
    ----------
    jobs : LazyFrame, one row per job
        ``status``, ``submit_time``, ``start_time``, ``end_time`` [UTC], ``duration_s`` (the loader's own: if it
        gives this column, nothing else counts), ``published_duration_s`` (the source's, which is compared with the
        time stamps and counts only where they do not give one), ``queueing_delay_s``, ``censoring``; null where
        not known.
    given : Given
        Which of these the source has.
    snapshot : Expr of datetime, optional
        When the log was taken: a job that runs then has run at least until then.

    Returns
    -------
    LazyFrame
        The columns filled, and ``flag_<name>`` for each of ``JOB_FLAGS`` (bool, no nulls).

    Notes
    -----
    ========== ========== ============================ ==========================================
    start      end        further                      censoring, duration
    ========== ========== ============================ ==========================================
    known      known                                   none; end - start
    known      known      end before start             none; null, flag invalid_times
    known      missing                                 right; stated, or until the snapshot, or null
    missing    any        pending, cancelled (or no    never_started; null
                          status at all), none stated
    missing    known      else                         left (stated: none); flag start_missing
    missing    missing    running                      right
    missing    missing    else                         both (stated: none)
    ========== ========== ============================ ==========================================
    """
    start, end, submit = pl.col("start_time"), pl.col("end_time"), pl.col("submit_time")
    jobs = jobs.with_columns(censoring=_censoring(given))
    is_never = pl.col("censoring") == "never_started"
    is_invalid = ((end < start) | (start.is_null() & (end < submit) & ~is_never)).fill_null(value=False)
    negative = (pl.min_horizontal("duration_s", "published_duration_s") < 0).fill_null(value=False)
    until_snapshot = pl.lit(None, dtype=pl.Float64)
    if snapshot is not None:
        ran = (snapshot - start).dt.total_microseconds() / metrics.US_PER_S
        until_snapshot = pl.when((pl.col("censoring") == "right") & (ran >= 0)).then(ran)
    own = ["duration_s"] if given.has("duration_s") else [metrics.span_s(), "published_duration_s"]
    derived = pl.coalesce(*own, until_snapshot)
    derived = pl.when(~is_never & ~negative & (~is_invalid | pl.col("duration_s").is_not_null())).then(derived)
    wait = pl.coalesce(metrics.queueing_delay_s(), pl.col("queueing_delay_s").clip(lower_bound=0))
    return jobs.with_columns(
        **_flags(is_never=is_never, is_invalid=is_invalid | negative, given=given),
        duration_s=derived,
        queueing_delay_s=pl.when(~is_never).then(wait),
    ).with_columns(start_time=pl.when(~is_never).then(start))


def _flags(*, is_never: pl.Expr, is_invalid: pl.Expr, given: Given) -> dict[str, pl.Expr]:
    start, end, submit = pl.col("start_time"), pl.col("end_time"), pl.col("submit_time")
    published = pl.col("published_duration_s")
    jct = metrics.jct_s()
    differs = (published - metrics.span_s()).abs() > TOLERANCE_S
    is_jct = ((published - jct).abs() <= TOLERANCE_S) & (differs | start.is_null())
    is_unseen = pl.col("censoring") == "both"
    assumed = pl.lit(value=not given.has("start_time") and not given.has("end_time"))
    flags = {
        "clock_skew": start < submit,
        "times_assumed": assumed,
        "duration_mismatch": differs,
        "duration_includes_queue": is_jct & ~is_never,
        "invalid_times": is_invalid,
        "start_missing": start.is_null() & (end.is_not_null() | is_unseen) & ~is_never & ~assumed,
    }
    named = {f"flag_{name}": flag.fill_null(value=False) for name, flag in flags.items()}
    # A flag that the loader raised itself stays.
    return {
        name: flag | pl.col(name).fill_null(value=False) if given.has(name) else flag for name, flag in named.items()
    }
