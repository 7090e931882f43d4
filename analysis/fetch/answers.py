"""What a server's answer says about a file, and answers that are no file at all: pointers and web pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Final

from analysis.fetch.errors import FetchError

__all__ = ["Answer", "read_answer", "refuse_what_is_no_data"]

LFS_START: Final = b"version https://git-lfs"
#: A pointer is some 130 bytes; nothing longer is one.
LFS_MAX_BYTES: Final = 1024
RANGE: Final = re.compile(r"bytes\s+(?:(\d+)-(\d+)|\*)/(\d+|\*)\s*$")
PAGE: Final = re.compile(rb"(\xef\xbb\xbf)?\s*(<!--.*?-->\s*)?(<!doctype html|<html)", re.IGNORECASE | re.DOTALL)
TITLE: Final = re.compile(rb"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """What the headers of an answer say.

    Attributes
    ----------
    offset : int
        Position of the body's first byte in the file [bytes]; 0 if the whole file is sent.
    total : int or None
        Size of the whole file [bytes]; null if the server does not say.
    validator : str or None
        What tells this very file later on, fit for If-Range: a strong ETag, else Last-Modified.
    is_page : bool
        Whether the server itself calls it a web page.
    """

    offset: int
    total: int | None
    validator: str | None
    is_page: bool


def read_answer(headers: Message | Mapping[str, str], *, status: int, offset: int) -> Answer:
    """Read the headers of an answer.

    Parameters
    ----------
    headers : mapping
        The answer's headers.
    status : int
        200: the whole file. 206: a part. 416: there is no such part.
    offset : int
        Where the part begins that was asked for [bytes]; it counts for a 206 without Content-Range.

    Returns
    -------
    Answer
    """
    length = headers.get("Content-Length", "")
    # A body that was packed on the way has a length that says nothing about the file.
    total = int(length) if length.isdigit() and headers.get("Content-Encoding", "identity") == "identity" else None
    begin = 0
    if status in {206, 416}:
        match = RANGE.match(headers.get("Content-Range", ""))
        begin = int(match[1]) if match and match[1] else offset
        total = int(match[3]) if match and match[3].isdigit() else None
    tag = headers.get("ETag", "")
    strong = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")
    return Answer(begin, total, strong, headers.get("Content-Type", "").lower().startswith("text/html"))


def refuse_what_is_no_data(url: str, *, head: bytes, answer: Answer, size: int | None) -> None:
    """Refuse an answer that is a Git-LFS pointer, a web page, or nothing.

    Parameters
    ----------
    url : str
        For the message.
    head : bytes
        The first bytes of the file.
    answer : Answer
        What the headers said.
    size : int or None
        Its known size [bytes]; null = unknown.

    Raises
    ------
    FetchError
        Of kind ``lfs_pointer``, ``html`` or ``wrong_size``.
    """
    expected = f"the file of {size} bytes" if size is not None else "the file"
    if head.startswith(LFS_START) and len(head) <= LFS_MAX_BYTES:
        declared = re.search(rb"^size (\d+)", head, re.MULTILINE)
        found = f"a Git-LFS pointer to a file of {declared[1].decode() if declared else 'unknown'} bytes"
        fix = "This address serves the pointer only; on GitHub, media.githubusercontent.com/media/… serves the data."
        raise FetchError(url, kind="lfs_pointer", found=found, expected=expected, fix=fix)
    if PAGE.match(head) or (answer.is_page and head.lstrip().startswith(b"<")):
        title = TITLE.search(head)
        words = " ".join(title[1].decode("utf-8", "replace").split())[:120] if title else ""
        found = f"a web page{f' titled {words!r}' if words else ''}"
        fix = "The server asks for a login or its quota is used up: try later, or get the file from the trace's page."
        raise FetchError(url, kind="html", found=found, expected=expected, fix=fix)
    if not head and size != 0:
        fix = "Try later, or get the file from the trace's page."
        raise FetchError(url, kind="wrong_size", found="an empty file", expected=expected, fix=fix)
