"""A Gymnasium environment: an agent decides who starts next, on the same engine as every replay.

Needs the package gymnasium: ``pip install 'gpu-hindcast[gym]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from analysis.errors import UnknownNameError, UsageError
from analysis.replay._hardware import COUNT, SIZE, TYPE
from analysis.replay.cluster import Cluster
from analysis.replay.result import ReplayResult
from analysis.replay.steps.reward import REWARDS, Debt
from analysis.replay.steps.simulation import Simulation

if TYPE_CHECKING:
    import gymnasium
else:
    try:
        gymnasium = import_module("gymnasium")
    except ImportError as error:
        msg = "environment: the package 'gymnasium' is not installed; pip install 'gpu-hindcast[gym]'."
        raise UsageError(msg) from error

__all__ = ["FEATURES", "Episode", "SchedulingEnv"]

Observation = dict[str, npt.NDArray[np.float32]]
#: What is told of a waiting job; seconds x are told as x / (x + 1 hour), so that all lies in 0 to 1.
FEATURES: Final = ("is_there", "gpus_over_cluster", "predicted", "waited", "fits_now")
HOUR_S: Final = 3600.0


@dataclass(frozen=True)
class Episode:
    """What an episode is.

    Attributes
    ----------
    num_jobs : int or None
        Consecutive jobs of the log, which ones is drawn at every ``reset``; None: all.
    num_slots : int
        How many of the waiting jobs the agent sees and may choose from: the first in order of submission.
    reward : {"jct", "wait", "slowdown"}
        What the rewards of an episode sum up to, times -1: the jobs' completion times [s], their waits [s], or their
        bounded slowdowns.
    max_steps : int or None
        Actions after which an episode is truncated; None: 20 per job.
    """

    num_jobs: int | None = 256
    num_slots: int = 16
    reward: str = "jct"
    max_steps: int | None = None

    def __post_init__(self) -> None:
        if self.reward not in REWARDS:
            raise UnknownNameError(kind="reward", found=self.reward, known=REWARDS)
        wrong = [
            f"{name} is {value}"
            for name in ("num_jobs", "num_slots", "max_steps")
            if (value := getattr(self, name)) is not None and value < 1
        ]
        if wrong:
            msg = f"environment: {', '.join(wrong)}; expected 1 or more."
            raise UsageError(msg)


class SchedulingEnv(gymnasium.Env[Observation, np.int64]):
    """One decision at a time: start one of the first waiting jobs, or let time pass.

    *Actions.* 0 … N - 1: start the k-th waiting job in order of submission (``Episode.num_slots`` = N), where the
    placement puts it; time stands still. N: wait for the next instant at which something happens. Instants at which
    none of the N could start are passed over. What cannot be done (``action_masks``) does nothing, and
    ``info["is_invalid"]`` says so. An agent that takes action 0 whenever it may and else waits is strict FIFO, where
    the cluster is not divided into VCs.

    *Observation.* A dictionary of float32 arrays in 0 … 1: ``jobs`` [N, ``FEATURES``]; ``free``: free share of the
    GPUs of every type; ``load``: GPUs that waiting jobs ask for, w / (w + GPUs of the cluster), and their number,
    q / (q + N).

    Nodes that are out (``cluster.outages``) have nothing free. A job that is killed with its node waits again in its
    old place; one that waits for nodes that are gone for good does not keep the episode going.

    *Rewards* are minus what grew since the last action, see ``Episode.reward``; for ``jct`` and ``wait`` they are exact
    to the microsecond.

    An episode is over when all its jobs have ended that can; it is truncated after ``Episode.max_steps`` actions.

    Parameters
    ----------
    jobs : DataFrame of polars, pandas or Arrow, one row per job
        As ``replay`` takes them; jobs that cannot run are left out.
    cluster : Cluster
        Where.
    episode : Episode, optional
        By default 256 jobs, 16 slots, rewards by job completion time.
    predicted : str, optional
        Column of predicted durations [s]; by default the true ones.
    placement : str, default "consolidate"
        A name from ``PLACEMENTS``.
    checkpoint_interval_s : float, optional
        Work from one checkpoint of a job to the next, which matters where nodes fail; None: jobs write none. [s]

    Raises
    ------
    UsageError
        If gymnasium is not installed, or no job can run.

    Examples
    --------
    >>> import polars as pl
    >>> from datetime import datetime
    >>> t = datetime(2024, 1, 1)
    >>> jobs = pl.DataFrame({"job_id": ["a", "b"], "submit_time": [t] * 2, "num_gpus": [2, 4], "duration_s": [10, 5]})
    >>> env = SchedulingEnv(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=4), episode=Episode(num_slots=2))
    >>> observation, info = env.reset(seed=1)
    >>> env.action_masks().tolist()
    [True, True, False]
    >>> observation, reward, is_over, is_cut, info = env.step(1)  # b until 5 s, then a may start
    >>> reward, is_over
    (-10.0, False)
    >>> _, reward, is_over, _, _ = env.step(0)
    >>> reward, is_over
    (-10.0, True)
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium says

    def __init__(
        self,
        jobs: Any,
        *,
        cluster: Cluster,
        episode: Episode | None = None,
        predicted: str | None = None,
        placement: str = "consolidate",
        checkpoint_interval_s: float | None = None,
    ) -> None:
        self.episode = episode or Episode()
        self._how: dict[str, Any] = {"cluster": cluster, "predicted": predicted, "placement": placement}
        self._how["checkpoint_interval_s"] = checkpoint_interval_s
        first = Simulation(jobs, **self._how)
        self._jobs = first.prepared.jobs[first.prepared.accepted]
        if self._jobs.height == 0:
            msg = "environment: none of the jobs can run on this cluster; found nothing to decide."
            raise UsageError(msg)
        self.num_jobs = min(self.episode.num_jobs or self._jobs.height, self._jobs.height)
        self._max_steps = self.episode.max_steps or 20 * self.num_jobs
        self._gpus = _gpus_by_type(first)
        slots = self.episode.num_slots
        self.action_space = gymnasium.spaces.Discrete(slots + 1)
        space: Any = gymnasium.spaces.Dict(
            {
                "jobs": gymnasium.spaces.Box(0.0, 1.0, (slots, len(FEATURES)), np.float32),
                "free": gymnasium.spaces.Box(0.0, 1.0, (len(self._gpus),), np.float32),
                "load": gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32),
            }
        )
        self.observation_space = space
        self._begin(0)

    def _begin(self, first: int) -> None:
        self.simulation = Simulation(self._jobs[first : first + self.num_jobs], **self._how)
        self._debt = Debt(self.simulation, self.episode.reward)
        self._num_steps = 0
        # Where the first nodes are out, time passes before the first action; its reward bears that.
        self._go_on()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode.

        Parameters
        ----------
        seed : int, optional
            Of the draw of the window of the log.
        options : dict, optional
            ``first``: number of the window's first job, instead of a draw.

        Returns
        -------
        observation, info
            As ``step``.
        """
        super().reset(seed=seed)
        last = self._jobs.height - self.num_jobs
        first = int((options or {}).get("first", self.np_random.integers(0, last + 1)))
        if not 0 <= first <= last:
            msg = f"environment: found first={first}; expected 0 to {last}, of {self._jobs.height} jobs."
            raise UsageError(msg)
        self._begin(first)
        return self._observe(), self._info(is_invalid=False)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Do one thing, and go on to where the next one can be done.

        Returns
        -------
        observation, reward, terminated, truncated, info
            ``info`` has ``action_mask`` (int8), ``is_invalid``, ``now_s`` and ``first_job_id``.
        """
        sim, choice = self.simulation, int(action)
        is_invalid = not self._mask[choice]
        if not is_invalid:
            if choice < self.episode.num_slots:
                sim.start(self._rows[choice])
            else:
                sim.advance()
            self._go_on()
        self._num_steps += 1
        reward = -self._debt.growth()
        is_cut = not self._is_over and self._num_steps >= self._max_steps
        return self._observe(), reward, self._is_over, is_cut, self._info(is_invalid=is_invalid)

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Which actions can be done now, one Boolean each."""
        return self._mask.copy()

    def result(self) -> ReplayResult:
        """The episode's schedule so far, as ``replay`` gives it."""
        return self.simulation.result("agent")

    def _go_on(self) -> None:
        """Pass over the instants at which nothing can be decided."""
        sim = self.simulation
        while True:
            self._rows, self._mask = self._choices()
            if self._mask[:-1].any() or sim.is_over:
                break
            sim.advance(until_fits=True)
        self._is_over = sim.is_over

    def _choices(self) -> tuple[Sequence[int], npt.NDArray[np.bool_]]:
        sim, slots = self.simulation, self.episode.num_slots
        rows = sim.waiting.row[:slots].tolist()
        mask = np.zeros(slots + 1, dtype=np.bool_)
        job_class = sim.prepared.job_class
        fits: dict[int, bool] = {}
        for k, row in enumerate(rows):
            c = int(job_class[row])
            if c not in fits:
                fits[c] = sim.can_start(row)
            mask[k] = fits[c]
        mask[slots] = sim.has_more_to_come
        return rows, mask

    def _observe(self) -> Observation:
        sim, slots = self.simulation, self.episode.num_slots
        shown = sim.view(self._rows)
        waiting = sim.waiting
        total = float(self._gpus.sum())
        jobs = np.zeros((slots, len(FEATURES)), dtype=np.float32)
        columns = (
            np.ones(len(shown)),
            np.minimum(shown.num_gpus / total, 1.0),
            shown.predicted_s / (shown.predicted_s + HOUR_S),
            shown.waited_s / (shown.waited_s + HOUR_S),
            self._mask[: len(shown)],
        )
        jobs[: len(shown)] = np.stack(columns, axis=1)
        asked = float(waiting.num_gpus.sum())
        free = np.array(list(sim.free_gpus.values())) / np.maximum(self._gpus, 1e-9)
        load = np.array([asked / (asked + total), len(waiting) / (len(waiting) + slots)])
        return {"jobs": jobs, "free": free.astype(np.float32), "load": load.astype(np.float32)}

    def _info(self, *, is_invalid: bool) -> dict[str, Any]:
        return {
            "action_mask": self._mask.astype(np.int8),
            "is_invalid": is_invalid,
            "now_s": self.simulation.now_s,
            "first_job_id": self.simulation.job_ids[0],
        }


def _gpus_by_type(sim: Simulation) -> npt.NDArray[np.float64]:
    groups = sim.prepared.hw.groups
    gpus = groups[:, SIZE] * groups[:, COUNT]
    by_type = np.bincount(groups[:, TYPE], weights=gpus, minlength=len(sim.prepared.gpu_types))
    return by_type.astype(np.float64)
