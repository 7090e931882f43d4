"""Distributions of what jobs lived through, as quantiles, of one replay or of several side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from analysis.errors import UsageError
from analysis.replay.result import ReplayResult

__all__ = ["QUANTILES", "quantiles"]

#: Columns of the table.
QUANTILES: Final[dict[str, pl.DataType]] = {
    "schedule": pl.String(),
    "quantile": pl.Float64(),  # from 0 to 1
    "queueing_delay_s": pl.Float64(),
    "jct_s": pl.Float64(),
    "bounded_slowdown": pl.Float64(),
}


def quantiles(results: Mapping[str, ReplayResult], *, num_points: int = 201) -> pl.DataFrame:
    """Quantiles of queueing delay, JCT and bounded slowdown over the finished jobs.

    Parameters
    ----------
    results : mapping of str to ReplayResult
        By the name of the schedule.
    num_points : int, default 201
        Evenly spaced from 0 to 1.

    Returns
    -------
    DataFrame, one row per schedule and quantile
        As ``QUANTILES`` says; the lowest value that at least this share of the jobs does not exceed. No rows of a
        schedule in which no job finished.

    Raises
    ------
    UsageError
        If ``num_points`` is below 2.
    """
    if num_points < 2:
        msg = f"quantiles: num_points is {num_points}; expected at least 2."
        raise UsageError(msg)
    shares = np.linspace(0, 1, num_points)
    parts = [pl.DataFrame(schema=QUANTILES)]
    for label, result in results.items():
        done = result.job_metrics()
        if done.height:
            place = np.maximum(np.ceil(shares * done.height - 1e-9).astype(np.int64) - 1, 0)
            values = {name: done[name].sort().gather(place) for name in list(QUANTILES)[2:]}
            parts.append(pl.DataFrame({"quantile": shares, **values}).select(pl.lit(label).alias("schedule"), pl.all()))
    return pl.concat(parts)
