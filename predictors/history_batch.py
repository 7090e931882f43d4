"""History and in-flight features of many rows at once: keys become numbers, and one compiled pass answers each key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from predictors import history_flight as flight
from predictors.families import Foundings
from predictors.history_codes import Codes, size_of
from predictors.history_flight import FLIGHT_STATS
from predictors.history_kernel import BROKE, COUNTS, KILLED, STATS, TOLD, WINDOW, Ends, Wanted, history_pass
from predictors.history_keys import BATCH_KEY, FLIGHT_KEYS, HISTORY_KEYS, WORK_KEYS, id_key, key_columns
from predictors.history_slots import make_flight_slots, make_slots
from predictors.jobs_table import microseconds

__all__ = ["Batch", "column_places"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Columns that say whether rows are those of the log.
SAME: Final = ("job_id", "submit_time", "user", "vc", "group", "job_name", "time_limit_s", "size")


class Batch:
    """Rows that ask at their instants, and the log that answers; keys are coded once for both.

    Parameters
    ----------
    rows : DataFrame
        From ``as_jobs``.
    past : DataFrame
        From ``known_jobs`` (or ``ended_jobs``: then nothing is in flight).
    now : Series of datetime, same length as ``rows``
        Instants of asking; null = nothing is known yet.
    failures_count : bool
        Whether the durations of jobs that broke count.
    """

    def __init__(self, rows: pl.DataFrame, past: pl.DataFrame, *, now: pl.Series, failures_count: bool) -> None:
        self.past = past
        self.ids = rows["job_id"]
        self.is_log = (
            rows.select(key_columns()["size"].alias("size"), *SAME[:-1]).select(SAME).equals(past.select(SAME))
        )
        self.keys = past if self.is_log else rows.select("submit_time", **key_columns())
        self.now, self.has_now = microseconds(now)
        self.now = np.where(self.has_now, self.now, flight.NEVER)
        self.submit, _ = microseconds(self.keys["submit_time"])
        self.num_submitted = past.height - past["submit_time"].null_count()
        self.log_submit = microseconds(past["submit_time"].head(self.num_submitted))[0]
        self.failures_count = failures_count
        self._scratch = np.empty((0, len(self.now)))

    def history(self, key: str, stats: Sequence[str]) -> dict[str, pl.Series]:
        """Statistics of ``HISTORY_KEYS[key]``, one value per row."""
        of_past, of_rows = self._codes.of_key(HISTORY_KEYS[key])
        wanted = Wanted(of_rows, column_places(STATS, stats), self._empty(len(stats)))
        self._pass(of_past, self._order, self.now, wanted)
        return _told(stats, wanted.out)

    def in_flight(self, key: str, stats: Sequence[str]) -> dict[str, pl.Series]:
        """Statistics of jobs that wait and run of ``FLIGHT_KEYS[key]``, one value per row."""
        of_past, of_rows = self._codes.of_key(FLIGHT_KEYS[key])
        slots = make_flight_slots(size_of(of_past, of_rows) + 1)
        jobs = self._jobs if {"pending_gpu_s", "pending_cpu_s"} & set(stats) else self._sizes
        asks = np.where(self.has_now, of_rows, -1)
        wanted = Wanted(asks, column_places(FLIGHT_STATS, stats), self._empty(len(stats)))
        flight.flight_pass(slots, jobs.copy(), self._steps, of_past[: self.num_submitted], self._rows, wanted)
        return _told(stats, wanted.out)

    def batch_position(self) -> pl.Series:
        """How many jobs of the same user with the same request came before in the same minute."""
        of_past, of_rows = self._codes.of_key(BATCH_KEY, nulls=("time_limit_s",))
        asks = np.where(self.has_now & self.keys["submit_time"].is_not_null().to_numpy(), of_rows, -1)
        batches = np.zeros((size_of(of_past, of_rows), 2), dtype=np.int64)
        places = np.zeros(self.num_submitted, dtype=np.int64)
        wanted = Wanted(asks, np.zeros(1, dtype=np.int64), self._empty(1))
        flight.batch_pass(batches, self.log_submit, places, of_past[: self.num_submitted], self._rows, wanted)
        return _column(wanted.out[0])

    def _pass(self, of_past: Ints, order: Ints, now: Ints, wanted: Wanted) -> None:
        end_slot = of_past[self._ended]
        counts = np.bincount(
            end_slot[(end_slot >= 0) & (self._ends.bits & COUNTS > 0)], minlength=size_of(of_past, wanted.slot)
        )
        history_pass(make_slots(np.minimum(counts, WINDOW)), self._ends, end_slot, order, now, wanted)

    def _empty(self, height: int) -> Floats:
        """Nothing, one row per statistic; the memory is used again, since new memory costs more than the work."""
        if height > len(self._scratch):
            self._scratch = np.empty((height, len(self.now)))
        out = self._scratch[:height]
        out.fill(np.nan)
        return out

    @cached_property
    def _ended(self) -> Ints:
        """Places in the log of ended jobs, in the order of their ends."""
        end, has_end = microseconds(self.past["end_time"])
        ended = np.flatnonzero(has_end)
        return ended[np.argsort(end[ended], kind="stable")]

    @cached_property
    def _ends(self) -> Ends:
        told = self.past.select("end_time", "duration_s", "is_failure", "is_killed")[self._ended]
        broke = told["is_failure"].fill_null(value=False).to_numpy()
        killed = told["is_killed"].fill_null(value=False).to_numpy()
        bits = told["is_failure"].is_not_null().to_numpy() * TOLD + broke * BROKE + killed * KILLED
        bits += COUNTS * (self.failures_count | ~broke)
        duration = told["duration_s"].to_numpy()
        return Ends(microseconds(told["end_time"])[0], duration, bits.astype(np.int64))

    @cached_property
    def _own(self) -> Ints:
        """Place of each row in the log, -1 where it is not in it."""
        log = self.past.head(self.num_submitted).select("job_id", "submit_time")
        if self.is_log:
            return np.where(np.arange(self.past.height) < log.height, np.arange(self.past.height), -1)
        rows = pl.DataFrame({"job_id": self.ids, "submit_time": self.keys["submit_time"]})
        log = log.with_row_index("place").unique(["job_id", "submit_time"], keep="first")
        found = rows.join(log, on=["job_id", "submit_time"], how="left", maintain_order="left")["place"]
        return found.cast(pl.Int64).fill_null(-1).to_numpy()

    @cached_property
    def _barrier(self) -> Ints:
        """How many submissions of the log came before each row asked."""
        barrier = np.searchsorted(self.log_submit, self.now, side="right")
        at_own = self.now == self.submit
        barrier = np.where(at_own & (self._own >= 0), self._own, barrier)
        first = np.searchsorted(self.log_submit, self.now)
        tied = np.flatnonzero(at_own & (self._own < 0) & (first < barrier))
        log_ids = self.past["job_id"]
        for row in tied:
            places = range(first[row], barrier[row])
            mine = id_key(self.ids[int(row)])
            barrier[row] = first[row] + bisect_left(places, mine, key=lambda i: id_key(log_ids[i]))
        return barrier.astype(np.int64)

    @cached_property
    def _order(self) -> Ints:
        """Rows in the order of their instants."""
        if (np.diff(self.now) > 0).all():
            return np.arange(len(self.now))
        return np.lexsort((self._barrier, self.now)) if self.num_submitted else np.argsort(self.now, kind="stable")

    @cached_property
    def _rows(self) -> flight.Rows:
        return flight.Rows(self._order, self.now, self._barrier, self._own, self.submit)

    @cached_property
    def _steps(self) -> flight.Steps:
        log = self.past.head(self.num_submitted)
        start, has_start = microseconds(log["start_time"])
        leave, has_left = microseconds(log["leave_time"])
        orders = [np.flatnonzero(has) for has in (has_start, has_left)]
        by_start, by_leave = (o[np.argsort(t[o], kind="stable")] for o, t in zip(orders, (start, leave), strict=True))
        return flight.Steps(self.log_submit, start, leave, by_start, by_leave)

    @cached_property
    def _sizes(self) -> Ints:
        """Jobs of the log without predicted work."""
        log = self.past.head(self.num_submitted)
        jobs = np.zeros((log.height + 1, flight.JOB_FIELDS), dtype=np.int64)
        size = log["size"].fill_null(0.0).to_numpy()
        whole = np.floor(np.minimum(np.abs(size), 1e9) * 1000 + 0.5).astype(np.int64)
        jobs[:-1, flight.GPUS] = np.where(size > 0, whole, 0)
        jobs[:-1, flight.CPUS] = np.where(size > 0, 0, whole)
        jobs[:-1, flight.START] = self._steps.start // 1000
        return jobs

    @cached_property
    def _jobs(self) -> Ints:
        """Jobs of the log with the work that was predicted for them when they came."""
        predicted = np.full(self.num_submitted, np.nan)
        places = column_places(STATS, ["median_20"])
        order = np.arange(self.num_submitted)
        for key in WORK_KEYS:
            of_past = self._codes.of_key(HISTORY_KEYS[key])[0]
            out = np.full((1, self.num_submitted), np.nan)
            self._pass(of_past, order, self.log_submit, Wanted(of_past[: self.num_submitted], places, out))
            predicted = np.where(np.isnan(predicted), out[0], predicted)
        limit = self.past["time_limit_s"].head(self.num_submitted).fill_null(np.inf).to_numpy()
        seconds = np.floor(np.fmin(np.fmin(np.nan_to_num(predicted), limit), flight.LONGEST_S) + 0.5).astype(np.int64)
        jobs = self._sizes.copy()
        jobs[:-1, flight.JOB_GPU_WORK] = jobs[:-1, flight.GPUS] * seconds
        jobs[:-1, flight.JOB_CPU_WORK] = jobs[:-1, flight.CPUS] * seconds
        return jobs

    @cached_property
    def _codes(self) -> Codes:
        return Codes(self.past, self._column, num_rows=len(self.now), is_log=self.is_log)

    def _column(self, name: str) -> pl.Series:
        return self._similar if name == "similar_name" else self.keys[name]

    @property
    def _similar(self) -> pl.Series:
        """Cluster of each row's name, as it was when the row's job came; null if nobody knows when that was."""
        log = self.past.select("user", "job_family", "similar_name")
        own = pl.Series(self._own)
        taken = log[own.clip(0)] if log.height else log.clear(len(own))
        same = (own >= 0) & (taken["user"] == self.keys["user"]) & (taken["job_family"] == self.keys["job_family"])
        same = same.fill_null(value=False)
        found = pl.select(pl.when(same).then(taken["similar_name"])).to_series()
        others = np.flatnonzero(~same.to_numpy() & self.keys["submit_time"].is_not_null().to_numpy())
        if not len(others):
            return found
        foundings = Foundings(self.past)
        pairs = self.keys.select("user", "job_family")[others].rows()
        leaders = [
            foundings.find(user, family, int(before)) or (None if user is None else family)
            for (user, family), before in zip(pairs, self._barrier[others], strict=True)
        ]
        return found.scatter(others, pl.Series(leaders, dtype=pl.String))


def _told(stats: Sequence[str], out: Floats) -> dict[str, pl.Series]:
    return {stat: _column(values) for stat, values in zip(stats, out, strict=True)}


def _column(values: Floats) -> pl.Series:
    # polars looks at numpy's own memory, and this memory will be used again.
    return pl.Series(values.copy(), nan_to_null=True)


def column_places(known: Sequence[str], wanted: Sequence[str]) -> Ints:
    """Where each known statistic stands among the wanted ones; -1 = it is not wanted."""
    place: Mapping[str, int] = {name: i for i, name in enumerate(wanted)}
    return np.array([place.get(name, -1) for name in known], dtype=np.int64)
