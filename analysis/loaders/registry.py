"""The registry of loaders: one file and one decorator per source.

A third party's package does the same as the files here::

    from analysis.loaders import loader

    @loader("mysite", summary="My site's log", files="jobs.csv", sniff=lambda paths: 0.0)
    def read_mysite(paths, *, timezone=None, name=None):
        ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from analysis.errors import UnknownNameError, UsageError
from analysis.trace import Trace

__all__ = ["LOADERS", "Loader", "get_loader", "loader"]

#: Parameters that every loader has and `load` passes by itself.
COMMON: Final = ("timezone", "name")
Sniff = Callable[[Sequence[Path]], float]


#: Reads the files of one source: ``read(paths, *, timezone=None, name=None, **options) -> Trace``.
Read = Callable[..., Trace]


@dataclass(frozen=True)
class Loader:
    """One source.

    Attributes
    ----------
    name, summary, files : str
        Its name; one line on what it is; which files it takes.
    read : callable
        ``read(paths, *, timezone, name, **options) -> Trace``.
    sniff : callable
        ``sniff(paths) -> float``: how sure it is, 0-1, that these files are of its source, from their content.
    takes_files, takes_frames : bool
        Whether it reads files, and whether a table in memory will do.
    """

    name: str
    summary: str
    files: str
    read: Read
    sniff: Sniff
    takes_files: bool = True
    takes_frames: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options beside ``timezone`` and ``name``."""
        parameters = inspect.signature(self.read).parameters.values()
        return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in COMMON)

    def check_options(self, options: dict[str, Any]) -> None:
        """Refuse options that this loader does not have.

        Raises
        ------
        UnknownNameError
            Naming the first unknown one and all that are known.
        """
        for option in options:
            if option not in self.options:
                raise UnknownNameError(
                    kind=f"option of the loader {self.name!r}", found=option, known=(*self.options, *COMMON)
                )


LOADERS: Final[dict[str, Loader]] = {}


def loader(
    name: str,
    *,
    summary: str,
    files: str,
    sniff: Sniff,
    takes_files: bool = True,
    takes_frames: bool = False,
) -> Callable[[Read], Read]:
    """Register a loader.

    Parameters
    ----------
    name : str
        What the user writes: ``hindcast load NAME``.
    summary, files : str
        One line on the source, and which files it takes.
    sniff : callable of a sequence of Path to float
        How sure the loader is, 0-1, from the files' content; it must not raise (see `files.peek`).
    takes_files, takes_frames : bool
        Whether it reads files (a generator does not), and whether it takes tables in memory.

    Returns
    -------
    callable
        The decorator; it returns the function as it is.

    Raises
    ------
    UsageError
        If the name is taken by another function.
    """

    def register(read: Read) -> Read:
        taken = LOADERS.get(name)
        if taken is not None and _place(taken.read) != _place(read):
            msg = f"loader {name!r} is registered already, by {_place(taken.read)}; choose another name."
            raise UsageError(msg)
        LOADERS[name] = Loader(name, summary, files, read, sniff, takes_files, takes_frames)
        return read

    return register


def _place(read: Read) -> str:
    return f"{getattr(read, '__module__', '?')}.{getattr(read, '__qualname__', '?')}"


def get_loader(name: str) -> Loader:
    """Find a loader by name.

    Raises
    ------
    UnknownNameError
        If nobody registered it; the message lists the known ones.
    """
    if name not in LOADERS:
        hint = "'auto' recognises files by their content; 'table' takes any table with a column map."
        raise UnknownNameError(kind="loader", found=name, known=LOADERS, hint=hint)
    return LOADERS[name]
