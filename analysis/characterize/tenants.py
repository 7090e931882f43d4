"""Who uses the cluster: the largest users and virtual clusters by GPU time."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from analysis.characterize.buckets import conform, grouped_schema
from analysis.characterize.cubes import in_order
from analysis.characterize.demand import share_of
from analysis.characterize.engines import Request, collect
from analysis.characterize.inputs import tenants
from analysis.characterize.prepare import as_log
from analysis.characterize.registry import characterization
from analysis.characterize.weighted import group_quantiles
from analysis.metrics import S_PER_H, US_PER_S

__all__ = ["top_tenants", "top_users", "top_vcs"]

NUM_TOP: Final = 20
USERS: Final = tenants("user")
VCS: Final = tenants("vc")

TENANT_SCHEMA: Final = {
    "rank": pl.Int64(),
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "gpu_hours": pl.Float64(),
    "gpu_time_share": pl.Float64(),
    "cumulative_gpu_time_share": pl.Float64(),
    "median_duration_s": pl.Float64(),
    "completed_share": pl.Float64(),
}


def top_tenants(jobs: Any, *, by: str, num_top: int = NUM_TOP) -> pl.DataFrame:
    """Largest tenants by GPU time (by jobs where the log has no GPU time).

    Parameters
    ----------
    jobs : Trace, DataFrame or LazyFrame, one row per job
        Columns of the jobs table.
    by : str
        Column that names the tenant (user, vc, account …); jobs where it is null form one tenant named null.
    num_top : int, default 20
        Rows at most.

    Returns
    -------
    DataFrame, one row per tenant
        The column ``by``, rank, num_jobs, job_share, gpu_hours, gpu_time_share (of all tenants), cumulative share down
        to this rank, median_duration_s, completed_share (of the tenant's jobs with a known status; null without one).
        Empty where the column is null everywhere.
    """
    cube = tenants(by)
    _, collected = collect(as_log(jobs), Request(((cube, ()),)))
    return _largest(collected[cube, ()], tenant=by, by=(), num_top=num_top)


def _largest(cube: pl.DataFrame, *, tenant: str, by: tuple[str, ...], num_top: int) -> pl.DataFrame:
    schema = {**grouped_schema(by, {tenant: pl.String()}), **TENANT_SCHEMA}
    if cube[tenant].null_count() == cube.height:
        return pl.DataFrame(schema=schema)
    keys = [*by, tenant]
    groups = cube.group_by(keys).agg(
        pl.col("num_jobs").sum(),
        gpu_hours=pl.col("sum_gpu_us").sum() / US_PER_S / S_PER_H,
        completed_share=_share(pl.col("num_completed").sum(), pl.col("num_known_status").sum()),
    )
    known = in_order(cube.filter(pl.col("duration_s").is_not_null()), [*keys, "duration_s"])
    medians = group_quantiles(known, keys, value="duration_s", weight="num_jobs", at={"median_duration_s": 0.5})
    order = [*by, "gpu_hours", "num_jobs", tenant]
    down = [*(False for _ in by), True, True, False]
    ranked = (
        groups.join(medians, on=keys, how="left", nulls_equal=True)
        .sort(order, descending=down, nulls_last=True)
        .with_columns(job_share=share_of("num_jobs", by), gpu_time_share=share_of("gpu_hours", by))
        .with_columns(
            cumulative_gpu_time_share=_within(pl.col("gpu_time_share").cum_sum(), by),
            rank=_within(pl.int_range(1, pl.len() + 1), by),
        )
    )
    return conform(ranked.filter(pl.col("rank") <= num_top), schema)


def _share(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole > 0).then(part / whole)


def _within(expr: pl.Expr, by: tuple[str, ...]) -> pl.Expr:
    return expr.over(by) if by else expr


@characterization(
    "top_users",
    inputs=(USERS,),
    title="Largest users",
    definition="Users by GPU time, the largest 20: their share of all jobs and of all GPU time.",
    needs=("user",),
    own_groups=("user",),
)
def top_users(users: pl.DataFrame, *, by: tuple[str, ...] = (), num_top: int = NUM_TOP) -> pl.DataFrame:
    """Largest users by GPU time, at most 20 (of each group); columns as in `top_tenants`."""
    return _largest(users, tenant="user", by=by, num_top=num_top)


@characterization(
    "top_vcs",
    inputs=(VCS,),
    title="Largest virtual clusters",
    definition=(
        "Virtual clusters, partitions or queues by GPU time, the largest 20: their share of all jobs and of all "
        "GPU time."
    ),
    needs=("vc",),
    own_groups=("vc",),
)
def top_vcs(vcs: pl.DataFrame, *, by: tuple[str, ...] = (), num_top: int = NUM_TOP) -> pl.DataFrame:
    """Largest virtual clusters, partitions or queues by GPU time, at most 20; columns as in `top_tenants`."""
    return _largest(vcs, tenant="vc", by=by, num_top=num_top)
