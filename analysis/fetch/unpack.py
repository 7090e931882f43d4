"""Unpacking a downloaded archive without trusting it: tar (plain, gzip, bzip2, xz, zstd) and zip.

Nothing of an archive reaches the disk outside a temporary folder, which is renamed into place at the end: a refused
archive leaves nothing. Refused are absolute paths and ``..``, backslashes and drive letters, links that lead out of
the folder (and any link in a zip), devices and pipes, two members of one name, encrypted members, more bytes or
members than the limits (counted as they come out, whatever the headers say), and headers so long that reading them
would fill the memory. A link to a file of the same archive becomes that file. Owners, permissions and times are not
taken over.
"""

from __future__ import annotations

import errno
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Final

import pyarrow as pa

from analysis.fetch.errors import ArchiveError
from analysis.fetch.members import Member, Refused, open_stream, problem_of, tar_members, zip_members
from analysis.trace import write_folder

__all__ = ["UnpackLimits", "unpack"]

BLOCK_BYTES: Final = 1024 * 1024
MAX_PROBLEMS: Final = 20
DAMAGE: Final = (
    EOFError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    RuntimeError,
    pa.ArrowException,
)
#: Failures to write; every other one, such as a seek to a place before the start, comes of what the archive says.
OF_THE_DISK: Final = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE}
FIX: Final = "Do not use this archive; see the trace's page for the right one."


@dataclass(frozen=True, kw_only=True)
class UnpackLimits:
    """How much an archive may hold.

    Attributes
    ----------
    max_bytes : int
        All files together, unpacked [bytes].
    max_members : int
        Files, folders and links.
    """

    max_bytes: int = 64 * 1024**3
    max_members: int = 100_000


@dataclass
class _Unpacking:
    """What has come out so far."""

    folder: Path
    limits: UnpackLimits
    progress: Callable[[int, int | None], None] | None = None
    num_bytes: int = 0
    num_members: int = 0
    seen: set[str] = field(default_factory=set)
    links: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def take(self, member: Member) -> None:
        """Write one member, or note why not; after the first problem only problems are looked for."""
        self.num_members += 1
        if self.num_members > self.limits.max_members:
            kind = "too_large"
            raise Refused(kind, f"more than {self.limits.max_members} members")
        problem = problem_of(member) or self._twice(member)
        if problem:
            self.problems.append(problem)
        if len(self.problems) >= MAX_PROBLEMS:
            kind = "unsafe"
            raise Refused(kind, "… and perhaps more: not looked further")
        if not self.problems:
            self._write(member)

    def _twice(self, member: Member) -> str:
        name = str(PurePosixPath(member.name))
        if member.kind == "folder":
            return ""
        twice = name in self.seen
        self.seen.add(name)
        return f"{member.name!r} is in it twice" if twice else ""

    def _write(self, member: Member) -> None:
        place = self.folder / PurePosixPath(member.name)
        if member.kind == "link":
            self.links.append((member.name, member.link))
            return
        try:
            if member.kind == "folder":
                place.mkdir(parents=True, exist_ok=True)
                return
            place.parent.mkdir(parents=True, exist_ok=True)
            target = place.open("xb")
        except (FileExistsError, NotADirectoryError):
            self.problems.append(f"{member.name!r} is both a file and a folder")
            return
        with target:
            self._copy(member, target)

    def _copy(self, member: Member, target: IO[bytes]) -> None:
        source = member.open()
        if source is None:
            return
        with source:
            while block := source.read(BLOCK_BYTES):
                self.num_bytes += len(block)
                if self.num_bytes > self.limits.max_bytes:
                    kind = "too_large"
                    raise Refused(kind, f"more than {self.limits.max_bytes} bytes unpacked")
                target.write(block)
                if self.progress:
                    self.progress(self.num_bytes, None)

    def make_links(self) -> None:
        """Give every link's name to the file that it leads to; no link remains that could be followed."""
        for name, leads_to in self.links:
            source, place = self.folder / leads_to, self.folder / name
            if source.is_file() and not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                os.link(source, place)
            else:
                self.problems.append(f"{name!r} is a link to {leads_to!r}, which is no file of the archive")


def _take_all(archive: Path, unpacking: _Unpacking) -> None:
    stream = open_stream(archive)
    if stream is None:
        with zipfile.ZipFile(archive) as packed:
            for member in zip_members(packed):
                unpacking.take(member)
        return
    with stream:
        for member in tar_members(stream):
            unpacking.take(member)
        # The compressed stream's own check sum stands at its end, behind the last member.
        while stream.read(BLOCK_BYTES):
            pass


def unpack(
    archive: Path,
    folder: Path,
    *,
    marker: str,
    check: Callable[[Path], str] = lambda folder: "{}\n",  # noqa: ARG005
    limits: UnpackLimits = UnpackLimits(),
    progress: Callable[[int, int | None], None] | None = None,
) -> Path:
    """Unpack an archive into a folder that appears only when it is complete.

    Parameters
    ----------
    archive : Path
        Its kind is told by its first bytes, not by its name.
    folder : Path
        Where its content goes; a folder that an earlier unpacking left there is replaced, any other is refused.
    marker : str
        Name of a small file in the folder that tells that it was unpacked here.
    check : callable of Path to str, optional
        Looks at the unpacked folder before it is put in place, raises if it is wrong, and gives the marker's text.
    limits : UnpackLimits, optional
        How much may come out.
    progress : callable, optional
        Called with the bytes written so far and null.

    Returns
    -------
    Path
        ``folder``.

    Raises
    ------
    ArchiveError
        If it is unsafe, too large, damaged or no archive; nothing is left.
    UsageError
        If something else is where the folder shall be.
    """

    def fill(staging: Path) -> None:
        unpacking = _Unpacking(staging, limits, progress)
        try:
            _take_all(archive, unpacking)
            unpacking.make_links()
        except Refused as refused:
            problems = [*unpacking.problems, str(refused)]
            raise ArchiveError(archive, kind=refused.kind, problems=problems, fix=FIX) from None
        except DAMAGE as error:
            raise _as_archive_error(archive, error, unpacking) from error
        if unpacking.problems:
            raise ArchiveError(archive, kind="unsafe", problems=unpacking.problems, fix=FIX)
        (staging / marker).write_text(check(staging), encoding="utf-8")

    return write_folder(folder, fill, marker=marker)


def _as_archive_error(archive: Path, error: Exception, unpacking: _Unpacking) -> Exception:
    """Tell a damaged archive from a disk that is full."""
    if isinstance(error, OSError) and error.errno in OF_THE_DISK:
        return error
    nothing = unpacking.num_members == 0
    problem = f"{'no archive' if nothing else 'damaged'} ({type(error).__name__}: {str(error)[:120]})"
    kind = "unknown_format" if nothing else "damaged"
    fix = "Remove it and fetch it again." if not nothing else "Expected tar (plain, gzip, bzip2, xz, zstd) or zip."
    return ArchiveError(archive, kind=kind, problems=[*unpacking.problems, problem], fix=fix)


def free_bytes(folder: Path) -> int:
    """Bytes free on the disk of a folder, or of the nearest one above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free
