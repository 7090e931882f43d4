"""HeliosArtifact's rules again, in plain Python and second by second: slow, short, and written from the rules alone.

Every second is walked through, queues are lists that are sorted anew, placement looks at every node: none of the jumps
and shortcuts of ``analysis.replay.helios``, which tests hold against this, job by job.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OVERHEADS = ((1, 7), (8, 30), (10**9, 60))


@dataclass(eq=False)
class Task:
    name: str
    submit: int
    duration: int
    gpus: int
    remaining: int = 0
    priority: int | None = None
    start: int | None = None
    end: int | None = None
    stops: int = 0
    grant: dict[int, int] = field(default_factory=dict)
    nodes: tuple[int, ...] = ()


class TickByTick:
    """One VC of nodes of 8 GPUs."""

    def __init__(self, tasks: list[Task], *, num_nodes: int, policy: str) -> None:
        self.tasks, self.policy = tasks, policy
        self.free = [8] * num_nodes
        self.queue: list[Task] = []
        self.running: list[Task] = []
        for task in tasks:
            task.remaining = task.duration

    def run(self) -> None:
        now = min((task.submit for task in self.tasks), default=0)
        while any(task.end is None or task in self.running for task in self.tasks):
            self.end_some(now)
            arrived = [task for task in self.tasks if task.submit == now]
            self.queue += arrived
            if self.policy == "srtf":
                self.by_quota(now)
            else:
                self.by_head(now, len(arrived))
            now += 1
            assert now < 10**6

    def end_some(self, now: int) -> None:
        for task in list(self.running):
            if self.policy == "srtf":
                if task.remaining:
                    task.remaining -= 1
                    continue
                task.end = now
            if task.end == now:
                self.give_back(task)

    def by_head(self, now: int, num_arrived: int) -> None:
        if self.policy == "fifo":
            self.queue.sort(key=lambda task: task.submit)
        elif self.policy == "sjf":
            self.queue.sort(key=lambda task: task.duration)
        else:
            self.queue.sort(key=lambda task: task.gpus)
            if len(self.queue) > num_arrived:
                for task in self.queue:
                    task.priority = task.duration * task.gpus
                self.queue.sort(key=lambda task: task.priority)
        while self.queue and self.take(self.queue[0]):
            task = self.queue.pop(0)
            task.start, task.end = now, now + task.duration
            self.running.append(task)

    def by_quota(self, now: int) -> None:
        quota = 8 * len(self.free)
        admitted, stopped = [], []
        for task in sorted(self.queue + self.running, key=lambda task: task.remaining):
            if task.gpus <= quota:
                quota -= task.gpus
                admitted += [task] if task in self.queue else []
            elif task in self.running:
                stopped.append(task)
        for task in stopped:
            self.give_back(task)
            task.stops += 1
            task.remaining += next(seconds for most, seconds in OVERHEADS if task.gpus <= most)
            self.queue.append(task)
        for task in admitted:
            if self.take(task):
                self.queue.remove(task)
                self.running.append(task)
                task.start = now if task.start is None else task.start

    def give_back(self, task: Task) -> None:
        for node, gpus in task.grant.items():
            self.free[node] += gpus
        task.grant = {}
        self.running.remove(task)

    def take(self, task: Task) -> bool:
        found = self.find(task.gpus)
        for node, gpus in found.items():
            self.free[node] -= gpus
        if found:
            task.grant, task.nodes = found, tuple(sorted(found))
        return bool(found)

    def find(self, gpus: int) -> dict[int, int]:
        if gpus <= 8:
            fitting = [(free, node) for node, free in enumerate(self.free) if free >= gpus]
            return {min(fitting)[1]: gpus} if fitting else {}
        whole, rest = divmod(gpus, 8)
        order = sorted(range(len(self.free)), key=lambda node: (-self.free[node], node))
        wanted = [8] * whole + ([rest] if rest else [])
        if len(wanted) > len(order):
            return {}
        chosen = dict(zip(order, wanted, strict=False))
        return chosen if all(self.free[node] >= gpus for node, gpus in chosen.items()) else {}
