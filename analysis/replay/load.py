"""How much work is submitted, over what the cluster could do."""

from __future__ import annotations

import numpy as np

from analysis.replay._hardware import COUNT, SIZE, TYPE
from analysis.replay._jobs import US
from analysis.replay._prepare import Prepared
from analysis.replay.cluster import Cluster
from analysis.replay.outages import away_s

__all__ = ["offered_load"]


def offered_load(prepared: Prepared, cluster: Cluster) -> float | None:
    """GPU time submitted over GPU time there from the first to the last submission, both at reference speed."""
    if len(prepared.accepted) < 2:
        return None
    window = float(prepared.submit[-1] - prepared.submit[0]) / US
    gpus = prepared.jobs["num_gpus"].to_numpy()[prepared.accepted]
    hw = prepared.hw
    names = [prepared.gpu_types[t] for t in hw.groups[:, TYPE]]
    speed = np.array([cluster.speed_of(name) or 1.0 for name in names])
    k = prepared.column[hw.groups[0, TYPE]]
    work = float((gpus * prepared.run[:, k]).sum()) / US * speed[0]
    capacity = float((hw.groups[:, SIZE] * hw.groups[:, COUNT] * speed).sum())
    there = capacity * window
    if not cluster.is_steady:
        submit = prepared.jobs["submit_time"]
        away = away_s(cluster, *submit.gather(prepared.accepted[[0, -1]]))
        there -= sum(gpus * (cluster.speed_of(name) or 1.0) * s for _, s, gpus, name in away.iter_rows())
    return work / there if there > 0 else None
