"""Which distribution the durations follow: maximum-likelihood fits that respect censoring, compared, with a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from analysis.characterize.buckets import BUCKET, log_grid
from analysis.characterize.censored import Fit, Sample, kaplan_meier, ks_distance
from analysis.characterize.cubes import Cube
from analysis.characterize.fitted import MIN_DISTINCT, MIN_ENDED, FittedDurations, fit_durations, verdict
from analysis.characterize.registry import characterization
from analysis.characterize.weighted import with_all_gpu_jobs

__all__ = [
    "BOUNDED_DURATIONS",
    "duration_fit_curves",
    "duration_fit_parameters",
    "duration_fits",
]

#: Jobs by GPU-count bucket, duration, and whether that is only a lower bound.
BOUNDED_DURATIONS: Final = Cube(
    "bounded_durations",
    keys={
        "bucket": pl.col("bucket"),
        "run_s": pl.col("run_s"),
        "is_bound": pl.col("censoring").is_in(["left", "right", "both"]),
    },
    values={"num_jobs": pl.len()},
    where=pl.col("duration_s").is_not_null(),
)

#: A duration below this counts as this; sources write whole seconds, and a density has no mass at 0.
FLOOR_S: Final = 1.0
#: A log by user would be fitted for minutes; the largest samples are.
MOST_SAMPLES: Final = 200
NOTE: Final = (
    "A job of which only a lower bound of the duration is known (still running at the end, or running before the "
    f"beginning) enters as censored. Durations below {FLOOR_S:g} s count as {FLOOR_S:g} s; more than 20,000 distinct "
    "ones are put into bins of relative width 0.001. Every job counts once: GPU time has no likelihood. Left out: "
    f"fewer than {MIN_ENDED} ended jobs or {MIN_DISTINCT} distinct durations, and all but the {MOST_SAMPLES} largest "
    "groups and buckets."
)
SOURCE: Final = (
    "J. F. Lawless, Statistical Models and Methods for Lifetime Data, 2003; hyper-exponential by EM: S. Asmussen, "
    "O. Nerman, M. Olsson, Scand. J. Statistics 23, 1996; tail over a threshold: A. C. Davison, R. L. Smith, "
    "J. Royal Stat. Soc. B 52, 1990, doi:10.1111/j.2517-6161.1990.tb01796.x"
)

PART: Final = pl.Enum(["whole", "tail"])
FITS_SCHEMA: Final = {
    "bucket": BUCKET,
    "family": pl.String(),
    "part": PART,
    "num_jobs": pl.Int64(),
    "num_censored": pl.Int64(),
    "threshold_s": pl.Float64(),
    "num_parameters": pl.Int64(),
    "log_likelihood": pl.Float64(),
    "aic": pl.Float64(),
    "aic_above_best": pl.Float64(),
    "ks": pl.Float64(),
    "ks_tail": pl.Float64(),
    "is_converged": pl.Boolean(),
    "verdict": pl.String(),
}
PARAMETERS_SCHEMA: Final = {
    "bucket": BUCKET,
    "family": pl.String(),
    "parameter": pl.String(),
    "estimate": pl.Float64(),
    "standard_error": pl.Float64(),
}
CURVES_SCHEMA: Final = {
    "bucket": BUCKET,
    "family": pl.String(),
    "duration_s": pl.Float64(),
    "share": pl.Float64(),
}


def samples(durations: pl.DataFrame, by: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], Sample]]:
    """Group and bucket, in order, with the sample of its durations; "all" = GPU jobs.

    Parameters
    ----------
    durations : DataFrame
        Collected from ``BOUNDED_DURATIONS``.
    by : tuple of str
        Columns of the grouping.
    """
    keys = [*by, "bucket"]
    down = [False] * len(keys)
    both = with_all_gpu_jobs(durations)
    sizes = both.group_by(keys).agg(pl.col("num_jobs").sum()).sort(["num_jobs", *keys], descending=[True, *down])
    chosen = both.join(sizes.head(MOST_SAMPLES), on=keys, how="semi", nulls_equal=True)
    ordered = chosen.sort([*keys, "run_s", "is_bound"], nulls_last=True)
    for key, part in ordered.partition_by(keys, as_dict=True, maintain_order=True).items():
        count = part["num_jobs"].to_numpy().astype(np.float64)
        is_bound = part["is_bound"].to_numpy()
        value = part["run_s"].to_numpy()
        ended, bound = np.where(is_bound, 0.0, count), np.where(is_bound, count, 0.0)
        yield dict(zip(keys, key, strict=True)), Sample.of(value, ended=ended, censored=bound, floor=FLOOR_S)


def _table(
    durations: pl.DataFrame,
    by: tuple[str, ...],
    *,
    make: Callable[[FittedDurations], list[dict[str, Any]]],
    columns: dict[str, pl.DataType],
) -> pl.DataFrame:
    schema = {**{name: durations.schema[name] for name in by}, **columns}
    rows = [
        {**row, **key}
        for key, sample in samples(durations, by)
        if (fitted := fit_durations(sample)) is not None
        for row in make(fitted)
    ]
    return pl.DataFrame(rows, schema=schema, orient="row")


@characterization(
    "duration_fits",
    title="Distributions fitted to the durations",
    definition=(
        "Families fitted to the durations by maximum likelihood, the best by AIC first. aic_above_best: difference to "
        "it; ks: largest distance between the fitted and the Kaplan-Meier distribution; ks_tail: the same among "
        f"durations above the 90 % quantile, where the generalised Pareto distribution (part 'tail') is fitted. {NOTE}"
    ),
    source=SOURCE,
    needs=("duration_s",),
    inputs=(BOUNDED_DURATIONS,),
    own_groups=("gpu_bucket",),
    heavy=True,
)
def duration_fits(durations: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Families fitted to the durations, compared by AIC and KS distance, with a verdict.

    Parameters
    ----------
    durations : DataFrame
        Collected from ``BOUNDED_DURATIONS``.
    by : tuple of str
        Columns of the grouping.

    Returns
    -------
    DataFrame, a row per group, bucket ("all" = GPU jobs) and family, best first
        bucket, family, part ("whole", or "tail" above threshold_s), num_jobs and num_censored (in that part),
        threshold_s [s], num_parameters, log_likelihood, aic, aic_above_best (null for the tail: other data), ks,
        ks_tail, is_converged (if not, the numbers are null), verdict (a sentence, in the first row of a bucket).
        Groups with fewer than 50 ended jobs or 10 distinct durations are left out.

    References
    ----------
    .. [1] J. F. Lawless, "Statistical Models and Methods for Lifetime Data", 2nd ed., Wiley, 2003.
    .. [2] S. Asmussen, O. Nerman and M. Olsson, "Fitting Phase-type Distributions via the EM Algorithm", Scandinavian
       Journal of Statistics 23(4), 1996.
    .. [3] A. C. Davison and R. L. Smith, "Models for Exceedances over High Thresholds", Journal of the Royal
       Statistical Society B 52(3), 1990, doi:10.1111/j.2517-6161.1990.tb01796.x.
    """
    return _table(durations, by, make=_fit_rows, columns=FITS_SCHEMA)


