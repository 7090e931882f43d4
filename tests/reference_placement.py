"""Where the reference engine puts a job: devices are lists of free milli-GPUs, and every node is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

GPU = 1000  # milli-GPUs of one device


class Job(NamedTuple):
    """What a user asked for; times in microseconds, None = not known."""

    job_id: str
    submit: int
    duration: int | None
    predicted: int | None
    milli: int | None
    tasks: int | None = None
    vc: str | None = None
    allowed: tuple[str, ...] = ()  # none = any
    logged: str | None = None  # GPU type on which the log's duration was measured
    single_node: bool | None = None
    deadline: int | None = None
    priority: float | None = None
    cpu: int = 0  # milli-CPUs and MiB of the whole job; only scored placements keep to them
    mem: int = 0
    user: str | None = None


class Node(NamedTuple):
    node_id: str
    num_gpus: int
    gpu_type: str | None = None
    vc: str | None = None


#: What a job holds: (node, device, milli-GPUs) for every device.
Grant = list[tuple[int, int, int]]
#: Free milli-GPUs, by node and device.
Rooms = list[list[int]]


class Ask(NamedTuple):
    """What a job asks of its VC's nodes; if one of two equal asks does not fit now, neither does the other."""

    whole: int
    pieces: int
    milli: int  # of each piece
    shape: str  # "one" node, whole "nodes" and a rest, or "any" free GPUs
    types: tuple[str | None, ...]
    cpu: int = 0
    mem: int = 0


def free_of(devices: Sequence[int]) -> int:
    """Wholly free GPUs of a node."""
    return devices.count(GPU)


def whole_gpus(node: int, devices: Sequence[int], count: int) -> Grant:
    """The lowest free devices of a node."""
    return [(node, d, GPU) for d, room in enumerate(devices) if room == GPU][:count]


def best_fit(rooms: Rooms, nodes: Iterable[int], count: int) -> int | None:
    """Node with the smallest sufficient number of free GPUs, then the lowest."""
    fitting = [(free, n) for n in nodes if (free := rooms[n].count(GPU)) >= count]
    return min(fitting)[1] if fitting else None


def piece(rooms: Rooms, nodes: Sequence[int], milli: int) -> Grant | None:
    """A fraction: the fullest partly used device with room for it, else a new device on the best-fit node."""
    partly = [(room, n, d) for n in nodes for d, room in enumerate(rooms[n]) if milli <= room < GPU]
    if partly:
        _, n, d = min(partly)
        return [(n, d, milli)]
    new = best_fit(rooms, nodes, 1)
    return None if new is None else [(new, rooms[new].index(GPU), milli)]


def with_pieces(rooms: Rooms, nodes: Sequence[int], ask: Ask, whole: Grant) -> Grant | None:
    """Whole GPUs that are chosen, and the ask's fractions one by one on what they leave."""
    left = list(rooms)
    for n in nodes:
        left[n] = list(rooms[n])
    grant: Grant = []
    parts: Grant | None = whole
    for _ in range(ask.pieces + 1):
        if parts is None:
            return None
        for n, d, milli in parts:
            left[n][d] -= milli
        grant += parts
        parts = piece(left, nodes, ask.milli)
    return grant


def on_one_node(rooms: Rooms, nodes: Sequence[int], ask: Ask) -> Grant | None:
    if ask.pieces == 0:
        n = best_fit(rooms, nodes, ask.whole)
        return None if n is None else whole_gpus(n, rooms[n], ask.whole)
    if ask.whole == 0 and ask.pieces == 1:
        return piece(rooms, nodes, ask.milli)
    for free, n in sorted((free_of(rooms[n]), n) for n in nodes):
        if free >= ask.whole:
            grant = with_pieces(rooms, [n], ask, whole_gpus(n, rooms[n], ask.whole))
            if grant is not None:
                return grant
    return None


def whole_nodes(rooms: Rooms, nodes: Sequence[int], count: int) -> Grant | None:
    """Wholly free nodes, large ones first, while the need is at least their size; best fit for the rest."""
    grant: Grant = []
    left = list(nodes)
    for n in sorted(nodes, key=lambda n: (-len(rooms[n]), n)):
        if free_of(rooms[n]) == len(rooms[n]) <= count:
            grant += whole_gpus(n, rooms[n], count)
            count -= len(rooms[n])
            left.remove(n)
    if count == 0:
        return grant
    rest = best_fit(rooms, left, count)
    return None if rest is None else grant + whole_gpus(rest, rooms[rest], count)


def any_gpus(rooms: Rooms, nodes: Sequence[int], count: int) -> Grant | None:
    """Best fit as soon as one node suffices, and before that all free GPUs of the node that has most."""
    grant: Grant = []
    left = list(nodes)
    while count > 0:
        n = best_fit(rooms, left, count)
        if n is None:
            n = min(left, key=lambda n: (-free_of(rooms[n]), n), default=None)
            if n is None or free_of(rooms[n]) == 0:
                return None
        taken = whole_gpus(n, rooms[n], count)
        grant += taken
        count -= len(taken)
        left.remove(n)
    return grant


def on_nodes_of_a_type(rooms: Rooms, nodes: Sequence[int], ask: Ask) -> Grant | None:
    spread = whole_nodes if ask.shape == "nodes" else any_gpus
    whole = spread(rooms, nodes, ask.whole)
    return whole if whole is None or ask.pieces == 0 else with_pieces(rooms, nodes, ask, whole)


class Site:
    """The nodes of one VC."""

    def __init__(self, numbers: Sequence[int], nodes: Sequence[Node]) -> None:
        self.numbers = list(numbers)
        self.of_type: dict[str | None, list[int]] = {}  # in the order of each type's lowest node
        for n in self.numbers:
            self.of_type.setdefault(nodes[n].gpu_type, []).append(n)
        self.free_milli = sum(GPU * nodes[n].num_gpus for n in self.numbers)

    def place(self, rooms: Rooms, ask: Ask, types: Sequence[str | None] | None = None) -> Grant | None:
        """Where an ask goes on these rooms, None if it does not fit; ``types`` narrows what it allows."""
        types = ask.types if types is None else types
        if ask.shape == "one" or (
            ask.shape == "any" and ask.pieces <= 1
        ):  # where GPUs may lie anywhere, one node is tried first
            everywhere = len(types) == len(self.of_type)
            nodes = self.numbers if everywhere else sorted(n for t in types for n in self.of_type[t])
            grant = on_one_node(rooms, nodes, ask)
            if ask.shape == "one" or grant is not None:
                return grant
        grants = (on_nodes_of_a_type(rooms, self.of_type[t], ask) for t in types)
        return next((grant for grant in grants if grant is not None), None)

    def ask(self, job: Job, empty: Rooms, same_type: Callable[[str, str], bool]) -> Ask | None:
        """What a job asks for; None if it would not fit even on empty nodes."""
        tasks = job.tasks or 1
        whole, milli = divmod(max(job.milli // tasks, 1), GPU)
        pieces = tasks if milli else 0
        types = tuple(
            t for t in self.of_type if not job.allowed or (t is not None and any(same_type(a, t) for a in job.allowed))
        )
        one = Ask(whole * tasks, pieces, milli, "one", types, job.cpu, job.mem)
        fits_one = bool(types) and self.place(empty, one) is not None
        if job.single_node or (job.single_node is None and fits_one and pieces <= 1):
            return one if fits_one else None
        wide = one._replace(shape="any" if job.single_node is False else "nodes")
        return wide if self.place(empty, wide) is not None else None
