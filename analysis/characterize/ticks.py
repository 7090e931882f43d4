"""GPUs in use by type and virtual cluster in ticks of time: exact means, from few enough numbers for any log.

A sweep over every start and end is as long as the log. Here the changes of each tick are put together with the moments
at which they happened, so that what was held in each tick is exact, while the level inside a tick is known by its mean
only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import NICE_WIDTHS_S, bin_width
from analysis.characterize.cubes import GROUPS, Cube
from analysis.characterize.intervals import OPEN_END
from analysis.characterize.prepare import Facts
from analysis.characterize.running import Window, window_us
from analysis.metrics import US_PER_S

__all__ = ["MAX_TICKS", "TICKS", "TickSweep", "tick_sweeps", "tick_us"]

#: At most this many ticks: an hour for half a year, a second for an hour.
MAX_TICKS: Final = 5000
US_PER_MS: Final = 1000
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def _tick(length_us: Any) -> pl.Expr:
    """Smallest round width with which the length falls into at most ``MAX_TICKS`` ticks [us]; whole days beyond."""
    length = length_us if isinstance(length_us, pl.Expr) else pl.lit(length_us, pl.Int64)
    day = 86_400 * US_PER_S
    width = (length // (day * MAX_TICKS) + 1) * day
    for nice in sorted(NICE_WIDTHS_S, reverse=True):
        width = pl.when(length <= nice * US_PER_S * MAX_TICKS).then(pl.lit(nice * US_PER_S, pl.Int64)).otherwise(width)
    return width


def tick_us(facts: Facts) -> int:
    """Length of a tick of a log [us]."""
    if facts.first_us is None or facts.last_us is None:
        return US_PER_S
    return int(pl.select(_tick(facts.last_us - facts.first_us)).item())


_WIDTH: Final = _tick(pl.col("log_last_us") - pl.col("log_first_us"))
# What was held before the log begins is held from its start.
_SINCE: Final = (pl.col("time_us") - pl.col("log_first_us")).clip(lower_bound=0)

#: Changes of the GPUs in use by virtual cluster, type and tick since the first time of the log; what still runs when
#: the log ends is never given back.
TICKS: Final = Cube(
    "ticks",
    keys={"vc": GROUPS["vc"], "gpu_type": GROUPS["gpu_type"], "tick": _SINCE // _WIDTH},
    values={
        "sum_milli_change": pl.col("milli_change").sum(),
        # Milliseconds: the sum would pass 2**63 in microseconds.
        "sum_milli_ms": (pl.col("milli_change") * (_SINCE % _WIDTH // US_PER_MS)).sum(),
        "num_first": pl.col("is_first").sum().cast(pl.Int64),
    },
    where=pl.col("time_us") < OPEN_END,
    table="changes",
)


@dataclass(frozen=True)
class TickSweep:
    """GPUs held in every tick of a window.

    Attributes
    ----------
    edges : array of int64, shape (ticks + 1,)
        Where ticks begin, and where the window ends (microseconds since 1970 UTC).
    held : array of float64, shape (ticks,)
        Mean GPUs in use in each tick.
    num_jobs : int
        Jobs that took GPUs.
    """

    edges: IntArray
    held: FloatArray
    num_jobs: int

    @property
    def lengths(self) -> IntArray:
        """Length of every tick [us]."""
        return np.diff(self.edges)

    def mean(self, values: FloatArray | None = None) -> float:
        """Time-weighted mean of a value of every tick, by default of the GPUs in use."""
        return float(np.average(self.held if values is None else values, weights=self.lengths))

    def binned(self, values: FloatArray, bins: IntArray) -> FloatArray:
        """Time-weighted mean of a value of every tick in each bin."""
        reached = np.concatenate([[0.0], np.cumsum(values * self.lengths)])
        means: FloatArray = np.diff(np.interp(bins, self.edges, reached)) / np.diff(bins)
        return means

    def bins(self, *, max_bins: int) -> IntArray:
        """Edges of at most ``max_bins`` bins of equal, round length; the last one may be shorter."""
        first, last = int(self.edges[0]), int(self.edges[-1])
        width = bin_width((last - first) / US_PER_S, max_bins=max_bins) * US_PER_S
        return np.append(np.arange(first, last, width), last)


def tick_sweeps(
    ticks: pl.DataFrame, *, keys: Sequence[str], facts: Facts, window: Window
) -> Iterator[tuple[dict[str, Any], TickSweep]]:
    """Sweep of each group of ``TICKS`` that holds GPUs in the window, sorted, with the values of its keys.

    Parameters
    ----------
    ticks : DataFrame
        Collected ``TICKS``; groups that are no keys are put together.
    keys : sequence of str
        Columns of the groups.
    facts : Facts
        Of the log.
    window : pair of datetime
        What the log covers; null = from the first to the last time in the jobs table. Where it cuts a tick, the tick's
        mean stands for its part.
    """
    bounds = window_us(facts, window)
    if bounds is None or bounds[1] <= bounds[0] or facts.first_us is None:
        return
    width, values = tick_us(facts), list(TICKS.values)
    sums = ticks.group_by([*keys, "tick"]).agg(pl.col(values).sum()).sort([*keys, "tick"], nulls_last=True)
    parts = sums.partition_by(keys, as_dict=True, maintain_order=True) if keys else {(): sums}
    frame = _Frame(first_us=facts.first_us, width=width, window=bounds)
    for key, part in parts.items():
        sweep = frame.sweep(part)
        if sweep.held.any():
            yield dict(zip(keys, key, strict=True)), sweep


@dataclass(frozen=True)
class _Frame:
    """Ticks of a window: whole ticks of the log, before and beyond it too, cut at the window's ends."""

    first_us: int
    width: int
    window: tuple[int, int]

    def sweep(self, part: pl.DataFrame) -> TickSweep:
        first = (self.window[0] - self.first_us) // self.width
        last = -((self.first_us - self.window[1]) // self.width)
        tick = part["tick"].to_numpy()
        change = part["sum_milli_change"].to_numpy().astype(np.float64)
        # What changes at moment m of a tick is held for the rest of the tick.
        rest = change * self.width - part["sum_milli_ms"].to_numpy().astype(np.float64) * US_PER_MS
        inside = (tick >= first) & (tick < last)
        level, held = np.zeros(last - first + 1), np.zeros(last - first)
        np.add.at(level, tick[inside] - first + 1, change[inside])
        level[0] = change[tick < first].sum()
        np.add.at(held, tick[inside] - first, rest[inside])
        mean = (np.cumsum(level)[:-1] + held / self.width) / 1000
        edges = self.first_us + np.arange(first, last + 1) * self.width
        num_jobs = int(part["num_first"].to_numpy()[tick < last].sum())
        # Sums of floats may end a hair beside nothing.
        mean[np.abs(mean) < 1e-9] = 0.0
        return TickSweep(np.clip(edges, *self.window), np.maximum(mean, 0.0), num_jobs)
