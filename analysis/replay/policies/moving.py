"""Policies that preempt: a running job may be stopped for one that comes before it in the order.

**The pass.** As without preemption the waiting jobs are taken in the order of their keys (ties by submit_time,
job_id), strict or skip. One that does not fit on what is free may push out running jobs that come *after* it in the
order: they are taken from the last in the order on, one after the other, until it fits; if it does not even then,
nobody is stopped. It is placed as on free GPUs, and then, first in the order first, every victim whose GPUs are all
still free (as many wholly free GPUs on the same nodes, and the room on the same devices for fractions) *is given them
back* and was never stopped. The others wait again and have their turn in the same pass.

**Keys.** The keys of running jobs change only at known instants, and at each of them its VC has a pass: at the end of
jobs, when attained service crosses a threshold, when the minimum run time is over, at the end of a slice. Until its
minimum run time is over a job comes before everybody.

**Work.** A job has as much work as its duration in the log, in microseconds on the hardware of the log. From its start
it works at the speed of the type it runs on. Stopped after t microseconds it has lost its restart cost (not at its
first start) and the checkpoint overhead; the rest of t is done, rounded down to whole microseconds of work. It may
start again on any nodes and any type that it may use. In the schedule start_time is the first start, end_time the last
end, nodes and gpu_type are those of the last start; num_preemptions counts how often it was stopped, wasted_gpu_s is
the GPU time during which it held GPUs and did no work.
"""

from __future__ import annotations

from analysis.replay.policies.registry import policy
from analysis.replay.policies.rules import Costs, MovingKey, SecondsBySize

__all__ = ["gittins", "las", "las_skip", "srtf", "srtf_skip", "time_slicing", "tiresias"]

GPU_HOUR_S = 3600.0
#: As in the code of Tiresias. [GPU-s]
TIRESIAS_THRESHOLDS_GPU_S = (3250.0, 7200.0)


def _remaining(costs: Costs) -> MovingKey:
    return MovingKey("remaining", costs, needs=frozenset({"predicted_duration_s"}))


@policy(trait="strict")
def srtf(
    *, checkpoint_overhead_s: SecondsBySize = 0.0, restart_cost_s: SecondsBySize = 0.0, min_run_s: float = 0.0
) -> MovingKey:
    """Shortest (predicted) remaining time first, with preemption; the head blocks.

    A waiting job's key is its predicted duration less the work that it has done. A running job's counts down by the
    clock from its start, restart or not, beginning with what was left then (on a faster type than the log's, with the
    time that this takes there). A job that outlives its prediction goes below 0 and is the last to be
    stopped.

    Parameters
    ----------
    checkpoint_overhead_s, restart_cost_s, min_run_s
        See ``Costs``.

    Returns
    -------
    MovingKey

    References
    ----------
    .. [1] L. Schrage, "A Proof of the Optimality of the Shortest Remaining Processing Time Discipline", Operations
       Research 16(3), 1968, doi:10.1287/opre.16.3.687.
    """
    return _remaining(Costs(checkpoint_overhead_s, restart_cost_s, min_run_s))


@policy(trait="skip")
def srtf_skip(
    *, checkpoint_overhead_s: SecondsBySize = 0.0, restart_cost_s: SecondsBySize = 0.0, min_run_s: float = 0.0
) -> MovingKey:
    """Shortest (predicted) remaining time first as ``srtf``, passing over what does not fit."""
    return _remaining(Costs(checkpoint_overhead_s, restart_cost_s, min_run_s))


@policy(trait="strict")
def las(
    *,
    thresholds_gpu_s: tuple[float, ...] = (4 * GPU_HOUR_S,),
    checkpoint_overhead_s: SecondsBySize = 0.0,
    restart_cost_s: SecondsBySize = 0.0,
    min_run_s: float = 0.0,
) -> MovingKey:
    """Least attained service first in discrete levels, with preemption; the head blocks.

    Attained service is GPUs times the time that a job held them. A job is in level k once its service has reached the
    k-th threshold; the key is the level, ties by (submit_time, job_id), so that each level is first come, first served.
    Nobody is promoted. With many narrow levels this tends to foreground-background.

    Parameters
    ----------
    thresholds_gpu_s : tuple of float, default 4 GPU-hours
        Rising. [GPU-s]
    checkpoint_overhead_s, restart_cost_s, min_run_s
        See ``Costs``.

    Returns
    -------
    MovingKey

    References
    ----------
    .. [1] J. Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019
       (https://www.usenix.org/conference/nsdi19/presentation/gu).
    .. [2] M. Nuyens and A. Wierman, "The Foreground-Background queue: A survey", Performance Evaluation 65(3-4), 2008,
       doi:10.1016/j.peva.2007.06.028.
    """
    costs = Costs(checkpoint_overhead_s, restart_cost_s, min_run_s)
    return MovingKey("levels", costs, thresholds_gpu_s=tuple(thresholds_gpu_s))


