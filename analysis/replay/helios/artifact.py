"""Replay by the rules of HeliosArtifact."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import numpy as np
import polars as pl

from analysis.errors import UnknownNameError, UsageError
from analysis.frames import jobs_to_polars
from analysis.replay._jobs import US, check_predicted, gpu_jobs, predicted_us
from analysis.replay._prepare import Site, lay_out
from analysis.replay.cluster import Cluster
from analysis.replay.helios.jobs import Job, Run
from analysis.replay.helios.nodes import NODE_GPUS, Nodes
from analysis.replay.helios.srtf import run_srtf
from analysis.replay.helios.strict import run_strict
from analysis.replay.outages import refuse_outages
from analysis.replay.result import SCHEDULE, ReplayResult

__all__ = ["HELIOS", "helios_artifact"]

HeliosPolicy = Literal["fifo", "sjf", "srtf", "qssf"]
POLICIES: Final = get_args(HeliosPolicy)
#: Names of the results, and on the command line; with the policy's own name.
HELIOS: Final[dict[str, HeliosPolicy]] = {f"helios_{name}": name for name in POLICIES}
#: Of its own: the placer knows whole GPUs only, and a job of no length would never be released (but by SRTF).
FRACTIONAL_GPUS: Final = "fractional_gpus"
ZERO_DURATION: Final = "zero_duration"
#: Longest duration of a job [s], so that no instant leaves 64 bits of microseconds.
LONGEST_S: Final = 10**9


def helios_artifact(
    jobs: Any, *, cluster: Cluster, policy: HeliosPolicy = "fifo", predicted: str | None = None, use_vcs: bool = True
) -> ReplayResult:
    """Replay GPU jobs by the rules of HeliosArtifact, the simulator of the Helios paper, tick for tick.

    For comparisons with what was published; ``replay`` is the engine to use otherwise. What differs from it:

    * *Ticks.* Everything happens at whole seconds; here a fraction of a second of a submission or a duration counts as
      a whole one, so that nobody starts too early. In a tick jobs end, then others arrive, then the queue is worked
      off.
    * *Ties* of the order keep the order of submission in whole seconds, and in one second that of the rows of
      ``jobs``: unlike anywhere else here the order of rows counts. QSSF breaks ties by fewer GPUs first, and while
      nobody had been waiting in the tick before, arrivals go by GPUs alone.
    * *Placement.* All nodes have 8 GPUs. Up to 8 GPUs are on one node (best fit), 16 on two free nodes; of 20, two
      free nodes, the other 4 go to the node with the *most* free GPUs (worst fit; ours: best fit). is_single_node,
      num_tasks and GPU types are not looked at, and nothing runs faster or slower than in the log.
    * *SRTF* walks in every tick over waiting and running jobs by remaining time, waiting ones first on ties, with a
      quota of all GPUs of the VC: who fits in what is left of it is admitted, who does not is passed over, or stopped.
      The quota does not see nodes: a job for which others were stopped may find no place, and then their GPUs stay
      idle. A stop adds 7 s (1 GPU), 30 s (up to 8) or 60 s (more) to the remaining time. And every job runs a second
      longer than its duration. FIFO, SJF and QSSF block at the head and have no such second.

    ``sjf`` and ``srtf`` know true durations there; ``sjf`` may be given predictions here. ``qssf`` takes the product of
    GPUs and (predicted) duration; its estimators are not part of this.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table: job_id, submit_time, num_gpus, duration_s; vc and censoring where they are there. Rows in the
        order of the trace.
    cluster : Cluster
        Nodes of 8 GPUs. If they have VCs, each VC is on its own.
    policy : {"fifo", "sjf", "srtf", "qssf"}
        Its name there.
    predicted : str, optional
        Column of predicted durations [s] for ``sjf`` and ``qssf``. By default the true ones.
    use_vcs : bool, default True
        False: every job may use every node.

    Returns
    -------
    ReplayResult
        policy "helios_fifo" and so on, placement "helios". ``rejected`` are, beside those of ``replay``, jobs whose
        GPUs are not whole (``fractional_gpus``), and, but under SRTF, jobs of no length (``zero_duration``), which
        there are never released. wasted_gpu_s: of SRTF, the overheads and the extra second.

    Raises
    ------
    UnknownNameError
        If there is no such policy or column.
    UsageError
        If a node has another number of GPUs than 8, or ``predicted`` is given to ``srtf``.
    SchemaError, NoTimelineError
        As ``replay``.

    References
    ----------
    .. [1] Q. Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters",
       SC 2021, doi:10.1145/3458817.3476223, and its code, S-Lab-System-Group/HeliosArtifact.

    Examples
    --------
    Twelve GPUs: a free node, and four on the emptier of the others, where ours would fill the fuller one.

    >>> from datetime import datetime
    >>> t = datetime(2024, 1, 1)
    >>> log = {"job_id": ["1", "2", "3"], "submit_time": [t] * 3, "num_gpus": [4, 6, 12], "duration_s": [60] * 3}
    >>> site = Cluster.uniform(num_nodes=4, num_gpus=8)
    >>> result = helios_artifact(pl.DataFrame(log), cluster=site, policy="srtf")
    >>> result.schedule.select("nodes", "end_s").rows()
    [(['n0'], 61.0), (['n1'], 61.0), (['n2', 'n3'], 61.0)]
    """
    _check(cluster, policy, predicted)
    refuse_outages(cluster, what="helios_artifact")
    table = jobs_to_polars(jobs).with_row_index("trace_row")
    check_predicted(table, predicted)
    notes = list(cluster.notes)
    table, num_cpu_jobs = gpu_jobs(table, columns=["trace_row", *([predicted] if predicted else [])])
    site = lay_out(cluster, use_vcs=use_vcs, notes=notes)
    table = _whole(table, site, is_srtf=policy == "srtf")
    taken = table.filter(~pl.col("is_rejected"))
    taken = taken.with_columns(key=_keys(taken, policy, predicted)).sort("submit", "trace_row")
    runs, most_waiting = _run(taken, site, policy)
    counts: dict[str, float | int | None] = {
        "max_queue_length": most_waiting,
        "offered_load": offered_load(taken, cluster),
        "num_cpu_jobs_left_out": num_cpu_jobs,
        "num_censored": int((table["reason"].is_not_null() & ~table["is_rejected"]).sum()),
    }
    notes.append("By the rules of HeliosArtifact: whole seconds, nodes of 8 GPUs, no GPU types.")
    done = _outcomes(table, runs, site)
    return ReplayResult(
        schedule=done.select(pl.col(name).cast(dtype) for name, dtype in SCHEDULE.items()),
        policy=f"helios_{policy}",
        placement="helios",
        predicted=predicted,
        cluster=cluster,
        notes=tuple(notes),
        jobs=done.select(
            "submit_time", "num_gpus", "duration_s", *(("run_s", "early_run_s") if policy == "srtf" else ())
        ),
        counts=counts,
    )


def _check(cluster: Cluster, policy: str, predicted: str | None) -> None:
    if policy not in POLICIES:
        raise UnknownNameError(kind="policy of HeliosArtifact", found=policy, known=POLICIES)
    if policy == "srtf" and predicted is not None:
        msg = (
            f"helios_artifact: 'srtf' counts down true durations; found predicted={predicted!r}. Leave it out, or take "
            "replay(..., policy='srtf'), which orders by predictions."
        )
        raise UsageError(msg)
    others = cluster.nodes.filter((pl.col("num_gpus") > 0) & (pl.col("num_gpus") != NODE_GPUS))
    if others.height:
        found = ", ".join(
            f"{name} has {gpus}" for name, gpus in others.select("node_id", "num_gpus").head(3).iter_rows()
        )
        msg = (
            f"helios_artifact: the rules are for nodes of {NODE_GPUS} GPUs; found {others.height} others (first: "
            f"{found}). Take replay, which knows all sizes, or Cluster.uniform(num_nodes=…, num_gpus=8)."
        )
        raise UsageError(msg)


def _whole(table: pl.DataFrame, site: Site, *, is_srtf: bool) -> pl.DataFrame:
    """Add submission and duration in whole seconds, the VC's number, and why a job takes no part."""
    gpus, duration = pl.col("num_gpus"), pl.col("duration")
    vc = pl.lit(0)
    if site.vcs:
        names = dict(zip(site.vcs, range(len(site.vcs)), strict=True))
        vc = pl.col("vc").replace_strict(names, default=None, return_dtype=pl.Int64)
    sizes = pl.Series(np.bincount(site.vc, minlength=max(len(site.vcs), 1)))
    table = table.with_columns(
        submit=-(-pl.col("submit_time").to_physical() // US),
        # Whole microseconds first: 0.1 + 0.2 is no more than 0.3.
        duration=-(-(pl.col("duration_s").clip(upper_bound=LONGEST_S) * US).round().cast(pl.Int64) // US),
        vc_number=vc,
    )
    num_nodes = pl.lit(sizes).gather(pl.col("vc_number"))
    is_wide = (pl.col("vc_number").is_null() | ((gpus / NODE_GPUS).ceil() > num_nodes)).fill_null(value=True)
    why = (
        pl.when(gpus.is_null()).then(pl.lit("unknown_gpus"))
        .when(duration.is_null()).then(pl.lit("unknown_duration"))
        .when(gpus != gpus.round()).then(pl.lit(FRACTIONAL_GPUS))
        .when(is_wide).then(pl.lit("exceeds_capacity"))
        .when((duration == 0) & (not is_srtf)).then(pl.lit(ZERO_DURATION))
    )  # fmt: skip
    censoring = pl.col("censoring").cast(pl.String)
    bound = (
        pl.when(censoring == "left")
        .then(pl.lit("left_censored"))
        .when(censoring.is_in(["right", "both"]))
        .then(pl.lit("right_censored"))
    )
    return table.with_columns(is_rejected=why.is_not_null(), reason=pl.coalesce(why, bound))


def _keys(taken: pl.DataFrame, policy: str, predicted: str | None) -> pl.Series:
    """What orders the queue."""
    if policy not in {"sjf", "qssf"}:
        return pl.repeat(0, taken.height, dtype=pl.Int64, eager=True)
    lengths = taken["duration"] * US if predicted is None else pl.Series(predicted_us(taken, predicted))
    return lengths if policy == "sjf" else lengths * taken["num_gpus"].cast(pl.Int64)


def _run(taken: pl.DataFrame, site: Site, policy: str) -> tuple[dict[int, Run], int]:
    """Run each VC by itself; runs by trace row, nodes numbered as in the site."""
    runs: dict[int, Run] = {}
    waiting = 0
    columns = ("trace_row", "submit", "duration", "num_gpus", "key")
    for (number,), part in taken.partition_by("vc_number", as_dict=True, maintain_order=True).items():
        of_vc = np.flatnonzero(site.vc == number).tolist()
        jobs = [Job(row, at, length, int(gpus), key) for row, at, length, gpus, key in part.select(columns).iter_rows()]
        nodes = Nodes(len(of_vc))
        if policy == "srtf":
            found, most = run_srtf(jobs, nodes)
        else:
            found, most = run_strict(jobs, nodes, is_qssf=policy == "qssf")
        for run in found.values():
            run.nodes = sorted(of_vc[node] for node in run.nodes)
        runs |= found
        waiting = max(waiting, most)
    return runs, waiting


def _outcomes(table: pl.DataFrame, runs: dict[int, Run], site: Site) -> pl.DataFrame:
    """The jobs with what became of them."""
    ids = site.nodes["node_id"].to_list()
    types = site.nodes["gpu_type"].to_list()
    rows = [
        (
            row,
            run.start,
            run.end,
            [ids[n] for n in run.nodes],
            types[run.nodes[0]],
            run.num_stops,
            run.held,
            run.held_early,
        )
        for row, run in runs.items()
    ]
    names = {"trace_row": pl.UInt32(), "start": pl.Int64(), "end": pl.Int64(), "nodes": pl.List(pl.String())}
    names |= {
        "gpu_type": pl.String(),
        "num_preemptions": pl.Int64(),
        "run_s": pl.Float64(),
        "early_run_s": pl.Float64(),
    }
    found = pl.DataFrame(rows, schema=names, orient="row")
    done = table.drop("gpu_type").join(found, on="trace_row", how="left", maintain_order="left")
    origin = table["submit_time"].to_physical().min() or 0
    time = {f"{name}_time": (pl.col(name) * US).cast(SCHEDULE["start_time"]) for name in ("start", "end")}
    since = {f"{name}_s": (pl.col(name) * US - origin) / US for name in ("start", "end")}
    extra = pl.col("run_s") - pl.col("duration")
    return done.with_columns(
        **time,
        **since,
        num_preemptions=pl.col("num_preemptions").fill_null(0),
        num_restarts=pl.lit(0),
        wasted_gpu_s=(pl.col("num_gpus") * extra).fill_null(0.0),
        state=pl.when("is_rejected").then(pl.lit("rejected")).otherwise(pl.lit("finished")),
        run_s=pl.col("run_s").fill_null(0.0),
        early_run_s=pl.col("early_run_s").fill_null(0.0),
    )


def offered_load(taken: pl.DataFrame, cluster: Cluster) -> float | None:
    """GPU time submitted over GPU time there from the first to the last submission."""
    if taken.height < 2:
        return None
    window = float(np.ptp(taken["submit_time"].to_physical().to_numpy())) / US
    work = float((taken["num_gpus"] * taken["duration_s"]).sum())
    return work / (cluster.num_gpus * window) if window > 0 else None
