"""Where a job goes: placements by name. The rules are compiled into ``analysis.replay._place``.

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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["PLACEMENTS", "Placement"]


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


#: Every placement by name; the contract test walks this.
PLACEMENTS: Final[dict[str, Placement]] = {
    "consolidate": Placement("consolidate", 0, "fewest nodes, best fit, lowest node id"),
}
