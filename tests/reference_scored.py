"""The plain-Python reference engine with scored placements: rooms know their machines, grants know who asked."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tests.reference_engine import Engine, Reservation, beside
from tests.reference_placement import GPU, Ask, Grant, Job, Node, Rooms, Site
from tests.reference_scores import Machine, Rule, Want, settle, typical


class Yard(list):
    """Free milli-GPUs by node and device, and the machines that they are of."""

    def __init__(self, machines: list[Machine]) -> None:
        super().__init__(machine.rooms for machine in machines)
        self.machines = machines

    def copy(self) -> Yard:
        return Yard([machine.copy() for machine in self.machines])


class Held(list):
    """A grant that knows what was asked."""

    def __init__(self, want: Want) -> None:
        super().__init__()
        self.want = want

    def take(self, yard: Yard, n: int, devices: Sequence[tuple[int, int]]) -> None:
        settle(yard.machines[n], self.want, devices)
        self.extend((n, d, milli) for d, milli in devices)


class ScoredSite(Site):
    """The nodes of one VC, and a rule."""

    def __init__(self, numbers: Sequence[int], nodes: Sequence[Node], *, rule: Rule, machines: list[Machine]) -> None:
        super().__init__(numbers, nodes)
        self.rule, self.machines = copy.copy(rule), machines

    def want(self, ask: Ask, types: Sequence[str | None]) -> Want:
        kind = (ask.whole, ask.pieces > 0)
        return Want(ask.whole, ask.pieces, ask.milli, ask.cpu, ask.mem, frozenset(types), kind)

    def place(self, rooms: Rooms, ask: Ask, types: Sequence[str | None] | None = None) -> Grant | None:
        types = ask.types if types is None else types
        want = self.want(ask, types)
        yard = rooms if isinstance(rooms, Yard) else Yard(self.machines)
        is_one_share = ask.whole == 0 and ask.pieces == 1
        if ask.shape == "one" or is_one_share or (ask.shape == "any" and ask.pieces <= 1):
            n = self.rule.choose(yard.machines, self.numbers, want)
            if n is not None:
                held = Held(want)
                held.extend((n, d, milli) for d, milli in self.rule.taken(yard.machines[n], want)[1])
                return held
            if ask.shape == "one":
                return None
        grants = (self.over(yard.copy(), self.want(ask, [t]), ask.shape, self.of_type[t]) for t in types)
        return next((grant for grant in grants if grant is not None), None)

    def over(self, yard: Yard, want: Want, shape: str, numbers: list[int]) -> Grant | None:
        """A wide job on the nodes of one type."""
        held, left = Held(want), want.whole
        if shape == "nodes":
            for n in sorted(numbers, key=lambda n: (-len(yard[n]), n)):
                size = len(yard[n])
                if yard[n].count(GPU) == size <= left and usable(yard.machines[n], want, size) == size:
                    held.take(yard, n, [(d, GPU) for d in range(size)])
                    left -= size
        while left > 0:
            take = left
            n = self.rule.choose(yard.machines, numbers, part(want, left, 0))
            if n is None and shape == "any":
                counts = [(-usable(yard.machines[n], want, left), n) for n in numbers]
                take, n = -min(counts)[0], min(counts)[1]
            if n is None or take == 0:
                return None
            held.take(yard, n, [(d, GPU) for d, room in enumerate(yard[n]) if room == GPU][:take])
            left -= take
        for _ in range(want.pieces):
            share = part(want, 0, 1)
            n = self.rule.choose(yard.machines, numbers, share)
            if n is None:
                return None
            held.take(yard, n, self.rule.taken(yard.machines[n], share)[1])
        return held


def part(want: Want, whole: int, pieces: int) -> Want:
    """Part of what a job asks for, with its part of the CPUs and memory."""
    amount = whole * GPU + pieces * want.milli
    cpu, mem = want.cpu * amount // want.total, want.mem * amount // want.total
    return want._replace(whole=whole, pieces=pieces, cpu=cpu, mem=mem)


def usable(machine: Machine, want: Want, most: int) -> int:
    """Most whole GPUs for which the machine has all that goes with them."""
    for whole in range(min(machine.rooms.count(GPU), most), 0, -1):
        need = part(want, whole, 0)
        if (machine.cpu is None or machine.cpu >= need.cpu) and (machine.mem is None or machine.mem >= need.mem):
            return whole
    return 0


@dataclass
class ScoredEngine(Engine):
    placement: str = "first_fit"
    seed: int = 0
    supplies: Sequence[tuple[int | None, int | None]] = ()  # milli-CPUs and MiB of the nodes, None = enough

    def __post_init__(self) -> None:
        machines = [
            Machine(node.gpu_type, [GPU] * node.num_gpus, cpu, mem)
            for node, (cpu, mem) in zip(self.nodes, self.supplies, strict=True)
        ]
        used = [machine for machine, node in zip(machines, self.nodes, strict=True) if node.num_gpus]
        # Types are told apart by their place in the order of their lowest nodes, nodes of unknown type first.
        types = list(dict.fromkeys(machine.gpu_type for machine in used))
        types.sort(key=lambda gpu_type: gpu_type is not None)
        tasks = typical(
            [self.task(job, types) for job in self.jobs if job.milli != 0 and job.milli is not None],
            max(node.num_gpus for node in self.nodes),
            types,
        )
        self.rule = Rule(self.placement, used, tasks, self.seed)
        self.site_type = functools.partial(ScoredSite, rule=self.rule, machines=machines)
        super().__post_init__()
        self.rooms = Yard(machines)

    def task(self, job: Job, types: list[str | None]) -> Want:
        described = any(t is not None for t in types)
        allowed = job.allowed if described else ()
        suits = [t for t in types if not allowed or (t is not None and any(self.same_type(a, t) for a in allowed))]
        tasks = max(job.tasks or 1, 1)
        whole, milli = divmod(job.milli // tasks, GPU)
        return Want(whole, int(milli > 0), milli, job.cpu // tasks, job.mem, frozenset(suits), (0, False))

    def take(self, vc: str | None, grant: Grant, *, sign: int = 1) -> None:
        for n, d, milli in grant:
            settle(self.rooms.machines[n], grant.want, [(d, milli)], sign=sign)
            self.sites[vc].free_milli -= sign * milli
        self.sites[vc].rule.starts += sign == 1

    def reserve(self, head: int, now: int) -> Reservation:
        vc = self.vc_of[head]
        ends = sorted((max(end, now + 1), j) for j, (end, _) in self.running[vc].items())
        later = self.seen(self.rooms.copy())
        for instant, ending in itertools.groupby(ends, key=lambda run: run[0]):
            for _, j in ending:
                grant = self.running[vc][j][1]
                for n, d, milli in grant:
                    if n not in self.out:
                        settle(later.machines[n], grant.want, [(d, milli)], sign=-1)
            grant = self.site_of[head].place(later, self.asks[head])
            if grant is not None:
                return Reservation(instant, later, grant)
        return self.no_reservation(later)

    def seen(self, rooms: Rooms) -> Rooms:
        if not self.out:
            return rooms
        yard = rooms.copy()
        for n in self.out:
            yard.machines[n].rooms[:] = [0] * len(yard[n])
        return yard

    def backfill(self, j: int, now: int, reservation: Reservation) -> bool:
        grant = reservation.same(self.kinds[j], lambda: self.find(j))
        if grant is None:
            reservation.hopeless.add(self.kinds[j])
            return False
        if not self.ends_by(reservation.shadow, j, grant, now):
            seen = functools.partial(self.veiled, reservation)
            grant = reservation.same(("beside", self.kinds[j]), lambda: self.site_of[j].place(seen(), self.asks[j]))
            if grant is None:
                return False
            if not self.ends_by(reservation.shadow, j, grant, now):
                for n, d, milli in grant:
                    reserve_less(reservation.later.machines[n], grant.want, d, milli)
        self.start(j, grant, now)
        reservation.answers.clear()
        return True

    def veiled(self, reservation: Reservation) -> Yard:
        """What a job may take now that will still run when the head wants to start."""
        seen = self.seen(self.rooms.copy())
        for machine, rooms in zip(
            seen.machines, beside(self.seen(self.rooms), reservation.later, reservation.grant), strict=True
        ):
            machine.rooms[:] = rooms
        head = reservation.grant.want
        taken = [0] * len(seen.machines), [0] * len(seen.machines)
        for n, _, milli in reservation.grant:
            taken[0][n] += head.cpu * milli // head.total
            taken[1][n] += head.mem * milli // head.total
        for n in {n for n, _, _ in reservation.grant}:
            machine, then = seen.machines[n], reservation.later.machines[n]
            if machine.cpu is not None:
                machine.cpu = min(machine.cpu, then.cpu - taken[0][n])
            if machine.mem is not None:
                machine.mem = min(machine.mem, then.mem - taken[1][n])
        return seen


def reserve_less(machine: Machine, want: Want, device: int, milli: int) -> None:
    """Count less as free at the shadow time; it may come to less than nothing."""
    machine.rooms[device] -= milli
    if machine.cpu is not None:
        machine.cpu -= want.cpu * milli // want.total
    if machine.mem is not None:
        machine.mem -= want.mem * milli // want.total
