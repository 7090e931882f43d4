"""FIFO, SJF and QSSF: nobody is stopped, and the first job that cannot be placed blocks all behind it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from analysis.replay.helios.jobs import Job, Run
from analysis.replay.helios.nodes import Nodes

__all__ = ["run_strict"]

Entry = tuple[int, int, int, Job]


def run_strict(jobs: list[Job], nodes: Nodes, *, is_qssf: bool) -> tuple[dict[int, Run], int]:
    """Run the jobs of one VC.

    Only ticks at which something ends or arrives can start a job: the queue is strict, so that with the same free GPUs
    the same head stays blocked.

    Parameters
    ----------
    jobs : list of Job
        In trace order, by ``submit``.
    nodes : Nodes
        Of the VC.
    is_qssf : bool
        Ties of the key go by GPUs; and where nobody had been waiting, arrivals have no key yet and go by GPUs alone.

    Returns
    -------
    runs : dict of int to Run
        By row.
    most_waiting : int
        Most jobs in the queue after a tick.
    """
    runs = {job.row: Run() for job in jobs}
    last = jobs[-1].submit if jobs else 0
    ends: list[tuple[int, int, list[tuple[int, int]]]] = []
    queue: list[Entry] = []
    most_waiting = 0
    for now, arrived in _ticks(jobs, ends):
        while ends and ends[0][0] == now:
            nodes.release(heapq.heappop(ends)[2])
        fresh = [(job.key, job.num_gpus if is_qssf else 0, number, job) for number, job in arrived]
        if is_qssf and not queue:
            # Nobody gets a key before somebody waits. Who does not start here gets one in the next tick; but as nobody
            # who asks for more GPUs fits either, that starts nobody by itself.
            fresh.sort(key=lambda entry: entry[1:3])
            fresh = fresh[_start(now, (entry[3] for entry in fresh), nodes, ends, runs, last) :]
            queue = sorted(fresh)
        else:
            for entry in fresh:
                heapq.heappush(queue, entry)
            _start(now, _from_heap(queue), nodes, ends, runs, last)
        most_waiting = max(most_waiting, len(queue))
    return runs, most_waiting


def _ticks(
    jobs: list[Job], ends: list[tuple[int, int, list[tuple[int, int]]]]
) -> Iterator[tuple[int, list[tuple[int, Job]]]]:
    """Seconds at which something happens, and who arrives then."""
    place = 0
    while place < len(jobs) or ends:
        now = min(jobs[place].submit if place < len(jobs) else ends[0][0], ends[0][0] if ends else jobs[place].submit)
        arrived = []
        while place < len(jobs) and jobs[place].submit == now:
            arrived.append((place, jobs[place]))
            place += 1
        yield now, arrived


def _from_heap(queue: list[Entry]) -> Iterator[Job]:
    """The head, which leaves the queue when the next one is asked for."""
    while queue:
        yield queue[0][3]
        heapq.heappop(queue)


def _start(
    now: int,
    waiting: Iterator[Job],
    nodes: Nodes,
    ends: list[tuple[int, int, list[tuple[int, int]]]],
    runs: dict[int, Run],
    last: int,
) -> int:
    """Start jobs from the front until one does not fit; return how many."""
    count = 0
    for job in waiting:
        grant = nodes.place(job.num_gpus)
        if grant is None:
            return count
        end = now + job.duration
        runs[job.row] = Run(
            start=now,
            end=end,
            nodes=[node for node, _ in grant],
            held=job.duration,
            held_early=max(min(end, last) - now, 0),
        )
        heapq.heappush(ends, (end, job.row, grant))
        count += 1
    return count
