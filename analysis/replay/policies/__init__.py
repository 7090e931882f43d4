"""Who starts next: a policy is an order of the jobs plus a trait; the engine owns the loop.

One file per family; a new policy is one function with ``@policy`` (see ``registry``).
"""

from analysis.replay.policies import backfill, fair, leases, lending, moving, orders, topology
from analysis.replay.policies.own import NumbaKey, PythonKey, PythonScheduler
from analysis.replay.policies.registry import POLICIES, Policy, policy
from analysis.replay.policies.rules import MovingKey

__all__ = [
    "POLICIES",
    "MovingKey",
    "NumbaKey",
    "Policy",
    "PythonKey",
    "PythonScheduler",
    "backfill",
    "fair",
    "leases",
    "lending",
    "moving",
    "orders",
    "policy",
    "topology",
]
