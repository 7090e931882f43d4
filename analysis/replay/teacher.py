"""Predictions of one replay in closed loop: what the loop keeps, what Python is asked, and what a result tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from analysis.errors import HindcastError
from analysis.replay._bits import I64
from analysis.replay._closed import Closed
from analysis.replay._jobs import US, to_us
from analysis.replay._prepare import Prepared
from analysis.replay._renew import LISTED, NUM, STAGE, TOLD
from analysis.replay._state import KNOWN, NEXT, NOW, Log

if TYPE_CHECKING:
    from analysis.replay.closed_loop import Forecaster


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

    def told(self, table: pl.DataFrame, prepared: Prepared, log: Log) -> pl.DataFrame:
        """Add predicted_s, of each job at its submission, and predicted_last_s where jobs are predicted again.

        Null for jobs that had not arrived.
        """
        arrived = prepared.accepted[: int(log.counters[NEXT])]
        columns = {"predicted_s": self.closed.guess}
        if self.closed.renewal is not None:
            columns = {"predicted_s": self.closed.renewal.first, "predicted_last_s": self.closed.guess}
        for name, guess in columns.items():
            seconds = np.full(table.height, np.nan)
            seconds[arrived] = guess[: len(arrived)] / US
            table = table.with_columns(pl.Series(name, seconds).fill_nan(None))
        return table


def known_at_submission(jobs: pl.DataFrame, prepared: Prepared) -> pl.DataFrame:
    """Rows of the jobs that take part, in their order, without what is known only at their end."""
    from analysis.replay.steps._scene import OUTCOMES

    ids = prepared.jobs.select("job_id")[prepared.accepted]
    return ids.join(jobs.drop(OUTCOMES, strict=False), on="job_id", how="left", maintain_order="left")


def answer(forecaster: Forecaster, closed: Closed, prepared: Prepared) -> Callable[[Log], None]:
    """What is done whenever the loop asks: tell what has ended, predict again if it is time, and whoever comes now."""
    told = 0

    def predict(log: Log) -> None:
        nonlocal told
        first, now = int(log.counters[NEXT]), int(log.counters[NOW])
        stop = int(np.searchsorted(prepared.submit, now, side="right"))
        ended = closed.ended[told : int(closed.num_ended[0])].copy()
        told += len(ended)
        if len(ended):
            forecaster.ended(ended, closed.value[ended] / US, now / US)
        _predict_again(forecaster, closed, now)
        if stop > first:
            rows = np.arange(first, stop, dtype=np.int64)
            closed.guess[first:stop] = _as_us(forecaster.predict(rows, now / US), rows, forecaster, method="predict")
        log.counters[KNOWN] = stop

    return predict


def _predict_again(forecaster: Any, closed: Closed, now: int) -> None:
    """Ask for new predictions of the jobs that the loop has listed, if it has."""
    r = closed.renewal
    if r is None or r.facts[STAGE] != LISTED:
        return
    num = int(r.facts[NUM])
    if num:
        rows = r.job[:num].copy()
        told = forecaster.repredict(rows, r.age[:num] / US, r.is_running[:num] == 1, now / US)
        r.told[:num] = _as_us(told, rows, forecaster, method="repredict")
    r.facts[STAGE] = TOLD


def _as_us(seconds: Any, rows: I64, forecaster: Forecaster, *, method: str) -> I64:
    values = np.asarray(seconds, dtype=np.float64)
    if values.shape != rows.shape or not np.all(np.isfinite(values)) or np.any(values < 0):
        found = f"{values.shape} values" if values.shape != rows.shape else f"{values[:3].tolist()}"
        msg = (
            f"replay: {method} of {getattr(forecaster, 'name', forecaster)!r} gave {found} for {len(rows)} jobs (first "
            f"row {rows[0]}); expected one finite number of seconds, 0 or more, for each."
        )
        raise HindcastError(msg)
    return to_us(pl.Series(values))
