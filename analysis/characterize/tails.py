"""How heavy the tail of the durations is: the index of a power law, and the shape of the excesses over a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from analysis.characterize.buckets import BUCKET
from analysis.characterize.censored import Sample, kaplan_meier, ks_distance
from analysis.characterize.fits import BOUNDED_DURATIONS, NOTE, samples
from analysis.characterize.fitted import MIN_ENDED, fit_durations
from analysis.characterize.registry import characterization

__all__ = ["PowerTail", "duration_tail_index", "hill", "power_tail"]

#: Thresholds that are tried, evenly spaced among the distinct durations of the longer half.
NUM_THRESHOLDS: Final = 200
#: A fit that is further off is called poor.
MISFIT: Final = 0.1

TAIL_SCHEMA: Final = {
    "bucket": BUCKET,
    "num_jobs": pl.Int64(),
    "num_tail_jobs": pl.Int64(),
    "threshold_s": pl.Float64(),
    "tail_index": pl.Float64(),
    "tail_index_se": pl.Float64(),
    "ks": pl.Float64(),
    "excess_threshold_s": pl.Float64(),
    "excess_shape": pl.Float64(),
    "excess_shape_se": pl.Float64(),
    "verdict": pl.String(),
}


@dataclass(frozen=True)
class PowerTail:
    """Power law P(X > x) = (x / threshold)^-index of the values from a threshold on.

    Attributes
    ----------
    threshold : float
        Where the tail begins.
    index, standard_error : float
        Hill's estimate, with index / sqrt(ended jobs in the tail).
    ks : float
        KS distance between the power law and the Kaplan-Meier curve of the tail.
    num_jobs : float
        Jobs in the tail.
    """

    threshold: float
    index: float
    standard_error: float
    ks: float
    num_jobs: float


def hill(sample: Sample, threshold: float) -> PowerTail:
    """Hill's estimate of the tail index from a threshold on, with censored values.

    Parameters
    ----------
    sample : Sample
        At least one job ended above ``threshold``.
    threshold : float
        Above 0.

    Returns
    -------
    PowerTail
        index = (ended jobs in the tail) / (sum of log(value / threshold) over all jobs in it), the maximum of the
        likelihood of a power law with censoring.

    References
    ----------
    .. [1] B. M. Hill, "A Simple General Approach to Inference About the Tail of a Distribution", Annals of Statistics
       3(5), 1975, doi:10.1214/aos/1176343247.
    .. [2] J. Beirlant, A. Guillou, G. Dierckx and A. Fils-Villetard, "Estimation of the extreme value index and
       extreme quantiles under random censoring", Extremes 10, 2007, doi:10.1007/s10687-007-0039-y.

    Examples
    --------
    >>> one, none = np.ones(3), np.zeros(3)
    >>> hill(Sample(np.array([1.0, 2.0, 4.0]), ended=one, censored=none), 1.0).index  # 3 / log 8
    1.4426950408889636
    """
    chosen = sample.value >= threshold
    log = np.log(sample.value[chosen] / threshold)
    tail = Sample(sample.value[chosen], sample.ended[chosen], sample.censored[chosen])
    num_ended = float(tail.ended.sum())
    index = num_ended / float(((tail.ended + tail.censored) * log).sum())
    survival = kaplan_meier(tail)
    fitted = np.exp(-index * log)
    before = np.append(1.0, survival[:-1])
    steps = tail.ended > 0
    ks = float(max(np.abs(fitted - survival)[steps].max(), np.abs(fitted - before)[steps].max()))
    return PowerTail(threshold, index, index / num_ended**0.5, ks, tail.num_jobs)


def power_tail(sample: Sample) -> PowerTail | None:
    """Power law of the tail, which begins where it lies closest to the data.

    Parameters
    ----------
    sample : Sample
        Positive values.

    Returns
    -------
    PowerTail or None
        Of the thresholds in the longer half with at least ``MIN_ENDED`` ended jobs above them (at most 200, evenly
        spaced among the distinct values), the one with the least KS distance; null if there is none.

    References
    ----------
    .. [1] A. Clauset, C. R. Shalizi and M. E. J. Newman, "Power-Law Distributions in Empirical Data", SIAM Review
       51(4), 2009, doi:10.1137/070710111.
    """
    beyond = np.cumsum(sample.ended[::-1])[::-1] - sample.ended
    share_below = 1.0 - kaplan_meier(sample)
    places = np.flatnonzero((share_below >= 0.5) & (beyond >= MIN_ENDED) & (sample.ended > 0))
    if not len(places):
        return None
    tried = places[np.unique(np.linspace(0, len(places) - 1, NUM_THRESHOLDS).round().astype(np.int64))]
    return min((hill(sample, float(sample.value[place])) for place in tried), key=lambda tail: tail.ks)


@characterization(
    "duration_tail_index",
    title="How heavy the tail of the durations is",
    definition=(
        "tail_index: a of the power law P(duration > x) = (x / threshold)^-a (Hill's estimate; above a threshold that "
        "lies in the longer half and where the law is closest to the data). Below 2 the variance would not be finite, "
        "below 1 not even the mean, if the law held for ever; a cluster's limits end it. excess_shape: shape of the "
        "generalised Pareto distribution of what lies above the 90 % quantile: above 0 heavier than an exponential, "
        f"below 0 with an upper end. {NOTE}"
    ),
    source=(
        "B. M. Hill, 1975, doi:10.1214/aos/1176343247; threshold by A. Clauset, C. R. Shalizi, M. E. J. Newman, 2009, "
        "doi:10.1137/070710111; censoring by J. Beirlant et al., 2007, doi:10.1007/s10687-007-0039-y"
    ),
    needs=("duration_s",),
    inputs=(BOUNDED_DURATIONS,),
    own_groups=("gpu_bucket",),
    heavy=True,
)
def duration_tail_index(durations: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Index of a power law of the tail of the durations, and shape of the excesses over the 90 % quantile.

    Parameters
    ----------
    durations : DataFrame
        Collected from ``BOUNDED_DURATIONS``.
    by : tuple of str
        Columns of the grouping.

    Returns
    -------
    DataFrame, a row per group and bucket ("all" = GPU jobs)
        bucket, num_jobs, num_tail_jobs and threshold_s [s] of the power law, tail_index, tail_index_se, ks (in the
        tail), excess_threshold_s [s], excess_shape, excess_shape_se (null where the fit failed), verdict. Groups with
        fewer than 50 ended jobs or 10 distinct durations are left out.
    """
    schema = {**{name: durations.schema[name] for name in by}, **TAIL_SCHEMA}
    rows = [{**row, **key} for key, sample in samples(durations, by) if (row := _tail_row(sample)) is not None]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _tail_row(sample: Sample) -> dict[str, Any] | None:
    fitted = fit_durations(sample)
    if fitted is None:
        return None
    row: dict[str, Any] = dict.fromkeys(TAIL_SCHEMA)
    row |= {"num_jobs": round(sample.num_jobs), "excess_threshold_s": fitted.threshold_s}
    if (tail := power_tail(sample)) is not None:
        row |= {
            "num_tail_jobs": round(tail.num_jobs),
            "threshold_s": tail.threshold,
            "tail_index": tail.index,
            "tail_index_se": tail.standard_error,
            "ks": tail.ks,
        }
    if fitted.tail is not None and fitted.tail.is_converged:
        row["excess_shape"] = float(f"{fitted.tail.estimate[0]:.6g}")
        if np.isfinite(error := float(fitted.tail.standard_error[0])):
            row["excess_shape_se"] = float(f"{error:.6g}")
        misfit = ks_distance(fitted.tail.share_below, sample.above(fitted.threshold_s))
        row["verdict"] = _verdict(row, misfit)
    return row


def _verdict(row: dict[str, Any], misfit: float) -> str | None:
    shape, error = row["excess_shape"], row["excess_shape_se"]
    if shape is None or error is None:
        return None
    words = "not told from"
    if abs(shape) > 1.96 * error:
        words = "heavier than" if shape > 0 else "lighter than"
    text = f"The tail is {words} an exponential one (shape {shape:.2f}, standard error {error:.2f})"
    if misfit > MISFIT:
        return (
            f"{text}, but the fit is poor (KS distance {misfit:.2f}): limits or batches of equal jobs shape the tail."
        )
    return f"{text}."
