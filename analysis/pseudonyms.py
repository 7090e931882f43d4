"""The key, and keyed hashes: short, without collisions, and job names of one family stay one family."""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from analysis.errors import BadFileError, HindcastError, UsageError

__all__ = ["Key", "hash_names", "hash_values", "obtain_key"]

#: No a-f: a hash never looks like a hexadecimal id, which is taken for a number where names are compared.
LETTERS: Final = "ghijklmnopqrstuvwxyz"
DIGITS: Final = "0123456789"
VALUE_LENGTH: Final = 10
WORD_LENGTH: Final = 8
NUMBER_LENGTH: Final = 9
MAX_LENGTH: Final = 45
MIN_KEY_BYTES: Final = 16
#: What counts as a number in a job's name; the same that predictors leave out of a job's family.
NUMBER: Final = re.compile(r"[0-9a-f]{8,}|[0-9]+", re.IGNORECASE)
SEPARATOR: Final = re.compile(r"[-_./:+ =,@()\[\]]+")


@dataclass(frozen=True)
class Key:
    """The secret of the hashes, and where it lies.

    Attributes
    ----------
    secret : bytes
        Never printed, never in a trace.
    path : Path
        Its file.
    is_new : bool
        Whether it was made just now.
    """

    secret: bytes = field(repr=False)
    path: Path
    is_new: bool

    def forget(self) -> None:
        """Remove a key that was made for something that came to nothing."""
        if self.is_new:
            self.path.unlink(missing_ok=True)


def obtain_key(key_file: Path | None, *, output: Path) -> Key:
    """Read the key, or make one at random and write it to a file that only its owner may read.

    Parameters
    ----------
    key_file : Path or None
        Read if it is there, made if not. Null: ``<output>.key`` is made.
    output : Path
        The trace folder to be written; the key must not lie in it.

    Raises
    ------
    UsageError
        If the key would lie in the trace, or there is a key beside the output that was not asked for.
    BadFileError
        If the key is too short, or cannot be read.
    """
    path = key_file if key_file is not None else output.with_name(output.name + ".key")
    if path.resolve().is_relative_to(output.resolve()):
        msg = f"{path}: the key would be shared with the trace {output}; keep it outside."
        raise UsageError(msg)
    if path.is_dir():
        msg = f"{path}: found a folder; expected a file for the key."
        raise UsageError(msg)
    if not path.exists():
        return _make_key(path)
    if key_file is None:
        msg = f"{path}: a key is there already; use it with --key-file {path}, or move it away for a new one."
        raise UsageError(msg)
    secret = path.read_bytes().strip()
    if len(secret) < MIN_KEY_BYTES:
        found, fix = f"{len(secret)} bytes", "Leave --key-file out to have a key made."
        raise BadFileError(path, kind="short_key", found=found, expected=f"{MIN_KEY_BYTES} or more", fix=fix)
    return Key(secret, path, is_new=False)


def _make_key(path: Path) -> Key:
    secret = secrets.token_hex(32).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    # O_EXCL: a file that appears at this moment is not ours to write into.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret + b"\n")
    return Key(secret, path, is_new=True)


def _digest(key: bytes, kind: str, value: str) -> int:
    # The kind is part of what is hashed: a user and an account of one name get hashes that have nothing in common.
    return int.from_bytes(hmac.digest(key, f"{kind}\0{value}".encode("utf-8", "surrogatepass"), "sha256"), "big")


def _spell(number: int, alphabet: str, length: int) -> str:
    letters = []
    for _ in range(length):
        number, letter = divmod(number, len(alphabet))
        letters.append(alphabet[letter])
    return "".join(letters)


