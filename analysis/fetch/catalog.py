"""The catalog of public traces: what each is, where its files lie, under which terms.

The facts are data (``catalog.toml``), read and checked as a whole: a mistake in it is an error that lists every
mistake.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import PurePosixPath
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from analysis.errors import SchemaError, UnknownNameError

__all__ = ["PublicTrace", "RemoteFile", "get_trace", "parse_catalog", "traces"]

SHA256: Final = re.compile(r"[0-9a-f]{64}")
CERTAINTIES: Final = ("declared", "assumed", "none")


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file of a public trace.

    Attributes
    ----------
    name : str
        Its path below the trace's own folder, with forward slashes.
    url : str or None
        Where it is; null = it has to be got by hand from the trace's page.
    size, about_bytes : int or None
        Exact size, or about how large it is [bytes]; null = not known.
    sha256 : str or None
        Checksum of the file as downloaded; null = nobody states one.
    unpack : bool
        Whether it is an archive that loaders need unpacked.
    unpacked_bytes : int or None
        About how much it holds [bytes]; null = not known.
    unpacked_sha256 : mapping of str to str
        Checksums of files in the archive, by their name without folders.
    optional : bool
        Whether it is fetched only when asked for by name or with ``--all``.
    loader : str or None
        The loader for it, if another than the trace's.
    lies_at : tuple of str
        Other places below a data folder where a copy may be.
    """

    name: str
    url: str | None = None
    size: int | None = None
    about_bytes: int | None = None
    sha256: str | None = None
    unpack: bool = False
    unpacked_bytes: int | None = None
    unpacked_sha256: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False
    loader: str | None = None
    lies_at: tuple[str, ...] = ()

    @property
    def num_bytes(self) -> int | None:
        """Exact or approximate size [bytes]; null = not known."""
        return self.size if self.size is not None else self.about_bytes

    @property
    def folder(self) -> str:
        """Folder below the trace's own that an archive is unpacked to: its name without the endings."""
        return re.sub(r"(\.tar)?\.(gz|xz|zst|bz2|zip|tar|tgz)$", "", self.name)


@dataclass(frozen=True, kw_only=True)
class PublicTrace:
    """One public trace.

    Attributes
    ----------
    name, title : str
        What the user writes, and one line on what it is.
    licence, citation, page : str
        Its licence ("unknown" = none is stated), what to cite, and the web page that presents it.
    files : tuple of RemoteFile
        What it consists of.
    period, num_jobs, num_gpus : str or int, or None
        When it was recorded, how many jobs it holds and how many GPUs the cluster had; null = not known.
    zone, zone_certainty : str or None, {"declared", "assumed", "none"}
        Zone of its naive times; null with "none" = its times carry no zone.
    loader : str or None
        Name of the loader that reads it; null = hindcast has none.
    note : str or None
        What a user should know before fetching it.
    """

    name: str
    title: str
    licence: str
    citation: str
    page: str
    files: tuple[RemoteFile, ...]
    period: str | None = None
    num_jobs: int | None = None
    num_gpus: int | None = None
    zone: str | None = None
    zone_certainty: str = "none"
    loader: str | None = None
    note: str | None = None

    @property
    def num_bytes(self) -> int | None:
        """Size of the files that are fetched by default [bytes]; null if that of one of them is not known."""
        sizes = [file.num_bytes for file in self.files if not file.optional]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None


def _wrong_types(record: type, values: Mapping[str, Any], where: str) -> list[str]:
    """Keys that a record does not have, lacks, or whose values are of another type."""
    hints = get_type_hints(record)
    needed = {f.name for f in fields(record) if f.default is MISSING and f.default_factory is MISSING}
    problems = [f"{where}: no key is named {key!r} (known: {', '.join(hints)})" for key in values if key not in hints]
    problems += [f"{where}: key {key!r} is missing" for key in sorted(needed - set(values))]
    for key, value in values.items():
        if key in hints and not isinstance(value, _plain(hints[key])):
            problems.append(f"{where}: {key} is {value!r}; expected {hints[key]}")
    return problems


def _plain(hint: Any) -> tuple[type, ...]:
    """The classes that a type hint allows, for isinstance."""
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return tuple(get_origin(part) or part for part in parts)


