"""Small replays drawn by hypothesis, and what both engines say about them."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import polars as pl
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from analysis import replay as replaying
from analysis.replay.speeds import is_same_type
from tests.jobs import make_jobs
from tests.reference_engine import Job, Node, Outcome, Run, reference_replay
from tests.reference_events import Outage

#: The column of predictions of every case.
PREDICTED = "predicted_duration_s"
START = datetime(2024, 3, 1, tzinfo=UTC)
TIME = pl.Datetime("us", "UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def hypothesis_settings(num_examples: int) -> settings:
    """The same examples on every machine; more of them by HINDCAST_EXAMPLES, others by HINDCAST_RANDOM."""
    return settings(
        max_examples=int(os.environ.get("HINDCAST_EXAMPLES", num_examples)),
        derandomize="HINDCAST_RANDOM" not in os.environ,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


small = hypothesis_settings(25)
few = hypothesis_settings(15)


class Case(NamedTuple):
    jobs: pl.DataFrame
    cluster: replaying.Cluster


# --- scenarios -------------------------------------------------------------------------------------------------------

#: Two measured types, one with a variant's name, one that nobody measured, and hardware not described.
TYPES = ("V100", "K80", "V100M32", "G2", None)
#: Ratios that are not exact, and one that is.
SPEED = {"V100": 1.0, "K80": 0.297, "G2": 3.0}
DURATIONS = st.sampled_from([0, 0, 1, 1, 2, 3, 5, 7, 10, 0.1, 0.3, 2.5, 1e-6, 7200])


def job_rows(*, gpus: st.SearchStrategy[Any], tasks: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """One job, with the seconds from the start under ``at``."""
    seconds = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 6, 9, 13, 20, 0.3])
    return st.fixed_dictionaries(
        {
            "at": seconds,
            "num_gpus": gpus,
            "duration_s": DURATIONS,
            "predicted_duration_s": DURATIONS,
            "num_tasks": tasks,
            "vc": st.sampled_from(["a", "b", "a", "b", "c", None]),
            "gpu_type": st.sampled_from(TYPES),
            "allowed_gpu_types": st.sampled_from([None, None, None, [], ["V100"], ["K80", "G2"], ["v100-m32"], ["T4"]]),
            "is_single_node": st.sampled_from([None, None, None, True, False]),
            "deadline_s": st.sampled_from([None, None, 0, 3, 3, 10, 50]),
            "priority": st.sampled_from([None, None, 0.0, 1.0, 2.5, -1.0]),
        }
    )


@st.composite
def cases(
    draw: st.DrawFn, *, has_fractions: bool = False, min_jobs: int = 1, max_jobs: int = 12, max_nodes: int = 6
) -> Case:
    """Few jobs on few nodes: equal times, zero lengths, VCs, mixed hardware, gangs, wrong predictions."""
    if has_fractions:
        gpus = st.sampled_from([0.25, 0.5, 0.5, 0.6, 0.4, 0.1, 1, 1, 2, 3, 1.5, 2.5, 6])
        tasks = st.sampled_from([None, None, 1, 2])
    else:
        gpus, tasks = st.sampled_from([1, 1, 1, 2, 2, 3, 4, 4, 5, 6, 8, 9, 12, 16]), st.just(None)
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True))
    sizes = st.sampled_from([1, 2, 3, 4] if has_fractions else [1, 2, 4, 4, 8])
    node = st.tuples(sizes, st.sampled_from(types), st.sampled_from(["a", "b"]))
    nodes = draw(st.lists(node, min_size=1, max_size=max_nodes))
    has_vcs = draw(st.booleans())
    texts = draw(st.booleans())
    rows = draw(st.lists(job_rows(gpus=gpus, tasks=tasks), min_size=min_jobs, max_size=max_jobs))
    order = draw(st.permutations(range(len(rows))))
    named = [
        {"job_id": f"j{i}" if texts else str(i), "submit_time": START + timedelta(seconds=row.pop("at"))} | row
        for i, row in zip(order, rows, strict=True)
    ]
    return Case(jobs=jobs_table(named), cluster=cluster_of(nodes, has_vcs=has_vcs))


def crowd(seed: int, *, num_jobs: int = 60) -> Case:
    """A drawn case with a long queue, where jobs of few sizes and lengths get into each other's way.

    Every third one has fractions, every second one VCs, every fifth one hardware of one kind.
    """
    rng = random.Random(seed)
    types = rng.sample(TYPES, 1 if seed % 5 == 0 else rng.randint(2, 3))
    nodes = [(rng.choice([2, 3, 4, 8]), rng.choice(types), rng.choice("ab")) for _ in range(rng.randint(2, 6))]
    if seed % 3 == 0:
        gpus, tasks = [0.2, 0.25, 0.3, 0.4, 0.5, 0.5, 0.6, 0.7, 1, 1, 1.5, 2, 2.5, 3, 4], [None, None, None, 1, 2]
    else:
        gpus, tasks = [1, 1, 1, 1, 2, 2, 3, 4, 4, 6, 8, 10], [None]
    lengths = rng.sample([0, 1, 1, 2, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 0.1, 2.5], 6)
    rows = [
        {
            "job_id": str(i),
            "submit_time": START + timedelta(seconds=rng.randint(0, 40)),
            "num_gpus": float(rng.choice(gpus)),
            "num_tasks": rng.choice(tasks),
            "duration_s": float(rng.choice(lengths)),
            "predicted_duration_s": float(rng.choice(lengths)),
            "vc": rng.choice("ab"),
            "gpu_type": rng.choice(types),
            "allowed_gpu_types": rng.choice([None, None, None, None, ["V100"], ["K80", "G2"]]),
            "is_single_node": rng.choice([None, None, None, None, True, False]),
            "deadline_s": rng.choice([None, 0, 3, 3, 10, 20, 30, 50]),
            "priority": rng.choice([None, 0.0, 1.0, 2.5, -1.0]),
        }
        for i in range(num_jobs)
    ]
    return Case(jobs_table(rows), cluster_of(nodes, has_vcs=seed % 2 == 0))


def trouble(case: Case, seed: int) -> Case:
    """The same jobs on nodes of which some fail, are drained, come later or leave, in the first minute."""
    rng = random.Random(seed)
    nodes = case.cluster.nodes
    rows = []
    for node in nodes["node_id"]:
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            down = rng.choice([rng.randint(-5, 60), rng.randint(0, 30), rng.uniform(0, 40)])
            length = rng.choice([0, 1, 5, 5, 10, rng.uniform(0, 30), None, None if rng.random() < 0.2 else 20])
            up = None if length is None or rng.random() < 0.1 else START + timedelta(seconds=down + length)
            kind = rng.choice(["failure", "failure", "drain", "absence"])
            rows.append({"node_id": node, "down": START + timedelta(seconds=down), "up": up, "kind": kind})
    comes = [None if rng.random() < 0.8 else START + timedelta(seconds=rng.randint(0, 30)) for _ in nodes["node_id"]]
    outages = pl.DataFrame(rows, schema={"node_id": pl.String, "down": TIME, "up": TIME, "kind": pl.String})
    nodes = nodes.with_columns(available_from=pl.Series(comes, dtype=TIME))
    if seed % 3 == 0:
        nodes = nodes.with_columns(available_to=pl.col("available_from") + timedelta(seconds=20))
    return Case(case.jobs, replaying.Cluster(nodes, speed=case.cluster.speed, outages=outages))


def jobs_table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """A jobs table with columns of predictions, deadlines (given in seconds from START) and priorities."""
    extras = {
        row["job_id"]: [row.pop(name, None) for name in ("predicted_duration_s", "deadline_s", "priority")]
        for row in rows
    }
    jobs = make_jobs(rows)
    told = [extras[job_id] for job_id in jobs["job_id"]]
    deadlines = [None if deadline is None else START + timedelta(seconds=deadline) for _, deadline, _ in told]
    return jobs.with_columns(
        predicted_duration_s=pl.Series([guess for guess, _, _ in told], dtype=pl.Float64, strict=False),
        deadline_time=pl.Series(deadlines, dtype=pl.Datetime("us", "UTC")),
        priority=pl.Series([priority for _, _, priority in told], dtype=pl.Float64),
    )


def cluster_of(
    nodes: list[tuple[int, str | None, str]], *, has_vcs: bool = False, speed: Mapping[str, float] = SPEED
) -> replaying.Cluster:
    """Nodes n0, n1 … of (GPUs, type, VC)."""
    table = {
        "node_id": [f"n{i}" for i in range(len(nodes))],
        "num_gpus": [size for size, _, _ in nodes],
        "gpu_type": pl.Series([gpu_type for _, gpu_type, _ in nodes], dtype=pl.String),
        "vc": pl.Series([vc if has_vcs else None for _, _, vc in nodes], dtype=pl.String),
    }
    return replaying.Cluster(pl.DataFrame(table), speed=speed)


# --- both engines ----------------------------------------------------------------------------------------------------


def to_us(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


def milli_of(num_gpus: float | None) -> int | None:
    """Milli-GPUs; whoever asks for a GPU gets at least one."""
    return None if num_gpus is None else max(round(num_gpus * 1000), int(num_gpus > 0))


def reference_jobs(jobs: pl.DataFrame, predicted: str | None) -> list[Job]:
    """The rows of a jobs table as the reference engine takes them."""
    submit = jobs["submit_time"].dt.epoch("us").to_list()
    guess = jobs[predicted or "duration_s"].to_list()
    nothing = [None] * jobs.height
    deadline = jobs["deadline_time"].dt.epoch("us").to_list() if "deadline_time" in jobs.columns else nothing
    priority = jobs["priority"].to_list() if "priority" in jobs.columns else nothing
    return [
        Job(
            job_id=row["job_id"],
            submit=at,
            duration=to_us(row["duration_s"]),
            predicted=to_us(seconds),
            milli=milli_of(row["num_gpus"]),
            tasks=row["num_tasks"],
            vc=row["vc"],
            allowed=tuple(row["allowed_gpu_types"] or ()),
            logged=row["gpu_type"],
            single_node=row["is_single_node"],
            deadline=by,
            priority=points,
            user=row["user"],
        )
        for row, at, seconds, by, points in zip(
            jobs.iter_rows(named=True), submit, guess, deadline, priority, strict=True
        )
    ]


def reference_of(
    case: Case,
    *,
    policy: str,
    predicted: str | None = None,
    options: Mapping[str, Any] | None = None,
    one_by_one: bool = False,
    interval_s: float | None = None,
) -> Outcome:
    """What the reference engine says."""
    nodes = [
        Node(row["node_id"], row["num_gpus"], row["gpu_type"], row["vc"])
        for row in case.cluster.nodes.iter_rows(named=True)
    ]
    jobs = reference_jobs(case.jobs, predicted)
    names = {name for name in [*(node.gpu_type for node in nodes), *(job.logged for job in jobs)] if name is not None}
    speeds = {name: speed for name in names if (speed := case.cluster.speed_of(name)) is not None}
    return reference_replay(
        jobs,
        nodes,
        policy=policy,
        speeds=speeds,
        same_type=is_same_type,
        options=options,
        one_by_one=one_by_one,
        outages=outages_of(case.cluster),
        interval=to_us(interval_s) or 0,
    )


def outages_of(cluster: replaying.Cluster) -> list[Outage]:
    """Outages of a cluster as the reference engine takes them; also the times before and after a node is there."""
    instants = {name: pl.col(name).dt.epoch("us") for name in ("down", "up")}
    listed = [Outage(*row) for row in cluster.outages.select("node_id", **instants, kind="kind").iter_rows()]
    bounds = cluster.nodes.select("node_id", pl.col("available_from", "available_to").dt.epoch("us"))
    comes = [Outage(node, None, at, "absence") for node, at, _ in bounds.iter_rows() if at is not None]
    return listed + comes + [Outage(node, at, None, "absence") for node, _, at in bounds.iter_rows() if at is not None]


def engine_of(
    case: Case,
    *,
    policy: str,
    predicted: str | None = None,
    options: Mapping[str, Any] | None = None,
    interval_s: float | None = None,
) -> Outcome:
    """What the compiled engine says, in the same words."""
    chosen = replaying.POLICIES[policy].using(**(options or {}))
    result = replaying.replay(
        case.jobs, cluster=case.cluster, policy=chosen, predicted=predicted, checkpoint_interval_s=interval_s
    )
    return outcome(result)


def outcome(result: replaying.ReplayResult) -> Outcome:
    rows = result.schedule.with_columns(
        start=pl.col("start_time").dt.epoch("us"), end=pl.col("end_time").dt.epoch("us")
    ).rows(named=True)
    runs = {
        row["job_id"]: Run(
            row["start"],
            row["end"],
            tuple(row["nodes"]),
            row["gpu_type"],
            row["num_preemptions"],
            round(row["wasted_gpu_s"] * 1e9),
            row["num_restarts"],
        )
        for row in rows
        if row["state"] == "finished"
    }
    rejected = {row["job_id"]: row["reason"] for row in rows if row["state"] == "rejected"}
    unfinished = tuple(row["job_id"] for row in rows if row["state"] == "unfinished")
    assert len(runs) + len(rejected) + len(unfinished) == len(rows)
    return Outcome(runs, rejected, result.counts["max_queue_length"], unfinished)


def seconds_of(runs: Outcome) -> dict[str, tuple[float, float]]:
    """Start and end of every job in seconds from START."""
    zero = round((START - EPOCH).total_seconds()) * 1_000_000
    return {name: ((run.start - zero) / 1e6, (run.end - zero) / 1e6) for name, run in runs.runs.items()}


def told(case: Case) -> str:
    """The case in few words, to be drawn again by hand."""
    named = [
        "job_id",
        "submit_time",
        "num_gpus",
        "duration_s",
        "predicted_duration_s",
        "num_tasks",
        "vc",
        "gpu_type",
        "deadline_time",
    ]
    named += ["priority"]
    jobs = case.jobs.select(*named, "allowed_gpu_types", "is_single_node").with_columns(
        submit_time=(pl.col("submit_time") - START).dt.total_microseconds() / 1e6
    )
    nodes = case.cluster.nodes.select("node_id", "num_gpus", "gpu_type", "vc")
    outages = case.cluster.outages.with_columns((pl.col("down", "up") - START).dt.total_microseconds() / 1e6)
    parts = [*jobs.rows(named=True), *nodes.rows(named=True), dict(case.cluster.speed), *outages.rows()]
    return "\n".join(map(str, parts))


def assert_agreement(
    case: Case,
    *,
    policy: str,
    predicted: str | None = None,
    options: Mapping[str, Any] | None = None,
    interval_s: float | None = None,
) -> None:
    """Both engines say the same of every job: start, end, nodes, type, or why it was rejected."""
    engine = engine_of(case, policy=policy, predicted=predicted, options=options, interval_s=interval_s)
    reference = reference_of(case, policy=policy, predicted=predicted, options=options, interval_s=interval_s)
    differing = {
        job_id: (engine.runs.get(job_id), reference.runs.get(job_id))
        for job_id in case.jobs["job_id"]
        if engine.runs.get(job_id) != reference.runs.get(job_id)
    }
    assert not differing, f"{policy}, {options}, {predicted}: (engine, reference) {differing}\n{told(case)}"
    assert engine.rejected == reference.rejected, told(case)
    assert engine.unfinished == reference.unfinished, told(case)
    assert engine.peak == reference.peak, told(case)
