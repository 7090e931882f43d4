"""Jobs near to each other's GPUs: node, rack, pod, cluster. They run on the step-wise engine.

A cluster's nodes may say their ``rack`` (what shares a switch) and ``pod`` (racks that do); a node that does not say it
is alone in its own. A job of several GPUs goes to the tightest level at which it fits now: one node; one rack; one pod;
anywhere in its VC. Of several the one with the fewest free GPUs that suffice, then the one with the lowest node id; in
it nodes with the most free GPUs first, the rest by best fit. All GPUs are of one type: types in the order of each one's
lowest node, the tighter level before the earlier type. A job that must be on a single node never leaves that level; one
that need not (``is_single_node`` is false, not null) accepts any.
Jobs of shares of a GPU go where placement ``consolidate`` puts them.

A job insists on the tightest level at which it would fit if its VC were empty (those of its nodes that are there now).
*Relaxed consolidation*: after every ``relax_after_s`` since its submission it accepts the next looser one.

Run times are those of the log times the slowdown of the level at which a job is put.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from analysis.errors import UsageError
from analysis.replay import _place
from analysis.replay._hardware import SIZE, TYPE
from analysis.replay.policies.orders import OPTIONAL, static_order
from analysis.replay.policies.own import PythonScheduler
from analysis.replay.policies.registry import policy

if TYPE_CHECKING:
    from analysis.replay._bits import I64
    from analysis.replay.steps import Simulation

    Spot = tuple[I64, I64, int]

__all__ = ["topology", "topology_skip"]

US = 1_000_000
LEVELS: Final = ("node", "rack", "pod", "cluster")
ONE_NODE, ANYWHERE = 0, len(LEVELS) - 1


class _Type:
    """The nodes of one GPU type in a VC, in the order of ids, and in which domain of every level each is."""

    def __init__(self, nodes: I64, rank: I64, names: dict[str, list[str | None]]) -> None:
        self.nodes = nodes[np.argsort(rank[nodes])]
        own = np.arange(len(nodes))
        self.domains = [own, self._domains(names["rack"]), self._domains(names["pod"]), np.zeros_like(own)]

    def _domains(self, names: list[str | None]) -> I64:
        seen: dict[Any, int] = {}
        named = [(names[node],) if names[node] is not None else int(node) for node in self.nodes]
        return np.array([seen.setdefault(name, len(seen)) for name in named], dtype=np.int64)

    def find(self, level: int, gpus: int, free: I64) -> tuple[I64, I64] | None:
        """Nodes of one domain and how many GPUs of each; None if no domain has so many free.

        ``free`` are the free GPUs of every node here.
        """
        domain = self.domains[level]
        total = np.bincount(domain, weights=free).astype(np.int64)
        total[total < gpus] = np.iinfo(np.int64).max
        best = int(total.argmin())
        if total[best] == np.iinfo(np.int64).max:
            return None
        place = np.flatnonzero(domain == best)
        place = place[np.argsort(-free[place], kind="stable")]
        taken: list[tuple[int, int]] = []
        for k, at in enumerate(place):
            rest = place[k:]
            enough = rest[free[rest] >= gpus]
            if len(enough):
                # Best fit, then the lowest id: fewest free last in this order, ids rising among equals.
                tight = enough[free[enough] == free[enough].min()][0]
                taken.append((int(self.nodes[tight]), gpus))
                break
            taken.append((int(self.nodes[at]), int(free[at])))
            gpus -= int(free[at])
        nodes, counts = np.array(taken, dtype=np.int64).T
        return np.ascontiguousarray(nodes), np.ascontiguousarray(counts)


class _Near:
    """Passes of a policy that looks where GPUs lie."""

    def __init__(
        self, sim: Simulation, rank: I64, *, blocks: bool, relax_us: int | None, slowdown: tuple[float, ...]
    ) -> None:
        self.sim, self.rank, self.blocks = sim, rank, blocks
        self.relax, self.slowdown = relax_us, slowdown
        hw, classes = sim.prepared.hw, sim.prepared.classes
        names = {name: sim.prepared.nodes[name].to_list() for name in ("rack", "pod")}
        self.types = [self._types_of(vc, names) for vc in range(sim.num_vcs)]
        self.full = self.size = hw.groups[hw.group, SIZE]
        self.whole, self.pieces, self.allowed = (classes[:, at] for at in (_place.WHOLE, _place.PIECES, _place.TYPES))
        single = (
            sim.column("is_single_node")
            if "is_single_node" in sim.prepared.jobs.columns
            else np.full(len(rank), np.nan)
        )
        self.single, self.free_to_spread = np.equal(single, 1), np.equal(single, 0)
        self.tight: dict[int, int] = {}
        self.timer = [-1] * sim.num_vcs

    def _types_of(self, vc: int, names: dict[str, list[str | None]]) -> list[tuple[int, _Type]]:
        hw = self.sim.prepared.hw
        groups = np.arange(hw.vc_groups[vc], hw.vc_groups[vc + 1])
        kinds = list(dict.fromkeys(hw.groups[groups, TYPE].tolist()))
        of_type = [(kind, np.flatnonzero(np.isin(hw.group, groups[hw.groups[groups, TYPE] == kind]))) for kind in kinds]
        ordered = sorted(of_type, key=lambda pair: int(hw.rank[pair[1]].min()))
        return [(kind, _Type(nodes, hw.rank, names)) for kind, nodes in ordered]

    def spot(self, job_class: int, vc: int, loosest: int, free: I64) -> Spot | None:
        """Where a job of a class would go; None if it fits nowhere at the levels up to the loosest."""
        allowed = int(self.allowed[job_class])
        for level in range(loosest + 1):
            for kind, nodes in self.types[vc]:
                if (allowed >> kind) & 1:
                    found = nodes.find(level, int(self.whole[job_class]), free[nodes.nodes])
                    if found is not None:
                        return *found, level
        return None

    def look_around(self) -> None:
        """Note how large the nodes are that are there."""
        offline = self.sim.prepared.hw.offline
        if offline is None:
            return
        size = np.where(offline.down > 0, 0, self.full)
        if not np.array_equal(size, self.size):
            self.size = size
            self.tight.clear()

    def tightest(self, job_class: int, vc: int) -> int:
        """Tightest level at which a job of a class fits on its empty VC."""
        if job_class not in self.tight:
            found = self.spot(job_class, vc, ANYWHERE, self.size)
            self.tight[job_class] = ANYWHERE if found is None else found[2]
        return self.tight[job_class]

    def loosest(self, rows: I64, vc: int) -> I64:
        """Loosest level that each job accepts by now."""
        level = np.full(len(rows), ANYWHERE)
        if self.relax != 0:
            classes, which = np.unique(self.sim.prepared.job_class[rows], return_inverse=True)
            level = np.array([self.tightest(int(one), vc) for one in classes], dtype=np.int64)[which]
        if self.relax:
            level += (self.sim.now_us - self.sim.prepared.submit[rows]) // self.relax
        level[self.free_to_spread[rows]] = ANYWHERE
        level[self.single[rows]] = ONE_NODE
        return np.asarray(np.minimum(level, ANYWHERE))

    def try_start(self, row: int, vc: int) -> bool:
        """Start a job where it is nearest to itself."""
        job_class = int(self.sim.prepared.job_class[row])
        if self.pieces[job_class] > 0:
            return self.sim.start(row)
        loosest = int(self.loosest(np.array([row]), vc)[0])
        spot = self.spot(job_class, vc, loosest, self.sim.prepared.hw.free)
        return spot is not None and self.sim.start_on(row, spot[0], spot[1], slowdown=self.slowdown[spot[2]])

    def act(self, vc: int) -> None:
        """One pass over a VC."""
        self.look_around()
        if self.blocks:
            self.strict_pass(vc)
        else:
            self.skip_pass(vc)
        if self.relax:
            self.wake(vc, self.relax)

    def strict_pass(self, vc: int) -> None:
        """Start jobs in order until one does not fit."""
        rows = self.sim.waiting_in(vc).row
        while len(rows):
            head = int(self.rank[rows].argmin())
            if not self.try_start(int(rows[head]), vc):
                return
            rows = np.delete(rows, head)

    def skip_pass(self, vc: int) -> None:
        """Start what fits, in order; whoever asks for the same as one that did not fit is passed over too."""
        rows = self.sim.waiting_in(vc).row
        rows = rows[np.argsort(self.rank[rows], kind="stable")]
        while len(rows):
            asks = self.sim.prepared.job_class[rows] * (ANYWHERE + 1) + self.loosest(rows, vc)
            heads = np.sort(np.unique(asks, return_index=True)[1])
            started = next((head for head in heads if self.try_start(int(rows[head]), vc)), None)
            if started is None:
                return
            # Those before it that did not fit will not fit now either.
            failed = asks[heads[heads < started]]
            rows = np.delete(rows, started)[~np.isin(np.delete(asks, started), failed)]

    def wake(self, vc: int, relax: int) -> None:
        """Look again when the next waiting job accepts a looser level."""
        rows = self.sim.waiting_in(vc).row
        if self.blocks and len(rows):
            rows = rows[[int(self.rank[rows].argmin())]]
        rows = rows[(self.loosest(rows, vc) < ANYWHERE) & ~self.single[rows]]
        if len(rows) == 0:
            return
        submit, now = self.sim.prepared.submit[rows], self.sim.now_us
        first = int((submit + ((now - submit) // relax + 1) * relax).min())
        if first != self.timer[vc]:
            self.timer[vc] = first
            self.sim.set_timer(first)


def _near(order: str, relax_after_s: float | None, slowdown: tuple[float, float, float]) -> PythonScheduler:
    chosen = static_order(order)
    given = zip(LEVELS[1:], slowdown, strict=True)
    problems = [f"slowdown_{level} is {value!r}" for level, value in given if not 1 <= value < math.inf]
    if relax_after_s is not None and not (relax_after_s == 0 or 1 / US <= relax_after_s < math.inf):
        problems.append(f"relax_after_s is {relax_after_s!r}")
    if problems:
        msg = f"topology: {'; '.join(problems)}; expected slowdowns of 1 or more, and seconds of 0 or more."
        raise UsageError(msg)
    relax = None if relax_after_s is None else round(relax_after_s * US)

    def begin(sim: Simulation, blocks: bool) -> Callable[[int], None]:  # noqa: FBT001 - the engine's call
        from analysis.replay._order import job_ranks

        rank = job_ranks(chosen, sim.prepared)[0]
        return _Near(sim, rank, blocks=blocks, relax_us=relax, slowdown=(1.0, *slowdown)).act

    return PythonScheduler(begin, needs=chosen.needs, spreads=True)


@policy(trait="strict", optional=OPTIONAL)
def topology(
    *,
    order: str = "fifo",
    relax_after_s: float | None = None,
    slowdown_rack: float = 1.0,
    slowdown_pod: float = 1.0,
    slowdown_cluster: float = 1.0,
) -> PythonScheduler:
    """Node before rack before pod before cluster, with a slowdown by spread; the first job blocks those behind it.

    See ``policies.topology``.

    Parameters
    ----------
    order : str, default "fifo"
        Name of a strict policy, by whose order jobs start.
    relax_after_s : float, optional
        Wait after which a job accepts the next looser level than the tightest that could hold it; None: it never does;
        0: any level at once, the tightest first. [s]
    slowdown_rack, slowdown_pod, slowdown_cluster : float, default 1
        Run time of a job spread over a rack, a pod, more, over that on one node. [ratio]

    Returns
    -------
    PythonScheduler
    """
    return _near(order, relax_after_s, (slowdown_rack, slowdown_pod, slowdown_cluster))


@policy(trait="skip", optional=OPTIONAL)
def topology_skip(
    *,
    order: str = "fifo",
    relax_after_s: float | None = None,
    slowdown_rack: float = 1.0,
    slowdown_pod: float = 1.0,
    slowdown_cluster: float = 1.0,
) -> PythonScheduler:
    """Node before rack before pod before cluster, with a slowdown by spread; what does not fit is passed over.

    As ``topology``.

    Parameters
    ----------
    order, relax_after_s, slowdown_rack, slowdown_pod, slowdown_cluster
        As of ``topology``.

    Returns
    -------
    PythonScheduler
    """
    return _near(order, relax_after_s, (slowdown_rack, slowdown_pod, slowdown_cluster))
