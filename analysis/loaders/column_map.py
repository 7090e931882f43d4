"""The column map of the ``table`` loader: which raw column is which, in which unit, and what its words mean."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from analysis import schema
from analysis.errors import BadFileError, UsageError

__all__ = ["SHIPPED", "SLURM_WORDS", "ColumnMap", "parse_map", "status_of", "unit_factor"]

#: What may be mapped. ``status`` is the source's own word, translated; ``extra`` and ``flags`` are made here.
MAPPABLE: Final = tuple(c for c in schema.JOBS if c not in ("extra", "flags", "status_raw", "censoring"))
UNITS: Final[Mapping[str, float]] = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "bytes": 2.0**-30,
    "kib": 2.0**-20,
    "mib": 2.0**-10,
    "gib": 1.0,
    "tib": 2.0**10,
    "kb": 1e3 / 2**30,
    "mb": 1e6 / 2**30,
    "gb": 1e9 / 2**30,
    "milli": 1e-3,
    "percent": 1e-2,
}
SLURM_WORDS: Final[Mapping[str, str]] = {
    "boot_fail": "failed",
    "canceled": "cancelled",
    "deadline": "timeout",
    "launch_failed": "failed",
    "out_of_memory": "failed",
    "requeued": "preempted",
    "revoked": "cancelled",
}
#: Maps that ship with hindcast, by name.
SHIPPED: Final[Mapping[str, Path]] = {
    path.stem: path for path in sorted((Path(__file__).resolve().parent / "maps").glob("*.toml"))
}
KEYS: Final = (
    "columns",
    "status",
    "units",
    "timezone",
    "zone_certainty",
    "time_format",
    "clock",
    "separator",
    "source",
    "licence",
    "name",
    "missing",
    "starts_after_wait",
    "citation",
    "coverage",
    "notes",
    "summary",
    "header",
)


@dataclass(frozen=True)
class ColumnMap:
    """How to read a table.

    Attributes
    ----------
    columns : mapping of canonical to raw name
        Null (empty) means: raw columns that bear canonical names are these columns.
    status : mapping of raw word to status
        Beside our own words and Slurm's, which are known in any case.
    units : mapping of canonical name to factor
        What the raw number is multiplied by.
    timezone, time_format, clock, separator, source, licence, name : str or None
        See `analysis.loaders.table.read_table`.
    missing : mapping of raw column to list of str
        What the source writes for "no value" there, beside the usual words.
    zone_certainty : str or None
        As in `analysis.trace.TraceMeta`, for a zone that the map itself assumes; null: the user said so.
    starts_after_wait : bool
        Where a start is not given, it is submission + queueing delay, and the end start + duration.
    citation, coverage, summary : str or None
        For the metadata, and for the list of loaders.
    notes : sequence of str
        What must be said about the source, for the load report.
    header : sequence of str
        Raw columns by which a file of this kind is recognised.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)
    timezone: str | None = None
    time_format: str | None = None
    clock: str | None = None
    separator: str | None = None
    source: str | None = None
    licence: str | None = None
    name: str | None = None
    missing: Mapping[str, list[str]] = field(default_factory=dict)
    zone_certainty: str | None = None
    starts_after_wait: bool = False
    citation: str | None = None
    coverage: str | None = None
    summary: str | None = None
    notes: Sequence[str] = ()
    header: Sequence[str] = ()

    def resolve(self, have: Collection[str], *, where: str) -> dict[str, str]:
        """Canonical -> raw for a table with these columns.

        Parameters
        ----------
        have : collection of str
            Raw column names of the table.
        where : str
            The table's name, for the message.

        Raises
        ------
        UsageError
            Naming everything that is wrong at once.
        """
        wrong = [_unknown("a canonical column", name, MAPPABLE) for name in self.columns if name not in MAPPABLE]
        wrong += [_unknown("a column of the table", raw, have) for raw in self.columns.values() if raw not in have]
        wrong += [_unknown("a canonical column (units)", name, MAPPABLE) for name in self.units if name not in MAPPABLE]
        wrong += [
            _unknown(f"a status (for {raw!r})", word, schema.STATUSES)
            for raw, word in self.status.items()
            if word not in schema.STATUSES
        ]
        if self.clock not in (None, "absolute", "clock_only", "relative"):
            wrong.append(_unknown("a clock", str(self.clock), ("absolute", "clock_only", "relative")))
        if wrong:
            lines = "\n  - ".join(["", *wrong])
            msg = f"{where}: the column map has {len(wrong)} fault{'s' if len(wrong) > 1 else ''}:{lines}"
            raise UsageError(msg)
        return dict(self.columns) or {name: name for name in MAPPABLE if name in have}


