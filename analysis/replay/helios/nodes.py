"""A VC of 8-GPU nodes, and where HeliosArtifact's placer ``consolidate`` puts a job."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

__all__ = ["NODE_GPUS", "Nodes"]

#: GPUs of every node: the placer knows no other size.
NODE_GPUS: Final = 8
#: Node and the GPUs taken on it.
Grant = list[tuple[int, int]]


class Nodes:
    """Free GPUs of the nodes of one VC.

    Parameters
    ----------
    num_nodes : int
        Nodes, all empty.
    """

    def __init__(self, num_nodes: int) -> None:
        self.num_gpus = self.num_free = NODE_GPUS * num_nodes
        #: Numbers of the nodes that have so many GPUs free, rising.
        self._with_free: list[list[int]] = [[] for _ in range(NODE_GPUS + 1)]
        self._with_free[NODE_GPUS] = list(range(num_nodes))
        self._free = [NODE_GPUS] * num_nodes

    def place(self, num_gpus: int) -> Grant | None:
        """Take GPUs for a job; None, and nothing taken, if it does not fit.

        Up to 8 go to one node, that with the fewest free GPUs that suffice. More than 8 take wholly free nodes, and
        what is left over goes to the node with the *most* free GPUs. Ties by the lowest node.
        """
        grant = self._fit(num_gpus) if num_gpus <= self.num_free else None
        for node, gpus in grant or []:
            self._change(node, -gpus)
        return grant

    def release(self, grant: Iterable[tuple[int, int]]) -> None:
        """Give GPUs back."""
        for node, gpus in grant:
            self._change(node, gpus)

    def _fit(self, num_gpus: int) -> Grant | None:
        if num_gpus <= NODE_GPUS:
            found = next((nodes[0] for nodes in self._with_free[num_gpus:] if nodes), None)
            return None if found is None else [(found, num_gpus)]
        whole, rest = divmod(num_gpus, NODE_GPUS)
        empty = self._with_free[NODE_GPUS]
        if len(empty) < whole:
            return None
        grant = [(node, NODE_GPUS) for node in empty[:whole]]
        if not rest:
            return grant
        if len(empty) > whole:
            return [*grant, (empty[whole], rest)]
        found = next((nodes[0] for nodes in reversed(self._with_free[rest:NODE_GPUS]) if nodes), None)
        return None if found is None else [*grant, (found, rest)]

    def _change(self, node: int, gpus: int) -> None:
        before = self._free[node]
        nodes = self._with_free[before]
        del nodes[bisect_left(nodes, node)]
        insort(self._with_free[before + gpus], node)
        self._free[node] = before + gpus
        self.num_free += gpus
