"""Waiting and running jobs of a simulation as numpy columns, cut from the columns of all jobs when asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from analysis.replay._bits import I64
from analysis.replay._jobs import MILLI, US
from analysis.replay.steps._state import F64, RUNS

if TYPE_CHECKING:
    from analysis.replay.steps._scene import Scene

__all__ = ["JobsView"]

T = TypeVar("T", bound=np.generic)


class JobsView:
    """Some jobs of a simulation at one instant, in the order (submit_time, job_id).

    Every column is a numpy array with one value per job of the view; those that never change may be read-only. A view
    is true until the next call that changes the simulation.

    Attributes
    ----------
    row : int64 array
        Number of the job: what ``start``, ``stop`` and ``can_start`` take. Jobs are numbered in the order
        (submit_time, job_id), those that cannot run left out.
    """

    __slots__ = ("_cut", "_sim", "row")

    def __init__(self, sim: Scene, row: I64) -> None:
        self._sim = sim
        self.row = row
        self._cut: Any = row
        if len(row) and row[-1] - row[0] == len(row) - 1:
            # Neighbours: their columns need no copy.
            self._cut = slice(int(row[0]), int(row[-1]) + 1)

    def __len__(self) -> int:
        return len(self.row)

    def __iter__(self) -> Iterator[int]:
        return map(int, self.row)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Column of the jobs table by its name; times in microseconds, null as NaN or None.

        Raises
        ------
        UnknownNameError
            If it is not there, or only known when a job is over; the message lists those that there are.
        """
        return self._of(self._sim.column(name))

    @property
    def submit_s(self) -> F64:
        """Submission [s from the first one]."""
        return self._of(self._sim.submit_s)

    @property
    def num_gpus(self) -> F64:
        """GPUs asked for; fractions are possible."""
        return self._of(self._sim.num_gpus)

    @property
    def predicted_s(self) -> F64:
        """Predicted duration, on the hardware of the log; the true one where the replay was given none [s]."""
        return self._of(self._sim.predicted_s)

    @property
    def vc(self) -> I64:
        """Number of the job's VC (0 where the cluster is not divided)."""
        return self._of(self._sim.vc)

    @property
    def num_preemptions(self) -> I64:
        """How often the job was stopped, not counting nodes that went down under it."""
        return self._of(self._sim.kept.stops) - self.num_restarts

    @property
    def num_restarts(self) -> I64:
        """How often a node went down under the job."""
        nodes = self._sim.nodes
        return np.zeros(len(self.row), dtype=np.int64) if nodes is None else self._of(nodes.kills)

    @property
    def has_run(self) -> npt.NDArray[np.bool_]:
        """Whether the job has started before."""
        return self._of(self._sim.log.start) >= 0

    @property
    def waited_s(self) -> F64:
        """Time since submission during which it held no GPUs [s]."""
        return (self._sim.now_us - self.submit_us - self.attained_us) / US

    @property
    def attained_s(self) -> F64:
        """Time during which it held its GPUs, over all its runs [s]."""
        return self.attained_us / US

    @property
    def attained_gpu_s(self) -> F64:
        """GPUs times the time during which it held them [GPU-s]."""
        return self.milli * self.attained_us / (MILLI * US)

    @property
    def milli(self) -> I64:
        """GPUs asked for, as they are counted [milli-GPUs]."""
        return self._of(self._sim.milli)

    @property
    def start_s(self) -> F64:
        """Last start of a running job [s from the first submission]; of others of no meaning."""
        return self._of(self._sim.kept.begin) / US

    @property
    def elapsed_s(self) -> F64:
        """Time since the last start of a running job; 0 of others [s]."""
        return self.elapsed_us / US

    @property
    def done_s(self) -> F64:
        """Work done until the last stop [s of the log's hardware]."""
        return self.done_us / US

    @property
    def remaining_s(self) -> F64:
        """Predicted duration less the work done until the last stop, 0 at least [s of the log's hardware]."""
        return np.maximum(self.predicted_s - self.done_s, 0.0)

    @property
    def owner(self) -> I64:
        """Number of the job's owner among ``Simulation.owners``; empty where nobody counts their use."""
        owner = self._sim.kept.use.owner
        return self._of(owner) if len(owner) else owner

    @property
    def submit_us(self) -> I64:
        """``submit_s`` in whole microseconds."""
        return self._of(self._sim.prepared.submit)

    @property
    def predicted_us(self) -> I64:
        """``predicted_s`` in whole microseconds."""
        return self._of(self._sim.prepared.predicted_log)

    @property
    def elapsed_us(self) -> I64:
        """``elapsed_s`` in whole microseconds."""
        runs = self._of(self._sim.kept.status) == RUNS
        return np.where(runs, self._sim.now_us - self._of(self._sim.kept.begin), 0)

    @property
    def attained_us(self) -> I64:
        """``attained_s`` in whole microseconds."""
        return self._of(self._sim.kept.held) + self.elapsed_us

    @property
    def done_us(self) -> I64:
        """``done_s`` in whole microseconds."""
        return self._of(self._sim.work_us) - self._of(self._sim.kept.left)

    def _of(self, values: npt.NDArray[T]) -> npt.NDArray[T]:
        """What belongs to the jobs of the view, of values of all jobs."""
        return values[self._cut]  # type: ignore[no-any-return]
