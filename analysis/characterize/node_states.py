"""Which GPUs of which nodes are free at given instants, from what jobs held where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import conform

__all__ = ["DEVICE", "HELD_SCHEMA", "NodeState", "held_on_nodes", "node_states", "used_nodes"]

#: One whole GPU, in thousandths.
DEVICE: Final = 1000
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

#: What a job held on a node; ``piece_milli`` below 1000 is the share of one device that each of its pieces has.
HELD_SCHEMA: Final = {
    "node_id": pl.String(),
    "begin_us": pl.Int64(),
    "until_us": pl.Int64(),
    "num_pieces": pl.Int64(),
    "piece_milli": pl.Int64(),
    "num_cpus": pl.Float64(),
}


def held_on_nodes(runs: pl.DataFrame) -> pl.DataFrame:
    """Split what jobs held over their nodes as evenly as whole GPUs can be, the first nodes taking one more.

    Parameters
    ----------
    runs : DataFrame, one row per run of a job
        nodes (list of str; a node named twice counts twice), begin_us, until_us, milli_gpus and num_cpus of the whole
        job (unknown CPUs count as none), num_tasks (gang members; null = 1). Runs without nodes are left out.

    Returns
    -------
    DataFrame, a row per run and node, and one more for what is left of a whole GPU (half of 2.5 on the first node)
        As ``HELD_SCHEMA``.

    Examples
    --------
    >>> runs = pl.DataFrame({"nodes": [["a", "b"]], "begin_us": 0, "until_us": 9, "milli_gpus": 3000})
    >>> held_on_nodes(runs.with_columns(num_cpus=4.0, num_tasks=1)).select("node_id", "num_pieces", "num_cpus").rows()
    [('a', 2, 2.0), ('b', 1, 2.0)]
    """
    each = pl.col("milli_gpus") // pl.col("num_tasks").fill_null(1).clip(lower_bound=1)
    split = (
        runs.filter(pl.col("nodes").list.len() > 0)
        .with_columns(
            piece_milli=pl.when(each < DEVICE).then(each.clip(lower_bound=1)).otherwise(DEVICE).cast(pl.Int64),
            num_nodes=pl.col("nodes").list.len().cast(pl.Int64),
            place=pl.int_ranges(0, pl.col("nodes").list.len(), dtype=pl.Int64),
        )
        .with_columns(pieces=pl.col("milli_gpus") // pl.col("piece_milli"))
        .explode("nodes", "place")
    )
    pieces, count = pl.col("pieces"), pl.col("num_nodes")
    whole = split.with_columns(
        node_id="nodes",
        num_pieces=pieces // count + (pl.col("place") < pieces % count).cast(pl.Int64),
        num_cpus=pl.col("num_cpus").fill_null(0.0) / count,
    )
    rest = pl.col("milli_gpus") % pl.col("piece_milli")
    left = whole.filter((pl.col("place") == 0) & (rest > 0) & (pl.col("piece_milli") == DEVICE)).with_columns(
        num_pieces=1, piece_milli=rest, num_cpus=pl.lit(0.0)
    )
    return pl.concat([conform(part, HELD_SCHEMA) for part in (whole, left)])


def used_nodes(held: pl.DataFrame) -> pl.DataFrame:
    """Nodes that jobs ran on, each with the most GPUs in use on it at one time.

    Parameters
    ----------
    held : DataFrame
        As `held_on_nodes` gives it.

    Returns
    -------
    DataFrame, sorted
        node_id, num_gpus (rounded up), and gpu_type and num_cpus, which are null.
    """
    amount = pl.col("num_pieces") * pl.col("piece_milli")
    changes = pl.concat(
        [held.select("node_id", time="begin_us", milli=amount), held.select("node_id", time="until_us", milli=-amount)]
    )
    # What ends at an instant is given back before what begins then is taken.
    level = pl.col("milli").cum_sum().over("node_id", order_by=["time", "milli"])
    peaks = changes.with_columns(level=level).group_by("node_id").agg(pl.col("level").max())
    return peaks.sort("node_id").select(
        "node_id",
        num_gpus=(pl.col("level") + DEVICE - 1) // DEVICE,
        gpu_type=pl.lit(None, pl.String),
        num_cpus=pl.lit(None, pl.Float64),
    )


@dataclass(frozen=True)
class NodeState:
    """Free devices of every node at one instant.

    Attributes
    ----------
    free_milli : array of int64, shape (nodes, devices)
        Thousandths free of each device; 0 where a node has fewer devices. Devices are in no order that means anything.
    free_cpus : array of float64, shape (nodes,)
        Free processors; infinite where the nodes table does not say how many there are.
    """

    free_milli: IntArray
    free_cpus: FloatArray


def node_states(held: pl.DataFrame, nodes: pl.DataFrame, times_us: IntArray) -> Iterator[NodeState]:
    """Give the state of the nodes at each instant; what begins then is held, what ends then is not.

    A share of a device goes to the shared device of its node with the least room that suffices, else to another device.
    More than a node has counts as all of it.

    Parameters
    ----------
    held : DataFrame
        As `held_on_nodes` gives it; nodes that ``nodes`` does not hold are left out.
    nodes : DataFrame
        Columns of the nodes table.
    times_us : array of int64
        Instants, rising; microseconds since 1970 UTC.

    Yields
    ------
    NodeState
        One an instant, in their order; nodes in the order of ``nodes``.
    """
    numbered = nodes.select("node_id").with_columns(node=pl.int_range(pl.len(), dtype=pl.Int64))
    known = held.join(numbered, on="node_id").filter(pl.col("until_us") > pl.col("begin_us"))
    whole = known.filter(pl.col("piece_milli") == DEVICE)
    shared = _Slots.assign(known.filter(pl.col("piece_milli") < DEVICE), nodes.height)
    taken = _Changes.of(whole["node"], whole["begin_us"], whole["until_us"], whole["num_pieces"])
    processors = _Changes.of(known["node"], known["begin_us"], known["until_us"], known["num_cpus"])
    capacity = nodes["num_gpus"].to_numpy().astype(np.int64)
    all_cpus = nodes["num_cpus"].cast(pl.Float64).fill_null(np.inf).to_numpy()
    devices = np.zeros(nodes.height, dtype=np.int64)
    used_cpus = np.zeros(nodes.height)
    slots = np.zeros(max(shared.num_slots, 1), dtype=np.int64)
    width = int(capacity.max(initial=1))
    for time_us in times_us.tolist():
        taken.apply(devices, until_us=time_us)
        processors.apply(used_cpus, until_us=time_us)
        shared.changes.apply(slots, until_us=time_us)
        yield NodeState(_free(capacity, devices, shared, slots, width), np.maximum(all_cpus - used_cpus, 0.0))


def _free(capacity: IntArray, devices: IntArray, shared: _Slots, slots: IntArray, width: int) -> IntArray:
    """Thousandths free: wholly free devices first, then the rooms of the shared ones, then nothing."""
    in_use = np.flatnonzero(slots > 0)
    owners = shared.node_of[in_use]
    open_slots = np.bincount(owners, minlength=len(capacity))
    idle = np.clip(capacity - devices - open_slots, 0, None)
    free = np.where(np.arange(width)[None, :] < idle[:, None], DEVICE, 0).astype(np.int64)
    # Rank of each shared device within its node, so that each gets a column of its own.
    order = np.argsort(owners, kind="stable")
    starts = np.concatenate([[0], np.cumsum(open_slots)])[owners[order]]
    column = idle[owners[order]] + np.arange(len(order)) - starts
    fits = column < capacity[owners[order]]
    free[owners[order][fits], column[fits]] = np.clip(DEVICE - slots[in_use[order]], 0, None)[fits]
    return free


@dataclass
class _Changes:
    """Changes of an amount by place, in the order of time, applied up to an instant at a time."""

    times: IntArray
    places: IntArray
    amounts: NDArray[np.float64] | IntArray
    done: int = 0

    @classmethod
    def of(cls, place: pl.Series, begin: pl.Series, until: pl.Series, amount: pl.Series) -> _Changes:
        times = np.concatenate([begin.to_numpy(), until.to_numpy()])
        order = np.argsort(times, kind="stable")
        amounts = amount.to_numpy()
        both = np.concatenate([amounts, -amounts])
        return cls(times[order], np.concatenate([place.to_numpy()] * 2)[order], both[order])

    def apply(self, levels: NDArray[np.float64] | IntArray, *, until_us: int) -> None:
        stop = int(np.searchsorted(self.times, until_us, side="right"))
        np.add.at(levels, self.places[self.done : stop], self.amounts[self.done : stop])
        self.done = stop


@dataclass(frozen=True)
class _Slots:
    """Shared devices: a slot each, of one node."""

    node_of: IntArray
    changes: _Changes

    @property
    def num_slots(self) -> int:
        return len(self.node_of)

    @classmethod
    def assign(cls, held: pl.DataFrame, num_nodes: int) -> _Slots:
        """Give every share a slot: that of its node with the least room that suffices, else a new or empty one."""
        pieces = held.select(pl.all().repeat_by("num_pieces")).explode(held.columns) if held.height else held
        pieces = pieces.sort("begin_us", "until_us", "node", "piece_milli").with_row_index("piece")
        node, milli = pieces["node"].to_list(), pieces["piece_milli"].to_list()
        events = sorted(
            [(time, 1, piece) for piece, time in enumerate(pieces["begin_us"].to_list())]
            + [(time, 0, piece) for piece, time in enumerate(pieces["until_us"].to_list())]
        )
        slots_of: list[list[int]] = [[] for _ in range(num_nodes)]
        node_of: list[int] = []
        used: list[int] = []
        slot_of = [0] * len(node)
        for _, begins, piece in events:
            if not begins:
                used[slot_of[piece]] -= milli[piece]
                continue
            own = slots_of[node[piece]]
            slot = _best_slot(own, used, milli[piece])
            if slot is None:
                slot = len(used)
                own.append(slot)
                used.append(0)
                node_of.append(node[piece])
            used[slot] += milli[piece]
            slot_of[piece] = slot
        series = pl.Series("slot", slot_of, dtype=pl.Int64)
        changes = _Changes.of(series, pieces["begin_us"], pieces["until_us"], pieces["piece_milli"])
        return cls(np.array(node_of, dtype=np.int64), changes)


def _best_slot(own: list[int], used: list[int], milli: int) -> int | None:
    """The fullest slot with room; an empty one only if no other will do."""
    fitting = [slot for slot in own if used[slot] + milli <= DEVICE]
    return max(fitting, key=lambda slot: (used[slot], -slot)) if fitting else None
