"""The stream of events: jobs come, start and end one by one, and any job can be asked about at any instant.

For the service and the closed loop: it gives what ``feature_table`` gives of the whole log, to the last bit, since the
compiled core is the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from analysis import schema
from analysis.errors import UsageError
from predictors import history_flight as flight
from predictors.families import NameClusters
from predictors.features import CATEGORY_COLUMNS, check_features, check_time_zone
from predictors.history import FLIGHT_KEYS, FLIGHT_STATS, HISTORY_KEYS, HISTORY_STATS, Failures
from predictors.history_job import JobFacts, microseconds_of, plain_numbers
from predictors.history_kernel import BROKE, COUNTS, KILLED, NO_KEY, NO_SLOT, TOLD, describe_all, push_all
from predictors.history_keys import BATCH_KEY, WORK_KEYS, id_key, milli
from predictors.history_slots import BatchSlots, FlightSlots, HistorySlots, Value
from predictors.jobs_table import FAILURES, KILLS

__all__ = ["HistoryState"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Order of what happens at one instant.
SUBMITTED, STARTED, ENDED = range(3)
#: Serial number of a job that is not in flight.
NOBODY: Final = -2
_NOT_TOLD: Final = ("unknown", "running", "pending")


@dataclass(slots=True)
class Flying:
    """A job that waits or runs: its slots, what its sums hold of it, and its place in its batch."""

    facts: JobFacts
    serial: int
    history: Ints
    flight: Ints
    place: float
    sums: Ints = field(default_factory=lambda: np.zeros(flight.JOB_FIELDS, dtype=np.int64))
    start_us: int | None = None


class HistoryState:
    """What is known of a cluster's past, kept up with events.

    Events may be told ahead: one shows only when an instant strictly after it is asked about (a submission also at its
    own instant, for jobs that are asked about after it was told). So ask about a job, then tell its submission, in the
    order of (submission, id), and the numbers are those of ``feature_table``. News that comes late counts from when it
    is told. Memory: 0.4 kB for each value of each key, and the jobs in flight.

    Parameters
    ----------
    names : sequence of str
        Features wanted, as for ``feature_table``; categories are not among them.
    failures : {"keep", "exclude"}, default "keep"
        Whether the durations of jobs that broke count.
    time_zone : str, default "UTC"
        In which hour and weekday are meant.

    Raises
    ------
    UsageError
        If a name is refused or the time zone does not exist.

    Examples
    --------
    >>> state = HistoryState(["user__last", "user__pending", "num_gpus"])
    >>> first = {"job_id": "1", "submit_time": datetime(2024, 1, 1), "user": "ann", "num_gpus": 2}
    >>> state.submitted(first)
    >>> state.started("1", datetime(2024, 1, 1, 1))
    >>> state.ended("1", datetime(2024, 1, 1, 3), status="completed")
    >>> state.features_of({"job_id": "2", "submit_time": datetime(2024, 1, 2), "user": "ann"})
    {'user__last': 7200.0, 'user__pending': 0.0, 'num_gpus': None}
    """

    def __init__(self, names: Sequence[str], *, failures: Failures = "keep", time_zone: str = "UTC") -> None:
        named = [name for name in check_features(names) if name in CATEGORY_COLUMNS]
        if named or failures not in {"keep", "exclude"}:
            msg = (
                f"HistoryState: found failures={failures!r} and the categories {named}; expected 'keep' or 'exclude' "
                "and features that are numbers (a model numbers its categories itself)."
            )
            raise UsageError(msg)
        self.names, self.failures, self.time_zone = tuple(names), failures, check_time_zone(time_zone)
        self.clock_us = flight.NEVER
        self.num_told = self.num_taken = self.num_starts = 0
        self.clusters = NameClusters()
        self.history, self.flights, self.batches = HistorySlots(), FlightSlots(), BatchSlots()
        self.flying: dict[str, Flying] = {}
        self.events: list[tuple[Any, ...]] = []
        self.awaited: dict[str, JobFacts] = {}
        self._plan()

    def _plan(self) -> None:
        """Which statistics of which keys go where."""
        places = {name: i for i, name in enumerate(self.names)}
        self._has_work = any(name.endswith(("__pending_gpu_s", "__pending_cpu_s")) for name in self.names)
        asked = [key for key in HISTORY_KEYS if any(f"{key}__{stat}" in places for stat in HISTORY_STATS)]
        self._keys = list(dict.fromkeys([*asked, *(WORK_KEYS if self._has_work else ())]))
        self._columns = _columns(self._keys, HISTORY_STATS, places)
        self._flight_columns = _columns(list(FLIGHT_KEYS), FLIGHT_STATS, places)
        self._work_columns = np.full_like(self._columns, -1)
        self._work_columns[:, HISTORY_STATS.index("median_20")] = np.arange(len(self._keys))
        self._work_places = [self._keys.index(key) for key in WORK_KEYS if self._has_work]
        self._has_flight = bool((self._flight_columns >= 0).any())
        self._has_similar = any("similar_name" in HISTORY_KEYS[key] for key in self._keys)
        self._position = places.get("batch__position", -1)
        self._plain = {name: i for name, i in places.items() if "__" not in name}

    @property
    def num_keys(self) -> int:
        """Number of keys whose history is kept."""
        return len(self._keys)

    @property
    def num_flight_keys(self) -> int:
        """Number of keys whose waiting and running jobs are kept."""
        return len(FLIGHT_KEYS)

    def submitted(self, job: Mapping[str, Any]) -> None:
        """Tell a submission.

        Parameters
        ----------
        job : mapping
            Columns of the jobs table that are known at the submission; ``job_id`` and ``submit_time`` are needed.

        Raises
        ------
        UsageError
            If one of the two is missing, a value cannot be read, or the job is in flight already.
        """
        facts = JobFacts.of(job)
        if facts.submit_us is None:
            msg = f"HistoryState.submitted: job {facts.job_id!r} has no submit_time; expected a datetime."
            raise UsageError(msg)
        if facts.job_id in self.flying or facts.job_id in self.awaited:
            msg = (
                f"HistoryState.submitted: job {facts.job_id!r} was submitted already and has not ended; ids are unique."
            )
            raise UsageError(msg)
        self.awaited[facts.job_id] = facts
        self._tell(facts.submit_us, SUBMITTED, facts, None)

    def started(self, job_id: str, time: datetime) -> None:
        """Tell a start; before its submission it counts as at its submission.

        Raises
        ------
        UsageError
            If no job of this id waits, or ``time`` is no datetime.
        """
        facts = self._facts_of(job_id, "started")
        when = max(microseconds_of(time, "started", job_id), facts.submit_us or flight.NEVER)
        self._tell(when, STARTED, facts, when)

    def ended(
        self,
        job: str | Mapping[str, Any],
        time: datetime,
        *,
        duration_s: float | None = None,
        status: str | None = None,
    ) -> None:
        """Tell an end.

        Parameters
        ----------
        job : str or mapping
            The id of a job in flight, or the columns of one whose submission was never told: it counts as history.
        time : datetime
            Before its submission it counts as at its submission.
        duration_s : float, optional
            How long it ran; NaN = not known: then it leaves and teaches nothing. By default from the start that was
            told to the end, not known without one. [s]
        status : str, optional
            One of ``analysis.schema.STATUSES``; null = not known.

        Raises
        ------
        UsageError
            If no job of this id is in flight, or a value cannot be read.
        """
        facts = self._facts_of(job, "ended") if isinstance(job, str) else JobFacts.of(job)
        if status is not None and status not in schema.STATUSES:
            msg = f"HistoryState.ended: found the status {status!r}; expected one of {', '.join(schema.STATUSES)}."
            raise UsageError(msg)
        when = microseconds_of(time, "ended", facts.job_id)
        when = when if facts.submit_us is None else max(when, facts.submit_us)
        self._tell(when, ENDED, facts, (when, duration_s, status))

    def features_of(self, job: str | Mapping[str, Any], now: datetime | None = None) -> dict[str, float | None]:
        """Features of one job at an instant, null where not known; see ``vector_of``."""
        vector = self.vector_of(job, now)
        return {name: None if np.isnan(x) else float(x) for name, x in zip(self.names, vector, strict=True)}

    def vector_of(self, job: str | Mapping[str, Any], now: datetime | None = None) -> Floats:
        """Features of one job at an instant.

        Parameters
        ----------
        job : str or mapping
            The id of a job in flight, or the columns of any job.
        now : datetime, optional
            By default its submission. Events before it are taken in for good: instants do not go back.

        Returns
        -------
        array of float64
            One value per name, NaN where not known.

        Raises
        ------
        UsageError
            If ``now`` is earlier than an instant asked about before, or the job is not known.
        """
        facts = self._facts_of(job, "features_of") if isinstance(job, str) else JobFacts.of(job)
        when = facts.submit_us if now is None else microseconds_of(now, "features_of", facts.job_id)
        out = np.full((max(len(self.names), 1), 1), np.nan)
        if when is not None:
            self.advance(when)
        flying = self.flying.get(facts.job_id)
        if flying is not None and flying.facts.submit_us != facts.submit_us:
            flying = None
        self._write_history(facts, flying, when, out)
        if when is not None:
            self._write_flight(facts, flying, when, out)
        start = None if flying is None else flying.start_us
        for name, value in plain_numbers(facts, start, when, self.time_zone, list(self._plain)).items():
            out[self._plain[name], 0] = np.nan if value is None else value
        return out[: len(self.names), 0]

    def advance(self, now_us: int) -> None:
        """Take in what happened before an instant [us since 1970], and submissions told of that very instant.

        Raises
        ------
        UsageError
            If it is earlier than one before.
        """
        if now_us < self.clock_us:
            msg = (
                f"HistoryState: asked about {now_us / 1e6:.6f} s after 1970, when events up to "
                f"{self.clock_us / 1e6:.6f} were already taken in; ask in the order of time, or make another state."
            )
            raise UsageError(msg)
        self.clock_us = now_us
        while self.events and self.events[0][:2] < (now_us, STARTED):
            _, kind, *_, facts, told = heapq.heappop(self.events)
            (self._take_submission, self._take_start, self._take_end)[kind](facts, told)

    def _tell(self, when: int, kind: int, facts: JobFacts, told: Any) -> None:
        self.num_told += 1
        came = schema.LAST_US if facts.submit_us is None else facts.submit_us
        heapq.heappush(self.events, (when, kind, came, *id_key(facts.job_id), self.num_told, facts, told))

    def _facts_of(self, job_id: str, where: str) -> JobFacts:
        if job_id in self.flying:
            return self.flying[job_id].facts
        if job_id in self.awaited:
            return self.awaited[job_id]
        msg = (
            f"HistoryState.{where}: no job {job_id!r} is in flight (others: {len(self.flying) + len(self.awaited)}); "
            "expected the id of a job whose submission was told and that has not ended, or its columns."
        )
        raise UsageError(msg)

    def _history_values(self, facts: JobFacts, similar: str | None) -> list[Value | None]:
        return [facts.key(i, HISTORY_KEYS[key], similar=similar) for i, key in enumerate(self._keys)]

    def _similar(self, facts: JobFacts, *, is_new: bool) -> str | None:
        """Cluster of the job's name; a job that only asks founds none."""
        user, family = facts.columns["user"], facts.columns["job_family"]
        if not self._has_similar or user is None or family is None or facts.submit_us is None:
            return None
        return self.clusters.add(user, family) if is_new else (self.clusters.find(user, family) or family)

    def _take_submission(self, facts: JobFacts, _: Any) -> None:
        self.awaited.pop(facts.job_id, None)
        history = self.history.take(self._history_values(facts, self._similar(facts, is_new=True)))
        flights = self.flights.take(facts.key(i, names) for i, names in enumerate(FLIGHT_KEYS.values()))
        batch = self.batches.take([facts.key(0, BATCH_KEY, nullable="time_limit_s")])
        came = facts.submit_us or 0
        place = np.nan if batch[0] == NO_KEY else float(flight.join_batch(self.batches.rows, batch[0], came))
        self.num_taken += 1
        flying = Flying(facts, serial=self.num_taken, history=history, flight=flights, place=place)
        gpus, cpus = milli(facts.columns["size"])
        seconds = self._work_s(facts, history, came) if self._has_work else 0
        flying.sums[: flight.START] = gpus, cpus, gpus * seconds, cpus * seconds
        flight.move_all(self.flights.rows, flights, flying.sums, flight.PENDING, came, flying.serial)
        self.flying[facts.job_id] = flying

    def _work_s(self, facts: JobFacts, history: Ints, came: int) -> int:
        """Predicted duration of a job that comes [whole s]."""
        medians = np.full((len(self._keys), 1), np.nan)
        describe_all(self.history.arrays, history, came, self._work_columns, medians)
        found = [medians[place, 0] for place in self._work_places if not np.isnan(medians[place, 0])]
        limit = facts.columns["time_limit_s"]
        return int(min(found[0] if found else 0.0, np.inf if limit is None else limit, flight.LONGEST_S) + 0.5)

    def _take_start(self, facts: JobFacts, when: int) -> None:
        self.num_starts += 1
        flying = self.flying.get(facts.job_id)
        if flying is None or flying.start_us is not None:
            return
        flying.start_us = when
        flying.sums[flight.START] = when // 1000
        flight.move_all(self.flights.rows, flying.flight, flying.sums, flight.RUNNING, 0, flying.serial)

    def _take_end(self, facts: JobFacts, told: tuple[int, float | None, str | None]) -> None:
        when, duration_s, status = told
        flying = self.flying.pop(facts.job_id, None)
        if flying is None:
            history = self.history.take(self._history_values(facts, self._similar(facts, is_new=True)))
        else:
            history = flying.history
            flight.move_all(self.flights.rows, flying.flight, flying.sums, flight.GONE, 0, flying.serial)
        if duration_s is None and flying is not None and flying.start_us is not None:
            duration_s = (when - flying.start_us) / 1e6
        if duration_s is None or not np.isfinite(duration_s):
            return
        broke = status in FAILURES
        bits = 0 if status is None or status in _NOT_TOLD else TOLD + BROKE * broke + KILLED * (status in KILLS)
        bits += COUNTS * (self.failures == "keep" or not broke)
        push_all(self.history.arrays, history, float(duration_s), when, bits)

    def _write_history(self, facts: JobFacts, flying: Flying | None, when: int | None, out: Floats) -> None:
        if not self._keys:
            return
        if flying is not None:
            slots = flying.history
        else:
            slots = self.history.find(self._history_values(facts, self._similar(facts, is_new=False)))
        if when is None:  # at no instant nothing is known
            slots = np.where(slots >= 0, NO_SLOT, slots)
        describe_all(self.history.arrays, slots, when or 0, self._columns, out)

    def _write_flight(self, facts: JobFacts, flying: Flying | None, when: int, out: Floats) -> None:
        if self._position >= 0 and flying is not None:
            out[self._position, 0] = flying.place
        elif self._position >= 0 and facts.submit_us is not None:
            slot = self.batches.find([facts.key(0, BATCH_KEY, nullable="time_limit_s")])[0]
            place = np.nan if slot == NO_KEY else flight.position(self.batches.rows, slot, facts.submit_us)
            out[self._position, 0] = place
        if not self._has_flight:
            return
        if flying is None:
            slots = self.flights.find(facts.key(i, names) for i, names in enumerate(FLIGHT_KEYS.values()))
            serial, sums = NOBODY, np.zeros(flight.JOB_FIELDS, dtype=np.int64)
        else:
            slots, serial, sums = flying.flight, flying.serial, flying.sums
        question = flight.Question(slots, self._flight_columns, out)
        flight.ask_all(self.flights.rows, question, sums, serial, when, self.num_starts)

    def save(self, path: Path | str) -> Path:
        """Write the state to one file (numpy's ``.npz``, without pickle); see ``restore``."""
        from predictors.history_saved import save_state

        return save_state(self, Path(path))

    @classmethod
    def restore(cls, path: Path | str) -> Self:
        """Read a state that ``save`` wrote.

        Raises
        ------
        BadFileError
            If the file is missing, damaged or not such a state.
        """
        from predictors.history_saved import restore_state

        return restore_state(cls, Path(path))


def _columns(keys: Sequence[str], stats: Sequence[str], places: Mapping[str, int]) -> Ints:
    """Row of the result of every statistic of every key; -1 = it is not wanted."""
    found = [[places.get(f"{key}__{stat}", -1) for stat in stats] for key in keys]
    return np.array(found, dtype=np.int64).reshape(len(keys), len(stats))
