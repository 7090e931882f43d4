"""What tests of predictions in closed loop share: cases with users, rolling predictions, and the same from outside."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import polars as pl

from analysis.replay import ReplayResult, RollingPrediction, replay
from tests.reference_closed import History
from tests.replay_cases import Case, crowd

#: Orders whose key is a line over the prediction, with backfill, promises and preemption.
LINES = ["sjf", "sjf_skip", "ljf", "ljf_skip", "qssf", "qssf_skip"]
STATIC = ["fifo", "fifo_skip", "smallest_first", "edf_skip", "multifactor"]
EVERY = [*LINES, *STATIC, "easy", "conservative", "srtf", "srtf_skip", "las_skip"]
ROLLING = [
    {"statistic": "median", "last": 3, "groups": (("user", "num_gpus"), ("user",), ("vc",), ()), "default_s": 7.0},
    {"statistic": "mean", "last": 2, "groups": (("user",),), "default_s": 4.0},
    {"statistic": "median", "last": 4, "groups": ((),), "default_s": 0.0},
    {"statistic": "mean", "last": 1, "groups": (), "default_s": 5.0},
]


def peopled(seed: int, **how: Any) -> Case:
    """A crowd with users, some of them unknown."""
    case = crowd(seed, **how)
    rng = random.Random(seed)
    users = pl.Series([rng.choice(["ann", "bob", "cat", None]) for _ in range(case.jobs.height)], dtype=pl.String)
    return case._replace(jobs=case.jobs.with_columns(user=users))


def closed(case: Case, policy: str, rolling: Any, **how: Any) -> ReplayResult:
    predicted = RollingPrediction(**rolling) if isinstance(rolling, dict) else rolling
    return replay(case.jobs, cluster=case.cluster, policy=policy, predicted=predicted, **how)


def predictions(result: ReplayResult, which: str = "predicted_s") -> dict[str, int]:
    """Microseconds by job."""
    told = zip(result.schedule["job_id"], result.jobs[which], strict=True)
    return {job: round(seconds * 1e6) for job, seconds in told if seconds is not None}


class Rolling:
    """``RollingPrediction`` from outside."""

    name = "rolling from outside"

    def __init__(self, case: Case, rolling: dict[str, Any]) -> None:
        self.case, self.rolling, self.ends, self.calls = case, rolling, [], []

    def begin(self, jobs: pl.DataFrame) -> None:
        assert not {"duration_s", "end_time", "start_time", "status"} & set(jobs.columns)
        durations = self.case.jobs.select("job_id", "duration_s")
        self.durations = jobs.join(durations, on="job_id", how="left", maintain_order="left")["duration_s"].to_list()
        rows = jobs.with_columns(duration_s=pl.lit(None, dtype=pl.Float64)).rows(named=True)
        self.history = History(rows, **self.rolling)

    def ended(self, rows: np.ndarray, duration_s: np.ndarray, now_s: float) -> None:
        assert duration_s.tolist() == [self.durations[j] for j in rows]
        for j, seconds in zip(rows.tolist(), duration_s.tolist(), strict=True):
            self.history.rows[j]["duration_s"] = seconds
            for key in self.history.keys(j):
                self.history.known.setdefault(key, []).append(round(seconds * 1e6))
        self.ends.append(now_s)

    def predict(self, rows: np.ndarray, now_s: float) -> list[float]:
        self.calls.append((now_s, len(rows)))
        return [self.history.predict(j) / 1e6 for j in rows.tolist()]


class Refreshed(Rolling):
    """The same, asked again for those who wait or run."""

    def __init__(self, case: Case, rolling: dict[str, Any], refresh_s: float) -> None:
        super().__init__(case, rolling)
        self.refresh_s, self.last, self.asked = refresh_s, {}, []

    def predict(self, rows: np.ndarray, now_s: float) -> list[float]:
        told = super().predict(rows, now_s)
        self.last |= dict(zip(rows.tolist(), told, strict=True))
        return told

    def repredict(self, rows: np.ndarray, age_s: np.ndarray, is_running: np.ndarray, now_s: float) -> list[float]:
        self.asked.append((now_s, rows.tolist(), age_s.tolist(), is_running.tolist()))
        for j, age in zip(rows.tolist(), age_s.tolist(), strict=True):
            self.last[j] = self.history.predict_again(j, round(age * 1e6), round(self.last[j] * 1e6)) / 1e6
        return [self.last[j] for j in rows.tolist()]
