"""The small languages that Slurm's accounting writes: durations, limits, memory, states, TRES and GRES.

Everything is a polars expression, so that a column of millions is read at once; a value that is not in the language
becomes null, never 0. Facts are from Slurm's manual pages (sacct, slurm.conf) and its accounting records.
"""

from __future__ import annotations

from typing import Final

import polars as pl

__all__ = [
    "MIB_PER_GIB",
    "STATES",
    "duration_s",
    "full_state",
    "gres_gpus",
    "limit_s",
    "memory_mib",
    "over_distinct",
    "tres_amount",
    "tres_gpus",
]

MIB_PER_GIB: Final = 1024.0
NO_LIMIT: Final = "UNLIMITED"
PARTITION_LIMIT: Final = "PARTITION_LIMIT"
#: Factors to the base unit of TRES counts (thousands are 1024 in Slurm).
SCALES: Final = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40, "P": 2.0**50, "E": 2.0**60}

#: Slurm's job states and state flags, and what each is in hindcast.
STATES: Final[dict[str, str]] = {
    "BOOT_FAIL": "failed",
    "CANCELLED": "cancelled",
    "COMPLETED": "completed",
    "CONFIGURING": "running",
    "COMPLETING": "running",
    "DEADLINE": "timeout",
    "FAILED": "failed",
    "LAUNCH_FAILED": "failed",
    "NODE_FAIL": "node_fail",
    "OUT_OF_MEMORY": "failed",
    "PENDING": "pending",
    "POWER_UP_NODE": "running",
    "PREEMPTED": "preempted",
    "RECONFIG_FAIL": "failed",
    "REQUEUED": "preempted",
    "REQUEUE_FED": "preempted",
    "REQUEUE_HOLD": "pending",
    "RESIZING": "running",
    "RESV_DEL_HOLD": "pending",
    "REVOKED": "cancelled",
    "RUNNING": "running",
    "SIGNALING": "running",
    "SPECIAL_EXIT": "pending",
    "STAGE_OUT": "running",
    "STOPPED": "suspended",
    "SUSPENDED": "suspended",
    "TIMEOUT": "timeout",
    "UPDATE_DB": "running",
}
#: States that a job record ends or stands in; a word cut short is looked for among these first.
BASE_STATES: Final = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "PREEMPTED",
    "REQUEUED",
    "RESIZING",
    "REVOKED",
    "RUNNING",
    "SUSPENDED",
    "TIMEOUT",
)
SHORT_STATES: Final = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "TO": "TIMEOUT",
}

DURATION: Final = (
    r"^(?P<minus>-)?(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?(?P<fraction>\.\d+)?$"
)


def over_distinct(values: pl.Series, **columns: pl.Expr) -> pl.DataFrame:
    """Evaluate expressions once per distinct value: logs repeat few values over millions of rows.

    Parameters
    ----------
    values : Series
        The column, called as the expressions call it.
    **columns : Expr
        Elementwise expressions over that column.

    Returns
    -------
    DataFrame, same length and order as ``values``
        One column per expression.
    """
    distinct = values.unique().to_frame()
    known = distinct.select(pl.col(values.name).alias("_key"), **columns)
    keys = values.alias("_key").to_frame()
    return keys.join(known, on="_key", how="left", nulls_equal=True, maintain_order="left").drop("_key")


def duration_s(text: pl.Expr) -> pl.Expr:
    """Seconds of ``D-HH:MM:SS``, ``HH:MM:SS``, ``MM:SS.mmm``, ``D-H`` or ``D-H:M``; null for anything else.

    A leading minus is kept: such a record is invalid, and whoever reads it must be able to see that.

    Examples
    --------
    >>> frame = pl.DataFrame({"t": ["1-02:03:04", "35:45.828", "00:25", "INVALID", "-0:00:16"]})
    >>> frame.select(duration_s(pl.col("t"))).to_series().to_list()
    [93784.0, 2145.828, 25.0, None, -16.0]
    """
    parts = text.str.strip_chars().str.extract_groups(DURATION).struct

    def number(name: str) -> pl.Expr:
        return parts.field(name).cast(pl.Float64, strict=False)

    has_days, has_second = number("days").is_not_null(), number("second").is_not_null()
    has_third = number("third").is_not_null()
    first, second, third = number("first"), number("second").fill_null(0), number("third").fill_null(0)
    hours_first = number("days").fill_null(0) * 86400 + first * 3600 + second * 60 + third
    whole = pl.when(has_days | has_third).then(hours_first).when(has_second).then(first * 60 + second)
    size = whole + number("fraction").fill_null(0)
    return pl.when(parts.field("minus").is_null()).then(size).otherwise(-size)


