"""Policies of your own in Python: keys worked out by a function, or a scheduler that acts by itself.

Three ways, from the fastest to the freest; each is what a function under ``@policy`` returns:

* ``NumbaKey(function)``: a scalar function of columns known at submission, compiled; then all is as for an expression.
* ``PythonKey(function)``: asked at every pass for a number per waiting job (and, if it preempts, per running job).
* ``PythonScheduler(begin)``: told of every instant, starts and stops jobs itself.

The latter two run on the step-wise engine (``analysis.replay.steps``): tens of thousands of jobs per second.

Examples
--------
Whoever has waited longest in proportion to its length comes first; its order changes while it waits:

>>> from analysis.replay.policies import POLICIES, policy
>>> @policy(trait="skip")
... def highest_response_ratio():
...     '''Highest response ratio next.'''
...     return PythonKey(lambda jobs: -jobs.waited_s / jobs.predicted_s.clip(1.0))
>>> POLICIES["highest_response_ratio"].preempts
False
>>> del POLICIES["highest_response_ratio"]

Least predicted GPU time first, compiled:

>>> @policy(trait="strict")
... def shortest_area() -> NumbaKey:
...     return NumbaKey(lambda num_gpus, predicted_duration_s: num_gpus * predicted_duration_s)
>>> sorted(POLICIES["shortest_area"].needs)
['num_gpus', 'predicted_duration_s']
>>> del POLICIES["shortest_area"]
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from analysis.errors import UsageError
from analysis.replay.policies.rules import Costs

if TYPE_CHECKING:
    import numpy.typing as npt

    from analysis.replay.steps import JobsView, Simulation

    KeyFunction = Callable[[JobsView], npt.ArrayLike]
    Act = Callable[[int], None]

__all__ = ["NumbaKey", "PythonKey", "PythonScheduler"]

#: What a function may read is not known: it may be the predictions.
_MAY_PREDICT = frozenset({"predicted_duration_s"})


@dataclass(frozen=True)
class PythonKey:
    """A key that is worked out anew at every pass.

    Attributes
    ----------
    function : callable
        Takes the waiting jobs of one VC (a ``JobsView``) and gives an array with one number for each, lowest first;
        ties by (submit_time, job_id). Asked when something happened in the VC; without preemption only if some waiting
        job would fit, so that it must not count its calls. Numbers are taken as float64; NaN is refused.
    running : callable, optional
        The same for the running jobs. Where it is given the policy preempts: a waiting job that does not fit pushes
        out running jobs that come after it, by the rules of ``policies.moving``. Both functions must speak of the same
        order. None: nobody is stopped.
    costs : Costs
        Of a preemption.
    needs : frozenset of str
        Columns of the jobs table that the functions read, by which the table is checked. (A view shows them as
        ``jobs["user"]``.)
    """

    function: KeyFunction
    running: KeyFunction | None = None
    costs: Costs = Costs()  # noqa: RUF009 - frozen
    needs: frozenset[str] = _MAY_PREDICT

    @property
    def preempts(self) -> bool:
        """Whether running jobs may be stopped."""
        return self.running is not None


@dataclass(frozen=True)
class PythonScheduler:
    """A scheduler that acts by itself at every instant.

    Attributes
    ----------
    begin : callable
        Called once per replay with the ``Simulation`` and whether the head blocks (trait ``strict``). Returns what is
        called with the number of every VC in which something happened, at every instant: it may start and stop jobs and
        set timers. At the end every job must have run.
    preempts : bool
        Whether it stops jobs.
    costs : Costs
        Of a preemption.
    needs : frozenset of str
        Columns of the jobs table that it reads.
    until_fits : bool
        Leave out the instants at which nobody of those who wait would fit: for schedulers that do not preempt.
    leaves_vc : bool
        Whether it puts jobs onto nodes of other VCs.
    spreads : bool
        Whether it puts jobs onto nodes of its own choice (``Simulation.start_on``).
    owner : str, optional
        Column by which ``Simulation.owner_use_gpu_s`` counts GPU time …
    half_life_s : float
        … and the half-life with which it is forgotten. [s]
    """

    begin: Callable[[Simulation, bool], Act]
    preempts: bool = False
    costs: Costs = Costs()  # noqa: RUF009 - frozen
    needs: frozenset[str] = _MAY_PREDICT
    until_fits: bool = False
    leaves_vc: bool = False
    spreads: bool = False
    owner: str | None = None
    half_life_s: float = math.inf

    def __post_init__(self) -> None:
        if not self.half_life_s > 0:
            msg = f"policy: found a half-life of {self.half_life_s!r} s; expected seconds above 0."
            raise UsageError(msg)


@dataclass(frozen=True)
class NumbaKey:
    """A key that is worked out once for every job, by a scalar function that numba compiles.

    Attributes
    ----------
    function : callable
        Its arguments are named as columns of the jobs table that hold numbers, Booleans or times (microseconds), and
        ``predicted_duration_s`` [s]; null is NaN. Returns the job's number, taken as float64, lowest first. Plain, or
        compiled by ``numba.njit``.
    """

    function: Callable[..., float]

    def expr(self) -> pl.Expr:
        """The key as an expression over the jobs table."""
        import numba

        vectorize: Any = numba.vectorize
        plain = getattr(self.function, "py_func", self.function)
        names = list(inspect.signature(plain).parameters)
        if not names:
            msg = "policy: a NumbaKey's function has no arguments; name those as columns of the jobs table."
            raise UsageError(msg)
        compiled = vectorize(plain)

        def over(columns: pl.Series) -> pl.Series:
            values = compiled(*(_numbers(columns.struct.field(name)) for name in names))
            return pl.Series(values, dtype=pl.Float64)

        return pl.struct(names).map_batches(over, return_dtype=pl.Float64, is_elementwise=True)


def _numbers(column: pl.Series) -> npt.NDArray[Any]:
    if not (column.dtype.is_numeric() or column.dtype.is_temporal() or column.dtype == pl.Boolean):
        msg = (
            f"jobs: column {column.name!r} has dtype {column.dtype}; a NumbaKey reads numbers, Booleans and times. "
            "Order by it with an expression or a PythonKey."
        )
        raise UsageError(msg)  # polars makes it anew from its message, which a SchemaError does not take
    return column.to_physical().to_numpy()
