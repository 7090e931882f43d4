"""Predictions in closed loop, in plain Python: what is known of a group, and the reference engine that asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.replay.speeds import is_same_type
from tests.reference_engine import Engine, Outcome, in_order
from tests.reference_placement import Node
from tests.replay_cases import Case, reference_jobs

__all__ = ["History", "closed_reference"]


class History:
    """Durations of all jobs that have ended, group by group, as lists."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], *, statistic: str, last: int, groups: Any, default_s: float):
        self.rows, self.statistic, self.last, self.groups = rows, statistic, last, groups
        self.default = round(default_s * 1e6)
        self.known: dict[object, list[int]] = {}

    def keys(self, j: int) -> list[object]:
        """The groups of a job that it has a value for."""
        values = [(names, tuple(self.rows[j][name] for name in names)) for names in self.groups]
        return [key for key in values if None not in key[1]]

    def learn(self, numbers: Sequence[int]) -> None:
        """Take in the jobs that ended at one instant."""
        for j in sorted(numbers):
            for key in self.keys(j):
                self.known.setdefault(key, []).append(round(self.rows[j]["duration_s"] * 1e6))

    def predict(self, j: int) -> int:
        """Microseconds, rounded down."""
        for key in self.keys(j):
            if key in self.known:
                values = sorted(self.known[key][-self.last :])
                if self.statistic == "mean":
                    return sum(values) // len(values)
                low, high = values[(len(values) - 1) // 2], values[len(values) // 2]
                return (low + high) // 2
        return self.default


class ClosedEngine(Engine):
    """The reference engine without preemption or promises, that predicts at each arrival."""

    history: History

    def arrive(self, j: int) -> str | None:
        self.jobs[j] = self.jobs[j]._replace(predicted=self.history.predict(j))
        return super().arrive(j)

    def end_all(self, now: int) -> set[str | None]:
        before = {j for running in self.running.values() for j in running}
        touched = super().end_all(now)
        after = {j for running in self.running.values() for j in running}
        self.history.learn(sorted(before - after))
        return touched


def closed_reference(case: Case, *, policy: str, **rolling: Any) -> tuple[Outcome, dict[str, int]]:
    """What happens, and what was predicted of every job that took part [us]."""
    nodes = [
        Node(row["node_id"], row["num_gpus"], row["gpu_type"], row["vc"])
        for row in case.cluster.nodes.iter_rows(named=True)
    ]
    placed = sorted(zip(nodes, in_order([n.node_id for n in nodes]), strict=True), key=lambda r: r[1])
    jobs = reference_jobs(case.jobs, None)
    order = sorted(
        zip(jobs, in_order([j.job_id for j in jobs]), case.jobs.rows(named=True), strict=True),
        key=lambda r: (r[0].submit, r[1]),
    )
    names = {name for name in [*(node.gpu_type for node in nodes), *(job.logged for job in jobs)] if name is not None}
    speeds = {name: speed for name in names if (speed := case.cluster.speed_of(name)) is not None}
    engine = ClosedEngine([job for job, _, _ in order], [node for node, _ in placed], policy, speeds, is_same_type)
    engine.history = History([row for _, _, row in order], **rolling)
    outcome = engine.replay()
    return outcome, {job.job_id: job.predicted for job in engine.jobs if job.job_id in outcome.runs}