@policy(trait="skip")
def las_skip(
    *,
    thresholds_gpu_s: tuple[float, ...] = (4 * GPU_HOUR_S,),
    checkpoint_overhead_s: SecondsBySize = 0.0,
    restart_cost_s: SecondsBySize = 0.0,
    min_run_s: float = 0.0,
) -> MovingKey:
    """Least attained service first as ``las``, passing over what does not fit."""
    costs = Costs(checkpoint_overhead_s, restart_cost_s, min_run_s)
    return MovingKey("levels", costs, thresholds_gpu_s=tuple(thresholds_gpu_s))


@policy(trait="skip")
def tiresias(
    *,
    thresholds_gpu_s: tuple[float, ...] = TIRESIAS_THRESHOLDS_GPU_S,
    checkpoint_overhead_s: SecondsBySize = 0.0,
    restart_cost_s: SecondsBySize = 0.0,
    min_run_s: float = 0.0,
) -> MovingKey:
    """Tiresias' discretised two-dimensional LAS: ``las_skip`` with the three queues of its code, 3250 and 7200 GPU-s.

    Not taken over from there: its one-minute rounds, its consolidation by model skew, and the promotion of jobs that
    waited long (off by default there).

    References
    ----------
    .. [1] J. Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019
       (https://www.usenix.org/conference/nsdi19/presentation/gu).
    """
    costs = Costs(checkpoint_overhead_s, restart_cost_s, min_run_s)
    return MovingKey("levels", costs, thresholds_gpu_s=tuple(thresholds_gpu_s))


@policy(trait="skip")
def gittins(
    *,
    thresholds_gpu_s: tuple[float, ...] = TIRESIAS_THRESHOLDS_GPU_S,
    service_gpu_s: tuple[float, ...] | None = None,
    checkpoint_overhead_s: SecondsBySize = 0.0,
    restart_cost_s: SecondsBySize = 0.0,
    min_run_s: float = 0.0,
) -> MovingKey:
    """Tiresias' discretised 2D-Gittins index, from a distribution of service, passing over what does not fit.

    Levels as in ``las``. The index of the level [a, b) is P(S <= b | S > a) / E[min(S, b) - a | S > a], where S is the
    service of a job drawn from ``service_gpu_s``; the level with the highest index comes first, ties by the lower
    level, a level that nobody of the distribution reaches last. Inside a level first come, first served.

    Parameters
    ----------
    thresholds_gpu_s : tuple of float
        Rising. [GPU-s]
    service_gpu_s : tuple of float, optional
        Past jobs' GPUs times durations. By default (predicted) GPU time of the replayed jobs themselves: the
        distribution is then known beforehand, which no scheduler does. [GPU-s]
    checkpoint_overhead_s, restart_cost_s, min_run_s
        See ``Costs``.

    Returns
    -------
    MovingKey

    References
    ----------
    .. [1] J. Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019
       (https://www.usenix.org/conference/nsdi19/presentation/gu).
    .. [2] J. C. Gittins, "Bandit Processes and Dynamic Allocation Indices", J. Royal Statistical Society B 41(2), 1979,
       doi:10.1111/j.2517-6161.1979.tb01068.x.
    """
    costs = Costs(checkpoint_overhead_s, restart_cost_s, min_run_s)
    return MovingKey(
        "levels",
        costs,
        needs=frozenset({"num_gpus", "predicted_duration_s"} if service_gpu_s is None else ()),
        thresholds_gpu_s=tuple(thresholds_gpu_s),
        is_gittins=True,
        service_gpu_s=None if service_gpu_s is None else tuple(service_gpu_s),
    )


@policy(trait="skip")
def time_slicing(
    *, quantum_s: float = 60.0, checkpoint_overhead_s: SecondsBySize = 0.0, restart_cost_s: SecondsBySize = 0.0
) -> MovingKey:
    """Round-robin time slicing: whoever waits gets the GPUs of those who have run longest, at the end of each slice.

    Slices end at whole multiples of the quantum after a VC's first submission, on all its nodes at once, so that gangs
    can be swapped for gangs; while nobody waits nothing happens. Waiting jobs stand in line since their
    submission or since they were stopped, and are taken in that order, passing over what does not fit. At the end of a
    slice every running job may be stopped, the one that started longest ago first; between two ends nobody is, and what
    is free goes to whoever fits.

    Parameters
    ----------
    quantum_s : float, default 60
        Length of a slice. [s]
    checkpoint_overhead_s, restart_cost_s
        See ``Costs``.

    Returns
    -------
    MovingKey

    References
    ----------
    .. [1] W. Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI 2018
       (https://www.usenix.org/conference/osdi18/presentation/xiao). Of it only the time slicing: no packing, no
       migration, no grow-shrink.
    """
    return MovingKey("slices", Costs(checkpoint_overhead_s, restart_cost_s), quantum_s=quantum_s)