def _unknown(kind: str, found: str, known: Collection[str]) -> str:
    close = get_close_matches(found, known, n=1)
    guess = f"; did you mean {close[0]!r}?" if close else ""
    return f"{found!r} is not {kind} (known: {', '.join(known)}){guess}"


def parse_map(given: str | Path | Mapping[str, Any] | None) -> ColumnMap:
    """Make a column map of what the user gave.

    Parameters
    ----------
    given : str, Path, mapping or None
        ``"job_id=id,submit_time=submit"``; the path of a TOML file with ``[columns]``, ``[status]``, ``[units]``,
        ``[missing]`` and the keys of `ColumnMap`; the name of a map that ships with hindcast (`SHIPPED`); or a mapping
        of canonical to raw names. Null: raw columns that bear canonical names are these columns.

    Returns
    -------
    ColumnMap

    Raises
    ------
    UsageError
        If the text is no map, or the file has unknown keys.
    BadFileError
        If the file is missing or no TOML.
    """
    if given is None:
        return ColumnMap()
    if isinstance(given, Mapping):
        return ColumnMap(columns={str(key): str(value) for key, value in given.items()})
    if isinstance(given, Path) or str(given).endswith(".toml"):
        return _from_file(Path(given))
    if given in SHIPPED:
        return _from_file(SHIPPED[given])
    return ColumnMap(columns=pairs(given, what="map"))


def pairs(text: str, *, what: str) -> dict[str, str]:
    """``"a=b,c=d"`` as a mapping.

    Raises
    ------
    UsageError
        If a part has no ``=`` or a name comes twice.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    split = [part.partition("=") for part in parts]
    names = [name.strip() for name, _, _ in split]
    wrong = [part for part, (name, sign, value) in zip(parts, split, strict=True) if not (name and sign and value)]
    wrong += sorted({f"{name} (twice)" for name in names if names.count(name) > 1})
    if wrong or not parts:
        msg = f"{what}: found {', '.join(map(repr, wrong)) or 'nothing'}; expected 'name=column,name=column'."
        raise UsageError(msg)
    return {name.strip(): value.strip() for name, _, value in split}


def _from_file(path: Path) -> ColumnMap:
    expected = f"TOML with {', '.join(KEYS)}"
    if not path.is_file():
        fix = "Check the path."
        raise BadFileError(path, kind="missing", found="no file there", expected=expected, fix=fix)
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        fix = "Correct it there."
        found = f"text that is no TOML ({error})"
        raise BadFileError(path, kind="not_toml", found=found, expected=expected, fix=fix) from error
    wrong = [key for key in read if key not in KEYS]
    wrong += [key for key in ("columns", "status", "units", "missing") if not isinstance(read.get(key, {}), dict)]
    if wrong:
        found, fix = f"the keys {', '.join(wrong)}", "Columns go under [columns], as canonical = 'raw'."
        raise BadFileError(path, kind="wrong_keys", found=found, expected=expected, fix=fix)
    units = {name: unit_factor(unit) for name, unit in read.pop("units", {}).items()}
    return ColumnMap(**read, units=units)


def unit_factor(unit: str | float) -> float:
    """Factor from a unit's name (to seconds, GiB or GPUs) or a number.

    Raises
    ------
    UsageError
        If it is neither.

    Examples
    --------
    >>> unit_factor("min"), unit_factor("MiB"), unit_factor("0.5")
    (60.0, 0.0009765625, 0.5)
    """
    if str(unit).lower() in UNITS:
        return UNITS[str(unit).lower()]
    try:
        return float(unit)
    except ValueError as error:
        msg = f"units: found {unit!r}; expected a number to multiply by, or one of {', '.join(UNITS)}."
        raise UsageError(msg) from error


def status_of(word: str, given: Mapping[str, str]) -> str:
    """The status that a word means: by the user's map, then our own words and Slurm's, whatever their case.

    Examples
    --------
    >>> status_of("CANCELLED by 1000", {}), status_of("OUT_OF_MEMORY", {}), status_of("Odd", {})
    ('cancelled', 'failed', 'unknown')
    """
    if word in given:
        return given[word]
    bare = word.strip().lower().split(" by ")[0].replace(" ", "_")
    if bare in schema.STATUSES:
        return bare
    return SLURM_WORDS.get(bare, "unknown")
