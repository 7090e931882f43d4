"""Jobs that belong together (one user's, one name's, one request's), counted by how long they ran.

Durations are counted in bins of 1/64 of a doubling of 1 + duration [s] (1.1 % wide), so that the counts of a log of any
size stay few and parts of it can be merged exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import KINDS
from analysis.characterize.cubes import Cube
from analysis.characterize.prepare import BINS, BINS_PER_DOUBLING, hashed, job_size

__all__ = ["GROUPING", "GROUPINGS", "JOB_GROUPS", "GroupedJobs", "grouped_jobs"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Width of a bin in the natural logarithm.
BIN_LOG: Final = math.log(2) / BINS_PER_DOUBLING
#: What is said of a group needs this many jobs in it.
MIN_GROUP: Final = 5


BIN: Final = pl.col("duration_bin").cast(pl.UInt64)


def _packed(key: pl.Expr, bin_of: pl.Expr) -> pl.Expr:
    """Kind, key (50 bits of it) and bin as one number, ordered by them: one number is counted and sorted fastest."""
    return pl.col("kind").to_physical().cast(pl.UInt64) * 2**62 + key // 2**14 * BINS + bin_of


def _job_groups(name: str, where: pl.Expr | None = None, *, is_fine: bool = False, **keys: pl.Expr) -> Cube:
    known = pl.col("duration_s").is_not_null() & (pl.col("censoring") == "none")
    return Cube(
        f"job groups by {name}",
        keys=keys,
        values={"num_jobs": pl.len().cast(pl.Int64), "sum_gpu_us": pl.col("gpu_us").sum()},
        where=known if where is None else known & where,
        is_fine=is_fine,
    )


_OWNER: Final = pl.col("owner_key")
#: Of the virtual cluster where there is no owner: such a job is in no group here.
_REQUEST: Final = pl.when(_OWNER.is_not_null()).then(pl.col("request_key"))
_NAMED: Final = hashed(_OWNER, pl.col("job_name_key"))
_GROUP: Final = pl.col("group_key")
#: Jobs of known duration by what their groups are made of and by bin of the duration. Apart: one number is
#: counted and sorted several times faster than three, and by name and request at once groups would be as many as jobs.
JOB_GROUPS: Final = {
    "vc": _job_groups("vc", vc_key=pl.col("vc_key"), size=job_size(), kind=pl.col("kind"), bin=BIN),
    "user": _job_groups("user", _OWNER.is_not_null(), packed=_packed(_OWNER, BIN)),
    "user_request": _job_groups("request", _REQUEST.is_not_null(), packed=_packed(_REQUEST, BIN)),
    "user_name": _job_groups("name", _NAMED.is_not_null(), is_fine=True, packed=_packed(_NAMED, BIN)),
    "group": _job_groups("group", _GROUP.is_not_null(), packed=_packed(_GROUP, BIN)),
}
#: Name -> cube of ``JOB_GROUPS``, and the key of the jobs that belong together over its columns; null = the job belongs
#: to no group.
GROUPINGS: Final = {
    "none": ("vc", pl.col("bin") * 0),
    "vc": ("vc", pl.col("vc_key")),
    "user": ("user", None),
    "vc_size": ("vc", hashed(pl.col("vc_key"), pl.col("size"))),
    "user_request": ("user_request", None),
    "user_name": ("user_name", None),
    "group": ("group", None),
}
GROUPING: Final = pl.Enum(list(GROUPINGS))


@dataclass(frozen=True)
class GroupedJobs:
    """Jobs of some groups by bin, sorted by group and bin; a bin may come more than once.

    Attributes
    ----------
    start : array of int
        Where each group begins in the other arrays.
    bin, count, gpu_us : array of int
        Bin of the duration, jobs in it, and their GPU time [GPU-microseconds].
    """

    start: Ints
    bin: Ints
    count: Ints
    gpu_us: Ints

    @cached_property
    def sizes(self) -> Ints:
        """Jobs of each group."""
        return self.sum_by_group(self.count)

    @cached_property
    def group(self) -> Ints:
        """Number of the group of each row."""
        return np.repeat(np.arange(len(self.start)), np.diff(np.append(self.start, len(self.bin))))

    @property
    def num_jobs(self) -> int:
        """Jobs in all."""
        return int(self.count.sum())

    def sum_by_group(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sum of something over the rows of each group."""
        return np.add.reduceat(values, self.start) if len(self.start) else values[:0]

    def of_at_least(self, num_jobs: int) -> GroupedJobs:
        """Only the groups with at least so many jobs."""
        kept, lengths = self.sizes >= num_jobs, np.diff(self.start, append=len(self.bin))
        rows, lengths = np.repeat(kept, lengths), lengths[kept]
        return GroupedJobs(np.cumsum(lengths) - lengths, self.bin[rows], self.count[rows], self.gpu_us[rows])

    def as_one(self) -> GroupedJobs:
        """Make the same jobs one group."""
        order = np.argsort(self.bin, kind="stable")
        return GroupedJobs(self.start[:1], self.bin[order], self.count[order], self.gpu_us[order])

    @cached_property
    def off_median(self) -> Ints:
        """Distance of each row's bin from the (lower) median bin of its group."""
        reached = np.cumsum(self.count)
        before = reached[self.start] - self.count[self.start]
        places = np.searchsorted(reached, before + (self.sizes + 1) // 2)
        distance: Ints = np.abs(self.bin - self.bin[places][self.group])
        return distance

    def variances(self) -> tuple[float, float | None]:
        """Variance of log(1 + duration), in all and within groups (unbiased; null without a degree of freedom)."""
        num_jobs, num_groups = self.num_jobs, len(self.start)
        weighted, squared = self.count * self.bin, self.count * self.bin * self.bin
        total = float(squared.sum()) - float(weighted.sum()) ** 2 / num_jobs
        within = float(squared.sum()) - float((self.sum_by_group(weighted).astype(float) ** 2 / self.sizes).sum())
        scale = BIN_LOG**2
        left = num_jobs - num_groups
        if num_groups == 1:
            within = total
        return scale * total / max(num_jobs - 1, 1), scale * max(within, 0.0) / left if left > 0 else None

    def entropy_bits(self) -> float:
        """Mean over the jobs of the entropy, within their group, of the doubling that the duration lies in [bit].

        With the correction for few jobs of G. A. Miller, "Note on the bias of information estimates", 1955.
        """
        doubling = self.bin // BINS_PER_DOUBLING
        first = np.flatnonzero(np.diff(self.group, prepend=-1) | np.diff(doubling, prepend=doubling[:1] - 1))
        counts, owner = np.add.reduceat(self.count, first).astype(float), self.group[first]
        surprise = float((counts * np.log2(self.sizes[owner] / counts)).sum())
        # A group of n jobs in k doublings gets (k - 1) / (2 n ln 2), and weighs n.
        correction = (len(first) - len(self.start)) / (2 * math.log(2))
        return (surprise + correction) / self.num_jobs

    def shares_within(self, bins: int) -> tuple[float, float | None]:
        """Share of the jobs, and of the GPU time, not further than so many bins from the median of their group."""
        close = self.off_median <= bins
        gpu_time = int(self.gpu_us.sum())
        share = int(self.gpu_us[close].sum()) / gpu_time if gpu_time else None
        return int(self.count[close].sum()) / self.num_jobs, share


def grouped_jobs(
    cubes: Mapping[str, pl.DataFrame], grouping: str, by: Sequence[str]
) -> Iterator[tuple[dict[str, Any], GroupedJobs]]:
    """Jobs of each group of the table and kind, by the groups of a grouping; those without a key are left out.

    Parameters
    ----------
    cubes : mapping of str to DataFrame
        Collected from ``JOB_GROUPS``, by its names.
    grouping : str
        A name of ``GROUPINGS``; "none": all jobs are one group.
    by : sequence of str
        Columns of the table's own grouping.
    """
    name, key = GROUPINGS[grouping]
    cube = cubes[name]
    if key is not None:
        packed = _packed(key, pl.col("bin")).alias("packed")
        # A cube comes sorted by what it was counted by; this is another order.
        cube = cube.filter(key.is_not_null()).select(*by, packed, "num_jobs", "sum_gpu_us").sort([*by, "packed"])
    parts = cube.partition_by(by, as_dict=True, maintain_order=True) if by else {(): cube}
    for values, part in parts.items():
        numbers = part["packed"].to_numpy()
        for code, kind in enumerate(KINDS):
            first, last = np.searchsorted(numbers, np.array([code * 2**62, (code + 1) * 2**62], dtype=np.uint64))
            if first < last:
                yield {**dict(zip(by, values, strict=True)), "kind": kind}, _unpacked(part[int(first) : int(last)])


def _unpacked(part: pl.DataFrame) -> GroupedJobs:
    numbers = part["packed"].to_numpy()
    bins = (numbers & np.uint64(BINS - 1)).astype(np.int64)
    # Two numbers of one key differ in the bin at most.
    is_first = np.append(True, (numbers[1:] ^ numbers[:-1]) >= BINS)
    starts = np.flatnonzero(is_first[: len(numbers)])
    return GroupedJobs(starts, bins, part["num_jobs"].to_numpy(), part["sum_gpu_us"].to_numpy())
