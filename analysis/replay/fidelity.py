"""How like the log a simulated schedule is: recorded against simulated waits, by VC and size.

An operator's first doubt, to be answered before any gain is claimed: a policy that is far from what the log shows is
not the scheduler that ran, or the log does not hold all that it scheduled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats

from analysis import metrics
from analysis.characterize.buckets import GPU_BUCKETS, gpu_bucket
from analysis.errors import UsageError
from analysis.frames import jobs_to_polars
from analysis.replay.result import ReplayResult

__all__ = ["FIDELITY_SCHEMA", "fidelity", "recorded_waits"]

#: Added to both waits before their ratio is taken, so that 1 s against 20 s is no factor of 20 [s].
OFFSET_S: Final = 60.0
FIDELITY_SCHEMA: Final = {
    "policy": pl.String(),
    "group": pl.String(),  # "all", "vc" or "gpus"
    "value": pl.String(),
    "num_jobs": pl.Int64(),
    "recorded_mean_s": pl.Float64(),
    "simulated_mean_s": pl.Float64(),
    "recorded_p50_s": pl.Float64(),
    "simulated_p50_s": pl.Float64(),
    "recorded_p90_s": pl.Float64(),
    "simulated_p90_s": pl.Float64(),
    "mean_ratio": pl.Float64(),
    "ks_distance": pl.Float64(),
    "rank_correlation": pl.Float64(),
    "within_2x_share": pl.Float64(),
}


def fidelity(jobs: Any, results: Mapping[str, ReplayResult]) -> pl.DataFrame:
    """Compare the waits in the log with those under each policy.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table with job_id, num_gpus, queueing_delay_s; vc where it is there.
    results : mapping of str to ReplayResult
        Replays of these jobs, by the name that the table shows.

    Returns
    -------
    DataFrame, one row per policy and group of jobs
        policy; group ("all", "vc", "gpus") and value; num_jobs: those with a recorded wait that also started in the
        replay, over which all the rest is taken; mean, median and 90 % quantile of the recorded and the simulated
        queueing delay [s]; mean_ratio: simulated over recorded mean (null where nobody waited in the log);
        ks_distance: largest distance of the two distributions (0-1); rank_correlation: Spearman's, over the jobs (null
        where all waits are alike); within_2x_share: jobs whose two waits, 60 s added to each, are within a factor of 2.

    Raises
    ------
    UsageError
        If no job has a recorded wait.
    """
    known = recorded_waits(jobs)
    if not known.height:
        msg = "fidelity: no GPU job of the log has a recorded wait; it needs a log that says when jobs started."
        raise UsageError(msg)
    rows = []
    for policy, result in results.items():
        timed = result.schedule.with_columns(result.jobs["submit_time"])
        simulated = timed.select("job_id", metrics.queueing_delay_s().alias("simulated_s"))
        both = known.join(simulated.drop_nulls("simulated_s"), on="job_id", how="inner").sort("job_id")
        rows += [{"policy": policy, **row} for row in _rows(both)]
    return pl.DataFrame(rows, schema=FIDELITY_SCHEMA)


def recorded_waits(jobs: Any) -> pl.DataFrame:
    """GPU jobs whose wait the log tells: job_id, vc, gpus (the size's bucket), recorded_s [s]."""
    table = jobs_to_polars(jobs)
    flags = pl.col("flags").list.contains("times_assumed") if "flags" in table.columns else pl.lit(value=False)
    vc = pl.col("vc") if "vc" in table.columns else pl.lit(None, dtype=pl.String)
    is_known = pl.col("queueing_delay_s").is_not_null() & ~flags & (pl.col("num_gpus") > 0)
    return table.filter(is_known).select(
        "job_id", vc=vc, gpus=gpu_bucket().cast(pl.String), recorded_s="queueing_delay_s"
    )


def _rows(both: pl.DataFrame) -> list[dict[str, Any]]:
    rows = [{"group": "all", "value": "all", **_agreement(both)}] if both.height else []
    for value in both["vc"].drop_nulls().unique().sort():
        rows.append({"group": "vc", "value": value, **_agreement(both.filter(pl.col("vc") == value))})
    for value in GPU_BUCKETS:
        part = both.filter(pl.col("gpus") == value)
        if part.height:
            rows.append({"group": "gpus", "value": value, **_agreement(part)})
    return rows


def _agreement(both: pl.DataFrame) -> dict[str, Any]:
    waits = {name: both[f"{name}_s"].to_numpy() for name in ("recorded", "simulated")}
    row: dict[str, Any] = {"num_jobs": both.height}
    for name, values in waits.items():
        row[f"{name}_mean_s"] = float(values.mean())
        row |= {f"{name}_{key}_s": float(np.quantile(values, q)) for key, q in (("p50", 0.5), ("p90", 0.9))}
    recorded, simulated = waits["recorded"], waits["simulated"]
    ratio = (simulated + OFFSET_S) / (recorded + OFFSET_S)
    vary = np.ptp(recorded) > 0 and np.ptp(simulated) > 0
    return row | {
        "mean_ratio": row["simulated_mean_s"] / row["recorded_mean_s"] if row["recorded_mean_s"] > 0 else None,
        "ks_distance": _largest_distance(recorded, simulated),
        "rank_correlation": float(stats.spearmanr(recorded, simulated).statistic) if vary else None,
        "within_2x_share": float(((ratio >= 0.5) & (ratio <= 2)).mean()),
    }


def _largest_distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Largest distance of two distributions; scipy's test works out a p-value too, and warns on the way."""
    at = np.concatenate([one, other])
    below = [np.searchsorted(np.sort(values), at, side="right") / len(values) for values in (one, other)]
    return float(np.abs(below[0] - below[1]).max())
