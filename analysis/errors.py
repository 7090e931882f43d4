"""Every error of hindcast; each builds its own sentence: where, what was found, what was expected, what to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

__all__ = [
    "BadFileError",
    "HindcastError",
    "NoTimelineError",
    "SchemaError",
    "SchemaVersionError",
    "UnknownNameError",
    "UsageError",
]


class HindcastError(ValueError):
    """Base of every error that the user can mend; the command line prints it without a traceback."""


class UsageError(HindcastError):
    """A request that does not fit together (the command line exits with 2)."""


class UnknownNameError(UsageError, KeyError):
    """Something was asked for by a name that nobody registered."""

    def __init__(self, *, kind: str, found: str, known: Collection[str], hint: str = "") -> None:
        close = get_close_matches(found, known, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        tail = f" {hint}" if hint else ""
        super().__init__(f"no {kind} is named {found!r} (known: {', '.join(sorted(known))}).{guess}{tail}")
        self.found = found

    def __str__(self) -> str:
        # KeyError would print the repr of the sentence.
        return str(self.args[0])


class BadFileError(HindcastError):
    """A file that cannot be read as what it was said to be.

    ``kind`` is a short machine-readable word (``missing``, ``lfs_pointer``, ``empty``, ``truncated``,
    ``wrong_columns``, ``not_a_trace`` …).
    """

    def __init__(self, path: Path | str, *, kind: str, found: str, expected: str, fix: str) -> None:
        super().__init__(f"{path}: found {found}; expected {expected}. {fix}")
        self.path = Path(path)
        self.kind = kind


class SchemaVersionError(BadFileError):
    """A Trace folder or a model written by a newer hindcast than this one."""

    def __init__(self, path: Path | str, *, found: int, supported: int) -> None:
        super().__init__(
            path,
            kind="newer_version",
            found=f"schema version {found}",
            expected=f"at most {supported}",
            fix="It was written by a newer hindcast: upgrade with 'pip install -U gpu-hindcast'.",
        )


class SchemaError(HindcastError):
    """A table that breaks its schema; the message lists every violation, not only the first."""

    def __init__(self, *, table: str, violations: Sequence[str] | Mapping[str, str]) -> None:
        lines = (
            [f"{name}: {text}" for name, text in violations.items()]
            if isinstance(violations, Mapping)
            else list(violations)
        )
        head = f"table {table!r} breaks {len(lines)} rule{'s' if len(lines) != 1 else ''}"
        super().__init__("\n  - ".join([f"{head}:", *lines]))
        self.violations = lines


class NoTimelineError(HindcastError):
    """A replay was asked of jobs that have no submission times."""

    def __init__(self, *, where: str, num_missing: int, num_jobs: int) -> None:
        super().__init__(
            f"{where}: {num_missing} of {num_jobs} jobs have no submit_time; a replay needs all of them. "
            "Such a log can be characterized but not replayed; give submission times or filter these jobs out."
        )
