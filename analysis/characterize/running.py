"""GPUs in use over time, by an exact sweep over all starts and ends, in integer time and thousandths of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import MAX_BINS, bin_width, grouped_schema
from analysis.characterize.inputs import CHANGES
from analysis.characterize.intervals import intervals
from analysis.characterize.prepare import Facts, as_log, prepare
from analysis.characterize.registry import characterization
from analysis.metrics import S_PER_H, US_PER_S
from analysis.schema import TIME
from analysis.trace import Trace

__all__ = ["Sweep", "gpu_intervals", "known_gpus", "meta_window", "running_gpus", "running_gpus_summary", "sweeps"]

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


def gpu_intervals(jobs: Any, *, attempts: pl.DataFrame | None = None, window: Window = (None, None)) -> pl.DataFrame:
    """When each job held how many GPUs, clipped to the window.

    Parameters
    ----------
    jobs : Trace, DataFrame or LazyFrame, one row per job
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
    log = as_log(jobs)
    prepared = prepare(log.jobs, num_jobs=0)
    facts = Facts.merge([Facts.query(prepared).collect()])
    held = intervals(prepared, attempts.lazy() if attempts is not None and attempts.height else None)
    bounds = window_us(facts, window)
    if bounds is None:
        return pl.DataFrame(
            schema={"job_id": pl.String(), **dict.fromkeys(("begin_us", "end_us", "milli_gpus"), pl.Int64())}
        )
    clipped = held.select(
        "job_id",
        begin_us=pl.col("begin_us").clip(lower_bound=bounds[0]),
        end_us=pl.col("until_us").clip(upper_bound=bounds[1]),
        milli_gpus="held_milli_gpus",
    )
    return clipped.filter(pl.col("end_us") > pl.col("begin_us")).collect()


def window_us(facts: Facts, window: Window) -> tuple[int, int] | None:
    """First and last instant, from the window where it is known, else from the jobs; null without any time."""
    given = [(moment - datetime(1970, 1, 1, tzinfo=UTC)) if moment else None for moment in window]
    whole = [None if gap is None else round(gap.total_seconds() * US_PER_S) for gap in given]
    first = facts.first_us if whole[0] is None else whole[0]
    last = facts.last_us if whole[1] is None else whole[1]
    return None if first is None or last is None else (first, last)


def _running_options(trace: Trace) -> dict[str, Any]:
    return {"window": meta_window(trace)}


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


@dataclass(frozen=True)
class Sweep:
    """Levels between the instants at which anything changes, inside a window.

    Attributes
    ----------
    times : array of int64
        Instants, the start of the window first (microseconds since 1970 UTC).
    milli, jobs : array of int64, of the same length
        Thousandths of a GPU in use, and jobs that use any, from each instant to the next.
    last_us : int
        End of the window.
    num_jobs : int
        Jobs that held GPUs in the window.
    """

    times: IntArray
    milli: IntArray
    jobs: IntArray
    last_us: int
    num_jobs: int

    @classmethod
    def of(cls, changes: pl.DataFrame, *, first_us: int, last_us: int) -> Sweep | None:
        """Sweep over the changes of `CHANGES`, sorted by time; null if no job holds GPUs."""
        times = changes["time_us"].to_numpy()
        late, gone = times >= last_us, times <= first_us
        first, last = changes["num_first"].to_numpy(), changes["num_last"].to_numpy()
        num_jobs = int(first.sum() - first[late].sum() - last[gone].sum())
        if num_jobs <= 0:
            return None
        inside = ~late & ~gone
        before = [int(changes[name].to_numpy()[gone].sum()) for name in ("sum_milli_change", "sum_job_change")]
        levels = [
            np.cumsum(np.concatenate([[level], changes[name].to_numpy()[inside]]), dtype=np.int64)
            for level, name in zip(before, ("sum_milli_change", "sum_job_change"), strict=True)
        ]
        return cls(np.concatenate([[first_us], times[inside]]), levels[0], levels[1], last_us, num_jobs)

    def held(self) -> tuple[IntArray, NDArray[np.float64]]:
        """Instants to the end of the window, and the thousandths of a GPU times microseconds held until each."""
        edges = np.append(self.times, self.last_us)
        # Floats: thousandths of a GPU times microseconds may pass 2**63.
        return edges, np.concatenate([[0.0], np.cumsum(self.milli.astype(np.float64) * np.diff(edges))])


def sweeps(
    changes: pl.DataFrame, *, by: tuple[str, ...], facts: Facts, window: Window
) -> Iterator[tuple[dict[str, Any], Sweep]]:
    """Sweep of each group that holds GPUs in the window, with the values of its ``by`` columns."""
    bounds = window_us(facts, window)
    if bounds is None or bounds[1] <= bounds[0]:
        return
    parts = changes.partition_by(by, as_dict=True, maintain_order=True) if by else {(): changes}
    for key, part in parts.items():
        sweep = Sweep.of(part, first_us=bounds[0], last_us=bounds[1])
        if sweep is not None:
            yield dict(zip(by, key, strict=True)), sweep


