"""A policy that is a Python function, run over prepared arrays on the step-wise engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from analysis.errors import HindcastError, UsageError
from analysis.replay._jobs import US
from analysis.replay._prepare import Prepared
from analysis.replay._schedule import Stops
from analysis.replay._state import Log
from analysis.replay.policies.own import PythonKey
from analysis.replay.policies.registry import Policy
from analysis.replay.steps.simulation import Simulation

__all__ = ["drive"]

TRAITS = ("strict", "skip")


def drive(policy: Policy, prepared: Prepared) -> tuple[Log, Stops | None]:
    """Replay under a policy whose rule is a ``PythonKey`` or a ``PythonScheduler``.

    Returns
    -------
    log, stops
        As ``run_loop`` gives them.

    Raises
    ------
    UsageError
        If the policy has a trait other than strict and skip.
    HindcastError
        If a key is NaN, or the policy leaves jobs waiting for ever.
    """
    rule: Any = policy.rule
    if policy.trait not in TRAITS:
        msg = f"policy {policy.name!r}: found trait {policy.trait!r}; a policy in Python is {' or '.join(TRAITS)}."
        raise UsageError(msg)
    blocks = policy.trait == "strict"
    if isinstance(rule, PythonKey):
        sim = Simulation.of(prepared, costs=rule.costs)
        act = _by_keys(sim, rule, blocks) if rule.running is not None else _by_key(sim, rule, blocks)
        is_lazy = not rule.preempts
    else:
        sim = Simulation.of(
            prepared, costs=rule.costs, owner=_owners(prepared, rule.owner), half_life_s=rule.half_life_s
        )
        act, is_lazy = rule.begin(sim, blocks), rule.until_fits
    while sim.advance(until_fits=is_lazy):
        for vc in sim.touched:
            act(vc)
    if sim.num_waiting:
        ids = [sim.job_ids[row] for row in sim.waiting.row[:3]]
        msg = (
            f"policy {policy.name!r}: {sim.num_waiting} jobs were never started (first ids {ids}) though nothing more "
            "happens. Start them, or set a timer for when you will."
        )
        raise HindcastError(msg)
    return sim.log, sim.stops() if rule.preempts else None


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
