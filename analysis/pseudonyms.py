"""Keyed hashes for names: short, without collisions, and such that job names of one family stay one family."""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection, Iterable
from typing import Final

from analysis.errors import HindcastError

__all__ = ["hash_names", "hash_values"]

#: No a-f: a hash never looks like a hexadecimal id, which is taken for a number where names are compared.
LETTERS: Final = "ghijklmnopqrstuvwxyz"
DIGITS: Final = "0123456789"
VALUE_LENGTH: Final = 10
WORD_LENGTH: Final = 8
NUMBER_LENGTH: Final = 9
MAX_LENGTH: Final = 45
#: What counts as a number in a job's name; the same that predictors leave out of a job's family.
NUMBER: Final = re.compile(r"[0-9a-f]{8,}|[0-9]+", re.IGNORECASE)
SEPARATOR: Final = re.compile(r"[-_./:+ =,@()\[\]]+")


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
