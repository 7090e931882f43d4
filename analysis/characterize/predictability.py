"""What a predictor of durations can reach that knows only whose job it is: spread and entropy within groups."""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from analysis.characterize.buckets import KIND, grouped_schema
from analysis.characterize.groupings import (
    BIN_LOG,
    GROUPING,
    GROUPINGS,
    JOB_GROUPS,
    MIN_GROUP,
    GroupedJobs,
    grouped_jobs,
)
from analysis.characterize.prepare import BINS_PER_DOUBLING
from analysis.characterize.registry import characterization

__all__ = ["duration_predictability"]

PREDICTABILITY_SCHEMA: Final = {
    "kind": KIND,
    "grouping": GROUPING,
    "num_jobs": pl.Int64(),
    "job_share": pl.Float64(),
    "num_groups": pl.Int64(),
    "sd_log": pl.Float64(),
    "sd_log_within": pl.Float64(),
    "between_share": pl.Float64(),
    "entropy_bits": pl.Float64(),
    "entropy_within_bits": pl.Float64(),
    "hindsight_log_mae": pl.Float64(),
    "hindsight_log_mae_gpu_time": pl.Float64(),
    "hindsight_within_2x_share": pl.Float64(),
}


@characterization(
    "duration_predictability",
    title="What knowing whose job it is tells about its duration",
    definition=(
        f"Jobs of known duration in groups of at least {MIN_GROUP} jobs: of one virtual cluster, of it and one size "
        "(GPUs, or CPUs of CPU jobs), of one user (account where no user is named), of one user, size and time "
        "limit, of one user and name, of one recurrence group; 'none': all jobs as one group. sd_log: standard "
        "deviation of the natural logarithm of 1 s + duration, and within groups; between_share: share of the "
        "variance that the group explains (adjusted for the number of groups). entropy: uncertainty about which "
        "doubling of the time the duration lies in, without and with knowledge of the group. hindsight_log_mae: mean "
        "absolute error of that logarithm if each group's own median, known only afterwards, were predicted: no "
        "predictor that gives one number per group can do better on these jobs. Jobs whose duration is only a lower "
        "bound are left out."
    ),
    source=(
        "Adjusted share of variance (epsilon squared): T. L. Kelley, PNAS 21, 1935, doi:10.1073/pnas.21.9.554; "
        "entropy: C. E. Shannon, 1948, doi:10.1002/j.1538-7305.1948.tb01338.x, corrected after G. A. Miller, 1955"
    ),
    needs=("duration_s",),
    empty_means="No job has a known duration.",
    inputs=tuple(JOB_GROUPS.values()),
)
def duration_predictability(*job_groups: pl.DataFrame, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Spread, entropy and least error of the duration when only the job's group is known.

    Parameters
    ----------
    *job_groups : DataFrame
        Collected from ``JOB_GROUPS``, in their order.
    by : tuple of str
        Columns of the grouping of the table.

    Returns
    -------
    DataFrame, a row per kind of job and grouping with a group of at least 5 jobs
        kind, grouping, num_jobs (in such groups), job_share (of all jobs of the kind), num_groups, sd_log and
        sd_log_within (natural logarithm of 1 s + duration), between_share (0-1, a hair below 0 by chance; null if all
        durations are equal), entropy_bits, entropy_within_bits [bit], hindsight_log_mae, the same weighted by GPU time
        (null without GPU time), hindsight_within_2x_share (0-1).
    """
    rows: list[dict[str, Any]] = []
    totals: dict[tuple[Any, ...], int] = {}
    cubes = dict(zip(JOB_GROUPS, job_groups, strict=True))
    for grouping in GROUPINGS:
        for outer, jobs in grouped_jobs(cubes, grouping, by):
            total = totals.setdefault(tuple(outer.values()), jobs.num_jobs)
            large = jobs.of_at_least(MIN_GROUP)
            if large.num_jobs:
                rows.append({**outer, "grouping": grouping, "job_share": large.num_jobs / total, **_row(large)})
    table = pl.DataFrame(rows, schema=grouped_schema(by, PREDICTABILITY_SCHEMA), orient="row")
    return table.sort([*by, "kind", "grouping"])


def _row(jobs: GroupedJobs) -> dict[str, Any]:
    total, within = jobs.variances()
    gpu_time = int(jobs.gpu_us.sum())
    off = jobs.off_median * BIN_LOG
    return {
        "num_jobs": jobs.num_jobs,
        "num_groups": len(jobs.start),
        "sd_log": total**0.5,
        "sd_log_within": None if within is None else within**0.5,
        "between_share": None if within is None or total <= 0 else 1 - within / total,
        "entropy_bits": jobs.as_one().entropy_bits(),
        "entropy_within_bits": jobs.entropy_bits(),
        "hindsight_log_mae": float((jobs.count * off).sum()) / jobs.num_jobs,
        "hindsight_log_mae_gpu_time": float((jobs.gpu_us * off).sum()) / gpu_time if gpu_time else None,
        "hindsight_within_2x_share": jobs.shares_within(BINS_PER_DOUBLING)[0],
    }
