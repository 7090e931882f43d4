"""Slurm's host lists: ``gpu[01-03,07],cpu5`` to names.

Own code: the known package (python-hostlist) is under the GPL.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Final

import polars as pl

from analysis.errors import HindcastError

__all__ = ["HostlistError", "expand_hostlist", "split_hosts"]

#: More names than any cluster has: a text that asks for more is no host list.
MAX_HOSTS: Final = 1_000_000
NO_HOSTS: Final = ("", "None assigned", "(null)", "None", "Unknown", "N/A")
RANGE: Final = re.compile(r"^(\d+)(?:-(\d+)(?:[:/](\d+))?)?$")
BRACKET: Final = re.compile(r"\[([^\[\]]*)\]")


class HostlistError(HindcastError):
    """A text that is no host list."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"host list {text[:80]!r}: {reason}; expected names such as 'gpu[01-03,07],cpu5'.")


def expand_hostlist(text: str | None) -> list[str]:
    """Expand a host list, in its own order.

    Parameters
    ----------
    text : str or None
        As Slurm writes it; "None assigned" and the like have no hosts.

    Returns
    -------
    list of str

    Raises
    ------
    HostlistError
        If brackets do not close, a range is no range, or it names more than a million hosts.

    Examples
    --------
    >>> expand_hostlist("gpu[01-03,07],cpu5")
    ['gpu01', 'gpu02', 'gpu03', 'gpu07', 'cpu5']
    >>> expand_hostlist("None assigned")
    []
    """
    bare = (text or "").strip()
    if bare in NO_HOSTS:
        return []
    hosts: list[str] = []
    for part in split_hosts(bare):
        hosts += _expand_one(part, bare)
        if len(hosts) > MAX_HOSTS:
            raise HostlistError(bare, f"it names more than {MAX_HOSTS} hosts")
    return hosts


def split_hosts(text: str) -> list[str]:
    """Cut a list at the commas outside brackets.

    Raises
    ------
    HostlistError
        If brackets do not match.
    """
    parts, depth, start = [], 0, 0
    for place, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise HostlistError(text, "its brackets do not match")
        if char == "," and not depth:
            parts.append(text[start:place])
            start = place + 1
    if depth:
        raise HostlistError(text, "a bracket is not closed")
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _expand_one(part: str, whole: str) -> list[str]:
    # re.split with a group alternates fixed text and the inside of brackets.
    pieces = BRACKET.split(part)
    choices = [_numbers(piece, whole) if i % 2 else [piece] for i, piece in enumerate(pieces)]
    total = 1
    for choice in choices:
        total *= len(choice)
    if total > MAX_HOSTS:
        raise HostlistError(whole, f"it names more than {MAX_HOSTS} hosts")
    return ["".join(combination) for combination in product(*choices)]


def _numbers(inside: str, whole: str) -> list[str]:
    numbers: list[str] = []
    for item in inside.split(","):
        found = RANGE.match(item.strip())
        if not found:
            raise HostlistError(whole, f"{item!r} is no number and no range")
        first, last, step = found[1], found[2] or found[1], int(found[3] or 1)
        span = range(int(first), int(last) + 1, max(step, 1))
        if not span or len(span) > MAX_HOSTS:
            raise HostlistError(whole, f"the range {item!r} is empty or too long")
        # The width of the first number is that of all: 01-10 has 09 and 10.
        numbers += [str(number).zfill(len(first)) for number in span]
    return numbers


def expand_column(texts: pl.Series) -> pl.Series:
    """Expand a column of host lists (text or categories), as "nodes"; null where there are none or it is no list."""
    distinct = texts.unique()
    lists = [_or_none(text) for text in distinct.to_list()]
    table = pl.DataFrame({"text": distinct, "nodes": pl.Series(lists, dtype=pl.List(pl.String))})
    keys = texts.alias("text").to_frame()
    return keys.join(table, on="text", how="left", nulls_equal=True, maintain_order="left")["nodes"]


def _or_none(text: str | None) -> list[str] | None:
    try:
        return expand_hostlist(text) or None
    except HostlistError:
        return None
