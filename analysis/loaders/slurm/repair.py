"""Lines of an export that have too few or too many fields: a user's text held the delimiter or a newline.

The surplus goes to the free-text field that leaves all other fields as they must be; where that is none, or more than
one, the line is set aside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from analysis.loaders.slurm.grammar import DURATION, SHORT_STATES, STATES
from analysis.loaders.slurm.layout import FREE_TEXT, IDS, Layout

__all__ = ["OddLine", "Repaired", "Repairer"]

MAX_LINES_PER_RECORD: Final = 50
JOB_ID: Final = re.compile(r"^\d+(?:[_+.]|$)")
TIME: Final = re.compile(r"^(?:|Unknown|None|N/A|#+|\d{9,11}|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*)$")
DURATION_TEXT: Final = re.compile(DURATION.replace("?P<days>", "").replace("?P<minus>", ""))
NUMBER: Final = re.compile(r"^\d*$")


def _is_state(text: str) -> bool:
    word = text.split(" ")[0].upper()
    return word in STATES or word in SHORT_STATES or (word.endswith("+") and len(word) > 1)


def _is_duration(text: str) -> bool:
    return text in ("", "INVALID", "UNLIMITED", "Partition_Limit") or DURATION_TEXT.match(text) is not None


CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "JobID": lambda text: JOB_ID.match(text) is not None,
    "JobIDRaw": lambda text: JOB_ID.match(text) is not None,
    "State": _is_state,
    "Elapsed": _is_duration,
    "Timelimit": _is_duration,
    "Suspended": _is_duration,
    **dict.fromkeys(("Submit", "Eligible", "Start", "End"), lambda text: TIME.match(text) is not None),
    **dict.fromkeys(("ElapsedRaw", "NCPUS", "NNodes", "AllocCPUS", "UID"), lambda text: NUMBER.match(text) is not None),
}


@dataclass(frozen=True)
class OddLine:
    """A physical line with the wrong number of fields."""

    number: int
    parts: list[str]


@dataclass
class Repaired:
    """What became of odd lines.

    Attributes
    ----------
    rows : list of list
        Line number, then the fields, of records that were put together again.
    aside : list of (line, reason, text)
        The others.
    """

    rows: list[list[object]] = field(default_factory=list)
    aside: list[tuple[int, str, str]] = field(default_factory=list)


class Repairer:
    """Put records together again whose free text holds the delimiter or a newline."""

    def __init__(self, layout: Layout, *, has_trailing: bool) -> None:
        self.layout = layout
        self.has_trailing = has_trailing
        self.num = len(layout.fields)
        self.free = [place for place, name in enumerate(layout.fields) if name in FREE_TEXT]
        self.checks = [(place, CHECKS[name]) for place, name in enumerate(layout.fields) if name in CHECKS]

    def repair(self, lines: Sequence[OddLine]) -> Repaired:
        """Go through odd lines in the file's order."""
        done = Repaired()
        place = 0
        while place < len(lines):
            line = lines[place]
            row, taken = self._record(lines, place)
            if row is not None:
                done.rows.append([line.number, *row])
            else:
                text = self.layout.delimiter.join(line.parts)
                done.aside.append((line.number, self._reason(line.parts, text), text))
            place += taken
        return done

    def _reason(self, parts: list[str], text: str) -> str:
        if not text.strip():
            return "blank_line"
        if [part.strip().lower() for part in parts[: self.num]] == [name.lower() for name in self.layout.fields]:
            return "repeated_header"
        if len(parts) == self.num + self.has_trailing:
            return "no_id"
        return "too_few_fields" if len(parts) <= self.num else "too_many_fields"

    def _record(self, lines: Sequence[OddLine], place: int) -> tuple[list[str] | None, int]:
        """The record that begins at a line, or null, and how many lines it takes."""
        parts = list(lines[place].parts)
        if not self._begins_record(parts):
            return None, 1
        row = self._fit(parts)
        if row is not None:
            return row, 1
        for more in range(1, MAX_LINES_PER_RECORD):
            if place + more >= len(lines) or len(parts) > self.num + self.has_trailing:
                break
            following = lines[place + more]
            if following.number != lines[place].number + more or self._begins_record(following.parts):
                break
            parts = [*parts[:-1], f"{parts[-1]}\n{following.parts[0]}", *following.parts[1:]]
            row = self._fit(parts)
            if row is not None:
                return row, more + 1
        return None, 1

    def _begins_record(self, parts: Sequence[str]) -> bool:
        """Whether a line may begin a record: its id, if that is the first field, is one."""
        first = CHECKS.get(self.layout.fields[0]) if self.layout.fields[0] in IDS else None
        return first(parts[0]) if first else len(parts) > 1

    def _fit(self, parts: list[str]) -> list[str] | None:
        """The row of the right length, if there is exactly one way to make it."""
        if self.has_trailing and len(parts) > self.num and not parts[-1]:
            parts = parts[:-1]
        surplus = len(parts) - self.num
        if surplus < 0 or not self.free:
            return None
        mark = self.layout.delimiter
        ways = [[*parts[:at], mark.join(parts[at : at + surplus + 1]), *parts[at + surplus + 1 :]] for at in self.free]
        plausible = [way for way in ways if all(check(way[at]) for at, check in self.checks)]
        unique = [way for number, way in enumerate(plausible) if way not in plausible[:number]]
        return unique[0] if len(unique) == 1 else None
