"""The same trace without names, so that a site can share its log.

What becomes of each column:

* ``user``, ``account``, ``vc``, ``group``, ``cluster``, ``workload``: keyed hashes (HMAC-SHA256, shortened to letters).
  Equal values stay equal, in all tables; two values never become one (the hashes are lengthened until they differ).
  ``keep`` leaves columns readable. The same key gives the same hashes for the next month's log.
* ``job_name``: word by word. Every run of letters becomes its own hash, every number and every hexadecimal id of eight
  or more digits becomes a hash of digits, separators stay. So ``train-17`` and ``train-18`` share their first word, the
  names of one family (what is left when numbers are taken out, whatever the case) stay one family, and how similar two
  names are survives roughly. Nothing of a word or a number remains, but the number of words does.
* ``job_id``: numbered 1, 2, … in the table's order. Ties in a replay are decided by the id, so a hash would change its
  results; these numbers do not.
* Node names: a hash behind the node's rank, for the same reason (``0007_…``).
* ``extra``, ``status_raw``, ``rejects``: dropped: free text and raw lines. Their counts stay in the load report.
* Kept as they are: times (unless shifted), durations, sizes, statuses, flags, GPU models.

This hides names. It does not hide a job whose exact time and size somebody knows from elsewhere.
"""

from __future__ import annotations

import hmac
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl
import polars.selectors as cs

from analysis import schema
from analysis.errors import UnknownNameError, UsageError
from analysis.pseudonyms import hash_names, hash_values
from analysis.table_file import TableFile
from analysis.trace import Trace, TraceMeta

__all__ = ["HASHED", "anonymize", "check_kept", "shift_of"]

#: Columns that become hashes, wherever they stand, with the letters in front of the hash.
HASHED: Final[Mapping[str, str]] = {
    "user": "u",
    "account": "a",
    "vc": "vc",
    "job_name": "",
    "group": "g",
    "cluster": "c",
    "workload": "w",
}
#: 52 weeks: the season stays, so clock changes move by a few days only.
RANDOM_STEP_DAYS: Final = 364
MAX_RANDOM_STEPS: Final = 20
#: Longer series are streamed.
MAX_ROWS_IN_MEMORY: Final = 2_000_000


def check_kept(keep: Collection[str]) -> None:
    """Refuse names of columns that are not hashed.

    Raises
    ------
    UnknownNameError
        Naming the first of them and all that can be kept.
    """
    for column in keep:
        if column not in HASHED:
            raise UnknownNameError(kind="hashed column to keep", found=column, known=HASHED)


def shift_of(text: str | None, *, key: bytes) -> int:
    """Read how far times shall move [days].

    Parameters
    ----------
    text : str or None
        A multiple of 7, or "random": 1 to 20 times 52 weeks into the past, as the key decides, so that the next
        month's log moves as far. Null: not at all.
    key : bytes
        The secret.

    Raises
    ------
    UsageError
        If it is anything else.
    """
    if text is None:
        return 0
    if text == "random":
        drawn = int.from_bytes(hmac.digest(key, b"shift-time", "sha256")[:8], "big")
        return -RANDOM_STEP_DAYS * (1 + drawn % MAX_RANDOM_STEPS)
    try:
        days = int(text)
    except ValueError:
        days = 1
    if days % 7 or abs(days) > RANDOM_STEP_DAYS * 200:
        msg = (
            f"shift-time: found {text!r}; expected 'random' or a multiple of 7 days, e.g. 364 or -3640: "
            "whole weeks keep the hour and the weekday."
        )
        raise UsageError(msg)
    return days


