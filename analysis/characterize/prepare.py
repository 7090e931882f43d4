"""The jobs as the cubes see them: any kind of table in, all columns there, derived columns computed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import polars as pl

from analysis import metrics, schema
from analysis.characterize.buckets import MAX_BINS, gpu_bucket, job_kind
from analysis.frames import jobs_to_polars
from analysis.metrics import US_PER_S
from analysis.trace import Trace

__all__ = [
    "BINS",
    "BINS_PER_DOUBLING",
    "EXACT_JOBS",
    "FACT_COLUMNS",
    "GROUPED_NAMES",
    "WHO",
    "Facts",
    "Log",
    "as_log",
    "duration_bin",
    "hashed",
    "job_size",
    "prepare",
    "request_key",
    "views",
    "whole_jobs",
]

#: In a log of more jobs than this, durations and waits that are no whole seconds are rounded to four digits.
EXACT_JOBS: Final = 5_000_000
ROUGH_DIGITS: Final = 4
#: Prepared columns that the facts are read from.
FACT_COLUMNS: Final = ("submit_us", "start_us", "end_us")


#: Names that only have to be told apart; owner: the user, or the account where the source names no user.
NAMES: Final = {
    "owner": pl.coalesce("user", "account"),
    "vc": pl.col("vc"),
    "job_name": pl.col("job_name"),
    "group": pl.col("group"),
}
#: Bins of durations per doubling of 1 + duration; in all more than any duration needs, a power of two.
BINS_PER_DOUBLING: Final = 64
BINS: Final = 4096
#: Times as microseconds since 1970 UTC.
TIMES: Final = {f"{name}_us": pl.col(f"{name}_time").dt.timestamp("us") for name in ("submit", "start", "end")}
#: Durations as keys of cubes.
KEYS: Final = {"run_s": pl.col("duration_s"), "wait_s": pl.col("queueing_delay_s")}
#: Names of few values that are grouped by: as numbers they are counted faster, and take a fraction of the room.
GROUPED_NAMES: Final = ("user", "vc")
#: Whose job it is: the owner's, or the virtual cluster's where the source names no owner.
WHO: Final = pl.coalesce("owner_key", "vc_key")


def job_size() -> pl.Expr:
    """Thousandths of GPUs; of CPUs, with a minus sign, for a CPU job; null if the GPUs are unknown."""
    gpus, cpus = pl.col("milli_gpus"), (pl.col("num_cpus") * 1000).round().cast(pl.Int64)
    return pl.when(gpus > 0).then(gpus).when(gpus == 0).then(-cpus.fill_null(0))


def hashed(*columns: pl.Expr) -> pl.Expr:
    """Number that stands for a combination of values, the same in every part of a log; null where one is null."""
    if len(columns) == 1:
        return pl.when(columns[0].is_not_null()).then(columns[0].hash(0))
    named = pl.struct(part.alias(f"part_{place}") for place, part in enumerate(columns))
    return pl.when(pl.all_horizontal(column.is_not_null() for column in columns)).then(named.hash(0))


def request_key() -> pl.Expr:
    """Number that stands for whose job it is, its size and its time limit; null where one of the first two is."""
    # A sum of numbers that are mixed apart, past 2**64 from 0 on: mixing them at once takes several times as long.
    mixed = WHO + job_size().hash(1) + pl.col("time_limit_s").hash(2)
    return pl.when(job_size().is_not_null()).then(mixed)


@dataclass(frozen=True)
class Log:
    """What is characterized: the jobs, and what is known beside them."""

    jobs: pl.LazyFrame
    trace: Trace | None = None


@dataclass(frozen=True)
class Facts:
    """What has to be known of the whole log before it can be counted; microseconds since 1970 UTC, null = unknown.

    Every field, and ``tick_us``, is a constant column ``log_<name>`` of the prepared jobs.
    """

    num_jobs: int = 0
    first_submit_us: int | None = None
    last_submit_us: int | None = None
    first_us: int | None = None
    last_us: int | None = None

    @staticmethod
    def query(prepared: pl.LazyFrame) -> pl.LazyFrame:
        """Facts of a part of the log, as a row; from submit_us, start_us and end_us of the prepared jobs."""
        return prepared.select(
            num_jobs=pl.len(),
            first_submit_us=pl.col("submit_us").min(),
            last_submit_us=pl.col("submit_us").max(),
            first_us=pl.min_horizontal(pl.col(FACT_COLUMNS).min()),
            last_us=pl.max_horizontal(pl.col(FACT_COLUMNS).max()),
        )

    @classmethod
    def merge(cls, parts: list[pl.DataFrame]) -> Facts:
        """Facts of the whole log from those of its parts."""
        whole = pl.concat(parts).select(pl.col("num_jobs").sum(), pl.col("^first_.*$").min(), pl.col("^last_.*$").max())
        return cls(**whole.row(0, named=True))

    @property
    def tick_us(self) -> int:
        """Smallest bin of tables over time: all bins of at most ``MAX_BINS`` are whole numbers of it."""
        if self.first_submit_us is None or self.last_submit_us is None:
            return US_PER_S
        length_s = (self.last_submit_us - self.first_submit_us) / US_PER_S
        # Wider than all bins that are no multiples of it.
        wider = [tick for tick, above in ((60, 60), (3600, 3600)) if length_s > above * MAX_BINS]
        return max(wider, default=1) * US_PER_S

    def columns(self) -> list[pl.Expr]:
        """The facts as constant columns."""
        values = {f.name: getattr(self, f.name) for f in fields(self)} | {"tick_us": self.tick_us}
        return [pl.lit(value, pl.Int64).alias(f"log_{name}") for name, value in values.items()]


def as_log(jobs: Any) -> Log:
    """Take a Trace, a polars LazyFrame, or any table that narwhals knows, as the log to be characterized.

    Parameters
    ----------
    jobs : Trace, LazyFrame, DataFrame
        A row per job. A column of the jobs table that is missing is null everywhere (censoring "none", no flags).

    Raises
    ------
    UsageError
        If it is no table.
    """
    if isinstance(jobs, Trace):
        return Log(whole_jobs(jobs.scan("jobs")), jobs)
    return Log(whole_jobs(jobs if isinstance(jobs, pl.LazyFrame) else jobs_to_polars(jobs).lazy()))


def whole_jobs(jobs: pl.LazyFrame) -> pl.LazyFrame:
    """All columns of the jobs table, with their dtypes; other columns stay."""
    found = jobs.collect_schema()
    defaults: Mapping[str, pl.Expr] = {
        "censoring": pl.lit("none", schema.CENSORING),
        "flags": pl.lit([], schema.FLAG_LIST),
    }
    changes = []
    for name, dtype in schema.JOBS.items():
        if name == "extra" or found.get(name) == dtype:
            continue
        if name not in found:
            changes.append(defaults.get(name, pl.lit(None, dtype)).alias(name))
        else:
            changes.append(_as_dtype(name, found[name], dtype))
    return jobs.with_columns(changes) if changes else jobs


def _as_dtype(name: str, found: pl.DataType, dtype: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if isinstance(found, pl.Datetime) and dtype == schema.TIME:
        # Naive instants are UTC, as everywhere in hindcast.
        column = column.dt.replace_time_zone("UTC") if found.time_zone is None else column.dt.convert_time_zone("UTC")
        return column.cast(dtype)
    # A status outside the set is unknown, and null counts as unknown.
    return column.cast(dtype, strict=name != "status")


def prepare(jobs: pl.LazyFrame, *, num_jobs: int, time_zone: str = "UTC") -> pl.LazyFrame:
    """Add what cubes use as keys and values; what no cube uses is never computed.

    Parameters
    ----------
    jobs : LazyFrame, one row per job
        All columns of the jobs table.
    num_jobs : int
        Jobs of the whole log.
    time_zone : str
        IANA name of the zone in which days begin.

    Returns
    -------
    LazyFrame
        The jobs with bucket (of GPUs, an Enum), kind (gpu, cpu, unknown), gpu_us (GPU time in whole
        GPU-microseconds: integers, so that sums are exact), milli_gpus (int), run_s and wait_s (duration and
        queueing delay as keys [s], in huge logs rounded to four digits unless whole), submit_us, start_us, end_us
        (microseconds since 1970 UTC), local_day (date of submission in the zone), owner_key, vc_key, job_name_key and
        group_key (numbers that stand for the names of ``NAMES``, in less room), request_key (of ``WHO``, size and
        time limit), has_times (start and end are the source's own), duration_bin (see `duration_bin`) and
        is_right_censored. The facts come beside them as ``log_`` columns when they are counted.
    """
    is_exact = num_jobs <= EXACT_JOBS
    return jobs.with_columns(
        gpu_bucket(),
        job_kind(),
        (metrics.gpu_s() * US_PER_S).round().cast(pl.Int64).alias("gpu_us"),
        (pl.col("num_gpus") * 1000).round().cast(pl.Int64).alias("milli_gpus"),
        *((expr if is_exact else _rough(expr)).alias(name) for name, expr in KEYS.items()),
        *(expr.alias(name) for name, expr in TIMES.items()),
        # Zone before date: a day begins at the site's midnight.
        pl.col("submit_time").dt.convert_time_zone(time_zone).dt.date().alias("local_day"),
        *(hashed(expr).alias(f"{name}_key") for name, expr in NAMES.items()),
        duration_bin(),
        (~pl.col("flags").list.contains("times_assumed")).alias("has_times"),
        pl.col("censoring").is_in(["right", "both"]).alias("is_right_censored"),
    ).with_columns(request_key=request_key())


def duration_bin() -> pl.Expr:
    """Bin of 1 + duration [s]: 64 of a doubling, 4096 in all; null without a duration."""
    bins = ((1 + pl.col("duration_s")).log(2) * BINS_PER_DOUBLING).floor().clip(upper_bound=BINS - 1)
    return bins.cast(pl.UInt16).alias("duration_bin")


def _rough(value: pl.Expr) -> pl.Expr:
    return pl.when(value == value.floor()).then(value).otherwise(value.round_sig_figs(ROUGH_DIGITS))


def views(*, num_jobs: int) -> dict[str, pl.Expr]:
    """Prepared columns that are other columns under another name or dtype: put beside these they take no room."""
    return {**TIMES, **KEYS} if num_jobs <= EXACT_JOBS else dict(TIMES)
