"""When would a waiting job start? The queue as it stands, simulated forward with durations that nobody knows yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis import schema
from analysis.errors import UsageError
from analysis.frames import in_utc, jobs_to_polars
from analysis.metrics import US_PER_S
from analysis.replay.cluster import Cluster
from analysis.replay.engine import replay
from analysis.replay.policies import Policy

__all__ = ["estimate_starts", "queue_at", "start_errors"]

DRAWN: Final = "predicted_duration_s__drawn"


def queue_at(jobs: Any, *, at: datetime) -> pl.DataFrame:
    """Who runs and who waits at an instant, by the times of a log or of a replay's schedule.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table with submit_time, start_time and end_time.
    at : datetime
        Naive is taken as UTC.

    Returns
    -------
    DataFrame, one row per job that was submitted by ``at`` and had not ended
        The columns of ``jobs``, in the order of submission; what was not known yet is null: the end, the duration, and
        the start of jobs that wait.
    """
    now = pl.lit(in_utc(at))
    table = jobs_to_polars(jobs)
    there = table.filter((pl.col("submit_time") <= now) & ~(pl.col("end_time") <= now).fill_null(value=False))
    start = pl.when(pl.col("start_time") <= now).then("start_time")
    unknown = [pl.lit(None, dtype=there.schema[name]).alias(name) for name in ("end_time", "duration_s")]
    return schema.sort_jobs(there.with_columns(start, *unknown))


def estimate_starts(
    queue: Any,
    *,
    remaining_s: npt.ArrayLike,
    cluster: Cluster,
    policy: str | Policy = "fifo",
    at: datetime,
    quantiles: Sequence[float] = (0.1, 0.5, 0.9),
    use_vcs: bool = True,
) -> pl.DataFrame:
    """Estimate how long the jobs of a queue still wait, by replaying it forward, once for each draw of the durations.

    Nobody is submitted later; jobs that run are placed anew, before all others; under policies that count how long a
    job has waited, all have waited since ``at``, in the order of their submission.

    Parameters
    ----------
    queue : DataFrame of polars or pandas, one row per job
        Jobs that run (``start_time`` is there) or wait (it is null), such as ``queue_at`` gives them; as ``replay``
        takes them otherwise.
    remaining_s : array of float, shape (jobs,) or (draws, jobs)
        How long each job will still run: of those that wait the whole duration. One draw for each possible future, such
        as quantiles or samples of a predictor's ``predict_remaining``. [s]
    cluster : Cluster
        Where.
    policy : str or Policy, default "fifo"
        By which jobs start. If it orders by predictions, it is given the median of each job's draws.
    at : datetime
        Now; naive is taken as UTC.
    quantiles : sequence of float
        Each between 0 and 1.
    use_vcs : bool, default True
        As in ``replay``.

    Returns
    -------
    DataFrame, one row per waiting job, in the order of submission
        job_id, p10_wait_s, p50_wait_s and so on: quantiles over draws of the time from ``at`` to the start, the
        lowest wait that at least this share of the draws does not exceed; null where the job would not start in
        that draw or any other (too large for the cluster). [s]

    Raises
    ------
    UsageError
        If the draws are not one per job, negative or not finite, or a quantile does not lie between 0 and 1.

    Examples
    --------
    One GPU; a runs for another 30 s, b waits for 20 s of it, c is asked about.

    >>> t = datetime(2024, 1, 1)
    >>> queue = pl.DataFrame({"job_id": ["a", "b", "c"], "submit_time": [t] * 3, "start_time": [t, None, None]})
    >>> queue = queue.with_columns(num_gpus=pl.lit(1))
    >>> one = Cluster.uniform(num_nodes=1, num_gpus=1)
    >>> estimate_starts(queue, remaining_s=[30, 20, 9], cluster=one, at=t)["p50_wait_s"].to_list()
    [30.0, 50.0]
    """
    table = jobs_to_polars(queue)
    draws = np.atleast_2d(np.asarray(remaining_s, dtype=np.float64))
    _check(draws, table.height, quantiles)
    now = in_utc(at)
    order = schema.sort_jobs(table.with_row_index("_row"))["_row"].to_numpy()
    table, draws = table[order], draws[:, order]
    waits = table["start_time"].is_null()
    lines = _lined_up(table, draws, at=now)
    early_s = (~waits).to_numpy() / US_PER_S
    starts = [
        replay(
            lines.with_columns(duration_s=pl.Series(draw + early_s)),
            cluster=cluster,
            policy=policy,
            predicted=DRAWN,
            use_vcs=use_vcs,
        ).schedule
        for draw in draws
    ]
    found = np.stack([_waits_s(schedule, at=now, num_jobs=table.height) for schedule in starts])[:, waits.to_numpy()]
    names = {f"p{100 * q:g}_wait_s": q for q in quantiles}
    rows = np.sort(found, axis=0)  # NaN, no start, comes last
    columns = {name: pl.Series(rows[_place(q, len(rows))], dtype=pl.Float64) for name, q in names.items()}
    return pl.DataFrame({"job_id": table["job_id"].filter(waits), **columns}).with_columns(
        pl.col(list(columns)).fill_nan(None)
    )


def start_errors(estimates: pl.DataFrame, actual: pl.DataFrame, *, at: datetime) -> dict[str, float | int | None]:
    """Compare estimates with when jobs then started.

    Parameters
    ----------
    estimates : DataFrame
        From ``estimate_starts``, with p10, p50 and p90.
    actual : DataFrame
        job_id and start_time: a log, or the ``schedule`` of a replay.
    at : datetime
        When the estimates were made.

    Returns
    -------
    dict
        num_jobs (with an estimate and a start), num_left_out; mean_error_s (estimate minus actual; above 0: too late),
        mean_absolute_error_s, p90_absolute_error_s of the median estimate; coverage: share of starts within
        [p10, p90], ends included. Null where no job counts.
    """
    began = actual.select(
        "job_id", wait_s=(pl.col("start_time") - pl.lit(in_utc(at))).dt.total_microseconds() / US_PER_S
    )
    both = estimates.join(began, on="job_id", how="left", maintain_order="left")
    known = both.filter(pl.col("p50_wait_s").is_not_null() & pl.col("wait_s").is_not_null())
    error = known["p50_wait_s"] - known["wait_s"]
    is_inside = known["wait_s"].is_between(known["p10_wait_s"], known["p90_wait_s"])
    return {
        "num_jobs": known.height,
        "num_left_out": both.height - known.height,
        "mean_error_s": error.mean(),  # type: ignore[dict-item]
        "mean_absolute_error_s": error.abs().mean(),  # type: ignore[dict-item]
        "p90_absolute_error_s": error.abs().quantile(0.9, interpolation="linear"),
        "coverage": is_inside.mean(),  # type: ignore[dict-item]
    }


def _check(draws: npt.NDArray[np.float64], num_jobs: int, quantiles: Sequence[float]) -> None:
    problems = []
    if draws.ndim != 2 or draws.shape[1] != num_jobs or not len(draws):
        problems.append(f"remaining_s has shape {draws.shape}, expected (draws, {num_jobs})")
    elif not (np.isfinite(draws) & (draws >= 0)).all():
        problems.append("remaining_s is negative or not finite somewhere")
    if not all(0 <= q <= 1 for q in quantiles):
        problems.append(f"quantiles are {list(quantiles)}, expected numbers from 0 to 1")
    if problems:
        msg = f"estimate_starts: {'; '.join(problems)}. Give how long each job will still run, one row per draw."
        raise UsageError(msg)


def _lined_up(table: pl.DataFrame, draws: npt.NDArray[np.float64], *, at: datetime) -> pl.DataFrame:
    """The queue as jobs to be replayed: who runs comes 1 us earlier; ids are places, so ties go by submission."""
    runs = pl.col("start_time").is_not_null()
    return table.with_row_index("_place").select(
        pl.exclude("_place", "job_id", "submit_time", "start_time", "end_time", "duration_s", "censoring", "status"),
        pl.col("_place").cast(pl.String).alias("job_id"),
        pl.when(runs).then(pl.lit(at - timedelta(microseconds=1))).otherwise(pl.lit(at)).alias("submit_time"),
        pl.Series(DRAWN, np.median(draws, axis=0)),
    )


def _waits_s(schedule: pl.DataFrame, *, at: datetime, num_jobs: int) -> npt.NDArray[np.float64]:
    """Time from ``at`` to each job's start, in the order of the queue [s]; NaN where it has none."""
    rows = schedule.select(pl.col("job_id").cast(pl.Int64), wait_s=_since_s(at)).drop_nulls()
    found = np.full(num_jobs, np.nan)
    found[rows["job_id"].to_numpy()] = rows["wait_s"].to_numpy()
    return found


def _since_s(at: datetime) -> pl.Expr:
    return (pl.col("start_time") - pl.lit(at)).dt.total_microseconds() / US_PER_S


def _place(quantile: float, num_draws: int) -> int:
    """Of the lowest value that at least this share does not exceed."""
    return max(math.ceil(quantile * num_draws - 1e-9) - 1, 0)
