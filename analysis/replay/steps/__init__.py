"""The engine step by step, driven from Python: a simulation, and policies and environments on top of it."""

from analysis.replay.steps.simulation import Simulation
from analysis.replay.steps.views import JobsView

__all__ = ["JobsView", "Simulation"]
