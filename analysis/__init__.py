"""hindcast: load, characterize, replay and compare the job logs of GPU clusters.

The names that most work starts with; the rest stands in the subpackages ``loaders``, ``characterize``, ``replay``,
``plots`` and ``report``. Names are imported when they are first used, so that the command line starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.errors import HindcastError
    from analysis.loaders import load
    from analysis.loaders.synthetic import synthesize
    from analysis.replay.cluster import Cluster
    from analysis.trace import Trace, TraceMeta

__all__ = ["Cluster", "HindcastError", "Trace", "TraceMeta", "load", "synthesize"]

_HOMES = {
    "Cluster": "analysis.replay.cluster",
    "HindcastError": "analysis.errors",
    "Trace": "analysis.trace",
    "TraceMeta": "analysis.trace",
    "load": "analysis.loaders",
    "synthesize": "analysis.loaders.synthetic",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module 'analysis' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
