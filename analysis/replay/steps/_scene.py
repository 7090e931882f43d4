"""What a simulation shows: its instant, the jobs that wait and run, free GPUs, who used how much."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from analysis.errors import UnknownNameError
from analysis.replay import _place
from analysis.replay._bits import I64
from analysis.replay._drive import NOBODY, Watch
from analysis.replay._events import NEXT as NEXT_EVENT
from analysis.replay._events import Events
from analysis.replay._hardware import FREE_GPUS, TYPE, list_nodes
from analysis.replay._jobs import MILLI, US
from analysis.replay._prepare import Prepared, _most_entries
from analysis.replay._state import RUNNING, UNTIL, WAITING, Log, Work
from analysis.replay._tape import make_tape
from analysis.replay.engine import _empty_log
from analysis.replay.policies.rules import Costs
from analysis.replay.steps import _kernel
from analysis.replay.steps._box import make_box as _box_of
from analysis.replay.steps._state import (
    F64,
    NEXT,
    NUM_ENDED,
    NUM_STARTED,
    RUNS,
    Kept,
    Roster,
    Steps,
    make_kept,
    owner_codes,
)
from analysis.replay.steps.views import JobsView

#: Columns of a jobs table that are known only when a job is over: no simulation shows them.
OUTCOMES: Final = frozenset(
    {
        *("start_time", "end_time", "duration_s", "queueing_delay_s", "status", "status_raw", "num_attempts"),
        *("censoring", "flags", "extra"),
    }
)
_NOBODY = np.empty(0, dtype=np.int64)


class Scene:
    """The part of ``Simulation`` that changes nothing."""

    def _set_up(
        self,
        prepared: Prepared,
        costs: Costs,
        *,
        owner: Sequence[object] | None = None,
        half_life_s: float = math.inf,
        nodes: Events | None = None,
        watch: Watch = NOBODY,
    ) -> None:
        self.prepared = prepared
        self.costs = costs
        self.nodes = nodes
        self.sink = watch.sink
        codes, self.owners = (_NOBODY, []) if owner is None else owner_codes(owner)
        self.kept: Kept = make_kept(prepared, costs, owner=codes, half_life_s=half_life_s)
        work = Work(
            submit=prepared.submit,
            job_class=prepared.job_class,
            run=prepared.run,
            column=prepared.column,
            classes=prepared.classes,
            first_entry=prepared.first_entry,
        )
        self.log: Log = _empty_log(prepared, None if watch.sink is None else make_tape(prepared.hw, work))
        self.log.counters[UNTIL] = watch.until_us
        self.box = _box_of(Steps(prepared.hw, work, self.log, self.kept, nodes))
        self.now_us = 0
        self.is_over = len(prepared.accepted) == 0
        self.is_cut = False  # over because more would come after the last instant that was asked for
        self._timers: list[int] = []
        self._asks: dict[tuple[int, int], I64 | None] = {}
        self.num_vcs = prepared.num_vcs
        self._all_rows = _fixed(np.arange(len(prepared.accepted)))
        self.vc: I64 = prepared.classes[prepared.job_class, _place.VC]
        self.milli: I64 = self.kept.milli[prepared.job_class]
        self.work_us: I64 = self.kept.left.copy()
        self.submit_s = _fixed(prepared.submit / US)
        self.predicted_s = _fixed(prepared.predicted_log / US)
        self.num_gpus = _fixed(self.milli / MILLI)

    @property
    def now_s(self) -> float:
        """The instant [s from the first submission]."""
        return self.now_us / US

    @property
    def waiting(self) -> JobsView:
        """All waiting jobs."""
        return JobsView(self, self._rows(self.kept.waiting))

    @property
    def running(self) -> JobsView:
        """All running jobs."""
        return JobsView(self, self._rows(self.kept.running))

    def waiting_in(self, vc: int) -> JobsView:
        """Waiting jobs of one VC, by its number."""
        return JobsView(self, self._of_vc(self.kept.waiting, vc))

    def running_in(self, vc: int) -> JobsView:
        """Running jobs of one VC, by its number."""
        return JobsView(self, self._of_vc(self.kept.running, vc))

    def view(self, rows: Iterable[int]) -> JobsView:
        """Some jobs, whatever they are at."""
        return JobsView(self, np.sort(np.asarray(rows, dtype=np.int64)))

    def _rows(self, roster: Any) -> I64:
        if self.num_vcs == 1:
            return self._of_vc(roster, 0)
        return np.sort(np.concatenate([self._of_vc(roster, v) for v in range(self.num_vcs)]))

    def _of_vc(self, roster: Roster, vc: int) -> I64:
        """Rows of a VC's jobs; they stay what they are when jobs join and leave."""
        first, num = int(roster.first[vc]), int(roster.length[vc])
        if num == 0:
            return _NOBODY
        job = roster.job
        low, high = int(job[first]), int(job[first + num - 1])
        return self._all_rows[low : high + 1] if high - low == num - 1 else job[first : first + num].copy()

    def is_running(self, row: int) -> bool:
        """Whether a job holds its GPUs now."""
        return bool(self.kept.status[row] == RUNS)

    def _ask_in(self, job_class: int, vc: int) -> I64 | None:
        """Row of the class table of a job that asks in another VC for what it asks at home; None if it has no room.

        Room: a job's entries are laid out for the nodes of its own VC; smaller nodes may need more.
        """
        if (job_class, vc) not in self._asks:
            ask = self.prepared.classes[job_class].copy()
            ask[_place.VC] = vc
            both = np.stack([self.prepared.classes[job_class], ask])
            at_home, there = _most_entries(both, self.prepared.hw)
            self._asks[job_class, vc] = ask if there <= at_home else None
        return self._asks[job_class, vc]

    @property
    def num_waiting(self) -> int:
        """Number of waiting jobs."""
        return int(self.kept.waiting.length.sum())

    @property
    def has_more_to_come(self) -> bool:
        """Whether anything will happen by itself: a job end or arrive, a node go or come, a timer ring."""
        return self._lives_on() or bool(self._timers)

    def _lives_on(self) -> bool:
        """Whether anything will happen without a timer."""
        counters = self.log.counters
        if self.kept.config[NEXT] < len(self.prepared.submit) or counters[RUNNING] > 0:
            return True
        nodes = self.nodes
        return bool(counters[WAITING] > 0 and nodes is not None and nodes.facts[NEXT_EVENT] < len(nodes.time))

    def can_start(self, row: int) -> bool:
        """Whether a job would find room now."""
        return bool(_kernel.fits(self.box, row))

    @property
    def is_stuck(self) -> bool:
        """Whether all that will ever happen are timers, while none of those who wait would find room.

        So it is when the nodes that they need are gone for good.
        """
        if self.nodes is None or self._lives_on():
            return False
        return not any(map(self.can_start, self.one_of_each()))

    def one_of_each(self) -> list[int]:
        """One waiting job of every class: of those who ask for the same in the same VC."""
        rows = self.waiting.row
        return rows[np.unique(self.prepared.job_class[rows], return_index=True)[1]].tolist()  # type: ignore[no-any-return]

    @property
    def num_running(self) -> int:
        """Number of running jobs."""
        return int(self.kept.running.length.sum())

    @property
    def touched(self) -> list[int]:
        """VCs where something happened at this instant, in the order in which it did."""
        told = self.log.touched
        return told[1 : told[0] + 1].tolist()  # type: ignore[no-any-return]

    @property
    def ended(self) -> I64:
        """Rows of the jobs that ended at this instant."""
        return self.kept.ended[: self.kept.config[NUM_ENDED]].copy()

    @property
    def started(self) -> I64:
        """Rows of the jobs that started since the last ``advance``, in the order in which they did."""
        return self.kept.started[: self.kept.config[NUM_STARTED]].copy()

    @property
    def num_started(self) -> int:
        """Number of starts since the last ``advance``."""
        return int(self.kept.config[NUM_STARTED])

    @property
    def free_gpus(self) -> dict[str | None, float]:
        """Free GPUs by type, shares of devices included; the type is null where the cluster does not say it.

        What is free on nodes that are out does not count.
        """
        hw = self.prepared.hw
        free = self._free_milli()
        return {
            name: float(free[hw.groups[:, TYPE] == t].sum()) / MILLI for t, name in enumerate(self.prepared.gpu_types)
        }

    def free_gpus_in(self, vc: int) -> float:
        """Free GPUs of one VC, shares of devices included."""
        bounds = self.prepared.hw.vc_groups
        return float(self._free_milli()[bounds[vc] : bounds[vc + 1]].sum()) / MILLI

    def _free_milli(self) -> I64:
        """Free milli-GPUs of every group of nodes."""
        hw = self.prepared.hw
        if len(hw.room) == 0:
            return hw.counts[:, FREE_GPUS] * MILLI
        by_group = np.bincount(hw.group[hw.device_node], weights=hw.room, minlength=len(hw.groups))
        return np.rint(by_group).astype(np.int64)

    @cached_property
    def job_ids(self) -> list[str]:
        """Id of the job of every row."""
        return self.prepared.jobs["job_id"][self.prepared.accepted].to_list()

    def nodes_of(self, row: int) -> list[str]:
        """Ids of the nodes that a job holds GPUs of, or held last; empty if it never started."""
        if self.log.start[row] < 0:
            return []
        first, stop = self.prepared.first_entry[row : row + 1], self.log.stop_entry[row : row + 1]
        nodes = np.empty(int(stop[0] - first[0]), dtype=np.int64)
        num = list_nodes(self.prepared.hw, self.log.held, first, stop, nodes, np.zeros(1, dtype=np.int64))
        return self.prepared.node_ids[nodes[:num]].to_list()

    @cached_property
    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        return {}

    def column(self, name: str) -> npt.NDArray[Any]:
        """Column of the jobs table, one value per row; times in microseconds, null as NaN or None."""
        if name not in self._columns:
            jobs = self.prepared.jobs
            if name not in jobs.columns or name in OUTCOMES:
                known = [column for column in jobs.columns if column not in OUTCOMES]
                raise UnknownNameError(kind="column of a simulation", found=name, known=known)
            self._columns[name] = jobs[name][self.prepared.accepted].to_physical().to_numpy()
        return self._columns[name]

    def owner_use_gpu_s(self) -> F64:
        """GPU time that every one of ``owners`` got until now, what lies back a half-life counting half [GPU-s]."""
        use = self.kept.use
        since = self.now_us - use.at
        half_life = float(use.half_life[0])
        if math.isinf(half_life):
            total = use.gpu_time + use.milli * since
        else:
            lost = -np.expm1(-math.log(2.0) * since / half_life)
            total = use.gpu_time + (use.milli * (half_life / math.log(2.0)) - use.gpu_time) * lost
        return total / (MILLI * US)


def _fixed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, which nobody may write to."""
    values.flags.writeable = False
    return values
