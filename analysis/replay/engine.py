"""Replay a job log: under a policy, on a cluster, exactly."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from analysis.errors import UnknownNameError, UsageError
from analysis.frames import jobs_to_polars
from analysis.replay import _conserve, _loop, _preempt, _state, closed_loop
from analysis.replay._backfill import make_backfill
from analysis.replay._drive import NOBODY, Watch, drive
from analysis.replay._events import Events
from analysis.replay._hardware import make_entries
from analysis.replay._jobs import check_predicted
from analysis.replay._moving import Moving, Preemption, make_moving
from analysis.replay._order import make_queues
from analysis.replay._plain import way_to_run
from analysis.replay._prepare import EXCEEDS_CAPACITY, Prepared, prepare, with_room_to_spread
from analysis.replay._promises import Conserve, make_promises
from analysis.replay._queues import Ends
from analysis.replay._schedule import Stops, count_kills, count_stops, job_table, make_schedule
from analysis.replay._scoring import Scoring
from analysis.replay._state import NEVER, UNTIL
from analysis.replay._tape import Tape, make_tape, no_tape
from analysis.replay.closed_loop import Forecaster, RollingPrediction
from analysis.replay.cluster import Cluster
from analysis.replay.event_arrays import interval_us, with_events
from analysis.replay.event_log import EventSink
from analysis.replay.limits import cut_at_limits, mark_timeouts
from analysis.replay.load import offered_load
from analysis.replay.placement import PLACEMENTS, SCORED
from analysis.replay.policies import POLICIES, MovingKey, Policy
from analysis.replay.result import ReplayInterrupted, ReplayResult
from analysis.replay.teacher import Teacher

__all__ = ["replay"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def replay(  # noqa: PLR0913 - each is a choice of its own, all but two with a default
    jobs: Any,
    *,
    cluster: Cluster,
    policy: str | Policy = "fifo",
    predicted: str | RollingPrediction | Forecaster | None = None,
    placement: str = "consolidate",
    use_vcs: bool = True,
    seed: int = 0,
    enforce_limits: bool = False,
    checkpoint_interval_s: float | None = None,
    events: bool | str | Path = False,
    progress: Callable[[int, int], None] | None = None,
    until: datetime | None = None,
) -> ReplayResult:
    """Replay GPU jobs under a policy.

    Event-driven on integer microseconds and milli-GPUs. At one instant all ends come first, then what happens to nodes,
    then all arrivals, then one scheduling pass in every VC where something happened; ends that fall on the same instant
    (jobs of length 0) are followed by another pass. Ties are broken by (submit_time, job_id). Unless the policy
    preempts (see ``analysis.replay.policies.moving``), a job keeps its GPUs, all of one type, from its start for
    duration x speed(type in the log) / speed(type here), in whole microseconds; the log's unknown type counts as a
    V100, and on a node of unknown type a job runs as long as in the log.

    Under EASY backfill the head of a VC's queue gets a reservation: the shadow time is the earliest instant at which it
    fits, if running jobs end as predicted (one that should have ended already counts as ending 1 us from now), and
    its GPUs are those where it would be placed then. Later jobs, in order, start if they fit now and either end by the
    shadow time (as predicted) where best fit puts them, or fit with the reserved share of the reserved nodes hidden: of
    a node that has f GPUs free at the shadow time and r of them reserved, at most f - r. Each pass works it out anew.

    Nodes that are out (``cluster.outages``, available_from, available_to) take nobody, and no policy foresees when a
    node goes or comes back. Whoever runs on a node that fails or leaves is killed, on all its nodes, and waits again
    with its original place and key (LAS: by the service attained, lost or not; time slicing: in line since its
    submission); under a drain it may end. It starts again from its last checkpoint: after the last whole multiple of
    ``checkpoint_interval_s`` of its work (time on the hardware of the log, checkpoints cost none), or where the policy
    stopped it, if that was later; without any, from 0. Restart costs are paid as after a preemption, and predictions
    shrink by the work that was kept. EASY's head gets no reservation while it would not fit even on all nodes that are
    there. Under conservative backfill each node event voids all promises of the VC, and everybody who waits is planned
    anew in the order of submission; whoever does not fit on the nodes that are there is promised nothing. A job that
    still waits when nothing can help it any more is ``unfinished``.

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
    predicted : str, RollingPrediction or Forecaster, optional
        Column of ``jobs`` with predicted durations [s], which order the queue and give predicted ends; run times are
        always the true ones. By default the true durations. The others predict each job at its submission from the
        jobs that have ended in the replay by then (see ``analysis.replay.closed_loop``), for policies that order by a
        line over the prediction; ``result.jobs`` then holds predicted_s. With ``refresh_s`` they predict those that
        wait or run again and again, given their age; it then holds the last of it, predicted_last_s, too.
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
    checkpoint_interval_s : float, optional
        Work from one checkpoint of a job to the next, which matters where nodes fail; None: jobs write none. [s]
    events : bool or path, default False
        A Parquet file for the event log (see ``analysis.replay.event_log``), written piece by piece in memory that does
        not grow with it; it appears when it is complete. True: keep the log in memory. ``result.events()`` reads it.
    progress : callable of (int, int), optional
        Called now and then with how many jobs have ended, of how many.
    until : datetime, optional
        The last instant that may be replayed; naive is taken as UTC. What runs or waits then is ``unfinished``.

    Returns
    -------
    ReplayResult
        With a row per GPU job in ``schedule``; a job that cannot run is ``rejected`` there: ``unknown_gpus``,
        ``unknown_duration``, or ``exceeds_capacity`` (it would not fit on its VC's empty nodes of an allowed type, all
        that are ever there together, or its VC has none).

    Raises
    ------
    UnknownNameError
        If the policy, the placement or the column of predictions does not exist.
    UsageError
        If conservative backfill is asked for with a placement other than ``consolidate``, or a checkpoint interval
        that is not above 0; or if a policy cannot have predictions in closed loop.
    NoTimelineError
        If a GPU job has no submission time.
    SchemaError
        If a column is missing or holds impossible values.
    ReplayInterrupted
        At Ctrl-C, when the loop's turn is over (turns aim at 0.4 s; compiling comes first): a ``KeyboardInterrupt``
        that carries what there was by then.

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
    jobs = jobs_to_polars(jobs)
    marks = {"Scores": placement in SCORED, "Backfill": chosen.trait == "easy", "Offline": not cluster.is_steady}
    marks |= {"Closed": closed_loop.is_closed(predicted), "Renewal": closed_loop.refresh_us(predicted) > 0}
    with way_to_run(__name__, chosen, num_jobs=jobs.height, marks=marks) as engine:
        return engine.carry_out(  # type: ignore[no-any-return]
            jobs,
            chosen,
            cluster=cluster,
            predicted=predicted,
            placement=placement,
            use_vcs=use_vcs,
            seed=seed,
            enforce_limits=enforce_limits,
            checkpoint_interval_s=checkpoint_interval_s,
            events=events,
            progress=progress,
            until=until,
        )


