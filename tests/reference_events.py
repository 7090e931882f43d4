"""Nodes that come and go in the plain-Python reference engine: every question is asked of the list of outages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.reference_placement import Node

ALWAYS = 10**18


class Outage(NamedTuple):
    """From ``down`` until before ``up``, in microseconds, a node takes nobody; None = since or for ever."""

    node_id: str
    down: int | None
    up: int | None
    kind: str = "failure"


class Calendar:
    """What happens to nodes, by their numbers."""

    def __init__(self, outages: Iterable[Outage], nodes: Sequence[Node]) -> None:
        numbers = {node.node_id: n for n, node in enumerate(nodes)}
        self.rows = [
            (
                numbers[outage.node_id],
                -ALWAYS if outage.down is None else outage.down,
                ALWAYS if outage.up is None else outage.up,
                outage.kind != "drain",
            )
            for outage in outages
            if nodes[numbers[outage.node_id]].num_gpus > 0
        ]
        self.times = sorted({at for _, down, up, _ in self.rows for at in (down, up) if abs(at) < ALWAYS})

    def after(self, now: int) -> int | None:
        """The next instant at which something happens to a node."""
        return next((at for at in self.times if at > now), None)

    def out(self, now: int) -> set[int]:
        """Nodes that are not there, or drained."""
        return {n for n, down, up, _ in self.rows if down <= now < up}

    def struck(self, now: int) -> set[int]:
        """Nodes that fail or leave now."""
        return {n for n, down, _, kills in self.rows if down == now and kills}

    def changed(self, now: int) -> set[int]:
        return {n for n, down, up, _ in self.rows if now in {down, up}}


def kept(*, saved: int, done: int, interval: int) -> int:
    """Work that survives: of all that was done up to the last multiple of the interval, and what was saved before."""
    return max(saved, (saved + done) // interval * interval) if interval else saved