def anonymize(
    trace: Trace, *, key: bytes, keep: Collection[str] = (), shift_days: int = 0, name: str = "anonymous"
) -> Trace:
    """Make the same trace with keyed hashes for all names; see the module for what becomes of each column.

    Parameters
    ----------
    trace : Trace
        Any trace.
    key : bytes
        The secret; the same key gives the same hashes.
    keep : collection of str, optional
        Columns of `HASHED` that stay readable.
    shift_days : int, default 0
        All times move by so many days, a multiple of 7, counted in UTC: hour and weekday stay, except that local
        hours move by one where a clock change lies between the old date and the new [days].
    name : str, default "anonymous"
        Name of the new trace.

    Returns
    -------
    Trace
        The same rows in the same order; ``rejects`` is empty, ``extra`` and ``status_raw`` are null.

    Raises
    ------
    UnknownNameError
        If a column to be kept is none that is hashed.
    UsageError
        If the shift is not a multiple of 7 days.
    """
    check_kept(keep)
    if shift_days % 7:
        msg = f"anonymize: shift_days is {shift_days}; expected a multiple of 7, so that weekdays stay."
        raise UsageError(msg)
    tables = {table: trace.table(table) for table in schema.TABLES if table not in {"rejects", "usage_series"}}
    maps = _make_maps(tables, key=key, keep=keep)
    shift = timedelta(days=shift_days)
    changed = {table: _change(table, frame, maps, shift) for table, frame in tables.items()}
    series = _change_series(trace.scan("usage_series"), maps, shift, key=key)
    meta = _new_meta(trace, name=name, keep=keep, shift_days=shift_days)
    return Trace(changed.pop("jobs"), meta=meta, tables={**changed, "usage_series": series})


def _make_maps(tables: Mapping[str, pl.DataFrame], *, key: bytes, keep: Collection[str]) -> dict[str, dict[str, str]]:
    """Old value -> new value, for every kind of name."""
    maps = {}
    for column, prefix in HASHED.items():
        values = _distinct(tables[table][column] for table in tables if column in tables[table].columns)
        if column in keep:
            maps[column] = {value: value for value in values}
        elif column == "job_name":
            maps[column] = hash_names(values, key=key)
        else:
            maps[column] = hash_values(values, key=key, kind=column, prefix=f"{prefix}_")
    ids = tables["jobs"]["job_id"].to_list()
    strays = _distinct(tables[table]["job_id"] for table in ("attempts", "usage"))
    ids += _in_order(set(strays) - set(ids))
    maps["job_id"] = {old: str(number) for number, old in enumerate(ids, 1)}
    maps["node_id"] = _node_map(tables, key=key)
    return maps


def _distinct(columns: Iterable[pl.Series]) -> list[str]:
    values = {value for column in columns for value in column.unique().drop_nulls()}
    return sorted(values)


def _in_order(ids: Collection[str]) -> list[str]:
    """Sort ids as hindcast does everywhere: as numbers if all are, else as text."""
    text = pl.Series("id", sorted(ids), dtype=pl.String)
    return schema.job_order(text).sort("number", "text")["text"].to_list()


def _node_map(tables: Mapping[str, pl.DataFrame], *, key: bytes) -> dict[str, str]:
    nodes = _in_order(_distinct([tables["nodes"]["node_id"], tables["attempts"]["nodes"].explode()]))
    hashes, width = hash_values(nodes, key=key, kind="node"), len(str(len(nodes)))
    return {node: f"{rank:0{width}}_{hashes[node]}" for rank, node in enumerate(nodes, 1)}


def _change(table: str, frame: pl.DataFrame, maps: Mapping[str, Mapping[str, str]], shift: timedelta) -> pl.DataFrame:
    """One table with new names and, if asked for, other times."""
    changes = [_renamed(column, maps[column]) for column in frame.columns if column in maps]
    if table == "attempts" and frame.height:
        nodes = pl.element().replace_strict(maps["node_id"], return_dtype=pl.String)
        changes.append(pl.col("nodes").list.eval(nodes))
    if table == "jobs":
        changes += [pl.lit(None, schema.NO_EXTRA).alias("extra"), pl.lit(None, pl.String).alias("status_raw")]
    return frame.with_columns(*changes, cs.datetime() + shift)


def _renamed(column: str, new: Mapping[str, str]) -> pl.Expr:
    old, new_values = pl.Series(list(new), dtype=pl.String), pl.Series(list(new.values()), dtype=pl.String)
    return pl.col(column).replace_strict(old, new_values, return_dtype=pl.String)


