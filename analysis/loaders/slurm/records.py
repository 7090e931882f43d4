"""From the text of an export to typed records, one per line of an allocation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import polars as pl

from analysis import metrics, schema
from analysis.loaders.slurm import grammar
from analysis.loaders.slurm.blocks import LINE, UNDECODABLE
from analysis.loaders.slurm.fields import count_of, field_of, job_key, once, said, select
from analysis.loaders.slurm.grammar import STATES
from analysis.loaders.slurm.hostlist import NO_HOSTS
from analysis.loaders.slurm.resources import with_resources
from analysis.loaders.slurm.times import SHIFT, TimeReader, settle_autumn

__all__ = ["TIMES", "Reading", "read_records"]

TIMES: Final = {"Submit": "submit_time", "Eligible": "eligible_time", "Start": "start_time", "End": "end_time"}
#: Fields that have a place in the tables; any other one goes into ``extra``.
TAKEN: Final = frozenset(
    (
        *TIMES,
        *("Account", "AllocCPUS", "AllocGRES", "AllocNodes", "AllocTRES", "Cluster", "Elapsed", "ElapsedRaw"),
        *("JobName", "NCPUS", "NNodes", "NodeList", "ReqCPUS", "ReqGRES", "ReqMem", "ReqNodes", "ReqTRES"),
        *("Restarts", "State", "Suspended", "Timelimit", "TimelimitRaw", "User"),
        # Of steps only: their lines give them to the usage table.
        *("MaxRSS", "TRESUsageInAve", "TRESUsageInMax", "TRESUsageInTot"),
    )
)
#: Fields with few different values.
REPEATED: Final = {"cluster": "Cluster", "user": "User", "account": "Account", "hosts": "NodeList"}
#: A field of which a sample has so many rows per value is kept as categories.
ROWS_PER_VALUE: Final = 20
SAMPLE: Final = 1000


@dataclass
class Reading:
    """What is known while an export is read.

    Attributes
    ----------
    times : TimeReader
        Reads its times.
    partition_limits : dict of str to float
        Limits of partitions [s], for the word Partition_Limit.
    names_gpus : bool
        Whether any row so far spoke of GPUs: if none does, the cluster does not record them.
    num_settled : int
        Ambiguous times that the elapsed time settled.
    repeated : set of str or None
        Fields of ``extra`` with few different values; null until the first block.
    """

    times: TimeReader
    partition_limits: dict[str, float] = field(default_factory=dict)
    names_gpus: bool = False
    num_settled: int = 0
    repeated: set[str] | None = None


def read_records(frame: pl.DataFrame, reading: Reading, *, file: int) -> pl.DataFrame:
    """The lines of allocations as typed records.

    Parameters
    ----------
    frame : DataFrame
        Lines whose id has no dot, all fields as text.
    reading : Reading
        Its counts grow.
    file : int
        Number of the file.

    Returns
    -------
    DataFrame, same length and order
        ``_line``, ``_file``, ``_undecodable``, ``_problem``; ``key``; the columns of the jobs table that a line can
        give, repeated texts as categories, lists as texts with commas; ``run_s``, ``suspended_s`` [s]; ``restarts``;
        ``hosts`` (host list as text); ``never`` and ``ran`` (bool: it never started, it ran); ``extra``.
    """
    times, problem = _read_times(frame, reading)
    parts = [frame.select(LINE, UNDECODABLE), times, _read_words(frame), _read_numbers(frame, reading)]
    table, num = settle_autumn(pl.concat(parts, how="horizontal"))
    reading.num_settled += num
    is_id = pl.col("key").str.contains(r"^\d").fill_null(value=False)
    no_id = pl.when(~is_id).then(pl.lit("no_id"))
    problem_ = pl.coalesce(no_id, pl.lit(problem)).cast(pl.Categorical)
    table = table.with_columns(_problem=problem_, _file=pl.lit(file, dtype=pl.UInt16))
    table, names_gpus = with_resources(table, frame)
    reading.names_gpus |= names_gpus
    table = table.with_columns(**_whether_it_ran(frame)).with_columns(run_s=_run_s())
    return table.with_columns(_extra(table, frame, reading)).drop("gpu_types")


def _extra(table: pl.DataFrame, frame: pl.DataFrame, reading: Reading) -> pl.Series:
    """The fields without a place, under their names, and what the tables have no room for."""
    rest = [name for name in frame.columns if name not in TAKEN and name not in (LINE, UNDECODABLE)]
    if reading.repeated is None:
        few = frame.height / ROWS_PER_VALUE if frame.height >= SAMPLE else 0
        reading.repeated = {name for name in rest if frame[name].n_unique() < few}
    texts = [
        pl.col(name).cast(pl.Categorical if name in reading.repeated else pl.String).alias(_own_name(name))
        for name in rest
    ]
    own = table.select("gpu_types")
    return (pl.concat([frame.select(texts), own], how="horizontal") if texts else own).to_struct("extra")


def _own_name(raw: str) -> str:
    """A field's name in ``extra``, away from ours."""
    return f"{raw}_raw" if raw in ("gpu_types", "num_steps") else raw


