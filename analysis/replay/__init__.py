"""Replay a log under schedulers: engine, cluster, placement, packing, policies, speeds, result."""

from analysis.replay.allocation import allocation
from analysis.replay.closed_loop import Forecaster, RefreshingForecaster, RollingPrediction
from analysis.replay.cluster import Cluster
from analysis.replay.energy import energy
from analysis.replay.engine import replay
from analysis.replay.fairness import fairness
from analysis.replay.fidelity import fidelity
from analysis.replay.gantt import gantt
from analysis.replay.groups import metrics_by
from analysis.replay.helios import helios_artifact
from analysis.replay.over_time import over_time
from analysis.replay.packing import PackingResult, inflate, pack
from analysis.replay.placement import PLACEMENTS
from analysis.replay.policies import POLICIES, NumbaKey, Policy, PythonKey, PythonScheduler, policy
from analysis.replay.quantiles import quantiles
from analysis.replay.recorded import recorded
from analysis.replay.result import ReplayInterrupted, ReplayResult
from analysis.replay.start_estimates import estimate_starts, queue_at, start_errors
from analysis.replay.what_if import what_if

__all__ = [
    "PLACEMENTS",
    "POLICIES",
    "Cluster",
    "Forecaster",
    "NumbaKey",
    "PackingResult",
    "Policy",
    "PythonKey",
    "PythonScheduler",
    "RefreshingForecaster",
    "ReplayInterrupted",
    "ReplayResult",
    "RollingPrediction",
    "allocation",
    "energy",
    "estimate_starts",
    "fairness",
    "fidelity",
    "gantt",
    "helios_artifact",
    "inflate",
    "metrics_by",
    "over_time",
    "pack",
    "policy",
    "quantiles",
    "queue_at",
    "recorded",
    "replay",
    "start_errors",
    "what_if",
]
