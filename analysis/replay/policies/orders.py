"""Policies with an order that never changes: a job's key is known at its submission."""

from __future__ import annotations

from typing import Final

import polars as pl

from analysis.errors import UnknownNameError, UsageError
from analysis.replay.policies.registry import POLICIES, Policy, policy

__all__ = [
    "edf",
    "edf_skip",
    "fifo",
    "fifo_skip",
    "ljf",
    "ljf_skip",
    "multifactor",
    "multifactor_skip",
    "qssf",
    "qssf_fastest",
    "qssf_skip",
    "sjf",
    "sjf_fastest",
    "sjf_skip",
    "smallest_first",
    "smallest_first_skip",
]

TIME = pl.Datetime("us", "UTC")
#: Columns that some of these orders read where they are there.
OPTIONAL: Final[dict[str, pl.DataType]] = {"deadline_time": TIME, "priority": pl.Float64()}
#: Later than any instant: whoever has no deadline comes behind everybody who has one. [us]
NO_DEADLINE_US: Final = 2**62
US_PER_S: Final = 1e6


def static_order(order: str) -> Policy:
    """The policy of that name, whose key never changes.

    Raises
    ------
    UnknownNameError, UsageError
        If there is none, or its key moves.
    """
    if order not in POLICIES:
        raise UnknownNameError(kind="order", found=order, known=_orders())
    if not isinstance(POLICIES[order].rule, pl.Expr):
        msg = f"order: found {order!r}, whose key moves; expected one of {', '.join(_orders())}."
        raise UsageError(msg)
    return POLICIES[order]


def _orders() -> list[str]:
    return [name for name, one in POLICIES.items() if one.trait == "strict" and isinstance(one.rule, pl.Expr)]


def _predicted_gpu_time() -> pl.Expr:
    # In milli-GPUs times microseconds: whole numbers, exact up to 2**53, so that equal products are equal.
    return (pl.col("num_gpus") * 1e3).round() * (pl.col("predicted_duration_s") * 1e6).round()


def _deadline() -> pl.Expr:
    return pl.col("deadline_time").cast(TIME).to_physical().fill_null(NO_DEADLINE_US)


def _points(seconds_per_gpu: float, seconds_per_priority: float) -> pl.Expr:
    worth = pl.col("num_gpus") * seconds_per_gpu + pl.col("priority").fill_null(0.0) * seconds_per_priority
    return pl.col("submit_time").to_physical() - (worth * US_PER_S).round().cast(pl.Int64)


@policy(trait="strict")
def fifo() -> pl.Expr:
    """First come, first served; the head blocks."""
    return pl.col("submit_time")


@policy(trait="strict")
def sjf() -> pl.Expr:
    """Shortest (predicted) duration first; the head blocks."""
    return pl.col("predicted_duration_s")


@policy(trait="strict")
def ljf() -> pl.Expr:
    """Longest (predicted) duration first; the head blocks."""
    return -pl.col("predicted_duration_s")


@policy(trait="strict")
def qssf() -> pl.Expr:
    """Least (predicted) GPU time first; the head blocks.

    References
    ----------
    .. [1] Q. Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters",
       SC 2021, doi:10.1145/3458817.3476223. (There with preemption off, as here.)
    """
    return _predicted_gpu_time()


@policy(trait="strict")
def smallest_first() -> pl.Expr:
    """Fewest GPUs first; the head blocks."""
    return pl.col("num_gpus")


@policy(trait="strict", optional={"deadline_time": TIME})
def edf() -> pl.Expr:
    """Earliest deadline first, those without one last; the head blocks.

    A job's deadline is the instant in the column ``deadline_time``; a job without one, and every job of a table without
    that column, comes after all that have one, in order of submission. A deadline that has passed changes nothing: the
    order stays, and nobody is killed or refused. Without preemption, so that Liu and Layland's optimality of EDF on one
    preemptive machine does not hold here.

    References
    ----------
    .. [1] C. L. Liu and J. W. Layland, "Scheduling Algorithms for Multiprogramming in a Hard-Real-Time Environment",
       J. ACM 20(1), 1973, doi:10.1145/321738.321743.
    """
    return _deadline()


@policy(trait="strict", optional={"priority": pl.Float64()})
def multifactor(*, seconds_per_gpu: float = 3600.0, seconds_per_priority: float = 3600.0) -> pl.Expr:
    """Slurm's multifactor priority: age, size and a given priority, linear; the head blocks.

    Slurm adds weighted factors
    (``weight_age * age / max_age + weight_size * size / cluster_size + ...``), highest first.
    While all jobs grow older at the same pace the difference between two jobs never changes, so that the order is
    static: what counts is how much age one GPU, or one point of priority, is worth. Supported are

    * age: grows without end (Slurm's stops after PriorityMaxAge, by default 7 days: who waits longer is ordered by the
      other factors there, and still by age here);
    * size: a GPU is worth ``seconds_per_gpu`` = PriorityWeightJobSize / PriorityWeightAge * PriorityMaxAge / (GPUs of
      the cluster) seconds of age, negative for PriorityFavorSmall;
    * the column ``priority`` (a site's QOS, partition or nice value; missing or null = 0), a point of which is worth
      ``seconds_per_priority`` seconds.

    Not supported: fair share, which changes with use.

    Parameters
    ----------
    seconds_per_gpu : float, default 3600
        Age that one GPU is worth. [s]
    seconds_per_priority : float, default 3600
        Age that one point of ``priority`` is worth. [s]

    Returns
    -------
    Expr
        Virtual submission time [us].

    References
    ----------
    .. [1] SchedMD, "Multifactor Priority Plugin", https://slurm.schedmd.com/priority_multifactor.html
    """
    return _points(seconds_per_gpu, seconds_per_priority)


@policy(trait="skip")
def fifo_skip() -> pl.Expr:
    """In order of submission, passing over what does not fit."""
    return pl.col("submit_time")


@policy(trait="skip")
def sjf_skip() -> pl.Expr:
    """Shortest (predicted) duration first, passing over what does not fit."""
    return pl.col("predicted_duration_s")


@policy(trait="skip")
def ljf_skip() -> pl.Expr:
    """Longest (predicted) duration first, passing over what does not fit."""
    return -pl.col("predicted_duration_s")


@policy(trait="skip")
def qssf_skip() -> pl.Expr:
    """Least (predicted) GPU time first, passing over what does not fit."""
    return _predicted_gpu_time()


@policy(trait="skip")
def smallest_first_skip() -> pl.Expr:
    """Fewest GPUs first, passing over what does not fit."""
    return pl.col("num_gpus")


@policy(trait="skip", optional={"deadline_time": TIME})
def edf_skip() -> pl.Expr:
    """Earliest deadline first as ``edf``, passing over what does not fit."""
    return _deadline()


@policy(trait="skip", optional={"priority": pl.Float64()})
def multifactor_skip(*, seconds_per_gpu: float = 3600.0, seconds_per_priority: float = 3600.0) -> pl.Expr:
    """Slurm's multifactor priority as ``multifactor``, passing over what does not fit."""
    return _points(seconds_per_gpu, seconds_per_priority)


@policy(trait="fastest")
def sjf_fastest() -> pl.Expr:
    """Earliest (predicted) finish over the (job, GPU type) pairs that fit now."""
    return pl.col("predicted_duration_s")


@policy(trait="fastest")
def qssf_fastest() -> pl.Expr:
    """Least (predicted) GPU time over the (job, GPU type) pairs that fit now."""
    return _predicted_gpu_time()
