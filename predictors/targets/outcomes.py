"""How jobs ended, as labels of 0 and 1 with the instant at which each became known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from analysis import schema
from analysis.errors import UnknownNameError, UsageError
from predictors.jobs_table import as_jobs, is_failure, is_killed, is_known, lower_bound_s
from predictors.training_view import known_end

__all__ = ["OUTCOMES", "check_outcome", "outcomes_of"]

US_PER_S: Final = 1e6
#: What can be asked, and whether it is about the first minutes only.
OUTCOMES: Final[Mapping[str, bool]] = {
    "failed": False,  # it breaks: status failed or node_fail
    "killed": False,  # it is cancelled while it runs, or cut off at its limit
    "ends_early": True,  # it breaks or is killed within the first minutes of running
}


def check_outcome(outcome: str, within_s: float) -> None:
    """Let through an outcome that is known, and a time above 0.

    Raises
    ------
    UnknownNameError, UsageError
        If it is not.
    """
    if outcome not in OUTCOMES:
        raise UnknownNameError(kind="outcome", found=outcome, known=OUTCOMES)
    if not within_s > 0:
        msg = f"outcomes: within_s is {within_s}; expected seconds above 0, such as 600."
        raise UsageError(msg)


def outcomes_of(jobs: Any, *, outcome: str = "failed", within_s: float = 600.0) -> pl.DataFrame:
    """See a log as outcomes: the label in ``duration_s``, in ``end_time`` when it became known.

    Seen so, what is said of ended jobs (``predictors.history``) is said of labels: the mean of the last 20 is the rate.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table, as it is or as ``training_view`` shows it.
    outcome : {"failed", "killed", "ends_early"}, default "failed"
        See ``OUTCOMES``.
    within_s : float, default 600
        First stretch of running that "ends_early" is about. [s]

    Returns
    -------
    DataFrame, one row per job in the same order
        The columns of the jobs table, but: ``duration_s`` is 1 where the outcome came about, 0 where it did not, and
        null where it is not known: the job runs, waits, never ran, or its status is not known. A job that has run for
        longer than ``within_s`` did not end early, whether it has ended or not; that is known from then on (with
        several attempts, when it has ended).

    Raises
    ------
    UnknownNameError, UsageError
        If the outcome or the time is not what it should be.

    Examples
    --------
    >>> from datetime import datetime
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, 1)] * 3, "duration_s": [5.0, 9000.0, 9000.0],
    ...                     "status": ["failed", "failed", "running"], "censoring": ["none", "none", "right"]})
    >>> [outcomes_of(log, outcome=name)["duration_s"].to_list() for name in ("failed", "ends_early")]
    [[1.0, 1.0, None], [1.0, 0.0, 0.0]]
    """
    check_outcome(outcome, within_s)
    table = as_jobs(jobs)
    table = table.with_columns(_end=known_end(table)["end_time"])
    ended = is_known() & pl.col("_end").is_not_null()
    label: pl.Expr
    when: pl.Expr
    if not OUTCOMES[outcome]:
        told = is_failure() if outcome == "failed" else is_killed()
        label, when = pl.when(ended).then(told), pl.col("_end")
    else:
        label, when = _early(ended, within_s)
    label = label.cast(pl.Float64)
    return table.with_columns(
        duration_s=label,
        end_time=pl.when(label.is_not_null()).then(when),
        censoring=pl.lit("none", schema.CENSORING),
    ).drop("_end")


def _early(ended: pl.Expr, within_s: float) -> tuple[pl.Expr, pl.Expr]:
    """Whether a job ended early and badly, and since when that is known."""
    bad = is_failure() | is_killed()
    outlived = (pl.coalesce(pl.when(ended).then("duration_s"), lower_bound_s()) > within_s).fill_null(value=False)
    label = pl.when(outlived).then(pl.lit(value=False)).when(ended).then(bad)
    # Where the log has no times, a job is taken to have started when it was submitted, as elsewhere.
    start = pl.max_horizontal(pl.coalesce("start_time", "submit_time"), "submit_time")
    then = start + pl.duration(microseconds=round(within_s * US_PER_S))
    several = (pl.col("num_attempts") > 1).fill_null(value=False)
    return label, pl.when(outlived & ~several).then(pl.min_horizontal(then, "_end")).otherwise(pl.col("_end"))
