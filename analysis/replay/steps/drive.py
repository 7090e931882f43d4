"""A policy that is a Python function, run over prepared arrays on the step-wise engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import polars as pl

from analysis.errors import HindcastError, UsageError
from analysis.replay._drive import NOBODY, TURN_S, Watch
from analysis.replay._drive import drive as drive_turns
from analysis.replay._events import Events
from analysis.replay._jobs import US
from analysis.replay._prepare import Prepared
from analysis.replay._schedule import Stops
from analysis.replay._state import BUDGET, FINISHED, MOST_WAITING, NEXT, PAUSED, REACHED, WAITING, Log
from analysis.replay.policies.own import PythonKey
from analysis.replay.policies.registry import Policy
from analysis.replay.steps import _state
from analysis.replay.steps.simulation import Simulation

__all__ = ["drive"]

TRAITS = ("strict", "skip")


def drive(
    policy: Policy, prepared: Prepared, watch: Watch = NOBODY, nodes: Events | None = None
) -> tuple[Log, Stops | None, bool]:
    """Replay under a policy whose rule is a ``PythonKey`` or a ``PythonScheduler``.

    Returns
    -------
    log, stops, is_whole
        As ``run_loop`` gives them.

    Raises
    ------
    UsageError
        If the policy has a trait other than strict and skip.
    HindcastError
        If a key is NaN, or the policy leaves jobs waiting for ever that could start.
    """
    rule: Any = policy.rule
    if policy.trait not in TRAITS:
        msg = f"policy {policy.name!r}: found trait {policy.trait!r}; a policy in Python is {' or '.join(TRAITS)}."
        raise UsageError(msg)
    blocks = policy.trait == "strict"
    if isinstance(rule, PythonKey):
        sim = Simulation.of(prepared, costs=rule.costs, nodes=nodes, watch=watch)
        act = _by_keys(sim, rule, blocks) if rule.running is not None else _by_key(sim, rule, blocks)
        is_lazy, is_at_home = not rule.preempts, True
    else:
        owner = _owners(prepared, rule.owner)
        sim = Simulation.of(
            prepared, costs=rule.costs, owner=owner, half_life_s=rule.half_life_s, nodes=nodes, watch=watch
        )
        act, is_lazy = rule.begin(sim, blocks), rule.until_fits
        is_at_home = not (rule.leaves_vc or rule.spreads)
    turns = _Turns(policy.name, sim, act, is_lazy=is_lazy, is_at_home=is_at_home)
    is_whole = drive_turns(turns.turn, sim.log, watch, is_patient=False)
    has_stops = rule.preempts or nodes is not None
    return sim.log, sim.stops() if has_stops else None, is_whole


class _Turns:
    """The loop of a policy, which Python leaves now and then to look after progress, the event log and Ctrl-C."""

    def __init__(
        self, name: str, sim: Simulation, act: Callable[[int], None], *, is_lazy: bool, is_at_home: bool
    ) -> None:
        self.name, self.sim, self.act = name, sim, act
        self.is_lazy, self.is_at_home = is_lazy, is_at_home

    def turn(self) -> int:
        """Go on for some instants; FINISHED, REACHED or PAUSED, as a compiled loop."""
        sim, counters = self.sim, self.sim.log.counters
        until = time.monotonic() + TURN_S
        budget, why = int(counters[BUDGET]), PAUSED
        while budget > 0 and why == PAUSED:
            if not sim.advance(until_fits=self.is_lazy):
                why = REACHED if sim.is_cut else FINISHED
                break
            for vc in sim.touched:
                self.act(vc)
            budget = 0 if time.monotonic() > until else budget - 1
            if self.is_at_home and sim.is_stuck:
                why = FINISHED
        if why == FINISHED and sim.num_waiting:
            self.check_idle()
        counters[NEXT] = sim.kept.config[_state.NEXT]
        counters[MOST_WAITING] = max(counters[MOST_WAITING], counters[WAITING])
        return int(why)

    def check_idle(self) -> None:
        """Refuse to leave jobs waiting, unless some of them miss nodes that are out for good."""
        sim = self.sim
        if sim.nodes is not None and not all(map(sim.can_start, sim.one_of_each())):
            return
        ids = [sim.job_ids[row] for row in sim.waiting.row[:3]]
        msg = (
            f"policy {self.name!r}: {sim.num_waiting} jobs were never started (first ids {ids}) though nothing more "
            "happens. Start them, or set a timer for when you will."
        )
        raise HindcastError(msg)


def _owners(prepared: Prepared, column: str | None) -> list[object] | None:
    if column is None:
        return None
    jobs = prepared.jobs
    names = jobs[column] if column in jobs.columns else pl.repeat(None, jobs.height, eager=True)
    return names[prepared.accepted].to_list()


def _by_key(sim: Simulation, rule: PythonKey, blocks: bool) -> Callable[[int], None]:  # noqa: FBT001 - private
    def act(vc: int) -> None:
        waiting = sim.waiting_in(vc)
        if len(waiting):
            sim.start_by_key(vc, rule.function(waiting), blocks=blocks)

    return act


def _by_keys(sim: Simulation, rule: PythonKey, blocks: bool) -> Callable[[int], None]:  # noqa: FBT001 - private
    running_key = rule.running or rule.function
    min_run = round(rule.costs.min_run_s * US)

    def act(vc: int) -> None:
        waiting, running = sim.waiting_in(vc), sim.running_in(vc)
        if len(waiting):
            before = sim.num_started
            sim.start_by_keys(vc, rule.function(waiting), running_key(running), blocks=blocks)
            if min_run and sim.num_started > before:
                # From then on those who started now may be stopped.
                sim.set_timer(sim.now_us + min_run)

    return act
