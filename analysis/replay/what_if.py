"""What if: the same jobs on other hardware, or with VCs merged, beside what there is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from analysis.errors import UsageError
from analysis.frames import jobs_to_polars
from analysis.replay.cluster import Cluster
from analysis.replay.engine import replay
from analysis.replay.intervals import block_interval
from analysis.replay.policies import Policy
from analysis.replay.result import ReplayResult

__all__ = ["BASE", "MERGE_VCS", "changed", "what_if"]

#: Name of the cluster as it is.
BASE: Final = "base"
MERGE_VCS: Final = "merge-vcs"
US_PER_DAY: Final = 86_400_000_000
_FORM: Final = re.compile(r"([+-])(\d+)x(\d+)(?::(\S+))?")
_SUMMARIES: Final = tuple(f"{how}_{name}" for name in ("queueing_delay_s", "jct_s") for how in ("mean", "p95", "max"))
_SHARES: Final = ("gpu_allocation", "gpu_allocation_steady")


def changed(cluster: Cluster, change: str) -> Cluster:
    """Change a cluster as a text says.

    Parameters
    ----------
    cluster : Cluster
        As it is.
    change : str
        "+2x8:A100": two more nodes of 8 A100 (without a type: not described), free for all VCs only where the cluster
        has none; "-2x8:A100": without the last two such nodes; "merge-vcs": every job may use every node. Several with
        commas between happen one after the other.

    Returns
    -------
    Cluster
        Named by the change.

    Raises
    ------
    UsageError
        If the text is no such change, or there are fewer nodes to take away.

    Examples
    --------
    >>> two = Cluster.uniform(num_nodes=2, num_gpus=8)
    >>> changed(two, "+1x4:A100").num_gpus, changed(two, "-1x8").num_gpus
    (20, 8)
    """
    nodes = cluster.nodes
    for part in (text.strip() for text in change.split(",")):
        if part == MERGE_VCS:
            nodes = nodes.with_columns(vc=pl.lit(None, dtype=pl.String))
        elif form := _FORM.fullmatch(part):
            row = {"num_gpus": int(form[3]), "gpu_type": form[4]}
            resize = _with_more if form[1] == "+" else _with_fewer
            nodes = resize(nodes, row, int(form[2]), part=part)
        else:
            msg = f"what-if: {part!r} is no change; expected e.g. +2x8:A100, -1x8 or {MERGE_VCS}."
            raise UsageError(msg)
    left = cluster.outages.filter(pl.col("node_id").is_in(nodes["node_id"].implode()))
    return Cluster(nodes, name=change, speed=cluster.speed, notes=cluster.notes, outages=left)


def _with_more(nodes: pl.DataFrame, row: dict[str, Any], count: int, *, part: str) -> pl.DataFrame:
    if nodes["vc"].null_count() < nodes.height:
        msg = f"what-if: {part!r} in a cluster of VCs: whose? Say {MERGE_VCS},{part}, or give a cluster file."
        raise UsageError(msg)
    ids = [f"added-{part}-{i}" for i in range(count)]
    more = pl.DataFrame({"node_id": ids, **{name: [value] * count for name, value in row.items()}})
    return pl.concat([nodes, more.cast({name: nodes.schema[name] for name in more.columns})], how="diagonal")


def _with_fewer(nodes: pl.DataFrame, row: dict[str, Any], count: int, *, part: str) -> pl.DataFrame:
    alike = pl.col("num_gpus").eq(row["num_gpus"]) & pl.col("gpu_type").eq_missing(pl.lit(row["gpu_type"]))
    those = nodes.filter(alike)["node_id"]
    if len(those) < count:
        kinds = nodes.group_by("num_gpus", "gpu_type").len().sort("num_gpus", "gpu_type")
        found = ", ".join(f"{n}x{gpus}{'' if kind is None else ':' + kind}" for gpus, kind, n in kinds.rows())
        msg = f"what-if: {part!r} takes away {count} nodes; found {len(those)} such nodes in {found}."
        raise UsageError(msg)
    return nodes.filter(~pl.col("node_id").is_in(those.tail(count).implode()))


def what_if(
    jobs: Any,
    *,
    cluster: Cluster,
    changes: Sequence[str] | Mapping[str, Cluster],
    policy: str | Policy = "fifo",
    seed: int = 0,
    **choices: Any,
) -> pl.DataFrame:
    """Replay the same jobs on a cluster as it is and as it would be, and compare.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        As ``replay`` takes them; a column ``deadline_time``, where there is one, is compared with the ends.
    cluster : Cluster
        As it is.
    changes : sequence of str, or mapping of str to Cluster
        Texts as ``changed`` reads them, or clusters by name.
    policy : str or Policy, default "fifo"
        The same for all.
    seed : int, default 0
        Of the replays and of the intervals.
    **choices
        Of ``replay``, such as predicted, placement, use_vcs.

    Returns
    -------
    DataFrame, one row for the base and one per change
        change, policy, num_gpus, num_finished, num_rejected; mean, p95 and max of queueing_delay_s and jct_s over the
        finished jobs; gpu_allocation and gpu_allocation_steady as in ``ReplayResult.metrics``; num_with_deadline,
        num_deadlines_missed (ended later, or never); num_paired (jobs finished in the base and after the change);
        over these saved_queueing_delay_s, the mean delay that the change saves (below 0: adds), with a 95 % interval
        saved_low_s, saved_high_s over days drawn in blocks (null with less than 10 days of submissions). Null in the
        base's row.

    Raises
    ------
    UsageError
        If a change cannot be read, cannot be made, or is named ``base``.

    Examples
    --------
    >>> from datetime import datetime
    >>> t = datetime(2024, 1, 1)
    >>> jobs = pl.DataFrame({"job_id": ["1", "2"], "submit_time": [t, t], "num_gpus": [4, 4], "duration_s": [60, 60]})
    >>> table = what_if(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=4), changes=["+1x4"])
    >>> table.select("change", "max_queueing_delay_s", "saved_queueing_delay_s").rows()
    [('base', 60.0, None), ('+1x4', 0.0, 30.0)]
    """
    table = jobs_to_polars(jobs)
    others = dict(changes) if isinstance(changes, Mapping) else {text: changed(cluster, text) for text in changes}
    if BASE in others:
        msg = f"what-if: a change is named {BASE!r}, as what there is; give it another name."
        raise UsageError(msg)
    rows: list[dict[str, Any]] = []
    base: ReplayResult | None = None
    for name, site in {BASE: cluster, **others}.items():
        result = replay(table, cluster=site, policy=policy, seed=seed, **choices)
        base = base or result
        row = result.metrics()
        known = {key: row[key] for key in ("num_finished", "num_rejected", *_SUMMARIES, *_SHARES)}
        rows.append({"change": name, "policy": row["policy"], "num_gpus": site.num_gpus, **known})
        rows[-1] |= _deadlines(table, result) | _saved(base, result, is_base=name == BASE, seed=seed)
    return pl.DataFrame(rows, infer_schema_length=None, schema_overrides=dict.fromkeys(_SAVED, pl.Float64))


_SAVED: Final = ("saved_queueing_delay_s", "saved_low_s", "saved_high_s")


def _deadlines(jobs: pl.DataFrame, result: ReplayResult) -> dict[str, int]:
    if "deadline_time" not in jobs.columns:
        return {"num_with_deadline": 0, "num_deadlines_missed": 0}
    due = jobs.select("job_id", "deadline_time").filter(pl.col("deadline_time").is_not_null())
    told = due.join(result.schedule.select("job_id", "end_time"), on="job_id")
    missed = told.filter(~(pl.col("end_time") <= pl.col("deadline_time")).fill_null(value=False))
    return {"num_with_deadline": told.height, "num_deadlines_missed": missed.height}


def _saved(base: ReplayResult, result: ReplayResult, *, is_base: bool, seed: int) -> dict[str, Any]:
    """Delay that a change saves the jobs that finished in both."""
    if is_base:
        return {"num_paired": None, **dict.fromkeys(_SAVED)}
    before, after = (one.job_metrics().select("job_id", "submit_time", "queueing_delay_s") for one in (base, result))
    both = before.join(after.drop("submit_time"), on="job_id", maintain_order="left")
    if not both.height:
        return {"num_paired": 0, **dict.fromkeys(_SAVED)}
    saved = (both["queueing_delay_s"] - both["queueing_delay_s_right"]).to_numpy()
    days = both["submit_time"].to_physical() // US_PER_DAY
    low, high = block_interval(saved, days=(days - days.min()).to_numpy(), seed=seed)
    return {"num_paired": both.height, **dict(zip(_SAVED, (float(saved.mean()), low, high), strict=True))}
