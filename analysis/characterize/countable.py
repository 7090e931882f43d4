"""What whole microseconds can count: GPU time is summed as integers, which have an end."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis import metrics
from analysis.errors import UsageError
from analysis.metrics import S_PER_H, US_PER_S

__all__ = ["MOST_GPU_S", "ensure_countable"]

#: Half of what 63 bits hold in GPU-microseconds: 1.3 thousand million GPU-hours, a hundred thousand GPUs for a year
#: and a half [GPU-seconds].
MOST_GPU_S: Final = 2**62 / US_PER_S
NUM_NAMED: Final = 3


def ensure_countable(jobs: pl.LazyFrame) -> None:
    """Refuse a log whose GPU time is beyond what its sums can hold, where they would silently begin again below 0.

    Parameters
    ----------
    jobs : LazyFrame, one row per job
        Needs ``job_id``, ``num_gpus`` and ``duration_s`` [s]; null counts nothing.

    Raises
    ------
    UsageError
        If all GPU time together is more than ``MOST_GPU_S``.

    Examples
    --------
    >>> ensure_countable(pl.LazyFrame({"job_id": ["a"], "num_gpus": [8.0], "duration_s": [86_400.0]}))
    """
    gpu_s = metrics.gpu_s()
    total = jobs.select(gpu_s.sum()).collect(engine="streaming").item()
    if total <= MOST_GPU_S:
        return
    largest = jobs.select("job_id", "num_gpus", "duration_s", gpu_s).filter(gpu_s.is_not_null())
    named = [
        f"{job_id} ({gpus:g} GPUs for {run_s:g} s)"
        for job_id, gpus, run_s, _ in largest.top_k(NUM_NAMED, by="gpu_s").collect().iter_rows()
    ]
    msg = (
        f"jobs table: found {total / S_PER_H:.3g} GPU-hours in all, expected at most {MOST_GPU_S / S_PER_H:.3g}; the "
        f"largest jobs are {', '.join(named)}. Look at their num_gpus and duration_s, or leave them out: "
        '--where "duration_s < 1e9", or where=pl.col("duration_s") < 1e9.'
    )
    raise UsageError(msg)