def carry_out(  # noqa: PLR0913 - what ``replay`` was asked for
    jobs: pl.DataFrame,
    chosen: Policy,
    *,
    cluster: Cluster,
    predicted: str | RollingPrediction | Forecaster | None,
    placement: str,
    use_vcs: bool,
    seed: int,
    enforce_limits: bool,
    checkpoint_interval_s: float | None,
    events: bool | str | Path,
    progress: Callable[[int, int], None] | None,
    until: datetime | None,
) -> ReplayResult:
    """Replay as this copy of the module can: compiled, or by Python itself."""
    interval = interval_us(checkpoint_interval_s)
    jobs, cut = cut_at_limits(jobs, enforce=enforce_limits)
    is_closed = closed_loop.is_closed(predicted)
    column = predicted if isinstance(predicted, str) else None
    check_predicted(jobs, column)
    columns = sorted(chosen.needs - {"predicted_duration_s"} - (chosen.optional.keys() - set(jobs.columns)))
    columns += closed_loop.check_columns(predicted, jobs)
    scoring = Scoring(SCORED[placement], seed) if placement in SCORED else None
    prepared = prepare(jobs, cluster=cluster, predicted=column, use_vcs=use_vcs, columns=columns, scoring=scoring)
    if getattr(chosen.rule, "spreads", False):
        prepared = with_room_to_spread(prepared)
    load = offered_load(prepared, cluster)  # before kills shorten what is left to run
    prepared, happenings = with_events(prepared, cluster, interval=interval)
    teacher = None
    if is_closed:
        prepared, teacher = closed_loop.prepare_closed(predicted, chosen, prepared, jobs)
        happenings = happenings and happenings._replace(guess=teacher.closed.guess)
    kept_in = None if isinstance(events, bool) else Path(events)
    with EventSink(kept_in, prepared) if events else nullcontext() as sink:
        watch = Watch(len(prepared.accepted), sink, progress, _until_us(until, prepared))
        log, stops, is_whole = run_loop(chosen, prepared, watch, happenings, teacher)
        is_cut = _is_cut(log)
        if sink is not None:
            sink.finish(int(log.counters[UNTIL]) if is_cut else NEVER)
        table = job_table(prepared, stops)
        result = ReplayResult(
            schedule=mark_timeouts(make_schedule(prepared, log, stops), cut),
            policy=chosen.name,
            placement=placement,
            predicted=column if teacher is None else teacher.name,
            cluster=cluster,
            notes=tuple(prepared.notes),
            jobs=table if teacher is None else teacher.told(table, prepared, log),
            counts=_counts(prepared, log, load),
            event_log=None if sink is None else kept_in or sink.table(),
            stopped_time=_instant(int(log.counters[UNTIL]), prepared) if is_cut else None,
        )
    if not is_whole:
        raise ReplayInterrupted(result)
    return result


