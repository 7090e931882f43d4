"""Metrics of jobs and schedules, each defined once; loaders, characterization, plots and replay all call these.

Every metric is an expression over a table with the columns of the jobs table or of a schedule; null where what it
needs is null, so that an unfinished job never enters a mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

__all__ = [
    "METRICS",
    "bounded_slowdown",
    "gpu_hours",
    "gpu_s",
    "jain_index",
    "jct_s",
    "makespan_s",
    "queueing_delay_s",
    "span_s",
    "weighted_gpu_hours",
]

US_PER_S: Final = 1_000_000
S_PER_H: Final = 3600.0


def _seconds(later: str, earlier: str) -> pl.Expr:
    return (pl.col(later) - pl.col(earlier)).dt.total_microseconds() / US_PER_S


def jct_s() -> pl.Expr:
    """Job completion time: last end minus submission [s].

    Examples
    --------
    >>> from datetime import datetime, timedelta
    >>> t = datetime(2024, 1, 1)
    >>> jobs = pl.DataFrame({"submit_time": [t, t], "end_time": [t + timedelta(seconds=90), None]})
    >>> jobs.select(jct_s()).to_series().to_list()
    [90.0, None]
    """
    return _seconds("end_time", "submit_time").alias("jct_s")


def queueing_delay_s() -> pl.Expr:
    """Queueing delay: first start minus submission, 0 where clocks disagree and the start comes first [s]."""
    return _seconds("start_time", "submit_time").clip(lower_bound=0).alias("queueing_delay_s")


def span_s() -> pl.Expr:
    """Time from the first start to the last end, pauses and requeues included [s]; null if the end comes first."""
    span = _seconds("end_time", "start_time")
    return pl.when(span >= 0).then(span).alias("span_s")


def bounded_slowdown(*, floor_s: float = 10.0, jct: pl.Expr | None = None) -> pl.Expr:
    """Bounded slowdown: JCT over duration, with a floor on the duration so that tiny jobs do not rule the mean.

    Parameters
    ----------
    floor_s : float, default 10
        Shorter durations count as this long. [s]
    jct : Expr, optional
        The JCT, by default the column ``jct_s``. [s]

    Returns
    -------
    Expr of float64
        At least 1; null where JCT or duration is null. Needs ``duration_s``. [unitless]

    Raises
    ------
    ValueError
        If ``floor_s`` is not positive.

    References
    ----------
    .. [1] D. G. Feitelson and L. Rudolph, "Metrics and Benchmarking for Parallel Job Scheduling", JSSPP 1998,
       doi:10.1007/BFb0053978.

    Examples
    --------
    >>> jobs = pl.DataFrame({"jct_s": [61.0, 5.0, None], "duration_s": [1.0, 5.0, 9.0]})
    >>> jobs.select(bounded_slowdown()).to_series().to_list()
    [6.1, 1.0, None]
    """
    if floor_s <= 0:
        msg = f"bounded_slowdown: floor_s is {floor_s}; it must be above 0 seconds."
        raise ValueError(msg)
    ratio = (pl.col("jct_s") if jct is None else jct) / pl.col("duration_s").clip(lower_bound=floor_s)
    return ratio.clip(lower_bound=1).alias("bounded_slowdown")


def gpu_s() -> pl.Expr:
    """Service that a job consumes: GPUs times duration [GPU-seconds]."""
    return (pl.col("num_gpus") * pl.col("duration_s")).alias("gpu_s")


def gpu_hours() -> pl.Expr:
    """Service that a job consumes: GPUs times duration [GPU-hours].

    Examples
    --------
    >>> pl.DataFrame({"num_gpus": [2.0], "duration_s": [5400.0]}).select(gpu_hours()).item()
    3.0
    """
    return (gpu_s() / S_PER_H).alias("gpu_hours")


def weighted_gpu_hours(weights: Mapping[str, float]) -> pl.Expr:
    """Service with a weight per GPU type, such as a price: GPU-hours times the weight of the job's ``gpu_type``.

    Parameters
    ----------
    weights : mapping of str to float
        Weight of one hour of a GPU of each type. [unit of the weight per GPU-hour]

    Returns
    -------
    Expr of float64
        Null where the type is null or has no weight: not known, not 0. [unit of the weight]

    Examples
    --------
    >>> jobs = pl.DataFrame({"gpu_type": ["T4", "A100", "K80"], "num_gpus": [1.0] * 3, "duration_s": [72000.0] * 3})
    >>> jobs.select(weighted_gpu_hours({"T4": 1, "A100": 8})).to_series().to_list()
    [20.0, 160.0, None]
    """
    weight = pl.col("gpu_type").replace_strict(dict(weights), default=None, return_dtype=pl.Float64)
    return (gpu_hours() * weight).alias("weighted_gpu_hours")


def jain_index(values: pl.Expr) -> pl.Expr:
    """Jain's fairness index of what each of n users got: (sum x)^2 / (n sum x^2).

    Parameters
    ----------
    values : Expr
        One value per user, at least 0; null: left out.

    Returns
    -------
    Expr of one float64
        From 1 / n, one user has all, to 1, all have the same (also if that is 0); null without values. [unitless]

    References
    ----------
    .. [1] R. Jain, D. Chiu and W. Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource Allocation
       in Shared Computer Systems", DEC-TR-301, 1984.

    Examples
    --------
    >>> slowdown = pl.DataFrame({"x": [1.0, 1.0, 2.0, None]})
    >>> round(slowdown.select(jain_index(pl.col("x"))).item(), 4)
    0.8889
    """
    squares = (values * values).sum()
    index = pl.when(squares > 0).then(values.sum() ** 2 / (values.count() * squares)).otherwise(1.0)
    return pl.when(values.count() > 0).then(index).alias("jain_index")


def makespan_s() -> pl.Expr:
    """Makespan of a set of jobs: last end minus first submission [s]; null if nothing ended."""
    span = pl.col("end_time").max() - pl.col("submit_time").min()
    return (span.dt.total_microseconds() / US_PER_S).alias("makespan_s")


#: Every metric by name; the contract test walks this.
METRICS: Final[dict[str, Callable[[], pl.Expr]]] = {
    "jct_s": jct_s,
    "queueing_delay_s": queueing_delay_s,
    "span_s": span_s,
    "bounded_slowdown": bounded_slowdown,
    "gpu_s": gpu_s,
    "gpu_hours": gpu_hours,
    "makespan_s": makespan_s,
}