def limit_s(text: pl.Expr, *, partition: pl.Expr | None = None, partition_limits: dict[str, float]) -> pl.Expr:
    """Requested limit in seconds; null for UNLIMITED, for an unknown partition's limit, and for 0.

    Parameters
    ----------
    text : Expr of str
        Column ``Timelimit``, or ``TimelimitRaw`` (whole minutes); both may hold the words UNLIMITED and
        Partition_Limit.
    partition : Expr of str, optional
        The job's partition, for Partition_Limit.
    partition_limits : dict of str to float
        Known limits of partitions [s].
    """
    bare = text.str.strip_chars()
    minutes = pl.when(bare.str.contains(r"^\d+$")).then(bare.cast(pl.Float64, strict=False) * 60)
    written = pl.coalesce(minutes, duration_s(bare))
    of_partition = pl.lit(None, dtype=pl.Float64)
    if partition is not None and partition_limits:
        of_partition = partition.replace_strict(partition_limits, default=None, return_dtype=pl.Float64)
    limit = pl.when(bare.str.to_uppercase() == PARTITION_LIMIT).then(of_partition).otherwise(written)
    return pl.when(limit > 0).then(limit)


def _scaled(text: pl.Expr, pattern: str) -> pl.Expr:
    """The number and the suffix that a pattern's two groups find, in base units."""
    scale = text.str.extract(pattern, 2).str.to_uppercase().replace_strict(SCALES, default=None)
    return text.str.extract(pattern, 1).cast(pl.Float64, strict=False) * scale


def memory_mib(text: pl.Expr, *, num_cpus: pl.Expr, num_nodes: pl.Expr) -> pl.Expr:
    """Requested memory of the whole job [MiB], as ``ReqMem`` writes it; null for 0 (the whole node) and for junk.

    A suffix ``c`` means per CPU and ``n`` per node; without a unit the number is MiB.

    Examples
    --------
    >>> frame = pl.DataFrame({"m": ["4000Mc", "16Gn", "0n", "2097M"], "cpus": [8] * 4, "nodes": [2] * 4})
    >>> frame.select(memory_mib(pl.col("m"), num_cpus=pl.col("cpus"), num_nodes=pl.col("nodes"))).to_series().to_list()
    [32000.0, 32768.0, None, 2097.0]
    """
    pattern = r"^\s*([0-9.]+)([KMGTPE]?)(?:i?B)?[cn]?\s*$"
    amount = _scaled(text, pattern)
    has_unit = text.str.extract(pattern, 2) != ""
    mib = pl.when(has_unit).then(amount / SCALES["M"]).otherwise(amount)
    per = text.str.extract(r"([cn])\s*$", 1)
    times = pl.when(per == "c").then(num_cpus).when(per == "n").then(num_nodes).otherwise(pl.lit(1.0))
    return pl.when(mib > 0).then(mib * times)


def full_state(text: pl.Expr) -> pl.Expr:
    """The state's full word: what stands after it (``by 1234``) dropped, cut or short words completed.

    A word that may be several, or none, stays as it is without decoration.

    Examples
    --------
    >>> frame = pl.DataFrame({"s": ["CANCELLED by 1234", "OUT_OF_ME+", "COMPL+", "C+", "CD"]})
    >>> frame.select(full_state(pl.col("s"))).to_series().to_list()
    ['CANCELLED', 'OUT_OF_MEMORY', 'COMPLETED', 'C', 'COMPLETED']
    """
    bare = text.str.strip_chars().str.extract(r"^(\S+)", 1).str.to_uppercase()
    is_cut = bare.str.ends_with("+")
    word = bare.str.strip_chars_end("+")
    cut = pl.lit(None, dtype=pl.String)
    for names in (tuple(STATES), BASE_STATES):
        fits = pl.concat_list(pl.when(pl.lit(name).str.starts_with(word)).then(pl.lit(name)) for name in names)
        one = fits.list.drop_nulls()
        cut = pl.when(one.list.len() == 1).then(one.list.first()).otherwise(cut)
    known = pl.when(word.is_in(list(STATES))).then(word)
    short = pl.when(~is_cut).then(word.replace_strict(SHORT_STATES, default=None, return_dtype=pl.String))
    return pl.coalesce(known, short, pl.when(is_cut).then(cut), word)


def tres_amount(tres: pl.Expr, name: str) -> pl.Expr:
    """The count of one trackable resource, e.g. ``cpu`` or ``node``; of ``mem`` in MiB. Null if not named.

    Examples
    --------
    >>> frame = pl.DataFrame({"t": ["cpu=8,mem=60G,node=1", "cpu=1K", ""]})
    >>> frame.select(tres_amount(pl.col("t"), "mem"), cpu=tres_amount(pl.col("t"), "cpu")).rows()
    [(61440.0, 8.0), (None, 1024.0), (None, None)]
    """
    pattern = rf"(?:^|,){name}=([0-9.]+)([KMGTPE]?)(?:,|$)"
    amount = _scaled(tres, pattern)
    if name != "mem":
        return amount.alias(name)
    return pl.when(tres.str.extract(pattern, 2) == "").then(amount).otherwise(amount / SCALES["M"]).alias(name)


