"""Sources of many files: which file is which, where several may be of one kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from analysis.errors import BadFileError
from analysis.loaders.files import list_files, open_bytes, readable

__all__ = ["bare_name", "group_files"]

ENDINGS: Final = re.compile(r"(\.(csv|tsv|txt|tar|tgz|gz|zst|bz2|xz))+$", re.IGNORECASE)
LOOK_BYTES: Final = 1024 * 1024
SPOILT: Final = ("truncated", "lfs_pointer", "empty")


def bare_name(path: Path) -> str:
    """A file's name without the endings of text, archive and compression.

    Examples
    --------
    >>> bare_name(Path("data/qps.tar.gz"))
    'qps'
    """
    return ENDINGS.sub("", path.name)


def group_files(
    paths: Sequence[Path], *, roles: Mapping[str, Callable[[Path], bool]], expected: str
) -> dict[str, list[Path]]:
    """Sort files by what they are, several of one kind allowed.

    Parameters
    ----------
    paths : sequence of Path
        Files and folders as the user gave them.
    roles : mapping of str to callable of Path to bool
        Role -> does this file look like it? Asked in this order.
    expected : str
        Which files the loader takes, for the message.

    Returns
    -------
    dict of str to list of Path
        Every role, its files sorted by name, so that the order of the arguments means nothing. Files of a folder that
        are none of these are left out.

    Raises
    ------
    BadFileError
        If a file given by name is none of these, or nothing is; if a file is a pointer, empty or damaged, since it
        may be one that is missed.
    """
    grouped: dict[str, list[Path]] = {role: [] for role in roles}
    stray = []
    for path in list_files(paths):
        role = next((role for role, looks_like in roles.items() if looks_like(path)), None)
        grouped[role].append(path) if role else stray.append(path)
    named = [path for path in stray if path in paths]
    for path in stray:
        _refuse_spoilt(path, is_needed=path in named or not any(grouped.values()))
    if named or not any(grouped.values()):
        raise BadFileError(
            named[0] if named else paths[0],
            kind="wrong_columns",
            found="nothing that looks like " + " or ".join(roles),
            expected=expected,
            fix="Give the files by name to learn what is wrong with them, or let 'auto' choose the loader.",
        )
    return {role: sorted(found, key=lambda path: (path.name, str(path))) for role, found in grouped.items()}


def _refuse_spoilt(path: Path, *, is_needed: bool) -> None:
    """Say what is wrong with a file that nobody recognised, if something is."""
    try:
        with readable(path), open_bytes(path) as stream:
            stream.read(LOOK_BYTES)
    except BadFileError as error:
        if is_needed or error.kind in SPOILT:
            raise
