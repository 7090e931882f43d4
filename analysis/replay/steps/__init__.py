"""The engine step by step, driven from Python: a simulation, and policies and environments on top of it."""

from typing import TYPE_CHECKING, Any

from analysis.replay.steps.simulation import Simulation
from analysis.replay.steps.views import JobsView

if TYPE_CHECKING:
    from analysis.replay.steps.environment import Episode, SchedulingEnv

__all__ = ["Episode", "JobsView", "SchedulingEnv", "Simulation"]


def __getattr__(name: str) -> Any:
    """Import the environment, which needs gymnasium, only when it is asked for."""
    if name in {"Episode", "SchedulingEnv"}:
        from analysis.replay.steps import environment

        return getattr(environment, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
