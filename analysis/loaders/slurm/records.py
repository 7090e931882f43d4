"""From the text of an export to typed records (one per line of an allocation) and the measurements of its steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import polars as pl

from analysis import metrics, schema
from analysis.loaders.slurm import grammar
from analysis.loaders.slurm.blocks import LINE, UNDECODABLE
from analysis.loaders.slurm.grammar import MIB_PER_GIB, STATES, over_distinct
from analysis.loaders.slurm.hostlist import NO_HOSTS
from analysis.loaders.slurm.times import SHIFT, TimeReader, settle_autumn

__all__ = ["Reading", "is_step", "read_records", "read_steps"]

TIMES: Final = {"Submit": "submit_time", "Eligible": "eligible_time", "Start": "start_time", "End": "end_time"}
#: Fields that have a place in the tables; any other one goes into ``extra``.
TAKEN: Final = frozenset(
    (
        *TIMES,
        *("Account", "AllocCPUS", "AllocGRES", "AllocNodes", "AllocTRES", "Cluster", "Elapsed", "ElapsedRaw"),
        *("JobName", "NCPUS", "NNodes", "NodeList", "Partition", "ReqCPUS", "ReqGRES", "ReqMem", "ReqNodes", "ReqTRES"),
        *("Restarts", "State", "Suspended", "Timelimit", "TimelimitRaw", "User"),
        # Of steps only: their lines give them to the usage table.
        *("MaxRSS", "TRESUsageInAve", "TRESUsageInMax", "TRESUsageInTot"),
    )
)
NOTHING: Final = ("", "None", "N/A", "(null)")


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
    """

    times: TimeReader
    partition_limits: dict[str, float] = field(default_factory=dict)
    names_gpus: bool = False
    num_settled: int = 0


def _text(frame: pl.DataFrame, *names: str) -> pl.Expr:
    """The first of some fields that the export has and that is not blank."""
    have = [name for name in names if name in frame.columns]
    bare = [pl.col(name).str.strip_chars() for name in have]
    return pl.coalesce(*(pl.when(~text.is_in(list(NOTHING))).then(text) for text in bare)) if have else _null(pl.String)


