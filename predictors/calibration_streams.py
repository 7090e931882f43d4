"""What calibration works on: predictions that are asked for, and past ones in the order in which the jobs ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis import schema

__all__ = ["NEVER", "SCORES_TABLE", "Asked", "Stream"]

Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
#: End of a job that has not ended, start of one that is not known. [microseconds]
NEVER: Final = 2**62
#: Columns of stored predictions: when it was asked, when the job started (null = not known) and ended, whose it was,
#: its true log(1 + s), the logarithm of its limit (infinite = none), and the quantiles that the predictor said.
SCORES_TABLE: Final = {
    "asked_time": schema.TIME,
    "start_time": schema.TIME,
    "end_time": schema.TIME,
    "owner": pl.String(),
    "true_log": pl.Float64(),
    "limit_log": pl.Float64(),
    "raw_log": pl.List(pl.Float64()),
}


@dataclass(frozen=True)
class Asked:
    """Predictions that are asked for, before calibration.

    Attributes
    ----------
    asked_us : array of int, shape (rows,)
        Instant of asking. [microseconds]
    owner : Series of str, rows
        Whose job it is; null = nobody known.
    limit_log : array of float, shape (rows,)
        log(1 + s) of the requested limit; infinite = none.
    raw_log : array of float, shape (rows, levels)
        The predictor's own quantiles of log(1 + s); one column: a point.
    """

    asked_us: Integers
    owner: pl.Series
    limit_log: Numbers
    raw_log: Numbers


@dataclass(frozen=True)
class Stream:
    """Past predictions, in the order in which the jobs ended; those that have not come last.

    Attributes
    ----------
    start_us, end_us : array of int, shape (jobs,)
        Instants of the start (``NEVER`` = not known) and of the end (``NEVER`` = not yet), ends ascending.
        [microseconds]
    true_log : array of float, shape (jobs,)
        log(1 + s) of the duration; of a job that has not ended never read.
    asked : Asked
        What was said of each job, and when.
    num_trained : int
        The first so many ended before the predictor was fitted: it knows them whenever it is asked.
    """

    start_us: Integers
    end_us: Integers
    true_log: Numbers
    asked: Asked
    num_trained: int = 0

    @classmethod
    def empty(cls, *, num_levels: int) -> Stream:
        """Stream without jobs."""
        table = pl.DataFrame(schema=SCORES_TABLE)
        return cls.of_table(table, num_levels=num_levels)

    @classmethod
    def of_table(cls, table: pl.DataFrame, *, num_levels: int) -> Stream:
        """Stream of stored scores (``SCORES_TABLE``), all of which the predictor was fitted with."""
        raw = table["raw_log"].explode(empty_as_null=False, keep_nulls=False).to_numpy().reshape(-1, num_levels)
        asked = Asked(
            asked_us=table["asked_time"].dt.epoch("us").to_numpy(),
            owner=table["owner"],
            limit_log=table["limit_log"].to_numpy(),
            raw_log=raw,
        )
        return cls(
            start_us=table["start_time"].dt.epoch("us").fill_null(NEVER).to_numpy(),
            end_us=table["end_time"].dt.epoch("us").to_numpy(),
            true_log=table["true_log"].to_numpy(),
            asked=asked,
            num_trained=table.height,
        )

    def to_table(self) -> pl.DataFrame:
        """Scores as a table to be stored."""
        times = {"asked_time": self.asked.asked_us, "start_time": self.start_us, "end_time": self.end_us}
        known = {name: pl.Series(us, dtype=pl.Int64).replace(NEVER, None) for name, us in times.items()}
        columns = {name: pl.from_epoch(us, time_unit="us") for name, us in known.items()}
        return pl.DataFrame(
            {
                **{name: column.dt.replace_time_zone("UTC") for name, column in columns.items()},
                "owner": self.asked.owner,
                "true_log": self.true_log,
                "limit_log": self.asked.limit_log,
                "raw_log": pl.Series(self.asked.raw_log.tolist(), dtype=pl.List(pl.Float64)),
            },
            schema=SCORES_TABLE,
        )

    def sorted(self) -> Stream:
        """The same jobs in the order in which they ended (ties as they stand)."""
        order = np.argsort(self.end_us, kind="stable")
        asked = Asked(
            self.asked.asked_us[order], self.asked.owner[order], self.asked.limit_log[order], self.asked.raw_log[order]
        )
        return Stream(self.start_us[order], self.end_us[order], self.true_log[order], asked, self.num_trained)

    def joined(self, later: Stream) -> Stream:
        """Both streams as one; ``later`` holds jobs that ended after all of these."""
        return Stream(
            start_us=np.concatenate([self.start_us, later.start_us]),
            end_us=np.concatenate([self.end_us, later.end_us]),
            true_log=np.concatenate([self.true_log, later.true_log]),
            asked=_both(self.asked, later.asked),
            num_trained=self.num_trained,
        )

    def known_at(self, asked_us: Integers) -> Integers:
        """How many jobs are known at each instant: those that ended strictly before it."""
        return np.maximum(np.searchsorted(self.end_us, asked_us, side="left"), self.num_trained)


def _both(first: Asked, second: Asked) -> Asked:
    return Asked(
        asked_us=np.concatenate([first.asked_us, second.asked_us]),
        owner=pl.concat([first.owner, second.owner]),
        limit_log=np.concatenate([first.limit_log, second.limit_log]),
        raw_log=np.vstack([first.raw_log, second.raw_log]),
    )