def _fit_rows(fitted: FittedDurations) -> list[dict[str, Any]]:
    best = min((one.aic for one in fitted.whole if one.is_converged), default=None)
    rows = []
    for one in fitted.whole:
        measured = {"ks": _round(fitted.ks(one)), "ks_tail": _round(fitted.ks_tail(one))} if one.is_converged else {}
        above = None if best is None or not one.is_converged else round(one.aic - best, 3)
        rows.append({**_shared(one, fitted.sample), **measured, "part": "whole", "aic_above_best": above})
    rows.sort(key=lambda row: math.inf if row["aic_above_best"] is None else row["aic_above_best"])
    rows[0]["verdict"] = verdict(fitted)
    if fitted.tail is not None:
        beyond = fitted.sample.above(fitted.threshold_s)
        ks = _round(ks_distance(fitted.tail.share_below, beyond)) if fitted.tail.is_converged else None
        shared = _shared(fitted.tail, beyond)
        rows.append({**shared, "part": "tail", "ks": ks, "ks_tail": ks, "threshold_s": fitted.threshold_s})
    return [dict.fromkeys(FITS_SCHEMA) | row for row in rows]


def _round(value: float | None) -> float | None:
    """Six digits: the search ends where more of them are chance, which other machines would throw otherwise."""
    return None if value is None else float(f"{value:.6g}")


