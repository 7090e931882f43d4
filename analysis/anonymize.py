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
import os
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl
import polars.selectors as cs

from analysis import schema
from analysis.errors import BadFileError, UnknownNameError, UsageError
from analysis.pseudonyms import hash_names, hash_values
from analysis.trace import Trace, TraceMeta

__all__ = ["HASHED", "Key", "anonymize", "check_kept", "obtain_key", "shift_of"]

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
MIN_KEY_BYTES: Final = 16
#: 52 weeks: the season stays, so clock changes move by a few days only.
RANDOM_STEP_DAYS: Final = 364
MAX_RANDOM_STEPS: Final = 20


@dataclass(frozen=True)
class Key:
    """The secret of the hashes, and where it lies.

    Attributes
    ----------
    secret : bytes
        Never printed, never in a trace.
    path : Path
        Its file.
    is_new : bool
        Whether it was made just now.
    """

    secret: bytes = field(repr=False)
    path: Path
    is_new: bool

    def forget(self) -> None:
        """Remove a key that was made for something that came to nothing."""
        if self.is_new:
            self.path.unlink(missing_ok=True)


def obtain_key(key_file: Path | None, *, output: Path) -> Key:
    """Read the key, or make one at random and write it to a file that only its owner may read.

    Parameters
    ----------
    key_file : Path or None
        Read if it is there, made if not. Null: ``<output>.key`` is made.
    output : Path
        The trace folder to be written; the key must not lie in it.

    Raises
    ------
    UsageError
        If the key would lie in the trace, or there is a key beside the output that was not asked for.
    BadFileError
        If the key is too short, or cannot be read.
    """
    path = key_file if key_file is not None else output.with_name(output.name + ".key")
    if path.resolve().is_relative_to(output.resolve()):
        msg = f"{path}: the key would be shared with the trace {output}; keep it outside."
        raise UsageError(msg)
    if path.is_dir():
        msg = f"{path}: found a folder; expected a file for the key."
        raise UsageError(msg)
    if not path.exists():
        return _make_key(path)
    if key_file is None:
        msg = f"{path}: a key is there already; use it with --key-file {path}, or move it away for a new one."
        raise UsageError(msg)
    secret = path.read_bytes().strip()
    if len(secret) < MIN_KEY_BYTES:
        found, fix = f"{len(secret)} bytes", "Leave --key-file out to have a key made."
        raise BadFileError(path, kind="short_key", found=found, expected=f"{MIN_KEY_BYTES} or more", fix=fix)
    return Key(secret, path, is_new=False)


def _make_key(path: Path) -> Key:
    secret = secrets.token_hex(32).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    # O_EXCL: a file that appears at this moment is not ours to write into.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret + b"\n")
    return Key(secret, path, is_new=True)


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
    tables = {table: trace.table(table) for table in schema.TABLES if table != "rejects"}
    maps = _make_maps(tables, key=key, keep=keep)
    changed = {table: _change(table, frame, maps, key=key, shift_days=shift_days) for table, frame in tables.items()}
    meta = _new_meta(trace, name=name, keep=keep, shift_days=shift_days)
    return Trace(changed.pop("jobs"), meta=meta, tables=changed)


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


def _change(
    table: str, frame: pl.DataFrame, maps: Mapping[str, Mapping[str, str]], *, key: bytes, shift_days: int
) -> pl.DataFrame:
    """One table with new names and, if asked for, other times."""
    changes = {column: _renamed(frame[column], maps[column]) for column in frame.columns if column in maps}
    if table == "attempts":
        nodes = pl.element().replace_strict(maps["node_id"], return_dtype=pl.String)
        changes["nodes"] = frame.select(pl.col("nodes").list.eval(nodes))["nodes"] if frame.height else frame["nodes"]
    if table == "usage_series":
        entities = _distinct([frame["entity"]])
        changes["entity"] = _renamed(frame["entity"], _entity_map(entities, maps, key=key))
    if table == "jobs":
        changes["extra"] = pl.Series("extra", [None] * frame.height, dtype=schema.NO_EXTRA)
        changes["status_raw"] = pl.Series("status_raw", [None] * frame.height, dtype=pl.String)
    changed = frame.with_columns(**changes)
    if not shift_days:
        return changed
    return changed.with_columns(cs.datetime() + timedelta(days=shift_days))


def _renamed(column: pl.Series, new: Mapping[str, str]) -> pl.Series:
    old = pl.Series(list(new), dtype=pl.String)
    return column.replace_strict(old, pl.Series(list(new.values()), dtype=pl.String), return_dtype=pl.String)


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
