"""Whether the workload stays the same: each week's jobs against the whole log and against the week before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import WEIGHT, grouped_schema
from analysis.characterize.cubes import Cube
from analysis.characterize.inputs import WORK
from analysis.characterize.prepare import Facts
from analysis.characterize.registry import characterization
from analysis.schema import TIME

__all__ = ["psi", "weekly_drift"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WEEK_US: Final = 7 * 86_400 * 1_000_000
#: Values are first put into this many bins per doubling of 1 + value [s].
BINS_PER_DOUBLING: Final = 16
#: Then into tenths of the whole log; of users the largest so many, and the others together.
NUM_TENTHS: Final = 10
NUM_USERS: Final = 20
#: A week with fewer jobs is not compared.
MIN_JOBS: Final = 50
KS_CRITICAL: Final = 1.358

_WEEK: Final = (pl.col("submit_us") - pl.col("log_first_submit_us")) // WEEK_US
_SUBMITTED: Final = pl.col("submit_us").is_not_null()


def _doubling(column: str) -> pl.Expr:
    return ((1 + pl.col(column)).log(2) * BINS_PER_DOUBLING).floor().cast(pl.Int64)


def _weekly(name: str, value: pl.Expr, where: pl.Expr) -> Cube:
    return Cube(f"weekly_{name}", keys={"week": _WEEK, "value": value}, values=WORK, where=_SUBMITTED & where)


WEEKLY: Final = {
    "duration": _weekly("duration", _doubling("duration_s"), pl.col("duration_s").is_not_null()),
    "num_gpus": _weekly("num_gpus", pl.col("milli_gpus"), pl.col("milli_gpus").is_not_null()),
    "queueing_delay": _weekly(
        "queueing_delay", _doubling("queueing_delay_s"), pl.col("queueing_delay_s").is_not_null() & pl.col("has_times")
    ),
    "user": _weekly("user", pl.col("user"), pl.col("user").is_not_null()),
}
QUANTITY: Final = pl.Enum(list(WEEKLY))
AGAINST: Final = pl.Enum(["log", "week_before"])

DRIFT_SCHEMA: Final = {
    "quantity": QUANTITY,
    "weight": WEIGHT,
    "against": AGAINST,
    "week": pl.Int64(),
    "week_start": TIME,
    "num_jobs": pl.Int64(),
    "psi": pl.Float64(),
    "psi_chance": pl.Float64(),
    "ks": pl.Float64(),
    "ks_chance": pl.Float64(),
}


def psi(part: Floats, whole: Floats) -> float:
    """Population stability index of counts in the same bins: 0 where the shares are equal.

    Parameters
    ----------
    part, whole : array of float, a value per bin
        Jobs of each bin, now and in the reference. Half a job is added to every bin, so that an empty one is no
        infinity; bins that are empty in both are left out.

    Returns
    -------
    float
        Sum of (p - q) log(p / q): by convention below 0.1 stable, above 0.25 another population.

    References
    ----------
    .. [1] N. Siddiqi, "Credit Risk Scorecards", Wiley, 2006.

    Examples
    --------
    >>> round(psi(np.array([300.0, 100.0]), np.array([200.0, 200.0])), 3)  # (0.75, 0.25) against (0.5, 0.5): 0.275
    0.273
    """
    held = (part > 0) | (whole > 0)
    smooth = [(counts[held] + 0.5) / (counts[held] + 0.5).sum() for counts in (part, whole)]
    return float(((smooth[0] - smooth[1]) * np.log(smooth[0] / smooth[1])).sum())


def _ks(part: Floats, whole: Floats) -> float:
    return float(np.abs(np.cumsum(part) / part.sum() - np.cumsum(whole) / whole.sum()).max())


def _psi_chance(num_bins: int, num_part: float, num_whole: float) -> float | None:
    """95 % quantile of the index of two samples of one population (B. Yurdakul, 2018)."""
    from scipy import special

    return float(special.chdtri(num_bins - 1, 0.05) * (1 / num_part + 1 / num_whole)) if num_bins > 1 else None


@characterization(
    "weekly_drift",
    title="Does the workload stay the same",
    definition=(
        "Durations, GPUs asked for, queueing delays and the users of each week (seven days from the first submission "
        "on) against the whole log and against the week before, every job counting once or by its GPU time. psi: "
        "population stability index over the tenths of the whole log (GPUs: every count; users: the 20 largest and "
        "all others); by convention below 0.1 stable, above 0.25 another workload. ks: largest distance of the two "
        "distributions (in bins of 1/16 of a doubling); null for users, who have no order. chance: what two samples "
        f"of one population stay below 19 times in 20, jobs taken as independent. Weeks with fewer than {MIN_JOBS} "
        "jobs are not compared."
    ),
    source=(
        "N. Siddiqi, Credit Risk Scorecards, 2006; chance: B. Yurdakul, Statistical Properties of Population "
        "Stability Index, Western Michigan University, 2018; KS: N. Smirnov, 1948, doi:10.1214/aoms/1177730256"
    ),
    needs=("submit_time",),
    empty_means="The log is shorter than two weeks, or holds too few jobs.",
    inputs=tuple(WEEKLY.values()),
)
def weekly_drift(
    durations: pl.DataFrame,
    gpus: pl.DataFrame,
    delays: pl.DataFrame,
    users: pl.DataFrame,
    *,
    by: tuple[str, ...] = (),
    facts: Facts,
) -> pl.DataFrame:
    """Drift of durations, GPU counts, queueing delays and users, week by week.

    Parameters
    ----------
    durations, gpus, delays, users : DataFrame
        Collected from ``WEEKLY``.
    by : tuple of str
        Columns of the grouping.
    facts : Facts
        When the first week begins.

    Returns
    -------
    DataFrame, a row per group, quantity, weight, reference and week that is compared
        quantity, weight, against, week (from 0), week_start, num_jobs, psi, psi_chance (null for GPU time), ks (0-1,
        null for users), ks_chance (null for GPU time).
    """
    columns = grouped_schema(by, DRIFT_SCHEMA)
    rows = []
    for quantity, cube in zip(WEEKLY, (durations, gpus, delays, users), strict=True):
        if quantity not in by:
            ordered = cube.sort([*by, "value", "week"], nulls_last=True)
            parts = ordered.partition_by(by, as_dict=True, maintain_order=True) if by else {(): ordered}
            for key, part in parts.items():
                named = {**dict(zip(by, key, strict=True)), "quantity": quantity}
                rows += [{**named, **row} for row in _drifts(part, quantity)]
    table = pl.DataFrame(rows, schema={**columns, "week_start": pl.Int64()}, orient="row")
    start = pl.lit(facts.first_submit_us, pl.Int64) + pl.col("week") * WEEK_US
    return table.with_columns(week_start=start.cast(TIME)).sort([*by, "quantity", "weight", "against", "week"])


def _drifts(part: pl.DataFrame, quantity: str) -> Iterator[dict[str, Any]]:
    weeks, codes = part["week"].to_numpy(), part["value"].rle_id().to_numpy().astype(np.int64)
    size = (int(weeks.max()) + 1, int(codes.max()) + 1) if len(weeks) else (0, 0)
    tables = []
    for column in ("num_jobs", "sum_gpu_us"):
        table = np.zeros(size)
        np.add.at(table, (weeks, codes), part[column].to_numpy().astype(np.float64))
        tables.append(table)
    jobs, gpu_time = tables
    counts = jobs.sum(axis=1)
    compared: list[int] = np.flatnonzero(counts >= MIN_JOBS).tolist()
    if len(compared) < 2:
        return
    bins = _bins(jobs.sum(axis=0), quantity)
    for weight, table in (("jobs", jobs), ("gpu_time", gpu_time)):
        whole = table.sum(axis=0)
        references: dict[str, dict[int, int | None]] = {"log": dict.fromkeys(compared)}
        references["week_before"] = {week: week - 1 for week in compared if week - 1 in compared}
        for against, pairs in references.items():
            for week, before in pairs.items():
                other = whole if before is None else table[before]
                numbers = (counts[week], counts.sum() if before is None else counts[before])
                if table[week].sum() > 0 and other.sum() > 0:
                    row = _compared(table[week], other, bins=bins, numbers=numbers, weight=weight)
                    shared = {"weight": weight, "against": against, "week": week, "num_jobs": int(counts[week])}
                    yield {**shared, **row, **({"ks": None, "ks_chance": None} if quantity == "user" else {})}


def _bins(counts: Floats, quantity: str) -> Ints:
    """Bin of every value, for the stability index."""
    if quantity == "num_gpus":
        return np.arange(len(counts))
    if quantity == "user":
        place: Ints = np.argsort(np.argsort(-counts, kind="stable"), kind="stable")
        largest = NUM_USERS
    else:
        place = ((np.cumsum(counts) - counts / 2) / counts.sum() * NUM_TENTHS).astype(np.int64)
        largest = NUM_TENTHS - 1
    return np.minimum(place, largest)


def _compared(
    part: Floats, whole: Floats, *, bins: Ints, numbers: tuple[float, float], weight: str
) -> dict[str, float | None]:
    # GPU time enters as the number of jobs that it stands for, so that half a job is the same for both weights.
    held = [
        np.bincount(bins, weights=values) * (number / values.sum())
        for values, number in zip((part, whole), numbers, strict=True)
    ]
    num_bins = int(((held[0] > 0) | (held[1] > 0)).sum())
    is_counted = weight == "jobs"
    return {
        "psi": psi(*held),
        "psi_chance": _psi_chance(num_bins, *numbers) if is_counted else None,
        "ks": _ks(part, whole),
        "ks_chance": KS_CRITICAL * (1 / numbers[0] + 1 / numbers[1]) ** 0.5 if is_counted else None,
    }
