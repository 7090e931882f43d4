"""Families of job names: the same name but for its numbers, and names that resemble each other."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final

import polars as pl
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import extractOne

__all__ = ["SIMILAR", "NameClusters", "cluster_names", "family_of", "job_family"]

#: Names whose Levenshtein similarity is at least this belong together.
SIMILAR: Final = 0.8
#: Most clusters of one user; a name that resembles none of them then joins the nearest.
MOST_LEADERS: Final = 500
_COUNTERS: Final = r"[0-9a-f]{8,}|[0-9]+"
_IN_PYTHON: Final = re.compile(_COUNTERS)


def job_family(name: pl.Expr) -> pl.Expr:
    """Job names in lower case with ``#`` in place of numbers and hashes; null where the name is [str].

    Examples
    --------
    >>> pl.select(job_family(pl.lit("Train-7b_deadbeef01"))).item()
    'train-#b_#'
    """
    return name.str.to_lowercase().str.replace_all(_COUNTERS, "#")


def family_of(name: str | None) -> str | None:
    """One name, as ``job_family`` has it."""
    if name is None:
        return None
    if name.isascii():
        return _IN_PYTHON.sub("#", name.lower())
    # Python and polars lower some letters differently; there shall be one spelling.
    return str(pl.select(job_family(pl.lit(name))).item())


class NameClusters:
    """Clusters of each user's job names, grown one name after the other.

    A family that comes for the first time joins the most similar of the user's clusters (the oldest of equals) if the
    similarity with its leader, the family that founded it, is at least 0.8, or else founds one. Where a family belongs
    never changes, so what is asked at an instant depends on earlier names only.

    References
    ----------
    .. [1] Names that resemble each other (Levenshtein) are taken as one job that recurs in Q. Hu et al.,
       "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters", SC'21,
       doi:10.1145/3458817.3476223. Leader clustering is ours: it needs no look at later names.

    Examples
    --------
    >>> clusters = NameClusters()
    >>> [clusters.add("ann", name) for name in ("train-bert", "eval", "train-bart")]
    ['train-bert', 'eval', 'train-bert']
    >>> clusters.find("ann", "traim-bert"), clusters.find("bob", "train-bert")
    ('train-bert', None)
    """

    def __init__(self) -> None:
        self.leaders: dict[str, list[str]] = {}
        self._known: dict[tuple[str, str], str] = {}

    def add(self, user: str | None, family: str | None) -> str | None:
        """Take in a submitted job's family; returns the leader of its cluster (null without a user or a name)."""
        if user is None or family is None:
            return None
        found = self.find(user, family)
        if found is None:
            self.leaders.setdefault(user, []).append(family)
            found = family
        self._known[user, family] = found
        return found

    def find(self, user: str | None, family: str | None, *, most: int | None = None) -> str | None:
        """Leader of the cluster that a family would join; null where it would found one.

        Parameters
        ----------
        user, family : str or None
            Null has no cluster.
        most : int, optional
            Look at so many of the oldest clusters only, as if the others had not been founded yet.
        """
        if user is None or family is None:
            return None
        if most is None and (user, family) in self._known:
            return self._known[user, family]
        return nearest(self.leaders.get(user, [])[:most], family)

    def rows(self) -> list[tuple[str, str, str]]:
        """All (user, family, leader) in the order in which they came."""
        return [(user, family, leader) for (user, family), leader in self._known.items()]

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[str, str, str]]) -> NameClusters:
        """Make clusters of what ``rows`` gave."""
        made = cls()
        for user, family, leader in rows:
            if family == leader:
                made.leaders.setdefault(user, []).append(family)
            made._known[user, family] = leader
        return made


def nearest(leaders: list[str], family: str) -> str | None:
    """Most similar leader, the first of equals; null if none is similar enough and there is room for another."""
    is_full = len(leaders) >= MOST_LEADERS
    cutoff = None if is_full else SIMILAR
    found: Any = extractOne(family, leaders, scorer=Levenshtein.normalized_similarity, score_cutoff=cutoff)
    return None if found is None else str(found[0])


def cluster_names(user: pl.Series, family: pl.Series) -> pl.Series:
    """Leader of the cluster of each job's name, in the order of submission.

    Parameters
    ----------
    user, family : Series of str, same length
        Of jobs in the order in which they were submitted; null in either = no cluster.

    Returns
    -------
    Series of str, same length, named ``similar_name``
        The family that founded the cluster, which came no later than the job.
    """
    pairs = pl.DataFrame({"user": user, "family": family})
    first = pairs.drop_nulls().unique(maintain_order=True)
    clusters = NameClusters()
    leaders = [clusters.add(*pair) for pair in first.iter_rows()]
    first = first.with_columns(similar_name=pl.Series(leaders, dtype=pl.String))
    return pairs.join(first, on=["user", "family"], how="left", maintain_order="left")["similar_name"]


class Foundings:
    """Which clusters there were when a job came that the log does not hold."""

    def __init__(self, past: pl.DataFrame) -> None:
        columns = ["user", "job_family", "similar_name"]
        first = (
            past.with_row_index("place")
            .filter(pl.col("submit_time").is_not_null())
            .drop_nulls(columns)
            .group_by(columns, maintain_order=True)
            .agg(pl.col("place").first())
        )
        self.clusters = NameClusters.of_rows(first.select(columns).iter_rows())
        self.came: dict[tuple[str, str], int] = {}
        self.founded: dict[str, list[int]] = {}
        for user, family, leader, place in first.iter_rows():
            self.came[user, family] = place
            if family == leader:
                self.founded.setdefault(user, []).append(place)

    def find(self, user: str | None, family: str | None, before: int) -> str | None:
        """Leader of the cluster that a family would have joined after so many jobs of the log."""
        if user is None or family is None:
            return None
        if self.came.get((user, family), before) < before:
            return self.clusters.find(user, family)
        return self.clusters.find(user, family, most=bisect_left(self.founded.get(user, []), before))
