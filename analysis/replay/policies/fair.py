"""Policies that look at who had how much: fair share by decayed use. They run on the step-wise engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from analysis.errors import UsageError
from analysis.replay.policies.own import PythonScheduler
from analysis.replay.policies.registry import policy

if TYPE_CHECKING:
    from analysis.replay.steps import Simulation

__all__ = ["fair_share", "fair_share_skip"]

WEEK_S = 7 * 86_400.0
_OWNERS = {name: pl.String() for name in ("user", "account", "vc", "group")}


def _fair_share(by: str, half_life_s: float, shares: Mapping[str, float] | None) -> PythonScheduler:
    given = dict(shares or {})
    wrong = {name: share for name, share in given.items() if not 0 < share < math.inf}
    if wrong or by not in _OWNERS:
        msg = f"fair share: found by={by!r}, shares {wrong}; expected {', '.join(_OWNERS)}, and shares above 0."
        raise UsageError(msg)

    def begin(sim: Simulation, blocks: bool) -> Callable[[int], None]:  # noqa: FBT001 - the engine's call
        share = np.array([given.get(str(name), 1.0) for name in sim.owners])

        def act(vc: int) -> None:
            waiting = sim.waiting_in(vc)
            if len(waiting):
                per_share = np.round(sim.owner_use_gpu_s() / share, 6)
                sim.start_by_key(vc, per_share[waiting.owner], blocks=blocks)

        return act

    return PythonScheduler(begin, needs=frozenset({by}), owner=by, half_life_s=half_life_s, until_fits=True)


@policy(trait="strict", optional=_OWNERS)
def fair_share(
    *, by: str = "user", half_life_s: float = WEEK_S, shares: Mapping[str, float] | None = None
) -> PythonScheduler:
    """Least decayed use of GPU time per share first, as Slurm's classic fair share; the head blocks.

    An owner's use is the GPU time that the replay gave to its jobs until now, running ones included, over the whole
    cluster; what lies back one half-life counts half. Slurm's factor is F = 2^(-U / S) with U the owner's part of all
    use and S its part of all shares, highest first [1]_; the key is use / share, which orders in the same way. Equal
    keys (to a millionth of a GPU-second), and so one owner's jobs, are first come, first served. Without preemption;
    nothing counts but use (no age, no size); Slurm works priorities out every few minutes, here they are exact at each
    instant.

    Left out: trees of accounts (all owners are siblings), Fair Tree, use from before the log.

    Parameters
    ----------
    by : {"user", "account", "vc", "group"}
        Column that names the owner; jobs without one share one owner.
    half_life_s : float, default 7 days
        PriorityDecayHalfLife; infinite: nothing is forgotten. [s]
    shares : mapping of str to float, optional
        Shares of owners; 1 for those that are not in it.

    Returns
    -------
    PythonScheduler

    References
    ----------
    .. [1] SchedMD, "Classic Fairshare Algorithm", https://slurm.schedmd.com/classic_fair_share.html
    """
    return _fair_share(by, half_life_s, shares)


@policy(trait="skip", optional=_OWNERS)
def fair_share_skip(
    *, by: str = "user", half_life_s: float = WEEK_S, shares: Mapping[str, float] | None = None
) -> PythonScheduler:
    """Least decayed use of GPU time per share first as ``fair_share``, passing over what does not fit."""
    return _fair_share(by, half_life_s, shares)
