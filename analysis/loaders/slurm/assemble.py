"""From records to jobs: lines seen twice, arrays, heterogeneous jobs, requeues, steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import polars as pl

from analysis.loaders.slurm.arrays import array_tasks, expand_arrays, merge_het
from analysis.loaders.slurm.blocks import LINE
from analysis.loaders.slurm.steps import gather_steps

__all__ = ["JOB", "Assembled", "assemble"]

PROBLEM: Final = "_problem"
#: One job: the same id of the same user on the same cluster. Slurm gives ids again after years.
JOB: Final = ["cluster", "key", "user"]
ORDER: Final = ["submit_time", "start_time", "end_time", LINE]


@dataclass
class Assembled:
    """Jobs and what became of the lines.

    Attributes
    ----------
    jobs : DataFrame, one row per job
        Columns as of records, and ``num_attempts``; the columns of `JOB` tell a job.
    runs : DataFrame
        ``owner`` (row of the job in ``jobs``), ``attempt``, ``start_time``, ``end_time``, ``hosts``, ``num_gpus``.
    measured : DataFrame
        ``owner``, and what `steps.read_steps` gives.
    rejects : DataFrame
        As ``schema.REJECTS``, ``file`` by number, without text: unreadable lines, lines seen twice.
    orphans : DataFrame
        ``cluster``, ``key``, ``num_steps`` of steps without a job.
    rows_merged, rows_expanded : int
        Lines that went into the job of another; jobs beyond one per line.
    notes : list of str
        What was noticed.
    """

    jobs: pl.DataFrame
    runs: pl.DataFrame
    measured: pl.DataFrame
    rejects: pl.DataFrame
    orphans: pl.DataFrame
    rows_merged: int = 0
    rows_expanded: int = 0
    notes: list[str] = field(default_factory=list)


def assemble(blocks: list[pl.DataFrame], steps: pl.DataFrame) -> Assembled:
    """Make jobs of records.

    Parameters
    ----------
    blocks : list of DataFrame
        From `records.read_records`, of all files, with the same columns; the list is emptied, so that memory is given
        back on the way.
    steps : DataFrame
        From `steps.read_steps`.

    Returns
    -------
    Assembled
        The same whatever the order of the lines, where they have times.
    """
    plain, special = _split(blocks)
    is_bad = special[PROBLEM].is_not_null()
    bad, good = special.filter(is_bad), special.filter(~is_bad)
    num_good = good.height
    good, notes = expand_arrays(good)
    good, again = _drop_repetitions(good)
    num_expanded = good.height - (num_good - again.height)
    good, num_het = merge_het(good)
    jobs, runs, num_runs = _merge_runs(good, plain)
    del plain
    jobs, more = _with_restarts(jobs)
    measured, orphans, counts = _measure(jobs, steps)
    return Assembled(
        jobs=jobs if counts is None else jobs.with_columns(counts),
        runs=runs,
        measured=measured,
        rejects=pl.concat([_rejects(bad, pl.col(PROBLEM)), again]),
        orphans=orphans,
        rows_merged=num_het + num_runs + int(measured["num_steps"].sum()),
        rows_expanded=num_expanded,
        notes=notes + more,
    )


def _split(blocks: list[pl.DataFrame]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Records that are a job each, and the few that need more: an id seen twice, arrays, parts, unreadable lines."""
    keys = pl.concat([block.select("key", is_bad=pl.col(PROBLEM).is_not_null()) for block in blocks])
    is_bracket = keys["key"].str.contains("_[", literal=True).fill_null(value=False)
    is_part = keys["key"].str.contains("+", literal=True).fill_null(value=False)
    is_special = keys["key"].is_duplicated() | is_bracket | is_part | keys["is_bad"]
    waiting = [task for key in keys["key"].filter(is_bracket) for task in array_tasks(key)[0]]
    if waiting:
        is_special |= keys["key"].is_in(waiting)
    plain, special, begin = [blocks[0].clear()], [blocks[0].clear()], 0
    blocks.reverse()
    while blocks:
        block = blocks.pop()
        mine = is_special.slice(begin, block.height)
        begin += block.height
        plain.append(block.filter(~mine))
        special.append(block.filter(mine))
    return pl.concat(plain), pl.concat(special)


