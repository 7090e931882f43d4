"""Over how many nodes GPU jobs are spread, and whether fewer would have done."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from analysis.characterize.buckets import BUCKET, conform, grouped_schema
from analysis.characterize.cubes import Cube
from analysis.characterize.registry import characterization
from analysis.characterize.weighted import with_all_gpu_jobs
from analysis.metrics import S_PER_H, US_PER_S
from analysis.trace import Trace

__all__ = ["gpus_per_node"]

#: More nodes than this are one row.
MOST_NODES: Final = 8
CONSOLIDATION_SCHEMA: Final = {
    "bucket": BUCKET,
    "num_nodes": pl.Int64(),
    "is_or_more": pl.Boolean(),
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "gpus_per_node": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
    "fewest_share": pl.Float64(),
}
#: Jobs of more than one GPU by the nodes that they ran on.
SPREADS: Final = Cube(
    "spreads",
    keys={"bucket": pl.col("bucket"), "milli_gpus": pl.col("milli_gpus"), "num_nodes": pl.col("num_nodes")},
    values={"num_jobs": pl.len().cast(pl.Int64), "sum_gpu_us": pl.col("gpu_us").sum()},
    where=(pl.col("milli_gpus") > 1000) & (pl.col("num_nodes") > 0),
)


def _options(trace: Trace) -> dict[str, Any]:
    largest = trace.nodes["num_gpus"].max()
    return {"node_gpus": int(largest) if isinstance(largest, int) and largest > 0 else None}


@characterization(
    "consolidation",
    inputs=(SPREADS,),
    title="GPUs per node of jobs of several GPUs",
    definition=(
        "Jobs of more than one GPU by the number of nodes that they ran on (of the first attempt, where there are "
        "several). fewest_share: jobs on as few nodes as the largest node allows; null where the size of the nodes "
        f"is not known. {MOST_NODES} stands for that many nodes or more. Bucket 'all': all such jobs."
    ),
    source="M. Jeon et al., ATC 2019, section 3.2 (locality), https://www.usenix.org/conference/atc19/presentation/jeon",
    needs=("num_nodes", "num_gpus"),
    empty_means="No job of the log ran on more than one GPU.",
    options=_options,
)
def gpus_per_node(spreads: pl.DataFrame, *, by: tuple[str, ...] = (), node_gpus: int | None = None) -> pl.DataFrame:
    """Nodes of jobs of several GPUs, and the GPUs that they have on each.

    Parameters
    ----------
    node_gpus : int, optional
        GPUs of the largest node; null = not known.

    Returns
    -------
    DataFrame, a row per bucket and number of nodes
        bucket, num_nodes, is_or_more, num_jobs, job_share (of the bucket's jobs), gpus_per_node (mean over jobs),
        gpu_hours, gpu_time_share (of the bucket's; null without any), fewest_share.

    Examples
    --------
    >>> jobs = pl.DataFrame({"num_gpus": [8.0, 8.0, 16.0], "num_nodes": [1, 2, 2]})
    >>> table = gpus_per_node(jobs, node_gpus=8).filter(bucket="all")
    >>> table.select("num_nodes", "num_jobs", "gpus_per_node", "fewest_share").rows()
    [(1, 1, 8.0, 1.0), (2, 2, 6.0, 0.5)]
    """
    count, nodes, gpus = pl.col("num_jobs"), pl.col("num_nodes"), pl.col("milli_gpus") / 1000
    keys, bucket = [*by, "bucket", "shown"], [*by, "bucket"]
    fewest = count.filter(nodes <= (gpus / node_gpus).ceil()).sum() / count.sum() if node_gpus else pl.lit(None)
    table = (
        with_all_gpu_jobs(spreads)
        .with_columns(shown=nodes.clip(upper_bound=MOST_NODES))
        .group_by(keys)
        .agg(
            count.sum(),
            gpus_per_node=(gpus / nodes * count).sum() / count.sum(),
            gpu_hours=pl.col("sum_gpu_us").sum() / US_PER_S / S_PER_H,
            fewest_share=fewest,
        )
        .with_columns(
            num_nodes="shown",
            is_or_more=pl.col("shown") == MOST_NODES,
            job_share=count / count.sum().over(bucket),
            total=pl.col("gpu_hours").sum().over(bucket),
        )
        .with_columns(gpu_time_share=pl.when(pl.col("total") > 0).then(pl.col("gpu_hours") / pl.col("total")))
    )
    return conform(table.sort(keys), grouped_schema(by, CONSOLIDATION_SCHEMA))
