"""The paired comparison: what predictions gain, like for like, beside "knows nothing" and the oracle.

A policy that passes over a blocked job beats one that waits, whatever it knows of durations; so strict is compared with
strict, skip with skip, and EASY that knows something with EASY that knows nothing. The share of the oracle's gain says
what predictions are worth between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.errors import UsageError
from analysis.frames import jobs_to_polars
from analysis.replay.cluster import Cluster
from analysis.replay.engine import replay
from analysis.replay.intervals import NUM_RESAMPLES, block_interval, captured_share
from analysis.replay.mixed import is_mixed, mixed_cluster
from analysis.replay.pairs import DEFAULT_PAIRS, Pair
from analysis.replay.policies import POLICIES

__all__ = ["DEFAULT_PAIRS", "GainsResult", "Pair", "block_interval", "compare", "mixed_cluster"]

KNOWS_NOTHING: Final = "knows_nothing"
ORACLE: Final = "oracle"
CONSTANT_COLUMN: Final = "predicted_duration_s__knows_nothing"
US_PER_DAY: Final = 86_400_000_000

GAINS_SCHEMA: Final = {
    "cluster": pl.String(),
    "num_gpus": pl.Int64(),
    "offered_load": pl.Float64(),
    "pair": pl.String(),
    "base": pl.String(),
    "policy": pl.String(),
    "like_for_like": pl.Boolean(),
    "role": pl.String(),
    "predictor": pl.String(),
    "num_jobs": pl.Int64(),
    "num_left_out": pl.Int64(),
    "base_mean_jct_s": pl.Float64(),
    "mean_jct_s": pl.Float64(),
    "base_mean_queueing_delay_s": pl.Float64(),
    "mean_queueing_delay_s": pl.Float64(),
    "base_p95_jct_s": pl.Float64(),
    "p95_jct_s": pl.Float64(),
    "gain_s": pl.Float64(),
    "gain_low_s": pl.Float64(),
    "gain_high_s": pl.Float64(),
    "relative_gain": pl.Float64(),
    "captured_share": pl.Float64(),
    "reason": pl.String(),
}


@dataclass(frozen=True)
class GainsResult:
    """What a comparison gave.

    Attributes
    ----------
    table : DataFrame, one row per cluster, pair and prediction
        cluster, num_gpus, offered_load (arriving GPU-seconds over capacity); pair, base, policy, like_for_like; role
        (knows_nothing, predicted, oracle), predictor; num_jobs (finished under every run of the pair; all means are
        over these), num_left_out; mean and p95 JCT, mean queueing delay of base and policy [s]; gain_s = base - policy
        in mean JCT, with a 95 % interval (null with less than 10 days); relative_gain (of the base's mean JCT);
        captured_share = gain over the oracle's gain, null with a ``reason`` where the oracle gains nothing.
    schedules : dict of (cluster, policy, prediction) to DataFrame
        Schedule of every replay; prediction is a predictor's name, "knows_nothing", or "oracle" (also for policies
        that use no prediction).
    notes : list of str
        What was assumed, in sentences.
    """

    table: pl.DataFrame
    schedules: dict[tuple[str, str, str], pl.DataFrame] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def compare(
    jobs: Any,
    *,
    clusters: Mapping[str, Cluster],
    predicted: Mapping[str, str | None],
    pairs: Sequence[Pair] = DEFAULT_PAIRS,
    use_vcs: bool = True,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> GainsResult:
    """Replay the same jobs under pairs of policies and under predictions of differing quality.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        Columns of the jobs table and the predicted columns [s].
    clusters : mapping of str to Cluster
        Where, by the name that the table shows; one that equals an earlier one is left out, with a note.
    predicted : mapping of str to str or None
        Predictor's name -> its column of ``jobs``; None = the true duration. "Knows nothing" (the same duration for
        every job) and the oracle (the true duration) are always added.
    pairs : sequence of Pair
        What is compared with what.
    use_vcs : bool, default True
        Whether virtual clusters hold.
    seed : int, default 0
        Seed of the bootstrap.
    progress : callable of str, optional
        Called with a short text before each replay.

    Returns
    -------
    GainsResult
        Table, schedules and notes.

    Raises
    ------
    UsageError
        If a predicted column is missing, or a predictor bears a reserved name.

    References
    ----------
    .. [1] H. R. Künsch, "The Jackknife and the Bootstrap for General Stationary Observations", The Annals of
       Statistics 17(3), 1989, doi:10.1214/aos/1176347265 (moving blocks).
    """
    table = jobs_to_polars(jobs)
    columns = _columns(table, predicted)
    constant_s = float(table["duration_s"].drop_nulls().median() or 1.0)  # type: ignore[arg-type]
    table = table.with_columns(pl.lit(constant_s).alias(CONSTANT_COLUMN))
    notes = [
        f"'Knows nothing' predicts {constant_s:,.0f} s (the median of these jobs) for every job: its order is that of "
        "submission. 'Oracle' knows every duration.",
        "Gains are differences of mean job completion time over the jobs that finished under every run of a pair. "
        f"Intervals: moving-block bootstrap over days of submission, {NUM_RESAMPLES} resamples, 95 %, given the "
        "predictions and this one log.",
        *(f"{pair.name}: {pair.note}" for pair in pairs if pair.note),
    ]
    runs = _Runs(table, columns=columns, use_vcs=use_vcs, progress=progress)
    rows = []
    for name, cluster in _distinct(clusters, notes).items():
        chosen = [pair for pair in pairs if not pair.mixed_only or is_mixed(cluster)]
        notes += [f"{name} cluster: {note}" for note in cluster.notes]
        for pair in chosen:
            part = runs.rows(name, cluster, pair=pair, seed=seed)
            rows += [{"cluster": name, "num_gpus": cluster.num_gpus, **row} for row in part]
    return GainsResult(pl.DataFrame(rows, schema=GAINS_SCHEMA), runs.schedules, notes)


def _columns(jobs: pl.DataFrame, predicted: Mapping[str, str | None]) -> dict[str, str | None]:
    problems = [
        f"predictor {name!r}: the jobs have no column {column!r}"
        for name, column in predicted.items()
        if column is not None and column not in jobs.columns
    ]
    reserved = (KNOWS_NOTHING, ORACLE)
    problems += [f"predictor {name!r}: the name is reserved for a reference" for name in predicted if name in reserved]
    if problems:
        msg = f"comparison of policies: {'; '.join(problems)}. Give each predictor a name of its own and its column."
        raise UsageError(msg)
    return {KNOWS_NOTHING: CONSTANT_COLUMN, **predicted, ORACLE: None}


def _distinct(clusters: Mapping[str, Cluster], notes: list[str]) -> dict[str, Cluster]:
    kept: dict[str, Cluster] = {}
    for name, cluster in clusters.items():
        twin = next((other for other, one in kept.items() if one.nodes.equals(cluster.nodes)), None)
        if twin is None:
            kept[name] = cluster
        else:
            notes.append(f"The {name} cluster has the same nodes as the {twin} one and is not replayed again.")
    return kept


class _Runs:
    """Replays of the same jobs, each made once, and the rows of a pair."""

    def __init__(
        self,
        jobs: pl.DataFrame,
        *,
        columns: Mapping[str, str | None],
        use_vcs: bool,
        progress: Callable[[str], None] | None,
    ) -> None:
        self.jobs = jobs
        self.columns = columns
        self.use_vcs = use_vcs
        self.progress = progress
        self.schedules: dict[tuple[str, str, str], pl.DataFrame] = {}
        self.loads: dict[str, float | None] = {}
        self._times: dict[tuple[str, str, str], pl.DataFrame] = {}

    def times(self, name: str, cluster: Cluster, *, policy: str, prediction: str) -> pl.DataFrame:
        """JCT and queueing delay of every job, in the order of the jobs; null where it did not finish."""
        used = prediction if policy not in POLICIES or POLICIES[policy].uses_predictions else ORACLE
        key = (name, policy, used)
        if key not in self._times:
            if self.progress:
                self.progress(f"{name}: {policy}, {used.replace('_', ' ')}")
            column = self.columns[used]
            result = replay(self.jobs, cluster=cluster, policy=policy, predicted=column, use_vcs=self.use_vcs)
            self.schedules[key] = result.schedule
            self.loads[name] = result.counts["offered_load"]
            done = result.job_metrics().select("job_id", "jct_s", "queueing_delay_s")
            joined = self.jobs.select("job_id").join(done, on="job_id", how="left", maintain_order="left")
            self._times[key] = joined.select("jct_s", "queueing_delay_s")
        return self._times[key]

    def rows(self, name: str, cluster: Cluster, *, pair: Pair, seed: int) -> list[dict[str, object]]:
        """Rows of one pair on one cluster, one per prediction."""
        start = KNOWS_NOTHING if pair.base_knows_nothing else ORACLE
        base = self.times(name, cluster, policy=pair.base, prediction=start)
        tried = {each: self.times(name, cluster, policy=pair.policy, prediction=each) for each in self.columns}
        both = base["jct_s"].is_not_null()
        for times in tried.values():
            both &= times["jct_s"].is_not_null()
        days = _days(self.jobs.filter(both))
        base = base.filter(both)
        oracle_gain = _mean_gain(base, tried[ORACLE].filter(both))
        common = {
            "pair": pair.name,
            "base": pair.base,
            "policy": pair.policy,
            "like_for_like": pair.like_for_like,
            "offered_load": self.loads[name],
            "num_jobs": base.height,
            "num_left_out": self.jobs.height - base.height,
        }
        rows = []
        for prediction, times in tried.items():
            role = prediction if prediction in {KNOWS_NOTHING, ORACLE} else "predicted"
            measured = _measure(base, times.filter(both), oracle_gain=oracle_gain, days=days, seed=seed)
            rows.append({**common, "role": role, "predictor": prediction, **measured})
        return rows


def _days(jobs: pl.DataFrame) -> NDArray[np.int64]:
    """Day of every submission, counted in 24 hours from the first one."""
    stamps = jobs["submit_time"].dt.timestamp("us").to_numpy()
    days: NDArray[np.int64] = (stamps - stamps.min(initial=np.iinfo(np.int64).max)) // US_PER_DAY
    return days


def _mean_gain(base: pl.DataFrame, policy: pl.DataFrame) -> float | None:
    return float((base["jct_s"] - policy["jct_s"]).to_numpy().mean()) if base.height else None


def _measure(
    base: pl.DataFrame, policy: pl.DataFrame, *, oracle_gain: float | None, days: NDArray[np.int64], seed: int
) -> dict[str, object]:
    gain = _mean_gain(base, policy)
    if gain is None or oracle_gain is None:
        return {"reason": "no job finished under all of these runs"}
    before, after = base["jct_s"].to_numpy(), policy["jct_s"].to_numpy()
    mean = float(before.mean())
    low, high = block_interval(before - after, days=days, seed=seed)
    share, reason = captured_share(gain, oracle_gain=oracle_gain, base_mean=mean)
    return {
        "base_mean_jct_s": mean,
        "mean_jct_s": float(after.mean()),
        "base_mean_queueing_delay_s": float(base["queueing_delay_s"].to_numpy().mean()),
        "mean_queueing_delay_s": float(policy["queueing_delay_s"].to_numpy().mean()),
        "base_p95_jct_s": float(np.quantile(before, 0.95)),
        "p95_jct_s": float(np.quantile(after, 0.95)),
        "gain_s": gain,
        "gain_low_s": low,
        "gain_high_s": high,
        "relative_gain": gain / mean if mean > 0 else None,
        "captured_share": share,
        "reason": reason,
    }