def _select(frame: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    """Columns of a frame's own height, also where all of them are constants."""
    return frame.select(LINE, **columns).drop(LINE)


def _one(frame: pl.DataFrame, name: str) -> pl.Series:
    """One field without blanks, as a series named "x"."""
    return _select(frame, x=_text(frame, name))["x"]


def _null(dtype: type[pl.DataType] | pl.DataType) -> pl.Expr:
    return pl.lit(None, dtype=dtype)


def _count(frame: pl.DataFrame, *names: str) -> pl.Expr:
    """The first of some numeric fields that is above 0."""
    values = [pl.col(name).str.strip_chars().cast(pl.Float64, strict=False) for name in names if name in frame.columns]
    return pl.coalesce(*(pl.when(value > 0).then(value) for value in values)) if values else _null(pl.Float64)


def job_key(frame: pl.DataFrame) -> pl.Expr:
    """The id that a line shows: JobID (``77_2``, ``90+1``) where the export has it, else JobIDRaw."""
    return _text(frame, "JobID", "JobIDRaw")


def is_step(frame: pl.DataFrame) -> pl.Series:
    """Which lines are of steps (``88.batch``); the dots of a cut list of array tasks are none."""
    key = job_key(frame)
    dotted = key.str.contains(".", literal=True) & ~key.str.contains("[", literal=True)
    return _select(frame, x=dotted.fill_null(value=False))["x"]


def read_steps(frame: pl.DataFrame) -> pl.DataFrame:
    """The lines of steps: whose they are, and what they measured.

    Parameters
    ----------
    frame : DataFrame
        Lines whose id has a dot.

    Returns
    -------
    DataFrame
        ``_line``, ``cluster``, ``key`` (of the job), ``max_rss_mib``, ``gpu_util`` (percent, over all GPUs),
        ``gpu_mem_mib``; null where not measured.
    """
    table = frame.select(LINE, cluster=_text(frame, "Cluster"), key=job_key(frame).str.extract(r"^([^.]+)\.", 1))
    one = pl.lit(1.0)
    rss = _null(pl.Float64)
    if "MaxRSS" in frame.columns:
        # Without a suffix sacct means bytes here.
        text = pl.col("MaxRSS").str.replace(r"^\s*(\d+)\s*$", "${1}B")
        mib = grammar.memory_mib(pl.col("MaxRSS"), num_cpus=one, num_nodes=one)
        rss = pl.when(text.str.ends_with("B")).then(mib / MIB_PER_GIB**2).otherwise(mib)
    utils = _amounts(frame, "gres/gpuutil", "TRESUsageInTot", "TRESUsageInAve")
    mems = _amounts(frame, "gres/gpumem", "TRESUsageInMax", "TRESUsageInTot")
    measured = _select(
        frame,
        max_rss_mib=rss,
        gpu_util=utils,
        # gpumem is counted in bytes.
        gpu_mem_mib=mems / grammar.SCALES["M"],
    )
    return pl.concat([table, measured], how="horizontal")


def _amounts(frame: pl.DataFrame, what: str, *names: str) -> pl.Expr:
    amounts = [grammar.tres_amount(pl.col(name), what) for name in names if name in frame.columns]
    return pl.coalesce(*amounts) if amounts else _null(pl.Float64)


def read_records(frame: pl.DataFrame, reading: Reading, *, file: str) -> pl.DataFrame:
    """The lines of allocations as typed records.

    Parameters
    ----------
    frame : DataFrame
        Lines whose id has no dot, all fields as text.
    reading : Reading
        Its counts grow.
    file : str
        Name of the file, for rows that are set aside.

    Returns
    -------
    DataFrame, same length and order
        ``_line``, ``_file``, ``_undecodable``, ``_problem``; ``key``; the columns of the jobs table that a line can
        give; ``run_s``, ``suspended_s`` [s]; ``restarts``; ``hosts`` (host list as text); ``never`` and ``ran``
        (bool: it never started, it ran); ``extra``.
    """
    times, problem = _read_times(frame, reading)
    table = pl.concat(
        [frame.select(LINE, UNDECODABLE), times, _read_words(frame), _read_numbers(frame)], how="horizontal"
    )
    table, num = settle_autumn(table)
    reading.num_settled += num
    is_id = pl.col("key").str.contains(r"^\d").fill_null(value=False)
    no_id = pl.when(~is_id).then(pl.lit("no_id"))
    table = table.with_columns(_problem=pl.coalesce(no_id, pl.lit(problem)), _file=pl.lit(file))
    table = _with_resources(_with_limit(table, frame, reading), frame, reading)
    table = table.with_columns(**_whether_it_ran(frame)).with_columns(run_s=_run_s())
    return table.with_columns(_extra(table, frame)).drop("partitions", "gpu_types")


def _extra(table: pl.DataFrame, frame: pl.DataFrame) -> pl.Series:
    """The fields without a place, under their names, and what the tables have no room for."""
    rest = [name for name in frame.columns if name not in TAKEN and name not in (LINE, UNDECODABLE)]
    own = ["partitions", "gpu_types"]
    texts = [_text(frame, name).alias(f"{name}_raw" if name in own else name) for name in rest]
    return pl.concat([frame.select(texts), table.select(own)], how="horizontal").to_struct("extra")


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
    raw = {"key": ("JobID", "JobIDRaw"), "cluster": ("Cluster",), "user": ("User",), "account": ("Account",)}
    name = pl.col("JobName") if "JobName" in frame.columns else _null(pl.String)
    hosts = pl.col("NodeList") if "NodeList" in frame.columns else _null(pl.String)
    words = {column: _text(frame, *names) for column, names in raw.items()}
    plain = _select(frame, **words, job_name=name, hosts=hosts)
    state = _one(frame, "State")
    full = grammar.full_state(pl.col("x"))
    mapped = full.replace_strict(STATES, default="unknown", return_dtype=pl.String)
    status = pl.when(full.is_not_null()).then(mapped).cast(schema.STATUS)
    states = over_distinct(state, full.alias("status_raw"), status.alias("status"))
    partition = _one(frame, "Partition")
    lists = pl.col("x").str.split(",").list.eval(pl.element().str.strip_chars().str.strip_chars_end("*"))
    partitions = over_distinct(partition, lists.list.first().alias("vc"), lists.alias("partitions"))
    return pl.concat([plain, states, partitions], how="horizontal")


def _seconds(frame: pl.DataFrame, raw: str | None, text: str) -> pl.Series:
    """Whole seconds where the export has them, else the written duration."""
    nothing = pl.Series("s", [None] * frame.height, dtype=pl.Float64)
    number = frame[raw].str.strip_chars().cast(pl.Float64, strict=False) if raw in frame.columns else nothing
    if text not in frame.columns or not number.null_count():
        return number
    written = over_distinct(frame[text], grammar.duration_s(pl.col(text)).alias("s"))["s"]
    return number.zip_with(number.is_not_null(), written)


def _read_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    mem = _null(pl.String) if "ReqMem" not in frame.columns else pl.col("ReqMem")
    counts = _select(
        frame,
        restarts=_count(frame, "Restarts"),
        alloc_nodes=_count(frame, "NNodes", "AllocNodes"),
        req_nodes=_count(frame, "ReqNodes"),
        alloc_cpus=_count(frame, "NCPUS", "AllocCPUS"),
        req_cpus=_count(frame, "ReqCPUS"),
        req_mem=mem,
    )
    run, suspended = _seconds(frame, "ElapsedRaw", "Elapsed"), _seconds(frame, None, "Suspended")
    return counts.with_columns(run.alias("run_s"), suspended.alias("suspended_s"))


def _run_s() -> pl.Expr:
    """Elapsed where the export has it; else end - start without the pauses."""
    span = (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / metrics.US_PER_S
    return pl.coalesce("run_s", span - pl.col("suspended_s").fill_null(0))


def _with_limit(table: pl.DataFrame, frame: pl.DataFrame, reading: Reading) -> pl.DataFrame:
    names = [name for name in ("TimelimitRaw", "Timelimit") if name in frame.columns]
    texts = pl.concat([frame.select(names), table.select("vc")], how="horizontal")
    limits = [
        grammar.limit_s(pl.col(name), partition=pl.col("vc"), partition_limits=reading.partition_limits)
        for name in names
    ]
    limit = texts.select(pl.coalesce(*limits) if limits else _null(pl.Float64).alias("x")).to_series()
    return table.with_columns(limit.alias("time_limit_s") if limits else _null(pl.Float64).alias("time_limit_s"))


def _parse_tres(frame: pl.DataFrame, name: str) -> pl.Series:
    """Everything that a TRES or GRES field says, as a struct; each distinct text is read once."""
    text = _one(frame, name)
    of_gpus = grammar.tres_gpus(pl.col("x")) if name.endswith("TRES") else grammar.gres_gpus(pl.col("x"))
    amounts = [grammar.tres_amount(pl.col("x"), what) for what in ("cpu", "mem", "node")]
    return over_distinct(text, *of_gpus, *amounts, pl.col("x").is_not_null().alias("has_text")).to_struct(name)


def _with_resources(table: pl.DataFrame, frame: pl.DataFrame, reading: Reading) -> pl.DataFrame:
    """GPUs, processors, nodes and memory: what was allocated, else what was requested."""
    names = ("AllocTRES", "AllocGRES", "ReqTRES", "ReqGRES")
    parsed = pl.DataFrame([_parse_tres(frame, name) for name in names])
    says_gpus = parsed.select(pl.any_horizontal(pl.col(name).struct.field("names_gpus") for name in names)).to_series()
    reading.names_gpus |= bool(says_gpus.any())

    def of(name: str, what: str) -> pl.Expr:
        return pl.col(name).struct.field(what)

    whole = pl.concat([table, parsed], how="horizontal").with_columns(
        num_nodes=pl.coalesce("alloc_nodes", of("AllocTRES", "node"), "req_nodes", of("ReqTRES", "node")),
        num_cpus=pl.coalesce("alloc_cpus", of("AllocTRES", "cpu"), "req_cpus", of("ReqTRES", "cpu")),
    )
    # An old request is per node; everything that was allocated, and a requested TRES, is a total.
    gpus = [of(name, "gpus") for name in names[:3]] + [of("ReqGRES", "gpus") * pl.col("num_nodes").fill_null(1)]
    none = pl.when(pl.any_horizontal(of(name, "has_text") for name in names) & ~pl.lit(says_gpus)).then(0.0)
    mem = grammar.memory_mib(pl.col("req_mem"), num_cpus=pl.col("num_cpus"), num_nodes=pl.col("num_nodes"))
    whole = whole.with_columns(
        num_gpus=pl.coalesce(*gpus, none),
        gpu_type=pl.coalesce(of(name, "gpu_type") for name in names),
        allowed_gpu_types=pl.coalesce(of("ReqTRES", "gpu_types"), of("ReqGRES", "gpu_types")),
        gpu_types=pl.coalesce(of("AllocTRES", "gpu_types"), of("AllocGRES", "gpu_types")),
        mem_gib=pl.coalesce(of("AllocTRES", "mem"), of("ReqTRES", "mem"), mem) / MIB_PER_GIB,
        num_nodes=pl.col("num_nodes").cast(pl.Int64),
    )
    return whole.drop(*names, "alloc_nodes", "req_nodes", "alloc_cpus", "req_cpus", "req_mem")


def _whether_it_ran(frame: pl.DataFrame) -> dict[str, pl.Expr]:
    """``never``: it ended, or waits, without having started; ``ran``: it has started."""
    no_time = pl.col("run_s").fill_null(0.0) == 0
    no_start = pl.col("start_time").is_null()
    is_live = pl.col("status").is_in(["running", "suspended"]).fill_null(value=False)
    # Old versions write the time of the cancellation as the start of a job that never had a node.
    no_hosts = pl.col("hosts").is_in(list(NO_HOSTS)).fill_null(value=False)
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