def _counts(prepared: Prepared, log: _state.Log, load: float | None) -> dict[str, float | int | None]:
    return {
        "max_queue_length": int(log.counters[_state.MOST_WAITING]),
        "offered_load": load,
        "num_cpu_jobs_left_out": prepared.num_cpu_jobs,
        "num_censored": int((prepared.reason > EXCEEDS_CAPACITY).sum()),
    }


def _first_us(prepared: Prepared) -> int:
    """First submission in microseconds since 1970: what the engine's clock counts from."""
    submit = prepared.jobs["submit_time"].to_physical()
    return int(submit[0]) if len(submit) else 0


def _until_us(until: datetime | None, prepared: Prepared) -> int:
    if until is None:
        return int(NEVER)
    aware = until.replace(tzinfo=UTC) if until.tzinfo is None else until
    return (aware - EPOCH) // timedelta(microseconds=1) - _first_us(prepared)


def _instant(us: int, prepared: Prepared) -> datetime:
    return EPOCH + timedelta(microseconds=us + _first_us(prepared))


def _is_cut(log: _state.Log) -> bool:
    """Tell whether the replay was stopped while jobs ran, waited or were still to come."""
    counters = log.counters
    if counters[UNTIL] == NEVER:
        return False
    return bool(counters[_state.NEXT] < len(log.start) or counters[_state.RUNNING] or counters[_state.WAITING])


def _chosen(policy: str | Policy) -> Policy:
    if isinstance(policy, Policy):
        return policy
    if policy not in POLICIES:
        hint = "Register your own with @policy before the replay."
        raise UnknownNameError(kind="scheduling policy", found=policy, known=POLICIES, hint=hint)
    return POLICIES[policy]


