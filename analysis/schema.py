"""The tables of a Trace: columns, dtypes, units, the meaning of null, and the named rules.

Null always means *not known or did not happen*; it is never written as 0 or -1. Stored times are UTC instants,
stored durations are seconds (``_s``), memory is GiB (``_gib``), fractions are 0-1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

from analysis.errors import SchemaError

__all__ = [
    "CENSORINGS",
    "FLAGS",
    "JOB_RULES",
    "NO_EXTRA",
    "REJECTS",
    "SCHEMA_VERSION",
    "STATUSES",
    "TABLES",
    "Rule",
    "are_unique",
    "count_violations",
    "empty_table",
    "is_sorted",
    "job_order",
    "sort_jobs",
    "validate_jobs",
    "validate_table",
]

SCHEMA_VERSION: Final = 1

STATUSES: Final = (
    "completed",
    "failed",
    "cancelled",
    "timeout",
    "node_fail",
    "preempted",
    "suspended",
    "running",
    "pending",
    "unknown",
)
CENSORINGS: Final = ("none", "left", "right", "both", "never_started")
FLAGS: Final = (
    "clock_skew",  # the log starts the job before it was submitted; its wait counts as 0
    "times_assumed",  # start and end are not in the source; nothing may be read from them
    "duration_mismatch",  # the published duration is not what the time stamps say
    "duration_includes_queue",  # the published duration is end - submit
    "invalid_times",  # an end before its start; the derived values are null
    "start_missing",  # it ended, and the source does not say when it started
    "over_capacity",  # more GPUs than the listed machine or VC has
    "unknown_gpus",  # the source does not say how many GPUs
    "unknown_status",  # a status outside the source's documented set
    "carry_in",  # it was there before the trace begins
    "undecodable_text",  # bytes that are not UTF-8 were replaced
)

TIME: Final = pl.Datetime("us", "UTC")
#: Sorts after every instant [microseconds since 1970].
LAST_US: Final = 2**63 - 1
STATUS: Final = pl.Enum(STATUSES)
CENSORING: Final = pl.Enum(CENSORINGS)
FLAG_LIST: Final = pl.List(pl.Enum(FLAGS))
#: Type of ``extra`` where a source leaves nothing over (Parquet has no empty struct).
NO_EXTRA: Final = pl.Struct({"nothing": pl.Boolean})

JOBS: Final[dict[str, pl.DataType]] = {
    "job_id": pl.String(),  # not null, unique in the trace
    "cluster": pl.String(),
    "user": pl.String(),
    "account": pl.String(),
    "vc": pl.String(),  # virtual cluster, partition or queue
    "job_name": pl.String(),
    "group": pl.String(),  # the source's recurrence group
    "workload": pl.String(),  # the source's class: pretrain, eval, bert …
    "submit_time": TIME,
    "eligible_time": TIME,
    "start_time": TIME,  # first start
    "end_time": TIME,  # last end
    "num_gpus": pl.Float64(),  # whole-job total, fractions allowed; 0 = CPU job; null = unknown
    "gpu_type": pl.String(),  # model it ran on
    "allowed_gpu_types": pl.List(pl.String()),  # null or empty = any
    "num_tasks": pl.Int64(),  # gang members
    "num_nodes": pl.Int64(),
    "num_cpus": pl.Float64(),
    "mem_gib": pl.Float64(),
    "is_single_node": pl.Boolean(),  # must fit on one node; null = the placement decides
    "extra": NO_EXTRA,  # any struct: the source's other columns under their raw names
    "time_limit_s": pl.Float64(),  # requested limit; null = none or unknown, never 0
    "status": STATUS,
    "status_raw": pl.String(),
    "duration_s": pl.Float64(),  # running time, attempts summed, pauses out; a lower bound if right-censored
    "queueing_delay_s": pl.Float64(),  # first start - submit
    "num_attempts": pl.Int64(),
    "censoring": CENSORING,  # not null
    "flags": FLAG_LIST,  # not null; empty = nothing was noticed
}

ATTEMPTS: Final[dict[str, pl.DataType]] = {
    "job_id": pl.String(),
    "attempt": pl.Int64(),  # 1, 2, …
    "start_time": TIME,
    "end_time": TIME,
    "nodes": pl.List(pl.String()),
    "gpus": pl.Float64(),
}

NODES: Final[dict[str, pl.DataType]] = {
    "node_id": pl.String(),
    "gpu_type": pl.String(),  # null = the source does not say, or the node has none
    "num_gpus": pl.Int64(),
    "num_cpus": pl.Float64(),
    "mem_gib": pl.Float64(),
    "vc": pl.String(),
    "available_from": TIME,
    "available_to": TIME,
}

#: GPUs that a VC has from ``time`` on.
CAPACITY: Final[dict[str, pl.DataType]] = {"vc": pl.String(), "time": TIME, "num_gpus": pl.Float64()}

USAGE: Final[dict[str, pl.DataType]] = {
    "job_id": pl.String(),
    "gpu_utilization_mean": pl.Float64(),
    "gpu_utilization_p50": pl.Float64(),
    "gpu_utilization_p95": pl.Float64(),
    "gpu_mem_gib_max": pl.Float64(),
    "cpu_utilization_mean": pl.Float64(),
    "mem_gib_max": pl.Float64(),
}

USAGE_SERIES: Final[dict[str, pl.DataType]] = {
    "entity": pl.String(),
    "time": TIME,
    "metric": pl.String(),
    "value": pl.Float64(),
}

#: Raw rows that no table could take: the file, its physical line (1 = first), why, and the text itself.
REJECTS: Final[dict[str, pl.DataType]] = {
    "file": pl.String(),
    "line": pl.Int64(),
    "reason": pl.String(),
    "raw": pl.String(),
}

TABLES: Final[Mapping[str, dict[str, pl.DataType]]] = {
    "jobs": JOBS,
    "nodes": NODES,
    "capacity": CAPACITY,
    "attempts": ATTEMPTS,
    "usage": USAGE,
    "usage_series": USAGE_SERIES,
    "rejects": REJECTS,
}

NOT_NULL: Final[Mapping[str, tuple[str, ...]]] = {
    "jobs": ("job_id", "censoring", "flags"),
    "nodes": ("node_id", "num_gpus"),
    "capacity": ("vc", "time", "num_gpus"),
    "attempts": ("job_id", "attempt"),
    "usage": ("job_id",),
    "usage_series": ("entity", "time", "metric"),
    "rejects": ("file", "reason"),
}


@dataclass(frozen=True)
class Rule:
    """One law of the jobs table.

    Attributes
    ----------
    meaning : str
        The law in words, as the load report and the error print it.
    holds : Expr
        True where the row obeys; null counts as obeying.
    severity : {"error", "flag"}
        "error": no jobs table may hold such a row. "flag": the source may; the row is kept and reported.
    """

    meaning: str
    holds: pl.Expr
    severity: Literal["error", "flag"] = "error"


JOB_RULES: Final[Mapping[str, Rule]] = {
    "id_is_unique": Rule("job_id occurs once", pl.col("job_id").is_unique()),
    "gpus_not_negative": Rule("num_gpus is 0 or more", pl.col("num_gpus") >= 0),
    "duration_not_negative": Rule("duration_s is 0 or more", pl.col("duration_s") >= 0),
    "queueing_delay_not_negative": Rule("queueing_delay_s is 0 or more", pl.col("queueing_delay_s") >= 0),
    "limit_is_positive": Rule("time_limit_s is above 0 (null = none)", pl.col("time_limit_s") > 0),
    "never_started_has_no_start": Rule(
        "a job that never started has no start_time",
        (pl.col("censoring") != "never_started") | pl.col("start_time").is_null(),
    ),
    "starts_after_submit": Rule(
        "start_time is not before submit_time", pl.col("start_time") >= pl.col("submit_time"), "flag"
    ),
    "ends_after_start": Rule("end_time is not before start_time", pl.col("end_time") >= pl.col("start_time"), "flag"),
    "has_submit_time": Rule("submit_time is known", pl.col("submit_time").is_not_null(), "flag"),
    "has_duration": Rule("duration_s is known", pl.col("duration_s").is_not_null(), "flag"),
    "has_gpus": Rule("num_gpus is known", pl.col("num_gpus").is_not_null(), "flag"),
    "status_is_known": Rule("the status is one that the source documents", pl.col("status") != "unknown", "flag"),
}


def count_violations(jobs: pl.DataFrame | pl.LazyFrame, rules: Mapping[str, Rule] = JOB_RULES) -> dict[str, int]:
    """Number of rows that break each rule; a null never breaks one.

    Parameters
    ----------
    jobs : DataFrame or LazyFrame, one row per job
        All columns of the jobs table.
    rules : mapping of name to Rule, optional
        The rules to check; by default all.

    Returns
    -------
    dict of str to int
        Every rule by name, 0 where nothing breaks it.
    """
    broken = {name: (~rule.holds).fill_null(value=False).sum() for name, rule in rules.items()}
    counted = jobs.lazy().select(**broken).collect(engine="streaming")
    return {name: int(count) for name, count in counted.row(0, named=True).items()}


def empty_table(name: str) -> pl.DataFrame:
    """Make a table of no rows with all its columns."""
    return pl.DataFrame(schema=TABLES[name])


def are_unique(ids: pl.Series) -> bool:
    """Whether no id occurs twice; quick for the usual log, whose ids are integers that rise."""
    numbers = ids.cast(pl.Int64, strict=False)
    if not numbers.null_count() and bool((numbers.diff() > 0).all()):
        return True
    return ids.n_unique() == len(ids)


def job_order(job_id: pl.Series) -> pl.DataFrame:
    """Sort keys of ids: as integers when all are integers, else as text.

    Parameters
    ----------
    job_id : Series of str
        Job or node ids, no nulls.

    Returns
    -------
    DataFrame with columns ``number`` (int64) and ``text`` (str), same length and order
        Sorting by both gives the order of ids everywhere in hindcast; ``number`` is null for all rows as soon as
        one id is not an integer.

    Examples
    --------
    >>> job_order(pl.Series(["10", "9"]))["number"].to_list()
    [10, 9]
    >>> job_order(pl.Series(["10", "a9"]))["number"].to_list()
    [None, None]
    """
    text = job_id.cast(pl.String).alias("text")
    is_number = text.str.contains(r"^-?[0-9]{1,18}$").all()
    number = text.cast(pl.Int64) if is_number else pl.Series([None] * len(text), dtype=pl.Int64)
    return pl.DataFrame({"number": number, "text": text})


def validate_table(name: str, table: pl.DataFrame) -> None:
    """Check a table's columns, order, dtypes and nulls; report all that is wrong at once.

    Raises
    ------
    SchemaError
        If anything differs from the schema.
    """
    violations = _column_violations(name, table)
    if violations:
        raise SchemaError(table=name, violations=violations)


def validate_jobs(jobs: pl.DataFrame) -> None:
    """Check a jobs table against its schema, its rules and its order; report all that is wrong at once.

    Raises
    ------
    SchemaError
        If a column is missing, of another dtype or out of place, a rule of severity "error" is broken, or the rows
        are not sorted by (submit_time, job_id).
    """
    violations = _column_violations("jobs", jobs)
    if not violations:
        laws = {name: rule for name, rule in JOB_RULES.items() if rule.severity == "error"}
        if are_unique(jobs["job_id"]):
            del laws["id_is_unique"]
        for name, count in count_violations(jobs, laws).items():
            if count:
                ids = jobs.filter(~laws[name].holds)["job_id"].head(3).to_list()
                violations.append(f"{name}: {count} rows (first job ids {ids}); expected: {laws[name].meaning}")
        if not is_sorted(jobs):
            violations.append("order: rows are not sorted by (submit_time, job_id); sort with schema.sort_jobs")
    if violations:
        raise SchemaError(table="jobs", violations=violations)


def sort_jobs(jobs: pl.DataFrame) -> pl.DataFrame:
    """Sort by (submit_time, job_id), jobs without a submission last; ids compare as integers when all are."""
    order = _order(jobs)
    return jobs[order] if not order.is_sorted() else jobs


def is_sorted(jobs: pl.DataFrame) -> bool:
    """Whether rows with ``submit_time`` and ``job_id`` are in the order of `sort_jobs`."""
    keys = job_order(jobs["job_id"]).with_columns(time=jobs["submit_time"].dt.timestamp("us").fill_null(LAST_US))
    # Null numbers (ids that are text) are all alike.
    keys = keys.with_columns(pl.col("number").fill_null(0))
    rises: pl.Expr = pl.col("text") >= pl.col("text").shift()
    for name in ("number", "time"):
        before = pl.col(name).shift()
        rises = (pl.col(name) > before) | ((pl.col(name) == before) & rises)
    return bool(keys.select(rises.fill_null(value=True).all()).item())


def _order(jobs: pl.DataFrame) -> pl.Series:
    keys = job_order(jobs["job_id"]).with_columns(submit_time=jobs["submit_time"])
    return keys.select(
        pl.int_range(pl.len()).sort_by("submit_time", "number", "text", nulls_last=True, maintain_order=True)
    ).to_series()


def _column_violations(name: str, table: pl.DataFrame) -> list[str]:
    expected = TABLES[name]
    found = table.schema
    missing = [column for column in expected if column not in found]
    surplus = [column for column in found if column not in expected]
    violations = [f"column {column!r} is missing; expected {expected[column]}" for column in missing]
    violations += [f"column {column!r} is not in the schema; put it into 'extra'" for column in surplus]
    violations += [
        f"column {column!r} has dtype {found[column]}; expected {dtype}"
        for column, dtype in expected.items()
        if column in found and not _same_dtype(column, found[column], dtype)
    ]
    if not violations and list(found) != list(expected):
        violations.append(f"columns are in another order; expected {', '.join(expected)}")
    for column in NOT_NULL[name]:
        if column in found and (nulls := table[column].null_count()):
            violations.append(f"column {column!r} has {nulls} nulls; expected none")
    return violations


def _same_dtype(column: str, found: pl.DataType, expected: pl.DataType) -> bool:
    return isinstance(found, pl.Struct) if column == "extra" else found == expected
