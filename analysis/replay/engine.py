"""Replay a job log: under a policy, on a cluster, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from analysis.errors import UnknownNameError, UsageError
from analysis.frames import jobs_to_polars
from analysis.replay import _conserve, _loop, _preempt, _state
from analysis.replay._backfill import make_backfill
from analysis.replay._hardware import COUNT, SIZE, TYPE, make_entries
from analysis.replay._jobs import US, check_predicted
from analysis.replay._moving import Preemption, make_moving
from analysis.replay._order import make_queues
from analysis.replay._prepare import EXCEEDS_CAPACITY, Prepared, prepare
from analysis.replay._promises import Conserve, make_promises
from analysis.replay._queues import Ends
from analysis.replay._schedule import Stops, count_stops, job_table, make_schedule
from analysis.replay._scoring import Scoring
from analysis.replay.cluster import Cluster
from analysis.replay.limits import cut_at_limits, mark_timeouts
from analysis.replay.placement import PLACEMENTS, SCORED
from analysis.replay.policies import POLICIES, MovingKey, Policy
from analysis.replay.result import ReplayResult

__all__ = ["replay"]


def replay(  # noqa: PLR0913 - each is a choice of its own, all but two with a default
    jobs: Any,
    *,
    cluster: Cluster,
    policy: str | Policy = "fifo",
    predicted: str | None = None,
    placement: str = "consolidate",
    use_vcs: bool = True,
    seed: int = 0,
    enforce_limits: bool = False,
) -> ReplayResult:
    """Replay GPU jobs under a policy.

    Event-driven on integer microseconds and milli-GPUs. At one instant all ends come first, then all arrivals, then one
    scheduling pass in every VC where something happened; ends that fall on the same instant (jobs of length 0) are
    followed by another pass. Ties are broken by (submit_time, job_id). Unless the policy preempts (see
    ``analysis.replay.policies.moving``), a job keeps its GPUs, all of one type, from its start for duration x
    speed(type in the log) / speed(type here), in whole microseconds; the log's unknown type counts as a V100, and on a
    node of unknown type a job runs as long as in the log.

    Under EASY backfill the head of a VC's queue gets a reservation: the shadow time is the earliest instant at which it
    fits, if running jobs end as predicted (one that should have ended already counts as ending 1 us from now), and
    its GPUs are those where it would be placed then. Later jobs, in order, start if they fit now and either end by the
    shadow time (as predicted) where best fit puts them, or fit with the reserved share of the reserved nodes hidden: of
    a node that has f GPUs free at the shadow time and r of them reserved, at most f - r. Each pass works it out anew.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table, rows in any order. Needs job_id, submit_time, num_gpus, duration_s; reads vc, gpu_type,
        allowed_gpu_types, num_tasks, is_single_node and censoring where they are there. CPU jobs (0 GPUs) are left out
        and counted. Censored jobs run for their lower bound and are counted.
    cluster : Cluster
        Where. If its nodes have VCs, a job only uses nodes of its own VC.
    policy : str or Policy, default "fifo"
        A name from ``POLICIES``, or one of them with options: ``POLICIES["multifactor"].using(seconds_per_gpu=60)``.
    predicted : str, optional
        Column of ``jobs`` with predicted durations [s], which order the queue and give predicted ends; run times are
        always the true ones. By default the true durations.
    placement : str, default "consolidate"
        A name from ``PLACEMENTS``. All but ``consolidate`` keep to CPUs and memory too, where jobs (num_cpus, mem_gib)
        and nodes state them: null on a job asks for none, null on a node means enough.
    use_vcs : bool, default True
        False: every job may use every node.
    seed : int, default 0
        Of placement ``random``.
    enforce_limits : bool, default False
        True: a job that would run for longer than its time_limit_s ends there (work as its duration counts it: on the
        hardware of the log, pauses out); its state is finished, its reason ``timeout``. False: a limit never ends a
        job. A prediction never does.

    Returns
    -------
    ReplayResult
        With a row per GPU job in ``schedule``; a job that cannot run is ``rejected`` there: ``unknown_gpus``,
        ``unknown_duration``, or ``exceeds_capacity`` (it would not fit on its VC's empty nodes of an allowed type, or
        its VC has none).

    Raises
    ------
    UnknownNameError
        If the policy, the placement or the column of predictions does not exist.
    UsageError
        If conservative backfill is asked for with a placement other than ``consolidate``.
    NoTimelineError
        If a GPU job has no submission time.
    SchemaError
        If a column is missing or holds impossible values.

    Examples
    --------
    Four GPUs; a takes 2 of them until 10 s, b needs all, c would have fitted beside a but waits its turn.

    >>> import polars as pl
    >>> from datetime import datetime
    >>> t = datetime(2024, 1, 1)
    >>> jobs = pl.DataFrame(
    ...     {"job_id": ["a", "b", "c"], "submit_time": [t] * 3, "num_gpus": [2, 4, 2], "duration_s": [10, 5, 3]}
    ... )
    >>> result = replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=4), policy="fifo")
    >>> result.schedule["start_s"].to_list()
    [0.0, 10.0, 15.0]
    """
    chosen = _chosen(policy)
    if placement not in PLACEMENTS:
        raise UnknownNameError(kind="placement", found=placement, known=PLACEMENTS)
    if chosen.trait == "conservative" and placement in SCORED:
        msg = (
            f"replay: policy {chosen.name!r} books GPUs ahead by the rules of placement 'consolidate'; found placement "
            f"{placement!r}. Leave out the placement, or take policy 'easy', which knows them all."
        )
        raise UsageError(msg)
    jobs, cut = cut_at_limits(jobs_to_polars(jobs), enforce=enforce_limits)
    check_predicted(jobs, predicted)
    columns = sorted(chosen.needs - {"predicted_duration_s"} - (chosen.optional.keys() - set(jobs.columns)))
    scoring = Scoring(SCORED[placement], seed) if placement in SCORED else None
    prepared = prepare(jobs, cluster=cluster, predicted=predicted, use_vcs=use_vcs, columns=columns, scoring=scoring)
    log, stops = run_loop(chosen, prepared)
    counts: dict[str, float | int | None] = {
        "max_queue_length": int(log.counters[_state.MOST_WAITING]),
        "offered_load": _offered_load(prepared, cluster),
        "num_cpu_jobs_left_out": prepared.num_cpu_jobs,
        "num_censored": int((prepared.reason > EXCEEDS_CAPACITY).sum()),
    }
    return ReplayResult(
        schedule=mark_timeouts(make_schedule(prepared, log, stops), cut),
        policy=chosen.name,
        placement=placement,
        predicted=predicted,
        cluster=cluster,
        notes=tuple(prepared.notes),
        jobs=job_table(prepared, stops),
        counts=counts,
    )


def _chosen(policy: str | Policy) -> Policy:
    if isinstance(policy, Policy):
        return policy
    if policy not in POLICIES:
        hint = "Register your own with @policy before the replay."
        raise UnknownNameError(kind="scheduling policy", found=policy, known=POLICIES, hint=hint)
    return POLICIES[policy]


def run_loop(policy: Policy, prepared: Prepared) -> tuple[_state.Log, Stops | None]:
    """Run the compiled event loop over prepared arrays and return what happened, and what preemption did."""
    log = _empty_log(prepared)
    work = _state.Work(
        submit=prepared.submit,
        job_class=prepared.job_class,
        run=prepared.run,
        column=prepared.column,
        classes=prepared.classes,
        first_entry=prepared.first_entry,
    )
    if isinstance(policy.rule, MovingKey):
        moving = make_moving(policy, policy.rule, prepared)
        if len(prepared.accepted):
            _preempt.run(Preemption(prepared.hw, work, log, moving))
        return log, count_stops(prepared, log, moving)
    if len(prepared.accepted) == 0:
        return log, None
    if not isinstance(policy.rule, pl.Expr):
        from analysis.replay.steps.drive import drive

        return drive(policy, prepared)
    if policy.trait == "conservative":
        _conserve.run(Conserve(prepared.hw, work, log, make_promises(prepared)))
        return log, None
    queues = make_queues(policy, prepared)
    ends = Ends(np.empty_like(log.start), np.empty_like(log.start))
    state = _state.State(prepared.hw, work, queues, ends, log)
    backfill = make_backfill(prepared, queues) if policy.trait == "easy" else None
    _loop.run(state, backfill)
    return log, None


def _empty_log(prepared: Prepared) -> _state.Log:
    n = len(prepared.accepted)
    num_entries = int(prepared.first_entry[-1])
    most = int(np.diff(prepared.first_entry).max(initial=0)) + 1
    num_queues = len(prepared.classes) * len(prepared.gpu_types) + prepared.num_vcs
    return _state.Log(
        start=np.full(n, -1, dtype=np.int64),
        end=np.full(n, -1, dtype=np.int64),
        stop_entry=prepared.first_entry[:-1].copy(),
        column=np.zeros(n, dtype=np.int8),
        held=make_entries(num_entries, prepared.hw),
        scratch=make_entries(most, prepared.hw),
        counters=np.zeros(3, dtype=np.int64),
        touched=np.zeros(prepared.num_vcs + 1, dtype=np.int64),
        marks=np.zeros(prepared.num_vcs, dtype=np.int64),
        live=np.empty(num_queues, dtype=np.int64),
        where=np.empty(num_queues, dtype=np.int64),
        beside=np.empty(num_queues, dtype=np.int64),
    )


def _offered_load(prepared: Prepared, cluster: Cluster) -> float | None:
    """GPU time submitted over GPU time there from the first to the last submission, both at reference speed."""
    if len(prepared.accepted) < 2:
        return None
    window = float(prepared.submit[-1] - prepared.submit[0]) / US
    gpus = prepared.jobs["num_gpus"].to_numpy()[prepared.accepted]
    hw = prepared.hw
    names = [prepared.gpu_types[t] for t in hw.groups[:, TYPE]]
    speed = np.array([cluster.speed_of(name) or 1.0 for name in names])
    k = prepared.column[hw.groups[0, TYPE]]
    work = float((gpus * prepared.run[:, k]).sum()) / US * speed[0]
    capacity = float((hw.groups[:, SIZE] * hw.groups[:, COUNT] * speed).sum())
    return work / (capacity * window) if window > 0 else None
