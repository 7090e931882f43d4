"""Traces without jobs: a source that gives only nodes, or only what was measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import polars as pl

from analysis import schema
from analysis.loaders.finish import with_text
from analysis.loaders.rows import RawRows
from analysis.table_file import TableFile
from analysis.trace import LoadReport, Trace, TraceMeta

__all__ = ["finish_without_jobs"]


def finish_without_jobs(
    *,
    meta: TraceMeta,
    raws: Sequence[RawRows],
    tables: Mapping[str, pl.DataFrame | TableFile],
    notes: Collection[str] = (),
) -> Trace:
    """Make the Trace of a source that has no jobs.

    Parameters
    ----------
    meta : TraceMeta
        Without a load report.
    raws : sequence of RawRows
        Every file that was read, to its end.
    tables : mapping of str to DataFrame or TableFile
        Tables beside the jobs. ``rejects``: rows that the loader itself set aside, beside those of ``raws``.
    notes : collection of str, optional
        Assumptions, in sentences.

    Returns
    -------
    Trace
        Its jobs table is empty.
    """
    beside = dict(tables)
    own = beside.pop("rejects", None)
    later = [with_text(own, raws)] if isinstance(own, pl.DataFrame) else []
    rejects = pl.concat([*(raw.rejects for raw in raws), *later]).sort("file", "line", "reason", nulls_last=True)
    reasons = rejects.group_by("reason").len().sort("reason")
    rows_in = sum(raw.rows_in for raw in raws)
    report = LoadReport(
        rows_in=rows_in,
        rows_used=rows_in - rejects.height,
        rows_set_aside=rejects.height,
        rejected_by_reason={str(reason): int(count) for reason, count in reasons.iter_rows()},
        files=[{"name": raw.name, "size": raw.size, "rows": raw.rows_in} for raw in raws],
        notes=[*notes, *(note for raw in raws for note in raw.notes)],
    )
    full = replace(meta, load_report=report)
    return Trace(schema.empty_table("jobs"), meta=full, tables={**beside, "rejects": rejects})
