"""Types of GPUs: what is asked of each, which jobs ask for some only, and whether they got what they asked for."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from analysis.characterize.buckets import GPU_BUCKETS, conform, grouped_schema
from analysis.characterize.cubes import GROUPS, Cube
from analysis.characterize.demand import share_of
from analysis.characterize.inputs import DURATIONS, WAITS, WORK
from analysis.characterize.registry import characterization
from analysis.characterize.utilization import gpus_by_type
from analysis.characterize.weighted import group_quantiles
from analysis.metrics import S_PER_H, US_PER_S
from analysis.trace import Trace

__all__ = ["gpu_types", "type_constraints", "type_matches"]

NUM_TOP: Final = 20
#: Key of jobs that take any type, and of all sets of types below the largest.
ANY: Final = "any"
OTHERS: Final = "other"

TYPES_SCHEMA: Final = {
    "gpu_type": pl.String(),
    "speed": pl.Float64(),
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "gpus_per_job": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
    "total_gpus": pl.Float64(),
    "capacity_share": pl.Float64(),
    "median_duration_s": pl.Float64(),
    "mean_queueing_delay_s": pl.Float64(),
    "p50_queueing_delay_s": pl.Float64(),
    "p90_queueing_delay_s": pl.Float64(),
}
CONSTRAINTS_SCHEMA: Final = {
    "gpu_types": pl.String(),
    "num_types": pl.Int64(),
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "num_gpus": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
    "mean_queueing_delay_s": pl.Float64(),
    "total_gpus": pl.Float64(),
}
MATCHES_SCHEMA: Final = {
    "asked": pl.String(),
    "gpu_type": pl.String(),
    "is_match": pl.Boolean(),
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
}
PAI: Final = (
    "Q. Weng et al., NSDI 2022, section 4 (heterogeneity), https://www.usenix.org/conference/nsdi22/presentation/weng"
)
FGD: Final = "Q. Weng et al., ATC 2023, table 2 (GPU models and constraints), https://www.usenix.org/conference/atc23/presentation/weng"

#: Durations and delays are counted to three digits: medians are off by less than half a percent. Means are of
#: the values before.
DIGITS: Final = 3
#: Types in the order of the alphabet: who asks for T4 or A10 asks for what A10 or T4 asks for.
ASKED: Final = pl.col("allowed_gpu_types").list.unique().list.sort().list.join("|").replace("", None)
WAIT_US: Final = (pl.col("wait_s") * US_PER_S).round().cast(pl.Int64).filter(pl.col("has_times"))

TYPED: Final = (pl.col("num_gpus") > 0) & pl.col("gpu_type").is_not_null()

#: GPU jobs whose type is known by it and running time, and by it and queueing delay [s]; null = not known.
RUNS: Final = Cube(
    "durations of types",
    keys={"gpu_type": GROUPS["gpu_type"], "value": pl.col("run_s").round_sig_figs(DIGITS)},
    values={**WORK, "sum_milli_gpus": pl.col("milli_gpus").sum()},
    where=TYPED,
)
TYPE_WAITS: Final = Cube(
    "waits of types",
    keys={"gpu_type": GROUPS["gpu_type"], "value": pl.col("wait_s").round_sig_figs(DIGITS)},
    values={"num_jobs": WORK["num_jobs"], "sum_wait_us": (pl.col("wait_s") * US_PER_S).round().cast(pl.Int64).sum()},
    where=TYPED & pl.col("has_times") & pl.col("wait_s").is_not_null(),
)
#: GPU jobs that do not take any type by the types that they take and the one that they got.
ASKS: Final = Cube(
    "asked and given types",
    keys={"asked": ASKED, "given": pl.col("gpu_type")},
    values={
        **WORK,
        "sum_milli_gpus": pl.col("milli_gpus").sum(),
        "sum_wait_us": WAIT_US.sum(),
        "num_waits": WAIT_US.count().cast(pl.Int64),
    },
    where=(pl.col("num_gpus") > 0) & (pl.col("allowed_gpu_types").list.len() > 0),
)


def _gpu_hours() -> pl.Expr:
    return pl.col("sum_gpu_us").sum() / US_PER_S / S_PER_H


def _options(trace: Trace) -> dict[str, Any]:
    return {"gpus": gpus_by_type(trace.nodes)}


@characterization(
    "gpu_types",
    inputs=(RUNS, TYPE_WAITS),
    title="GPU jobs by type of GPU",
    definition=(
        "GPU jobs by the type that they ran on, if the log says it: what they ask for, use and wait, beside the GPUs "
        "of that type. speed: measured training speed of the type relative to a V100, from the ratios that hindcast "
        "ships; null where nobody measured it."
    ),
    source=PAI,
    needs=("gpu_type", "num_gpus"),
    empty_means="No GPU job of the log says its type of GPU.",
    options=_options,
    own_groups=("gpu_type",),
)
def gpu_types(
    runs: pl.DataFrame, waits: pl.DataFrame, *, by: tuple[str, ...] = (), gpus: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Demand, use and delay of each type of GPU.

    Parameters
    ----------
    gpus : DataFrame, optional
        GPUs by type, as `analysis.characterize.utilization.gpus_by_type` gives them; null = not known.

    Returns
    -------
    DataFrame, a row per type
        gpu_type, speed [V100 = 1], num_jobs, job_share, gpus_per_job, gpu_hours, gpu_time_share, total_gpus,
        capacity_share, median_duration_s, mean_queueing_delay_s, p50_queueing_delay_s, p90_queueing_delay_s.
    """
    schema = grouped_schema(by, TYPES_SCHEMA)
    if not runs.height:
        return pl.DataFrame(schema=schema)
    # The engine that comes with the speeds takes a second to import.
    from analysis.replay.speeds import speed_of

    keys, count, value = [*by, "gpu_type"], pl.col("num_jobs"), pl.col("value")
    jobs = runs.group_by(keys).agg(
        count.sum(), gpu_hours=_gpu_hours(), gpus_per_job=pl.col("sum_milli_gpus").sum() / 1000 / count.sum()
    )
    known = runs.filter(value.is_not_null()).sort([*keys, "value"])
    medians = group_quantiles(known, keys, value="value", weight="num_jobs", at={"median_duration_s": 0.5})
    waits = waits.sort([*keys, "value"])
    at = {"p50_queueing_delay_s": 0.5, "p90_queueing_delay_s": 0.9}
    delays = group_quantiles(waits, keys, value="value", weight="num_jobs", at=at)
    means = waits.group_by(keys).agg(mean_queueing_delay_s=pl.col("sum_wait_us").sum() / US_PER_S / count.sum())
    totals = pl.DataFrame(schema={"gpu_type": pl.String, "total_gpus": pl.Float64}) if gpus is None else gpus
    for part, on in ((medians, keys), (means, keys), (delays, keys), (totals, ["gpu_type"])):
        jobs = jobs.join(part, on=on, how="left", nulls_equal=True)
    named = jobs["gpu_type"].unique().to_list()
    speeds = pl.DataFrame(
        [(name, speed_of(name)) for name in named], schema={"gpu_type": pl.String, "speed": pl.Float64}, orient="row"
    )
    table = jobs.join(speeds, on="gpu_type", how="left", nulls_equal=True).with_columns(
        job_share=share_of("num_jobs", by),
        gpu_time_share=share_of("gpu_hours", by),
        capacity_share=pl.col("total_gpus") / float(totals["total_gpus"].sum() or 1),
    )
    return conform(table.sort(keys), schema)


