"""Mergeable aggregates of the jobs, from which the result tables are made, and the rows for those that must see rows.

Durations and waits are nearly always whole seconds, so that jobs counted by (size, duration) are few groups and hold
all that quantiles, distributions and fits need (in huge logs to four digits, see `prepare.EXACT_JOBS`). Parts of a log
that are counted apart and merged give the same cube as the whole log counted at once, in any order: counts and sums are
integers wherever they can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from analysis.errors import HindcastError, UnknownNameError

__all__ = ["GROUPS", "Cube", "Input", "Rows", "as_groups", "in_order", "merge"]

#: What every table can be grouped by: name of the column -> expression over the prepared jobs.
GROUPS: Final[Mapping[str, pl.Expr]] = {
    **{name: pl.col(name) for name in ("cluster", "vc", "user", "workload", "gpu_type")},
    "gpu_bucket": pl.col("bucket"),
    "status": pl.col("status"),
}
#: How a value is merged, by the first part of its name.
MERGES: Final = {"num": "sum", "sum": "sum", "min": "min", "max": "max"}


def as_groups(by: str | Sequence[str]) -> tuple[str, ...]:
    """Names of groups as a tuple without doubles.

    Raises
    ------
    UnknownNameError
        If one is not in ``GROUPS``.

    Examples
    --------
    >>> as_groups("vc"), as_groups(["vc", "user", "vc"])
    (('vc',), ('vc', 'user'))
    """
    names = (by,) if isinstance(by, str) else tuple(dict.fromkeys(by))
    for name in names:
        if name not in GROUPS:
            raise UnknownNameError(kind="grouping of the jobs", found=name, known=GROUPS)
    return names


def _group_exprs(by: Sequence[str]) -> dict[str, pl.Expr]:
    return {name: GROUPS[name].alias(name) for name in by}


@dataclass(frozen=True, eq=False)
class Cube:
    """Jobs counted by some keys.

    Parameters
    ----------
    name : str
        For messages.
    keys : mapping of str to Expr
        Key column -> expression over ``table``; a key named as a group must be that group. Null is a key like others.
    values : mapping of str to Expr
        Column -> aggregation. It is merged by the first part of its name: num_ and sum_ are added, min_ and max_ are
        taken. Sums should be integers, so that they do not depend on the order of the rows.
    where : Expr, optional
        Rows that enter.
    table : {"jobs", "changes"}
        "jobs": the prepared jobs, a row per job. "changes": a row per instant at which a job takes or gives back GPUs.
    is_fine : bool
        Whether nearly every row has a value of its one key: rows are then sorted first and counted in order, for which
        no hash table is needed.
    """

    name: str
    keys: Mapping[str, pl.Expr]
    values: Mapping[str, pl.Expr]
    where: pl.Expr | None = None
    table: str = "jobs"
    is_fine: bool = False

    def __post_init__(self) -> None:
        wrong = [name for name in self.values if name.split("_")[0] not in MERGES]
        if wrong:
            msg = f"cube {self.name!r}: values {wrong} cannot be merged; names begin with {', '.join(MERGES)}."
            raise HindcastError(msg)
        for name in set(self.keys) & set(GROUPS):
            if not self.keys[name].meta.undo_aliases().meta.eq(GROUPS[name]):
                msg = f"cube {self.name!r}: key {name!r} is not the group of that name; give it another name."
                raise HindcastError(msg)

    def exprs(self) -> list[pl.Expr]:
        """All expressions of keys and values."""
        return [*self.keys.values(), *self.values.values()]

    def columns(self, by: Sequence[str]) -> list[str]:
        """Key columns of the cube: those of the grouping, then its own."""
        return list(dict.fromkeys([*by, *self.keys]))

    def query(self, rows: pl.LazyFrame, *, by: Sequence[str] = ()) -> pl.LazyFrame:
        """Count the rows of ``table``."""
        chosen = rows if self.where is None else rows.filter(self.where)
        keys = {**_group_exprs(by), **{name: expr.alias(name) for name, expr in self.keys.items() if name not in by}}
        values = [expr.alias(name) for name, expr in self.values.items()]
        if self._is_ordered(by):
            roots = dict.fromkeys(root for expr in values for root in expr.meta.root_names())
            ordered = chosen.select(*keys.values(), *(root for root in roots if root not in keys)).sort(list(keys))
            return ordered.group_by(list(keys), maintain_order=True).agg(values)
        return chosen.group_by(list(keys.values())).agg(values) if keys else chosen.select(values)

    def _is_ordered(self, by: Sequence[str]) -> bool:
        return self.is_fine and len(self.columns(by)) == 1

    def merge(self, parts: Sequence[pl.DataFrame], *, by: Sequence[str] = ()) -> pl.DataFrame:
        """Put parts of a cube together, sorted by the keys."""
        whole = pl.concat(parts) if len(parts) > 1 else parts[0]
        keys = self.columns(by)
        values = [getattr(pl.col(name), MERGES[name.split("_")[0]])() for name in self.values]
        if not keys:
            return whole.select(values)
        if len(parts) == 1:
            return whole if self._is_ordered(by) else in_order(whole, keys)
        if len(keys) == 1:
            # Equal keys side by side need no hash table, which is the larger part of the memory.
            return whole.sort(keys).group_by(keys, maintain_order=True).agg(values)
        return whole.lazy().group_by(keys).agg(values).collect(engine="streaming").pipe(in_order, keys)


@dataclass(frozen=True, eq=False)
class Rows:
    """Some columns of the jobs, for a table that must see rows: order within a user, joins with attempts.

    Parameters
    ----------
    name : str
        For messages.
    columns : mapping of str to Expr
        Column -> expression over ``table``; as few and as small as can be.
    where : Expr, optional
        Rows that enter.
    table : {"jobs", "changes"}
        As in `Cube`.
    """

    name: str
    columns: Mapping[str, pl.Expr]
    where: pl.Expr | None = None
    table: str = "jobs"

    def exprs(self) -> list[pl.Expr]:
        """All expressions of columns."""
        return list(self.columns.values())

    def query(self, rows: pl.LazyFrame, *, by: Sequence[str] = ()) -> pl.LazyFrame:
        """Select the columns, those of the grouping first."""
        chosen = rows if self.where is None else rows.filter(self.where)
        own = {name: expr.alias(name) for name, expr in self.columns.items() if name not in by}
        return chosen.select([*_group_exprs(by).values(), *own.values()])

    def merge(self, parts: Sequence[pl.DataFrame], *, by: Sequence[str] = ()) -> pl.DataFrame:
        """Put parts together; in no order that may be relied on."""
        del by
        return pl.concat(parts) if len(parts) > 1 else parts[0]


Input = Cube | Rows


def in_order(table: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Sort the rows of a cube, nulls first; names by their place among all names, for there are few of them."""
    names = {name: pl.Enum(table[name].unique().drop_nulls().sort()) for name in keys if table[name].dtype == pl.String}
    columns = [table[name].cast(names[name]) if name in names else table[name] for name in keys]
    *codes, values = columns
    if not codes or values.dtype != pl.Float64 or not all(_is_short(column.dtype) for column in codes):
        return table.sort(columns)
    # By the last key, then stable by each before it: numbers of 16 bits are sorted in a fraction of the time.
    order = np.argsort(values.fill_null(-np.inf).to_numpy())
    for column in reversed(codes):
        code = (column.to_physical().cast(pl.Int32) + 1).fill_null(0).cast(pl.UInt16).to_numpy()[order]
        order = order[np.argsort(code, kind="stable")]
    return table[order]


def _is_short(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Enum) and len(dtype.categories) < 2**16 - 1


def merge(cube: Input, parts: Sequence[pl.DataFrame], by: Sequence[str] = ()) -> pl.DataFrame:
    """Put the parts of an input, each of another part of the log, together: equal to the input of the whole log.

    Parameters
    ----------
    cube : Cube or Rows
        What was collected.
    parts : sequence of DataFrame
        At least one.
    by : sequence of str
        The grouping with which they were collected.

    Examples
    --------
    >>> sizes = Cube("sizes", keys={"num_gpus": pl.col("num_gpus")}, values={"num_jobs": pl.len()})
    >>> first = pl.DataFrame({"num_gpus": [1, 2], "num_jobs": [5, 1]})
    >>> second = pl.DataFrame({"num_gpus": [1], "num_jobs": [2]})
    >>> merge(sizes, [first, second]).rows()
    [(1, 7), (2, 1)]
    """
    return cube.merge(parts, by=by)
