"""Nodes that are not there: what is free on them is out of sight, and stays so when jobs leave a drained node."""

from __future__ import annotations

from typing import NamedTuple

from analysis.replay._bits import I64
from analysis.replay._compiled import compiled


class Offline(NamedTuple):
    """Which nodes are out, and what is free on them; where no node ever is, None stands in its place."""

    down: I64  # [N] outages that hold now
    hidden: I64  # [N] free GPUs of a node that is out, or [D] free milli-GPUs of its devices


@compiled
def is_out(x: Offline | None, node: int) -> bool:
    """Tell whether a node is out."""
    if x is None:
        return False
    return bool(x.down[node] > 0)


@compiled
def absorb(x: Offline | None, node: int, item: int, amount: int) -> bool:
    """Count what is given back or taken on a node that is out; False, and nothing happens, if it is not."""
    if x is None:
        return False
    if x.down[node] == 0:
        return False
    x.hidden[item] += amount
    return True


@compiled
def there(x: Offline | None, node: int, item: int, free: int) -> int:
    """What is free of a node or device for those who run there already."""
    if x is None:
        return free
    return int(x.hidden[item]) if x.down[node] > 0 else free
