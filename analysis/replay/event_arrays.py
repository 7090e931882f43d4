"""From a cluster's outages to the arrays of the compiled loops."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl

from analysis.errors import UsageError
from analysis.replay._bits import I64
from analysis.replay._events import BACK, DRAINED, KILLED, Events
from analysis.replay._jobs import US, to_us
from analysis.replay._moving import _ratio_table
from analysis.replay._offline import Offline
from analysis.replay._prepare import Prepared
from analysis.replay.cluster import Cluster
from analysis.replay.outages import every_outage

__all__ = ["interval_us", "with_events"]


def interval_us(checkpoint_interval_s: float | None) -> int:
    """Whole microseconds from checkpoint to checkpoint; 0 if none is made.

    Raises
    ------
    UsageError
        If it is not at least a microsecond.
    """
    if checkpoint_interval_s is None:
        return 0
    if not 1 / US <= checkpoint_interval_s < math.inf:
        msg = (
            f"replay: checkpoint_interval_s is {checkpoint_interval_s!r}; expected seconds, at least 0.000001. Leave "
            "it out if jobs write no checkpoints: then whatever is killed starts from the beginning."
        )
        raise UsageError(msg)
    return round(checkpoint_interval_s * US)


def with_events(prepared: Prepared, cluster: Cluster, *, interval: int) -> tuple[Prepared, Events | None]:
    """What a replay knows, ready for nodes that come and go, and what happens to them; None if all of them stay.

    Run times are copied, since the loop shortens those of jobs that have done some of their work.
    """
    if cluster.is_steady or len(prepared.accepted) == 0:
        return prepared, None
    time, node, kind = _happenings(prepared, cluster)
    if len(time) == 0:
        return prepared, None
    hw, n = prepared.hw, len(prepared.accepted)
    offline = Offline(
        down=np.zeros(len(hw.free), dtype=np.int64), hidden=np.zeros(len(hw.room) or len(hw.free), dtype=np.int64)
    )
    prepared = replace(
        prepared, hw=hw._replace(offline=offline), run=prepared.run.copy(), predicted=prepared.predicted.copy()
    )
    vc_of_group = np.searchsorted(hw.vc_groups, np.arange(len(hw.groups)), side="right") - 1
    work = to_us(prepared.jobs["duration_s"][prepared.accepted])
    events = Events(
        time=time,
        node=node,
        kind=kind,
        vc=vc_of_group[hw.group].astype(np.int64),
        facts=np.array([0, interval, prepared.submit[-1]], dtype=np.int64),
        work=work,
        guess=prepared.predicted_log,
        ratio=_ratio_table(prepared),
        left=work.copy(),
        first=np.full(n, -1, dtype=np.int64),
        victim=np.empty(n, dtype=np.int64),
        **{name: np.zeros(n, dtype=np.int64) for name in ("kills", "held", "early", "wasted")},
    )
    return prepared, events


def _happenings(prepared: Prepared, cluster: Cluster) -> tuple[I64, I64, I64]:
    """Time, node and kind of all node events from the first submission on, in their order."""
    numbers = pl.DataFrame({"node_id": prepared.node_ids, "node": np.arange(len(prepared.node_ids), dtype=np.int64)})
    table = every_outage(cluster).join(numbers, on="node_id", maintain_order="left")
    origin = int(prepared.jobs["submit_time"].to_physical()[0])
    down = np.maximum(table["down"].to_physical().fill_null(origin).to_numpy() - origin, 0)
    comes_back = table["up"].is_not_null().to_numpy()
    up = table["up"].to_physical().fill_null(origin).to_numpy() - origin
    matters = ~comes_back | (up > 0)
    back = matters & comes_back
    kinds = np.where((table["kind"] == "drain").to_numpy(), DRAINED, KILLED)
    node = table["node"].to_numpy()
    time = np.concatenate([down[matters], up[back]])
    node, kind = (
        np.concatenate([node[matters], node[back]]),
        np.concatenate([kinds[matters], np.full(back.sum(), BACK)]),
    )
    order = np.lexsort((node, kind, time))
    return time[order].astype(np.int64), node[order].astype(np.int64), kind[order].astype(np.int64)
