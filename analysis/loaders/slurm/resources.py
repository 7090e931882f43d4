"""GPUs, processors, nodes and memory of a line: what was allocated, else what was requested."""

from __future__ import annotations

import polars as pl

from analysis.loaders.slurm import grammar
from analysis.loaders.slurm.fields import once, said
from analysis.loaders.slurm.grammar import MIB_PER_GIB

__all__ = ["with_resources"]


def _parse_tres(frame: pl.DataFrame, name: str) -> pl.Series:
    """Everything that a TRES or GRES field says, as a struct; each distinct text is read once."""
    text = said(pl.col("x"))
    of_gpus = grammar.tres_gpus(text) if name.endswith("TRES") else grammar.gres_gpus(text)
    amounts = {what: grammar.tres_amount(text, what) for what in ("cpu", "mem", "node")}
    columns = {expression.meta.output_name(): expression for expression in of_gpus}
    columns["gpu_type"] = columns["gpu_type"].cast(pl.Categorical)
    columns["gpu_types"] = columns["gpu_types"].list.join(",").cast(pl.Categorical)
    return once(frame, name, **columns, **amounts, has_text=text.is_not_null()).to_struct(name)


def with_resources(table: pl.DataFrame, frame: pl.DataFrame) -> tuple[pl.DataFrame, bool]:
    """Add them to records.

    Parameters
    ----------
    table : DataFrame
        Typed columns so far, among them the counts ``alloc_nodes``, ``req_nodes``, ``alloc_cpus``, ``req_cpus`` and
        the text ``req_mem``, which are dropped.
    frame : DataFrame, same length and order
        The lines' fields as text.

    Returns
    -------
    tuple of (DataFrame, bool)
        With ``num_gpus``, ``gpu_type``, ``allowed`` and ``gpu_types`` (texts with commas), ``num_nodes``,
        ``num_cpus``, ``mem_gib``; and whether any line speaks of GPUs at all.
    """
    names = ("AllocTRES", "AllocGRES", "ReqTRES", "ReqGRES")
    parsed = pl.DataFrame([_parse_tres(frame, name) for name in names])
    says_gpus = parsed.select(pl.any_horizontal(pl.col(name).struct.field("names_gpus") for name in names)).to_series()

    def of(name: str, what: str) -> pl.Expr:
        return pl.col(name).struct.field(what)

    whole = pl.concat([table, parsed], how="horizontal").with_columns(
        num_nodes=pl.coalesce("alloc_nodes", of("AllocTRES", "node"), "req_nodes", of("ReqTRES", "node")),
        num_cpus=pl.coalesce("alloc_cpus", of("AllocTRES", "cpu"), "req_cpus", of("ReqTRES", "cpu")),
    )
    # An old request is per node; everything that was allocated, and a requested TRES, is a total.
    gpus = [of(name, "gpus") for name in names[:3]] + [of("ReqGRES", "gpus") * pl.col("num_nodes").fill_null(1)]
    none = pl.when(pl.any_horizontal(of(name, "has_text") for name in names) & ~pl.lit(says_gpus)).then(0.0)
    mem = grammar.memory_mib(pl.col("req_mem"), num_cpus=pl.col("num_cpus"), num_nodes=pl.col("num_nodes"))
    whole = whole.with_columns(
        num_gpus=pl.coalesce(*gpus, none),
        gpu_type=pl.coalesce(of(name, "gpu_type") for name in names),
        allowed=pl.coalesce(of("ReqTRES", "gpu_types"), of("ReqGRES", "gpu_types")),
        gpu_types=pl.coalesce(of("AllocTRES", "gpu_types"), of("AllocGRES", "gpu_types")),
        mem_gib=pl.coalesce(of("AllocTRES", "mem"), of("ReqTRES", "mem"), mem) / MIB_PER_GIB,
        num_nodes=pl.col("num_nodes").cast(pl.Int64, strict=False),
    )
    whole = whole.drop(*names, "alloc_nodes", "req_nodes", "alloc_cpus", "req_cpus", "req_mem")
    return whole, bool(says_gpus.any())
