"""The unfinished file of a download: its bytes, where they came from, and a lock so that it has one writer."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from analysis.fetch.errors import FetchError

__all__ = ["Part", "alone", "file_sha256"]


@dataclass(frozen=True)
class Part:
    """The unfinished file, and what is known about where it came from."""

    path: Path
    url: str

    @property
    def notes(self) -> Path:
        """The small file beside it that says where it came from."""
        return self.path.with_name(self.path.name + ".json")

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return self.path.stat().st_size if self.path.exists() else 0

    def validator(self) -> str | None:
        """What If-Range needs; null if nothing fit was noted, or the part is from another address."""
        try:
            noted = json.loads(self.notes.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        same = isinstance(noted, dict) and noted.get("url") == self.url
        return str(noted["validator"]) if same and noted.get("validator") else None

    def note(self, validator: str | None) -> None:
        """Note where the bytes come from, before they come."""
        self.notes.write_text(json.dumps({"url": self.url, "validator": validator}), encoding="utf-8")

    def remove(self) -> None:
        """Leave nothing."""
        self.path.unlink(missing_ok=True)
        self.notes.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """Checksum of a file as 64 hexadecimal digits; it is read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def alone(part: Part) -> Iterator[None]:
    """Hold a lock beside the part, so that two downloads never write into one file."""
    lock = part.path.with_name(f".{part.path.name}.lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            fix = "Wait for the other hindcast that downloads it."
            raise FetchError(part.path, kind="busy", found="it locked", expected="it free", fix=fix) from error
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
