"""How much faster one type of GPU is than another, and several GPUs than one, where it was measured."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis.characterize.buckets import conform
from analysis.errors import SchemaError, UnknownNameError

__all__ = ["scaling_efficiency", "speed_ratios"]

NEEDED: Final = ("job_class", "gpu_type", "num_gpus", "colocated_with", "is_consolidated", "steps_per_s")
RATIOS_SCHEMA: Final = {
    "gpu_type": pl.String(),
    "num_gpus": pl.Int64(),
    "is_consolidated": pl.Boolean(),
    "num_classes": pl.Int64(),
    "geometric_mean_ratio": pl.Float64(),
    "min_ratio": pl.Float64(),
    "slowest_class": pl.String(),
    "max_ratio": pl.Float64(),
    "fastest_class": pl.String(),
}
SCALING_SCHEMA: Final = {
    "gpu_type": pl.String(),
    "num_gpus": pl.Int64(),
    "is_consolidated": pl.Boolean(),
    "num_classes": pl.Int64(),
    "geometric_mean_efficiency": pl.Float64(),
    "min_efficiency": pl.Float64(),
    "max_efficiency": pl.Float64(),
}


def _alone(throughputs: pl.DataFrame) -> pl.DataFrame:
    """Rates of jobs that have their GPUs to themselves and run at all."""
    if missing := [name for name in NEEDED if name not in throughputs.columns]:
        raise SchemaError(table="throughputs", violations=[f"column {name!r} is missing" for name in missing])
    return throughputs.filter(pl.col("colocated_with").is_null() & (pl.col("steps_per_s") > 0)).drop("colocated_with")


def speed_ratios(throughputs: pl.DataFrame, *, reference: str = "V100") -> pl.DataFrame:
    """Speed of each type of GPU relative to one of them, over the job classes that were measured on both [ratio].

    Parameters
    ----------
    throughputs : DataFrame
        As `analysis.loaders.gavel_throughput.read_throughputs` gives it; rows of GPUs shared with another job and of
        classes that do not run (0 steps/s) are left out.
    reference : str, default "V100"
        The type that counts as 1.

    Returns
    -------
    DataFrame, a row per other type, number of GPUs, and consolidated or not
        gpu_type, num_gpus, is_consolidated, num_classes, geometric_mean_ratio, min_ratio and slowest_class, max_ratio
        and fastest_class.

    Raises
    ------
    SchemaError
        If a column is missing.
    UnknownNameError
        If the reference was not measured.

    References
    ----------
    .. [1] D. Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI
       2020, figure 1.

    Examples
    --------
    >>> rows = [("A3C", "K80", 1, None, True, 2.0), ("A3C", "V100", 1, None, True, 4.0)]
    >>> table = pl.DataFrame(rows, schema=list(NEEDED), orient="row")
    >>> speed_ratios(table).select("gpu_type", "num_classes", "geometric_mean_ratio").rows()
    [('K80', 1, 0.5)]
    """
    alone = _alone(throughputs)
    types = alone["gpu_type"].unique().to_list()
    if reference not in types:
        raise UnknownNameError(kind="measured GPU type", found=reference, known=types)
    same = ["job_class", "num_gpus", "is_consolidated"]
    base = alone.filter(gpu_type=reference).select(*same, base="steps_per_s")
    ratios = alone.filter(pl.col("gpu_type") != reference).join(base, on=same)
    ratio = pl.col("ratio")
    table = (
        ratios.with_columns(ratio=pl.col("steps_per_s") / pl.col("base"))
        .sort("ratio", "job_class")
        .group_by("gpu_type", "num_gpus", "is_consolidated", maintain_order=True)
        .agg(
            num_classes=pl.len(),
            geometric_mean_ratio=ratio.log().mean().exp(),
            min_ratio=ratio.first(),
            slowest_class=pl.col("job_class").first(),
            max_ratio=ratio.last(),
            fastest_class=pl.col("job_class").last(),
        )
    )
    return conform(table.sort("gpu_type", "num_gpus", "is_consolidated"), RATIOS_SCHEMA)


def scaling_efficiency(throughputs: pl.DataFrame) -> pl.DataFrame:
    """Speed on several GPUs over that many times the speed on one, by type, consolidated or not [ratio].

    Parameters
    ----------
    throughputs : DataFrame
        As in `speed_ratios`.

    Returns
    -------
    DataFrame, a row per type, number of GPUs above one, and consolidated or not
        gpu_type, num_gpus, is_consolidated, num_classes (measured on one GPU too), geometric_mean_efficiency,
        min_efficiency, max_efficiency; 1 = as fast as that many GPUs can be.

    Raises
    ------
    SchemaError
        If a column is missing.
    """
    alone = _alone(throughputs)
    same = ["job_class", "gpu_type", "is_consolidated"]
    one = alone.filter(num_gpus=1).select(*same, one="steps_per_s")
    several = alone.filter(pl.col("num_gpus") > 1).join(one, on=same)
    efficiency = pl.col("steps_per_s") / pl.col("one") / pl.col("num_gpus")
    table = several.group_by("gpu_type", "num_gpus", "is_consolidated").agg(
        num_classes=pl.len(),
        geometric_mean_efficiency=efficiency.sort().log().mean().exp(),
        min_efficiency=efficiency.min(),
        max_efficiency=efficiency.max(),
    )
    return conform(table.sort("gpu_type", "num_gpus", "is_consolidated"), SCALING_SCHEMA)
