"""The slow, exact road through a delimited file that has something odd: line by line, nothing lost.

Right lines are written into clean text that polars reads at once; wrong ones are set aside with line and reason.
"""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Final

__all__ = ["Cleaned", "clean"]

#: A quoted field may hold newlines, but a quote that never closes must not swallow the rest of the file.
MAX_LINES_PER_RECORD: Final = 50


@dataclass
class Cleaned:
    """Clean text and what was left out of it.

    Attributes
    ----------
    text : bytes
        The right rows, without header, trailing separator or undecodable bytes.
    lines : list of int
        Physical line of each of them (its first, if it spans several).
    rejects : list of (line, reason, text)
        Rows left out: ``blank_line``, ``too_few_fields``, ``too_many_fields``, ``unclosed_quote``.
    undecodable : set of int
        Lines of which bytes were replaced.
    spans : dict of int to int
        Number of lines of the records that span several.
    num_repaired : int
        Rows whose free-text column took the surplus fields.
    """

    text: bytes = b""
    lines: list[int] = field(default_factory=list)
    rejects: list[tuple[int, str, str]] = field(default_factory=list)
    undecodable: set[int] = field(default_factory=set)
    spans: dict[int, int] = field(default_factory=dict)
    num_repaired: int = 0


class _Lines:
    """Decoded lines with their numbers, with a look ahead."""

    def __init__(self, stream: IO[bytes], first_line: int) -> None:
        self.stream = stream
        self.ahead: deque[tuple[str, bool]] = deque()
        self.number = first_line - 1

    def look(self, offset: int) -> tuple[str, bool] | None:
        """The line ``offset`` lines ahead, without newline, and whether bytes of it were replaced; null at the end."""
        while len(self.ahead) <= offset:
            raw = self.stream.readline()
            if not raw:
                return None
            raw = raw.removesuffix(b"\n")
            try:
                self.ahead.append((raw.decode("utf-8"), False))
            except UnicodeDecodeError:
                self.ahead.append((raw.decode("utf-8", errors="replace"), True))
        return self.ahead[offset]

    def drop(self, count: int) -> None:
        for _ in range(count):
            self.ahead.popleft()
        self.number += count


def clean(
    stream: IO[bytes], *, separator: str, columns: Sequence[str], free_text: str | None, first_line: int
) -> Cleaned:
    """Clean the lines of a stream from its current place on.

    Parameters
    ----------
    stream : binary file
        Placed at the first data line.
    separator : str
        One character.
    columns : sequence of str
        Names of the fields that each row must have; one empty field more (a trailing separator) is allowed.
    free_text : str or None
        The column that takes surplus fields.
    first_line : int
        Physical number of the line at which the stream stands.

    Returns
    -------
    Cleaned
        Right rows and rows set aside; together they are all rows.
    """
    done = Cleaned()
    out = io.StringIO(newline="")
    lines = _Lines(stream, first_line)
    place = list(columns).index(free_text) if free_text in columns and free_text is not None else None
    while (ahead := lines.look(0)) is not None:
        text = ahead[0].removesuffix("\r")
        number = lines.number + 1
        fields, span = _fields(lines, separator)
        row = _fit(fields, len(columns), separator=separator, place=place)
        if not text.strip():
            done.rejects.append((number, "blank_line", text))
            span = 1
        elif row is None or (span > 1 and len(fields) != len(columns)):
            done.rejects.append((number, _reason(fields, len(columns), text), text))
            span = 1
        else:
            done.num_repaired += len(row) < len(fields) and any(fields[len(columns) :])
            _note_record(done, lines, number, span)
            out.write(separator.join(_quoted(field, separator) for field in row) + "\n")
        lines.drop(span)
    done.text = out.getvalue().encode("utf-8", errors="replace")
    return done


def _quoted(field: str, separator: str) -> str:
    # Not csv.writer: before Python 3.13 it leaves a carriage return bare, which at the end of a line gets lost.
    if any(character in field for character in (separator, '"', "\n", "\r")):
        return '"' + field.replace('"', '""') + '"'
    return field


def _note_record(done: Cleaned, lines: _Lines, number: int, span: int) -> None:
    done.lines.append(number)
    if span > 1:
        done.spans[number] = span
    if any(ahead[1] for i in range(span) if (ahead := lines.look(i))):
        done.undecodable.add(number)


def _fields(lines: _Lines, separator: str) -> tuple[list[str], int]:
    """Fields of the record that begins at the next line, and how many lines it takes."""
    text = (lines.look(0) or ("", False))[0].removesuffix("\r")
    if '"' not in text:
        return text.split(separator), 1
    for span in range(1, MAX_LINES_PER_RECORD + 1):
        parts = [ahead[0] for i in range(span) if (ahead := lines.look(i))]
        if len(parts) < span:
            break
        try:
            # strict: a quote that is still open at the end of the text is an error, not a field.
            rows = list(
                csv.reader(
                    io.StringIO("\n".join(parts).removesuffix("\r"), newline=""), delimiter=separator, strict=True
                )
            )
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                continue
            break
        if len(rows) == 1:
            return rows[0], span
        break
    # Quotes that are not those of CSV are ordinary characters.
    return text.split(separator), 1


def _fit(fields: list[str], num: int, *, separator: str, place: int | None) -> list[str] | None:
    """The row of the right length, or null if these fields cannot be one."""
    if len(fields) == num:
        return fields
    if len(fields) == num + 1 and not fields[-1].strip():
        return fields[:num]
    if len(fields) > num and place is not None:
        surplus = len(fields) - num
        if not fields[-1]:
            fields, surplus = fields[:-1], surplus - 1
        middle = separator.join(fields[place : place + surplus + 1])
        return [*fields[:place], middle, *fields[place + surplus + 1 :]]
    return None


def _reason(fields: list[str], num: int, text: str) -> str:
    if text.count('"') % 2:
        return "unclosed_quote"
    return "too_few_fields" if len(fields) < num else "too_many_fields"