def _file_problems(file: RemoteFile, where: str) -> list[str]:
    problems = []
    for path in (file.name, *file.lies_at):
        pure = PurePosixPath(path)
        if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path:
            problems.append(f"{where}: {path!r} is not a path below a folder")
    if file.url is not None and (urlsplit(file.url).scheme not in {"http", "https"} or not urlsplit(file.url).netloc):
        problems.append(f"{where}: url {file.url!r} is no http or https address")
    sums = [file.sha256] if file.sha256 is not None else []
    for checksum in (*sums, *file.unpacked_sha256.values()):
        if not SHA256.fullmatch(checksum):
            problems.append(f"{where}: {checksum!r} is no sha256 (64 digits of 0-9a-f)")
    for key in ("size", "about_bytes", "unpacked_bytes"):
        if (number := getattr(file, key)) is not None and number <= 0:
            problems.append(f"{where}: {key} is {number}; expected more than 0")
    return problems


def _read_file(values: Any, *, base: str | None, where: str, problems: list[str]) -> RemoteFile | None:
    if not isinstance(values, dict):
        problems.append(f"{where}: {values!r} is no table with a name")
        return None
    given = dict(values)
    if isinstance(given.get("lies_at"), list):
        given["lies_at"] = tuple(given["lies_at"])
    if base is not None and isinstance(given.get("name"), str):
        given.setdefault("url", base + given["name"])
    wrong = _wrong_types(RemoteFile, given, where)
    file = None if wrong else RemoteFile(**given)
    problems += _file_problems(file, where) if file else wrong
    return file


def _read_trace(name: str, values: Any, problems: list[str]) -> PublicTrace | None:
    if not isinstance(values, dict):
        problems.append(f"{name}: {values!r} is no table")
        return None
    given = dict(values)
    base, listed = given.pop("base", None), given.pop("files", [])
    if not isinstance(listed, list) or not listed:
        problems.append(f"{name}: files is {listed!r}; expected a list with at least one file")
        listed = []
    read = [_read_file(v, base=base, where=f"{name}, file {i}", problems=problems) for i, v in enumerate(listed, 1)]
    given |= {"name": name, "files": tuple(file for file in read if file)}
    wrong = _wrong_types(PublicTrace, given, name)
    names = [file.name for file in given["files"]]
    wrong += [f"{name}: file {twice!r} is listed twice" for twice in sorted({n for n in names if names.count(n) > 1})]
    if given.get("zone_certainty", "none") not in CERTAINTIES:
        wrong.append(f"{name}: zone_certainty is {given['zone_certainty']!r}; expected one of {', '.join(CERTAINTIES)}")
    problems += wrong
    return None if wrong else PublicTrace(**given)


def parse_catalog(text: str) -> dict[str, PublicTrace]:
    """Read a catalog and check all of it.

    Parameters
    ----------
    text : str
        TOML as ``catalog.toml`` explains in its first lines.

    Returns
    -------
    dict of str to PublicTrace
        In the text's order.

    Raises
    ------
    SchemaError
        If anything is wrong; the message lists every mistake.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SchemaError(table="catalog", violations=[f"not TOML: {error}"]) from error
    problems: list[str] = []
    found = {name: _read_trace(name, values, problems) for name, values in raw.items()}
    if problems:
        raise SchemaError(table="catalog", violations=problems)
    return {name: trace for name, trace in found.items() if trace}


@lru_cache(maxsize=1)
def _own_catalog() -> dict[str, PublicTrace]:
    return parse_catalog(files("analysis.fetch").joinpath("catalog.toml").read_text(encoding="utf-8"))


def traces() -> dict[str, PublicTrace]:
    """Give every public trace of the catalog that comes with hindcast, by name.

    Examples
    --------
    >>> traces()["philly"].num_jobs
    117325
    """
    return dict(_own_catalog())


def get_trace(name: str) -> PublicTrace:
    """Find a public trace by name.

    Raises
    ------
    UnknownNameError
        If the catalog has none of that name; the message lists those that it has.
    """
    if name not in _own_catalog():
        raise UnknownNameError(
            kind="public trace", found=name, known=_own_catalog(), hint="'hindcast traces' shows them all."
        )
    return _own_catalog()[name]
