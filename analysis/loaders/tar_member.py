"""The one data file of a tar archive, read as a stream without unpacking it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import IO, Any, Final

from analysis.errors import BadFileError

__all__ = ["TarMember", "is_tar"]

MAGIC_AT: Final = 257
MAGIC: Final = b"ustar"
#: Companions that macOS writes beside each file.
SHADOW: Final = "._"


def is_tar(head: bytes) -> bool:
    """Whether these first bytes (at least 262) of the uncompressed data begin a tar archive."""
    return head[MAGIC_AT : MAGIC_AT + len(MAGIC)] == MAGIC


class TarMember(io.RawIOBase):
    """Bytes of the only data file in an archive; names that begin with ``._`` are no data.

    Parameters
    ----------
    path : Path
        The archive, for messages.
    stream : binary file
        Its uncompressed bytes from the start; closed with this object.

    Raises
    ------
    BadFileError
        Of kind ``archive`` if it holds no file, or, at the end of the first, a second one.
    """

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self._path = path
        self._stream = stream
        try:
            self._tar = tarfile.open(fileobj=stream, mode="r|")  # noqa: SIM115 - it lives as long as this object
        except tarfile.TarError as error:
            raise EOFError(str(error)) from error
        first = self._next()
        member = None if first is None else self._tar.extractfile(first)
        if first is None or member is None:
            found = "an archive without files"
            raise self._unfit(found)
        self._name = first.name
        self._member = member
        self._is_done = False

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes; at the end look whether another file follows."""
        try:
            data = self._member.read(len(memoryview(buffer)))
        except tarfile.TarError as error:
            raise EOFError(str(error)) from error
        if not data and not self._is_done:
            self._is_done = True
            second = self._next()
            if second is not None:
                found = f"an archive of several files ({self._name}, {second.name}, …)"
                raise self._unfit(found)
        memoryview(buffer)[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the archive too."""
        if not self.closed:
            self._tar.close()
            self._stream.close()
        super().close()

    def _next(self) -> tarfile.TarInfo | None:
        try:
            while (info := self._tar.next()) is not None:
                if info.isfile() and not Path(info.name).name.startswith(SHADOW):
                    return info
        except tarfile.TarError as error:
            raise EOFError(str(error)) from error
        return None

    def _unfit(self, found: str) -> BadFileError:
        fix = "Unpack it and give the files in it, or their folder."
        return BadFileError(self._path, kind="archive", found=found, expected="an archive of one file", fix=fix)
