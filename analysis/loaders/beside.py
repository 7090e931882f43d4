"""Tables beside the jobs (nodes, capacity, …) from a loader's partial columns."""

from __future__ import annotations

import polars as pl

from analysis import schema
from analysis.loaders.cells import PROBLEM
from analysis.loaders.rows import LINE

__all__ = ["finish_table", "sort_nodes"]


def finish_table(
    name: str, partial: pl.LazyFrame | pl.DataFrame, *, file: str, keys: tuple[str, ...]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Make a table beside the jobs: all columns in their dtypes, bad rows set aside, sorted.

    Parameters
    ----------
    name : str
        A name of ``schema.TABLES``.
    partial : LazyFrame or DataFrame
        Any of the table's columns, with ``_line`` and ``_problem``.
    file : str
        For ``rejects``.
    keys : tuple of str
        Columns that must not be null or unreadable and that identify a row; the table is sorted by them.

    Returns
    -------
    table, rejects : DataFrame
        Rejects of rows that are unreadable, lack a needed value (``no_<column>``) or repeat a key
        (``duplicate_id``); their text is filled by ``finish_trace``.
    """
    table = partial.lazy().collect()
    columns = [
        (pl.col(column).cast(dtype) if column in table.columns else pl.lit(None, dtype=dtype)).alias(column)
        for column, dtype in schema.TABLES[name].items()
    ]
    table = table.select(LINE, PROBLEM, *columns)
    needed = dict.fromkeys([*keys, *schema.NOT_NULL[name]])
    gaps = [pl.when(pl.col(column).is_null()).then(pl.lit(f"no_{column}")) for column in needed]
    reason = pl.coalesce(PROBLEM, *gaps).alias("reason")
    table = table.with_columns(reason).sort(*keys, *columns_to_sort(table, keys), nulls_last=True)
    again = pl.col("reason").is_null() & ~pl.struct(keys).is_first_distinct()
    table = table.with_columns(reason=pl.when(again).then(pl.lit("duplicate_id")).otherwise("reason"))
    aside = table.filter(pl.col("reason").is_not_null())
    rejects = aside.select(file=pl.lit(file), line=LINE, reason="reason", raw=pl.lit(None, dtype=pl.String))
    kept = table.filter(pl.col("reason").is_null()).select(*schema.TABLES[name])
    return (sort_nodes(kept) if name == "nodes" else kept), rejects


def columns_to_sort(table: pl.DataFrame, keys: tuple[str, ...]) -> list[str]:
    """The other columns that have an order, so that of rows with one key the same one is always kept."""
    unsortable = (pl.List, pl.Struct)
    hidden = (LINE, PROBLEM, *keys)
    return [c for c, dtype in table.schema.items() if c not in hidden and not isinstance(dtype, unsortable)]


def sort_nodes(nodes: pl.DataFrame) -> pl.DataFrame:
    """Sort nodes by id, as integers where all are integers."""
    keys = schema.job_order(nodes["node_id"]).with_row_index("row")
    return nodes[keys.sort("number", "text", nulls_last=True)["row"]]
