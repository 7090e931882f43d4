"""Registry of the characterizations: each a pure function from a jobs table to a small result table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from analysis.errors import UnknownNameError
from analysis.trace import Trace

__all__ = ["CHARACTERIZATIONS", "Characterization", "characterization", "characterize"]

TableFunction = Callable[..., pl.DataFrame]

#: What a column says, for the sentence about a log that lacks it.
COLUMN_MEANINGS: Final = {
    "submit_time": "when jobs were submitted",
    "start_time": "when jobs started",
    "end_time": "when jobs ended",
    "duration_s": "how long jobs ran",
    "queueing_delay_s": "how long jobs waited",
    "num_gpus": "how many GPUs jobs used",
    "status": "how jobs ended",
    "user": "who submitted the jobs",
    "vc": "which virtual cluster, partition or queue a job belonged to",
}


def no_options(trace: Trace) -> dict[str, Any]:
    """Options of a function that needs nothing but the jobs."""
    del trace
    return {}


@dataclass(frozen=True)
class Characterization:
    """One characterization of a workload.

    Attributes
    ----------
    name, title, definition : str
        Name in the registry and of the files; a heading; what is counted, in words.
    function : callable
        Jobs table (and options) to a small result table; pure.
    needs : tuple of str
        Columns of the jobs table that must not be null everywhere.
    empty_means : str
        Sentence for an empty table when all columns are there.
    options : callable of Trace
        Keyword arguments of the function that come from the metadata or other tables.
    """

    name: str
    title: str
    definition: str
    function: TableFunction
    needs: tuple[str, ...]
    empty_means: str
    options: Callable[[Trace], dict[str, Any]]

    def table(self, trace: Trace) -> pl.DataFrame:
        """Compute the result table of a trace; floats are rounded to 12 digits, below what sums of floats differ by."""
        result = self.function(trace.jobs, **self.options(trace))
        floats = [name for name, dtype in result.schema.items() if dtype.is_float()]
        return result.with_columns(pl.col(name).round_sig_figs(12) for name in floats)

    def missing(self, trace: Trace) -> str | None:
        """Say in one sentence why the table of this trace is empty, or null if it is not."""
        jobs = trace.jobs
        if not jobs.height:
            return "The log holds no jobs."
        lacking = [COLUMN_MEANINGS[name] for name in self.needs if jobs[name].null_count() == jobs.height]
        if lacking:
            return f"The log does not say {' or '.join(lacking)}."
        return None if self.table(trace).height else self.empty_means


#: Every characterization by name.
CHARACTERIZATIONS: Final[dict[str, Characterization]] = {}


def characterization(
    name: str,
    *,
    title: str,
    definition: str,
    needs: tuple[str, ...] = (),
    empty_means: str = "No job of the log enters this table.",
    options: Callable[[Trace], dict[str, Any]] = no_options,
) -> Callable[[TableFunction], TableFunction]:
    """Register a function as the characterization ``name``; see `Characterization` for the parameters."""

    def register(function: TableFunction) -> TableFunction:
        CHARACTERIZATIONS[name] = Characterization(name, title, definition, function, needs, empty_means, options)
        return function

    return register


def characterize(trace: Trace, *, names: tuple[str, ...] | None = None) -> dict[str, pl.DataFrame]:
    """Compute result tables of a trace by name.

    Parameters
    ----------
    trace : Trace
        The log.
    names : tuple of str, optional
        Which of ``CHARACTERIZATIONS``; by default all.

    Returns
    -------
    dict of str to DataFrame
        In the order asked for; a table that the log cannot fill has no rows.

    Raises
    ------
    UnknownNameError
        If a name is not registered.
    """
    wanted = tuple(CHARACTERIZATIONS) if names is None else names
    for name in wanted:
        if name not in CHARACTERIZATIONS:
            raise UnknownNameError(kind="characterization", found=name, known=CHARACTERIZATIONS)
    return {name: CHARACTERIZATIONS[name].table(trace) for name in wanted}
