"""Finishing a log of millions of rows: block by block into a Parquet file, so that no memory holds it whole."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.finish_rows import TIMES, RowRoad, count_flags, count_unknown, with_flags
from analysis.loaders.zones import ZoneNotes
from analysis.table_file import TableFile

__all__ = ["Blockwise", "finish_to_file"]

Span = tuple[object, object]
#: Rows of a row group: what a reader of the file needs to hold at least.
ROW_GROUP: Final = 250_000


@dataclass
class Blockwise:
    """A jobs table that was written block by block, and what became of its rows.

    Attributes
    ----------
    road : RowRoad
        What is done to each row.
    rejects : list of DataFrame
        Rows set aside.
    num_rows, num_jobs : int
        Partial rows seen; jobs written.
    flagged, unknown_statuses : Counter
        Jobs by flag; jobs by status that no table knows.
    times : list of (first, last)
        Of each time column of each block.
    zone_notes : ZoneNotes
        Choices about clock changes.
    violations : Counter
        Jobs that break a rule of the schema, by rule: a fault of the loader.
    """

    road: RowRoad
    rejects: list[pl.DataFrame] = field(default_factory=list)
    num_rows: int = 0
    num_jobs: int = 0
    flagged: Counter[str] = field(default_factory=Counter)
    unknown_statuses: Counter[str] = field(default_factory=Counter)
    times: list[Span] = field(default_factory=list)
    zone_notes: ZoneNotes = field(default_factory=ZoneNotes)
    violations: Counter[str] = field(default_factory=Counter)

    def take(self, block: pl.DataFrame) -> pl.DataFrame:
        """Finish a block's rows, and count."""
        rows, rejects = self.road.finish(block, self.zone_notes)
        jobs = with_flags(rows)
        self.num_rows += block.height
        self.num_jobs += jobs.height
        if rejects.height:
            self.rejects.append(rejects)
        self.flagged.update(count_flags(jobs))
        self.unknown_statuses.update(count_unknown(jobs))
        self.times += [(jobs[name].min(), jobs[name].max()) for name in TIMES if jobs[name].len()]
        self.violations.update({name: n for name, n in schema.count_violations(jobs, OF_A_ROW).items() if n})
        return jobs


#: The rules that can be checked without the other rows.
OF_A_ROW: Final = {
    name: rule for name, rule in schema.JOB_RULES.items() if rule.severity == "error" and name != "id_is_unique"
}


def finish_to_file(partial: pl.LazyFrame, road: RowRoad) -> tuple[Blockwise, TableFile] | None:
    """Finish a log block by block.

    Parameters
    ----------
    partial : LazyFrame
        As for `finish.finish_jobs`; read once.
    road : RowRoad
        What is done to each row; its ``snapshot`` must not look at other rows.

    Returns
    -------
    tuple of (Blockwise, TableFile), or None
        None if the rows must see each other: an id occurs twice, or the log is not in the order of
        ``schema.sort_jobs``, or a rule is broken. The caller then takes the road that holds all.
    """
    done = Blockwise(road)
    probe = Blockwise(road).take(partial.head(0).collect())
    folder = Path(tempfile.mkdtemp(prefix="hindcast-"))
    file = TableFile(folder / "jobs.parquet", is_temporary=True)
    partial.map_batches(
        done.take, schema=probe.schema, streamable=True, projection_pushdown=False, predicate_pushdown=False
    ).sink_parquet(file.path, row_group_size=ROW_GROUP, maintain_order=True)
    keys = file.scan().select("submit_time", "job_id").collect()
    fine = not done.violations and schema.are_unique(keys["job_id"]) and schema.is_sorted(keys)
    return (done, file) if fine else None
