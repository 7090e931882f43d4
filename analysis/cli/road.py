"""The whole road for one Trace: backtest, replays and the paired comparison, as the report and the demo walk it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import polars as pl

from analysis.errors import HindcastError

if TYPE_CHECKING:
    from analysis.replay import Cluster, ReplayResult
    from analysis.replay.gains import GainsResult
    from analysis.trace import Trace

__all__ = ["Road", "cluster_place", "num_steps", "walk"]

#: Replayed over the whole log, so that a log without recorded starts shows queues too.
REPLAYED = ("fifo", "easy")


@dataclass
class Road:
    """What came out of one walk; null where the log does not allow a stretch, with the reason in ``notes``."""

    scores: pl.DataFrame | None = None
    predictions: pl.DataFrame | None = None
    backtest: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    gains: GainsResult | None = None
    replays: Mapping[str, ReplayResult] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def num_steps(models: list[str]) -> int:
    """Steps that a walk reports to its progress bar."""
    return len(models) + len(REPLAYED) + 1


def walk(
    trace: Trace,
    *,
    cluster: Cluster | None,
    models: list[str],
    place: str = "own",
    use_vcs: bool = True,
    seed: int = 0,
    step: Callable[[str], None],
) -> Road:
    """Backtest the predictors, replay the log, and compare schedulers with predicted and true durations.

    Parameters
    ----------
    trace : Trace
        The log.
    cluster : Cluster or None
        Where it is replayed; the comparison adds a mixed one of the same size. Null: no replay and no comparison.
    models : list of str
        Registered predictors.
    place : str, default "own"
        What the comparison calls the cluster, see ``cluster_place``.
    use_vcs : bool, default True
        Whether virtual clusters hold.
    seed : int, default 0
        Seed of fits and intervals.
    step : callable of str
        Called after each step with what was done.

    Returns
    -------
    Road
        A stretch that the log does not allow (no times, too few jobs) is null and says why in ``notes``.
    """
    from analysis.replay.gains import mixed_cluster

    road = Road(notes=[] if cluster is None else list(cluster.notes))
    if cluster is not None:
        road.replays = _replays(trace, cluster, use_vcs=use_vcs, step=step, notes=road.notes)
    jobs = _backtest(trace, road, models=models, seed=seed, step=step)
    if jobs is not None and cluster is not None:
        clusters = {place: cluster, "mixed": mixed_cluster(cluster)}
        _compare(jobs, road, clusters=clusters, use_vcs=use_vcs, seed=seed)
        road.notes.append(_what_is_compared(trace, jobs))
    step("policies compared")
    return road


def cluster_place(trace: Trace, *, is_given: bool) -> str:
    """Say in a word whose cluster a comparison runs on: ``given`` by the user, the log's ``own``, or ``sized`` from it.

    Parameters
    ----------
    trace : Trace
        The log.
    is_given : bool
        Whether the user named the cluster.
    """
    if is_given:
        return "given"
    return "own" if trace.nodes.height or trace.capacity.height else "sized"


def _what_is_compared(trace: Trace, jobs: pl.DataFrame) -> str:
    first: datetime = jobs["submit_time"].min()  # type: ignore[assignment]
    later = trace.jobs.filter((pl.col("num_gpus") > 0) & (pl.col("submit_time") >= first))
    unknown = later.height - jobs.height
    left_out = f" {unknown:,} jobs of that time without a fully known duration take no part." if unknown else ""
    return (
        f"The comparison replays the {jobs.height:,} jobs on which predictors were tested, from "
        f"{first:%Y-%m-%d %H:%M} UTC on, starting with an empty cluster.{left_out} A prediction "
        "knows the jobs that had ended in the log, not in the replay, when its job was submitted."
    )


def _replays(
    trace: Trace, cluster: Cluster, *, use_vcs: bool, step: Callable[[str], None], notes: list[str]
) -> dict[str, ReplayResult]:
    from analysis.replay import replay

    results: dict[str, ReplayResult] = {}
    for policy in REPLAYED:
        try:
            results[policy] = replay(trace.jobs, cluster=cluster, policy=policy, use_vcs=use_vcs)
        except HindcastError as error:
            notes.append(f"No replay under {policy}: {error}")
        step(f"replayed under {policy}")
    return results


def _backtest(
    trace: Trace, road: Road, *, models: list[str], seed: int, step: Callable[[str], None]
) -> pl.DataFrame | None:
    """Score the predictors; return the tested jobs with one predicted column a model."""
    from predictors import backtest

    try:
        zone = trace.meta.time_zone
        result = backtest(trace.jobs, models=models, time_zone=zone, random_state=seed, progress=step)
    except HindcastError as error:
        road.notes.append(f"No predictors scored: {error}")
        return None
    road.scores, road.predictions = result.scores, result.predictions
    road.backtest = {"scores_by": result.by, "calibration_curve": result.curve, "differences": result.differences}
    road.notes += result.notes
    columns = [name for name in result.predictions.columns if name.startswith("predicted_duration_s__")]
    return trace.jobs.join(
        result.predictions.select("job_id", *columns), on="job_id", how="inner", maintain_order="left"
    )


def _compare(jobs: pl.DataFrame, road: Road, *, clusters: dict[str, Cluster], use_vcs: bool, seed: int) -> None:
    from analysis.replay.gains import compare

    prefix = "predicted_duration_s__"
    predicted = {name.removeprefix(prefix): name for name in jobs.columns if name.startswith(prefix)}
    try:
        road.gains = compare(jobs, clusters=clusters, predicted=predicted, use_vcs=use_vcs, seed=seed)
        road.notes += road.gains.notes
    except HindcastError as error:
        road.notes.append(f"No comparison of policies: {error}")