@characterization(
    "type_constraints",
    inputs=(ASKS, DURATIONS, WAITS),
    title="Types of GPUs that jobs ask for",
    definition=(
        "GPU jobs by the set of types that they take ('A|B' = either; 'any' = all, or the log does not say). The 20 "
        "most frequent sets; the rest is 'other'. total_gpus: GPUs of these types (a bare family name stands for its "
        "variants)."
    ),
    source=FGD,
    needs=("allowed_gpu_types", "num_gpus"),
    empty_means="No GPU job of the log asks for types of GPUs.",
    options=_options,
)
def type_constraints(
    asks: pl.DataFrame,
    durations: pl.DataFrame,
    waits: pl.DataFrame,
    *,
    by: tuple[str, ...] = (),
    gpus: pl.DataFrame | None = None,
    num_top: int = NUM_TOP,
) -> pl.DataFrame:
    """How many GPU jobs take which types.

    Parameters
    ----------
    gpus : DataFrame, optional
        GPUs by type; null = not known.
    num_top : int, default 20
        Sets of types at most.

    Returns
    -------
    DataFrame, a row per set of types, "any" first, then the most frequent
        gpu_types, num_types (null for "any" and "other"), num_jobs, job_share, num_gpus (asked for, summed), gpu_hours,
        gpu_time_share, mean_queueing_delay_s (null without any), total_gpus (null where the nodes are not known).
    """
    schema = grouped_schema(by, CONSTRAINTS_SCHEMA)
    if not asks.height:
        return pl.DataFrame(schema=schema)
    named = asks.group_by("asked").agg(pl.col("num_jobs").sum())
    order = named.sort(["num_jobs", "asked"], descending=[True, False])["asked"].to_list()
    frequent = pl.when(pl.col("asked").is_in(order[:num_top])).then("asked").otherwise(pl.lit(OTHERS))
    label = pl.when(pl.col("asked").is_null()).then(pl.lit(ANY)).otherwise(frequent)
    place = {name: number for number, name in enumerate([ANY, *order[:num_top], OTHERS])}
    num_waits = pl.col("num_waits").sum()
    table = (
        pl.concat([_rest(asks, durations, waits, by), asks.drop("given")], how="diagonal")
        .with_columns(gpu_types=label)
        .group_by([*by, "gpu_types"])
        .agg(
            pl.col("num_jobs").sum(),
            num_gpus=pl.col("sum_milli_gpus").sum() / 1000,
            gpu_hours=_gpu_hours(),
            mean_queueing_delay_s=pl.when(num_waits > 0).then(pl.col("sum_wait_us").sum() / US_PER_S / num_waits),
        )
        .with_columns(
            job_share=share_of("num_jobs", by),
            gpu_time_share=share_of("gpu_hours", by),
            num_types=pl.when(~pl.col("gpu_types").is_in([ANY, OTHERS])).then(
                pl.col("gpu_types").str.count_matches(r"\|") + 1
            ),
            total_gpus=pl.col("gpu_types").map_elements(lambda kinds: _eligible(kinds, gpus), return_dtype=pl.Float64),
            place=pl.col("gpu_types").replace_strict(place, return_dtype=pl.Int64),
        )
    )
    return conform(table.sort(*by, "place"), schema)


