"""Scored placements in plain Python, from the rules in words: every node is looked at, nothing is remembered.

Shares no code with ``analysis.replay``. A node is a list of free milli-GPUs by device, free milli-CPUs and MiB (None =
enough), and the requests of those who are on it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

GPU = 1000


class Want(NamedTuple):
    """What must go to one node; CPUs and memory are those of the whole of it."""

    whole: int
    pieces: int
    milli: int
    cpu: int
    mem: int
    types: frozenset[object]
    kind: tuple[int, bool]  # the request of the job: whole GPUs, and whether there are shares

    @property
    def total(self) -> int:
        return self.whole * GPU + self.pieces * self.milli


class Task(NamedTuple):
    """A typical task: devices, milli-GPUs of each, milli-CPUs, types that suit it, how often it occurs."""

    devices: int
    milli: int
    cpu: int
    types: frozenset[object]
    weight: int


@dataclass
class Machine:
    gpu_type: object
    rooms: list[int]
    cpu: int | None
    mem: int | None
    kinds: Counter[tuple[int, bool]] = field(default_factory=Counter)

    @property
    def left(self) -> int:
        return sum(self.rooms)

    def lost(self, tasks: Sequence[Task]) -> int:
        """What the next typical task cannot use, summed over all of them."""
        total = 0
        for task in tasks:
            suits = task.milli > 0 and self.gpu_type in task.types
            suits = suits and (self.cpu is None or self.cpu >= task.cpu)
            suits = suits and sum(room >= task.milli for room in self.rooms) >= task.devices
            total += task.weight * (sum(room for room in self.rooms if room < task.milli) if suits else self.left)
        return total

    def copy(self) -> Machine:
        return Machine(self.gpu_type, list(self.rooms), self.cpu, self.mem, Counter(self.kinds))


class Rule:
    """A scored placement on machines in the order of their names."""

    def __init__(self, name: str, machines: Sequence[Machine], tasks: Sequence[Task] = (), seed: int = 0) -> None:
        self.name, self.tasks, self.seed = name, tasks, seed
        self.weight = max(sum(task.weight for task in tasks), 1)
        self.most_gpu = max(len(machine.rooms) for machine in machines) * GPU
        self.most_cpu = max((machine.cpu for machine in machines if machine.cpu is not None), default=1)
        self.starts = 0

    # --- one node ---

    def fits(self, machine: Machine, want: Want) -> bool:
        if machine.gpu_type not in want.types:
            return False
        if (machine.cpu is not None and machine.cpu < want.cpu) or (machine.mem is not None and machine.mem < want.mem):
            return False
        free = machine.rooms.count(GPU)
        if free < want.whole:
            return False
        if want.pieces == 0:
            return True
        used = sum(room // want.milli for room in machine.rooms if room < GPU)
        return used + (free - want.whole) * (GPU // want.milli) >= want.pieces

    def device(self, machine: Machine, milli: int) -> int:
        """Device for a share."""
        able = [(room, d) for d, room in enumerate(machine.rooms) if room >= milli]
        if self.name == "first_fit":
            return min(d for _, d in able)
        if self.name == "worst_fit":
            return max(able, key=lambda found: (found[0], -found[1]))[1]
        if self.name == "random":
            return able[self.draw(1 << 20, 1) % len(able)][1]
        if self.name == "fgd":
            return self.least_lost(machine, milli, machine.lost(self.tasks))
        return min(able)[1]

    def least_lost(self, machine: Machine, milli: int, before: int) -> int:
        """Device of a share that scores best."""
        scores = []
        for d, room in enumerate(machine.rooms):
            if room >= milli:
                trial = machine.copy()
                trial.rooms[d] -= milli
                scores.append((-self.growth_score(trial.lost(self.tasks) - before), d))
        return min(scores)[1]

    def growth_score(self, grown: int) -> int:
        return int(100 / (1.0 + math.exp(grown / (1000.0 * self.weight))))

    def taken(self, machine: Machine, want: Want) -> tuple[Machine, list[tuple[int, int]], int, int]:
        """The machine afterwards, what is taken where, devices broken into, and percent free on the used ones."""
        then = machine.copy()
        if then.cpu is not None:
            then.cpu -= want.cpu
        grant: list[tuple[int, int]] = []
        fresh, percent = want.whole, 0
        for _ in range(want.whole):
            grant.append((then.rooms.index(GPU), GPU))
            then.rooms[grant[-1][0]] = 0
        if want.pieces == 1 and want.whole == 0 and self.name == "fgd":
            # Compared with the state before, the CPUs included.
            device = self.least_lost(then, want.milli, machine.lost(self.tasks))
            then.rooms[device] -= want.milli
            return then, [(device, want.milli)], 0, 0
        for _ in range(want.pieces):
            device = self.device(then, want.milli)
            fresh += then.rooms[device] == GPU
            percent += then.rooms[device] * 100 // GPU if then.rooms[device] < GPU else 0
            then.rooms[device] -= want.milli
            grant.append((device, want.milli))
        return then, grant, fresh, percent

    def score(self, machine: Machine, want: Want) -> int:
        rules = {
            **{"worst_fit": self.emptiness, "best_fit": self.tightness, "dot_product": self.alignment},
            **{"gpu_packing": self.packing, "gpu_clustering": self.clustering, "fgd": self.gradient},
        }
        return rules[self.name](machine, want) if self.name in rules else 0

    def emptiness(self, machine: Machine, _want: Want) -> int:
        return machine.left * 100 // self.most_gpu

    def tightness(self, machine: Machine, want: Want) -> int:
        spare = 0 if machine.cpu is None else machine.cpu - want.cpu
        both = 2 * self.most_gpu * self.most_cpu
        return (both - (machine.left - want.total) * self.most_cpu - spare * self.most_gpu) * 100 // both

    def alignment(self, machine: Machine, want: Want) -> int:
        gpus = (machine.left / self.most_gpu) * (want.total / self.most_gpu)
        cpus = ((machine.cpu or 0) / self.most_cpu) * (want.cpu / self.most_cpu)
        return int(100 * (1.0 - (cpus + gpus) / 2))

    def gradient(self, machine: Machine, want: Want) -> int:
        then = self.taken(machine, want)[0]
        return self.growth_score(then.lost(self.tasks) - machine.lost(self.tasks))

    def packing(self, machine: Machine, want: Want) -> int:
        size = len(machine.rooms)
        if want.total == 0:
            return 0
        if machine.rooms.count(GPU) == size:
            return max(33 - size, min(size, 33))
        _, _, fresh, percent = self.taken(machine, want)
        return max(50 - fresh, 33) if fresh else max(100 - percent // 10, 50)

    def clustering(self, machine: Machine, want: Want) -> int:
        if want.total == 0:
            return 0
        kinds = {kind for kind, count in machine.kinds.items() if count > 0}
        bands = {(True, False): 75, (True, True): 50, (False, False): 25, (False, True): 0}
        return (
            25 * (self.most_gpu - machine.left) // self.most_gpu + bands[want.kind in kinds, bool(kinds - {want.kind})]
        )

    def draw(self, most: int, salt: int) -> int:
        mask = (1 << 62) - 1
        x = (self.seed * 0x2545F491 + self.starts * 0x9E3779B1 + salt * 0x85EBCA6B) & mask
        x = ((x ^ (x >> 30)) * 0x1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x133111EB) & mask
        return (x ^ (x >> 31)) % most

    # --- all nodes ---

    def choose(self, machines: Sequence[Machine], numbers: Sequence[int], want: Want) -> int | None:
        """Number of the node for what must go to one node; ``numbers`` in the order of names."""
        able = [n for n in numbers if self.fits(machines[n], want)]
        if not able:
            return None
        if self.name == "random":
            return able[self.draw(len(able), 0)]
        return max(able, key=lambda n: (self.score(machines[n], want), -able.index(n)))


def settle(machine: Machine, want: Want, grant: Sequence[tuple[int, int]], *, sign: int = 1) -> None:
    """Take what is granted, with its part of the CPUs and memory, rounded down device by device; or give it back."""
    for device, milli in grant:
        machine.rooms[device] -= sign * milli
        assert 0 <= machine.rooms[device] <= GPU
        machine.kinds[want.kind] += sign
        if machine.cpu is not None:
            machine.cpu -= sign * (want.cpu * milli // want.total)
        if machine.mem is not None:
            machine.mem -= sign * (want.mem * milli // want.total)


def fill(rule: Rule, machines: list[Machine], wants: Sequence[Want]) -> Iterator[tuple[int | None, int]]:
    """Let one after the other go to one node and stay: its number, and what is unallocatable afterwards."""
    for want in wants:
        n = rule.choose(machines, range(len(machines)), want)
        if n is not None:
            machine = machines[n]
            settle(machine, want, rule.taken(machine, want)[1])
            if want.total == 0:
                machine.cpu = None if machine.cpu is None else machine.cpu - want.cpu
                machine.mem = None if machine.mem is None else machine.mem - want.mem
            rule.starts += 1
        yield n, sum(machine.lost(rule.tasks) for machine in machines)


def typical(wants: Sequence[Want], most_devices: int, types: Sequence[object]) -> list[Task]:
    """Most frequent tasks until 95 % are counted."""
    specs = [(w.cpu, min(w.total, GPU), min(-(-w.total // GPU), most_devices), w.types) for w in wants]
    counts = Counter(specs)
    order = sorted(
        counts, key=lambda spec: (counts[spec], *spec[:3], sum(1 << types.index(t) for t in spec[3])), reverse=True
    )
    tasks: list[Task] = []
    seen = 0
    for cpu, milli, devices, types in order:
        weight = counts[cpu, milli, devices, types]
        if seen * 100 < 95 * len(wants):
            tasks.append(Task(devices, milli, cpu, types, weight))
        seen += weight
    return tasks
