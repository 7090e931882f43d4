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
from analysis.loaders.slurm.layout import IDS
from analysis.loaders.slurm.times import SHIFT, TimeReader, settle_autumn

__all__ = ["HET", "Reading", "gather_steps", "is_step", "read_records", "read_steps", "step_owner"]

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
#: A heterogeneous job's component.
HET: Final = r"^(\d+)\+(\d+)$"
#: A field of which a sample has so many rows per value is kept as categories.
ROWS_PER_VALUE: Final = 20
SAMPLE: Final = 1000
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
    repeated : set of str or None
        Fields of ``extra`` with few different values; null until the first block.
    """

    times: TimeReader
    partition_limits: dict[str, float] = field(default_factory=dict)
    names_gpus: bool = False
    num_settled: int = 0
    repeated: set[str] | None = None


def _field(frame: pl.DataFrame, *names: str) -> pl.Expr:
    """The first of some fields that the export has and that is not blank."""
    have = [pl.col(name) for name in names if name in frame.columns]
    return pl.coalesce(*have) if have else _null(pl.String)


def _select(frame: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    """Columns of a frame's own height, also where all of them are constants."""
    return frame.select(LINE, **columns).drop(LINE)


def _null(dtype: type[pl.DataType] | pl.DataType) -> pl.Expr:
    return pl.lit(None, dtype=dtype)


def _said(text: pl.Expr) -> pl.Expr:
    """A text without blanks around it; null where it is one of the words for nothing."""
    bare = text.str.strip_chars()
    return pl.when(~bare.is_in(list(NOTHING))).then(bare)


def _once(frame: pl.DataFrame, name: str, **columns: pl.Expr) -> pl.DataFrame:
    """Read a field of few different values, called "x" in the expressions, once per value."""
    return over_distinct(_select(frame, x=_field(frame, name))["x"], **columns)


def _count(frame: pl.DataFrame, *names: str) -> pl.Expr:
    """The first of some numeric fields that is above 0."""
    values = [pl.col(name).cast(pl.Float64, strict=False) for name in names if name in frame.columns]
    return pl.coalesce(*(pl.when(value > 0).then(value) for value in values)) if values else _null(pl.Float64)


def job_key(frame: pl.DataFrame) -> pl.Expr:
    """The id that a line shows: JobID (``77_2``, ``90+1``) where the export has it, else JobIDRaw."""
    return _field(frame, *IDS)


def is_step(frame: pl.DataFrame) -> pl.Series:
    """Which lines are of steps (``88.batch``); the dots of a cut list of array tasks are none."""
    key = job_key(frame)
    dotted = key.str.contains(".", literal=True) & ~key.str.contains("[", literal=True)
    return _select(frame, x=dotted.fill_null(value=False))["x"]


def step_owner(frame: pl.DataFrame) -> dict[str, pl.Expr]:
    """Whose steps lines are: the job's cluster and key, without the component of a heterogeneous job."""
    key = job_key(frame)
    job = key.str.head(key.str.find(".", literal=True))
    return {
        "cluster": _field(frame, "Cluster").cast(pl.Categorical),
        "key": pl.when(job.str.contains("+", literal=True)).then(job.str.extract(HET, 1)).otherwise(job),
    }


def read_steps(frame: pl.DataFrame) -> pl.DataFrame:
    """What the steps of each job measured.

    Parameters
    ----------
    frame : DataFrame
        Lines whose id has a dot.

    Returns
    -------
    DataFrame, one row per job
        ``cluster``, ``key`` (of the job), ``num_steps``, and the largest ``max_rss_mib``, ``gpu_util`` (percent,
        over all GPUs), ``gpu_mem_mib`` of its steps; null where not measured.
    """
    rss = _null(pl.Float64)
    if "MaxRSS" in frame.columns:
        # Without a suffix sacct means bytes here.
        suffix = pl.col("MaxRSS").str.tail(1)
        is_digit = suffix.str.contains(r"\d")
        number = (
            pl.when(is_digit).then("MaxRSS").otherwise(pl.col("MaxRSS").str.head(-1)).cast(pl.Float64, strict=False)
        )
        rss = number * suffix.replace_strict(grammar.SCALES, default=1.0, return_dtype=pl.Float64) / grammar.SCALES["M"]
    measured = _select(
        frame,
        **step_owner(frame),
        max_rss_mib=rss,
        gpu_util=_amounts(frame, "gres/gpuutil", "TRESUsageInTot", "TRESUsageInAve"),
        # gpumem is counted in bytes.
        gpu_mem_mib=_amounts(frame, "gres/gpumem", "TRESUsageInMax", "TRESUsageInTot") / grammar.SCALES["M"],
    )
    return gather_steps(measured.with_columns(num_steps=pl.lit(1, dtype=pl.Int64)))