def _shared(one: Fit, sample: Sample) -> dict[str, Any]:
    return {
        "family": one.family.name,
        "num_jobs": round(sample.num_jobs),
        "num_censored": round(float(sample.censored.sum())),
        "num_parameters": one.family.num_free,
        "log_likelihood": round(one.log_likelihood, 3) if one.is_converged else None,
        "aic": round(one.aic, 3) if one.is_converged else None,
        "is_converged": one.is_converged,
    }


@characterization(
    "duration_fit_parameters",
    title="Parameters of the fitted distributions",
    definition=(
        "Maximum-likelihood estimates of the families of 'duration_fits', with standard errors from the observed "
        "information. Names that end in _s are seconds; mean_of_log and sd_of_log are of the natural logarithm of "
        f"seconds; weight_i and mean_i_s are a phase's share and mean. {NOTE}"
    ),
    source=SOURCE,
    needs=("duration_s",),
    inputs=(BOUNDED_DURATIONS,),
    own_groups=("gpu_bucket",),
    heavy=True,
)
def duration_fit_parameters(durations: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Parameters of the families of `duration_fits`, with standard errors.

    Parameters
    ----------
    durations : DataFrame
        Collected from ``BOUNDED_DURATIONS``.
    by : tuple of str
        Columns of the grouping.

    Returns
    -------
    DataFrame, a row per group, bucket, family and parameter
        bucket, family, parameter, estimate, standard_error (null where the observed information has no inverse).
        Families that did not converge have no rows.
    """
    return _table(durations, by, make=_parameter_rows, columns=PARAMETERS_SCHEMA)


def _parameter_rows(fitted: FittedDurations) -> list[dict[str, Any]]:
    fits = [*fitted.whole, *([fitted.tail] if fitted.tail else [])]
    return [
        {
            "family": one.family.name,
            "parameter": name,
            "estimate": _round(float(value)),
            "standard_error": _round(float(error)) if math.isfinite(error) else None,
        }
        for one in fits
        if one.is_converged
        for name, value, error in zip(one.family.parameters, one.estimate, one.standard_error, strict=True)
    ]


@characterization(
    "duration_fit_curves",
    title="Durations and the distributions fitted to them",
    definition=(
        "Share of the jobs with at most this duration: observed (Kaplan-Meier), and by each fitted family, on a grid "
        f"of 20 points per factor of ten. The generalised Pareto distribution begins at its threshold. {NOTE}"
    ),
    source=SOURCE,
    needs=("duration_s",),
    inputs=(BOUNDED_DURATIONS,),
    own_groups=("gpu_bucket",),
    heavy=True,
)
def duration_fit_curves(durations: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Observed and fitted distributions of the duration on a log grid.

    Parameters
    ----------
    durations : DataFrame
        Collected from ``BOUNDED_DURATIONS``.
    by : tuple of str
        Columns of the grouping.

    Returns
    -------
    DataFrame, a row per group, bucket, family ("observed" first) and grid point
        bucket, family, duration_s [s], share (0-1).
    """
    return _table(durations, by, make=_curve_rows, columns=CURVES_SCHEMA)


def _curve_rows(fitted: FittedDurations) -> list[dict[str, Any]]:
    sample, threshold = fitted.sample, fitted.threshold_s
    grid = log_grid(float(sample.value[-1]))
    reached = np.append(0.0, 1.0 - kaplan_meier(sample))
    observed = reached[np.searchsorted(sample.value, grid, side="right")]
    curves = [("observed", grid, observed)]
    curves += [(one.family.name, grid, one.share_below(grid)) for one in fitted.whole if one.is_converged]
    if fitted.tail is not None and fitted.tail.is_converged:
        beyond = grid[grid > threshold]
        start = float(reached[np.searchsorted(sample.value, threshold, side="right")])
        share = start + (1.0 - start) * fitted.tail.share_below(beyond - threshold)
        curves.append((fitted.tail.family.name, beyond, share))
    return [
        {"family": name, "duration_s": float(x), "share": round(float(y), 6)}
        for name, points, shares in curves
        for x, y in zip(points, shares, strict=True)
    ]