def _read_times(frame: pl.DataFrame, reading: Reading) -> tuple[pl.DataFrame, pl.Series]:
    columns: dict[str, pl.Series] = {}
    problem = pl.Series("problem", [None] * frame.height, dtype=pl.String)
    for raw, name in TIMES.items():
        if raw not in frame.columns:
            columns[name] = pl.Series(name, [None] * frame.height, dtype=schema.TIME)
            continue
        columns[name], shift, is_bad = reading.times.read(frame[raw])
        if shift is not None and raw in ("Start", "End"):
            columns[name + SHIFT] = shift
        if is_bad.any():
            problem = problem.zip_with(~is_bad | problem.is_not_null(), pl.Series([f"unreadable_{raw}"] * frame.height))
    return pl.DataFrame(columns), problem


def _read_words(frame: pl.DataFrame) -> pl.DataFrame:
    x = pl.col("x")
    full = grammar.full_state(said(x))
    mapped = full.replace_strict(STATES, default="unknown", return_dtype=pl.String)
    status = pl.when(full.is_not_null()).then(mapped).cast(schema.STATUS)
    states = once(frame, "State", status_raw=full.cast(pl.Categorical), status=status)
    names = said(x).str.split(",").list.eval(pl.element().str.strip_chars().str.strip_chars_end("*"))
    partitions = once(frame, "Partition", vc=names.list.first().cast(pl.Categorical))
    repeated = {name: field_of(frame, raw).cast(pl.Categorical) for name, raw in REPEATED.items()}
    plain = select(frame, key=job_key(frame), job_name=field_of(frame, "JobName"), **repeated)
    return pl.concat([plain, states, partitions], how="horizontal")


def _seconds(frame: pl.DataFrame, raw: str | None, text: str) -> pl.Series:
    """Whole seconds where the export has them, else the written duration."""
    nothing = pl.Series("s", [None], dtype=pl.Float64).new_from_index(0, frame.height)
    number = frame[raw].cast(pl.Float64, strict=False) if raw in frame.columns else nothing
    if text not in frame.columns or not number.null_count():
        return number
    written = once(frame, text, s=grammar.duration_s(pl.col("x")))["s"]
    return number.zip_with(number.is_not_null(), written)


def _read_numbers(frame: pl.DataFrame, reading: Reading) -> pl.DataFrame:
    counts = select(
        frame,
        restarts=count_of(frame, "Restarts"),
        alloc_nodes=count_of(frame, "NNodes", "AllocNodes"),
        req_nodes=count_of(frame, "ReqNodes"),
        alloc_cpus=count_of(frame, "NCPUS", "AllocCPUS"),
        req_cpus=count_of(frame, "ReqCPUS"),
        req_mem=field_of(frame, "ReqMem"),
    )
    run, suspended = _seconds(frame, "ElapsedRaw", "Elapsed"), _seconds(frame, None, "Suspended")
    limit = _read_limit(frame, reading)
    return counts.with_columns(run.alias("run_s"), suspended.alias("suspended_s"), limit.alias("time_limit_s"))


def _read_limit(frame: pl.DataFrame, reading: Reading) -> pl.Series:
    """The limit of each line; that of its partition where the line only names it and it is known."""
    limits = pl.Series("s", [None], dtype=pl.Float64).new_from_index(0, frame.height)
    for name in ("TimelimitRaw", "Timelimit"):
        if name not in frame.columns:
            continue
        written = grammar.limit_s(pl.col("x"), partition_limits={})
        is_partitions = pl.col("x").str.to_uppercase() == grammar.PARTITION_LIMIT
        found = once(frame, name, s=written, of_partition=is_partitions.fill_null(value=False))
        limit = found["s"]
        if found["of_partition"].any() and reading.partition_limits:
            pairs = {key.casefold(): value for key, value in reading.partition_limits.items()}
            first = pl.col("x").str.extract(r"^\s*([^,*]+)", 1).str.strip_chars().str.to_lowercase()
            of_partition = first.replace_strict(pairs, default=None, return_dtype=pl.Float64)
            limit = limit.zip_with(~found["of_partition"], once(frame, "Partition", s=of_partition)["s"])
        limits = limits.zip_with(limits.is_not_null(), limit)
    return limits


def _run_s() -> pl.Expr:
    """Elapsed where the export has it; else end - start without the pauses."""
    span = (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / metrics.US_PER_S
    return pl.coalesce("run_s", span - pl.col("suspended_s").fill_null(0))


def _whether_it_ran(frame: pl.DataFrame) -> dict[str, pl.Expr]:
    """``never``: it ended, or waits, without having started; ``ran``: it has started."""
    no_time = pl.col("run_s").fill_null(0.0) == 0
    no_start = pl.col("start_time").is_null()
    is_live = pl.col("status").is_in(["running", "suspended"]).fill_null(value=False)
    # Old versions write the time of the cancellation as the start of a job that never had a node.
    no_hosts = (pl.col("hosts").is_in(list(NO_HOSTS))).fill_null(value=False)
    no_length = no_start | (pl.col("start_time") == pl.col("end_time"))
    if "Start" in frame.columns:
        never = (no_start | (no_hosts & no_length)) & no_time & ~is_live
        ran = ~no_start | ~no_time | is_live
    else:
        never = no_time & pl.col("status").is_in(["pending", "cancelled"])
        ran = pl.lit(value=True)
    never = never.fill_null(value=False)
    return {
        "never": never,
        "ran": ran.fill_null(value=False) & ~never,
        # What a running job's line shows as its end is the moment of the query, if anything.
        "end_time": pl.when(~is_live).then("end_time"),
    }
