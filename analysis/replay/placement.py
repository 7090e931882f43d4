"""Where a job goes: placements by name. The rules are compiled into ``_place`` (consolidate) and ``_rules`` (others).

``consolidate``
    *Fewest nodes.* A job asks for whole GPUs, and perhaps for fractions of one.

    * A job is a **one-node job** if ``is_single_node`` is true, or is null and some empty node that it may use is big
      enough. It goes to the node with the smallest sufficient number of wholly free GPUs, then the lowest node id, over
      all GPU types that it may use.
    * Any other job is **wide** and runs on one GPU type: the first, in the order of the types' lowest nodes in its VC,
      on which it fits now. It takes wholly free nodes while its need is at least their size, large nodes first, then
      lowest id; the rest goes to one node by best fit. Where ``is_single_node`` is false (may be spread), a job first
      tries one node, then takes best fit for what is left as soon as one node suffices, and before that all free GPUs
      of the node that has most.
    * A **fraction** lives on one device: the partly used device with the least sufficient room, then lowest node, then
      lowest device; else the lowest free device of the best-fit node. Whole GPUs are wholly free devices, lowest first.
    * With ``num_tasks`` = n, each task asks for num_gpus / n; whole parts add up, fractional parts stay n separate
      fractions (four halves are not two wholes). Unless it must be on one node, a job of several fractions counts as
      wide: its whole GPUs first, then its fractions one by one, on any nodes of one type. 2.5 GPUs in one task are two
      whole GPUs and a half on one node: the node with the fewest free GPUs that holds both.

**Scored placements** are all others. They also keep to CPUs and memory: a job takes ``num_cpus`` and ``mem_gib`` in
proportion to its GPUs on each device (rounded down to milli-CPUs and MiB); null on a job asks for none, null on a node
means that it has enough and counts for nothing in a score. What must go to one node gets a whole score from 0 to 100
on each node where it fits; the highest wins, then the lowest node id. One-node jobs are what they are above, with CPUs
and memory counting for "big enough". A wide job takes wholly free nodes as above (with CPUs and memory for all their
GPUs), and its rest is scored on the nodes of the type; where it may be spread, that is asked first for the whole job,
then for what is left, and before that the node takes all it can on which most of the GPUs still needed can go (then
lowest id). Fractions of wide jobs are scored one by one. Whole GPUs are the lowest free devices; a fraction goes to a
device of the node by the rule's own choice, by default the one with the least sufficient room, free ones included, then
the lowest. In scores *left* is the node's free GPUs, fractions included, and *largest* means the node with most GPUs
(and the largest stated number of CPUs) of the cluster. Divisions round down.

``first_fit``
    Score 0: the lowest node id. Fraction: lowest device with room.
``worst_fit``
    100 left / largest: the node with most left. Fraction: the device with most room.
``random``
    Uniform among the nodes where it fits, then among the devices with room, from the seed and the number of jobs
    started so far in the VC (so that equal jobs get equal answers until somebody starts).
``best_fit``
    100 (1 - (left - asked) / 2 largest - (free CPUs - asked) / 2 largest), as in [1]_.
``dot_product``
    100 (1 - (left x asked + free CPUs x asked) / 2), all as shares of the largest: the alignment of Tetris [2]_, turned
    round to pack as in [1]_.
``gpu_packing``
    Used devices suffice: 100 - (percent free on them) / 10, at least 50. Free devices of a used node: 50 - their
    number, at least 33. An idle node: the larger of 33 - its GPUs and its GPUs, at most 33. CPU jobs: 0. [1]_, after
    [3]_.
``gpu_clustering``
    25 (largest - left) / largest, plus 75 where only jobs of the same kind of request are (a share, or the same number
    of GPUs), 50 where others are too, 25 where none is, 0 where only others are. CPU jobs: 0. [1]_, after [4]_.
``fgd``
    Fragmentation Gradient Descent [1]_: 100 / (1 + exp(growth)), where growth [GPUs] is by how much the job makes the
    node's expected unallocatable GPUs grow: over the typical tasks, the free GPUs on devices with too little room
    for the task, or all where the task does not fit (too few devices or CPUs, another type, a task without GPUs).
    Typical are the most frequent tasks of the replayed jobs, CPU jobs included, until 95 % are counted, each with its
    frequency. Fraction: the device that scores best, then the lowest.

References
----------
.. [1] Q. Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
   USENIX ATC 2023, https://www.usenix.org/conference/atc23/presentation/weng (no DOI), and the authors' simulator,
   hkust-adsl/kubernetes-scheduler-simulator 8f3d641.
.. [2] R. Grandl et al., "Multi-resource packing for cluster schedulers", SIGCOMM 2014, doi:10.1145/2619239.2626334.
.. [3] Q. Weng et al., "MLaaS in the Wild", NSDI 2022, https://www.usenix.org/conference/nsdi22/presentation/weng.
.. [4] W. Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI 2018,
   https://www.usenix.org/conference/osdi18/presentation/xiao.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from analysis.replay import _rules

__all__ = ["PLACEMENTS", "SCORED", "Placement"]


@dataclass(frozen=True)
class Placement:
    """A registered placement.

    Attributes
    ----------
    name : str
        Its name in ``PLACEMENTS`` and on the command line.
    code : int
        What the compiled loop knows it by.
    meaning : str
        One line for people.
    """

    name: str
    code: int
    meaning: str


def _by_name(placements: Iterable[Placement]) -> dict[str, Placement]:
    return {placement.name: placement for placement in placements}


#: Every scored placement by name.
SCORED: Final[dict[str, Placement]] = _by_name(
    [
        Placement("first_fit", _rules.FIRST_FIT, "lowest node id"),
        Placement("worst_fit", _rules.WORST_FIT, "most free GPUs: spreads"),
        Placement("random", _rules.RANDOM, "any node where it fits, seeded"),
        Placement("best_fit", _rules.BEST_FIT, "fewest free GPUs and CPUs afterwards"),
        Placement("dot_product", _rules.DOT_PRODUCT, "least alignment of what is free with what is asked"),
        Placement("gpu_packing", _rules.GPU_PACKING, "used devices, then used nodes, then idle ones"),
        Placement("gpu_clustering", _rules.GPU_CLUSTERING, "beside jobs that ask for as many GPUs"),
        Placement("fgd", _rules.FGD, "least growth of the GPUs that typical tasks cannot use"),
    ]
)
#: Every placement by name; the contract test walks this.
PLACEMENTS: Final[dict[str, Placement]] = {
    "consolidate": Placement("consolidate", 0, "fewest nodes, best fit, lowest node id; GPUs only"),
    **SCORED,
}
