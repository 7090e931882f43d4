"""How scattered the free GPUs are: several published measures over time, from the nodes that jobs ran on."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import bin_width, conform
from analysis.characterize.cubes import GROUPS, Cube, Rows
from analysis.characterize.node_states import DEVICE, NodeState, held_on_nodes, node_states, used_nodes
from analysis.characterize.registry import characterization
from analysis.characterize.running import meta_window
from analysis.metrics import US_PER_S
from analysis.schema import TIME
from analysis.trace import Trace

__all__ = ["TASKS_SCHEMA", "fragmentation_measures", "fragmentation_over_time", "typical_tasks", "unallocatable_gpus"]

#: Share of the tasks that the typical ones stand for, as in FGD.
POPULARITY: Final = 0.95
#: At most this many instants.
MAX_INSTANTS: Final = 300
BLOCKS: Final = (2, 4, 8)

#: Typical tasks: what one task needs of one node, and how likely the next task is one of this kind.
TASKS_SCHEMA: Final = {
    "share": pl.Float64(),
    "num_devices": pl.Int64(),
    "milli_per_device": pl.Int64(),
    "num_cpus": pl.Float64(),
    "gpu_types": pl.List(pl.String()),
}
MEASURES: Final = {
    "num_nodes": pl.Int64(),
    "total_gpus": pl.Float64(),
    "free_gpus": pl.Float64(),
    "partly_used_node_share": pl.Float64(),
    "scattered_share": pl.Float64(),
    "largest_free_block_gpus": pl.Float64(),
    **{f"unusable_by_{size}_gpus_share": pl.Float64() for size in BLOCKS},
    "gehr_schneider": pl.Float64(),
    "unallocatable_gpus": pl.Float64(),
    "unallocatable_share": pl.Float64(),
    "unallocatable_by_gpu_jobs_share": pl.Float64(),
}
FRAGMENTATION_SCHEMA: Final = {"time": TIME, **MEASURES, "is_capacity_known": pl.Boolean()}
FGD: Final = (
    "Q. Weng et al., Beware of Fragmentation, ATC 2023, section 3 (expected unallocatable GPUs), "
    "https://www.usenix.org/conference/atc23/presentation/weng; J. Gehr and J. Schneider, CCGRID 2009, "
    "doi:10.1109/CCGRID.2009.81 (gehr_schneider)"
)

#: What tasks need: the GPUs, CPUs and types of jobs, and over how many tasks or nodes they are spread.
NEEDS: Final = Cube(
    "needs of tasks",
    keys={
        "milli_gpus": pl.col("milli_gpus"),
        "num_tasks": pl.col("num_tasks"),
        "num_nodes": pl.col("num_nodes"),
        "num_cpus": pl.col("num_cpus"),
        "types": pl.col("allowed_gpu_types").list.join("|"),
    },
    values={"num_jobs": pl.len().cast(pl.Int64)},
    where=pl.col("milli_gpus").is_not_null(),
)
PLACED: Final = Rows(
    "jobs with their times",
    columns={
        **{name: pl.col(name) for name in ("job_id", "milli_gpus", "num_cpus", "num_tasks", "censoring", "end_us")},
        "last_us": pl.col("log_last_us"),
    },
    where=(pl.col("milli_gpus") > 0) & pl.col("has_times") & (pl.col("censoring") != "never_started"),
)


def typical_tasks(needs: pl.DataFrame, *, most_gpus: int, popularity: float = POPULARITY) -> pl.DataFrame:
    """Most frequent needs of tasks, those of CPU tasks too, down to a share of all tasks.

    A task of whole GPUs needs them on one node; one of less than a GPU needs that share of one device. A job over
    several nodes counts as a task a node.

    Parameters
    ----------
    needs : DataFrame
        milli_gpus, num_tasks, num_nodes, num_cpus of the job (null = unknown), types (joined with "|"; null or empty =
        any), num_jobs.
    most_gpus : int
        GPUs of the largest node; a task asks for no more.
    popularity : float, default 0.95
        Where to stop; the rest is taken to be like these.

    Returns
    -------
    DataFrame, the most frequent first
        As ``TASKS_SCHEMA``; share sums to 1; num_cpus 0 where unknown; gpu_types empty = any.
    """
    parts = pl.max_horizontal(pl.col("num_tasks").fill_null(1), pl.col("num_nodes").fill_null(1), 1)
    milli = pl.col("milli_gpus") // parts
    specs = (
        needs.with_columns(parts=parts, milli=milli)
        .with_columns(
            num_devices=pl.when(pl.col("milli") == 0)
            .then(0)
            .otherwise(((pl.col("milli") + DEVICE - 1) // DEVICE).clip(upper_bound=max(most_gpus, 1))),
            milli_per_device=pl.col("milli").clip(upper_bound=DEVICE),
            num_cpus=(pl.col("num_cpus") / pl.col("parts")).fill_null(0.0),
            types=pl.col("types").fill_null(""),
        )
        .group_by("num_devices", "milli_per_device", "num_cpus", "types")
        .agg(pl.col("num_jobs").sum())
        .sort(["num_jobs", "num_devices", "milli_per_device", "num_cpus", "types"], descending=[True] + [False] * 4)
        .with_columns(before=pl.col("num_jobs").cum_sum() - pl.col("num_jobs"), total=pl.col("num_jobs").sum())
        .filter(pl.col("before") < popularity * pl.col("total"))
    )
    kinds = (
        pl.when(pl.col("types") == "").then(pl.lit([], pl.List(pl.String))).otherwise(pl.col("types").str.split("|"))
    )
    return conform(
        specs.with_columns(share=pl.col("num_jobs") / pl.col("num_jobs").sum(), gpu_types=kinds), TASKS_SCHEMA
    )


def unallocatable_gpus(state: NodeState, tasks: pl.DataFrame, *, gpu_types: pl.Series) -> NDArray[np.float64]:
    """Free GPUs of each node that the next task, drawn from the typical ones, is expected to be unable to use [GPUs].

    Where a task fits the node, the devices with too little room for it count; where it does not (too few devices or
    processors, another type of GPU, or a task without GPUs), all that is free counts.

    Parameters
    ----------
    state : NodeState
        Free devices and processors.
    tasks : DataFrame
        As `typical_tasks` gives it.
    gpu_types : Series of str
        Type of each node; null suits no task that asks for types.

    Returns
    -------
    array of float64, one a node

    References
    ----------
    .. [1] Q. Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
       Descent", USENIX ATC 2023.

    Examples
    --------
    >>> import numpy as np
    >>> state = NodeState(np.array([[200, 1000, 1000, 500]]), np.array([1.0]))
    >>> task = pl.DataFrame([(1.0, 1, 465, 6.0, [])], schema=TASKS_SCHEMA, orient="row")
    >>> unallocatable_gpus(state, task, gpu_types=pl.Series(["T4"])).tolist()  # too few processors: all of 2.7
    [2.7]
    """
    free = state.free_milli
    all_free = free.sum(axis=1)
    expected = np.zeros(len(free))
    for share, devices, milli, cpus, kinds in tasks.select(list(TASKS_SCHEMA)).iter_rows():
        has_room = free >= milli
        fits = (devices > 0) & (has_room.sum(axis=1) >= devices) & (state.free_cpus >= cpus)
        if kinds:
            fits &= gpu_types.is_in(kinds).fill_null(value=False).to_numpy()
        expected += share * np.where(fits, np.where(has_room, 0, free).sum(axis=1), all_free)
    return expected / DEVICE


def fragmentation_measures(state: NodeState, tasks: pl.DataFrame, nodes: pl.DataFrame) -> dict[str, float | int | None]:
    """All measures of one state of the GPU nodes; see `fragmentation_over_time` for their meaning."""
    capacity = nodes["num_gpus"].to_numpy()
    free = state.free_milli.sum(axis=1) / DEVICE
    whole = (state.free_milli == DEVICE).sum(axis=1)
    total_free = float(free.sum())
    partly = (free > 0) & (free < capacity)
    lost = float(unallocatable_gpus(state, tasks, gpu_types=nodes["gpu_type"]).sum()) if tasks.height else None
    # Tasks without GPUs can use no free GPU at all: what they lose is taken off for GPU jobs alone.
    without = float(tasks.filter(num_devices=0)["share"].sum())
    of_gpu_jobs = (lost - without * total_free) / (1 - without) if lost is not None and without < 1 else None

    def of_free(amount: float) -> float | None:
        return amount / total_free if total_free > 0 else None

    squares = float((free**2).sum())
    return {
        "num_nodes": len(capacity),
        "total_gpus": float(capacity.sum()),
        "free_gpus": total_free,
        "partly_used_node_share": float(partly.mean()),
        "scattered_share": of_free(float(free[partly].sum())),
        "largest_free_block_gpus": float(whole.max(initial=0)),
        **{
            f"unusable_by_{size}_gpus_share": of_free(total_free - float((whole // size * size).sum()))
            for size in BLOCKS
        },
        "gehr_schneider": 1 - squares / total_free**2 if total_free > 0 else None,
        "unallocatable_gpus": lost,
        "unallocatable_share": None if lost is None else of_free(lost),
        "unallocatable_by_gpu_jobs_share": None if of_gpu_jobs is None else of_free(of_gpu_jobs),
    }


def _options(trace: Trace) -> dict[str, Any]:
    return {"nodes": trace.nodes, "attempts": trace.attempts, "window": meta_window(trace)}


@characterization(
    "fragmentation",
    inputs=(NEEDS, PLACED),
    title="Fragmentation over time",
    definition=(
        "State of the GPU nodes at regular instants, from the nodes that the log says jobs ran on. "
        "partly_used_node_share: nodes with some but not all GPUs in use. scattered_share: free GPUs on such nodes. "
        "largest_free_block_gpus: most wholly free GPUs on one node. unusable_by_k: free GPUs that jobs of k GPUs on "
        "one node cannot take. gehr_schneider: 1 - sum(f^2) / sum(f)^2 over the free GPUs f of the nodes. "
        "unallocatable_gpus: FGD's expected amount that the next typical task cannot use, tasks without GPUs counted "
        "as in FGD (they can use none); unallocatable_by_gpu_jobs: without these. A job's GPUs over several nodes "
        "are split as evenly as whole GPUs can be; shares of a device are packed by best fit. Where the log has no "
        "list of nodes, the most GPUs in use on a node at one time are its size. Free GPUs belong to no job, so a "
        "grouping changes nothing."
    ),
    source=FGD,
    needs=("start_time", "num_gpus"),
    empty_means="The log does not say on which nodes jobs ran.",
    options=_options,
    own_groups=tuple(GROUPS),
    beside=("attempts",),
    heavy=True,
)
def fragmentation_over_time(
    needs: pl.DataFrame,
    placed: pl.DataFrame,
    *,
    by: tuple[str, ...] = (),
    attempts: pl.DataFrame | None = None,
    nodes: pl.DataFrame | None = None,
    window: tuple[datetime | None, datetime | None] = (None, None),
    max_instants: int = MAX_INSTANTS,
) -> pl.DataFrame:
    """Measures of fragmentation at regular instants.

    Parameters
    ----------
    attempts : DataFrame, optional
        The attempts table, or the schedule of a replay: what ran where.
    nodes : DataFrame, optional
        The nodes table; those without GPUs are left out. Null or empty: the nodes that jobs ran on, each with the most
        GPUs that were in use on it at one time.
    window : pair of datetime, optional
        What the log covers; null = from the first start to the last end of a placed job.
    max_instants : int, default 300
        Instants at most.

    Returns
    -------
    DataFrame, a row per instant
        time; num_nodes, total_gpus (of the GPU nodes); free_gpus; the measures of the definition. Shares of free GPUs
        are null where none is free; is_capacity_known. Empty where no job has nodes.
    """
    del by
    if attempts is None or not attempts.height:
        return pl.DataFrame(schema=FRAGMENTATION_SCHEMA)
    held = held_on_nodes(_runs(placed, attempts))
    is_known = nodes is not None and nodes.height > 0
    gpu_nodes = (
        nodes.filter(pl.col("num_gpus") > 0).sort("node_id") if nodes is not None and is_known else used_nodes(held)
    )
    held = held.filter(pl.col("node_id").is_in(gpu_nodes["node_id"].implode()))
    if not held.height:
        return pl.DataFrame(schema=FRAGMENTATION_SCHEMA)
    times = _instants(held, window, max_instants)
    tasks = typical_tasks(needs, most_gpus=int(gpu_nodes["num_gpus"].to_numpy().max()))
    rows = [fragmentation_measures(state, tasks, gpu_nodes) for state in node_states(held, gpu_nodes, times)]
    instants = pl.Series("time", times).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    table = pl.DataFrame(rows, schema=MEASURES).with_columns(instants, is_capacity_known=pl.lit(value=is_known))
    return conform(table, FRAGMENTATION_SCHEMA)


def _runs(placed: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    """Runs with their nodes; one that has no end because the job still ran lasts to the end of the log."""
    columns = attempts.columns
    tries = attempts.filter(pl.col("start_time").is_not_null(), pl.col("nodes").list.len() > 0).select(
        "job_id",
        "nodes",
        begin_us=pl.col("start_time").dt.timestamp("us"),
        own_end_us=pl.col("end_time").dt.timestamp("us"),
        own_milli=(pl.col("gpus").fill_nan(None) * DEVICE).round().cast(pl.Int64) if "gpus" in columns else None,
        is_latest=pl.col("attempt") == pl.col("attempt").max().over("job_id") if "attempt" in columns else True,
    )
    still_runs = pl.col("end_us").is_null() & pl.col("censoring").is_in(("right", "both")) & pl.col("is_latest")
    until = pl.coalesce("own_end_us", pl.when(still_runs).then("last_us"), pl.when("is_latest").then("end_us"))
    return (
        tries.join(placed, on="job_id")
        .with_columns(until_us=until, milli_gpus=pl.coalesce("own_milli", "milli_gpus"))
        .filter(pl.col("until_us") > pl.col("begin_us"))
    )


def _instants(
    held: pl.DataFrame, window: tuple[datetime | None, datetime | None], max_instants: int
) -> NDArray[np.int64]:
    ends = pl.Series([window[0], window[1]], dtype=TIME).dt.timestamp("us").to_list()
    first = held["begin_us"].to_numpy().min() if ends[0] is None else ends[0]
    last = held["until_us"].to_numpy().max() if ends[1] is None else ends[1]
    step = bin_width(max((last - first) / US_PER_S, 1), max_bins=max_instants) * US_PER_S
    return np.arange(first, max(last, first + 1), step, dtype=np.int64)
