"""From records to jobs: lines seen twice, arrays, heterogeneous jobs, requeues, steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.slurm.arrays import HET, expand_arrays, merge_het
from analysis.loaders.slurm.blocks import LINE
from analysis.loaders.slurm.grammar import MIB_PER_GIB
from analysis.loaders.slurm.hostlist import expand_column

__all__ = ["JOB", "Assembled", "assemble"]

PROBLEM: Final = "_problem"
#: One job: the same id of the same user on the same cluster. Slurm gives ids again after years.
JOB: Final = ["cluster", "key", "user"]
ORDER: Final = ["submit_time", "start_time", "end_time", LINE]
PERCENT: Final = 100.0


@dataclass
class Assembled:
    """Jobs and what became of the lines.

    Attributes
    ----------
    jobs : DataFrame, one row per job
        Partial columns for ``finish_jobs``; the columns of `JOB` tell a job, there is no ``job_id`` yet.
    attempts : DataFrame
        Runs, as ``schema.ATTEMPTS``, with the columns of `JOB` instead of ``job_id``.
    usage : DataFrame
        As ``schema.USAGE``, with the columns of `JOB` instead of ``job_id``.
    rejects : DataFrame
        As ``schema.REJECTS``, without text: unreadable lines, lines seen twice, steps without a job.
    rows_merged, rows_expanded : int
        Lines that went into the job of another; jobs beyond one per line.
    notes : list of str
        What was noticed.
    """

    jobs: pl.DataFrame
    attempts: pl.DataFrame
    usage: pl.DataFrame
    rejects: pl.DataFrame
    rows_merged: int = 0
    rows_expanded: int = 0
    notes: list[str] = field(default_factory=list)


def assemble(records: pl.DataFrame, steps: pl.DataFrame) -> Assembled:
    """Make jobs of records.

    Parameters
    ----------
    records : DataFrame
        From `records.read_records`, of all files.
    steps : DataFrame
        From `records.read_steps`, with ``_file``.

    Returns
    -------
    Assembled
        The same whatever the order of the lines, where they have times.
    """
    bad = records.filter(pl.col(PROBLEM).is_not_null())
    good, notes = expand_arrays(records.filter(pl.col(PROBLEM).is_null()))
    kept, again = _drop_repetitions(good)
    num_lines = records.height - bad.height - again.height
    whole, num_het = merge_het(kept)
    jobs, attempts, num_runs, more = _merge_runs(whole)
    usage, orphans, jobs = _measure(jobs, steps)
    return Assembled(
        jobs=jobs,
        attempts=attempts,
        usage=usage,
        rejects=pl.concat([_rejects(bad, pl.col(PROBLEM)), again, orphans]),
        rows_merged=num_het + num_runs + steps.height - orphans.height,
        rows_expanded=kept.height - num_lines,
        notes=notes + more,
    )


def _rejects(rows: pl.DataFrame, reason: pl.Expr) -> pl.DataFrame:
    table = rows.select(file="_file", line=LINE, reason=reason, raw=pl.lit(None, dtype=pl.String))
    return table.cast(schema.REJECTS)  # type: ignore[arg-type]


def _drop_repetitions(records: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Of lines about one run (exports that overlap) keep the one that knows most.

    A run is told by its submission: Slurm sets a new one when it requeues a job. Lines without a submission cannot be
    told from requeues, so they all stay.
    """
    same = ["cluster", "key", "user", "submit_time"]
    several = pl.struct(same).is_duplicated() & pl.col("submit_time").is_not_null()
    is_several = records.select(several).to_series()
    if not is_several.any():
        return records, _rejects(records.clear(), pl.lit(""))
    group = records.filter(is_several)
    has_start = pl.col("start_time").is_not_null()
    # A line without start is older than one of the same submission with a start.
    group = group.with_columns(stale=~has_start & has_start.any().over(same))
    know = (pl.col("stale"), pl.col("end_time").is_null(), -pl.col("run_s").fill_null(-1), pl.col("end_time"))
    group = group.sort(*know, pl.col(LINE), nulls_last=True)
    is_kept = pl.struct(*same, "start_time").is_first_distinct() & ~pl.col("stale")
    compared = [name for name in group.columns if name not in (LINE, "_file", "stale")]
    is_twin = ~pl.struct(compared).is_first_distinct()
    reason = pl.when(is_twin).then(pl.lit("duplicate_row")).otherwise(pl.lit("older_record"))
    group = group.with_columns(is_kept=is_kept, reason=reason)
    kept = pl.concat([records.filter(~is_several), group.filter("is_kept").select(records.columns)])
    # A line of array tasks of which some are kept is used.
    gone = group.filter(~pl.col("is_kept")).unique(["_file", LINE], keep="first", maintain_order=True)
    gone = gone.join(kept.select("_file", LINE), on=["_file", LINE], how="anti")
    return kept, _rejects(gone, pl.col("reason"))