def _typed(items: pl.Expr, pattern: str) -> tuple[pl.Expr, pl.Expr]:
    """Names and counts of typed GPUs in a list of texts."""
    names = items.list.eval(pl.element().str.extract(pattern, 1))
    counts = items.list.eval(pl.element().str.extract(pattern, 2).cast(pl.Float64, strict=False).fill_null(1.0))
    return names, counts


def _gpus(*, total: pl.Expr, names: pl.Expr, counts: pl.Expr, is_named: pl.Expr) -> list[pl.Expr]:
    """The four columns that TRES and GRES give; see `tres_gpus`."""
    typed = counts.list.sum()
    sure = pl.coalesce(total, pl.when(names.list.len() > 0).then(typed))
    kinds = names.list.unique(maintain_order=True)
    # Types that do not add up to the total say nothing about the rest.
    explains = (typed == sure) & (sure > 0)
    one = pl.when(explains & (kinds.list.len() == 1)).then(kinds.list.first())
    return [
        sure.alias("gpus"),
        pl.when(explains & (kinds.list.len() > 1)).then(pl.lit("mixed")).otherwise(one).alias("gpu_type"),
        pl.when((kinds.list.len() > 0) & (sure > 0)).then(kinds).alias("gpu_types"),
        is_named.fill_null(value=False).alias("names_gpus"),
    ]


def tres_gpus(tres: pl.Expr) -> list[pl.Expr]:
    """GPUs in a TRES text (``gres/gpu:a100=4,gres/gpu=4``): the untyped entry is the total and is not added.

    Parameters
    ----------
    tres : Expr of str

    Returns
    -------
    list of Expr
        ``gpus`` (null if none is named), ``gpu_type`` ("mixed" for several, null if not said), ``gpu_types`` (all
        that are named; null if none), ``names_gpus`` (bool, whether the text speaks of GPUs at all).

    Examples
    --------
    >>> frame = pl.DataFrame({"t": ["gres/gpu:a100=4,gres/gpu=4", "gres/gpu=2", "cpu=8,gres/gpumem=0"]})
    >>> frame.select(tres_gpus(pl.col("t"))).select("gpus", "gpu_type", "names_gpus").rows()
    [(4.0, 'a100', True), (2.0, None, True), (None, None, False)]
    """
    items = tres.str.extract_all(r"gres/gpu:[^=,]+=[0-9.]+")
    names, counts = _typed(items, r"^gres/gpu:([^=]+)=([0-9.]+)$")
    total = _scaled(tres, r"(?:^|,)gres/gpu=([0-9.]+)([KMGTPE]?)(?:,|$)")
    return _gpus(total=total, names=names, counts=counts, is_named=tres.str.contains(r"(?:^|,)gres/gpu[:=]"))


def gres_gpus(gres: pl.Expr) -> list[pl.Expr]:
    """GPUs in an old GRES text (``gpu:v100:4``, ``gpu:4(IDX:0-3)``, ``gpu:a100:2(IDX:0,3),gpu:v100:1``).

    Parameters
    ----------
    gres : Expr of str

    Returns
    -------
    list of Expr
        As `tres_gpus`. A text that is no GRES at all (``16?``) speaks of GPUs and gives null.

    Examples
    --------
    >>> frame = pl.DataFrame({"g": ["gpu:v100:4", "gpu:4(IDX:0-3)", "16?"]})
    >>> frame.select(gres_gpus(pl.col("g"))).select("gpus", "gpu_type", "names_gpus").rows()
    [(4.0, 'v100', True), (4.0, None, True), (None, None, True)]
    """
    bare = gres.str.strip_chars().str.replace_all(r"\([^)]*\)", "")
    items = bare.str.split(",")
    gpu_items = items.list.eval(pl.element().filter(pl.element().str.contains(r"^(?:gres[:/])?gpu(?:[:=]|$)")))
    counts = gpu_items.list.eval(pl.element().str.extract(r"[:=](\d+)$", 1).cast(pl.Float64, strict=False).fill_null(1))
    names = gpu_items.list.eval(pl.element().str.extract(r"^(?:gres[:/])?gpu:([^:=]*[^:=0-9][^:=]*)(?:[:=]\d+)?$", 1))
    is_broken = gres.str.contains(r"\?\s*$|^\s*\d+\s*$")
    has_gpu = gpu_items.list.len() > 0
    total = pl.when(has_gpu & ~is_broken).then(counts.list.sum())
    complete = pl.when(names.list.drop_nulls().list.len() == names.list.len()).then(names)
    known = pl.coalesce(complete, pl.lit([], dtype=pl.List(pl.String)))
    return _gpus(total=total, names=known, counts=counts, is_named=has_gpu | is_broken)
