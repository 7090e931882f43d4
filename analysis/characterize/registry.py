"""Registry of the characterizations: each a function from mergeable inputs to a small result table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypedDict, Unpack

import polars as pl

from analysis.characterize.countable import ensure_countable
from analysis.characterize.cubes import Input, Rows, as_groups
from analysis.characterize.engines import Request, collect
from analysis.characterize.prepare import Log, as_log
from analysis.errors import UnknownNameError
from analysis.trace import Trace

__all__ = ["CHARACTERIZATIONS", "Characterization", "characterization", "characterize"]

TableFunction = Callable[..., pl.DataFrame]
By = str | Sequence[str]
#: A characterization and the options that a trace gives it.
_Wanted = tuple["Characterization", Mapping[str, Any]]
#: Above so many jobs, tables that hold rows are counted one after the other.
MANY_JOBS: Final = 7_000_000

#: Options that say how the jobs are read, and the `Facts` of the jobs that entered; a function gets them only if it
#: has a parameter of that name.
READING_OPTIONS: Final = ("time_zone", "attempts", "facts")

#: What a column says, for the sentence about a log that lacks it.
COLUMN_MEANINGS: Final = {
    "submit_time": "when jobs were submitted",
    "start_time": "when jobs started",
    "end_time": "when jobs ended",
    "duration_s": "how long jobs ran",
    "queueing_delay_s": "how long jobs waited",
    "num_gpus": "how many GPUs jobs used",
    "num_nodes": "how many nodes jobs used",
    "num_attempts": "how often jobs were tried",
    "status": "how jobs ended",
    "user": "who submitted the jobs",
    "vc": "which virtual cluster, partition or queue a job belonged to",
    "gpu_type": "on which type of GPU jobs ran",
    "allowed_gpu_types": "which types of GPU jobs asked for",
    "time_limit_s": "which time limits jobs asked for",
    "job_name": "what jobs were called",
    "group": "which jobs belong together",
    "workload": "what kind of work jobs did",
}


def no_options(trace: Trace) -> dict[str, Any]:
    """Options of a function that needs nothing but its inputs."""
    del trace
    return {}


@dataclass(frozen=True, eq=False)
class Characterization:
    """One characterization of a workload; call it with a log to get its table.

    Attributes
    ----------
    name, title, definition : str
        Name in the registry and of the files; a heading; what is counted, in words.
    function : callable
        Collected inputs, in their order, ``by`` and own options to a small result table; pure.
    inputs : tuple of Cube or Rows
        What is collected from the jobs.
    source : str
        Where the definition comes from: paper, table or section, doi.
    needs : tuple of str
        Columns of the jobs table that must not be null everywhere.
    empty_means : str
        Sentence for an empty table when all columns are there.
    options : callable of Trace
        Keyword arguments of the function that come from the metadata or other tables.
    own_groups : tuple of str
        Groups that the table has as columns of its own; such a grouping changes nothing.
    heavy : bool
        Whether it takes seconds on millions of jobs (fits, fragmentation).
    beside : tuple of str
        Options, tables beside the jobs, without which the table is empty: no job is read for it if none has a row.
    """

    name: str
    function: TableFunction
    inputs: tuple[Input, ...]
    title: str
    definition: str
    source: str = ""
    needs: tuple[str, ...] = ()
    empty_means: str = "No job of the log enters this table."
    options: Callable[[Trace], dict[str, Any]] = no_options
    own_groups: tuple[str, ...] = ()
    heavy: bool = False
    beside: tuple[str, ...] = ()
    __wrapped__: TableFunction = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Documented as its function is: help(), doctest and the reference find the docstring here.
        about = {name: getattr(self.function, name) for name in ("__name__", "__module__", "__doc__", "__qualname__")}
        self.__dict__.update(about, __wrapped__=self.function)

    def __call__(
        self,
        jobs: Any,
        *,
        by: By = (),
        where: pl.Expr | None = None,
        engine: str = "polars",
        **options: Any,
    ) -> pl.DataFrame:
        """Compute the result table of a log.

        Parameters
        ----------
        jobs : Trace, or DataFrame or LazyFrame of polars, or pandas DataFrame, one row per job
            The log; from a Trace come the options too that are not given.
        by : str or sequence of str
            Names of ``GROUPS``; the table has these columns first, and is made for each group.
        where : Expr, optional
            Jobs that enter.
        engine : {"polars", "dask"}
            Who counts the jobs.
        **options
            Keyword arguments of the table's own; and ``time_zone`` (IANA name of the zone in which days begin) and
            ``attempts`` (DataFrame), which a Trace brings with it.

        Returns
        -------
        DataFrame
            Floats are rounded to 12 digits, below what sums of floats differ by.

        Raises
        ------
        UnknownNameError
            If a group or the engine is not known.
        """
        log, groups = as_log(jobs), as_groups(by)
        known = {**(self.options(log.trace) if log.trace else {}), **options}
        return _tables(log, {self.name: (self, known)}, groups, where, engine)[self.name]

    def table(self, trace: Trace, *, by: By = (), where: pl.Expr | None = None) -> pl.DataFrame:
        """Compute the result table of a trace."""
        return self(trace, by=by, where=where)

    def missing(self, trace: Trace, table: pl.DataFrame | None = None) -> str | None:
        """Say in one sentence why the table of this trace is empty, or null if it is not.

        Parameters
        ----------
        trace : Trace
            The log.
        table : DataFrame, optional
            The table, if it has been computed.
        """
        nulls = trace.scan("jobs").select(pl.len(), *(pl.col(name).null_count() for name in self.needs))
        num_jobs, *counts = nulls.collect().row(0)
        if not num_jobs:
            return "The log holds no jobs."
        lacking = [COLUMN_MEANINGS[name] for name, n in zip(self.needs, counts, strict=True) if n == num_jobs]
        if lacking:
            return f"The log does not say {' or '.join(lacking)}."
        filled = self.table(trace) if table is None else table
        return None if filled.height else self.empty_means

    def groups(self, by: tuple[str, ...]) -> tuple[str, ...]:
        """The grouping without those that the table has anyway."""
        return tuple(name for name in by if name not in self.own_groups)

    def finish(
        self, inputs: Sequence[pl.DataFrame], *, by: tuple[str, ...], options: Mapping[str, Any]
    ) -> pl.DataFrame:
        """Make the result table from the collected inputs."""
        taken = inspect.signature(self.function).parameters
        own = {name: value for name, value in options.items() if name not in READING_OPTIONS or name in taken}
        result = self.function(*inputs, by=by, **own)
        floats = [name for name, dtype in result.schema.items() if dtype.is_float()]
        return result.with_columns(pl.col(name).round_sig_figs(12) for name in floats)


#: Every characterization by name.
CHARACTERIZATIONS: Final[dict[str, Characterization]] = {}


class Traits(TypedDict, total=False):
    """What a characterization may say of itself; see `Characterization`."""

    source: str
    needs: tuple[str, ...]
    empty_means: str
    options: Callable[[Trace], dict[str, Any]]
    own_groups: tuple[str, ...]
    heavy: bool
    beside: tuple[str, ...]


def characterization(
    name: str, *, inputs: tuple[Input, ...], title: str, definition: str, **traits: Unpack[Traits]
) -> Callable[[TableFunction], Characterization]:
    """Register a function as the characterization ``name``; see `Characterization` for the parameters.

    The function takes the collected inputs by position and ``by`` (which of the groups come first in every input) by
    name, and gives the result table with the ``by`` columns first. What comes out is called with a log.
    """

    def register(function: TableFunction) -> Characterization:
        item = Characterization(name, function, inputs, title, definition, **traits)
        CHARACTERIZATIONS[name] = item
        return item

    return register


def characterize(
    trace: Any,
    names: Collection[str] | None = None,
    *,
    by: By = (),
    where: pl.Expr | None = None,
    engine: str = "polars",
) -> dict[str, pl.DataFrame]:
    """Compute result tables of a log by name; what several tables need is counted once.

    Parameters
    ----------
    trace : Trace, or DataFrame or LazyFrame of polars, or pandas DataFrame, one row per job
        The log.
    names : collection of str, optional
        Which of ``CHARACTERIZATIONS``; by default all.
    by : str or sequence of str
        Groups that every table is made for: any of cluster, vc, user, workload, gpu_type, gpu_bucket, status.
    where : Expr, optional
        Jobs that enter.
    engine : {"polars", "dask"}
        Who counts the jobs.

    Returns
    -------
    dict of str to DataFrame
        In the order asked for; a table that the log cannot fill has no rows.

    Raises
    ------
    UnknownNameError
        If a name, a group or the engine is not known.
    """
    wanted = tuple(CHARACTERIZATIONS) if names is None else tuple(names)
    for name in wanted:
        if name not in CHARACTERIZATIONS:
            raise UnknownNameError(kind="characterization", found=name, known=CHARACTERIZATIONS)
    log, groups = as_log(trace), as_groups(by)
    items = {name: CHARACTERIZATIONS[name] for name in wanted}
    options = {name: item.options(log.trace) if log.trace else {} for name, item in items.items()}
    return _tables(log, {name: (items[name], options[name]) for name in wanted}, groups, where, engine)


def _tables(
    log: Log,
    items: Mapping[str, _Wanted],
    by: tuple[str, ...],
    where: pl.Expr | None,
    engine: str,
) -> dict[str, pl.DataFrame]:
    lacking = {name: pair for name, pair in items.items() if _lacks_tables(*pair)}
    filled = {name: pair for name, pair in items.items() if name not in lacking}
    made: dict[str, pl.DataFrame] = {}
    if filled:
        ensure_countable(log.jobs if where is None else log.jobs.filter(where))
    for together in _rounds(log, filled):
        made |= _counted(log, together, by, where, engine)
    if lacking:
        made |= _counted(replace(log, jobs=log.jobs.head(0)), lacking, by, None, "polars")
    return {name: made[name] for name in items}


def _rounds(log: Log, items: Mapping[str, _Wanted]) -> Iterator[Mapping[str, _Wanted]]:
    """Tables that are counted together: all of them, but of a huge log those that hold rows one by one, for memory."""
    apart = [name for name, (item, _) in items.items() if any(isinstance(source, Rows) for source in item.inputs)]
    if len(items) == 1 or not apart or int(log.jobs.select(pl.len()).collect().item()) <= MANY_JOBS:
        apart = []
    together = {name: pair for name, pair in items.items() if name not in apart}
    yield from ([together] if together else [])
    yield from ({name: items[name]} for name in apart)


def _lacks_tables(item: Characterization, options: Mapping[str, Any]) -> bool:
    given = [options[name] for name in item.beside if options.get(name) is not None]
    return bool(item.beside) and not any(len(table) for table in given)


def _counted(
    log: Log,
    items: Mapping[str, _Wanted],
    by: tuple[str, ...],
    where: pl.Expr | None,
    engine: str,
) -> dict[str, pl.DataFrame]:
    wanted = dict.fromkeys((source, item.groups(by)) for item, _ in items.values() for source in item.inputs)
    given = [options for _, options in items.values()]
    request = Request(
        tuple(wanted),
        where=where,
        time_zone=_first(given, "time_zone") or _time_zone(log),
        attempts=_attempts(log, _first(given, "attempts")),
    )
    facts, collected = collect(log, request, engine=engine)
    read = {name: [(source, item.groups(by)) for source in item.inputs] for name, (item, _) in items.items()}
    # Large inputs last: by then the memory of counting has been given back.
    sizes = {name: sum(collected[key].estimated_size() for key in keys) for name, keys in read.items()}
    made = {}
    for name in sorted(items, key=lambda name: sizes[name]):
        item, options = items[name]
        inputs = [collected[key] for key in read[name]]
        made[name] = item.finish(inputs, by=item.groups(by), options={**options, "facts": facts})
    return made


def _first(given: Sequence[Mapping[str, Any]], name: str) -> Any:
    """Value of an option that tables share, from the first that has it."""
    return next((options[name] for options in given if options.get(name) is not None), None)


def _time_zone(log: Log) -> str:
    return log.trace.meta.time_zone if log.trace else "UTC"


def _attempts(log: Log, given: pl.DataFrame | None) -> pl.LazyFrame | None:
    table = given.lazy() if given is not None else log.trace.scan("attempts") if log.trace else None
    has_rows = table is not None and table.select(pl.len()).collect().item() > 0
    return table if has_rows else None
