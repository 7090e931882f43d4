"""Who shares a GPU with whom: overlapping uses of one device of one node."""

from __future__ import annotations

import polars as pl

from analysis.errors import SchemaError

__all__ = ["sharing_pairs"]

NEEDED = ("entity", "node_id", "device", "start_time", "end_time")


def sharing_pairs(uses: pl.DataFrame) -> pl.DataFrame:
    """Pairs that used one device of one node at the same time.

    Parameters
    ----------
    uses : DataFrame, one row per use of a device
        ``entity`` (job, instance or worker), ``node_id``, ``device``, ``start_time``, ``end_time`` (instants or numbers
        of one clock; the end is excluded, so that one ending as another begins does not share). A use of no length
        shares with nobody; a null end is still in use, null elsewhere is not known, so no pair.

    Returns
    -------
    DataFrame
        ``node_id``, ``device``, ``first`` and ``second`` (the entities, the smaller first), ``start_time`` and
        ``end_time`` of the overlap (null: both still in use); one row per pair of uses, sorted.

    Raises
    ------
    SchemaError
        If a column is missing.

    Examples
    --------
    >>> uses = pl.DataFrame(
    ...     {"entity": ["a", "b"], "node_id": "x", "device": 0, "start_time": [0, 5], "end_time": [10, 15]}
    ... )
    >>> sharing_pairs(uses).select("first", "second", "start_time", "end_time").row(0)
    ('a', 'b', 5, 10)
    """
    if missing := [name for name in NEEDED if name not in uses.columns]:
        violations = [f"column {name!r} is missing" for name in missing]
        raise SchemaError(table="uses of devices", violations=violations)
    has_length = (pl.col("start_time") < pl.col("end_time")).fill_null(value=True)
    known = uses.select(NEEDED).drop_nulls(NEEDED[:-1]).filter(has_length)
    both = known.join(known, on=("node_id", "device"), suffix="_other").filter(
        pl.col("entity") < pl.col("entity_other"),
        (pl.col("start_time") < pl.col("end_time_other")).fill_null(value=True),
        (pl.col("start_time_other") < pl.col("end_time")).fill_null(value=True),
    )
    return both.select(
        "node_id",
        "device",
        first="entity",
        second="entity_other",
        start_time=pl.max_horizontal("start_time", "start_time_other"),
        end_time=pl.min_horizontal("end_time", "end_time_other"),
    ).sort("node_id", "device", "first", "second", "start_time")
