"""The engine step by step: time, waiting and running jobs, and what may be done to them at each instant."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.errors import HindcastError, UnknownNameError, UsageError
from analysis.frames import jobs_to_polars
from analysis.replay import _tape
from analysis.replay._bits import I64
from analysis.replay._drive import NOBODY, Watch
from analysis.replay._events import Events
from analysis.replay._jobs import US, check_predicted
from analysis.replay._prepare import Prepared, prepare
from analysis.replay._schedule import Stops, count_stops
from analysis.replay._scoring import Scoring
from analysis.replay._state import NEVER
from analysis.replay.cluster import Cluster
from analysis.replay.event_arrays import interval_us, with_events
from analysis.replay.event_log import EventSink
from analysis.replay.placement import PLACEMENTS, SCORED
from analysis.replay.policies.rules import Costs
from analysis.replay.result import ReplayResult
from analysis.replay.steps import _kernel
from analysis.replay.steps._elsewhere import Elsewhere
from analysis.replay.steps._outcome import outcome
from analysis.replay.steps._scene import OUTCOMES
from analysis.replay.steps._state import F64, RUNS

__all__ = ["Simulation"]


class Simulation(Elsewhere):
    """One replay, driven from outside: ``advance`` to the next instant, look, ``start`` and ``stop`` jobs, go on.

    It keeps the rules of ``analysis.replay.replay``: integer microseconds and milli-GPUs; at one instant all ends come
    first, then what happens to nodes, then all arrivals, then whatever the caller does; ends that fall on the same
    instant (jobs of length 0) make ``advance`` return with the same time again; the same placements on the same
    hardware; work as told in ``policies.moving`` for jobs that are stopped, and as told there for jobs that are killed
    with a node and wait again. Jobs are known by their *row*: their number in the order
    (submit_time, job_id) among those that can run at all (see ``job_ids``). What the log says of a job's outcome, its
    true duration first of all, is not shown.

    Parameters
    ----------
    jobs : DataFrame of polars, pandas or Arrow, one row per job
        As ``replay`` takes them.
    cluster : Cluster
        Where.
    predicted : str, optional
        Column of predicted durations [s]; by default the true ones.
    placement : str, default "consolidate"
        A name from ``PLACEMENTS``.
    use_vcs : bool, default True
        False: every job may use every node.
    seed : int, default 0
        Of placement ``random``.
    costs : Costs, optional
        What a preemption costs, and the minimum run time before it; by default nothing.
    checkpoint_interval_s : float, optional
        Work from one checkpoint of a job to the next, which matters where nodes fail; None: jobs write none. [s]
    events : bool, default False
        Keep the event log in memory, for ``result().events()``.

    Raises
    ------
    UnknownNameError, NoTimelineError, SchemaError, UsageError
        As ``replay``.

    Examples
    --------
    First come, first served, the head blocks:

    >>> import polars as pl
    >>> from datetime import datetime
    >>> t = datetime(2024, 1, 1)
    >>> jobs = pl.DataFrame(
    ...     {"job_id": ["a", "b", "c"], "submit_time": [t] * 3, "num_gpus": [2, 4, 2], "duration_s": [10, 5, 3]}
    ... )
    >>> sim = Simulation(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=4))
    >>> while sim.advance():
    ...     while len(sim.waiting) and sim.start(sim.waiting.row[0]):
    ...         pass
    >>> sim.result("by hand").schedule["start_s"].to_list()
    [0.0, 10.0, 15.0]
    """

    def __init__(  # noqa: PLR0913 - as ``replay``
        self,
        jobs: Any,
        *,
        cluster: Cluster,
        predicted: str | None = None,
        placement: str = "consolidate",
        use_vcs: bool = True,
        seed: int = 0,
        costs: Costs | None = None,
        checkpoint_interval_s: float | None = None,
        events: bool = False,
    ) -> None:
        if placement not in PLACEMENTS:
            raise UnknownNameError(kind="placement", found=placement, known=PLACEMENTS)
        jobs = jobs_to_polars(jobs)
        check_predicted(jobs, predicted)
        scoring = Scoring(SCORED[placement], seed) if placement in SCORED else None
        shown = [name for name in jobs.columns if name not in OUTCOMES]
        interval = interval_us(checkpoint_interval_s)
        prepared = prepare(jobs, cluster=cluster, predicted=predicted, use_vcs=use_vcs, columns=shown, scoring=scoring)
        prepared, nodes = with_events(prepared, cluster, interval=interval)
        self._names = (cluster, predicted, placement)
        sink = EventSink(None, prepared) if events else None
        self._set_up(prepared, costs or Costs(), nodes=nodes, watch=Watch(len(prepared.accepted), sink))

    @classmethod
    def of(
        cls,
        prepared: Prepared,
        *,
        costs: Costs | None = None,
        owner: Sequence[object] | None = None,
        half_life_s: float = math.inf,
        nodes: Events | None = None,
        watch: Watch = NOBODY,
    ) -> Simulation:
        """Drive what has been prepared already.

        Parameters
        ----------
        prepared : Prepared
            As ``prepare`` makes it; used up by the simulation.
        costs : Costs, optional
            Of a preemption.
        owner : sequence, one name per job of ``prepared.accepted``, optional
            Whose GPU time is counted, see ``owner_use_gpu_s``.
        half_life_s : float, default infinite
            With which GPU time of the past is forgotten. [s]
        nodes : Events, optional
            What happens to nodes, as ``with_events`` gives it.
        watch : Watch
            Who takes the events, and the last instant.

        Returns
        -------
        Simulation
            Without a name for its cluster: ``result`` cannot be asked for, ``log`` and ``stops`` can.
        """
        sim = cls.__new__(cls)
        sim._names = None
        sim._set_up(prepared, costs or Costs(), owner=owner, half_life_s=half_life_s, nodes=nodes, watch=watch)
        return sim

    _names: tuple[Cluster, str | None, str] | None

    def advance(self, *, until_fits: bool = False) -> bool:
        """Go on to the next instant at which a job ends or arrives, a node goes or comes or a timer rings.

        Parameters
        ----------
        until_fits : bool, default False
            Leave out the instants at which nobody of those who wait would fit: without preemption nothing can be done
            at them.

        Returns
        -------
        bool
            False if nothing will ever happen again: all jobs have ended, or those that wait were never started, or
            can never be, since their nodes are gone.
        """
        if self.is_over:
            return False
        timer = self._timers[0] if self._timers else NEVER
        if self.sink is not None:
            # What the caller does at an instant takes room, too.
            self._write_events(at_least=_tape.LENGTH // 2)
        now = _kernel.step(self.box, timer, until_fits)
        while now == _kernel.FULL:
            self._write_events()
            now = _kernel.step(self.box, timer, until_fits)
        if now == NEVER or now < 0:
            self.is_over, self.is_cut = True, now != NEVER
            return False
        self.now_us = now
        while self._timers and self._timers[0] <= now:
            heapq.heappop(self._timers)
        return True

    def _write_events(self, *, at_least: int = 0) -> None:
        """Take the events off the tape."""
        if self.sink is not None and self.log.tape.counts[_tape.ROWS] >= at_least:
            self.sink.take(self.log.tape)

    def set_timer(self, time_us: int) -> None:
        """Have a look at all VCs at an instant, whatever else happens [us from the first submission].

        Raises
        ------
        UsageError
            If it is not later than now.
        """
        if time_us <= self.now_us:
            msg = f"simulation: a timer was set for {time_us} us; it is {self.now_us} us now. Set it for later."
            raise UsageError(msg)
        heapq.heappush(self._timers, int(time_us))

    def start(self, row: int) -> bool:
        """Start a waiting job where the placement puts it.

        Returns
        -------
        bool
            False, and nothing happens, if it does not fit.

        Raises
        ------
        UsageError
            If it does not wait.
        """
        done = _kernel.start_job(self.box, row, self.now_us)
        if done < 0:
            self._refuse(row, "start", "waits")
        return done == 1

    def start_in_order(self, rows: I64, *, blocks: bool) -> int:
        """Start waiting jobs in the order given.

        Parameters
        ----------
        rows : int64 array
            Waiting jobs, first in the order first.
        blocks : bool
            True: nobody starts behind one that does not fit. False: it is passed over.

        Returns
        -------
        int
            How many started.

        Raises
        ------
        UsageError
            If one of them does not wait.
        """
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        started = int(_kernel.start_jobs(self.box, rows, self.now_us, blocks))
        if started < 0:
            self._refuse(int(rows[-1 - started]), "start", "waits")
        return started

    def can_stop(self, row: int) -> bool:
        """Whether a job runs and its minimum run time is over."""
        begin = int(self.kept.begin[row])
        return bool(self.kept.status[row] == RUNS and self.now_us >= begin + round(self.costs.min_run_s * US))

    def stop(self, row: int) -> None:
        """Stop a running job: it gives its GPUs back and waits again, with the work that is left.

        Raises
        ------
        UsageError
            If it does not run, or its minimum run time is not over.
        """
        done = _kernel.stop_job(self.box, row, self.now_us)
        if done < 0:
            self._refuse(row, "stop", "runs")
        if done == 0:
            msg = (
                f"simulation: job {self.job_ids[row]!r} cannot be stopped at {self.now_us} us: it started at "
                f"{self.kept.begin[row]} us and its minimum run time is {self.costs.min_run_s} s. Ask can_stop first."
            )
            raise UsageError(msg)

    def start_by_key(self, vc: int, keys: npt.ArrayLike, *, blocks: bool) -> None:
        """One scheduling pass over a VC: start its waiting jobs by their keys, lowest first.

        Parameters
        ----------
        vc : int
            Its number.
        keys : array of numbers
            One for every job of ``waiting_in(vc)``, taken as float64; ties by (submit_time, job_id).
        blocks : bool
            True: nobody starts behind one that does not fit. False: it is passed over.
        """
        rows = self._of_vc(self.kept.waiting, vc)
        num = len(rows)
        if num == 0:
            return
        keys = self._in_order(rows, keys)
        if not blocks:
            self.kept.key[:num] = keys
            _kernel.skip_pass(self.box, vc, self.now_us)
            return
        head = int(keys.argmin())
        if self.start(int(rows[head])) and num > 1:
            self.kept.key[:head] = keys[:head]
            self.kept.key[head : num - 1] = keys[head + 1 :]
            _kernel.strict_pass(self.box, vc, num - 1, self.now_us)

    def _in_order(self, rows: I64, keys: npt.ArrayLike) -> F64:
        """Keys as floats, one for each job."""
        values = np.asarray(keys, dtype=np.float64)
        if values.shape != rows.shape:
            msg = (
                f"simulation: found keys of shape {values.shape}; expected one for each of {len(rows)} jobs, in the "
                "order of the view."
            )
            raise UsageError(msg)
        if np.isnan(values.min(initial=0.0)):
            wrong = np.flatnonzero(np.isnan(values))
            ids = [self.job_ids[row] for row in rows[wrong[:3]]]
            msg = (
                f"simulation: the key is NaN for {len(wrong)} jobs (first ids {ids}) at {self.now_us} us; every job "
                "needs a place in the order. Give those an infinite key, to be last."
            )
            raise HindcastError(msg)
        return values

    def start_by_keys(self, vc: int, waiting: npt.ArrayLike, running: npt.ArrayLike, *, blocks: bool) -> None:
        """One scheduling pass with preemption over a VC: who comes first may push out who comes last.

        By the rules of ``policies.moving``: running jobs are stopped from the last in the order on, until the waiting
        one fits; whose GPUs are all still free then gets them back and was never stopped. A job that is stopped waits
        with the key that it had while it ran.

        Parameters
        ----------
        vc : int
            Its number.
        waiting, running : arrays of numbers
            One for every job of ``waiting_in(vc)`` and ``running_in(vc)``.
        blocks : bool
            True: nobody starts behind one that finds no room. False: it is passed over.
        """
        rows, runs = self._of_vc(self.kept.waiting, vc), self._of_vc(self.kept.running, vc)
        if len(rows) == 0:
            return
        self.kept.key[rows] = self._in_order(rows, waiting)
        self.kept.key[runs] = self._in_order(runs, running)
        behind = runs[np.lexsort((runs, self.kept.key[runs]))[::-1]]
        _kernel.preempting_pass(self.box, vc, behind, self.now_us, blocks)

    def start_over(self, vc: int, keys: npt.ArrayLike, behind: I64, *, blocks: bool) -> None:
        """One scheduling pass over a VC, whose waiting jobs may push out the running jobs given, whoever's they are.

        Parameters
        ----------
        vc : int
            Its number.
        keys : array of numbers
            One for every job of ``waiting_in(vc)``, lowest first.
        behind : int64 array
            Running jobs that give way to all of them, the first one first.
        blocks : bool
            True: nobody starts behind one that finds no room. False: it is passed over.
        """
        rows = self._of_vc(self.kept.waiting, vc)
        self.kept.key[rows] = self._in_order(rows, keys)
        self.kept.key[behind] = math.inf
        _kernel.preempting_pass(self.box, vc, np.ascontiguousarray(behind, dtype=np.int64), self.now_us, blocks)

    def stops(self) -> Stops:
        """What preemption and nodes did to every job."""
        return count_stops(self.prepared, self.log, self.kept, self.nodes)  # type: ignore[arg-type]

    def result(self, name: str = "stepwise") -> ReplayResult:
        """The schedule so far, as ``replay`` gives it.

        Jobs that have not ended are ``unfinished``: those that wait have no start, unless they have run before.

        Parameters
        ----------
        name : str
            Of the policy.

        Returns
        -------
        ReplayResult
        """
        if self._names is None:
            msg = (
                "simulation: it was made from prepared arrays and does not know its cluster. Give Simulation the jobs."
            )
            raise UsageError(msg)
        self._write_events()
        return outcome(self, name, *self._names)
