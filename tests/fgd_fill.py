"""A fill of a cluster by Fragmentation Gradient Descent (ATC 2023), to meet the fragmentation that its authors publish.

Pods arrive in a random order and never leave. Each goes to the node, and the device, where the expected unallocatable
amount grows least; scores are whole numbers 0-100, ties go to the smallest node name, as in the authors' scheduler.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from analysis.characterize.fragmentation import unallocatable_gpus
from analysis.characterize.node_states import DEVICE, NodeState


class Fill:
    """The nodes, and what every kind of pod would score on each."""

    def __init__(self, nodes: pl.DataFrame, tasks: pl.DataFrame) -> None:
        self.nodes, self.tasks = nodes.sort("node_id"), tasks
        capacity = self.nodes["num_gpus"].to_numpy()
        self.free = np.where(np.arange(capacity.max())[None, :] < capacity[:, None], DEVICE, 0)
        self.cpus = self.nodes["num_cpus"].to_numpy().astype(float)
        self.types = self.nodes["gpu_type"]
        self.lost = self.expected(self.free, self.cpus, np.arange(len(capacity)))
        self.scores: dict[tuple[int, int, float], np.ndarray] = {}
        self.devices: dict[tuple[int, int, float], np.ndarray] = {}
        self.seen: dict[tuple[int, int, float], int] = {}
        self.placed: list[int] = []

    def expected(self, free: np.ndarray, cpus: np.ndarray, node: np.ndarray) -> np.ndarray:
        return unallocatable_gpus(NodeState(free, cpus), self.tasks, gpu_types=self.types.gather(node))

    def after(self, kind: tuple[int, int, float], node: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Candidate states: the row of ``node``, the device of a share, and the free devices then."""
        devices, milli, cpus = kind
        free = self.free[node]
        fits = (self.cpus[node] >= cpus) & ((free >= milli).sum(axis=1) >= devices)
        if devices == 1:
            # One candidate a device.
            rows, device = np.nonzero((free >= milli) & fits[:, None])
            then = free[rows].copy()
            then[np.arange(len(rows)), device] -= milli
            return rows, device, then
        rows = np.flatnonzero(fits)
        then = free[rows].copy()
        is_taken = (then == DEVICE) & (np.cumsum(then == DEVICE, axis=1) <= devices)
        return rows, np.zeros(len(rows), dtype=int), np.where(is_taken, 0, then)

    def update(self, kind: tuple[int, int, float]) -> None:
        """Score this kind anew on the nodes that changed since it was scored."""
        if kind not in self.scores:
            self.scores[kind] = np.full(len(self.cpus), -1)
            self.devices[kind] = np.zeros(len(self.cpus), dtype=int)
            node = np.arange(len(self.cpus))
        else:
            node = np.unique(self.placed[self.seen[kind] :]).astype(int)
        self.seen[kind] = len(self.placed)
        self.scores[kind][node] = -1
        if not len(node):
            return
        rows, device, then = self.after(kind, node)
        grown = self.lost[node[rows]] - self.expected(then, self.cpus[node[rows]] - kind[2], node[rows])
        score = (100 / (1 + np.exp(-grown))).astype(int)
        # The best device of each node, the first of equal ones.
        order = np.lexsort((device, -score, rows))
        first = order[np.unique(rows[order], return_index=True)[1]]
        self.scores[kind][node[rows[first]]] = score[first]
        self.devices[kind][node[rows[first]]] = device[first]

    def place(self, kind: tuple[int, int, float]) -> bool:
        """Put one pod where it scores best; false if it fits nowhere."""
        self.update(kind)
        node = int(self.scores[kind].argmax())
        if self.scores[kind][node] < 0:
            return False
        devices, milli, cpus = kind
        row = self.free[node]
        if devices == 1:
            row[self.devices[kind][node]] -= milli
        elif devices:
            row[np.flatnonzero(row == DEVICE)[:devices]] = 0
        self.cpus[node] -= cpus
        self.lost[node] = self.expected(row[None, :], self.cpus[[node]], np.array([node]))[0]
        self.placed.append(node)
        return True
