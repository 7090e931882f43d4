"""The chapter of a report on data quality: what became of every row of the source, and how complete the jobs are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from analysis import schema
from analysis.report.blocks import MOST_NARROW_LOGS, Block, Section, table_block
from analysis.trace import LoadReport, Trace

__all__ = ["quality_section"]

Counts = list[tuple[str, int]]


def _rows(trace: Trace) -> Counts:
    report = trace.meta.load_report
    return [
        ("rows read", report.rows_in),
        ("rows used", report.rows_used),
        ("rows set aside", report.rows_set_aside),
        ("rows merged into another row's job", report.rows_merged),
        ("jobs made beyond one a row", report.rows_expanded),
        ("jobs", int(trace.scan().select(pl.len()).collect().item())),
    ]


def _rules(trace: Trace) -> Counts:
    broken = schema.count_violations(trace.scan())
    return [(schema.JOB_RULES[name].meaning, count) for name, count in broken.items() if count]


def _of_report(pick: Callable[[LoadReport], Mapping[str, int]]) -> Callable[[Trace], Counts]:
    return lambda trace: [(name.replace("_", " "), count) for name, count in pick(trace.meta.load_report).items()]


def _files(trace: Trace) -> Counts:
    return [(str(file.get("name", "")), int(file.get("rows", 0) or 0)) for file in trace.meta.load_report.files]


#: Name of the file, heading, what is counted, and the sentence for none (empty = then there is no block).
PARTS: Final[tuple[tuple[str, str, Callable[[Trace], Counts], str], ...]] = (
    ("quality_rows", "What became of the rows", _rows, ""),
    (
        *("quality_set_aside", "Rows set aside, by reason"),
        *(_of_report(lambda report: report.rejected_by_reason), "No row was set aside."),
    ),
    (
        *("quality_flags", "Jobs flagged by the loader"),
        *(_of_report(lambda report: report.flagged), "The loader flagged no job."),
    ),
    ("quality_statuses", "Unknown statuses", _of_report(lambda report: report.unknown_statuses), ""),
    ("quality_rules", "Rules that jobs break", _rules, "No job breaks a rule."),
    ("quality_files", "Files", _files, ""),
)


def quality_section(traces: Mapping[str, Trace]) -> Section:
    """Section on data quality: the load report, flags, broken rules and unknown values of one log or several.

    Parameters
    ----------
    traces : mapping of str to Trace
        Logs by name.
    """
    blocks = []
    for name, title, count, none in PARTS:
        counted = {log: count(trace) for log, trace in traces.items()}
        if any(counted.values()):
            block = table_block(name, _side_by_side(counted), title=title)
            block.is_wide = len(traces) > MOST_NARROW_LOGS
            blocks.append(block)
        elif none:
            blocks.append(Block(title, missing=none))
    known = _completeness(traces)
    if known.height:
        block = table_block("quality_known", known, title="How much the log says", is_folded=True)
        block.definition = (
            "Share of the jobs for which the column holds a value; columns that no log fills are left out."
        )
        blocks.append(block)
    text = "Every row of the source is used or set aside, and counted."
    return Section("quality", "Data quality", text=text, blocks=blocks)


def _side_by_side(counted: Mapping[str, Counts]) -> pl.DataFrame:
    """A row per thing counted, a column per log (called "count" for a single one); null = not in this log."""
    whats = list(dict.fromkeys(what for rows in counted.values() for what, _ in rows))
    by_log = {log if len(counted) > 1 else "count": dict(rows) for log, rows in counted.items()}
    columns = {log: pl.Series([rows.get(what) for what in whats], dtype=pl.Int64) for log, rows in by_log.items()}
    return pl.DataFrame({"what": pl.Series(whats, dtype=pl.String), **columns})


def _completeness(traces: Mapping[str, Trace]) -> pl.DataFrame:
    """Share of the jobs that hold a value, a row per column that any log fills."""
    counted = {log: _known(trace) for log, trace in traces.items()}
    filled = {log: (num_jobs, known) for log, (num_jobs, known) in counted.items() if num_jobs}
    columns = [name for name in schema.JOBS if any(known[name] for _, known in filled.values())]
    shares = {
        f"{log}_share" if len(traces) > 1 else "known_share": [known[name] / num_jobs for name in columns]
        for log, (num_jobs, known) in filled.items()
    }
    return pl.DataFrame({"column": pl.Series(columns, dtype=pl.String), **shares}) if filled else pl.DataFrame()


def _known(trace: Trace) -> tuple[int, dict[str, int]]:
    """Number of jobs, and of those for which each column holds a value; the log stays where it is."""
    counts = trace.scan().select(pl.len().alias("len"), *(pl.col(name).count() for name in schema.JOBS))
    num_jobs, *known = counts.collect(engine="streaming").row(0)
    return num_jobs, dict(zip(schema.JOBS, known, strict=True))
