"""What a predictor is told of jobs, disturbed one block at a time; which jobs had ended when stays as it was.

Two kinds of blocks. A block of inputs: columns of the jobs that are asked about. A block of history: columns of
past jobs by which history is looked up, their values swapped for each other (every past job of one user becomes
another's), so that a job meets the past of another key while no end and no duration moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from predictors.asking import instants
from predictors.base import DurationPredictor

__all__ = ["HISTORY_BLOCKS", "HOUR", "INPUT_BLOCKS", "Clock", "Question", "differ", "relabelled"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Columns of a job that belong together, by what they are.
INPUT_BLOCKS: Final[Mapping[str, tuple[str, ...]]] = {
    "user": ("user", "account"),
    "VC": ("vc", "cluster"),
    "job name": ("job_name",),
    "group": ("group",),
    "workload": ("workload",),
    "GPUs": ("num_gpus", "num_tasks", "num_nodes", "is_single_node"),
    "CPUs and memory": ("num_cpus", "mem_gib"),
    "limit": ("time_limit_s",),
}
#: The hour of asking: no column, see ``Clock``.
HOUR: Final = "hour"
#: Columns of past jobs by which history is looked up; columns in one bracket share their values.
HISTORY_BLOCKS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "history by owner": (("owner", "user"),),
    "history by VC": (("vc",),),
    "history by job name": (("job_name",), ("job_family", "similar_name")),
    "history by group": (("group",),),
    "history by size": (("size",),),
    "history by limit": (("time_limit_s",),),
}
NUM_HOURS: Final = 24


@dataclass(frozen=True)
class Question:
    """Jobs that a fitted predictor is asked about, and the past that answers.

    Attributes
    ----------
    model : DurationPredictor
        Fitted.
    jobs : DataFrame
        From ``asked_at``.
    past : DataFrame
        What the predictor keeps of the history.
    """

    model: DurationPredictor
    jobs: pl.DataFrame
    past: pl.DataFrame

    def answer(self, jobs: pl.DataFrame | None = None) -> Floats:
        """Predictions of the jobs, or of what was made of them [s]."""
        return self.model._point(self.jobs if jobs is None else jobs, self.past)


class Clock:
    """Predictions as if clocks had shown another hour; instants, and so the history, stay as they are.

    The predictor's time zone is set so that it reads the hour wanted; weekdays may move by one.
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        self._utc = _hours(instants(question.jobs), "UTC")
        self._said: dict[int, Floats] = {}

    @property
    def is_read(self) -> bool:
        """Whether the predictor is told the hour."""
        told = getattr(self.question.model, "features_", None)
        has_zone = "time_zone" in self.question.model.get_params()
        return has_zone and (told is None or bool({"hour", "weekday"} & set(told)))

    def hours(self) -> Ints:
        """Hour of each job's instant of asking in the predictor's time zone, 0 to 23; -1 = the instant is null."""
        return _hours(instants(self.question.jobs), self.question.model.get_params().get("time_zone", "UTC"))

    def answer(self, hours: Ints) -> Floats:
        """Predictions with these hours, one per job [s]."""
        shift = (hours - self._utc) % NUM_HOURS
        shift = np.where(shift > NUM_HOURS // 2, shift - NUM_HOURS, shift)
        out = np.empty(len(shift))
        for east in np.unique(shift).tolist():
            if east not in self._said:
                self._said[east] = replace(self.question, model=_in_zone(self.question.model, east)).answer()
            rows = shift == east
            out[rows] = self._said[east][rows]
        return out


def _in_zone(model: DurationPredictor, hours_east: int) -> DurationPredictor:
    """The fitted model, reading clocks so many hours east of UTC; in names of zones the sign is turned round."""
    other = copy(model)
    other.time_zone = f"Etc/GMT{-hours_east:+d}" if hours_east else "UTC"
    return other


def _hours(times: pl.Series, zone: str) -> Ints:
    return times.dt.convert_time_zone(zone).dt.hour().cast(pl.Int64).fill_null(-1).to_numpy()


def differ(past: pl.DataFrame, together: Iterable[str]) -> bool:
    """Whether columns of past jobs hold more than one value, so that there is something to swap."""
    return len(_values(past, together)) > 1


def _values(past: pl.DataFrame, together: Iterable[str]) -> pl.Series:
    """The values that columns hold, sorted."""
    known = [past[name].alias("value") for name in together if name in past.columns]
    return pl.concat(known).drop_nulls().unique().sort()


def relabelled(past: pl.DataFrame, columns: tuple[tuple[str, ...], ...], *, rng: np.random.Generator) -> pl.DataFrame:
    """Past jobs with the values of columns swapped for each other, all of one value for all of another.

    No value keeps its place (S. Sattolo, "An algorithm to generate a random cyclic permutation", Information
    Processing Letters 1986); null stays null. Columns in one bracket are swapped alike.
    """
    for together in columns:
        values = _values(past, together)
        if len(values) > 1:
            swapped = values.gather(_one_cycle(len(values), rng))
            change = pl.col(name for name in together if name in past.columns).replace_strict(
                values, swapped, default=None, return_dtype=values.dtype
            )
            past = past.with_columns(change)
    return past


def _one_cycle(size: int, rng: np.random.Generator) -> Ints:
    """A random permutation that is a single cycle."""
    order = np.arange(size)
    for place in range(size - 1, 0, -1):
        other = int(rng.integers(0, place))
        order[[place, other]] = order[[other, place]]
    return order
