"""Collect what the tables need from a log: every input once, in one shared scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from analysis.characterize.cubes import Input
from analysis.characterize.intervals import changes
from analysis.characterize.prepare import Facts, Log, prepare
from analysis.errors import UnknownNameError

__all__ = ["ENGINES", "Request", "collect"]

ENGINES: Final = ("polars", "dask")


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
    """

    wanted: tuple[tuple[Input, tuple[str, ...]], ...]
    where: pl.Expr | None = None
    time_zone: str = "UTC"

    def chosen(self, jobs: pl.LazyFrame) -> pl.LazyFrame:
        """Jobs that enter."""
        return jobs if self.where is None else jobs.filter(self.where)

    def plans(self, jobs: pl.LazyFrame, *, facts: Facts, attempts: pl.LazyFrame | None) -> list[pl.LazyFrame]:
        """A query per wanted input over the whole log or a part of it."""
        prepared = prepare(self.chosen(jobs), facts, time_zone=self.time_zone)
        tables = {"jobs": prepared}
        if any(item.table == "changes" for item, _ in self.wanted):
            tables["changes"] = changes(prepared, attempts)
        return [item.query(tables[item.table], by=by) for item, by in self.wanted]


def collect(
    log: Log, request: Request, *, attempts: pl.LazyFrame | None = None, engine: str = "polars"
) -> tuple[Facts, Mapping[tuple[Input, tuple[str, ...]], pl.DataFrame]]:
    """Collect every wanted input once.

    Parameters
    ----------
    log : Log
        The jobs.
    request : Request
        What is wanted.
    attempts : LazyFrame, optional
        The attempts table.
    engine : {"polars"}
        Who counts.

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
    """
    if engine not in ENGINES:
        raise UnknownNameError(kind="engine", found=engine, known=ENGINES)
    facts, parts = _collect_polars(log.jobs, request, attempts)
    return facts, {key: key[0].merge([part], by=key[1]) for key, part in zip(request.wanted, parts, strict=True)}


def _collect_polars(
    jobs: pl.LazyFrame, request: Request, attempts: pl.LazyFrame | None
) -> tuple[Facts, Sequence[pl.DataFrame]]:
    facts = Facts.merge([Facts.query(request.chosen(jobs)).collect(engine="streaming")])
    return facts, pl.collect_all(request.plans(jobs, facts=facts, attempts=attempts), engine="streaming")
