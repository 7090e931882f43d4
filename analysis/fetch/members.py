"""The members of an archive that is not trusted, tar or zip, and why one of them must not be written."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

import pyarrow as pa

__all__ = ["Member", "Refused", "open_stream", "problem_of", "tar_members", "zip_members"]

#: Long enough for any path; a longer header is an attack.
MAX_HEADER_BYTES: Final = 1024 * 1024


class Refused(Exception):  # noqa: N818 - a signal that becomes an ArchiveError with the archive's name
    """An archive that is not looked at any further."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind


class _CarefulTarInfo(tarfile.TarInfo):
    """Refuse extended headers that tarfile would read into memory as a whole, however long they say they are."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: str, errors: str) -> _CarefulTarInfo:
        """Read one header block."""
        info = super().frombuf(buf, encoding, errors)
        plain = info.type in {*tarfile.REGULAR_TYPES, *tarfile.SUPPORTED_TYPES} - {
            tarfile.GNUTYPE_LONGNAME,
            tarfile.GNUTYPE_LONGLINK,
        }
        if not plain and info.size > MAX_HEADER_BYTES:
            kind = "unsafe"
            raise Refused(kind, f"a header of {info.size} bytes")
        return info


@dataclass(frozen=True)
class Member:
    """One member as both kinds of archive give it; ``link`` is the member that a link leads to, from the root."""

    name: str
    kind: str  # file, folder, link, encrypted, other
    link: str = ""
    open: Callable[[], IO[bytes] | None] = lambda: None


def problem_of(member: Member) -> str:
    """Say why a member must not be written; empty if it may."""
    name = member.name
    bad = _bad_path(name)
    if bad:
        return f"{name[:200]!r} {bad}"
    if member.kind == "other":
        return f"{name[:200]!r} is a device, a pipe or something else that is no file"
    if member.kind == "encrypted":
        return f"{name[:200]!r} is encrypted"
    if member.kind == "link" and (not member.link or _bad_path(member.link)):
        return f"{name[:200]!r} is a link that leads out of the folder"
    return ""


def _bad_path(name: str) -> str:
    parts = PurePosixPath(name).parts
    if not parts or "\0" in name:
        return "is no path"
    if name.startswith("/") or re.match("[A-Za-z]:", name):
        return "is an absolute path"
    if "\\" in name:
        return "has a backslash in it"
    return "leads out of the folder" if ".." in parts else ""


def _link_target(info: tarfile.TarInfo) -> str:
    """Where a link leads, from the archive's root; empty if that is outside."""
    if info.islnk():
        return info.linkname
    if info.linkname.startswith("/"):
        return ""
    parts: list[str] = []
    for part in (*PurePosixPath(info.name).parent.parts, *PurePosixPath(info.linkname).parts):
        if part == ".." and not parts:
            return ""
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def tar_members(stream: IO[bytes]) -> Iterator[Member]:
    """Give the members of a tar stream one by one; each can be read only while it is the current one."""
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_CarefulTarInfo) as tar:
        for info in tar:
            if info.isfile():
                yield Member(info.name, "file", open=lambda info=info: tar.extractfile(info))  # type: ignore[misc]
            elif info.isdir():
                yield Member(info.name, "folder")
            elif info.issym() or info.islnk():
                yield Member(info.name, "link", link=_link_target(info))
            else:
                yield Member(info.name, "other")


def zip_members(archive: zipfile.ZipFile) -> Iterator[Member]:
    """Give the members of a zip archive one by one."""
    for info in archive.infolist():
        mode = info.external_attr >> 16
        if info.is_dir():
            yield Member(info.orig_filename, "folder")
        elif stat.S_ISLNK(mode):
            yield Member(info.orig_filename, "link")
        elif info.flag_bits & 1:
            yield Member(info.orig_filename, "encrypted")
        elif stat.S_IFMT(mode) not in {0, stat.S_IFREG}:
            yield Member(info.orig_filename, "other")
        else:
            yield Member(info.orig_filename, "file", open=lambda info=info: archive.open(info))  # type: ignore[misc]


def open_stream(archive: Path) -> IO[bytes] | None:
    """Open a tar file's uncompressed bytes; null if it is a zip."""
    with archive.open("rb") as file:
        head = file.read(8)
    if head.startswith(b"PK"):
        return None
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        # pyarrow streams zstd; the standard library of Python 3.11 does not know it.
        return io.BufferedReader(pa.input_stream(str(archive), compression="zstd"))
    openers: tuple[tuple[bytes, Callable[[Path], Any]], ...] = (
        (b"\x1f\x8b", gzip.open),
        (b"BZh", bz2.open),
        (b"\xfd7zXZ\x00", lzma.open),
    )
    opener = next((opener for magic, opener in openers if head.startswith(magic)), None)
    return opener(archive) if opener else archive.open("rb")