def gather_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """One row per job of rows per step, or per job and block."""
    most = [pl.col("max_rss_mib", "gpu_util", "gpu_mem_mib").max(), pl.col("num_steps").sum()]
    if not steps["cluster"].count():
        return steps.group_by("key").agg(pl.col("cluster").first(), *most)
    return steps.group_by("cluster", "key").agg(most).select("key", "cluster", pl.exclude("key", "cluster"))


def _amounts(frame: pl.DataFrame, what: str, *names: str) -> pl.Expr:
    amounts = [grammar.tres_amount(pl.col(name), what) for name in names if name in frame.columns]
    return pl.coalesce(*amounts) if amounts else _null(pl.Float64)


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
    table = _with_resources(table, frame, reading)
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
    full = grammar.full_state(_said(x))
    mapped = full.replace_strict(STATES, default="unknown", return_dtype=pl.String)
    status = pl.when(full.is_not_null()).then(mapped).cast(schema.STATUS)
    states = _once(frame, "State", status_raw=full.cast(pl.Categorical), status=status)
    names = _said(x).str.split(",").list.eval(pl.element().str.strip_chars().str.strip_chars_end("*"))
    partitions = _once(frame, "Partition", vc=names.list.first().cast(pl.Categorical))
    repeated = {name: _field(frame, raw).cast(pl.Categorical) for name, raw in REPEATED.items()}
    plain = _select(frame, key=job_key(frame), job_name=_field(frame, "JobName"), **repeated)
    return pl.concat([plain, states, partitions], how="horizontal")


def _seconds(frame: pl.DataFrame, raw: str | None, text: str) -> pl.Series:
    """Whole seconds where the export has them, else the written duration."""
    nothing = pl.Series("s", [None], dtype=pl.Float64).new_from_index(0, frame.height)
    number = frame[raw].cast(pl.Float64, strict=False) if raw in frame.columns else nothing
    if text not in frame.columns or not number.null_count():
        return number
    written = _once(frame, text, s=grammar.duration_s(pl.col("x")))["s"]
    return number.zip_with(number.is_not_null(), written)


def _read_numbers(frame: pl.DataFrame, reading: Reading) -> pl.DataFrame:
    counts = _select(
        frame,
        restarts=_count(frame, "Restarts"),
        alloc_nodes=_count(frame, "NNodes", "AllocNodes"),
        req_nodes=_count(frame, "ReqNodes"),
        alloc_cpus=_count(frame, "NCPUS", "AllocCPUS"),
        req_cpus=_count(frame, "ReqCPUS"),
        req_mem=_field(frame, "ReqMem"),
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
        found = _once(frame, name, s=written, of_partition=is_partitions.fill_null(value=False))
        limit = found["s"]
        if found["of_partition"].any() and reading.partition_limits:
            pairs = {key.casefold(): value for key, value in reading.partition_limits.items()}
            first = pl.col("x").str.extract(r"^\s*([^,*]+)", 1).str.strip_chars().str.to_lowercase()
            of_partition = first.replace_strict(pairs, default=None, return_dtype=pl.Float64)
            limit = limit.zip_with(~found["of_partition"], _once(frame, "Partition", s=of_partition)["s"])
        limits = limits.zip_with(limits.is_not_null(), limit)
    return limits


def _run_s() -> pl.Expr:
    """Elapsed where the export has it; else end - start without the pauses."""
    span = (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / metrics.US_PER_S
    return pl.coalesce("run_s", span - pl.col("suspended_s").fill_null(0))


def _parse_tres(frame: pl.DataFrame, name: str) -> pl.Series:
    """Everything that a TRES or GRES field says, as a struct; each distinct text is read once."""
    text = _said(pl.col("x"))
    of_gpus = grammar.tres_gpus(text) if name.endswith("TRES") else grammar.gres_gpus(text)
    amounts = {what: grammar.tres_amount(text, what) for what in ("cpu", "mem", "node")}
    columns = {expression.meta.output_name(): expression for expression in of_gpus}
    columns["gpu_type"] = columns["gpu_type"].cast(pl.Categorical)
    columns["gpu_types"] = columns["gpu_types"].list.join(",").cast(pl.Categorical)
    return _once(frame, name, **columns, **amounts, has_text=text.is_not_null()).to_struct(name)


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
        allowed=pl.coalesce(of("ReqTRES", "gpu_types"), of("ReqGRES", "gpu_types")),
        gpu_types=pl.coalesce(of("AllocTRES", "gpu_types"), of("AllocGRES", "gpu_types")),
        mem_gib=pl.coalesce(of("AllocTRES", "mem"), of("ReqTRES", "mem"), mem) / MIB_PER_GIB,
        num_nodes=pl.col("num_nodes").cast(pl.Int64, strict=False),
    )
    return whole.drop(*names, "alloc_nodes", "req_nodes", "alloc_cpus", "req_cpus", "req_mem")


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
