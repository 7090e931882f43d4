"""Jobs that come one after another and never leave, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, compiled, entry
from analysis.replay._hardware import Entries, Hardware
from analysis.replay._place import ANY_TYPE, NOWHERE, place
from analysis.replay._scored import scored_node
from analysis.replay._scores import CPU, MEM, TYPES, UNLIMITED, Scores, count_start, total_milli, touch, unallocatable


class Filled(NamedTuple):
    """What came of each job."""

    node: I64  # [n] first node; NOWHERE if it did not fit
    lost: I64  # [n] unallocatable milli-GPUs of all nodes afterwards, times the sum of weights
    on_node: I64  # [N] the same by node now


def make_filled(num_jobs: int, num_nodes: int) -> Filled:
    """Room for what comes of jobs."""
    return Filled(np.full(num_jobs, NOWHERE), np.zeros(num_jobs, np.int64), np.zeros(num_nodes, np.int64))


@compiled
def take_cpus(hw: Hardware, s: Scores, c: I64) -> int:
    """Place a job without GPUs; its node, or NOWHERE."""
    node = scored_node(hw, s, c, c[TYPES])
    if node != NOWHERE:
        if s.cpu[node] < UNLIMITED:
            s.cpu[node] -= c[CPU]
        if s.mem[node] < UNLIMITED:
            s.mem[node] -= c[MEM]
        touch(s, node)
    return node


@compiled
def growth(s: Scores, out: Filled, node: int) -> int:
    """By how much a node's unallocatable GPUs grew since it was asked last."""
    now = unallocatable(s, node)
    grown = now - out.on_node[node]
    out.on_node[node] = now
    return int(grown)


@entry
def fill(hw: Hardware, s: Scores, job_class: I64, held: Entries, out: Filled) -> None:
    """Place jobs in their order."""
    lost, at = ZERO, ZERO
    for node in range(len(s.left)):
        lost += growth(s, out, node)
    for job in range(len(job_class)):
        c = s.asks[job_class[job]]
        if total_milli(c) == 0:
            out.node[job] = take_cpus(hw, s, c)
            if out.node[job] != NOWHERE:
                lost += growth(s, out, out.node[job])
        else:
            stop = place(hw, c, ANY_TYPE, held, at)
            if stop != NOWHERE:
                out.node[job] = hw.device_node[held.item[at]]
                for e in range(at, stop):
                    lost += growth(s, out, hw.device_node[held.item[e]])
                at = stop
        if out.node[job] != NOWHERE:
            count_start(s, ZERO)
        out.lost[job] = lost