@characterization(
    "running_gpus",
    inputs=(CHANGES,),
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
    changes: pl.DataFrame,
    *,
    by: tuple[str, ...] = (),
    facts: Facts,
    window: Window = (None, None),
    max_bins: int = MAX_BINS,
) -> pl.DataFrame:
    """GPUs in use over time, in bins of equal, round length (at most ``max_bins``).

    Attempts and window are as in `gpu_intervals`. All groups share the bins.

    Returns
    -------
    DataFrame, a row per bin
        time (where the bin begins), bin_s (its length, the last one's cut at the window's end) [s], mean_gpus
        (time-weighted), max_gpus. Empty where no GPU job has a known start and end.
    """
    schema = grouped_schema(by, RUNNING_SCHEMA)
    tables = [pl.DataFrame(schema=schema)]
    for group, sweep in sweeps(changes, by=by, facts=facts, window=window):
        table = _binned(sweep, max_bins=max_bins).with_columns(pl.lit(v).alias(k) for k, v in group.items())
        tables.append(table.select(pl.col(name).cast(dtype) for name, dtype in schema.items()))
    return pl.concat(tables)


def _binned(sweep: Sweep, *, max_bins: int) -> pl.DataFrame:
    first_us, last_us = int(sweep.times[0]), sweep.last_us
    width_us = bin_width((last_us - first_us) / US_PER_S, max_bins=max_bins) * US_PER_S
    edges = np.append(np.arange(first_us, last_us, width_us), last_us)
    lengths = np.diff(edges)
    means = np.diff(np.interp(edges, *sweep.held())) / lengths / 1000
    # The level on entry, and the levels that begin inside the bin.
    entry = np.searchsorted(sweep.times, edges[:-1], side="right") - 1
    after = np.searchsorted(sweep.times, edges[1:], side="left")
    spans = np.column_stack([entry, after]).ravel()
    highest = np.maximum.reduceat(np.append(sweep.milli, 0), spans)[::2]
    return pl.DataFrame(
        {
            "time": pl.Series(edges[:-1]).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
            "bin_s": lengths / US_PER_S,
            "mean_gpus": np.maximum(means, 0.0),
            "max_gpus": highest / 1000,
        },
        schema=RUNNING_SCHEMA,
    )


@characterization(
    "running_gpus_summary",
    inputs=(CHANGES,),
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
    changes: pl.DataFrame,
    *,
    by: tuple[str, ...] = (),
    facts: Facts,
    window: Window = (None, None),
    total_gpus: float | None = None,
) -> pl.DataFrame:
    """Exact mean and peak of the GPUs in use, and of the GPU jobs running at one time.

    Attempts and window are as in `gpu_intervals`; ``total_gpus`` are those of the cluster (of all of it, whatever the
    grouping); null = not known, and so are the allocation shares.

    Returns
    -------
    DataFrame of one row (of each group), or none where no GPU job has a known start and end
        window_start, window_end, num_jobs (that held GPUs in the window), peak_jobs (at one time), mean_gpus,
        peak_gpus, peak_time (first instant of the peak), gpu_hours (inside the window), total_gpus, gpu_allocation
        (mean share of total_gpus), peak_allocation.
    """
    schema = grouped_schema(by, SUMMARY_SCHEMA)
    rows = [
        {**group, **_summed_up(sweep, total_gpus)}
        for group, sweep in sweeps(changes, by=by, facts=facts, window=window)
    ]
    times = [name for name, dtype in SUMMARY_SCHEMA.items() if dtype == TIME]
    raw = pl.DataFrame(rows, schema={name: pl.Int64() if name in times else d for name, d in schema.items()})
    return raw.with_columns(pl.col(times).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"))


def _summed_up(sweep: Sweep, total_gpus: float | None) -> dict[str, Any]:
    first_us, last_us = int(sweep.times[0]), sweep.last_us
    held_gpu_us = float(sweep.held()[1][-1]) / 1000
    mean, peak = held_gpu_us / (last_us - first_us), float(sweep.milli.max()) / 1000
    return {
        "window_start": first_us,
        "window_end": last_us,
        "num_jobs": sweep.num_jobs,
        "peak_jobs": int(sweep.jobs.max()),
        "mean_gpus": mean,
        "peak_gpus": peak,
        "peak_time": int(sweep.times[int(sweep.milli.argmax())]),
        "gpu_hours": held_gpu_us / US_PER_S / S_PER_H,
        "total_gpus": total_gpus,
        "gpu_allocation": mean / total_gpus if total_gpus else None,
        "peak_allocation": peak / total_gpus if total_gpus else None,
    }
