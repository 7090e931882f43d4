"""Synthetic traces: logs of a cluster that never was, calibrated to the published figures of one that is.

Source: none; the figures that they meet are in ``published.toml``, with where they come from. Licence: Apache-2.0, as
the program. Period and zone: the published log's first day, local time; the window follows from the number of jobs
(`synthetic_cluster.plan_cluster`). A row is a draw, and every draw is a job.

What is calibrated, for the GPU jobs: mean and median duration, mean GPUs, share of completed, cancelled and failed jobs
by count and by GPU time, GPU time per job, offered load. What is made up, after what is generally seen in such logs:
sessions, families and their names, versions, the daily and weekly rhythm, how strongly duration, width and outcome
depend on user and family, the sizes of virtual clusters. What is not modelled: requested limits, CPUs, memory,
attempts (null). The starts of GPU jobs are those of a replay on the trace's own nodes under ``fifo_skip``, so no more
GPUs are ever in use than there are; their delays are therefore longer than the published ones, which a law drawn
without the cluster would meet and the cluster would not. Delays of CPU jobs are drawn to the published figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis import metrics, schema
from analysis.errors import UsageError
from analysis.loaders.synthetic_cluster import GPUS_PER_NODE, ClusterPlan, assign_vcs, make_nodes, plan_cluster
from analysis.loaders.synthetic_draw import Marks, Submissions, draw_delays, draw_marks, draw_submissions
from analysis.loaders.synthetic_law import JobLaw, cpu_job_law, delay_law, job_law
from analysis.loaders.synthetic_published import PublishedLog, published_log
from analysis.trace import LoadReport, Trace, TraceMeta

__all__ = ["synthesize"]

Ints = npt.NDArray[np.int64]

#: Users grow with the square root of the jobs: 319 of them submitted the 117,325 jobs of Philly.
USERS_PER_ROOT_JOB: Final = 0.93
TIMEOUT_AFTER_S: Final = 86_400
TIMEOUT_SHARE: Final = 0.3
NODE_FAIL_SHARE: Final = 0.01
#: Policy that starts the GPU jobs.
STARTED_BY: Final = "fifo_skip"
#: Words of a job name, tasks from short to long.
TASKS: Final = ("debug", "test", "eval", "finetune", "train", "pretrain")
MODELS: Final = (
    *("resnet", "vgg", "mobilenet", "yolo", "unet", "rcnn", "hrnet", "pointnet"),
    *("bert", "gpt", "vit", "transformer", "lstm", "wavenet", "gan", "dlrm"),
)
DATASETS: Final = ("imagenet", "coco", "wiki", "voc", "kitti", "squad", "celeb", "cifar", "face", "ads")
#: How far the word says how long a family runs; the rest is chance.
TASK_NOISE: Final = 0.5
RAW_STATUSES: Final[Mapping[str, Mapping[str, str]]] = {
    "philly": {"completed": "Pass", "cancelled": "Killed", "failed": "Failed"},
}


@dataclass(frozen=True)
class _Drawn:
    """Jobs of one kind (with or without GPUs) before they are a table; a replay gives GPU jobs their delay."""

    submissions: Submissions
    marks: Marks
    delay_s: Ints | None


def synthesize(*, like: str = "venus", num_jobs: int = 100_000, seed: int = 0, cpu_jobs: bool = False) -> Trace:
    """Draw a synthetic trace that looks like a published log.

    Parameters
    ----------
    like : {"venus", "earth", "saturn", "uranus", "helios", "philly", "seren", "kalos"}
        The published log; "helios" is its four clusters as one.
    num_jobs : int, default 100,000
        Rows of the jobs table.
    seed : int, default 0
        Same arguments, same bytes.
    cpu_jobs : bool, default False
        Whether jobs without GPUs are among them, in the published proportion.

    Returns
    -------
    Trace
        Jobs, and nodes of eight GPUs with their virtual cluster; no job is wider than its virtual cluster.

    Raises
    ------
    UnknownNameError
        If there are no figures for ``like``.
    UsageError
        If ``num_jobs`` is below 1, ``seed`` is negative, or jobs without GPUs are asked of a log that has none.

    Examples
    --------
    >>> trace = synthesize(like="philly", num_jobs=200, seed=1)
    >>> trace.jobs.height, trace.meta.name, trace.nodes["num_gpus"].unique().to_list()
    (200, 'synthetic-philly', [8])
    """
    log = published_log(like)
    _check(log, num_jobs=num_jobs, seed=seed, cpu_jobs=cpu_jobs)
    rng = np.random.default_rng(seed)
    num_cpu = round(num_jobs * log.num_cpu_jobs / log.num_jobs) if cpu_jobs else 0
    num_gpu = max(num_jobs - num_cpu, 1)
    plan = plan_cluster(log, num_gpu_jobs=num_gpu)
    drawn = [_draw(log, job_law(like, max_gpus=plan.max_gpus), plan=plan, num_jobs=num_gpu, rng=rng)]
    if num_jobs > num_gpu:
        drawn.append(_draw(log, cpu_job_law(like), plan=plan, num_jobs=num_jobs - num_gpu, rng=rng))
    jobs, nodes = _tables(log, plan, drawn, rng)
    return Trace(jobs, meta=_meta(log, plan, num_jobs=num_jobs, seed=seed), tables={"nodes": nodes})


def _check(log: PublishedLog, *, num_jobs: int, seed: int, cpu_jobs: bool) -> None:
    wrong = []
    if num_jobs < 1:
        wrong.append(f"num_jobs is {num_jobs}; it must be at least 1")
    if seed < 0:
        wrong.append(f"seed is {seed}; it must be 0 or more")
    if cpu_jobs and log.cpu is None:
        wrong.append(f"{log.name!r} has no jobs without GPUs; leave cpu_jobs out")
    if wrong:
        raise UsageError("synthesize: " + "; ".join(wrong) + ".")


def _draw(log: PublishedLog, law: JobLaw, *, plan: ClusterPlan, num_jobs: int, rng: np.random.Generator) -> _Drawn:
    num_users = max(1, round(USERS_PER_ROOT_JOB * num_jobs**0.5))
    submissions = draw_submissions(
        num_jobs, num_users=num_users, start=log.start, window_days=plan.window_days, rng=rng
    )
    marks = draw_marks(submissions, law, rng=rng)
    if law.gpus[-1] or log.cpu is None:
        return _Drawn(submissions, marks, delay_s=None)
    waits = delay_law(mean_s=log.cpu.mean_queueing_delay_s, median_s=log.cpu.median_queueing_delay_s)
    return _Drawn(submissions, marks, draw_delays(num_jobs, waits, rng=rng))


def _tables(
    log: PublishedLog, plan: ClusterPlan, drawn: list[_Drawn], rng: np.random.Generator
) -> tuple[pl.DataFrame, pl.DataFrame]:
    user = np.concatenate([part.submissions.user for part in drawn])
    num_gpus = np.concatenate([part.marks.num_gpus for part in drawn])
    duration = np.concatenate([part.marks.duration_s for part in drawn])
    vc, nodes_of = assign_vcs(plan, user=user, num_gpus=num_gpus, gpu_s=num_gpus * duration.astype(float), rng=rng)
    vc_names = [f"vc{number:03d}" for number in range(1, len(nodes_of) + 1)]
    frames = pl.concat([_frame(part, log, rng) for part in drawn])
    frames = frames.with_columns(vc=pl.Series(vc_names)[vc])
    nodes = make_nodes(nodes_of, gpu_type=log.gpu_type, vc_names=vc_names)
    return _started(_finish(frames, log), nodes), nodes


def _frame(part: _Drawn, log: PublishedLog, rng: np.random.Generator) -> pl.DataFrame:
    submissions, marks = part.submissions, part.marks
    stem, task = _family_words(marks.family_length, rng)
    has_gpus = bool(marks.num_gpus[0])
    names = pl.DataFrame(
        {
            "stem": stem[submissions.family],
            "run": submissions.run,
            "version": submissions.version_number,
        }
    ).select(pl.format("{}-{}_v{}", "stem", "run", "version"))
    return pl.DataFrame(
        {
            "user": pl.Series([f"u{number:04d}" for number in range(1, int(submissions.user.max()) + 2)])[
                submissions.user
            ],
            "job_name": names.to_series(),
            "workload": task[submissions.family],
            "second": submissions.second,
            "duration": marks.duration_s,
            "num_gpus": marks.num_gpus.astype(np.float64),
            "status": _statuses(marks, log, rng),
        }
    ).with_columns(
        delay=pl.lit(None, dtype=pl.Int64) if part.delay_s is None else pl.Series(part.delay_s),
        num_nodes=((pl.col("num_gpus") / GPUS_PER_NODE).ceil().clip(lower_bound=1)).cast(pl.Int64),
        gpu_type=pl.lit(log.gpu_type if has_gpus else None, dtype=pl.String),
    )


def _family_words(family_length: npt.NDArray[np.float64], rng: np.random.Generator) -> tuple[pl.Series, pl.Series]:
    """Name without run and version, and task, of each family; longer families tend to have longer tasks."""
    count = len(family_length)
    score = family_length + TASK_NOISE * rng.standard_normal(count)
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(score, kind="stable")] = np.arange(count)
    task = pl.Series(TASKS)[rank * len(TASKS) // count]
    model = pl.Series(MODELS)[rng.integers(len(MODELS), size=count)]
    dataset = pl.Series(DATASETS)[rng.integers(len(DATASETS), size=count)]
    words = pl.DataFrame({"model": model, "task": task, "dataset": dataset})
    return words.select(pl.format("{}-{}-{}", "model", "task", "dataset")).to_series(), task


def _statuses(marks: Marks, log: PublishedLog, rng: np.random.Generator) -> pl.Series:
    """Name the statuses; a few of the failed are timeouts (long ones) and node failures where the source has such."""
    names = ["completed", "cancelled", "failed", "timeout", "node_fail"]
    status, chance = marks.status.copy(), rng.random(len(marks.status))
    if log.name not in RAW_STATUSES:
        failed = marks.status == 2
        status[failed & (chance < NODE_FAIL_SHARE)] = names.index("node_fail")
        status[failed & (chance > 1 - TIMEOUT_SHARE) & (marks.duration_s > TIMEOUT_AFTER_S)] = names.index("timeout")
    return pl.Series(names, dtype=pl.Enum(schema.STATUSES))[status]


def _finish(frame: pl.DataFrame, log: PublishedLog) -> pl.DataFrame:
    """Local seconds to UTC, ids by submission, and all columns of the jobs table."""
    raw = RAW_STATUSES.get(log.name)
    status = pl.col("status").cast(pl.String)
    instants = frame.with_columns(submit_time=_utc(pl.col("second"), log))
    ordered = instants.sort("submit_time", maintain_order=True).with_row_index("row", offset=1)
    known = ordered.select(
        "user",
        "vc",
        "job_name",
        "workload",
        "submit_time",
        "num_gpus",
        "gpu_type",
        "num_nodes",
        "status",
        job_id=pl.col("row").cast(pl.String),
        cluster=pl.lit(log.name),
        start_time=pl.col("submit_time") + pl.duration(seconds="delay"),
        end_time=pl.col("submit_time") + pl.duration(seconds=pl.col("delay") + pl.col("duration")),
        num_tasks=pl.lit(1, dtype=pl.Int64),
        status_raw=status.replace_strict(dict(raw)) if raw else status.str.to_uppercase(),
        duration_s=pl.col("duration").cast(pl.Float64),
        num_attempts=pl.lit(1, dtype=pl.Int64),
        censoring=pl.lit("none", dtype=schema.CENSORING),
        flags=pl.lit([], dtype=schema.FLAG_LIST),
    )
    missing = {name: pl.lit(None, dtype=dtype) for name, dtype in schema.JOBS.items() if name not in known.columns}
    return known.with_columns(**missing).select(pl.col(name).cast(dtype) for name, dtype in schema.JOBS.items())


def _started(jobs: pl.DataFrame, nodes: pl.DataFrame) -> pl.DataFrame:
    """Give GPU jobs the starts that a replay on the trace's own nodes gives them."""
    # Imported here: who loads a log shall not wait for the engine.
    from analysis.replay import Cluster, replay

    schedule = replay(jobs, cluster=Cluster(nodes), policy=STARTED_BY).schedule
    ran = schedule.select("job_id", replayed_start="start_time", replayed_end="end_time")
    columns = list(jobs.columns)
    jobs = jobs.join(ran, on="job_id", how="left", maintain_order="left").with_columns(
        start_time=pl.coalesce("start_time", "replayed_start"), end_time=pl.coalesce("end_time", "replayed_end")
    )
    return jobs.with_columns(metrics.queueing_delay_s()).select(columns)