def hash_values(
    values: Collection[str],
    *,
    key: bytes,
    kind: str,
    prefix: str = "",
    alphabet: str = LETTERS,
    length: int = VALUE_LENGTH,
) -> dict[str, str]:
    """Hash each value, no two alike.

    Parameters
    ----------
    values : collection of str
        Distinct values.
    key : bytes
        The secret of HMAC-SHA256.
    kind : str
        What the values are; equal values of different kinds get different hashes.
    prefix : str, optional
        Put before each hash.
    alphabet : str, optional
        The letters of the hashes.
    length : int, default 10
        Their number; all become longer if two hashes are alike.

    Returns
    -------
    dict of str to str
        Value -> prefix and hash. The same key gives the same, whatever the other values are (unless they collide).

    Examples
    --------
    >>> alone = hash_values(["alice"], key=b"k" * 16, kind="user", prefix="u_")
    >>> among = hash_values(["bob", "alice"], key=b"k" * 16, kind="user", prefix="u_")
    >>> alone["alice"] == among["alice"], len(alone["alice"])
    (True, 12)
    """
    digests = {value: _digest(key, kind, value) for value in values}
    while length <= MAX_LENGTH:
        hashes = {value: prefix + _spell(digest, alphabet, length) for value, digest in digests.items()}
        if len(set(hashes.values())) == len(hashes):
            return hashes
        length += 3
    msg = (
        f"hashes of {len(digests)} values of kind {kind!r} are alike at {MAX_LENGTH} letters; are the values distinct?"
    )
    raise HindcastError(msg)


def hash_names(names: Collection[str], *, key: bytes) -> dict[str, str]:
    """Hash job names word by word, so that names of one family still are one.

    Parameters
    ----------
    names : collection of str
        Distinct job names.
    key : bytes
        The secret of HMAC-SHA256.

    Returns
    -------
    dict of str to str
        Name -> words as letters (in the case of the word: lower, upper, first letter upper, or a mix), numbers and
        hexadecimal ids as digits, separators as they were. Two names never become one.

    Examples
    --------
    >>> hashed = hash_names(["train-17", "train-18"], key=b"k" * 16)
    >>> first, second = (hashed[name].split("-") for name in ("train-17", "train-18"))
    >>> first[0] == second[0], first[1] == second[1]
    (True, False)
    """
    split = {name: _tokens(name) for name in names}
    numbers = {text for tokens in split.values() for kind, text in tokens if kind == "number"}
    words = {text for tokens in split.values() for kind, text in tokens if kind == "word"}
    by_number = hash_values(sorted(numbers), key=key, kind="number", alphabet=DIGITS, length=NUMBER_LENGTH)
    # Letters beyond ASCII can fold to the same one (the Kelvin sign and K): then only ASCII words share their case.
    for fold_all in (True, False):
        by_word = _hash_words(words, key=key, fold_all=fold_all)
        new = {"word": by_word, "number": by_number}
        hashed = {
            name: "".join(new[kind][text] if kind in new else text for kind, text in tokens)
            for name, tokens in split.items()
        }
        if len(set(hashed.values())) == len(hashed):
            return hashed
    msg = f"two of {len(split)} job names get the same hash; please report this with their shape."
    raise HindcastError(msg)


def _tokens(name: str) -> list[tuple[str, str]]:
    """Split a name into words, numbers and separators."""
    tokens: list[tuple[str, str]] = []
    at = 0
    for match in NUMBER.finditer(name):
        tokens += _words(name[at : match.start()])
        tokens.append(("number", match[0]))
        at = match.end()
    return tokens + _words(name[at:])


def _words(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    for match in SEPARATOR.finditer(text):
        tokens += [("word", text[at : match.start()])] if match.start() > at else []
        tokens.append(("separator", match[0]))
        at = match.end()
    return tokens + ([("word", text[at:])] if at < len(text) else [])


def _hash_words(words: Iterable[str], *, key: bytes, fold_all: bool) -> dict[str, str]:
    folded = {word: word.lower() if fold_all or word.isascii() else word for word in words}
    lower = hash_values(sorted(set(folded.values())), key=key, kind="word", length=WORD_LENGTH)
    return {word: _in_case_of(word, fold, lower[fold], key) for word, fold in folded.items()}


def _in_case_of(word: str, fold: str, hashed: str, key: bytes) -> str:
    """Write a hash in the case of its word; a mixed case becomes a mix that the word decides."""
    if word == fold:
        return hashed
    title = hashed[0].upper() + hashed[1:]
    if word == word.upper():
        return hashed.upper()
    if word == word[0].upper() + word[1:].lower():
        return title
    for attempt in range(MAX_LENGTH):
        bits = _digest(key, f"case {attempt}", word)
        mixed = "".join(letter.upper() if bits >> i & 1 else letter for i, letter in enumerate(hashed))
        if mixed not in {hashed, hashed.upper(), title}:
            break
    return mixed