def _merge_runs(records: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, int, list[str]]:
    """One row per job of its runs, the runs, how many records were merged, and what was noticed."""
    is_several = records.select(pl.struct(JOB).is_duplicated()).to_series()
    single, several = records.filter(~is_several), records.filter(is_several).sort(*ORDER, nulls_last=True)
    single = single.with_columns(num_attempts=pl.col("ran").cast(pl.Int64))
    jobs, attempts = single, [_attempts(single, pl.lit(1))]
    if several.height:
        number = pl.col("ran").cast(pl.Int64).cum_sum().over(JOB)
        attempts.append(_attempts(several.with_columns(number=number), pl.col("number")))
        merged = several.group_by(JOB, maintain_order=True).agg(_over_runs(several.columns))
        jobs = pl.concat([single, merged.select(single.columns)])
    restarted = pl.when("ran").then(pl.col("restarts") + 1).cast(pl.Int64)
    unseen = int(jobs.select((restarted > pl.col("num_attempts")).sum()).item())
    notes = []
    if unseen:
        notes.append(f"{unseen} jobs were restarted and show their last run only: export with -D to see all runs.")
    jobs = jobs.with_columns(num_attempts=pl.max_horizontal("num_attempts", restarted))
    return jobs, pl.concat(attempts), records.height - jobs.height, notes


def _over_runs(columns: list[str]) -> list[pl.Expr]:
    """One value of each column for all runs of a job: the last run's, but for times."""
    ran = pl.col("ran")
    special = {
        "submit_time": pl.col("submit_time").first(),
        "eligible_time": pl.col("eligible_time").first(),
        "start_time": pl.col("start_time").filter(ran).first(),
        "run_s": pl.when(pl.col("run_s").filter(ran).count() > 0).then(pl.col("run_s").filter(ran).sum()),
        "suspended_s": pl.col("suspended_s").sum(),
        "never": pl.col("never").all(),
        "ran": ran.any(),
        "_undecodable": pl.col("_undecodable").any(),
    }
    plain = [special.get(name, pl.col(name).last()).alias(name) for name in columns if name not in JOB]
    return [*plain, ran.sum().cast(pl.Int64).alias("num_attempts")]


def _attempts(runs: pl.DataFrame, number: pl.Expr) -> pl.DataFrame:
    ran = runs.with_columns(attempt=number).filter("ran")
    return ran.select(
        *JOB,
        pl.col("attempt").cast(pl.Int64),
        "start_time",
        "end_time",
        expand_column(ran["hosts"]).alias("nodes"),
        gpus="num_gpus",
    )


def _measure(jobs: pl.DataFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Usage of jobs from their steps, the steps whose job is not in the export, and jobs with their step counts."""
    owner = ["cluster", "key"]
    steps = steps.with_columns(key=pl.coalesce(pl.col("key").str.extract(HET, 1), "key"))
    mine = steps.join(jobs.select(owner).unique(), on=owner, how="semi", nulls_equal=True)
    orphans = steps.filter(pl.lit(mine.height < steps.height)).join(mine, on=["_file", LINE], how="anti")
    totals = mine.group_by(owner).agg(
        pl.col("max_rss_mib", "gpu_util", "gpu_mem_mib").max(), num_steps=pl.len().cast(pl.Int64)
    )
    if steps.height:
        counts = jobs.select(owner).join(totals, on=owner, how="left", nulls_equal=True, maintain_order="left")
        jobs = jobs.with_columns(pl.col("extra").struct.with_fields(num_steps=counts["num_steps"].fill_null(0)))
    whose = jobs.filter(~pl.struct(owner).is_duplicated()).select(*JOB, "num_gpus")
    usage = totals.join(whose, on=owner, how="inner", nulls_equal=True)
    return _usage(usage), _rejects(orphans, pl.lit("step_without_job")), jobs


def _usage(measured: pl.DataFrame) -> pl.DataFrame:
    share = pl.col("gpu_util") / PERCENT / pl.col("num_gpus")
    none = pl.lit(None, dtype=pl.Float64)
    usage = measured.select(
        *JOB,
        gpu_utilization_mean=pl.when(pl.col("num_gpus") > 0).then(share),
        gpu_utilization_p50=none,
        gpu_utilization_p95=none,
        gpu_mem_gib_max=pl.when(pl.col("num_gpus") > 0).then(pl.col("gpu_mem_mib") / MIB_PER_GIB),
        cpu_utilization_mean=none,
        mem_gib_max=pl.col("max_rss_mib") / MIB_PER_GIB,
    )
    something = pl.any_horizontal(pl.col(pl.Float64).is_not_null())
    return usage.filter(something)