def _utc(second: pl.Expr, log: PublishedLog) -> pl.Expr:
    """Local seconds from the first day as UTC; an hour that the clock skips counts from its beginning."""
    local = (pl.lit(log.start).cast(pl.Datetime("us")) + pl.duration(seconds=second)).alias("submit_time")
    zoned = local.dt.replace_time_zone(log.time_zone, ambiguous="earliest", non_existent="null")
    later = (local + pl.duration(hours=1)).dt.replace_time_zone(
        log.time_zone, ambiguous="earliest", non_existent="null"
    )
    return pl.coalesce(zoned, later).dt.convert_time_zone("UTC")


def _meta(log: PublishedLog, plan: ClusterPlan, *, num_jobs: int, seed: int) -> TraceMeta:
    first = datetime.combine(log.start, datetime.min.time())
    window = (first, first + timedelta(days=plan.window_days))
    begin, end = pl.Series(window).dt.replace_time_zone(log.time_zone, ambiguous="earliest").to_list()
    scale = plan.num_nodes * GPUS_PER_NODE / log.num_gpus
    return TraceMeta(
        name=f"synthetic-{log.name}",
        source=f"synthetic: drawn by hindcast (seed {seed}), calibrated to the published figures of {log.name}",
        licence="Apache-2.0",
        citation=f"Calibrated to: {log.citation}",
        time_zone=log.time_zone,
        time_zone_certainty="declared",
        clock="absolute",
        window=(begin.isoformat(), end.isoformat()),
        coverage="all jobs of the synthetic cluster that were submitted in the window",
        load_report=LoadReport(
            rows_in=num_jobs,
            rows_used=num_jobs,
            num_jobs=num_jobs,
            notes=[
                "No log was read: a row is a draw.",
                f"The cluster has {plan.num_nodes} nodes of {GPUS_PER_NODE} GPUs, {scale:.0%} of the published GPUs.",
                f"GPU jobs start as a replay under {STARTED_BY} on these nodes starts them: no more GPUs are in use "
                "than there are, and delays are longer than the published ones.",
            ],
        ),
    )