def _change_series(
    scan: pl.LazyFrame, maps: Mapping[str, Mapping[str, str]], shift: timedelta, *, key: bytes
) -> pl.DataFrame | TableFile:
    """Change the measured series; a long one goes from file to file and is never in memory."""
    entities = scan.select(pl.col("entity").unique()).collect(engine="streaming")["entity"].drop_nulls().sort()
    changed = scan.with_columns(
        _renamed("entity", _entity_map(entities.to_list(), maps, key=key)), cs.datetime() + shift
    )
    if scan.select(pl.len()).collect().item() <= MAX_ROWS_IN_MEMORY:
        return changed.collect()
    folder = Path(tempfile.mkdtemp(prefix="hindcast-"))
    file = TableFile(folder / "usage_series.parquet", is_temporary=True)
    changed.sink_parquet(file.path)
    return file


def _entity_map(entities: Collection[str], maps: Mapping[str, Mapping[str, str]], *, key: bytes) -> dict[str, str]:
    """New names of what was measured: a job, a node, a GPU of a node (node-0), or something else."""
    found, other = {}, []
    for entity in entities:
        node, separator, index = _split_index(entity)
        if entity in maps["node_id"] or entity in maps["job_id"]:
            found[entity] = maps["node_id"].get(entity) or maps["job_id"][entity]
        elif node in maps["node_id"]:
            found[entity] = maps["node_id"][node] + separator + index
        else:
            other.append(entity)
    return found | hash_values(other, key=key, kind="entity", prefix="e_")


def _split_index(entity: str) -> tuple[str, str, str]:
    match = re.fullmatch(r"(.+)([-:/])([0-9]{1,3})", entity)
    return (match[1], match[2], match[3]) if match else ("", "", "")


def _new_meta(trace: Trace, *, name: str, keep: Collection[str], shift_days: int) -> TraceMeta:
    """Metadata without names, paths and free text; what was taken out is said."""
    old = trace.meta.load_report
    reasons: dict[str, int] = {}
    for reason, count in old.rejected_by_reason.items():
        # A reason is a word of ours; anything longer may quote the row.
        plain = reason if re.fullmatch(r"[a-z_]{1,40}", reason) else "other"
        reasons[plain] = reasons.get(plain, 0) + count
    report = replace(
        old,
        rejected_by_reason=reasons,
        unknown_statuses={"unknown": sum(old.unknown_statuses.values())} if old.unknown_statuses else {},
        files=[
            {key: value for key, value in file.items() if key in {"size", "rows"}} | {"name": f"file {number}"}
            for number, file in enumerate(old.files, 1)
        ],
        notes=_notes(trace, keep=keep, shift_days=shift_days),
    )
    first, last = trace.meta.window
    return replace(
        trace.meta,
        name=name,
        source="anonymized by hindcast",
        citation="",
        coverage=None,
        clock="clock_only" if shift_days and trace.meta.clock == "absolute" else trace.meta.clock,
        window=(_shifted(first, shift_days), _shifted(last, shift_days)),
        load_report=report,
    )


def _shifted(instant: str | None, days: int) -> str | None:
    """Move an ISO 8601 time; null if it is none."""
    try:
        return (datetime.fromisoformat(instant) + timedelta(days=days)).isoformat() if instant else None
    except ValueError:
        return None


def _notes(trace: Trace, *, keep: Collection[str], shift_days: int) -> list[str]:
    hashed = [column for column in HASHED if column not in keep]
    notes = [f"Keyed hashes instead of {', '.join(hashed)} and node names; jobs are numbered in their order."]
    if keep:
        notes.append(f"Left readable: {', '.join(column for column in HASHED if column in keep)}.")
    notes.append("Dropped: extra, status_raw, the text of rows set aside, source, citation and coverage.")
    if trace.meta.load_report.notes:
        notes.append(
            f"{len(trace.meta.load_report.notes)} notes of the load report were left out: they may quote names."
        )
    if shift_days:
        notes.append("All times were moved by whole weeks: hour and weekday are true, the date is not.")
    return notes
