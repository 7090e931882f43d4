"""Collect what the tables need from a log: its columns once, then every input from them, part by part if large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from analysis.characterize.cubes import GROUPS, Input
from analysis.characterize.intervals import NEEDED, changes
from analysis.characterize.prepare import FACT_COLUMNS, Facts, Log, prepare
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
        """The columns that inputs and facts read, of the jobs of a part that enter; the facts come later."""
        whole = prepare(self.chosen(jobs), num_jobs=num_jobs, time_zone=self.time_zone)
        exprs = [expr for item, by in self.wanted for expr in _exprs(item, by)]
        needed = {*FACT_COLUMNS, *(name for expr in exprs for name in expr.meta.root_names())}
        if any(item.table == "changes" for item, _ in self.wanted):
            needed |= {*NEEDED, *(["job_id"] if self.attempts is not None else [])}
        takes_all = any(expr.meta.has_multiple_outputs() for expr in exprs)
        names = [name for name in whole.collect_schema().names() if takes_all or name in needed]
        return whole.select(names).collect(engine="streaming")

    def facts(self, part: pl.LazyFrame) -> pl.DataFrame:
        """What `Facts.merge` takes, of a part of the jobs."""
        return Facts.query(prepare(self.chosen(part), num_jobs=0)).collect(engine="streaming")

    def count(self, prepared: pl.DataFrame, facts: Facts) -> list[pl.DataFrame]:
        """Count every wanted input in a part of the prepared jobs."""
        # Constants are put beside the rows when they are read: as columns they would need room for every job.
        rows = prepared.lazy().with_columns(facts.columns())
        tables = {"jobs": rows}
        if any(item.table == "changes" for item, _ in self.wanted):
            tables["changes"] = changes(rows, self.attempts)
        # One after the other: together their hash tables would need several times the memory.
        return [item.query(tables[item.table], by=by).collect(engine="streaming") for item, by in self.wanted]

    def merge(self, parts: Iterable[Sequence[pl.DataFrame]]) -> dict[Key, pl.DataFrame]:
        """Put the parts of every wanted input together, as they come."""
        kept: list[list[pl.DataFrame]] = [[] for _ in self.wanted]
        for part in parts:
            for (item, by), frames, frame in zip(self.wanted, kept, part, strict=True):
                frames.append(frame)
                # As much as there is already: so that no row is merged more often than a few times.
                if sum(f.height for f in frames[1:]) > max(frames[0].height, MIN_MERGE):
                    frames[:] = [item.merge(frames, by=by)]
        merged: dict[Key, pl.DataFrame] = {}
        for (item, by), frames in zip(self.wanted, kept, strict=True):
            merged[item, by] = item.merge(frames, by=by)
            frames.clear()
        return merged


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
        prepared = request.prepared(jobs, num_jobs=0)
        facts = Facts.merge([Facts.query(prepared.lazy()).collect()])
        counted = request.count(prepared, facts)
        del prepared
        return facts, request.merge([counted])
    # Half as large: what has been merged needs room beside the part.
    parts = cut(jobs, BATCH_JOBS // 2)
    facts = Facts.merge([request.facts(part) for part in parts])
    frames = (request.prepared(part, num_jobs=facts.num_jobs) for part in parts)
    return facts, request.merge(request.count(frame, facts) for frame in frames)


def cut(jobs: pl.LazyFrame, size: int) -> list[pl.LazyFrame]:
    """Slices of at most so many jobs; a slice of a scan reads only its own row groups."""
    num_jobs = int(jobs.select(pl.len()).collect().item())
    if num_jobs <= size:
        return [jobs]
    return [jobs.slice(start, size) for start in range(0, num_jobs, size)]
