"""Predictions in closed loop, in plain Python: what is known of a group, and the reference engine that asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from analysis.replay.speeds import is_same_type
from tests.reference_conservative import ConservativeEngine
from tests.reference_engine import ORDERS, Engine, Outcome, in_order
from tests.reference_placement import Node
from tests.reference_preemption import PreemptiveEngine
from tests.replay_cases import Case, outages_of, reference_jobs, to_us

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
        return self.predict_again(j, 0, self.default)

    def predict_again(self, j: int, age: int, last_time: int) -> int:
        """The same of those only that took longer than a job has run; what it was last if there are none."""
        for key in self.keys(j):
            values = sorted(v for v in self.known.get(key, [])[-self.last :] if age == 0 or v > age)
            if values and self.statistic == "mean":
                return sum(values) // len(values)
            if values:
                low, high = values[(len(values) - 1) // 2], values[len(values) // 2]
                return (low + high) // 2
        return last_time


class Closed:
    """What the three engines have in common: predictions that jobs get on their arrival, and perhaps again."""

    def study(self, history: History, every: int | None) -> None:
        self.history, self.every = history, every
        self.due = min((job.submit for job in self.jobs if job.milli != 0), default=0) + (every or 0)
        self.at_first: dict[int, int] = {}
        self.ended: list[int] = []

    def meet(self, j: int) -> None:
        """Predict a job that arrives."""
        self.at_first[j] = self.history.predict(j)
        self.jobs[j] = self.jobs[j]._replace(predicted=self.at_first[j])

    def is_time(self, now: int) -> bool:
        if self.every is None or now < self.due:
            return False
        self.due = now + self.every
        return True

    def is_new(self, j: int, age: int) -> bool:
        """Predict a job again; tell whether the prediction has changed."""
        before = self.jobs[j].predicted
        self.jobs[j] = self.jobs[j]._replace(predicted=self.history.predict_again(j, age, before))
        return self.jobs[j].predicted != before

    def coming_at(self, now: int) -> list[int]:
        here = [j for j, job in enumerate(self.jobs) if job.submit == now and self.asks[j] is not None]
        return [j for j in here if j not in self.at_first]


class ClosedEngine(Closed, Engine):
    """The reference engine without preemption or promises."""

    def arrive(self, j: int) -> str | None:
        if j not in self.at_first:
            self.meet(j)
        return super().arrive(j)

    def end_all(self, now: int) -> set[str | None]:
        before = {j for running in self.running.values() for j in running}
        touched = super().end_all(now)
        after = {j for running in self.running.values() for j in running}
        self.history.learn(sorted(before - after))
        return touched | (self.renew(now) if self.is_time(now) else set())

    def renew(self, now: int) -> set[str | None]:
        for running in self.running.values():
            for j, (_, grant) in running.items():
                job, gpu_type = self.jobs[j], self.nodes[grant[0][0]].gpu_type
                if self.is_new(j, self.saved[j] + self.work_in(now - self.since[j], job.logged, gpu_type)):
                    running[j] = (self.since[j] + self.predicted_on(j, gpu_type), grant)
        for queue in [*self.queues.values(), *(line for lines in self.lines.values() for line in lines.values())]:
            for _, j in queue:
                self.is_new(j, self.saved[j])
            queue[:] = sorted((self.key(self.jobs[j], self.jobs[j].predicted), j) for _, j in queue)
        return set(self.sites)


class ClosedPreemption(Closed, PreemptiveEngine):
    """The reference engine with preemption."""

    def end(self, vc: str | None, j: int, now: int) -> None:
        super().end(vc, j, now)
        self.ended.append(j)

    def node_events(self, now: int) -> set[str | None]:
        """Called at every instant between ends and arrivals."""
        self.history.learn(self.ended)
        self.ended = []
        renewed = self.renew(now) if self.is_time(now) else set()
        for j in self.coming_at(now):
            self.meet(j)
            self.states[j].guess = self.at_first[j]
        return renewed | super().node_events(now)

    def renew(self, now: int) -> set[str | None]:
        for vc in self.sites:
            for j in [*self.runs_now[vc], *self.waits[vc]]:
                state = self.states[j]
                saved = age = self.jobs[j].duration - state.left
                if j in self.runs_now[vc]:
                    ran = max(now - state.begin - self.startup(j), 0)
                    age += int(ran / self.ratio(j)) if self.ratio(j) != 1 else ran
                if self.is_new(j, age):
                    state.guess = self.jobs[j].predicted - saved
        return set(self.sites)


class ClosedConservative(Closed, ConservativeEngine):
    """The reference engine with promises."""

    is_renewing = False

    def settle(self, vc: str | None, now: int) -> None:
        if vc == next(iter(self.sites)):
            self.history.learn([j for jobs in self.runs_now.values() for j, end in jobs.items() if end == now])
            self.is_renewing = self.is_time(now)
            for j in self.coming_at(now):
                self.meet(j)
        super().settle(vc, now)

    def overdue(self, vc: str | None, now: int) -> set[int]:
        torn = super().overdue(vc, now)
        return torn | self.renew(vc, now) if self.is_renewing else torn

    def renew(self, vc: str | None, now: int) -> set[int]:
        changed = [self.is_new(j, self.saved[j]) for j in self.lines_up[vc]]
        for j in self.runs_now[vc]:
            job, booking = self.jobs[j], self.bookings[j]
            gpu_type = self.nodes[booking.grant[0][0]].gpu_type
            if self.is_new(j, self.saved[j] + self.work_in(now - self.since[j], job.logged, gpu_type)):
                changed.append(True)
                due = self.since[j] + self.predicted_on(j, gpu_type)
                if due > now:
                    booking.due, booking.tries = due, 0
        return set(self.lines_up[vc]) if any(changed) else set()


class Told(NamedTuple):
    """What happens, and what was predicted of every job that arrived: at first and last [us]."""

    outcome: Outcome
    first: dict[str, int]
    last: dict[str, int]


def closed_reference(
    case: Case,
    *,
    policy: str,
    refresh_s: float | None = None,
    interval_s: float | None = None,
    options: Mapping[str, Any] | None = None,
    **rolling: Any,
) -> Told:
    """Replay a case with predictions in closed loop."""
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
    kind = ClosedEngine if policy in ORDERS else ClosedPreemption
    engine = (ClosedConservative if policy == "conservative" else kind)(
        [job for job, _, _ in order],
        [node for node, _ in placed],
        policy,
        speeds,
        is_same_type,
        options or {},
        outages=outages_of(case.cluster),
        interval=to_us(interval_s) or 0,
    )
    engine.study(History([row for _, _, row in order], **rolling), to_us(refresh_s))
    outcome = engine.replay()
    first = {engine.jobs[j].job_id: guess for j, guess in engine.at_first.items()}
    return Told(outcome, first, {engine.jobs[j].job_id: engine.jobs[j].predicted for j in engine.at_first})
