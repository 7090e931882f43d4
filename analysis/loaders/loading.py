"""``load``: from a source's name (or "auto") and files to a Trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from analysis.errors import BadFileError, UsageError
from analysis.loaders.files import check_file, list_files, open_bytes, readable
from analysis.loaders.registry import LOADERS, Loader, get_loader
from analysis.loaders.zones import check_zone
from analysis.trace import Trace

__all__ = ["assign_roles", "load", "recognise"]

#: Below this, "auto" does not choose.
SURE_ENOUGH: Final = 0.5


def load(
    source: str,
    paths: Any = (),
    *,
    timezone: str | None = None,
    name: str | None = None,
    **options: Any,
) -> Trace:
    """Load a job log.

    Parameters
    ----------
    source : str
        A loader's name (see ``LOADERS``), or "auto": the one that is surest from the files' content.
    paths : path, sequence of paths, or a table
        Files and folders (in a folder the loader finds its files). A pandas, polars or Arrow table where the loader
        takes one (``table`` does).
    timezone : str, optional
        IANA name of the zone of the source's naive times, instead of the one that the loader assumes.
    name : str, optional
        Name of the trace, instead of the source's.
    **options
        The loader's own, see ``LOADERS[source].options``.

    Returns
    -------
    Trace
        Its load report says what became of every raw row.

    Raises
    ------
    UnknownNameError
        If there is no such loader or option; the message lists the known ones.
    UsageError
        If "auto" recognises nothing, the zone is unknown, or no path is given.
    BadFileError
        If a file cannot be read as what it was said to be.
    """
    if timezone is not None:
        check_zone(timezone)
    if not _is_paths(paths):
        return _load_frame(source, paths, timezone=timezone, name=name, **options)
    given = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    note = None
    if source == "auto":
        files = list_files(given)
        chosen, certainty = recognise(files)
        note = f"auto: recognised as {chosen.name!r} from the content (certainty {certainty:.0%})."
    else:
        chosen = get_loader(source)
    chosen.check_options(options)
    if chosen.takes_files and not given:
        msg = f"load {source}: no file is given; expected {chosen.files}."
        raise UsageError(msg)
    trace = chosen.read(given, timezone=timezone, name=name, **options)
    return _with_note(trace, note) if note else trace


def _is_paths(paths: Any) -> bool:
    if isinstance(paths, str | Path):
        return True
    return isinstance(paths, Sequence) and all(isinstance(path, str | Path) for path in paths)


def _load_frame(source: str, frame: Any, **options: Any) -> Trace:
    chosen = get_loader("table" if source == "auto" else source)
    if not chosen.takes_frames:
        can = ", ".join(sorted(entry.name for entry in LOADERS.values() if entry.takes_frames))
        msg = f"load {source}: found a {type(frame).__name__}; expected paths. Tables in memory go through: {can}."
        raise UsageError(msg)
    chosen.check_options({key: value for key, value in options.items() if key not in ("timezone", "name")})
    return chosen.read(frame, **options)


def _with_note(trace: Trace, note: str) -> Trace:
    report = trace.meta.load_report
    return trace.with_meta(load_report=replace(report, notes=[note, *report.notes]))


def recognise(files: Sequence[Path]) -> tuple[Loader, float]:
    """Ask every loader how sure it is about some files.

    Parameters
    ----------
    files : sequence of Path
        Files, no folders.

    Returns
    -------
    tuple of (Loader, float)
        The surest, and its certainty, 0.5-1.

    Raises
    ------
    BadFileError
        If none is sure because a file is no data at all (a pointer, empty, damaged).
    UsageError
        If none is sure, or two are equally sure; the message lists what each expects.
    """
    votes = {entry.name: entry.sniff(files) for entry in LOADERS.values() if entry.takes_files}
    best = max(votes.values(), default=0.0)
    winners = sorted(name for name, vote in votes.items() if vote == best)
    if best >= SURE_ENOUGH and len(winners) == 1:
        return LOADERS[winners[0]], best
    for path in files:
        check_file(path)
        with readable(path), open_bytes(path) as stream:
            stream.read(1024 * 1024)
    known = "".join(f"\n  {entry.name}: {entry.files}" for entry in sorted(LOADERS.values(), key=lambda e: e.name))
    names = ", ".join(path.name for path in files[:5]) + (", …" if len(files) > 5 else "")
    if best >= SURE_ENOUGH:
        msg = f"load auto: {' and '.join(winners)} are equally sure about {names}; name one of them."
    else:
        msg = f"load auto: no loader recognises {names}. Name one, or map the columns with 'table'. They expect:{known}"
    raise UsageError(msg)


def assign_roles(
    paths: Sequence[Path], *, main: str, roles: Mapping[str, Callable[[Path], bool]], loader: str
) -> dict[str, Path]:
    """Find out which file is which, by content.

    Parameters
    ----------
    paths : sequence of Path
        Files and folders as the user gave them.
    main : str
        The role that must be filled; a file given by name that no role recognises takes it, so that reading it says
        what is wrong with it.
    roles : mapping of str to callable of Path to bool
        Role -> does this file look like it? Asked in this order.
    loader : str
        For messages.

    Returns
    -------
    dict of str to Path
        Filled roles; files of folders that have no role are left alone.

    Raises
    ------
    BadFileError
        If the main file is missing, or a file given by name is none of these.
    UsageError
        If two files have the same role.
    """
    files = list_files(paths)
    by_role: dict[str, list[Path]] = {role: [] for role in roles}
    stray: list[Path] = []
    for path in files:
        role = next((role for role, looks_like in roles.items() if looks_like(path)), None)
        by_role[role].append(path) if role else stray.append(path)
    named = [path for path in stray if path in paths]
    if not by_role[main] and len(named) == 1:
        by_role[main], named = named, []
    crowded = {role: found for role, found in by_role.items() if len(found) > 1}
    if crowded:
        said = "; ".join(f"{role}: {', '.join(map(str, found[:6]))}" for role, found in crowded.items())
        msg = f"load {loader}: found several files of one kind ({said}); give one of each by name."
        raise UsageError(msg)
    for path in named if by_role[main] else [*named, *stray]:
        check_file(path)
    if named or not by_role[main]:
        where = named[0] if named else paths[0]
        raise BadFileError(
            where,
            kind="wrong_columns",
            found="nothing that looks like " + " or ".join(roles),
            expected=LOADERS[loader].files if loader in LOADERS else ", ".join(roles),
            fix="Give the files by name to learn what is wrong with them, or let 'auto' choose the loader.",
        )
    return {role: found[0] for role, found in by_role.items() if found}
