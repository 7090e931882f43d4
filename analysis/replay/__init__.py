"""Replay a log under schedulers: engine, cluster, placement, policies, speeds, result."""

from analysis.replay.cluster import Cluster
from analysis.replay.engine import replay
from analysis.replay.fidelity import fidelity
from analysis.replay.placement import PLACEMENTS
from analysis.replay.policies import POLICIES, Policy, policy
from analysis.replay.recorded import recorded
from analysis.replay.result import ReplayResult

__all__ = ["PLACEMENTS", "POLICIES", "Cluster", "Policy", "ReplayResult", "fidelity", "policy", "recorded", "replay"]
