"""Published summary figures that synthetic traces are calibrated to (``published.toml`` beside this file).

The figures are the facts that authors state about their logs; sources stand in the file's head.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any, Final

from analysis.errors import UnknownNameError

__all__ = ["DEFAULT_LOAD", "PublishedCpuJobs", "PublishedLog", "published_log", "published_logs"]

#: Offered load where the source's window does not tell it; Helios' own is 0.73 to 0.85.
DEFAULT_LOAD: Final = 0.75
S_PER_DAY: Final = 86_400


@dataclass(frozen=True, kw_only=True)
class PublishedCpuJobs:
    """What is published about the jobs without GPUs; attributes as in `PublishedLog`."""

    mean_duration_s: float
    median_duration_s: float
    mean_queueing_delay_s: float
    median_queueing_delay_s: float
    status_shares: tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class PublishedLog:
    """Published figures of one log, of its GPU jobs unless the name says otherwise.

    Attributes
    ----------
    num_gpus : int
        GPUs of the cluster.
    gpu_type : str or None
        Their model; null = the source does not say, or several without a split.
    num_vcs : int
        Virtual clusters.
    start : date
        First day of the log, in ``time_zone``.
    window_days : int or None
        Length of the log; null = follows from `DEFAULT_LOAD`.
    num_jobs, num_cpu_jobs, num_gpu_jobs : int
        Jobs in all, without and with GPUs.
    mean_duration_s, median_duration_s, max_duration_s : float
        Run time [s].
    mean_queueing_delay_s, median_queueing_delay_s : float
        First start minus submission [s].
    mean_gpus : float
        GPUs per job.
    max_gpus : int
        Widest job.
    status_shares : tuple of 3 floats
        Share of jobs completed, cancelled, failed (with timeout and node_fail).
    gpu_time : tuple of 3 floats
        GPU-seconds of the same three.
    cpu : PublishedCpuJobs or None
        Figures of the jobs without GPUs; null = the log has none.
    """

    name: str
    num_gpus: int
    num_vcs: int
    start: date
    time_zone: str
    citation: str
    num_jobs: int
    num_cpu_jobs: int
    num_gpu_jobs: int
    mean_duration_s: float
    median_duration_s: float
    max_duration_s: float
    mean_queueing_delay_s: float
    median_queueing_delay_s: float
    mean_gpus: float
    max_gpus: int
    status_shares: tuple[float, float, float]
    gpu_time: tuple[float, float, float]
    gpu_type: str | None = None
    window_days: int | None = None
    cpu: PublishedCpuJobs | None = None

    @property
    def mean_gpu_s(self) -> float:
        """GPU time per GPU job [GPU-seconds]."""
        return sum(self.gpu_time) / self.num_gpu_jobs

    @property
    def gpu_time_shares(self) -> tuple[float, float, float]:
        """Share of the GPU time in completed, cancelled and failed jobs."""
        completed, cancelled, failed = (part / sum(self.gpu_time) for part in self.gpu_time)
        return completed, cancelled, failed

    @property
    def offered_load(self) -> float:
        """GPU time over what the cluster could give in the window [unitless]."""
        if self.window_days is None:
            return DEFAULT_LOAD
        return sum(self.gpu_time) / (self.num_gpus * self.window_days * S_PER_DAY)


@cache
def published_logs() -> Mapping[str, PublishedLog]:
    """All published logs by name."""
    text = files("analysis.loaders").joinpath("published.toml").read_text(encoding="utf-8")
    return {name: _log(name, dict(row)) for name, row in tomllib.loads(text).items()}


def published_log(name: str) -> PublishedLog:
    """One published log by name.

    Raises
    ------
    UnknownNameError
        If no figures of that name are there.

    Examples
    --------
    >>> round(published_log("venus").offered_load, 3)
    0.772
    """
    logs = published_logs()
    if name not in logs:
        raise UnknownNameError(kind="published log", found=name, known=logs)
    return logs[name]


def _log(name: str, row: dict[str, Any]) -> PublishedLog:
    cpu = row.pop("cpu", None)
    return PublishedLog(name=name, cpu=PublishedCpuJobs(**_tuples(cpu)) if cpu else None, **_tuples(row))


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
