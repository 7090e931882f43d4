"""Keys that move while jobs run: what preemptive policies are made of."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

from analysis.errors import UsageError

__all__ = ["Costs", "MovingKey", "SecondsBySize"]

#: Seconds for every job, or by size: pairs of (at most so many GPUs, seconds), rising, the last one for the rest.
SecondsBySize = float | tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Costs:
    """What a preemption costs.

    Attributes
    ----------
    checkpoint_overhead_s : float or tuple of (GPUs, seconds)
        Before it is stopped a job spends so long on writing its checkpoint: of the time since its start that much did
        no work. [s]
    restart_cost_s : float or tuple of (GPUs, seconds)
        A job that starts again holds its GPUs for so long before it works on. [s]
    min_run_s : float
        A job is not stopped before it has run for so long since its last start. [s]
    """

    checkpoint_overhead_s: SecondsBySize = 0.0
    restart_cost_s: SecondsBySize = 0.0
    min_run_s: float = 0.0

    def __post_init__(self) -> None:
        wrong = [
            f"{name} has {value!r}"
            for name in ("checkpoint_overhead_s", "restart_cost_s", "min_run_s")
            for value in _seconds(getattr(self, name))
            if not 0 <= value < math.inf
        ]
        if wrong:
            msg = f"preemption: {'; '.join(wrong)}; expected seconds, 0 or more and finite."
            raise UsageError(msg)

    @property
    def most_s(self) -> float:
        """What a preemption costs a job at most: checkpoint and restart [s]."""
        return max(_seconds(self.checkpoint_overhead_s)) + max(_seconds(self.restart_cost_s))


def _seconds(value: SecondsBySize) -> list[float]:
    return [seconds for _, seconds in value] if isinstance(value, tuple) else [value]


@dataclass(frozen=True)
class MovingKey:
    """A key that changes at known instants; see ``policies.moving`` for what they mean.

    Attributes
    ----------
    kind : {"remaining", "levels", "slices"}
        Predicted remaining time; discrete levels of attained service; rounds of time slices.
    costs : Costs
        Of a preemption.
    needs : frozenset of str
        Columns that it reads.
    thresholds_gpu_s : tuple of float
        Attained service at which the next level begins, rising. [GPU-s]
    is_gittins : bool
        Order levels by their Gittins index, not by their number.
    service_gpu_s : tuple of float or None
        The distribution of jobs' service that the index is of; None: that of the log. [GPU-s]
    quantum_s : float
        Length of a slice. [s]
    """

    kind: Literal["remaining", "levels", "slices"]
    costs: Costs
    needs: frozenset[str] = frozenset()
    thresholds_gpu_s: tuple[float, ...] = ()
    is_gittins: bool = False
    service_gpu_s: tuple[float, ...] | None = None
    quantum_s: float = 0.0

    def __post_init__(self) -> None:
        steps = self.thresholds_gpu_s
        rises = all(low < high for low, high in itertools.pairwise(steps))
        if not rises or any(not 0 < value < math.inf for value in steps):
            msg = f"preemption: thresholds of attained service are {steps}; expected rising GPU-seconds above 0."
            raise UsageError(msg)
        if self.kind == "slices" and not 1e-6 <= self.quantum_s < math.inf:
            msg = f"time slicing: the quantum is {self.quantum_s!r} s; expected a length of at least a microsecond."
            raise UsageError(msg)
        dearest = self.costs.most_s
        if self.kind == "slices" and self.quantum_s <= dearest:
            msg = (
                f"time slicing: a quantum of {self.quantum_s!r} s is not longer than checkpoint and restart, up to "
                f"{dearest!r} s: nobody would ever get on. Take longer slices."
            )
            raise UsageError(msg)
