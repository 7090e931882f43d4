"""Many replays in one process: nothing grows, and no GPU is ever promised twice."""

from __future__ import annotations

import gc
import random
import tracemalloc

from analysis.replay import PLACEMENTS, POLICIES, replay
from tests.replay_cases import PREDICTED, crowd, trouble
from tests.replay_checks import faults_at_events

NUM_REPLAYS = 200
#: What a log line or a cached constant may cost; a leak of one schedule per replay is a hundred times that [bytes].
ALLOWED_GROWTH = 256 * 1024


#: Conservative backfill, lending and topology know one placement.
CHOICES = [
    (policy, placement)
    for policy, chosen in sorted(POLICIES.items())
    for placement in sorted(PLACEMENTS)
    if placement == "consolidate" or (chosen.trait != "conservative" and not policy.startswith(("lending", "topology")))
]


def one(rng: random.Random, policy: str, placement: str) -> None:
    """A replay of a random case, checked at every event."""
    seed = rng.randrange(1000)
    case = trouble(crowd(seed), seed) if seed % 2 else crowd(seed)
    chosen = {"policy": policy, "predicted": PREDICTED, "placement": placement, "checkpoint_interval_s": 1.0}
    result = replay(case.jobs, cluster=case.cluster, events=True, **chosen)
    assert faults_at_events(result, case.jobs) == [], (policy, placement)
    assert not result.cluster.is_steady or result.metrics()["num_unfinished"] == 0


def test_two_hundred_replays_leave_no_memory_behind():
    rng = random.Random(20261130)
    # All is compiled before memory is watched, which slows compilation down.
    for policy, placement in CHOICES:
        one(rng, policy, placement)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        for _ in range(NUM_REPLAYS):
            one(rng, *rng.choice(CHOICES))
        gc.collect()
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    growth = sum(line.size_diff for line in after.compare_to(before, "filename"))
    assert growth < ALLOWED_GROWTH, after.compare_to(before, "lineno")[:10]
