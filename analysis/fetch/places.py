"""Where raw traces lie on this machine, and where fetched ones go.

Looked for in this order: the folder that is given (``--data``), ``$HINDCAST_DATA``, ``../shared/data`` and ``data/raw``
of the working directory, the user's cache. Fetched files go to ``<folder>/<trace>/<file>``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from analysis.errors import BadFileError
from analysis.fetch.catalog import PublicTrace, RemoteFile, traces

__all__ = ["SOURCE", "UNPACKED", "cache_folder", "data_folders", "default_target", "find_data", "find_file", "present"]

#: What is left of an archive in the folder that it was unpacked to; hidden, so that loaders pass it by.
UNPACKED: Final = ".unpacked.json"
#: The terms of a fetched trace, in its folder.
SOURCE: Final = ".source.json"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Give the user's cache folder for traces; it need not exist."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hindcast"
    given = environment.get("XDG_CACHE_HOME", "")
    # A relative path there is invalid by the XDG specification and to be ignored.
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".cache") / "hindcast"


def data_folders(data: Path | None = None) -> list[Path]:
    """Give the folders in which traces are looked for, in order; they need not exist.

    Parameters
    ----------
    data : Path, optional
        A folder to look in first.
    """
    given = os.environ.get("HINDCAST_DATA")
    here = [Path("..") / "shared" / "data", Path("data") / "raw", cache_folder()]
    return [*([data] if data else []), *([Path(given)] if given else []), *here]


def default_target() -> Path:
    """Give the folder that fetched traces go to: ``$HINDCAST_DATA``, else ``data/raw`` if there, else the cache."""
    given = os.environ.get("HINDCAST_DATA")
    local = Path("data") / "raw"
    return Path(given) if given else local if local.is_dir() else cache_folder()


def find_file(
    trace: PublicTrace, file: RemoteFile, *, data: Path | None = None, folders: Sequence[Path] | None = None
) -> Path | None:
    """Find one file of a public trace on this machine.

    Parameters
    ----------
    trace, file : PublicTrace, RemoteFile
        Of the catalog.
    data : Path, optional
        A folder to look in first.
    folders : sequence of Path, optional
        Look in these instead of `data_folders`.

    Returns
    -------
    Path or None
        The file, or the folder that it was unpacked to; null = it is nowhere. A file of another size than the
        catalog states is not it.
    """
    for folder in data_folders(data) if folders is None else folders:
        unpacked = folder / trace.name / file.folder
        if file.unpack and _is_unpacked(unpacked, file):
            return unpacked
        # An archive that was fetched and not unpacked yet is not what loaders need.
        fetched: tuple[str, ...] = () if file.unpack else (f"{trace.name}/{file.name}",)
        for place in (*fetched, *file.lies_at):
            path = folder / place
            # A copy elsewhere may be packed anew, so only the fetched file must have the stated size.
            stated = file.size if PurePosixPath(place).name == PurePosixPath(file.name).name else None
            if path.is_file() and stated in {None, path.stat().st_size}:
                return path
    return None


def _is_unpacked(folder: Path, file: RemoteFile) -> bool:
    try:
        marker = json.loads((folder / UNPACKED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(marker, dict) and (file.sha256 is None or marker.get("sha256") == file.sha256)


def present(trace: PublicTrace, *, data: Path | None = None) -> dict[str, Path | None]:
    """Find all files of a public trace; null = it is nowhere on this machine."""
    return {file.name: find_file(trace, file, data=data) for file in trace.files}


def find_data(name: str, *, data: Path | None = None) -> list[Path]:
    """Find raw data on this machine.

    Parameters
    ----------
    name : str
        A public trace (``philly``), one of its files (``openb/openb_pod_list_default.csv``), or any path below a
        data folder (``mysite/jobs.csv``).
    data : Path, optional
        A folder to look in first.

    Returns
    -------
    list of Path
        Files and folders, as ``load`` takes them: of a trace every file that is not optional, else the one path.

    Raises
    ------
    BadFileError
        Of kind ``missing``: it is in none of the folders; the message lists them.
    """
    head, _, rest = name.partition("/")
    trace = traces().get(head)
    wanted = [file for file in trace.files if (file.name == rest if rest else not file.optional)] if trace else []
    found = [path for file in wanted if trace and (path := find_file(trace, file, data=data))]
    if found and len(found) == len(wanted):
        return found
    plain = PurePosixPath(name)
    for folder in data_folders(data):
        if ".." not in plain.parts and not plain.is_absolute() and name and (folder / name).exists() and not wanted:
            return [folder / name]
    get, check = f"Get it with 'hindcast fetch {head}'.", "Check the name; 'hindcast traces' lists the public ones."
    lacking = f" ({len(wanted) - len(found)} of {len(wanted)} files)" if found else ""
    raise BadFileError(
        name,
        kind="missing",
        found=f"nothing of that name{lacking} in {', '.join(str(folder) for folder in data_folders(data))}",
        expected="raw data in one of these folders",
        fix=get if trace else check,
    )