def _rest(asks: pl.DataFrame, durations: pl.DataFrame, waits: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    """GPU jobs of each group that take any type: all of them without those in ``asks``."""
    sums, wait = ["num_jobs", "sum_gpu_us", "sum_milli_gpus"], pl.col("queueing_delay_s")
    of_gpus = pl.col("bucket").is_in(GPU_BUCKETS)
    group = [pl.lit(0).alias("all"), *by]
    jobs = durations.filter(of_gpus).group_by(group).agg(pl.col(sums).sum())
    started = waits.filter(of_gpus & wait.is_not_null()).group_by(group)
    delays = started.agg(
        sum_wait_us=(wait * US_PER_S).round().cast(pl.Int64).dot("num_jobs"), num_waits=pl.col("num_jobs").sum()
    )
    everything = jobs.join(delays, on=["all", *by], how="left", nulls_equal=True).with_columns(
        pl.col("sum_wait_us", "num_waits").fill_null(0)
    )
    names = [*sums, "sum_wait_us", "num_waits"]
    asked = asks.group_by(group).agg(pl.col(names).sum())
    both = everything.join(asked, on=["all", *by], how="left", nulls_equal=True, suffix="_asked")
    rest = both.select(*by, *(pl.col(name) - pl.col(f"{name}_asked").fill_null(0) for name in names))
    return rest.filter(pl.col("num_jobs") > 0).with_columns(asked=pl.lit(None, pl.String))


def _eligible(kinds: str, gpus: pl.DataFrame | None) -> float | None:
    """GPUs of the types in a set; null for "other", which is no set, and where the nodes are not known."""
    from analysis.replay.speeds import is_same_type

    if gpus is None or not gpus.height or kinds == OTHERS:
        return None
    rows = gpus.rows()
    if kinds == ANY:
        return float(sum(total for _, total in rows))
    asked = kinds.split("|")
    return float(sum(total for kind, total in rows if kind and any(is_same_type(one, kind) for one in asked)))


@characterization(
    "type_matches",
    inputs=(ASKS,),
    title="Asked and given types of GPUs",
    definition=(
        "GPU jobs that ask for types of GPUs and whose type is known: whether they got one of those that they asked "
        "for. Names are equal up to spelling, and a bare family name stands for its variants ('V100' for 'V100M16')."
    ),
    source=PAI,
    needs=("allowed_gpu_types", "gpu_type", "num_gpus"),
    empty_means="No GPU job of the log says both what it asked for and what it got.",
    own_groups=("gpu_type",),
)
def type_matches(asks: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Which types GPU jobs got that had asked for some.

    Returns
    -------
    DataFrame, a row per set asked for and type given
        asked ('A|B' = either), gpu_type (given), is_match, num_jobs, job_share, gpu_hours, gpu_time_share (of the jobs
        in this table; null without GPU time).
    """
    schema = grouped_schema(by, MATCHES_SCHEMA)
    known = asks.filter(pl.col("given").is_not_null())
    if not known.height:
        return pl.DataFrame(schema=schema)
    from analysis.replay.speeds import is_same_type

    pairs = known.select("asked", "given").unique()
    matches = [any(is_same_type(one, given) for one in asked.split("|")) for asked, given in pairs.rows()]
    table = (
        known.group_by([*by, "asked", "given"])
        .agg(pl.col("num_jobs").sum(), gpu_hours=_gpu_hours())
        .join(pairs.with_columns(pl.Series("is_match", matches, dtype=pl.Boolean)), on=["asked", "given"])
        .with_columns(job_share=share_of("num_jobs", by), gpu_time_share=share_of("gpu_hours", by), gpu_type="given")
    )
    return conform(table.sort(*by, "asked", "given"), schema)
