"""Fetching a public trace: its files downloaded, verified, unpacked, each in its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from analysis.errors import UnknownNameError
from analysis.fetch.catalog import PublicTrace, RemoteFile
from analysis.fetch.download import DownloadLimits, download
from analysis.fetch.errors import ArchiveError, FetchError
from analysis.fetch.partial import file_sha256
from analysis.fetch.places import SOURCE, UNPACKED, find_file
from analysis.fetch.unpack import UnpackLimits, free_bytes, unpack

__all__ = ["FetchPlan", "fetch", "plan_fetch"]

#: An archive may hold so many times what the catalog says, since what it says is rounded.
SLACK: Final = 1.5
#: What a fetch bears unless told otherwise.
PATIENT: Final = DownloadLimits()
#: Called with a file's name, bytes done, and bytes in all (null = unknown).
FileProgress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class FetchPlan:
    """What a fetch would do.

    Attributes
    ----------
    trace : PublicTrace
        Which trace.
    folder : Path
        Where its files go.
    here : dict of str to Path
        Files that are on this machine already, by name, with their places.
    missing : tuple of RemoteFile
        Files to be downloaded.
    """

    trace: PublicTrace
    folder: Path
    here: dict[str, Path]
    missing: tuple[RemoteFile, ...]

    @property
    def num_bytes(self) -> int | None:
        """Bytes to be downloaded; null if the size of a file is not known."""
        sizes = [file.num_bytes for file in self.missing]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    @property
    def is_first(self) -> bool:
        """Whether nothing of the trace was fetched there before, so that its terms have to be shown."""
        return bool(self.missing) and not (self.folder / SOURCE).exists()


def plan_fetch(
    trace: PublicTrace, *, to: Path, names: Collection[str] = (), with_optional: bool = False, search: bool = True
) -> FetchPlan:
    """Say which files of a trace are here and which have to be downloaded.

    Parameters
    ----------
    trace : PublicTrace
        Of the catalog.
    to : Path
        Data folder that missing files go to, below the trace's name.
    names : collection of str, optional
        Names of the files wanted; by default all that are not optional.
    with_optional : bool, default False
        The optional files too.
    search : bool, default True
        Whether files elsewhere on this machine count as here; else only those in ``to``.

    Raises
    ------
    UnknownNameError
        If the trace has no file of a name.
    FetchError
        Of kind ``by_hand`` if a missing file has no address; the message names all such files and the page.
    """
    known = {file.name: file for file in trace.files}
    for name in names:
        if name not in known:
            raise UnknownNameError(kind=f"file of {trace.name!r}", found=name, known=known)
    wanted = [file for file in trace.files if (file.name in names if names else with_optional or not file.optional)]
    places = {file.name: find_file(trace, file, folders=None if search else [to], data=to) for file in wanted}
    missing = tuple(file for file in wanted if places[file.name] is None)
    by_hand = [file.name for file in missing if file.url is None]
    if by_hand:
        raise FetchError(
            trace.name,
            kind="by_hand",
            found=f"no address of {', '.join(by_hand)} in the catalog",
            expected=f"you to get it from {trace.page}",
            fix=f"Put it into {to / trace.name}; after that hindcast finds it.",
        )
    return FetchPlan(trace, to / trace.name, {name: path for name, path in places.items() if path}, missing)


def fetch(
    plan: FetchPlan, *, limits: DownloadLimits = PATIENT, progress: FileProgress | None = None
) -> dict[str, Path]:
    """Do what a plan says.

    Parameters
    ----------
    plan : FetchPlan
        From `plan_fetch`; the terms have been shown and agreed to.
    limits : DownloadLimits, optional
        How patient; how large a file may be is taken from the catalog where it says so.
    progress : callable, optional
        Called with a file's name, bytes done, and bytes in all (null = unknown).

    Returns
    -------
    dict of str to Path
        Every wanted file by name: its place, or the folder that it was unpacked to.

    Raises
    ------
    FetchError, ArchiveError
        If a file cannot be had, is not the right one, or must not be unpacked. Files before it stay.
    """
    places = dict(plan.here)
    if plan.missing:
        plan.folder.mkdir(parents=True, exist_ok=True)
        _note_source(plan)
    for file in plan.missing:
        places[file.name] = _fetch_file(file, plan.folder, limits=limits, progress=progress)
    return places


def _note_source(plan: FetchPlan) -> None:
    """Leave the terms beside the files, so that whoever finds them knows."""
    trace = plan.trace
    terms = {key: getattr(trace, key) for key in ("name", "title", "licence", "citation", "page", "zone")}
    text = json.dumps(terms, indent=1, sort_keys=True) + "\n"
    (plan.folder / SOURCE).write_text(text, encoding="utf-8")


def _fetch_file(file: RemoteFile, folder: Path, *, limits: DownloadLimits, progress: FileProgress | None) -> Path:
    target = folder / file.name
    if file.unpack:
        _check_room_unpacked(file, folder, limits)
    if file.about_bytes is not None:
        limits = replace(limits, max_bytes=min(limits.max_bytes, 2 * file.about_bytes + 2**20))

    def told(done: int, total: int | None) -> None:
        if progress:
            progress(file.name, done, total if total is not None else file.num_bytes)

    # The plan found every file that has a url.
    path = download(file.url or "", target, size=file.size, sha256=file.sha256, limits=limits, progress=told)
    return _unpack_file(file, path, folder / file.folder, told) if file.unpack else path


def _check_room_unpacked(file: RemoteFile, folder: Path, limits: DownloadLimits) -> None:
    needed = (file.num_bytes or 0) + (file.unpacked_bytes or 0) + limits.reserve_bytes
    free = free_bytes(folder)
    if needed > free:
        raise FetchError(
            file.name,
            kind="no_space",
            found=f"{free} bytes free in {folder}",
            expected=f"about {needed} bytes (the archive, and what is in it)",
            fix="Make room, or fetch to another folder with --to.",
        )


def _unpack_file(file: RemoteFile, archive: Path, folder: Path, progress: Callable[[int, int | None], None]) -> Path:
    """Unpack, and remove the archive: a loader that is given the folder shall not find everything twice."""
    limits = UnpackLimits()
    if file.unpacked_bytes is not None:
        limits = UnpackLimits(max_bytes=int(file.unpacked_bytes * SLACK) + 2**20)

    def check(staging: Path) -> str:
        _check_members(file, archive, staging)
        note = {"name": file.name, "url": file.url, "size": archive.stat().st_size, "sha256": file_sha256(archive)}
        return json.dumps(note, indent=1, sort_keys=True) + "\n"

    unpack(archive, folder, marker=UNPACKED, check=check, limits=limits, progress=progress)
    archive.unlink()
    return folder


def _check_members(file: RemoteFile, archive: Path, staging: Path) -> None:
    problems = []
    found = {path.name: path for path in staging.rglob("*") if path.is_file()}
    for name, expected in file.unpacked_sha256.items():
        if name not in found:
            problems.append(f"{name} is not in it")
        elif (checksum := file_sha256(found[name])) != expected:
            problems.append(f"{name} has sha256 {checksum}; expected {expected}")
    if problems:
        raise ArchiveError(archive, kind="wrong_bytes", problems=problems, fix="See the trace's page.")
