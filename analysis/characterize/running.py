"""GPUs in use over time, by an exact sweep over all starts and ends, in integer time and thousandths of a GPU."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.arrivals import MAX_BINS, bin_width
from analysis.characterize.buckets import observed_window
from analysis.characterize.queueing import has_real_times
from analysis.characterize.registry import characterization
from analysis.metrics import S_PER_H, US_PER_S
from analysis.schema import TIME
from analysis.trace import Trace

__all__ = ["gpu_intervals", "running_gpus", "running_gpus_summary"]

RUNNING_SCHEMA: Final = {"time": TIME, "bin_s": pl.Float64(), "mean_gpus": pl.Float64(), "max_gpus": pl.Float64()}
SUMMARY_SCHEMA: Final = {
    "window_start": TIME,
    "window_end": TIME,
    "num_jobs": pl.Int64(),
    "peak_jobs": pl.Int64(),
    "mean_gpus": pl.Float64(),
    "peak_gpus": pl.Float64(),
    "peak_time": TIME,
    "gpu_hours": pl.Float64(),
    "total_gpus": pl.Float64(),
    "gpu_allocation": pl.Float64(),
    "peak_allocation": pl.Float64(),
}
Window = tuple[datetime | None, datetime | None]
IntArray = NDArray[np.int64]


def gpu_intervals(
    jobs: pl.DataFrame, *, attempts: pl.DataFrame | None = None, window: Window = (None, None)
) -> pl.DataFrame:
    """When each job held how many GPUs, clipped to the window.

    Parameters
    ----------
    jobs : DataFrame, one row per job
        Columns of the jobs table. CPU jobs, unknown GPUs, assumed times and unknown starts are left out. A job that is
        still running when the log ends holds its GPUs to the end of the window; one that ran before the log begins
        holds them from the start of the window.
    attempts : DataFrame, optional
        Columns of the attempts table; a job that has attempts with a start holds GPUs in these only, any other from
        its first start to its last end (pauses included).
    window : pair of datetime, optional
        What the log covers; null = from the first to the last time in the jobs table.

    Returns
    -------
    DataFrame, one row per interval of positive length
        job_id, begin_us, end_us (microseconds since 1970 UTC), milli_gpus.
    """
    first, last = _whole_window(jobs, window)
    begin = pl.col("start_time")
    censoring = pl.col("censoring")
    whole = jobs.filter((pl.col("num_gpus") > 0) & has_real_times() & (censoring != "never_started")).select(
        "job_id",
        begin=pl.when(begin.is_null() & censoring.is_in(["left", "both"])).then(pl.lit(first, TIME)).otherwise(begin),
        end=pl.when(pl.col("end_time").is_null() & censoring.is_in(["right", "both"]))
        .then(pl.lit(last, TIME))
        .otherwise(pl.col("end_time")),
        gpus="num_gpus",
    )
    if attempts is not None and attempts.height:
        tries = _attempt_intervals(whole, attempts)
        whole = pl.concat([whole.join(tries, on="job_id", how="anti"), tries])
    clipped = whole.with_columns(
        pl.max_horizontal("begin", pl.lit(first, TIME)), pl.min_horizontal("end", pl.lit(last, TIME))
    )
    known = clipped.filter(
        whole["begin"].is_not_null() & whole["end"].is_not_null() & (pl.col("end") > pl.col("begin"))
    )
    return known.select(
        "job_id",
        begin_us=pl.col("begin").dt.timestamp("us"),
        end_us=pl.col("end").dt.timestamp("us"),
        milli_gpus=(pl.col("gpus") * 1000).round().cast(pl.Int64),
    )


def _attempt_intervals(whole: pl.DataFrame, attempts: pl.DataFrame) -> pl.DataFrame:
    """Attempts that started, of the jobs in ``whole``; the last one of a running job lasts as long as the job."""
    started = attempts.filter(pl.col("start_time").is_not_null()).join(whole, on="job_id", how="inner")
    is_last = pl.col("attempt") == pl.col("attempt").max().over("job_id")
    end = pl.when(pl.col("end_time").is_null() & is_last).then(pl.col("end")).otherwise(pl.col("end_time"))
    gpus = pl.coalesce(pl.col("gpus").fill_nan(None), pl.col("gpus_right"))
    return started.select("job_id", begin="start_time", end=end, gpus=gpus)


def _whole_window(jobs: pl.DataFrame, window: Window) -> Window:
    first, last = observed_window(jobs)
    return window[0] or first, window[1] or last


def _running_options(trace: Trace) -> dict[str, Any]:
    return {"attempts": trace.attempts, "window": meta_window(trace)}


def meta_window(trace: Trace) -> Window:
    """Window of the metadata as instants; null where the source does not say."""
    first, last = (datetime.fromisoformat(text).astimezone(UTC) if text else None for text in trace.meta.window)
    return first, last


def _summary_options(trace: Trace) -> dict[str, Any]:
    return {**_running_options(trace), "total_gpus": known_gpus(trace)}


def known_gpus(trace: Trace) -> float | None:
    """GPUs of the cluster: the nodes' sum, else the largest sum of the VCs' quotas over time; null if not known."""
    if trace.nodes.height:
        return float(trace.nodes["num_gpus"].sum()) or None
    if not trace.capacity.height:
        return None
    # A VC keeps its quota until the next row that names it.
    wide = trace.capacity.pivot("vc", index="time", values="num_gpus", aggregate_function="last").sort("time")
    total = wide.drop("time").fill_null(strategy="forward").sum_horizontal().max()
    return float(total) if isinstance(total, int | float) else None


class _Sweep:
    """Levels between the instants at which anything changes."""

    def __init__(self, intervals: pl.DataFrame, *, first_us: int, last_us: int) -> None:
        times = np.concatenate([intervals["begin_us"].to_numpy(), intervals["end_us"].to_numpy()])
        milli = intervals["milli_gpus"].to_numpy()
        instants, place = np.unique(np.concatenate([times, [first_us]]), return_inverse=True)
        place = place[:-1]
        self.times: IntArray = instants
        self.milli = self._levels(place, np.concatenate([milli, -milli]), len(instants))
        ones = np.ones(len(milli), dtype=np.int64)
        self.jobs = self._levels(place, np.concatenate([ones, -ones]), len(instants))
        lengths = np.diff(np.append(instants, max(last_us, int(instants[-1]))))
        # Floats: thousandths of a GPU times microseconds may pass 2**63.
        held = np.concatenate([[0.0], np.cumsum(self.milli.astype(np.float64) * lengths)])
        self.integral: NDArray[np.float64] = held
        self.edges: IntArray = np.append(instants, max(last_us, int(instants[-1])))

    @staticmethod
    def _levels(place: IntArray, change: IntArray, size: int) -> IntArray:
        changes = np.zeros(size, dtype=np.int64)
        np.add.at(changes, place, change)
        return np.cumsum(changes)


@characterization(
    "running_gpus",
    title="GPUs in use over time",
    definition=(
        "GPUs held by jobs, by an exact sweep over all starts and ends clipped to the window: the time-weighted "
        "mean and the highest value of each bin. A job without recorded attempts holds its GPUs from first start "
        "to last end."
    ),
    needs=("start_time", "num_gpus"),
    empty_means="The log does not say when GPU jobs started and ended.",
    options=_running_options,
)
def running_gpus(
    jobs: pl.DataFrame,
    *,
    attempts: pl.DataFrame | None = None,
    window: Window = (None, None),
    max_bins: int = MAX_BINS,
) -> pl.DataFrame:
    """GPUs in use over time, in bins of equal, round length.

    Parameters
    ----------
    jobs, attempts, window
        As in `gpu_intervals`.
    max_bins : int, default 1000
        Upper bound of the number of bins.

    Returns
    -------
    DataFrame, a row per bin
        time (where the bin begins), bin_s (its length, the last one's cut at the window's end) [s], mean_gpus
        (time-weighted), max_gpus. Empty where no GPU job has a known start and end.
    """
    intervals = gpu_intervals(jobs, attempts=attempts, window=window)
    if not intervals.height:
        return pl.DataFrame(schema=RUNNING_SCHEMA)
    first_us, last_us = _window_us(jobs, window)
    sweep = _Sweep(intervals, first_us=first_us, last_us=last_us)
    width_us = bin_width((last_us - first_us) / US_PER_S, max_bins=max_bins) * US_PER_S
    edges = np.append(np.arange(first_us, last_us, width_us), last_us)
    lengths = np.diff(edges)
    means = np.diff(np.interp(edges, sweep.edges, sweep.integral)) / lengths / 1000
    # The level on entry, and the levels that begin inside the bin.
    entry = sweep.milli[np.searchsorted(sweep.times, edges[:-1], side="right") - 1]
    highest = entry.copy()
    inside = np.searchsorted(edges, sweep.times, side="right") - 1
    keep = inside < len(highest)
    np.maximum.at(highest, inside[keep], sweep.milli[keep])
    return pl.DataFrame(
        {
            "time": pl.Series(edges[:-1]).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
            "bin_s": lengths / US_PER_S,
            "mean_gpus": np.maximum(means, 0.0),
            "max_gpus": highest / 1000,
        },
        schema=RUNNING_SCHEMA,
    )


def _window_us(jobs: pl.DataFrame, window: Window) -> tuple[int, int]:
    ends = pl.Series("t", list(_whole_window(jobs, window)), dtype=TIME).dt.timestamp("us")
    return int(ends[0]), int(ends[1])


@characterization(
    "running_gpus_summary",
    title="GPUs in use: mean and peak",
    definition=(
        "Over the whole window: mean (time-weighted) and peak of the GPUs in use, and the jobs running at one "
        "time. Allocation: share of the cluster's GPUs; above 1, or far below it, it says that the log does not "
        "cover the cluster it describes."
    ),
    needs=("start_time", "num_gpus"),
    empty_means="The log does not say when GPU jobs started and ended.",
    options=_summary_options,
)
def running_gpus_summary(
    jobs: pl.DataFrame,
    *,
    attempts: pl.DataFrame | None = None,
    window: Window = (None, None),
    total_gpus: float | None = None,
) -> pl.DataFrame:
    """Exact mean and peak of the GPUs in use, and of the GPU jobs running at one time.

    Parameters
    ----------
    jobs, attempts, window
        As in `gpu_intervals`.
    total_gpus : float, optional
        GPUs of the cluster; null = not known, and so are the allocation shares.

    Returns
    -------
    DataFrame of one row, or none where no GPU job has a known start and end
        window_start, window_end, num_jobs (that held GPUs in the window), peak_jobs (at one time), mean_gpus,
        peak_gpus, peak_time (first instant of the peak), gpu_hours (inside the window), total_gpus, gpu_allocation
        (mean share of total_gpus), peak_allocation.
    """
    intervals = gpu_intervals(jobs, attempts=attempts, window=window)
    if not intervals.height:
        return pl.DataFrame(schema=SUMMARY_SCHEMA)
    first_us, last_us = _window_us(jobs, window)
    sweep = _Sweep(intervals, first_us=first_us, last_us=last_us)
    held_gpu_us = float(sweep.integral[-1]) / 1000
    mean, peak = held_gpu_us / (last_us - first_us), float(sweep.milli.max()) / 1000
    row = {
        "window_start": first_us,
        "window_end": last_us,
        "num_jobs": intervals["job_id"].n_unique(),
        "peak_jobs": int(sweep.jobs.max()),
        "mean_gpus": mean,
        "peak_gpus": peak,
        "peak_time": int(sweep.times[int(sweep.milli.argmax())]),
        "gpu_hours": held_gpu_us / US_PER_S / S_PER_H,
        "total_gpus": total_gpus,
        "gpu_allocation": mean / total_gpus if total_gpus else None,
        "peak_allocation": peak / total_gpus if total_gpus else None,
    }
    numbers = {name: pl.Int64() if dtype == TIME else dtype for name, dtype in SUMMARY_SCHEMA.items()}
    times = [name for name, dtype in SUMMARY_SCHEMA.items() if dtype == TIME]
    raw = pl.DataFrame([row], schema=numbers)
    return raw.with_columns(pl.col(times).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"))
