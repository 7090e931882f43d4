"""Collect what the tables need from a log: its columns once, then every input from them, part by part if large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from analysis.characterize.cubes import GROUPS, Cube, Input
from analysis.characterize.intervals import NEEDED, changes
from analysis.characterize.prepare import FACT_COLUMNS, GROUPED_NAMES, Facts, Log, prepare, views
from analysis.errors import UnknownNameError

__all__ = ["BATCH_JOBS", "ENGINES", "Collected", "Request", "collect", "cut"]

ENGINES: Final = ("polars", "dask")
#: Jobs that are in memory at one time.
BATCH_JOBS: Final = 4_000_000
#: Rows of the parts of an input that are kept before they are merged.
MIN_MERGE: Final = 1_000_000

Key = tuple[Input, tuple[str, ...]]
Collected = tuple[Facts, Mapping[Key, pl.DataFrame]]


@dataclass(frozen=True)
class Request:
    """What is to be collected from a log, and how its rows are to be read.

    Attributes
    ----------
    wanted : tuple of (Input, tuple of str)
        Each input with the grouping that it is collected with.
    where : Expr, optional
        Jobs that enter.
    time_zone : str
        Zone in which days begin.
    attempts : LazyFrame, optional
        The attempts table; null = there are none.
    """

    wanted: tuple[Key, ...]
    where: pl.Expr | None = None
    time_zone: str = "UTC"
    attempts: pl.LazyFrame | None = None

    def chosen(self, jobs: pl.LazyFrame) -> pl.LazyFrame:
        """Jobs that enter."""
        return jobs if self.where is None else jobs.filter(self.where)

    def prepared(self, jobs: pl.LazyFrame, *, num_jobs: int) -> pl.DataFrame:
        """The columns that inputs and facts read, of the jobs of a part that enter; `views` and facts come later."""
        whole = prepare(self.chosen(jobs), num_jobs=num_jobs, time_zone=self.time_zone)
        known = whole.collect_schema().names()
        exprs = [expr for item, by in self.wanted for expr in _exprs(item, by)]
        if any(expr.meta.has_multiple_outputs() for expr in exprs):
            return whole.select(known).collect(engine="streaming")
        needed = {name for key in self.wanted for name in self._read(*key, num_jobs=num_jobs)}
        needed |= _stored(FACT_COLUMNS, num_jobs=num_jobs)
        coded = [pl.col(name).cast(pl.Categorical) for name in GROUPED_NAMES if name in needed]
        return whole.select(name for name in known if name in needed).with_columns(coded).collect(engine="streaming")

    def _read(self, item: Input, by: Sequence[str], *, num_jobs: int) -> set[str]:
        """Stored columns that an input reads."""
        needed = {name for expr in _exprs(item, by) for name in expr.meta.root_names()}
        if item.table == "changes":
            needed |= {*NEEDED, *(["job_id"] if self.attempts is not None else [])}
        return _stored(needed, num_jobs=num_jobs)

    def facts(self, part: pl.LazyFrame) -> pl.DataFrame:
        """What `Facts.merge` takes, of a part of the jobs."""
        return Facts.query(prepare(self.chosen(part), num_jobs=0)).collect(engine="streaming")

    def count(
        self, jobs: pl.LazyFrame, *, num_jobs: int, facts: Facts | None = None
    ) -> tuple[Facts, list[pl.DataFrame]]:
        """Count every wanted input in a part of the jobs; without ``facts`` the part is the whole log, and merged."""
        rows = self.prepared(jobs, num_jobs=num_jobs)
        seen = list(views(num_jobs=num_jobs).items())
        added = [expr.alias(name) for name, expr in seen if set(expr.meta.root_names()) <= set(rows.columns)]
        known = facts or Facts.merge([Facts.query(rows.lazy().with_columns(added)).collect()])
        counted: dict[Key, pl.DataFrame] = {}
        # One after the other: together their hash tables would need several times the memory.
        for key, later in self._order(rows, num_jobs=num_jobs):
            present = [expr for expr in added if set(expr.meta.root_names()) <= set(rows.columns)]
            # Constants are put beside the rows when they are read: as columns they would need room for every job.
            table = rows.lazy().with_columns([*present, *known.columns()])
            if key[0].table == "changes":
                table = changes(table, self.attempts)
            frame = _named(key[0].query(table, by=key[1]).collect(engine="streaming"))
            # Of a whole log at once: later there is less room.
            counted[key] = frame if facts else key[0].merge([frame], by=key[1])
            del table, frame
            rows = rows.select(name for name in rows.columns if name in later)
        return known, [counted[key] for key in self.wanted]

    def _order(self, rows: pl.DataFrame, *, num_jobs: int) -> Iterator[tuple[Key, set[str]]]:
        """Inputs, and the columns that are still needed after each: first what frees the largest columns."""
        if any(expr.meta.has_multiple_outputs() for key in self.wanted for expr in _exprs(*key)):
            yield from ((key, set(rows.columns)) for key in self.wanted)
            return
        sizes = {column.name: column.estimated_size() for column in rows}
        left = {key: self._read(*key, num_jobs=num_jobs) for key in self.wanted}
        while left:
            readers = Counter(name for names in left.values() for name in names)
            freed = {key: sum(sizes.get(n, 0) for n in names if readers[n] == 1) for key, names in left.items()}
            # Rows last: beside them there is the least room.
            key = max(left, key=lambda one: (isinstance(one[0], Cube), freed[one]))
            del left[key]
            yield key, set().union(*left.values())

    def merge(self, parts: Iterable[list[pl.DataFrame]]) -> dict[Key, pl.DataFrame]:
        """Put the parts of every wanted input together, as they come; the lists are emptied, to make room."""
        kept: list[list[pl.DataFrame]] = [[] for _ in self.wanted]
        for part in parts:
            for (item, by), frames, frame in zip(self.wanted, kept, part, strict=True):
                frames.append(frame)
                # As much as there is already: so that no row is merged more often than a few times.
                if sum(f.height for f in frames[1:]) > max(frames[0].height, MIN_MERGE):
                    frames[:] = [item.merge(frames, by=by)]
            part.clear()
        merged: dict[Key, pl.DataFrame] = {}
        for (item, by), frames in zip(self.wanted, kept, strict=True):
            merged[item, by] = item.merge(frames, by=by)
            frames.clear()
        return merged


def _stored(names: Iterable[str], *, num_jobs: int) -> set[str]:
    """Columns that are stored for some prepared columns."""
    seen = views(num_jobs=num_jobs)
    return {root for name in names for root in (seen[name].meta.root_names() if name in seen else [name])}


def _named(counted: pl.DataFrame) -> pl.DataFrame:
    """Names instead of the numbers that stand for them in one part of a log."""
    return counted.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _exprs(item: Input, by: Sequence[str]) -> Iterator[pl.Expr]:
    yield from (GROUPS[name] for name in by)
    yield from item.exprs()
    if item.where is not None:
        yield item.where


def collect(log: Log, request: Request, *, engine: str = "polars") -> Collected:
    """Collect every wanted input once.

    Parameters
    ----------
    log : Log
        The jobs.
    request : Request
        What is wanted.
    engine : {"polars", "dask"}
        Who counts: this process, or the workers of the Dask client that is current.

    Returns
    -------
    Facts
        Of the jobs that entered.
    mapping of (Input, grouping) to DataFrame
        Merged inputs.

    Raises
    ------
    UnknownNameError
        If there is no such engine.
    UsageError
        If the engine is "dask" and there is no Dask client.
    """
    if engine not in ENGINES:
        raise UnknownNameError(kind="engine", found=engine, known=ENGINES)
    if engine == "dask":
        from analysis.characterize.engine_dask import collect_dask

        return collect_dask(log.jobs, request)
    return _collect_polars(log.jobs, request)


def _collect_polars(jobs: pl.LazyFrame, request: Request) -> Collected:
    parts = cut(jobs, BATCH_JOBS)
    if len(parts) == 1:
        # Few enough to be counted exactly, so that the facts need not be known before the columns are read.
        facts, counted = request.count(jobs, num_jobs=0)
        return facts, dict(zip(request.wanted, counted, strict=True))
    # Half as large: what has been merged needs room beside the part.
    parts = cut(jobs, BATCH_JOBS // 2)
    facts = Facts.merge([request.facts(part) for part in parts])
    return facts, request.merge(request.count(part, num_jobs=facts.num_jobs, facts=facts)[1] for part in parts)


def cut(jobs: pl.LazyFrame, size: int) -> list[pl.LazyFrame]:
    """Slices of at most so many jobs; a slice of a scan reads only its own row groups."""
    num_jobs = int(jobs.select(pl.len()).collect().item())
    if num_jobs <= size:
        return [jobs]
    return [jobs.slice(start, size) for start in range(0, num_jobs, size)]
