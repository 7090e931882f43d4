"""Attempts of the Philly job log: one row each, and their sums per job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from analysis.loaders.rows import LINE
from analysis.loaders.zones import ZoneNotes, to_utc
from analysis.metrics import US_PER_S

__all__ = ["Gathered", "gather_attempts", "parse_times"]

MISSING: Final = (None, "", "None")
SCHEMA: Final = {
    LINE: pl.Int64(),
    "job_id": pl.String(),
    "attempt": pl.Int64(),
    "start": pl.String(),
    "end": pl.String(),
    "nodes": pl.List(pl.String()),
    "gpus": pl.Float64(),
    "highest": pl.List(pl.Int64()),
}


@dataclass(frozen=True)
class Gathered:
    """Attempts and what they sum up to.

    Attributes
    ----------
    attempts : DataFrame, one row per attempt
        ``_line`` (the job's record), the columns of ``schema.ATTEMPTS``, and ``highest``: per node
        the number of GPUs that the attempt's GPU indices imply.
    jobs : DataFrame, one row per record that has attempts
        ``_line``, ``start_time``, ``end_time``, ``busy_s`` (sum, null if a time is missing), ``finished_s``
        (sum of the attempts before the last), ``last_start``, ``num_gpus``, ``num_nodes``, ``num_attempts``,
        ``censoring`` (null: as the times say), ``flag_invalid_times``, ``_problem``.
    """

    attempts: pl.DataFrame
    jobs: pl.DataFrame


def parse_times(text: pl.Expr) -> pl.Expr:
    """Naive instants of the log's one format; null where the text is another, or the year is no year of ours."""
    parsed = text.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)
    return pl.when(parsed.dt.year().is_between(1900, 2199)).then(parsed)


def gather_attempts(records: Sequence[tuple[int, dict[str, Any]]], *, zone: str, notes: ZoneNotes) -> Gathered:
    """Make the attempts table of a log, and the sums per job.

    Parameters
    ----------
    records : sequence of (int, dict)
        Number and content of each job's record.
    zone : str
        IANA name of the zone of the log's times: lengths are taken between instants, so a clock change in an attempt
        does not count.
    notes : ZoneNotes
        Counts the times for which a choice was made.

    Returns
    -------
    Gathered
        A job without attempts is in neither table's rows but has ``censoring`` never_started in ``jobs``.
    """
    raw = pl.DataFrame(list(_rows(records)), schema=SCHEMA, orient="row")
    attempts = raw.with_columns(
        to_utc(raw.select(parse_times(pl.col(name)).alias(f"{name}_time")).to_series(), zone=zone, notes=notes)
        for name in ("start", "end")
    )
    length = (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / US_PER_S
    unreadable = (pl.col("start").is_not_null() & pl.col("start_time").is_null()) | (
        pl.col("end").is_not_null() & pl.col("end_time").is_null()
    )
    valid = pl.when(length >= 0).then(length)
    jobs = (
        attempts.with_columns(valid=valid, negative=length < 0, unreadable=unreadable)
        .sort(LINE, "attempt")
        .group_by(LINE, maintain_order=True)
        .agg(
            start_time=pl.col("start_time").first(),
            end_time=pl.col("end_time").last(),
            # A sum over an attempt of unknown length is unknown.
            busy_s=pl.when(pl.col("valid").is_not_null().all()).then(pl.col("valid").sum()),
            finished_s=pl.col("valid").head(pl.len() - 1).sum(),
            last_start=pl.col("start_time").last(),
            num_gpus=pl.col("gpus").first(),
            num_nodes=pl.col("nodes").first().list.len(),
            num_attempts=pl.len(),
            any_time=(pl.col("start_time").is_not_null() | pl.col("end_time").is_not_null()).any(),
            flag_invalid_times=pl.col("negative").fill_null(value=False).any(),
            _problem=pl.when(pl.col("unreadable").any()).then(pl.lit("unreadable_attempt_time")),
        )
    )
    return Gathered(_attempt_columns(attempts), _with_empty(_censor(jobs), records))


def _censor(jobs: pl.DataFrame) -> pl.DataFrame:
    censoring = (
        pl.when(~pl.col("any_time"))
        .then(pl.lit("never_started"))
        .when(pl.col("end_time").is_null() & pl.col("start_time").is_null())
        .then(pl.lit("both"))
        .when(pl.col("end_time").is_null())
        .then(pl.lit("right"))
        .when(pl.col("start_time").is_null())
        .then(pl.lit("left"))
        .otherwise(pl.lit("none"))
    )
    return jobs.with_columns(censoring=censoring).drop("any_time")


def _with_empty(jobs: pl.DataFrame, records: Sequence[tuple[int, dict[str, Any]]]) -> pl.DataFrame:
    """Add the records that have no attempts."""
    all_lines = pl.DataFrame({LINE: [line for line, _ in records]}, schema={LINE: pl.Int64})
    full = all_lines.join(jobs, on=LINE, how="left", maintain_order="left")
    return full.with_columns(
        pl.col("censoring").fill_null("never_started"),
        pl.col("num_attempts").fill_null(0),
        pl.col("flag_invalid_times").fill_null(value=False),
    )


def _attempt_columns(attempts: pl.DataFrame) -> pl.DataFrame:
    return attempts.select(LINE, "job_id", "attempt", "start_time", "end_time", "nodes", "gpus", "highest")


def _rows(records: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[tuple[Any, ...]]:
    for line, record in records:
        attempts = record.get("attempts")
        for number, attempt in enumerate(attempts if isinstance(attempts, list) else [], start=1):
            if not isinstance(attempt, dict):
                attempt = {}
            start, end = (_text(attempt.get(key)) for key in ("start_time", "end_time"))
            yield (line, _text(record.get("jobid")), number, start, end, *_machines(attempt.get("detail")))


def _text(value: Any) -> str | None:
    return None if value in MISSING else str(value).strip()


def _machines(detail: Any) -> tuple[list[str] | None, float | None, list[int] | None]:
    """Machines of an attempt, its GPUs in all, and what each machine must have at least."""
    if not isinstance(detail, list):
        return None, None, None
    listed = [entry for entry in detail if isinstance(entry, dict) and entry.get("ip") not in MISSING]
    if not listed:
        return None, None, None
    named = [entry.get("gpus") for entry in listed]
    gpus = [[str(gpu) for gpu in found] if isinstance(found, list) else [] for found in named]
    highest = [max([len(names), *(_index(name) + 1 for name in names)], default=0) for names in gpus]
    return [str(entry["ip"]).strip() for entry in listed], float(sum(map(len, gpus))), highest


def _index(name: str) -> int:
    digits = name.removeprefix("gpu")
    return int(digits) if digits.isdigit() and len(digits) < 4 else -1
