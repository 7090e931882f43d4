"""Numbers of Slurm's database as MIT Supercloud publishes them: states with flag bits, TRES by id, memory sentinels."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.slurm.grammar import MIB_PER_GIB, gres_gpus

__all__ = ["with_resources", "with_states"]

#: The low byte of a state.
BASES: Final = {
    0: "pending",
    1: "running",
    2: "suspended",
    3: "completed",
    4: "cancelled",
    5: "failed",
    6: "timeout",
    7: "node_fail",
    8: "preempted",
    9: "failed",  # boot failed
    10: "timeout",  # deadline
    11: "failed",  # out of memory
}
BASE_MASK: Final = 0xFF
#: Flag bits that say more than a base of 0 does: launch failed, requeued (three kinds), revoked.
FLAGS: Final = {
    1 << 8: "failed",
    1 << 10: "preempted",
    1 << 11: "preempted",
    1 << 12: "preempted",
    1 << 19: "cancelled",
}
#: GPU resources of this site.
GPU_IDS: Final = {1001: "tesla", 1002: "volta"}
CPU, MEMORY, NODE = 1, 2, 4
PER_CPU: Final = 1 << 63


def with_states(table: pl.DataFrame) -> pl.DataFrame:
    """Add ``status`` and ``status_raw`` of the text ``state``, which should be a whole number."""
    state = pl.col("state").str.strip_suffix(".0").cast(pl.Int64, strict=False)
    base = (state & BASE_MASK).replace_strict(BASES, default="unknown", return_dtype=pl.String)
    for bit, status in FLAGS.items():
        base = pl.when((state & BASE_MASK == 0) & (state & bit != 0)).then(pl.lit(status)).otherwise(base)
    return table.with_columns(
        status=pl.when(pl.col("state").is_not_null()).then(base).cast(schema.STATUS), status_raw="state"
    )


def _amount(tres: str, number: int) -> pl.Expr:
    return pl.col(tres).str.extract(rf"(?:^|,){number}=([0-9]+)(?:,|$)", 1).cast(pl.Float64, strict=False)


def _gpus(tres: str) -> tuple[pl.Expr, pl.Expr]:
    """GPUs of a TRES text (null without text), and their type."""
    counts = {name: _amount(tres, number) for number, name in GPU_IDS.items()}
    total = pl.when(pl.col(tres).is_not_null()).then(pl.sum_horizontal(counts.values()))
    kinds = pl.concat_list(pl.when(count > 0).then(pl.lit(name)) for name, count in counts.items()).list.drop_nulls()
    one = pl.when(kinds.list.len() == 1).then(kinds.list.first())
    return total, pl.when(kinds.list.len() > 1).then(pl.lit("mixed")).otherwise(one)


def _memory_gib() -> pl.Expr:
    """What was asked for; per processor if the highest bit is set, not known where a float has rounded it away."""
    whole = pl.col("mem_req").cast(pl.UInt64, strict=False)
    is_per_cpu = whole >= PER_CPU
    per_cpu = pl.when(is_per_cpu).then(whole - pl.lit(PER_CPU, dtype=pl.UInt64)).cast(pl.Float64) * pl.col("cpus_req")
    rounded = pl.col("mem_req").cast(pl.Float64, strict=False)
    plain = pl.when(rounded < float(PER_CPU) / 2).then(rounded)
    mib = pl.when(is_per_cpu.fill_null(value=False)).then(per_cpu).otherwise(plain)
    return pl.when(mib > 0).then(mib) / MIB_PER_GIB


def with_resources(table: pl.DataFrame) -> pl.DataFrame:
    """Add GPUs, their type, processors, nodes and memory: what was allocated, else what was asked for."""
    alloc, alloc_type = _gpus("tres_alloc")
    asked, asked_type = _gpus("tres_req")
    by_gres = {name: pl.struct(gres_gpus(pl.col(name))) for name in ("gres_alloc", "gres_req")}

    def gres(name: str, what: str) -> pl.Expr:
        return by_gres[name].struct.field(what)

    node = pl.coalesce(pl.when(pl.col("nodes_alloc") > 0).then("nodes_alloc"), _amount("tres_alloc", NODE))
    return table.with_columns(
        num_gpus=pl.coalesce(alloc, gres("gres_alloc", "gpus"), asked, gres("gres_req", "gpus")),
        gpu_type=pl.coalesce(alloc_type, gres("gres_alloc", "gpu_type"), asked_type, gres("gres_req", "gpu_type")),
        num_cpus=pl.coalesce(_amount("tres_alloc", CPU), _amount("tres_req", CPU), "cpus_req"),
        num_nodes=pl.coalesce(node, _amount("tres_req", NODE)).cast(pl.Int64, strict=False),
        mem_gib=pl.coalesce(
            _amount("tres_alloc", MEMORY) / MIB_PER_GIB, _amount("tres_req", MEMORY) / MIB_PER_GIB, _memory_gib()
        ),
        job_name=pl.lit(None, dtype=pl.String),
        allowed=pl.lit(None, dtype=pl.String),
    ).drop("tres_alloc", "tres_req", "gres_alloc", "gres_req", "mem_req", "cpus_req", "nodes_alloc")
