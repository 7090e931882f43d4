"""Where and when jobs wait: by virtual cluster, by hour of the day, as a share of their JCT, and their slowdown."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from analysis import metrics
from analysis.characterize.buckets import BUCKET, KIND, conform, grouped_schema
from analysis.characterize.cubes import GROUPS, Cube, in_order
from analysis.characterize.inputs import SLOT_S
from analysis.characterize.registry import characterization
from analysis.characterize.weighted import group_quantiles, with_all_gpu_jobs
from analysis.metrics import US_PER_S
from analysis.trace import Trace

__all__ = ["queueing_by_hour", "queueing_by_vc", "slowdowns"]

#: Waits longer than this count as long. [s]
LONG_S: Final = 600
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
#: Delays and slowdowns are counted to three digits: quantiles are off by less than half a percent. Means are of
#: the values before.
DIGITS: Final = 3
MICRO: Final = 1_000_000

VC_SCHEMA: Final = {
    "vc": pl.String(),
    "kind": KIND,
    "num_jobs": pl.Int64(),
    "waited_share": pl.Float64(),
    "mean_s": pl.Float64(),
    **{f"{name}_s": pl.Float64() for name in QUANTILES},
    "max_s": pl.Float64(),
}
HOUR_SCHEMA: Final = {
    "kind": KIND,
    "hour": pl.Int8(),
    "num_jobs": pl.Int64(),
    "waited_share": pl.Float64(),
    "long_share": pl.Float64(),
    "mean_s": pl.Float64(),
    "max_s": pl.Float64(),
}
SLOWDOWN_SCHEMA: Final = {
    "bucket": BUCKET,
    "num_jobs": pl.Int64(),
    "mean": pl.Float64(),
    **dict.fromkeys(QUANTILES, pl.Float64()),
    "max": pl.Float64(),
    "mean_queueing_share": pl.Float64(),
    "queueing_share_of_jct": pl.Float64(),
}
NO_STARTS: Final = "The log does not say when jobs started."
STARTED: Final = pl.col("has_times") & pl.col("wait_s").is_not_null()
WAIT_US: Final = (pl.col("wait_s") * US_PER_S).round().cast(pl.Int64)

#: Jobs that started by virtual cluster and queueing delay [s].
VC_WAITS: Final = Cube(
    "waits of vcs",
    keys={
        "vc": GROUPS["vc"],
        "kind": pl.col("kind"),
        "queueing_delay_s": pl.col("wait_s").round_sig_figs(DIGITS),
    },
    values={
        "num_jobs": pl.len().cast(pl.Int64),
        "num_waited": (pl.col("wait_s") > 1).sum().cast(pl.Int64),
        "sum_wait_us": WAIT_US.sum(),
        "max_wait_s": pl.col("wait_s").max(),
    },
    where=STARTED,
)
#: The same by quarter of an hour of their submission (UTC), with sums instead of the delays.
SLOT_WAITS: Final = Cube(
    "waits over time",
    keys={"kind": pl.col("kind"), "slot": pl.col("submit_us") // (SLOT_S * US_PER_S)},
    values={
        "num_jobs": pl.len().cast(pl.Int64),
        "num_waited": (pl.col("wait_s") > 1).sum().cast(pl.Int64),
        "num_long": (pl.col("wait_s") > LONG_S).sum().cast(pl.Int64),
        "sum_wait_us": WAIT_US.sum(),
        "max_wait_s": pl.col("wait_s").max(),
    },
    where=STARTED & pl.col("submit_us").is_not_null(),
)
SLOWDOWN: Final = metrics.bounded_slowdown(jct=metrics.jct_s())
#: Jobs that ended by size and bounded slowdown.
SLOWDOWNS: Final = Cube(
    "slowdowns",
    keys={"bucket": pl.col("bucket"), "slowdown": SLOWDOWN.round_sig_figs(DIGITS)},
    values={
        "num_jobs": pl.len().cast(pl.Int64),
        "sum_slowdown_micro": (SLOWDOWN * MICRO).round().cast(pl.Int64).sum(),
        # A job that is over when it is submitted waited for none of its JCT.
        "sum_share_micro": pl.when(metrics.jct_s() > 0)
        .then(pl.col("wait_s") / metrics.jct_s() * MICRO)
        .otherwise(0.0)
        .round()
        .cast(pl.Int64)
        .sum(),
        "sum_wait_us": WAIT_US.sum(),
        "sum_jct_us": (pl.col("end_us") - pl.col("submit_us")).sum(),
        "max_slowdown": SLOWDOWN.max(),
    },
    where=STARTED & pl.col("duration_s").is_not_null() & (pl.col("end_us") >= pl.col("submit_us")),
)


@characterization(
    "queueing_by_vc",
    inputs=(VC_WAITS,),
    title="Queueing delay by virtual cluster",
    definition=(
        "Time from submission to first start of the jobs that started, by virtual cluster, partition or queue; GPU "
        "jobs and CPU jobs apart. waited_share: jobs that waited longer than 1 s. Quantiles to three digits."
    ),
    source="Q. Hu et al., SC 2021, section 3 (queueing by VC), doi:10.1145/3458817.3476223",
    needs=("queueing_delay_s", "vc"),
    empty_means=NO_STARTS,
    own_groups=("vc",),
)
def queueing_by_vc(waits: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Mean and quantiles of the queueing delay by virtual cluster [s].

    Returns
    -------
    DataFrame, a row per virtual cluster and kind of jobs
        vc (null = the log does not say), kind, num_jobs (that started), waited_share, mean_s, p50_s, p90_s, p99_s,
        max_s. Empty where no job has a virtual cluster.
    """
    schema = grouped_schema(by, VC_SCHEMA)
    if waits["vc"].null_count() == waits.height:
        return pl.DataFrame(schema=schema)
    keys, count = [*by, "vc", "kind"], pl.col("num_jobs")
    waits = in_order(waits, [*keys, "queueing_delay_s"])
    table = waits.group_by(keys, maintain_order=True).agg(
        count.sum(),
        waited_share=pl.col("num_waited").sum() / count.sum(),
        mean_s=pl.col("sum_wait_us").sum() / US_PER_S / count.sum(),
        max_s=pl.col("max_wait_s").max(),
    )
    at = {f"{name}_s": share for name, share in QUANTILES.items()}
    quantiles = group_quantiles(waits, keys, value="queueing_delay_s", weight="num_jobs", at=at)
    return conform(pl.concat([table, quantiles.drop(keys)], how="horizontal"), schema)