def run_loop(
    policy: Policy,
    prepared: Prepared,
    watch: Watch = NOBODY,
    nodes: Events | None = None,
    teacher: Teacher | None = None,
) -> tuple[_state.Log, Stops | None, bool]:
    """Run the compiled event loop over prepared arrays.

    Returns
    -------
    Log, Stops or None, bool
        What happened, what preemption and nodes did, and False if Ctrl-C ended it.
    """
    if len(prepared.accepted) and not isinstance(policy.rule, pl.Expr | MovingKey):
        return _run_python(policy, prepared, watch, nodes)
    work = _state.Work(
        submit=prepared.submit,
        job_class=prepared.job_class,
        run=prepared.run,
        column=prepared.column,
        classes=prepared.classes,
        first_entry=prepared.first_entry,
        closed=None if teacher is None else teacher.closed,
    )
    log = _empty_log(prepared, make_tape(prepared.hw, work) if watch.sink is not None else None)
    moving = make_moving(policy, policy.rule, prepared) if isinstance(policy.rule, MovingKey) else None
    if teacher is not None and teacher.answer is not None:
        log.counters[_state.KNOWN] = 0
        watch = replace(watch, answer=teacher.answer)
    is_whole = True
    if len(prepared.accepted):
        is_whole = drive(_turns(policy, prepared, state_of=(work, log, moving, nodes)), log, watch)
    if moving is not None:
        return log, count_stops(prepared, log, moving, nodes), is_whole
    return log, None if nodes is None else count_kills(prepared, log, nodes), is_whole


def _run_python(
    policy: Policy, prepared: Prepared, watch: Watch, nodes: Events | None
) -> tuple[_state.Log, Stops | None, bool]:
    """Replay under a policy that is a Python function."""
    from analysis.replay.steps.drive import drive as drive_steps

    return drive_steps(policy, prepared, watch, nodes)


def _turns(
    policy: Policy,
    prepared: Prepared,
    *,
    state_of: tuple[_state.Work, _state.Log, Moving | None, Events | None],
) -> Callable[[], int]:
    """The loop of a policy: each call is a turn."""
    work, log, moving, nodes = state_of
    if moving is not None:
        return partial(_preempt.run, Preemption(prepared.hw, work, log, moving), nodes)
    if policy.trait == "conservative":
        return partial(_conserve.run, Conserve(prepared.hw, work, log, make_promises(prepared)), nodes)
    has_keys = work.closed is not None and bool(np.any(work.closed.slope != 0))
    queues = make_queues(policy, prepared, work.closed.key if has_keys and work.closed is not None else None)
    ends = Ends(np.empty_like(log.start), np.empty_like(log.start))
    backfill = make_backfill(prepared, queues) if policy.trait == "easy" else None
    return partial(_loop.run, _state.State(prepared.hw, work, queues, ends, log), backfill, nodes)


def _empty_log(prepared: Prepared, tape: Tape | None = None) -> _state.Log:
    n = len(prepared.accepted)
    num_entries = int(prepared.first_entry[-1])
    most = int(np.diff(prepared.first_entry).max(initial=0)) + 1
    num_queues = len(prepared.classes) * len(prepared.gpu_types) + prepared.num_vcs
    counters = np.zeros(_state.NUM_COUNTERS, dtype=np.int64)
    counters[_state.NOW], counters[_state.KNOWN] = -1, n
    return _state.Log(
        start=np.full(n, -1, dtype=np.int64),
        end=np.full(n, -1, dtype=np.int64),
        stop_entry=prepared.first_entry[:-1].copy(),
        column=np.zeros(n, dtype=np.int8),
        held=make_entries(num_entries, prepared.hw),
        scratch=make_entries(most, prepared.hw),
        counters=counters,
        touched=np.zeros(prepared.num_vcs + 1, dtype=np.int64),
        marks=np.zeros(prepared.num_vcs, dtype=np.int64),
        live=np.empty(num_queues, dtype=np.int64),
        where=np.empty(num_queues, dtype=np.int64),
        beside=np.empty(num_queues, dtype=np.int64),
        tape=no_tape() if tape is None else tape,
    )
