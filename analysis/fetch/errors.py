"""What can go wrong between an address and a folder of raw files; every error builds its own sentence."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.errors import HindcastError

__all__ = ["ArchiveError", "FetchError"]


class FetchError(HindcastError):
    """A download that could not be finished, or whose bytes are not what they should be.

    ``kind`` is a short machine-readable word: ``scheme``, ``redirect``, ``refused`` (an answer such as 403 or 404),
    ``dropped`` (given up after the last retry), ``certificate``, ``lfs_pointer``, ``html``, ``wrong_size``,
    ``wrong_bytes``, ``too_large``, ``no_space``, ``exists``, ``busy``, ``by_hand``.
    """

    def __init__(self, where: object, *, kind: str, found: str, expected: str, fix: str) -> None:
        super().__init__(f"{where}: found {found}; expected {expected}. {fix}")
        self.kind = kind


class ArchiveError(HindcastError):
    """An archive that must not, or cannot, be unpacked; the message lists every problem that was seen.

    ``kind`` is ``unsafe``, ``too_large``, ``damaged``, ``unknown_format`` or ``wrong_bytes``.
    """

    def __init__(self, archive: object, *, kind: str, problems: Sequence[str], fix: str) -> None:
        head = f"{archive}: not unpacked, {len(problems)} problem{'s' if len(problems) != 1 else ''}"
        super().__init__("\n  - ".join([f"{head}:", *problems]) + f"\n{fix}")
        self.kind = kind
        self.problems = list(problems)