def _rejects(rows: pl.DataFrame, reason: pl.Expr) -> pl.DataFrame:
    return rows.select(file="_file", line=LINE, reason=reason.cast(pl.String), raw=pl.lit(None, dtype=pl.String))


def _drop_repetitions(records: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Of lines about one run (exports that overlap) keep the one that knows most.

    A run is told by its submission: Slurm sets a new one when it requeues a job. Lines without a submission cannot be
    told from requeues, so they all stay.
    """
    same = ["cluster", "key", "user", "submit_time"]
    group = records.filter(pl.struct(same).is_duplicated() & pl.col("submit_time").is_not_null())
    if not group.height:
        return records, _rejects(group, pl.lit(""))
    rest = records.join(group.select("_file", LINE, "key"), on=["_file", LINE, "key"], how="anti")
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
    kept = pl.concat([rest, group.filter("is_kept").select(records.columns)])
    # A line of array tasks of which some are kept is used.
    gone = group.filter(~pl.col("is_kept")).unique(["_file", LINE], keep="first", maintain_order=True)
    gone = gone.join(kept.select("_file", LINE), on=["_file", LINE], how="anti")
    return kept, _rejects(gone, pl.col("reason"))


def _merge_runs(records: pl.DataFrame, plain: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """One row per job of its runs, the runs, and how many records were merged; ``plain`` are jobs of one run."""
    is_several = pl.struct(JOB).is_duplicated()
    several = records.filter(is_several).sort(*ORDER, nulls_last=True)
    single = pl.concat([plain, records.filter(~is_several)])
    jobs = single.with_columns(num_attempts=pl.col("ran").cast(pl.Int64))
    runs = [_runs(single.with_row_index("owner"), pl.lit(1))]
    if several.height:
        number = pl.col("ran").cast(pl.Int64).cum_sum().over(JOB)
        merged = several.group_by(JOB, maintain_order=True).agg(_over_runs(several.columns))
        merged = merged.with_row_index("owner", offset=jobs.height)
        owned = several.join(merged.select("owner", *JOB), on=JOB, nulls_equal=True, maintain_order="left")
        runs.append(_runs(owned.with_columns(number=number), pl.col("number")))
        jobs = pl.concat([jobs, merged.select(jobs.columns)])
    return jobs, pl.concat(runs), plain.height + records.height - jobs.height


def _with_restarts(jobs: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The number of runs by Slurm's own count, where it is larger than what was seen."""
    restarted = pl.when("ran").then(pl.col("restarts") + 1).cast(pl.Int64)
    unseen = int(jobs.select((restarted > pl.col("num_attempts")).sum()).item())
    if not unseen:
        return jobs, []
    note = f"{unseen} jobs were restarted and show their last run only: export with -D to see all runs."
    return jobs.with_columns(num_attempts=pl.max_horizontal("num_attempts", restarted)), [note]


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


def _runs(records: pl.DataFrame, number: pl.Expr) -> pl.DataFrame:
    columns = ("owner", "start_time", "end_time", "hosts", "num_gpus")
    return records.filter("ran").select(*columns, attempt=number.cast(pl.Int64))


def _measure(jobs: pl.DataFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, pl.Series | None]:
    """What was measured of jobs, the owners of steps that are no job, and the jobs' step counts (null: no steps)."""
    on = ["cluster", "key"] if jobs["cluster"].count() or steps["cluster"].count() else ["key"]
    totals = gather_steps(steps)
    # Of jobs that share an id only the first gets the steps: which of them they are of is not said.
    whose = jobs.select(*on).with_row_index("owner")
    if whose["key"].is_duplicated().any():
        whose = whose.unique(on, keep="first", maintain_order=True)
    measured = totals.join(whose, on=on, how="inner", nulls_equal=True)
    orphans = totals.join(whose, on=on, how="anti", nulls_equal=True) if measured.height < totals.height else totals[:0]
    counts = None
    if steps.height:
        counts = pl.Series("num_steps", [0]).new_from_index(0, jobs.height)
        counts = counts.scatter(measured["owner"], measured["num_steps"])
    return measured, orphans.select("cluster", "key", "num_steps"), counts
