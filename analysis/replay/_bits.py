"""Sets of small integers sorted into buckets, with the lowest member of any bucket found in a few machine words.

A *bucket table* keeps items ``0 … m-1``, each in one bucket: per bucket a bitset over the items and a summary bitset
over its words, and one bitset over the buckets that are not empty. Many tables share one array of words; a row of
``tab`` says where a table's words lie:
``[first word, words per bucket, first summary word, summary words per bucket, first mask word, mask words]``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analysis.replay._compiled import compiled, ctz, melted

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

WORD = 64
ONE = np.uint64(1)
EMPTY = np.uint64(0)


@melted
def bit(i: int) -> np.uint64:
    """Word with only bit ``i mod 64`` set."""
    return ONE << np.uint64(i & 63)


@compiled
def put(tab: I64, bits: U64, t: int, bucket: int, item: int) -> None:
    """Add an item to a bucket."""
    w = item >> 6
    at = tab[t, 0] + bucket * tab[t, 1] + w
    was_empty = bits[at] == EMPTY
    bits[at] |= bit(item)
    if not was_empty:
        return
    bits[tab[t, 2] + bucket * tab[t, 3] + (w >> 6)] |= bit(w)
    bits[tab[t, 4] + (bucket >> 6)] |= bit(bucket)


@compiled
def drop(tab: I64, bits: U64, t: int, bucket: int, item: int) -> None:
    """Take an item out of a bucket."""
    w = item >> 6
    at = tab[t, 0] + bucket * tab[t, 1] + w
    bits[at] &= ~bit(item)
    if bits[at] != EMPTY:
        return
    first = tab[t, 2] + bucket * tab[t, 3]
    bits[first + (w >> 6)] &= ~bit(w)
    for s in range(tab[t, 3]):
        if bits[first + s] != EMPTY:
            return
    bits[tab[t, 4] + (bucket >> 6)] &= ~bit(bucket)


@melted
def has_bucket(tab: I64, bits: U64, t: int, bucket: int) -> bool:
    """Tell whether a bucket holds anything."""
    return bool((bits[tab[t, 4] + (bucket >> 6)] & bit(bucket)) != EMPTY)


@compiled
def next_bucket(tab: I64, bits: U64, t: int, bucket: int) -> int:
    """Lowest bucket from ``bucket`` on that is not empty; -1 if there is none."""
    m = bucket >> 6
    if m >= tab[t, 5]:
        return -1
    word = bits[tab[t, 4] + m] >> np.uint64(bucket & 63)
    if word != EMPTY:
        return bucket + int(ctz(word))
    for k in range(m + 1, tab[t, 5]):
        word = bits[tab[t, 4] + k]
        if word != EMPTY:
            return k * WORD + int(ctz(word))
    return -1


@compiled
def first_item(tab: I64, bits: U64, t: int, bucket: int) -> int:
    """Lowest item of a bucket; -1 if it is empty."""
    first = tab[t, 2] + bucket * tab[t, 3]
    for s in range(tab[t, 3]):
        word = bits[first + s]
        if word != EMPTY:
            w = s * WORD + ctz(word)
            return int(w * WORD + int(ctz(bits[tab[t, 0] + bucket * tab[t, 1] + w])))
    return -1


@compiled
def next_item(tab: I64, bits: U64, t: int, bucket: int, item: int) -> int:
    """Lowest item of a bucket from ``item`` on; -1 if there is none."""
    w = item >> 6
    if w >= tab[t, 1]:
        return -1
    first = tab[t, 0] + bucket * tab[t, 1]
    word = bits[first + w] >> np.uint64(item & 63)
    if word != EMPTY:
        return item + int(ctz(word))
    for k in range(w + 1, tab[t, 1]):
        if bits[first + k] != EMPTY:
            return k * WORD + int(ctz(bits[first + k]))
    return -1


def make_tables(num_items: list[int], num_buckets: list[int]) -> tuple[I64, U64]:
    """Lay out empty bucket tables behind each other.

    Parameters
    ----------
    num_items, num_buckets : list of int, one per table
        Items and buckets of each table.

    Returns
    -------
    tab : int64 array, one row per table
        Where its words lie.
    bits : uint64 array
        The words of all, zero.
    """
    rows = []
    at = 0
    for items, buckets in zip(num_items, num_buckets, strict=True):
        words = -(-items // WORD)
        summaries = -(-words // WORD)
        masks = -(-buckets // WORD)
        rows.append([at, words, at + buckets * words, summaries, at + buckets * (words + summaries), masks])
        at += buckets * (words + summaries) + masks
    return np.array(rows, dtype=np.int64).reshape(-1, 6), np.zeros(at, dtype=np.uint64)
