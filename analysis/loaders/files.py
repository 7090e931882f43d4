"""Opening raw files: what is really in them, by content and not by name, and a plain sentence where it is not data.

Compression is told by the first bytes (gzip, zstd, bzip2, xz), so a file's ending never matters. A tar archive of one
file is read as that file.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Final, cast

import pyarrow as pa

from analysis.errors import BadFileError
from analysis.loaders.tar_member import TarMember, is_tar

__all__ = ["check_file", "list_files", "open_bytes", "payload", "peek", "readable"]

PEEK_BYTES: Final = 64 * 1024
PIPE_BYTES: Final = 256 * 1024
LFS_START: Final = b"version https://git-lfs"
BOMS_NOT_UTF8: Final = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
ARCHIVES: Final = ((b"PK\x03\x04", "zip"), (b"7z\xbc\xaf\x27\x1c", "7z"), (b"Rar!", "rar"))
COMPRESSIONS: Final = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
)
DAMAGE: Final = (EOFError, OSError, zlib.error, lzma.LZMAError, pa.ArrowException)


def _compression(head: bytes) -> str | None:
    return next((name for magic, name in COMPRESSIONS if head.startswith(magic)), None)


def check_file(path: Path) -> None:
    """Refuse what cannot be data: nothing there, a folder, no bytes, a Git-LFS pointer, a web page, an archive.

    Raises
    ------
    BadFileError
        Of kind ``missing``, ``folder``, ``empty``, ``lfs_pointer``, ``html``, ``archive`` or ``unreadable``.
    """
    expected = "a data file"
    if not path.exists():
        raise BadFileError(path, kind="missing", found="nothing there", expected=expected, fix=_other_names(path))
    if path.is_dir():
        fix = "Give one of the files in it."
        raise BadFileError(path, kind="folder", found="a folder", expected=expected, fix=fix)
    try:
        with path.open("rb") as file:
            head = file.read(2048)
    except OSError as error:
        found = f"a file that cannot be opened ({error.strerror})"
        raise BadFileError(
            path, kind="unreadable", found=found, expected=expected, fix="Check its permissions."
        ) from error
    kind, found, fix = _diagnose(head)
    if kind:
        raise BadFileError(path, kind=kind, found=found, expected=expected, fix=fix)


def _diagnose(head: bytes) -> tuple[str, str, str]:
    """Why these first bytes are no data (kind, found, fix); an empty kind if they may be."""
    if not head:
        return "empty", "an empty file (0 bytes)", "Download or export it again."
    if head.startswith(LFS_START):
        size = re.search(rb"size (\d+)", head)
        declared = f"for a file of {size[1].decode()} bytes" if size else "without a size"
        fix = "The data itself was not downloaded: run 'git lfs pull' in that repository, or use 'hindcast fetch'."
        return "lfs_pointer", f"a Git-LFS pointer {declared}", fix
    if re.match(rb"\s*(<!doctype html|<html)", head, re.IGNORECASE):
        fix = "The address served a page (a login, a quota or an error): download the raw file."
        return "html", "a web page (HTML)", fix
    archive = next((name for magic, name in ARCHIVES if head.startswith(magic)), None)
    if archive:
        return "archive", f"a {archive} archive", "Unpack it and give the files in it."
    return "", "", ""


def _other_names(path: Path) -> str:
    parent = path.parent
    names = [p.name for p in parent.iterdir()] if parent.is_dir() else []
    close = get_close_matches(path.name, names, n=3)
    if close:
        return f"Files with a similar name there: {', '.join(close)}."
    return "Check the path." if parent.is_dir() else f"There is no folder {parent} either: check the path."


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn the many exceptions of damaged compressed data into one that says which file it is.

    Raises
    ------
    BadFileError
        Of kind ``truncated``, instead of what the decompressor raised.
    """
    try:
        yield
    except BadFileError:
        raise
    except DAMAGE as error:
        raise BadFileError(
            path,
            kind="truncated",
            found=f"compressed data that breaks off or is damaged ({type(error).__name__}: {str(error)[:100]})",
            expected="a complete file",
            fix="Download or export it again.",
        ) from error


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading its uncompressed bytes, as a stream; the caller closes it.

    Raises
    ------
    BadFileError
        See `check_file`.
    """
    check_file(path)
    with _uncompressed(path) as stream:
        has_member = is_tar(_read_up_to(stream, 512))
    stream = _uncompressed(path)
    if not has_member:
        return stream
    try:
        return cast("IO[bytes]", io.BufferedReader(TarMember(path, stream), PIPE_BYTES))
    except (BadFileError, *DAMAGE):
        stream.close()
        raise


def _uncompressed(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        compression = _compression(file.read(8))
    if compression == "zstd":
        # pyarrow streams zstd; the standard library of Python 3.11 does not know it.
        return cast("IO[bytes]", io.BufferedReader(pa.input_stream(str(path), compression="zstd")))
    if compression is None:
        return path.open("rb")
    openers: dict[str, Callable[[Path], Any]] = {"gzip": gzip.GzipFile, "bzip2": bz2.BZ2File, "xz": lzma.LZMAFile}
    return cast("IO[bytes]", openers[compression](path))


def _read_up_to(stream: IO[bytes], size: int) -> bytes:
    """The first bytes; fewer if the data is damaged (reading it all will say so)."""
    try:
        return stream.read(size)
    except DAMAGE:
        return b""


def payload(path: Path) -> Path | bytes:
    """Give what a reader can scan: the path itself of a plain file, the bytes of a compressed one.

    Raises
    ------
    BadFileError
        See `check_file`; of kind ``truncated`` if the compressed data is damaged.
    """
    check_file(path)
    with path.open("rb") as file:
        head = file.read(512)
    if _compression(head) is None and not is_tar(head):
        return path
    with readable(path), open_bytes(path) as stream:
        return stream.read()


def peek(path: Path) -> str:
    """Read the first 64 KiB as text, uncompressed; empty if it cannot be read. For ``sniff``: it never raises.

    Parameters
    ----------
    path : Path
        Any file. The answer is remembered, so that every loader may ask.

    Returns
    -------
    str
        Without a byte order mark; undecodable bytes are replaced.
    """
    try:
        stat = path.stat()
        return _peek(path, stat.st_size, stat.st_mtime_ns)
    except DAMAGE:
        return ""
    except BadFileError:
        return ""


@lru_cache(maxsize=256)
def _peek(path: Path, size: int, changed: int) -> str:  # noqa: ARG001 - they are the key: a changed file is read again
    start = bytearray()
    with open_bytes(path) as stream:
        try:
            while len(start) < PEEK_BYTES and (piece := stream.read1(4096) if hasattr(stream, "read1") else b""):
                start += piece
        except DAMAGE:
            # What could be read before the damage still tells the format; reading it all will name the damage.
            pass
    return bytes(start).decode("utf-8-sig", errors="replace")


def list_files(paths: Iterable[Path]) -> list[Path]:
    """Every file that is meant: files as they are, folders with all that is below them, hidden ones left out.

    Returns
    -------
    list of Path
        In the given order; a folder's files sorted by path, so that the file system's order never matters.

    Raises
    ------
    BadFileError
        Of kind ``missing`` or ``empty_folder``.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            if not path.exists():
                check_file(path)
            files.append(path)
            continue
        inside = sorted(p for p in path.rglob("*") if p.is_file() and not _is_hidden(p, path))
        if not inside:
            found, fix = "a folder without files", "Give the folder that holds the downloaded files."
            raise BadFileError(path, kind="empty_folder", found=found, expected="data files in it", fix=fix)
        files += inside
    return list(dict.fromkeys(files))


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)