def _clock_options(trace: Trace) -> dict[str, Any]:
    return {"time_zone": trace.meta.time_zone, "clock": trace.meta.clock}


@characterization(
    "queueing_by_hour",
    inputs=(SLOT_WAITS,),
    title="Queueing delay by hour of the day",
    definition=(
        "Time from submission to first start of the jobs submitted in this hour of the day, in the log's time zone; "
        "GPU jobs and CPU jobs apart. waited_share: longer than 1 s. long_share: longer than 10 minutes."
    ),
    source="Q. Hu et al., SC 2021, section 3 (daily patterns), doi:10.1145/3458817.3476223",
    needs=("queueing_delay_s", "submit_time"),
    empty_means="Times count from the start of the log, so hours of the day mean nothing.",
    options=_clock_options,
)
def queueing_by_hour(
    waits: pl.DataFrame, *, by: tuple[str, ...] = (), time_zone: str = "UTC", clock: str = "absolute"
) -> pl.DataFrame:
    """Queueing delay by hour of the day at submission [s]; with clock "relative" the table is empty.

    Returns
    -------
    DataFrame, a row per kind of jobs and hour in which any was submitted
        kind, hour (0-23), num_jobs (that started), waited_share, long_share, mean_s, max_s.
    """
    schema = grouped_schema(by, HOUR_SCHEMA)
    if clock == "relative":
        return pl.DataFrame(schema=schema)
    moment = (pl.col("slot") * SLOT_S * US_PER_S).cast(pl.Datetime("us", "UTC"))
    keys, count = [*by, "kind", "hour"], pl.col("num_jobs")
    table = (
        waits.with_columns(hour=moment.dt.convert_time_zone(time_zone).dt.hour())
        .group_by(keys)
        .agg(
            count.sum(),
            waited_share=pl.col("num_waited").sum() / count.sum(),
            long_share=pl.col("num_long").sum() / count.sum(),
            mean_s=pl.col("sum_wait_us").sum() / US_PER_S / count.sum(),
            max_s=pl.col("max_wait_s").max(),
        )
        .sort(keys)
    )
    return conform(table, schema)


@characterization(
    "slowdown",
    inputs=(SLOWDOWNS,),
    title="Bounded slowdown and the share of JCT spent waiting",
    definition=(
        "Bounded slowdown: JCT over running time, where less than 10 s counts as 10 s, at least 1; quantiles to three "
        "digits. mean_queueing_share: mean of each job's delay over its JCT. queueing_share_of_jct: all delays over "
        "all JCTs, so that long jobs count more. Jobs that ended; bucket 'all': all GPU jobs."
    ),
    source="D. G. Feitelson and L. Rudolph, JSSPP 1998, doi:10.1007/BFb0053978; share of JCT: SC 2021, table 3",
    needs=("queueing_delay_s", "end_time", "duration_s"),
    empty_means="The log does not say when jobs started and ended.",
)
def slowdowns(cube: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Bounded slowdown by GPU-count bucket, and how much of the JCT is waiting.

    Returns
    -------
    DataFrame, a row per bucket in which a job ended ("all" = GPU jobs)
        bucket, num_jobs, mean, p50, p90, p99 and max of the bounded slowdown, mean_queueing_share,
        queueing_share_of_jct (null if all JCTs are 0).

    Examples
    --------
    >>> from datetime import datetime, timedelta
    >>> t = datetime(2024, 1, 1)
    >>> job = {"submit_time": t, "start_time": t + timedelta(seconds=30), "end_time": t + timedelta(seconds=50)}
    >>> jobs = pl.DataFrame([{**job, "num_gpus": 1.0, "queueing_delay_s": 30.0, "duration_s": 20.0}])
    >>> slowdowns(jobs).filter(bucket="all").select("mean", "queueing_share_of_jct").row(0)
    (2.5, 0.6)
    """
    keys, count = [*by, "bucket"], pl.col("num_jobs")
    jct = pl.col("sum_jct_us").sum()
    ended = in_order(with_all_gpu_jobs(cube), [*keys, "slowdown"])
    table = ended.group_by(keys, maintain_order=True).agg(
        count.sum(),
        mean=pl.col("sum_slowdown_micro").sum() / MICRO / count.sum(),
        max=pl.col("max_slowdown").max(),
        mean_queueing_share=pl.col("sum_share_micro").sum() / MICRO / count.sum(),
        queueing_share_of_jct=pl.when(jct > 0).then(pl.col("sum_wait_us").sum() / jct),
    )
    quantiles = group_quantiles(ended, keys, value="slowdown", weight="num_jobs", at=QUANTILES)
    return conform(pl.concat([table, quantiles.drop(keys)], how="horizontal"), grouped_schema(by, SLOWDOWN_SCHEMA))
