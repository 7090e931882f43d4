"""One job of the stream of events: its columns read as a jobs table would read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from analysis.errors import UsageError
from predictors.families import family_of
from predictors.history_slots import Value

__all__ = ["JobFacts", "microseconds_of", "plain_numbers"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
US: Final = timedelta(microseconds=1)
US_PER_S: Final = 1e6
NAMES: Final = ("user", "vc", "group", "job_name")
FLOATS: Final = ("num_gpus", "num_cpus", "mem_gib", "time_limit_s")
WHOLE: Final = ("num_tasks", "num_nodes")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of a job at its submission."""

    job_id: str
    submit_us: int | None
    columns: Mapping[str, Any]

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> JobFacts:
        """Read a job's columns; what is missing or not finite is null.

        Raises
        ------
        UsageError
            If there is no ``job_id``, or values cannot be read; all at once.
        """
        given = job.get("job_id")
        job_id = "" if given is None else str(given)
        problems = [] if job_id else ["job_id is missing"]
        columns: dict[str, Any] = {}
        for name in (*NAMES, *FLOATS, *WHOLE, "is_single_node"):
            try:
                columns[name] = _read(job.get(name), name)
            except (TypeError, ValueError):
                problems.append(f"{name} is {job[name]!r}, not a number")
        came = job.get("submit_time")
        if came is not None and not isinstance(came, datetime):
            problems.append(f"submit_time is {came!r}, not a datetime")
        if problems:
            msg = f"HistoryState: job {job_id!r} cannot be read: {'; '.join(problems)}."
            raise UsageError(msg)
        gpus = columns["num_gpus"]
        columns["size"] = gpus if gpus is not None and gpus > 0 else -(columns["num_cpus"] or 0.0)
        columns["job_family"] = family_of(columns["job_name"])
        # pandas' NaT is a datetime that differs from itself.
        return cls(job_id, None if came is None or came != came else _us(came), columns)

    def key(self, place: int, names: Sequence[str], *, similar: str | None = None, nullable: str = "") -> Value | None:
        """Values of a key, after the key's place; null if one is null that may not be."""
        found: list[Any] = [place]
        for name in names:
            value = similar if name == "similar_name" else self.columns[name]
            if value is None and name != nullable:
                return None
            found.append(value)
        return tuple(found)


def _read(value: Any, name: str) -> Any:
    if value is None or value != value:  # NaN
        return None
    if name in NAMES:
        return str(value)
    if name in WHOLE:
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else None


def _us(time: datetime) -> int:
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // US


def microseconds_of(time: datetime, where: str, job_id: str) -> int:
    """Microseconds since 1970; a time without a zone is read as UTC.

    Raises
    ------
    UsageError
        If it is no datetime.
    """
    if not isinstance(time, datetime) or time != time:
        msg = f"HistoryState.{where}: found the time {time!r} for job {job_id!r}; expected a datetime."
        raise UsageError(msg)
    return _us(time)


def plain_numbers(
    facts: JobFacts, start_us: int | None, now_us: int | None, time_zone: str, names: Sequence[str]
) -> dict[str, float | None]:
    """Features that ask nobody else: columns, the clock at the submission, and how long the job has waited and run."""
    found: dict[str, float | None] = {}
    came = facts.submit_us
    for name in names:
        value: Any = None
        if name in facts.columns:
            value = facts.columns[name]
        elif name in {"hour", "weekday"} and came is not None:
            local = (EPOCH + timedelta(microseconds=came)).astimezone(ZoneInfo(time_zone))
            value = local.hour if name == "hour" else local.weekday()
        elif name == "waited_s" and came is not None and now_us is not None and now_us >= came:
            value = ((now_us if start_us is None else start_us) - came) / US_PER_S
        elif name == "elapsed_s" and start_us is not None and now_us is not None:
            value = (now_us - start_us) / US_PER_S
        found[name] = None if value is None else float(value)
    return found
