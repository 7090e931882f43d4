"""What the writers share: invented jobs, what must come back of them, and how a format is described."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import assume
from hypothesis import strategies as st

SHANGHAI = ZoneInfo("Asia/Shanghai")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BEGIN_S = 1_600_000_000
Job = dict[str, Any]
Paths = Path | list[Path]

#: Names with everything that a delimited file finds hard, but no blanks around them.
names = (
    st.text(alphabet="abzAZ09_-./ ,;|\"'é漢\t\n", min_size=1, max_size=8)
    .map(str.strip)
    .filter(lambda text: text not in ("", "-", "'", '"'))
)
#: Where ids are row numbers: physical lines, so a name over two lines would count twice.
one_line = names.filter(lambda text: "\n" not in text)
plain = st.text(alphabet="abcXYZ019_", min_size=1, max_size=6).filter(lambda text: not text.startswith("vc"))
#: What anonymised names look like: a letter, so that no name is a number.
hashes = st.text(alphabet="0123456789abcdef", min_size=1, max_size=6).map("h{}".format)
texts = st.text(alphabet="abz019", min_size=1, max_size=5)
seconds = st.integers(0, 10_000_000)
waits = st.integers(0, 100_000)
runs = st.integers(0, 1_000_000)
numerals = st.integers(1, 10**9).map(str)
digits = st.integers(0, 999).map(str)


@st.composite
def some_jobs(draw, *, name=names, ids=numerals, never=True):
    """Valid jobs: submission, then maybe a start, a run, an end."""
    size = draw(st.integers(0, 8))
    numbers = draw(st.lists(ids, min_size=size, max_size=size, unique=True))
    jobs = []
    for job_id in numbers:
        ran = not never or draw(st.booleans())
        status = draw(st.sampled_from(["completed", "failed", "cancelled"] if ran else ["cancelled"]))
        jobs.append(
            {
                "job_id": job_id,
                "user": draw(name),
                "vc": draw(name),
                "submit": draw(seconds),
                "wait": draw(waits) if ran else None,
                "run": draw(runs) if ran else None,
                "num_gpus": draw(st.integers(0, 64)),
                "num_cpus": draw(st.integers(1, 512)),
                "limit": draw(st.none() | st.integers(1, 10**7)),
                "status": status,
            }
        )
    return jobs


def at(second: float, *, origin: int = BEGIN_S) -> datetime:
    return EPOCH + timedelta(seconds=origin + second)


def times(job: Job, *, origin: int = BEGIN_S) -> tuple[datetime, datetime | None, datetime | None]:
    submit = at(job["submit"], origin=origin)
    start = None if job["wait"] is None else submit + timedelta(seconds=job["wait"])
    return submit, start, None if start is None else start + timedelta(seconds=job["run"])


def local(instant: datetime | None, zone: ZoneInfo, form: str = "%Y-%m-%d %H:%M:%S", *, missing: Any = "") -> Any:
    """An instant as a clock in some zone shows it; jobs of the hour that it shows twice are not drawn."""
    if instant is None:
        return missing
    shown = instant.astimezone(zone)
    assume(shown.utcoffset() == shown.replace(fold=1 - shown.fold).utcoffset())
    return shown.strftime(form)


def rows_to(path: Path, columns: list[str], rows: Iterable[list[Any]], *, separator: str = ",") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=separator, lineterminator="\n")
        writer.writerows([columns, *rows] if columns else rows)
    return path


def canonical(job: Job, *, origin: int = BEGIN_S) -> Job:
    """What must come out, for the columns that every format has or leaves null."""
    submit, start, end = times(job, origin=origin)
    return {
        "job_id": job["job_id"],
        "submit_time": submit,
        "start_time": start,
        "end_time": end,
        "duration_s": job["run"],
        "queueing_delay_s": job["wait"],
        "status": job["status"],
        "num_gpus": job["num_gpus"],
        "user": job["user"],
        "vc": job["vc"],
        "time_limit_s": job["limit"],
    }


def without_times(job: Job, **changes: Any) -> Job:
    """What must come out of a source that has neither starts nor ends, owners, outcomes, limits."""
    gone = dict.fromkeys(("start_time", "end_time", "queueing_delay_s", "status", "user", "vc", "time_limit_s"))
    return canonical(job, origin=0) | gone | changes


@dataclass(frozen=True)
class Expected:
    """What must come back.

    Attributes
    ----------
    jobs : list of dict
        The jobs, each with the columns that the law is about.
    rows_in : int
        Rows that were written, over all files.
    tables : mapping of str to list of dict
        Rows of tables beside the jobs, in any order, with the columns that the law is about.
    """

    jobs: list[Job]
    rows_in: int
    tables: Mapping[str, list[Job]] = field(default_factory=dict)


@dataclass(frozen=True)
class Format:
    """How a source writes what happened, and what must come back.

    Attributes
    ----------
    loader : str
        Its name in the registry.
    cases : strategy
        Of anything that ``write``, ``expected`` and ``options`` understand.
    write : callable
        Writes a case into a folder, returns what to load.
    expected : callable
        What must come back of a case.
    options : callable
        The loader's options for a case.
    """

    loader: str
    cases: st.SearchStrategy[Any]
    write: Callable[[Path, Any], Paths]
    expected: Callable[[Any], Expected]
    options: Callable[[Any], dict[str, Any]] = field(default=lambda _: {})


def of_jobs(
    loader: str,
    write: Callable[[Path, list[Job]], Paths],
    jobs: st.SearchStrategy[list[Job]],
    expected: Callable[[Job], Job] = canonical,
    *,
    ids_are_rows: bool = False,
    **options: Any,
) -> Format:
    """A format with a row per job."""

    def all_expected(drawn: list[Job]) -> Expected:
        if ids_are_rows:
            drawn = [job | {"job_id": str(row)} for row, job in enumerate(drawn, start=1)]
        return Expected([expected(job) for job in drawn], len(drawn))

    return Format(loader, jobs, write, all_expected, lambda _: options)
